package testdb

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// programs are the paths of the programs of a server.
type programs struct{ initialise, serve string }

// findPostgres takes initdb and postgres from one directory: they must be of one
// version.
func findPostgres() (programs, error) {
	for _, dir := range postgresDirs() {
		p := programs{filepath.Join(dir, "initdb"), filepath.Join(dir, "postgres")}
		if isProgram(p.initialise) && isProgram(p.serve) {
			return p, nil
		}
	}
	return programs{}, notFound("postgres and initdb", Postgres, "postgresql")
}

// postgresGlobs and mariadbPlaces are where the systems put servers off the PATH.
var (
	postgresGlobs = []string{
		"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/lib/postgresql*/bin",
		"/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin",
	}
	mariadbDirs = []string{
		"/usr/sbin", "/usr/local/sbin", "/usr/libexec", "/usr/local/bin", "/opt/homebrew/bin",
	}
)

// postgresDirs returns the directories to search: first the developer's choice, then the
// newest version.
func postgresDirs() []string {
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	for _, pattern := range postgresGlobs {
		found, _ := filepath.Glob(pattern)
		slices.SortFunc(found, func(a, b string) int { return version(b) - version(a) })
		dirs = append(dirs, found...)
	}
	return dirs
}

// version returns the first number in a path.
func version(path string) int {
	digits := strings.TrimLeftFunc(path, func(r rune) bool { return r < '0' || r > '9' })
	if end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		digits = digits[:end]
	}
	n, _ := strconv.Atoi(digits)
	return n
}

// mysqlVariable has the path of a mysqld of Oracle. It is not looked for: on many systems the
// program of that name is MariaDB's.
const mysqlVariable = "SQLLOCK_TEST_MYSQLD"

func findMySQL() (programs, error) {
	path := os.Getenv(mysqlVariable)
	if path == "" {
		return programs{}, fmt.Errorf("set %s", variable(MySQL))
	}
	if !isProgram(path) {
		return programs{}, fmt.Errorf("%s is no program: %s", mysqlVariable, path)
	}
	return programs{path, path}, nil
}

func findMariaDB() (programs, error) {
	p := programs{lookUp("mariadb-install-db"), lookUp("mariadbd")}
	if p.initialise == "" || p.serve == "" {
		return programs{}, notFound("mariadbd and mariadb-install-db", MariaDB, "mariadb-server")
	}
	return p, nil
}

// lookUp looks for a program, also where an ordinary user's PATH does not lead.
func lookUp(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, dir := range mariadbDirs {
		if path := filepath.Join(dir, name); isProgram(path) {
			return path
		}
	}
	return ""
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

func notFound(what, engine, install string) error {
	return fmt.Errorf("no %s found; set %s or install %s", what, variable(engine), install)
}
