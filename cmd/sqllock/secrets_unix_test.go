//go:build unix

package main

import (
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/internal/testdb"
)

// lookers are the commands that need a database, with arguments that change nothing.
var lookers = [][]string{
	{"run", "n", "--", "true"}, {"elect", "n", "--", "true"}, {"leader", "n"}, {"ls", "--json"}, {"inspect", "n"}, {"wait", "n"},
	{"unlock", "n"}, {"reap"}, {"doctor"}, {"migrate", "status"}, {"init", "--yes"},
}

func TestNoCommandRepeatsAWrongUserOrPassword(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.Engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			u, err := url.Parse(dsn(t, testdb.New(t, engine), ""))
			if err != nil {
				t.Fatal(err)
			}
			u.User = url.UserPassword("nobody-of-this-name", "hunter2")
			for _, args := range lookers {
				r := client{home: t.TempDir(), dsn: u.String()}.run(t, args...)
				r.want(t, exitUnavailable, "", "the server refuses the user or the password")
				if strings.Contains(r.out+r.err, "hunter2") || strings.Contains(r.out+r.err, "nobody") {
					t.Errorf("%q: the user or the password is in:\n%s%s", args, r.out, r.err)
				}
			}
		})
	}
}

func TestNoCommandShowsTheUserOrThePasswordThatItUses(t *testing.T) {
	t.Parallel()
	onEachDB(t, func(t *testing.T, s *clientDB) {
		if s.d.Engine() == testdb.SQLite {
			return // which has none
		}
		const password = "hunter2"
		role := "sqllock_test_" + strings.ToLower(rand.Text()[:12])
		if s.d.Engine() == testdb.Postgres {
			s.exec(t, fmt.Sprintf("CREATE ROLE %s SUPERUSER LOGIN PASSWORD '%s'", role, password))
		} else {
			s.exec(t, fmt.Sprintf("CREATE USER %s IDENTIFIED BY '%s'", role, password))
			s.exec(t, "GRANT ALL ON *.* TO "+role)
		}
		t.Cleanup(func() { s.exec(t, "DROP USER "+role) })
		u, err := url.Parse(s.dsn)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(role, password)
		named := client{home: t.TempDir(), dsn: u.String()}
		holding := named.shell(t, "@UP; sleep 60", "held")
		for _, args := range append(lookers, []string{"ls", "--all"}, []string{"inspect", "--json", "held"}, []string{"run", "--try", "held", "--", "true"}) {
			r := named.run(t, args...)
			if r.code == exitUnavailable || strings.Contains(r.out+r.err, password) || strings.Contains(r.out+r.err, role) {
				t.Errorf("%q: exit code %d, and:\n%s%s", args, r.code, r.out, r.err)
			}
		}
		holding.end(t)
	})
}
