package examples_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/internal/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// runs is set by go test ./examples -args -runs 20.
var runs = flag.Int("runs", 1, "how often each example is run in a row, each way and on each database")

// examples are the last lines of each program, with the lock and without.
var examples = []struct {
	name   string
	ok     string
	unsafe []string
}{
	{
		name: "bank",
		ok:   `(?m)^ok: anna: balance 20, postings 20; ben: balance 1090, postings 1090; carla: balance 865, postings 865$`,
		// Each round leaves the last change of each account, by one transfer or
		// withdrawal.
		unsafe: []string{`(?m)^wrong: anna: balance 20, postings -140; ben: balance (970|1000|1030|1060), postings 1090; carla: balance (9[4-9]|10[0-3])[05], postings 865$`},
	},
	{
		name:   "flashsale",
		ok:     `(?m)^ok: of 10 seats 10 were sold, and 0 are said to be left$`,
		unsafe: []string{`(?m)^wrong: of 10 seats 30 were sold, and 9 are said to be left$`},
	},
	{
		name:   "mail",
		ok:     `(?m)^ok: 5 mails, 5 deliveries, 5 mails were delivered once$`,
		unsafe: []string{`(?m)^wrong: 5 mails, 15 deliveries, 0 mails were delivered once$`},
	},
	{
		name:   "resource",
		ok:     `(?m)^ok: what came late was refused \(412 Precondition Failed\), and what ben wrote was not$`,
		unsafe: []string{`(?m)^wrong: ben wrote "ben", and then read "anna"$`},
	},
	{
		name: "cache",
		ok:   `(?m)^lock +12 +[1-9]\d* +0 +0s\nok: none of [1-9]\d* reads was stale$`,
		unsafe: []string{
			`(?m)^delete-then-write +12 +\d+ +[1-9]\d* `,
			`(?m)^delayed double delete +12 +\d+ +[1-9]\d* `,
			`(?m)^expiry +12 +\d+ +[1-9]\d* `,
			`(?m)^wrong: [1-9]\d* of \d+ reads were stale$`,
		},
	},
}

func TestEachExampleSucceedsWithTheLockAndFailsWithoutIt(t *testing.T) {
	dir := build(t, "./...")
	for _, engine := range testdb.All() {
		for _, e := range examples {
			t.Run(e.name+"/"+engine, func(t *testing.T) {
				t.Parallel()
				d := testdb.New(t, engine)
				for range *runs {
					start(t, dir, e.name, d).wait(0, e.ok)
					start(t, dir, e.name, d, "--unsafe").wait(1, e.unsafe...)
					if t.Failed() {
						return
					}
				}
			})
		}
	}
}

func TestAnExampleReportsWhyItCannotRun(t *testing.T) {
	dir := build(t, "./mail")
	d := testdb.New(t, testdb.SQLite)
	for arg, want := range map[string]string{
		"--safe":                    "not defined: -safe",
		"unsafe":                    `what is "unsafe"\?`,
		"--dsn=oracle://a:secret@b": "DSN cannot be read",
		"--dsn=mysql://a:secret@[":  "DSN cannot be read",
		"--dsn=postgres://a:secret@127.0.0.1:1/b?connect_timeout=5": "(?s)make Postgres .*refused",
	} {
		output := start(t, dir, "mail", d, arg).wait(2, want)
		if strings.Contains(output, "secret") {
			t.Errorf("it tells the password:\n%s", output)
		}
	}
}
