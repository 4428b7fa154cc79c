package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
)

// dsnForms is for errors: what a DSN may look like.
const dsnForms = "postgres://user@host:port/database, mysql://user@host:port/database or sqlite:PATH"

// product tells which database a DSN is for, and what comes after the scheme.
func product(dsn string) (name, rest string, err error) {
	scheme, rest, _ := strings.Cut(dsn, ":")
	switch scheme {
	case "postgres", "postgresql":
		return "postgres", rest, nil
	case "mysql", "mariadb":
		return "mysql", rest, nil
	case "sqlite":
		return "sqlite", strings.TrimPrefix(rest, "//"), nil
	}
	// What stands there instead may be a password: it is not repeated.
	return "", "", fail(exitUsage, "the DSN begins with none of postgres:, mysql: and sqlite:; it must look like %s", dsnForms)
}

// malformed is the error for a DSN that cannot be read. err is left out where
// the DSN can be read in several ways, because then it may quote any part of it.
func malformed(dsn string, err error) error {
	const hint = "the DSN cannot be read"
	if _, parseErr := url.Parse(dsn); parseErr != nil || stray(dsn) {
		return fail(exitUsage, "%s: it must look like %s, and in a password every character but letters, digits, "+
			"- . _ and ~ must be percent-encoded", hint, dsnForms)
	}
	return fail(exitUsage, "%s: %s", hint, redactSecrets(err.Error(), dsn))
}

// errStray says what stray found, to nobody: see malformed.
var errStray = errors.New("a stray @")

// stray reports an @ where none belongs. Most likely it ends a password with a
// reserved character in it, which was taken for the end of the host: then the
// rest of the password would be the name of a database, and shown.
func stray(dsn string) bool {
	_, rest, _ := strings.Cut(dsn, "://")
	authority, rest := cutAny(rest, "/?#")
	path, query := cutAny(rest, "?")
	return strings.Contains(path, "@") || !strings.Contains(authority, "@") && strings.Contains(query, "@")
}

// cutAny cuts before the first of several separators.
func cutAny(s, separators string) (before, after string) {
	if i := strings.IndexAny(s, separators); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}

// postgresConfig reads the DSN of a Postgres database. What it does not say is
// taken from the environment, as psql does.
func postgresConfig(dsn string) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err == nil && stray(dsn) {
		err = errStray
	}
	if err != nil {
		if inner := errors.Unwrap(err); inner != nil {
			err = inner // without a copy of the DSN
		}
		return nil, malformed(dsn, err)
	}
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "sqllock"
	}
	return cfg, nil
}

// mysqlConfig reads the DSN of a MySQL or MariaDB database. Its parameters are
// those of the driver, and "socket" or "unix_socket", the path of a Unix socket.
func mysqlConfig(dsn string) (*mysql.Config, error) {
	u, err := url.Parse(dsn)
	if err != nil || stray(dsn) {
		return nil, malformed(dsn, errStray)
	}
	socket, params, err := takeSocket(u.RawQuery)
	if err != nil {
		return nil, malformed(dsn, err)
	}
	// The driver reads its own parameters; it gets nothing else, because its
	// syntax cannot carry every user name.
	cfg, err := mysql.ParseDSN("/?" + params)
	if err != nil {
		return nil, malformed(dsn, err)
	}
	cfg.Logger = &mysql.NopLogger{} // what it would log is in the errors too
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	cfg.DBName = strings.TrimPrefix(u.Path, "/")
	cfg.Net, cfg.Addr = "tcp", hostPort(u, "127.0.0.1", "3306")
	if socket != "" {
		cfg.Net, cfg.Addr = "unix", socket
	}
	if cfg.DBName == "" {
		return nil, fail(exitUsage, "the DSN names no database: it must look like %s", dsnForms)
	}
	return cfg, nil
}

// takeSocket takes our own parameter out of those that the driver reads, which
// stay as they are written.
func takeSocket(query string) (socket, rest string, err error) {
	var others []string
	for _, pair := range strings.Split(query, "&") {
		switch key, value, _ := strings.Cut(pair, "="); key {
		case "socket", "unix_socket":
			if socket, err = url.QueryUnescape(value); err != nil {
				return "", "", err
			}
		default:
			others = append(others, pair)
		}
	}
	return socket, strings.Join(others, "&"), nil
}

func hostPort(u *url.URL, host, port string) string {
	if u.Hostname() != "" {
		host = u.Hostname()
	}
	if u.Port() != "" {
		port = u.Port()
	}
	return net.JoinHostPort(host, port)
}

// sqliteFile refuses what is not the path of a file.
func sqliteFile(path string) error {
	switch {
	case path == "":
		return fail(exitUsage, "the DSN names no file: it must look like sqlite:PATH")
	case strings.HasPrefix(path, ":memory:") || strings.HasPrefix(path, "file:"):
		return fail(exitUsage, "the DSN must name a file by its plain path, as in sqlite:PATH; "+
			"a database in memory would keep nobody else out")
	}
	return nil
}

// sqliteURI writes a path so that SQLite reads all of it as a path. A file that
// must exist is not made.
func sqliteURI(path string, mustExist bool) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("the path of the SQLite file: %w", err)
	}
	path = filepath.ToSlash(path)
	if runtime.GOOS == "windows" {
		path = "/" + path // file:///C:/…
	}
	uri := url.URL{Scheme: "file", Path: path, RawQuery: "_pragma=busy_timeout(1000)"}
	if mustExist {
		uri.RawQuery += "&mode=rw"
	}
	return uri.String(), nil
}
