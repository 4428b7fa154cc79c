package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/lockpg"
)

func TestHelpVersionAndCompletionAreThere(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	for args, part := range map[string]string{
		"--help":                                 "SQLLOCK_DSN",
		"help":                                   "COMMANDS",
		"help run":                               "SQLLOCK_TOKEN",
		"run --help":                             "KEY was complete already",
		"run -h":                                 "Examples:",
		"run --help ":                            "sqllock run --shared",
		"run  --help":                            "sqllock run --mode advisory",
		"elect --help":                           "--lock-delay",
		"leader --help":                          "Exit codes",
		"ls  --help":                             "3 readers",
		"inspect  --help":                        "--mode advisory",
		"wait  --help":                           "--mode advisory",
		"unlock  --help":                         "lets go within a second",
		"migrate --help":                         "goose",
		"migrate down --help":                    "--force",
		"ls --help":                              "kept_until",
		"inspect --help":                         "value_hex",
		"wait --help":                            "Exit codes",
		"unlock --help":                          "fencing",
		"reap --help":                            "retention",
		"web --help":                             "--allow-remote",
		"top --help":                             "negative: since",
		"init --help":                            "stdout is the program alone",
		"doctor --help":                          "Exit codes",
		"migrate copy --help":                    "DIR",
		"--version":                              "go1.",
		"version":                                "schema version",
		"version --json":                         `"schema_versions":{"postgres":2`,
		"version --help":                         "schema",
		"man":                                    ".TH SQLLOCK 1",
		"man --help":                             "man -l",
		"completion --help":                      "bash",
		"completion bash":                        "complete ",
		"completion zsh":                         "compdef",
		"completion fish":                        "sqllock",
		"completion pwsh":                        "Register-ArgumentCompleter",
		"--generate-shell-completion":            "run:",
		"run --generate-shell-completion":        "",
		"d --generate-shell-completion":          "doctor",
		"run --mo --generate-shell-completion":   "--mode",
		"run --sh --generate-shell-completion":   "--shared",
		"elect --id --generate-shell-completion": "--identity",
		"run --mode --generate-shell-completion": "forupdate\nadvisory\n",
		"ls --mode --generate-shell-completion":  "unique\n",
		"ls --wa --generate-shell-completion":    "--watch",
		"run --prog --generate-shell-completion": "--progress",
		"run --t --generate-shell-completion":    "--ttl",
	} {
		t.Run(args, func(t *testing.T) {
			u.run(t, strings.Fields(args)...).want(t, 0, part, "")
		})
	}
	if _, err := os.Stat(filepath.Join(u.home, ".local")); err == nil {
		t.Error("asking for help has made the database")
	}
}

func TestHelpDoesNotShowThePassword(t *testing.T) {
	t.Parallel()
	u := client{home: t.TempDir(), dsn: "postgres://u:hunter2@h/d"}
	for _, args := range [][]string{{"--help"}, {"run", "--help"}, {"migrate", "up", "--help"}, {"bogus"}, {"run", "--bogus"}} {
		if r := u.run(t, args...); strings.Contains(r.out+r.err, "hunter2") {
			t.Errorf("%q shows it:\n%s%s", args, r.out, r.err)
		}
	}
}

func TestCompletionRunsNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ran")
	newClient(t).run(t, "run", "n", "--", "touch", path, "--generate-shell-completion").want(t, 0, "", "")
	if _, err := os.Stat(path); err == nil {
		t.Error("the command was run")
	}
}

