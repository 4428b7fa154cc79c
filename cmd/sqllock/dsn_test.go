package main

import (
	"errors"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestDSNsOfMySQL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ dsn, user, password, net, addr, db string }{
		{"mysql://u:p@h:1234/d", "u", "p", "tcp", "h:1234", "d"},
		{"mysql://u@h/d", "u", "", "tcp", "h:3306", "d"},
		{"mysql:///d", "", "", "tcp", "127.0.0.1:3306", "d"},
		{"mariadb://u:p@[::1]/d", "u", "p", "tcp", "[::1]:3306", "d"},
		{"mysql://u:p%40%2F%3A%25%3F@h/d", "u", "p@/:%?", "tcp", "h:3306", "d"},
		{"mysql://u%3A1:p@h/d", "u:1", "p", "tcp", "h:3306", "d"},
		{"mysql://u:p@/d?socket=/run/my%20sql.sock", "u", "p", "unix", "/run/my sql.sock", "d"},
		{"mysql://u:p@/d?unix_socket=/s&charset=utf8mb4", "u", "p", "unix", "/s", "d"},
	} {
		t.Run(c.dsn, func(t *testing.T) {
			cfg, err := mysqlConfig(c.dsn)
			if err != nil {
				t.Fatal(err)
			}
			if cfg.User != c.user || cfg.Passwd != c.password || cfg.Net != c.net || cfg.Addr != c.addr || cfg.DBName != c.db {
				t.Errorf("got user %q, password %q, %s %q, database %q", cfg.User, cfg.Passwd, cfg.Net, cfg.Addr, cfg.DBName)
			}
		})
	}
}

func TestParametersOfMySQLReachTheDriver(t *testing.T) {
	t.Parallel()
	cfg, err := mysqlConfig("mysql://u:p@h/d?timeout=7s&tls=skip-verify&charset=utf8mb4,utf8&time_zone=%27%2B00%3A00%27")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Timeout.Seconds() != 7 || cfg.TLSConfig != "skip-verify" || cfg.Params["time_zone"] != "'+00:00'" {
		t.Errorf("timeout %v, tls %q, params %v", cfg.Timeout, cfg.TLSConfig, cfg.Params)
	}
}

func TestPostgresIsToldWhoConnects(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"postgres://u:p@h/d":                       "sqllock",
		"postgresql://h/d?application_name=backup": "backup",
		"postgres://h1:1,h2:2/d":                   "sqllock",
		"postgres://":                              "sqllock",
	} {
		cfg, err := postgresConfig(dsn)
		if err != nil {
			t.Errorf("%s: %v", dsn, err)
		} else if got := cfg.RuntimeParams["application_name"]; got != want {
			t.Errorf("%s: application_name is %q, want %q", dsn, got, want)
		}
	}
}

func TestPathsOfSQLiteFilesAreTakenAsTheyAre(t *testing.T) {
	t.Parallel()
	for dsn, path := range map[string]string{
		"sqlite:a.db":         "a.db",
		"sqlite://a.db":       "a.db",
		"sqlite:/x/a.db":      "/x/a.db",
		"sqlite:///x/a.db":    "/x/a.db",
		"sqlite:a?b#c%20d.db": "a?b#c%20d.db",
	} {
		name, got, err := product(dsn)
		if name != "sqlite" || got != path || err != nil {
			t.Errorf("%s: %q, %q, %v", dsn, name, got, err)
		}
	}
	if runtime.GOOS == "windows" {
		return
	}
	uri, err := sqliteURI("/x y/a?b#c%20d.db", false)
	if want := "file:///x%20y/a%3Fb%23c%2520d.db?_pragma=busy_timeout(1000)"; uri != want || err != nil {
		t.Errorf("got %s, %v, want %s", uri, err, want)
	}
}

// badDSNs are all wrong and all have "hunter2" where a password is, or may be
// meant to be.
var badDSNs = []string{
	"hunter2",
	"user:hunter2@tcp(h:3306)/d",
	"redis://u:hunter2@h/0",
	"host=h password=hunter2",
	"postgres://u:hun/ter2hunter2@h:port/d",
	"postgres://u:hunter2@h:port/d",
	"postgres://u:hunter2#@h/d?sslmode=bogus",
	"postgres://u:hunter2@h/d?sslmode=bogus",
	"postgres://u:%zzhunter2@h/d",
	"postgres://u:@hunter2@h:x/d",
	"postgres://h/d?password=hunter2&sslmode=bogus",
	"postgres://u:12/hunter2@h/d",
	"postgres://u:12?hunter2@h/d",
	"postgres://u:12#hunter2@h/d",
	"postgres://u:12/x?hunter2@h/d",
	"postgres://h/d?sslpassword=hunter2&sslmode=bogus",
	"mysql://u:hunter2@h",
	"mysql://u:hunter2@h/",
	"mysql://u:hun@hunter2@h:x/d",
	"mysql://u:12/hunter2@h/d",
	"mysql://u:12?hunter2@h/d",
	"mysql://u:12#hunter2@h/d",
	"mysql://u:%hunter2@h/d",
	"mysql://u:hunter2@h:port/d",
	"mysql://u:hunter2@h/d?tls=hunter2",
	"mysql://u:hunter2@h/d?timeout=hunter2",
	"mysql://u:hunter2@h/d?socket=%zz",
	"sqlite:",
	"sqlite://",
	"sqlite::memory:",
	"sqlite:file:x?mode=memory",
	"",
}

