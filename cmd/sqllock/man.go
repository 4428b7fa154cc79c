package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/urfave/cli/v3"
)

func (a *app) manCommand() *cli.Command {
	return &cli.Command{
		Name:            "man",
		Usage:           "print the manual page",
		Description:     manDescription,
		HideHelpCommand: true,
		Action: func(_ context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return fail(exitUsage, "man takes no argument")
			}
			return a.put([]byte(manual(a.root())))
		},
	}
}

const manDescription = `man writes the manual page of sqllock, in the form that "man" reads.

Examples:

   sqllock man | man -l -
   sqllock man >/usr/local/share/man/man1/sqllock.1`

// page is a manual page that is being written.
type page struct{ strings.Builder }

// manual is the manual page of a program: what --help of all its commands says.
func manual(root *cli.Command) string {
	p := &page{}
	version, _, _ := strings.Cut(root.Version, " ")
	fmt.Fprintf(p, ".TH SQLLOCK 1 \"\" \"sqllock %s\" \"User Commands\"\n.nh\n.ad l\n", roff(version))
	p.section("SH", "NAME")
	p.text("sqllock - " + root.Usage)
	p.section("SH", "SYNOPSIS")
	p.text(root.UsageText)
	p.section("SH", "DESCRIPTION")
	p.text(root.Description)
	p.section("SH", "OPTIONS")
	p.flags(root.Flags)
	p.section("SH", "COMMANDS")
	p.commands(root.Commands, root.Name)
	return p.String()
}

func (p *page) section(macro, title string) { fmt.Fprintf(p, ".%s \"%s\"\n", macro, roff(title)) }

// commands writes what is to be said of each command, and of those below it.
func (p *page) commands(all []*cli.Command, path string) {
	for _, c := range all {
		name := path + " " + c.Name
		p.section("SS", strings.TrimSpace(name+" "+c.ArgsUsage))
		p.text(strings.ToUpper(c.Usage[:1]) + c.Usage[1:] + ".")
		if len(c.Aliases) > 0 {
			p.text("Its other name is " + strings.Join(c.Aliases, ", ") + ".")
		}
		p.flags(c.Flags)
		if c.Description != "" {
			p.WriteString(".PP\n")
			p.text(c.Description)
		}
		p.commands(c.Commands, name)
	}
}

// placeholder is the word for the value of a flag.
var placeholder = regexp.MustCompile("`([^`]+)`")

func (p *page) flags(all []cli.Flag) {
	for _, f := range all {
		d, ok := f.(cli.DocGenerationFlag)
		if !ok {
			continue
		}
		var names []string
		for _, n := range f.Names() {
			names = append(names, `\fB`+roff(dashes(n))+`\fR`)
		}
		usage, value := d.GetUsage(), ""
		if m := placeholder.FindStringSubmatch(usage); m != nil {
			value = ` \fI` + roff(m[1]) + `\fR`
		}
		fmt.Fprintf(p, ".TP\n%s%s\n", strings.Join(names, ", "), value)
		usage = placeholder.ReplaceAllString(usage, "$1")
		if text := d.GetDefaultText(); text != "" && d.IsDefaultVisible() && text != "false" {
			usage += " (default: " + text + ")"
		}
		p.text(usage)
	}
}

// text writes paragraphs. Lines that are indented stay as they are.
func (p *page) text(s string) {
	asItIs := false
	for line := range strings.SplitSeq(s, "\n") {
		indented := strings.HasPrefix(line, "  ")
		switch {
		case indented && !asItIs:
			p.WriteString(".nf\n")
		case !indented && asItIs && line != "":
			p.WriteString(".fi\n")
		}
		asItIs = indented || asItIs && line == ""
		if line == "" {
			p.WriteString(".sp\n")
			continue
		}
		p.WriteString(roff(line) + "\n")
	}
	if asItIs {
		p.WriteString(".fi\n")
	}
}

// roff writes a line so that it means itself.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, `"`, `\(dq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