func TestUsageErrorsAreOneLineAndCode64(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	line := regexp.MustCompile(`^sqllock: [^\n]+\n$`)
	for _, args := range [][]string{
		{"bogus"},
		{"--bogus"},
		{"run"},
		{"run", "n"},
		{"run", "n", "--"},
		{"run", "--bogus", "n", "--", "true"},
		{"run", "--ttl", "soon", "n", "--", "true"},
		{"run", "--ttl", "1ms", "n", "--", "true"},
		{"run", "--ttl", "25h", "n", "--", "true"},
		{"run", "--ttl", "0", "n", "--", "true"},
		{"run", "--wait", "-1s", "n", "--", "true"},
		{"run", "--grace", "-1s", "n", "--", "true"},
		{"run", "--try", "--wait", "1s", "n", "--", "true"},
		{"run", "-E", "256", "n", "--", "true"},
		{"run", "-E", "x", "n", "--", "true"},
		{"run", "", "--", "true"},
		{"run", strings.Repeat("x", 256), "--", "true"},
		{"run", "a\xffb", "--", "true"},
		{"run", "--label", strings.Repeat("x", 256), "n", "--", "true"},
		{"--table-prefix", "a-b", "run", "n", "--", "true"},
		{"--dsn", "", "run", "n", "--", "true"},
		{"run", "--dsn=", "n", "--", "true"},
		{"--schema", "s", "run", "n", "--", "true"},
		{"run", "--min-hold", "-1s", "n", "--", "true"},
		{"run", "--min-hold", "25h", "n", "--", "true"},
		{"run", "--max-hold", "0", "n", "--", "true"},
		{"run", "--max-hold", "1ms", "n", "--", "true"},
		{"run", "--lock-delay", "-1s", "n", "--", "true"},
		{"run", "--value", strings.Repeat("x", 1<<16+1), "n", "--", "true"},
		{"run", "--mode", "other", "n", "--", "true"},
		{"run", "--mode", "", "n", "--", "true"},
		{"run", "--mode", "Unique", "n", "--", "true"},
		{"run", "--shared", "--min-hold", "1s", "n", "--", "true"},
		{"run", "--shared", "--value", "v", "n", "--", "true"},
		{"init", "now"},
		{"init"}, // without a DSN, and without a terminal
		{"--dsn", "", "init"},
		{"elect"},
		{"elect", "n"},
		{"elect", "n", "--"},
		{"elect", "--try", "n", "--", "true"},
		{"elect", "--ttl", "0", "n", "--", "true"},
		{"elect", "--ttl", "1ms", "n", "--", "true"},
		{"elect", "--grace", "-1s", "n", "--", "true"},
		{"elect", "--lock-delay", "-1s", "n", "--", "true"},
		{"elect", "--identity", strings.Repeat("x", 256), "n", "--", "true"},
		{"elect", "--value", strings.Repeat("x", 1<<16+1), "n", "--", "true"},
		{"elect", "--mode", "other", "n", "--", "true"},
		{"elect", "", "--", "true"},
		{"leader"},
		{"leader", ""},
		{"leader", "a", "b"},
		{"leader", "--mode", "other", "n"},
		{"ls", "--mode", "other"},
		{"ls", "--mode", ""},
		{"inspect", "--mode", "other", "n"},
		{"unlock", "--mode", "other", "n", "--force"},
		{"wait", "--mode", "other", "n"},
		{"top"}, // without a terminal
		{"top", "a", "b"},
		{"top", "a\xffb"},
		{"top", "--interval", "1ms"},
		{"top", "--mode", "other"},
		{"web", "n"},
		{"web", "--listen", "8080"},
		{"web", "--listen", ""},
		{"web", "--interval", "1ms"},
		{"web", "--mode", "other"},
		{"ls", strings.Repeat("x", 256)},
		{"ls", "a\xffb"},
		{"ls", "a", "b"},
		{"ls", "--interval", "1ms"},
		{"ls", "--bogus"},
		{"--dsn", "", "ls"},
		{"--dsn", "sqlite:", "ls"},
		{"--dsn", "sqlite::memory:", "ls"},
		{"--table-prefix", "a-b", "ls"},
		{"--table-prefix", "a-b", "doctor"},
		{"inspect"},
		{"inspect", ""},
		{"inspect", "a", "b"},
		{"inspect", strings.Repeat("x", 256)},
		{"inspect", "a\xffb"},
		{"unlock"},
		{"unlock", "--force"},
		{"unlock", "--force", ""},
		{"unlock", "--force", "--wait", "0", "n"},
		{"wait"},
		{"wait", ""},
		{"wait", "--wait", "0", ""},
		{"wait", "--wait", "-1s", "n"},
		{"reap", "n"},
		{"reap", "--retention", "0"},
		{"reap", "--retention", "1ms"},
		{"reap", "--batch", "0"},
		{"reap", "--batch", "10001"},
		{"doctor", "now"},
		{"man", "now"},
		{"version", "now"},
		{"migrate", "bogus"},
		{"migrate", "up", "now"},
		{"migrate", "up", "--force"},
		{"--allow-unsafe-durability", "ls"},
		{"--allow-session-pooler", "run", "n", "--", "true"},
		{"--allow-silent-holders", "inspect", "n"},
		{"migrate", "copy"},
		{"migrate", "copy", "a", "b"},
		{"completion", "tcsh"},
		{"help", "bogus"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			r := u.run(t, args...)
			r.want(t, exitUsage, "", "sqllock: ")
			if !line.MatchString(r.err) || r.out != "" {
				t.Errorf("want one line on stderr and nothing on stdout, got:\n%s%s", r.out, r.err)
			}
		})
	}
	u.run(t).want(t, exitUsage, "COMMANDS", "")
}

