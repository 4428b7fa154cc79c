package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
)

// choose returns name=image of the servers that are wanted in an environment.
func choose(env map[string]string) (string, error) {
	chosen, err := selectServers(func(name string) string { return env[name] })
	var all []string
	for _, s := range chosen {
		all = append(all, s.name+"="+s.image)
	}
	return strings.Join(all, " "), err
}

func TestTheEnvironmentChoosesServersAndImages(t *testing.T) {
	const postgres, mysql = "postgres=docker.io/library/postgres:17-alpine", "mysql=docker.io/library/mysql:8.4"
	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{nil, postgres + " " + mysql},
		{map[string]string{"SQLLOCK_POSTGRES_IMAGE": "none"}, mysql},
		{map[string]string{"SQLLOCK_MYSQL_IMAGE": "none"}, postgres},
		{map[string]string{"SQLLOCK_MYSQL_IMAGE": "h:5000/m"}, postgres + " mysql=h:5000/m:latest"},
		{
			map[string]string{"SQLLOCK_MARIADB_IMAGE": "mariadb:11", "SQLLOCK_MYSQL_IMAGE": "none"},
			postgres + " mariadb=docker.io/library/mariadb:11",
		},
	} {
		if got, err := choose(c.env); got != c.want || err != nil {
			t.Errorf("%v: want %s, got %s, %v", c.env, c.want, got, err)
		}
	}
}

func TestAnInvalidChoiceOfServersIsRefused(t *testing.T) {
	for want, env := range map[string]map[string]string{
		"leaves out all servers":                  {"SQLLOCK_POSTGRES_IMAGE": "none", "SQLLOCK_MYSQL_IMAGE": "none"},
		`SQLLOCK_MYSQL_IMAGE="My SQL" is no name`: {"SQLLOCK_MYSQL_IMAGE": "My SQL"},
	} {
		if got, err := choose(env); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q, got %s, %v", env, want, got, err)
		}
	}
}

func TestAddressesHaveTheFormatOfTheDrivers(t *testing.T) {
	p, err := pgx.ParseConfig(postgresAddress("127.0.0.1:4711", "secret"))
	if err != nil {
		t.Fatal(err)
	}
	if p.Host != "127.0.0.1" || p.Port != 4711 || p.User != "postgres" || p.Password != "secret" || p.Database != "postgres" || p.TLSConfig != nil {
		t.Errorf("Postgres: %+v", p)
	}
	m, err := mysql.ParseDSN(mysqlAddress("127.0.0.1:4711", "secret"))
	if err != nil {
		t.Fatal(err)
	}
	if m.Net != "tcp" || m.Addr != "127.0.0.1:4711" || m.User != "root" || m.Passwd != "secret" || m.DBName != "" {
		t.Errorf("MySQL: %+v", m)
	}
}

func TestTheCommandGetsTheAddressesAndRequiresTheServers(t *testing.T) {
	started := []server{{name: "postgres", dsn: "p"}, {name: "mysql", dsn: "m"}}
	for before, want := range map[string]string{
		"":                         "postgres,mysql",
		"SQLLOCK_REQUIRE=":         "postgres,mysql",
		"SQLLOCK_REQUIRE=mariadb":  "postgres,mysql,mariadb",
		"SQLLOCK_REQUIRED=nothing": "postgres,mysql",
	} {
		env := environment([]string{"SQLLOCK_TEST_MYSQL_DSN=none", before}, started)
		for _, entry := range []string{"SQLLOCK_TEST_POSTGRES_DSN=p", "SQLLOCK_TEST_MYSQL_DSN=m", "SQLLOCK_REQUIRE=" + want} {
			// The last of two counts.
			name, _, _ := strings.Cut(entry, "=")
			last := slices.IndexFunc(reversed(env), func(s string) bool { return strings.HasPrefix(s, name+"=") })
			if got := reversed(env)[last]; got != entry {
				t.Errorf("with %q: want %s, got %s", before, entry, got)
			}
		}
	}
}

func reversed(all []string) []string {
	all = slices.Clone(all)
	slices.Reverse(all)
	return all
}
