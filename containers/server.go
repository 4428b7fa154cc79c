package main

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/distribution/reference"
)

// server is a database server that the tests reach by its address.
type server struct {
	name     string   // as the tests have it
	image    string   // "" if it is started only where the environment names one
	port     string   // in the container
	password string   // the container's variable with the administrator's password
	args     []string // as the tests give them to servers that they start
	driver   string   // of database/sql
	address  func(addr, password string) string

	dsn string // when it has been started
}

var servers = []server{
	{
		name: "postgres", image: "postgres:17-alpine", port: "5432/tcp",
		password: "POSTGRES_PASSWORD", args: []string{"-c", "max_connections=300"},
		driver: "pgx", address: postgresAddress,
	},
	{
		name: "mysql", image: "mysql:8.4", port: "3306/tcp",
		password: "MYSQL_ROOT_PASSWORD", args: []string{"--max-connections=500", "--skip-name-resolve"},
		driver: "mysql", address: mysqlAddress,
	},
	{
		name: "mariadb", image: "", port: "3306/tcp",
		password: "MARIADB_ROOT_PASSWORD", args: []string{"--max-connections=500", "--skip-name-resolve"},
		driver: "mysql", address: mysqlAddress,
	},
}

// none as an image leaves the server out.
const none = "none"

// imageVariable returns the environment variable that names the image.
func (s *server) imageVariable() string { return "SQLLOCK_" + strings.ToUpper(s.name) + "_IMAGE" }

// dsnVariable returns the environment variable that the tests read.
func (s *server) dsnVariable() string { return "SQLLOCK_TEST_" + strings.ToUpper(s.name) + "_DSN" }

// selectServers returns the servers to start, with the full names of their images. There
// is at least one.
func selectServers(getenv func(string) string) ([]server, error) {
	var chosen []server
	for _, s := range servers {
		if image := getenv(s.imageVariable()); image != "" {
			s.image = image
		}
		if s.image == none || s.image == "" {
			continue
		}
		// A full name is unambiguous. Testcontainers would look for a short name in the
		// registry of its own settings.
		named, err := reference.ParseDockerRef(s.image)
		if err != nil {
			return nil, fmt.Errorf("%s=%q is no name of an image: %w", s.imageVariable(), s.image, err)
		}
		s.image = named.String()
		chosen = append(chosen, s)
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("the environment leaves out all servers")
	}
	return chosen, nil
}

func postgresAddress(addr, password string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword("postgres", password), Host: addr,
		Path: "/postgres", RawQuery: "sslmode=disable",
	}
	return u.String()
}

func mysqlAddress(addr, password string) string {
	return "root:" + password + "@tcp(" + addr + ")/"
}

// environment returns base with the addresses of the servers. It adds the servers to the
// required ones.
func environment(base []string, servers []server) []string {
	const require = "SQLLOCK_REQUIRE"
	env := append([]string(nil), base...)
	var names []string
	for _, s := range servers {
		env = append(env, s.dsnVariable()+"="+s.dsn)
		names = append(names, s.name)
	}
	for _, entry := range base {
		if before, ok := strings.CutPrefix(entry, require+"="); ok && before != "" {
			names = append(names, before)
		}
	}
	return append(env, require+"="+strings.Join(names, ","))
}