func TestUnusableDatabasesHaveCode69(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	notADatabase := filepath.Join(home, "text")
	if err := os.WriteFile(notADatabase, []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dsn := range []string{
		"postgres://u:hunter2@127.0.0.1:1/d",
		"mysql://u:hunter2@127.0.0.1:1/d",
		"mysql://u:hunter2@/d?socket=/nonexistent/hunter",
		"sqlite:/nonexistent/locks.db",
		"sqlite:" + home,
		"sqlite:" + notADatabase,
	} {
		u := client{home: home, dsn: dsn}
		for _, args := range [][]string{{"run", "n", "--", "echo", "ran"}, {"run", "--try", "n", "--", "echo", "ran"}, {"init", "--yes"}, {"migrate", "up"}, {"migrate", "status"}, {"migrate", "down"}, {"ls"}, {"ls", "--watch"}, {"web", "--listen", "127.0.0.1:0"}, {"inspect", "n"},
			{"elect", "n", "--", "echo", "ran"}, {"leader", "n"}, {"unlock", "n"}, {"unlock", "--force", "n"}, {"wait", "n"}, {"reap"}} {
			r := u.run(t, args...)
			r.want(t, exitUnavailable, "", "sqllock: ")
			if strings.Contains(r.out+r.err, "hunter2") || strings.Contains(r.out, "ran") {
				t.Errorf("%s %q:\n%s%s", dsn, args, r.out, r.err)
			}
		}
	}
}

func TestTheFileMigratesItself(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	u.run(t, "migrate", "status").want(t, 0, "no", "")
	u.run(t, "run", "n", "--", "echo", "ran").want(t, 0, "ran", "")
	u.run(t, "migrate", "status").want(t, 0, "Z", "")
	u.run(t, "migrate", "down").want(t, exitUsage, "", "this drops the tables, and all locks and tokens with them")
	u.run(t, "migrate", "status").want(t, 0, "Z", "")
	u.run(t, "migrate", "down", "--force").want(t, 0, "undone", "")
	u.run(t, "migrate", "status").want(t, 0, "no", "")
	u.run(t, "migrate", "down").want(t, 0, "nothing to do", "")
	u.run(t, "migrate", "up").want(t, 0, "applied", "")
	u.run(t, "migrate", "up").want(t, 0, "nothing to do", "")
	u.dsn = "sqlite:" + filepath.Join(u.home, "with spaces? and #.db")
	u.run(t, "run", "n", "--", "echo", "ran").want(t, 0, "ran", "")
	if _, err := os.Stat(strings.TrimPrefix(u.dsn, "sqlite:")); err != nil {
		t.Error(err)
	}
}

func TestMigrationsAreCopiedOnce(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	dir := filepath.Join(u.home, "db", "migrations")
	for _, dsn := range []string{"", "postgres://", "mysql:///d"} {
		u := client{home: u.home, dsn: dsn}
		r := u.run(t, "--table-prefix", "abc_", "migrate", "copy", dir)
		r.want(t, 0, ".sql\n", "")
		path := strings.TrimSpace(strings.SplitN(r.out, "\n", 2)[0])
		text := file(path)
		if !strings.Contains(text, "abc_") || !strings.Contains(text, "+goose Up") {
			t.Fatalf("%s: %s", path, text)
		}
		if r := u.run(t, "--table-prefix", "abc_", "migrate", "copy", dir); r.code != 0 || r.out != "" {
			t.Errorf("copying the same again: %+v", r)
		}
		u.run(t, "migrate", "copy", dir).want(t, exitCannotWrite, "", "differs")
		if file(path) != text {
			t.Errorf("%s was overwritten", path)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(u.home, ".local", "state", "sqllock", "locks.db")); err == nil {
		t.Error("copying has made the database")
	}
	u.run(t, "migrate", "copy", "/dev/null/x").want(t, exitCannotWrite, "", "sqllock: ")
}

func TestMistypedCommandsAndFlagsAreGuessed(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	for args, meant := range map[string]string{
		"rum n -- true":             `did you mean "run"?`,
		"lss":                       `did you mean "ls"?`,
		"lsit":                      `did you mean "list"?`,
		"doctr":                     `did you mean "doctor"?`,
		"migrate upp":               `did you mean "up"?`,
		"migrate staus":             `did you mean "status"?`,
		"run --tll 5s n -- true":    "there is no flag --tll; did you mean --ttl?",
		"ls --jsno":                 "did you mean --json?",
		"--dns x ls":                "did you mean --dsn?",
		"--dsn postgres://h lss":    `did you mean "ls"?`,
		"run --ttl soon n -- true":  `--ttl: "soon" is not a duration`,
		"run --mode row n -- true":  `--mode: "row" is not a mode: unique, forupdate or advisory`,
		"reap --batch many":         `--batch: "many" is not a whole number`,
		"run --try=perhaps n -- :":  `--try: "perhaps" is not true or false`,
		"run n --wait":              "--wait needs a value",
		"run n -- no-such-command-": `"no-such-command-": executable file not found`,
	} {
		t.Run(args, func(t *testing.T) {
			r := u.run(t, strings.Fields(args)...)
			if r.code != exitUsage && r.code != exitNotFound {
				t.Errorf("exit code %d", r.code)
			}
			r.want(t, r.code, "", meant)
		})
	}
	for _, args := range []string{"frobnicate", "run --frobnicate n -- true"} {
		if r := u.run(t, strings.Fields(args)...); strings.Contains(r.err, "did you mean") {
			t.Errorf("%s: %s", args, r.err)
		}
	}
}

func TestVersionTellsWhatWasBuilt(t *testing.T) {
	t.Parallel()
	r := newClient(t).run(t, "version")
	r.want(t, 0, "", "")
	for _, part := range []string{"version", runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, fmt.Sprint(lockpg.SchemaVersion)} {
		if !strings.Contains(r.out, part) {
			t.Errorf("want %q in:\n%s", part, r.out)
		}
	}
}

func TestErrorsOfTheDatabaseAreOneClearLine(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	text := filepath.Join(home, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for dsn, want := range map[string]string{
		"postgres://u:p@127.0.0.1:1/d":              "cannot connect to 127.0.0.1:1: connection refused; is the server running, and is this its port?",
		"mysql://u:p@127.0.0.1:1/d":                 "cannot connect to 127.0.0.1:1: connection refused; is the server running, and is this its port?",
		"postgres://u:p@/d?host=/nonexistent":       "cannot connect to the socket in /nonexistent: there is no such socket; is the server running?",
		"mysql://u:p@/d?socket=/nonexistent/socket": "cannot connect to the socket /nonexistent/socket: there is no such socket; is the server running?",
		"sqlite:" + home:                            "cannot use " + home + ": it cannot be opened; see whether its directory exists, and who may read and write there",
		"sqlite:" + text:                            "cannot use " + text + ": it is no SQLite database",
	} {
		for _, args := range [][]string{{"ls"}, {"run", "n", "--", "true"}, {"init", "-y"}, {"migrate", "up"}, {"elect", "n", "--", "true"}} {
			r := client{home: home, dsn: dsn}.run(t, args...)
			if r.code != exitUnavailable || r.out != "" || r.err != "sqllock: "+want+"\n" {
				t.Errorf("%s %q: exit code %d and\n%swant %s", dsn, args, r.code, r.err, want)
			}
		}
	}
	client{home: home, dsn: "postgres://h/a/b"}.run(t, "ls").want(t, exitUsage, "", "it must look like postgres://user@host:port/database, mysql://user@host:port/database or sqlite:PATH\n")
	client{home: home, dsn: "sqlite:/nonexistent/x"}.run(t, "ls").want(t, exitUnavailable, "", "cannot open /nonexistent/x: no such file or directory\n")
}

// FuzzNoPartOfAUserIsEverShown has those commands that start none.
func TestCommandsThatRunOthersShowNoPartOfAUser(t *testing.T) {
	t.Parallel()
	for _, password := range []string{"p@ss", "p@ss:w0rd", "a/b", "a?b", "a#b@", "a%zz", "'", "a b"} {
		for _, shape := range shapes {
			u := client{home: t.TempDir(), dsn: strings.NewReplacer("USER", marked("u"), "PASSWORD", marked(password)).Replace(shape)}
			verb := []string{"run", "elect"}[len(u.dsn)%2]
			if r := u.run(t, verb, "n", "--", "true"); r.code == 0 || strings.Contains(r.out+r.err, "QZ7") {
				t.Errorf("%s %s: exit code %d and\n%s%s", u.dsn, verb, r.code, r.out, r.err)
			}
		}
	}
}
