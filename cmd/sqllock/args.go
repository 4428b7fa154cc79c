package main

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/urfave/cli/v3"
)

// takesCommand is the metadata key of commands whose arguments are NAME and the
// words of a command.
const takesCommand = "takes a command"

// completionRequest is the last argument when a shell asks for completions.
const completionRequest = "--generate-shell-completion"

// splitCommand cuts the words of CMD off the arguments of a command that takes
// one: all that follows NAME and the flags behind it, with or without a "--" in
// between. The parser of the library would look for flags in them, and drop a
// "--" that belongs to CMD.
//
// What a shell wants completed is left alone: it must never run.
func splitCommand(root *cli.Command, args []string) (ours, command []string) {
	if len(args) < 2 || args[len(args)-1] == completionRequest {
		return args, nil
	}
	i, ok := skipFlags(args, 1, root.Flags)
	if !ok || i >= len(args) {
		return args, nil
	}
	sub := root.Command(args[i])
	if sub == nil || sub.Metadata[takesCommand] == nil {
		return args, nil
	}
	flags := slices.Concat(sub.Flags, root.Flags)
	i, ok = skipFlags(args, i+1, flags)
	if ok && i < len(args) && args[i] == "--" {
		i++ // NAME and CMD follow, no flags
		flags = nil
	}
	i++ // NAME
	if ok && i < len(args) && flags != nil {
		i, ok = skipFlags(args, i, flags)
	}
	if !ok || i >= len(args) {
		return args, nil
	}
	ours, command = args[:i], args[i:]
	if command[0] == "--" {
		command = command[1:]
	}
	return ours, command
}

// skipFlags returns the index of the first argument from i on that is neither a
// flag nor the value of one. It gives up at a flag that it does not know.
func skipFlags(args []string, i int, flags []cli.Flag) (next int, ok bool) {
	for i < len(args) && isFlag(args[i]) {
		name, _, hasValue := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		j := slices.IndexFunc(flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
		if j < 0 {
			return i, false
		}
		if _, isBool := flags[j].(*cli.BoolFlag); !isBool && !hasValue {
			i++
		}
		i++
	}
	return i, true
}

func isFlag(arg string) bool {
	if name, ok := strings.CutPrefix(arg, "--"); ok {
		return name != ""
	}
	name, ok := strings.CutPrefix(arg, "-")
	r, _ := utf8.DecodeRuneInString(name)
	return ok && unicode.IsLetter(r)
}
