//go:build linux

package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/faults/internal/check"
)

func TestEachBugFitsTheSource(t *testing.T) {
	p := planter{root: "../..", dir: t.TempDir()}
	names := make(map[string]bool)
	for _, b := range all() {
		if names[b.name] {
			t.Errorf("two bugs are named %q", b.name)
		}
		names[b.name] = true
		if _, err := p.overlay(b); err != nil {
			t.Errorf("%s: %v", b.name, err)
		}
	}
	if len(bugs) < 45 || len(combined) < 15 || len(around) < 22 || len(scheduled) < 28 {
		t.Errorf("%d bugs, %d combinations, %d around a lock, %d in the engine", len(bugs), len(combined), len(around), len(scheduled))
	}
}

// What docs/correctness.md says is of runs: bugs may have been added since.
func TestTheDocumentationSaysOfNoMoreBugsThanThereAre(t *testing.T) {
	page, err := os.ReadFile("../../docs/correctness.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(page)), " ")
	for _, c := range []struct {
		says string
		list []bug
	}{
		{`Of (\d+) mistakes, tests noticed`, bugs},
		{`Of (\d+) further mistakes in the engine`, scheduled},
		{`Of (\d+) mistakes that are combinations`, combined},
		{`\[(\d+) planted combinations\]`, combined},
		{`Of (\d+) mistakes in what`, around},
	} {
		match := regexp.MustCompile(c.says).FindStringSubmatch(text)
		if match == nil {
			t.Errorf("docs/correctness.md does not say %q", c.says)
			continue
		}
		if n, err := strconv.Atoi(match[1]); err != nil || n > len(c.list) {
			t.Errorf("docs/correctness.md says %q, and there are %d: %v", match[0], len(c.list), err)
		}
	}
}

func TestAWeakCheckIsNoEvidenceUnlessTheBugNamesIt(t *testing.T) {
	plain := cell("none", "unique", "sqlite")
	for _, c := range []struct {
		catch  catcher
		failed []string
		want   bool
	}{
		{plain, nil, false},
		{plain, []string{check.Overlap}, true},
		{plain, []string{check.Waiting}, false},
		{plain, []string{check.Waiting, check.Permits, check.Work, check.Covered}, false},
		{plain, []string{check.Waiting, check.Token}, true},
		{plain.by(check.Waiting), []string{check.Waiting}, true},
		{plain.by(check.Waiting), []string{check.Permits}, false},
		{plain.by(check.Waiting), []string{check.Left}, true},
	} {
		if got := c.catch.accepts(c.failed); got != c.want {
			t.Errorf("%q with %q: %v", c.failed, c.catch.weak, got)
		}
	}
	for _, b := range all() {
		if b.catch.weak != "" && !slices.Contains(weakly, b.catch.weak) {
			t.Errorf("%s: %q is no weak check", b.name, b.catch.weak)
		}
	}
}

func TestAControlThatFailsIsAFailureForEachBug(t *testing.T) {
	failed := errors.New("it fails without a bug, too")
	p := planter{controls: map[string]error{"./p TestA": failed, "./p TestB": nil}}
	if err := p.control(t.Context(), test("./p", "TestA")); !errors.Is(err, failed) {
		t.Errorf("TestA: %v", err)
	}
	if err := p.control(t.Context(), test("./p", "TestB")); err != nil {
		t.Errorf("TestB: %v", err)
	}
}

func TestACellThatFailsWithoutABugIsNoEvidence(t *testing.T) {
	plain := cell("none", "unique", "sqlite")
	for _, c := range []struct {
		catch  catcher
		failed []string // without the bug
		ok     bool
	}{
		{plain, nil, true},
		{plain, []string{check.Overlap}, false},
		{plain, []string{check.Waiting}, true},
		{plain, []string{check.Waiting, check.Linear}, false},
		{plain.by(check.Waiting), []string{check.Waiting}, false},
		{plain.by(check.Waiting), []string{check.Work}, true},
	} {
		p := planter{without: map[string][]string{"none/unique/sqlite": c.failed}}
		if err := p.controlCell(t.Context(), c.catch); (err == nil) != c.ok {
			t.Errorf("%q with %q: %v", c.failed, c.catch.weak, err)
		}
	}
}

func TestAReportKeepsTheOutcomesOfOtherBugs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	some, other := bugs[0].name, bugs[1].name
	pattern := func(name string) *regexp.Regexp { return regexp.MustCompile("^" + regexp.QuoteMeta(name) + "$") }
	if err := os.WriteFile(path, []byte(`{"cells":[{"nemesis":"none"}],"planted":[{"bug":"of another time","caught_by":"TestX"}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, o := range []outcome{{Bug: some, By: "TestA"}, {Bug: other, By: "TestB"}, {Bug: some, By: "TestC"}} {
		if err := save(path, pattern(o.Bug), []outcome{o}); err != nil {
			t.Fatal(err)
		}
	}
	if err := save(path, pattern(other), nil); err != nil { // it could not be planted
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for what, n := range map[string]int{"none": 1, some: 1, other: 0, "TestA": 0, "TestB": 0, "TestC": 1, "of another time": 0} {
		if got := strings.Count(string(text), `"`+what+`"`); got != n {
			t.Errorf("%q is there %d times, want %d:\n%s", what, got, n, text)
		}
	}
}
