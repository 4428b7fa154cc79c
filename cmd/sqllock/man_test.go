package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"
)

// plainManual takes the markup of a manual page away.
func plainManual(page string) string {
	page = regexp.MustCompile(`\\f[BIR]`).ReplaceAllString(page, "")
	return strings.NewReplacer(`\&`, "", `\-`, "-", `\(dq`, `"`, `\(ga`, "`", `\(ha`, "^", `\(ti`, "~", `\e`, `\`).Replace(page)
}

func TestTheManualHasWhatHelpSays(t *testing.T) {
	t.Parallel()
	root := testApp().root()
	page := manual(root)
	text := plainManual(page)
	var check func(path string, c *cli.Command)
	check = func(path string, c *cli.Command) {
		if !strings.Contains(text, path) {
			t.Errorf("there is no %q", path)
		}
		for line := range strings.SplitSeq(c.Description, "\n") {
			if !strings.Contains(text, line) {
				t.Errorf("%s lacks %q", path, line)
			}
		}
		for _, f := range c.Flags {
			for _, name := range f.Names() {
				if !strings.Contains(text, dashes(name)) {
					t.Errorf("%s lacks %s", path, dashes(name))
				}
			}
		}
		for _, sub := range c.Commands {
			check(path+" "+sub.Name, sub)
		}
	}
	check("sqllock", root)
	for line := range strings.Lines(page) {
		macro := regexp.MustCompile(`^\.(TH|SH|SS|TP|PP|nf|fi|sp|nh|ad)\b`)
		if strings.HasPrefix(line, "'") || strings.HasPrefix(line, ".") && !macro.MatchString(line) {
			t.Errorf("this is a request: %s", line)
		}
		if rest := regexp.MustCompile(`\\(f[BIR]|&|-|\((dq|ga|ha|ti)|e)`).ReplaceAllString(line, ""); strings.Contains(rest, `\`) {
			t.Errorf("this is an escape: %s", line)
		}
	}
	if nf, fi := strings.Count(page, ".nf\n"), strings.Count(page, ".fi\n"); nf != fi || nf < 10 {
		t.Errorf("%d and %d", nf, fi)
	}
}
