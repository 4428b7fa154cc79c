package main

import (
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/urfave/cli/v3"

	"github.com/sqllock/sqllock/internal/output"
)

// idle makes the commands do nothing, and say it to nobody.
func idle(cmd *cli.Command) {
	cmd.Writer, cmd.ErrWriter = io.Discard, io.Discard
	cmd.Action = func(context.Context, *cli.Command) error { return nil }
	for _, sub := range cmd.Commands {
		idle(sub)
	}
}

func FuzzArgumentsAreTakenOrRefusedInOneLine(f *testing.F) {
	for _, args := range []string{
		"", "run", "run\nn\n--\nc\n-x", "run\n--ttl\n5s\nn\nc\n--\n--ttl", "run\n-E\nn\nc", "--dsn\nrun\nrun\nn\n--\nc", "run\n--\n--\n--", "elect\nn\n--\nc",
		"run\n--ttl=\nn\nc", "run\n--ttl\n9999999999h\nn\nc", "run\n--value\n\x00\nn\nc", "run\n-\nc", "run\n--=\nc", "-----", "run\n\x1b[31m\n", "ls\n--json\n--watch",
		"--generate-shell-completion", "run\n--mode\n--generate-shell-completion", "help\nrun", "completion\nbash", "migrate\ncopy\n--\nd", "inspect\n\u202en", "unlock\n--force\n\xff",
		"run\n--no-such-flag\n'; DROP TABLE x; --", "reap\n--batch\n99999999999999999999", "run\n--try=maybe\nn\nc", "run\n-h\nn", "-v", "--version",
	} {
		f.Add(args)
	}
	f.Fuzz(func(t *testing.T, text string) {
		args := append([]string{"sqllock"}, strings.Split(text, "\n")...)
		_ = completeMode(args)
		root := testApp().root()
		idle(root)
		ours, command := splitCommand(root, slices.Clone(args))
		rest := args[min(len(ours), len(args)):]
		if len(rest) > len(command) && rest[0] == "--" {
			rest = rest[1:]
		}
		if !slices.Equal(ours, args[:min(len(ours), len(args))]) || !slices.Equal(rest, command) {
			t.Fatalf("%q is cut into %q and %q", args, ours, command)
		}
		if err := root.Run(t.Context(), ours); err != nil {
			text := output.Line(redact(err.Error()))
			if strings.ContainsFunc(text, unicode.IsControl) {
				t.Errorf("it says %q of %q", text, args)
			}
		}
	})
}

// marked puts a mark around each character of a text, so that no part of it can be shown
// without one.
func marked(text string) string {
	const mark = "QZ7"
	var b strings.Builder
	b.WriteString(mark)
	for _, r := range text {
		b.WriteRune(r)
		b.WriteString(mark)
	}
	return b.String()
}

// shapes are what people take for a DSN. Nobody listens on port 1.
var shapes = []string{
	"postgres://USER:PASSWORD@127.0.0.1:1/d?sslmode=disable",
	"postgresql://USER:PASSWORD@127.0.0.1:1/d?sslmode=bogus",
	"postgres://USER:PASSWORD@/d?host=/nonexistent",
	"postgres:USER:PASSWORD@127.0.0.1:1/d",
	"postgres://127.0.0.1:1/d?user=USER&password=PASSWORD",
	"postgres://USER:PASSWORD@127.0.0.1:x/d",
	"user=USER password=PASSWORD host=127.0.0.1 port=1 dbname=d",
	"user='USER' password='PASSWORD' host=127.0.0.1",
	"mysql://USER:PASSWORD@127.0.0.1:1/d",
	"mariadb://USER:PASSWORD@127.0.0.1:1/d?tls=bogus",
	"mysql://USER:PASSWORD@/d?socket=/nonexistent/s",
	"mysql:USER:PASSWORD@127.0.0.1:1/d",
	"USER:PASSWORD@tcp(127.0.0.1:1)/d",
	"sqlite://USER:PASSWORD@127.0.0.1/d.db",
	"sqlite:USER:PASSWORD@/nonexistent/d.db",
	"redis://USER:PASSWORD@127.0.0.1:1/0",
}