func TestBadDSNsAreUsageErrorsWithoutThePassword(t *testing.T) {
	t.Parallel()
	for _, dsn := range badDSNs {
		t.Run(dsn, func(t *testing.T) {
			err := parse(dsn)
			f := (*failure)(nil)
			if !errors.As(err, &f) || f.code != exitUsage {
				t.Fatalf("got %v, want a usage error", err)
			}
			if strings.Contains(err.Error(), "hunter2") || strings.Contains(redact(err.Error()), "hunter2") {
				t.Errorf("the password is in: %v", err)
			}
		})
	}
}

// parse reads a DSN as opening it would, without reaching for anything.
func parse(dsn string) error {
	name, path, err := product(dsn)
	if err != nil {
		return err
	}
	db, err := openers[name](target{settings: settings{dsn: dsn}, path: path})
	if err == nil {
		_ = db.handle.Close()
	}
	return err
}

func TestAccountsAreTakenOutOfMessages(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"dial postgres://u:hunter2@h/d: refused":                            "dial postgres://xxxxx@h/d: refused",
		"dial mysql://u:hun@te/r2@h/d, and more":                            "dial mysql://xxxxx@h/d, and more",
		"bad password=hunter2 host=h":                                       "bad password=xxxxx host=h",
		"bad password='hunter 2' host=h":                                    "bad password=xxxxx host=h",
		"in ?sslpassword=hunter2&x=y":                                       "in ?sslpassword=xxxxx&x=y",
		"user=u database=d":                                                 "user=xxxxx database=d",
		"SELECT command denied to user 'a'b'@'localhost' for table `d`.`t`": "SELECT command denied to this account for table `d`.`t`",
		`role "a""b" is not permitted to log in`:                            "this account is not permitted to log in",
		"\"a\" is held by \"h/sqllock/1\" since 12:00":                      "\"a\" is held by \"h/sqllock/1\" since 12:00",
	} {
		if got := redact(text); got != want {
			t.Errorf("%q\n got %q\nwant %q", text, got, want)
		}
	}
}

func TestAMalformedDSNIsToldByTheRule(t *testing.T) {
	t.Parallel()
	for dsn, rule := range map[string]string{
		"postgres://u:p@ssSECRET@127.0.0.1:5/app":   "more than one @",
		"postgres://u:p@SECRET:w0rd@127.0.0.1:5/a":  "more than one @",
		"mysql://u:a/b@h/d":                         "a / or a ? before the @",
		"mysql://u:a?b@h/d":                         "a / or a ? before the @",
		"postgres://u:a#b@h/d":                      "there is a #",
		"postgres://u:a b@h/d":                      "of the user or the password",
		"postgres://u:a%zz@h/d":                     "of the user or the password",
		"postgres:u:p@h/d":                          "// must follow",
		"postgres://u:p@h:99999/d":                  "from 1 to 65535",
		"postgres://u:p":                            "the port is no number",
		"postgres://h/a/b":                          "name of the database",
		"postgres://h/d?sslmode":                    "PARAMETER=VALUE",
		"postgres://h/d?sslmode=bogus&user=u":       "the value of sslmode cannot be used",
		"mysql://h/d?charset=utf8mb4&timeout=later": "the value of timeout cannot be used",
		"mysql://h1,h2/d":                           "more than one host",
		"sqlite://u:p@h/d":                          "sqlite:PATH",
	} {
		if err := parse(dsn); err == nil || !strings.Contains(err.Error(), rule) {
			t.Errorf("%s: %v, want %q", dsn, err, rule)
		}
	}
	for _, dsn := range []string{
		"postgres://u:p!$&'()*+,;=:-._~%40%2F@h/d", "postgres://u@[::1]:5432/d", "postgres://u:p@h1:1,h2,h3:3/d?target_session_attrs=read-write",
		"postgres://", "mysql:///d", "mysql://u:p@[fe80::1%25eth0]/d%2Fe", "mysql://u:p@h/d?time_zone=%27Europe/Paris%27", "sqlite:/a@b/c.db", "sqlite:///a@b.db",
	} {
		if err := parse(dsn); err != nil {
			t.Errorf("%s: %v", dsn, err)
		}
	}
}

func TestTheStateDirectory(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		return // the others have no rules that could go wrong
	}
	for _, c := range []struct {
		environ []string
		want    string
	}{
		{[]string{"HOME=/h"}, "/h/.local/state"},
		{[]string{"HOME=/h", "XDG_STATE_HOME=/x"}, "/x"},
		{[]string{"HOME=/h", "XDG_STATE_HOME=relative"}, "/h/.local/state"},
		{[]string{"HOME=/a", "HOME=/h"}, "/h/.local/state"},
	} {
		a := &app{environ: c.environ}
		if got, err := a.stateDir(); got != c.want || err != nil {
			t.Errorf("%v: got %q, %v, want %q", c.environ, got, err, c.want)
		}
	}
	a := &app{}
	if got, err := a.stateDir(); !filepath.IsAbs(got) || err != nil {
		t.Errorf("without an environment: got %q, %v, want what the system knows of the user", got, err)
	}
	a = &app{environ: []string{"HOME=relative"}}
	if got, err := a.stateDir(); err == nil {
		t.Errorf("with a relative home: got %q, want an error", got)
	}
}
