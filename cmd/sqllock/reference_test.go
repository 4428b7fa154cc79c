package main

import (
	"os"
	"regexp"
	"testing"
)

func TestTheReferenceNamesCommandsAndFlagsThatExist(t *testing.T) {
	text, err := os.ReadFile("../../docs/command-line.md")
	if err != nil {
		t.Fatal(err)
	}
	root := testApp().root()
	commands, flags := make(map[string]bool), map[string]bool{"help": true}
	for _, c := range append(root.Commands, root) {
		commands[c.Name] = true
		for _, f := range c.Flags {
			for _, name := range f.Names() {
				flags[name] = true
			}
		}
	}
	for _, m := range regexp.MustCompile("(?m)(?:`|^)sqllock (?:--dsn \\S+ )?([a-z]+)").FindAllSubmatch(text, -1) {
		if !commands[string(m[1])] {
			t.Errorf("there is no command %q", m[1])
		}
	}
	for _, m := range regexp.MustCompile("[` ]--([a-z-]+)").FindAllSubmatch(text, -1) {
		if !flags[string(m[1])] {
			t.Errorf("there is no flag %q", m[1])
		}
	}
	for _, c := range root.Commands {
		if !regexp.MustCompile("`" + c.Name + "`|sqllock .*\\b" + c.Name + "\\b").Match(text) {
			t.Errorf("the reference does not mention %q", c.Name)
		}
	}
}