// commandLines are the commands that look at a database and start none, and ways to get the
// command line wrong. DSN stands for one.
var commandLines = [][]string{
	{"--dsn", "DSN", "ls"}, {"ls", "--json", "--dsn=DSN"}, {"--dsn", "DSN", "leader", "--json", "n"}, {"--dsn", "DSN", "inspect", "--json", "n"},
	{"--dsn", "DSN", "wait", "--wait", "1s", "n"}, {"--dsn", "DSN", "unlock", "--force", "n"}, {"--dsn", "DSN", "reap", "--json"}, {"--dsn", "DSN", "doctor"},
	{"--dsn", "DSN", "init", "--yes"}, {"init", "--dsn=DSN"}, {"--dsn", "DSN", "top"}, {"--dsn", "DSN", "migrate", "up"}, {"--dsn", "DSN", "migrate", "status"}, {"--dsn", "DSN", "migrate", "down"},
	{"--dsn", "DSN", "--dsn", "postgres://127.0.0.1:1/e", "ls"}, {"--dsn", "sqlite:/nonexistent/e", "--dsn", "DSN", "migrate", "up"}, {"--dsn=mysql://127.0.0.1:1/e", "doctor", "--dsn=DSN"},
	{"DSN"}, {"--dns", "DSN", "ls"}, {"--dns=DSN", "ls"}, {"--DSN", "ls"}, {"ls", "n", "DSN"}, {"run", "--ttl", "DSN", "n", "--", "true"}, {"run", "--mode=DSN", "n", "--", "true"},
	{"doctor", "DSN"}, {"help", "DSN"}, {"migrate", "DSN"}, {"run", "n", "--", "DSN"}, {"-E", "DSN"}, {"run", "-E", "DSN", "n", "--", "true"},
}

// outputOf returns all that the program writes when it is called, in this process.
func outputOf(t *testing.T, dir string, args []string) string {
	t.Helper()
	out, err := os.CreateTemp(dir, "out")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	a := &app{stdin: os.Stdin, stdout: out, stderr: out, environ: []string{"HOME=" + dir}}
	if code := a.main(append([]string{"sqllock"}, args...)); code == 0 {
		t.Errorf("%q: it worked", args)
	}
	return file(out.Name())
}

// FuzzNoPartOfAUserIsEverShown calls the program with whatever somebody may have for a user
// and a password, in every shape, and every command.
func FuzzNoPartOfAUserIsEverShown(f *testing.F) {
	const punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ "
	f.Add("", "")
	for _, r := range punctuation {
		f.Add("", string(r))
		f.Add(string(r), "")
	}
	for _, password := range []string{punctuation, "@:", ":@", "//@", "%zz", "%4", "%40", "?@", "#@", "/@?", "]:1/", "'@'", "\x00", "\n", "\u202e", "\xff", "a=b&c", "://"} {
		f.Add("u", password)
		f.Add(password, "p")
	}
	f.Fuzz(func(t *testing.T, user, password string) {
		dir := t.TempDir()
		user, password = marked(user), marked(password)
		for i, shape := range shapes {
			dsn := strings.NewReplacer("USER", user, "PASSWORD", password).Replace(shape)
			parts := []string{dsn}
			if (len(password)+i)%2 == 0 { // somebody has forgotten the quotes around it
				parts = strings.Fields(dsn)
			}
			args := commandLines[(len(password)+len(user)+i)%len(commandLines)]
			at := slices.IndexFunc(args, func(arg string) bool { return strings.Contains(arg, "DSN") })
			first := strings.Replace(args[at], "DSN", parts[0], 1)
			args = slices.Concat(args[:at], []string{first}, parts[1:], args[at+1:])
			if text := outputOf(t, dir, args); strings.Contains(strings.ToUpper(text), "QZ7") {
				t.Errorf("%q shows a part of it:\n%s", args, text)
			}
		}
	})
}
