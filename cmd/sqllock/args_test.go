package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func testApp() *app {
	return &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
}

func TestWhatFollowsNameIsNotParsed(t *testing.T) {
	t.Parallel()
	const none = "<none>"
	for _, c := range []struct{ args, ours, command string }{
		{"run n -- c -x", "run n", "c -x"},
		{"run n c -x", "run n", "c -x"},
		{"run --ttl 5s n -- c", "run --ttl 5s n", "c"},
		{"run --ttl=5s n -- c", "run --ttl=5s n", "c"},
		{"run n --ttl 5s -- c --ttl 6s", "run n --ttl 5s", "c --ttl 6s"},
		{"run n --try c --try", "run n --try", "c --try"},
		{"run n -E 3 c", "run n -E 3", "c"},
		{"run n c -- d", "run n", "c -- d"},
		{"run n -- c -- d", "run n", "c -- d"},
		{"run n c --help", "run n", "c --help"},
		{"run -- n c -x", "run -- n", "c -x"},
		{"run -- n -- c -x", "run -- n", "c -x"},
		{"run --dsn sqlite:run n -- c", "run --dsn sqlite:run n", "c"},
		{"--dsn run run n -- c", "--dsn run run n", "c"},
		{"--schema=s run n -- c", "--schema=s run n", "c"},
		{"run -5 -- c", "run -5", "c"},
		{"run n --", "run n", ""},
		// The rest is left to the parser, for a message, for help or for completion.
		{"run n", "run n", none},
		{"run", "run", none},
		{"run --ttl", "run --ttl", none},
		{"run n --bogus c", "run n --bogus c", none},
		{"run --help n c", "run --help n c", none},
		{"run n -h c", "run n -h c", none},
		{"migrate copy -- d", "migrate copy -- d", none},
		{"--bogus run n c", "--bogus run n c", none},
		{"run n -- c --generate-shell-completion", "run n -- c --generate-shell-completion", none},
		{"--dsn", "--dsn", none},
		{"", "", none},
	} {
		t.Run(c.args, func(t *testing.T) {
			args := append([]string{"sqllock"}, strings.Fields(c.args)...)
			ours, command := splitCommand(testApp().root(), args)
			if got, want := ours[1:], strings.Fields(c.ours); !slices.Equal(got, want) {
				t.Errorf("for the parser: %q, want %q", got, want)
			}
			if want := strings.Fields(c.command); c.command == none && command != nil || c.command != none && !slices.Equal(command, want) {
				t.Errorf("the command: %q, want %q", command, want)
			}
		})
	}
}

func TestEmptyWordsOfACommandStay(t *testing.T) {
	t.Parallel()
	_, command := splitCommand(testApp().root(), []string{"sqllock", "run", "n", "c", "", "--", "--ttl", ""})
	if want := []string{"c", "", "--", "--ttl", ""}; !slices.Equal(command, want) {
		t.Errorf("got %q, want %q", command, want)
	}
}

func TestNoArgumentsAtAllAreNoPanic(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {}, {"sqllock"}} {
		if _, command := splitCommand(testApp().root(), args); command != nil {
			t.Errorf("a command out of %q: %q", args, command)
		}
	}
}
