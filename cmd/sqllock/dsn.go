package main

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
)

// dsnForms is for errors: what a DSN may look like.
const dsnForms = "postgres://user@host:port/database, mysql://user@host:port/database or sqlite:PATH"

// product tells which database a DSN is for, and what comes after the scheme. It
// refuses a DSN that can be read in more than one way: then what is meant to be a
// password could become a host, and be shown.
//
// No error repeats any part of the DSN. Errors of drivers never get out either, see
// connector.
func product(dsn string) (name, rest string, err error) {
	scheme, rest, _ := strings.Cut(dsn, ":")
	switch scheme {
	case "postgres", "postgresql":
		return "postgres", rest, checkURL(rest, true)
	case "mysql", "mariadb":
		return "mysql", rest, checkURL(rest, false)
	case "sqlite":
		path, slashes := strings.CutPrefix(rest, "//")
		if slashes && !strings.HasPrefix(path, "/") && strings.ContainsAny(path, "@:") {
			return "", "", malformed("an SQLite file has no user and no host; a path with an @ or a : is written sqlite:PATH")
		}
		return "sqlite", path, nil
	}
	return "", "", fail(exitUsage, "the DSN begins with none of postgres:, mysql: and sqlite:; it must look like %s", dsnForms)
}

// malformed is the error for a DSN that breaks a rule.
func malformed(rule string) error {
	return fail(exitUsage, "the DSN cannot be read: %s; it must look like %s", rule, dsnForms)
}

const percent = "write every character but letters, digits and - . _ ~ as %XX there"

var (
	userPattern  = regexp.MustCompile(`^([A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*$`)
	hostPattern  = regexp.MustCompile(`^([A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+(%25[A-Za-z0-9._-]+)?\])(:([0-9]{1,5})?)?$`)
	pathPattern  = regexp.MustCompile(`^(/([^%/[:cntrl:]]|%[0-9A-Fa-f]{2})*)?$`)
	queryPattern = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_.-]*=([^%&[:cntrl:]]|%[0-9A-Fa-f]{2})*(&|$))*$`)
)

// checkURL refuses what follows the scheme unless it can be read in one way only:
// //USER:PASSWORD@HOST:PORT/DATABASE?PARAMETER=VALUE.
func checkURL(rest string, manyHosts bool) error {
	rest, slashes := strings.CutPrefix(rest, "//")
	authority, path := cutAny(rest, "/?#")
	path, query := cutAny(path, "?#")
	user, hosts, hasUser := strings.Cut(authority, "@")
	if !hasUser {
		user, hosts = "", authority
	}
	switch {
	case !slashes:
		return malformed("// must follow the scheme")
	case strings.Count(rest, "@") > 1:
		return malformed("there is more than one @; in a user, a password or a parameter write it as %40")
	case strings.Contains(rest, "#"):
		return malformed("there is a #; write it as %23")
	case strings.Contains(path+query, "@"):
		return malformed("there is a / or a ? before the @; in a user or a password write them as %2F and %3F")
	case !userPattern.MatchString(user):
		return malformed("a character of the user or the password is not allowed; " + percent)
	case !manyHosts && strings.Contains(hosts, ","):
		return malformed("there is more than one host")
	case !pathPattern.MatchString(path):
		return malformed("the name of the database has a / or a wrong %; " + percent)
	case !queryPattern.MatchString(strings.TrimPrefix(query, "?")):
		return malformed("what follows the ? is not PARAMETER=VALUE with & in between; " + percent)
	}
	for _, host := range strings.Split(hosts, ",") {
		parts := hostPattern.FindStringSubmatch(host)
		if parts == nil {
			return malformed("the host has a character that is not allowed, or the port is no number; in a user or a password " + percent)
		}
		if port, err := strconv.Atoi(parts[4]); parts[4] != "" && (err != nil || port < 1 || port > 65535) {
			return malformed("a port is a number from 1 to 65535")
		}
	}
	return nil
}

// badParameters is the error for a DSN that its driver cannot read although its form is
// right: it names the parameters without which the driver could.
func badParameters(query string, readable func(query string) bool) error {
	var names []string
	for _, pair := range strings.Split(query, "&") {
		if name, _, _ := strings.Cut(pair, "="); !readable(pair) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return malformed("its driver refuses it, or what the environment adds to it")
	}
	return malformed("the value of " + strings.Join(names, ", ") + " cannot be used")
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
	if err != nil {
		_, query, _ := strings.Cut(dsn, "?")
		return nil, badParameters(query, func(query string) bool {
			_, err := pgx.ParseConfig("postgres://127.0.0.1/?" + query)
			return err == nil
		})
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
	if err != nil {
		return nil, malformed("it is no URL")
	}
	socket, params, err := takeSocket(u.RawQuery)
	if err != nil {
		return nil, err
	}
	// The driver reads its own parameters; it gets nothing else, because its
	// syntax cannot carry every user name. It takes what follows the last / for them.
	read := func(params string) (*mysql.Config, error) {
		return mysql.ParseDSN("/?" + strings.ReplaceAll(params, "/", "%2F"))
	}
	cfg, err := read(params)
	if err != nil {
		return nil, badParameters(params, func(params string) bool { _, err := read(params); return err == nil })
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
				return "", "", malformed("the path of the socket has a wrong %")
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
	case strings.ContainsRune(path, 0):
		return fail(exitUsage, "the DSN cannot be read: a path has no character NUL")
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

// No message shows any part of the user or the password of a DSN. To search texts for the
// password would not do: a message without it shows which word it was. So the source of each
// text counts. An error of reading a DSN names the rule that the DSN breaks (see product), an
// error of connecting has a text of ours (see connector), and an argument that can be a DSN is
// not repeated (see app.quoted). Servers name the account in their messages; redact removes it.

// mask stands for what is not shown.
const mask = "xxxxx"

var (
	userinfo  = regexp.MustCompile(`://\S*?@\S*@|://\S*?@`)
	parameter = regexp.MustCompile(`(?i)((?:pass(?:word|wd)?|user)=)('[^']*'|[^\s&]+)`)
	mysqlUser = regexp.MustCompile(`(?i)\buser '.*'@'[^']*'`)
	pgRole    = regexp.MustCompile(`(?i)\b(?:role|user) "(?:[^"]|"")*"`)
)

// redact takes accounts and passwords out of a text, by what stands around them.
func redact(text string) string {
	text = userinfo.ReplaceAllStringFunc(text, func(user string) string {
		if user == "://user@" { // see dsnForms
			return user
		}
		return "://" + mask + "@"
	})
	text = parameter.ReplaceAllString(text, "${1}"+mask)
	text = mysqlUser.ReplaceAllString(text, "this account")
	return pgRole.ReplaceAllString(text, "this account")
}
