package main

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/urfave/cli/v3"
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
			said := line(redact(err.Error()))
			if strings.ContainsFunc(said, unicode.IsControl) {
				t.Errorf("it says %q of %q", said, args)
			}
		}
	})
}

func FuzzWhatFollowsAPasswordIsNoReasonToShowIt(f *testing.F) {
	for _, c := range [][4]string{
		{"postgres", "", "", "h/d?sslmode=bogus"}, {"mysql", "", "", "h:port/d"}, {"postgres", "a/b", "#", "h/d"}, {"mysql", "@", "?x", "h"},
		{"postgres", "%zz", "", "h:x/d"}, {"mysql", "%", "", "h/d?timeout=x"}, {"postgres", ":", ":", "[::1/d"}, {"mysql", "\x00", " ", "\x7f/d?tls=x"},
		{"redis", "", "", "h/0"}, {"postgresql", "12", "/", "h:99999999/d"}, {"mariadb", "'", "&", "h/d?socket=%zz"},
		{"postgres", "12?", "", "h/d"}, {"mysql", "12?timeout=", "", "h/d"}, {"postgres", "12/x?", "", "h/d"}, {"mysql", "12#", "", "h/d"},
	} {
		f.Add(c[0], c[1], c[2], c[3])
	}
	f.Fuzz(func(t *testing.T, scheme, before, after, rest string) {
		const secret = "hunter2"
		if scheme == "sqlite" || strings.Contains(scheme+rest, secret) || strings.ContainsAny(scheme, ":=") {
			return // a path is no secret
		}
		err := parse(scheme + "://u:" + before + secret + after + "@" + rest)
		if err != nil && strings.Contains(line(redact(err.Error())), secret) {
			t.Errorf("%q, %q, %q, %q: the password is in: %v", scheme, before, after, rest, err)
		}
	})
}
