package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v3"
)

// Messages about wrong usage are ours: those of the library repeat what stands on the
// command line, where a DSN may have gone to a wrong place.

var (
	unknownFlag  = regexp.MustCompile(`^flag provided but not defined: -(.*)$`)
	missingValue = regexp.MustCompile(`^flag needs an argument: -*([\w-]+)$`)
	wrongValue   = regexp.MustCompile(`(?s)^invalid value ("(?:[^"\\]|\\.)*") for flag -*([\w-]+): `)
	helpTopic    = regexp.MustCompile(`(?s)^No help topic for '(.*)'$`)
	flagName     = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]*$`)
)

// setUsageErrors makes usage errors of cmd, and of the commands below it, one line
// each; the library would print the whole help.
func (a *app) setUsageErrors(cmd *cli.Command, path string) {
	path += cmd.Name
	cmd.OnUsageError = func(_ context.Context, cmd *cli.Command, err error, _ bool) error {
		return fail(exitUsage, "%s; see %q", a.wrongUsage(cmd, err), path+" --help")
	}
	for _, sub := range cmd.Commands {
		a.setUsageErrors(sub, path+" ")
	}
}

// wrongUsage tells in our words what the library says of the command line.
func (a *app) wrongUsage(cmd *cli.Command, err error) string {
	text := err.Error()
	if m := unknownFlag.FindStringSubmatch(text); m != nil {
		return a.noFlag(cmd, m[1])
	}
	if m := missingValue.FindStringSubmatch(text); m != nil {
		return dashes(m[1]) + " needs a value"
	}
	if m := wrongValue.FindStringSubmatch(text); m != nil {
		value, _ := strconv.Unquote(m[1])
		return fmt.Sprintf("%s: %s is not %s", dashes(m[2]), a.quoted(value), kind(cmd, m[2]))
	}
	if m := helpTopic.FindStringSubmatch(text); m != nil {
		return "there is no help for " + a.quoted(m[1])
	}
	return "the command line cannot be read"
}

func (a *app) noFlag(cmd *cli.Command, name string) string {
	var names []string
	for _, c := range cmd.Lineage() {
		for _, f := range c.Flags {
			names = append(names, f.Names()...)
		}
	}
	shown := "there is no such flag (not shown, as it may be part of a password)"
	if flagName.MatchString(name) && !a.hasDSN() {
		shown = "there is no flag " + dashes(name)
	}
	return shown + didYouMean(name, names, dashes)
}

// noCommand is what happens if the first word names no command.
func (a *app) noCommand(_ context.Context, cmd *cli.Command) error {
	if !cmd.Args().Present() {
		_ = cli.ShowSubcommandHelp(cmd)
		return exit(exitUsage)
	}
	word := cmd.Args().First()
	var names []string
	for _, c := range cmd.Commands {
		if !c.Hidden {
			names = append(names, c.Names()...)
		}
	}
	return fail(exitUsage, "there is no command %s%s; see %q", a.quoted(word), didYouMean(word, names, strconv.Quote), cmd.FullName()+" --help")
}

// kind says what a flag takes.
func kind(cmd *cli.Command, name string) string {
	for _, c := range cmd.Lineage() {
		for _, f := range c.Flags {
			if !slices.Contains(f.Names(), name) {
				continue
			}
			switch f.(type) {
			case *cli.DurationFlag:
				return "a duration, as 300ms, 10s or 5m"
			case *cli.IntFlag:
				return "a whole number"
			case *cli.BoolFlag:
				return "true or false"
			}
		}
	}
	if name == "mode" {
		return "a mode: unique, forupdate or advisory"
	}
	return "a value that it takes"
}

func dashes(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// quoted repeats an argument, unless it may be a DSN or a part of one.
func (a *app) quoted(arg string) string {
	if strings.ContainsAny(arg, "@:=") || a.hasDSN() {
		return "an argument (not shown, as it may be part of a password)"
	}
	return fmt.Sprintf("%q", arg)
}

// hasDSN reports that a DSN may stand on the command line: then any word there may be a
// part of one that was to be in quotes.
func (a *app) hasDSN() bool {
	return slices.ContainsFunc(a.ownArguments(), func(arg string) bool {
		return strings.Contains(arg, "@") || strings.Contains(arg, "://") || strings.HasPrefix(strings.TrimLeft(arg, "-"), "dsn")
	})
}

// maybeCut reports that an argument may be the end of a DSN that was to be in quotes.
func (a *app) maybeCut() bool {
	return slices.ContainsFunc(a.ownArguments(), func(arg string) bool {
		at := strings.LastIndexByte(arg, '@')
		return at >= 0 && !strings.Contains(arg[:at], "://")
	})
}

// ownArguments are the arguments before a "--".
func (a *app) ownArguments() []string {
	if i := slices.Index(a.arguments, "--"); i >= 0 {
		return a.arguments[:i]
	}
	return a.arguments
}

// didYouMean asks for the name that is likely meant, if there is one.
func didYouMean(word string, names []string, write func(string) string) string {
	best, least := "", 1+max(1, len(word)/3)
	for _, name := range names {
		if d := distance(word, name); d < least && d < len(name) {
			best, least = name, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + write(best) + "?"
}

// distance counts what must be typed differently: a letter more, less or other, or two
// that change places.
func distance(a, b string) int {
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, d[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}

// usageOf is an error of the program's end: what is no failure of ours is the parser's.
func (a *app) usageOf(root *cli.Command, err error) *failure {
	f := (*failure)(nil)
	if errors.As(err, &f) {
		return f
	}
	return &failure{code: exitUsage, err: errors.New(a.wrongUsage(root, err))}
}
