//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestTheTableIsThatOfTheResults(t *testing.T) {
	all, err := readResults("results/cells.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range all {
		if !slices.ContainsFunc(cells, func(c cell) bool { return c.name == r.Cell }) {
			t.Errorf("result %d is of a cell that does not exist: %q", i+1, r.Cell)
		}
		if r.Failed != len(r.Failures) || strings.HasSuffix(r.Commit, "+") {
			t.Errorf("result %d: %+v", i+1, r)
		}
	}
	table, err := os.ReadFile(filepath.Join("results", tableFile))
	if err != nil {
		t.Fatal(err)
	}
	if want := all.table(); string(table) != want { // a test of the root module compares the document
		t.Errorf("results/%s is\n%swant\n%s", tableFile, table, want)
	}
}

func TestAWholeResultIsShownRatherThanANewerOneInBrief(t *testing.T) {
	c := &cells[0]
	whole, short := result{Cell: c.name, Passed: 1, Commit: "a"}, result{Cell: c.name, Passed: 2, Commit: "b", Short: true}
	for _, x := range []struct {
		all  results
		want int
	}{{results{whole, short}, 1}, {results{short, whole}, 1}, {results{short, {Cell: c.name, Passed: 3, Short: true}}, 3}, {results{whole, {Cell: c.name, Passed: 4}}, 4}} {
		if r, found := x.all.newest(c); !found || r.Passed != x.want {
			t.Errorf("of %+v the newest is %+v", x.all, r)
		}
	}
	if _, found := (results{{Cell: "another"}}).newest(c); found {
		t.Error("the result of another cell was found")
	}
}

func TestACellWithAResultOfTheCommitIsNotRunAgain(t *testing.T) {
	c := &cells[0]
	all := results{{Cell: c.name, Commit: "a", Short: true}, {Cell: c.name, Commit: "b"}, {Cell: cells[1].name, Commit: "c"}}
	for _, x := range []struct {
		short  bool
		commit string
		want   bool
	}{{true, "a", true}, {false, "a", false}, {true, "b", true}, {false, "b", true}, {true, "c", false}} {
		if _, found := all.of(c, x.short, x.commit); found != x.want {
			t.Errorf("in brief %v at %s: found %v", x.short, x.commit, found)
		}
	}
}

func TestResultsAreReadAsTheyWereWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cells.jsonl")
	if all, err := readResults(file); all != nil || err != nil {
		t.Errorf("without a file: %v, %v", all, err)
	}
	want := results{{Cell: "a", Passed: 2}, {Cell: "b", Version: "12.22", Failed: 1, Failures: []string{"TestX/y"}, Short: true, Commit: "c"}}
	for _, r := range want {
		if err := appendResult(file, r); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := readResults(file); err != nil || !reflect.DeepEqual(all, want) {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestEachTestWithoutSubtestsCounts(t *testing.T) {
	line := func(action, test string) string {
		return fmt.Sprintf(`{"Action":%q,"Package":"p","Test":%q}`+"\n", action, test)
	}
	for name, x := range map[string]struct {
		events   string
		passed   int
		failures []string
	}{
		"all pass":              {line("run", "A") + line("run", "A/a") + line("run", "A/b") + line("pass", "A/a") + line("pass", "A/b") + line("pass", "A"), 2, nil},
		"a subtest fails":       {line("run", "A") + line("run", "A/a") + line("run", "A/b") + line("fail", "A/a") + line("pass", "A/b") + line("fail", "A"), 1, []string{"A/a"}},
		"a test fails itself":   {line("run", "A") + line("run", "A/a") + line("pass", "A/a") + line("fail", "A"), 1, []string{"A"}},
		"a test is skipped":     {line("run", "A") + line("skip", "A"), 0, []string{"A"}},
		"something else speaks": {"hello\n" + line("run", "A") + line("pass", "A") + `{"Action":"fail","Package":"p"}` + "\n", 1, nil},
	} {
		var n count
		if err := n.add(strings.NewReader(x.events)); err != nil || n.passed != x.passed || !slices.Equal(n.failures, x.failures) {
			t.Errorf("%s: %d passed, failures %q, %v", name, n.passed, n.failures, err)
		}
	}
}

func TestTheVersionIsTheOneThatTheDatabaseTells(t *testing.T) {
	var n count
	err := n.add(strings.NewReader(`{"Action":"output","Test":"A","Output":"    pairs.go:1: the version of the database is 12.22 (Debian)\n"}`))
	if err != nil || n.version != "12.22 (Debian)" {
		t.Errorf("%q, %v", n.version, err)
	}
}

// scripted writes a program that stands for the binary of tests.
func scripted(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tests")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestTestsThatEndWithoutSayingWhatFailedHaveFailed(t *testing.T) {
	for text, want := range map[string]string{
		"printf '=== RUN   TestA\\n--- PASS: TestA (0.00s)\\nPASS\\n'":         "1 [] false",
		"printf '=== RUN   TestA\\n--- PASS: TestA (0.00s)\\nPASS\\n'; exit 1": "1 [] true",
		"printf '=== RUN   TestA\\n--- FAIL: TestA (0.00s)\\nFAIL\\n'; exit 1": "0 [TestA] false",
	} {
		n := &count{logs: t.TempDir()}
		err := n.read(t.Context(), "p", filepath.Join(n.logs, "log"), exec.CommandContext(t.Context(), scripted(t, text)))
		if got := fmt.Sprint(n.passed, " ", n.failures, " ", err != nil); got != want {
			t.Errorf("%s: %s (%v), want %s", text, got, err, want)
		}
	}
}

func TestPausedProcessesOfTestsEndWithThem(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	file := filepath.Join(t.TempDir(), "pid")
	cmd := exec.CommandContext(ctx, scripted(t, "sleep 600 & kill -STOP $!; echo $! >"+file+".new; mv "+file+".new "+file+"; wait"))
	inGroup(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	for began := time.Now(); pid == 0; time.Sleep(10 * time.Millisecond) {
		text, _ := os.ReadFile(file)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		if time.Since(began) > time.Minute {
			t.Fatal("the process was not started")
		}
	}
	cancel()
	_ = cmd.Wait()
	for began := time.Now(); syscall.Kill(pid, 0) == nil; time.Sleep(10 * time.Millisecond) {
		if state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && strings.Contains(string(state), ") Z ") {
			return // nobody has waited for it yet
		}
		if time.Since(began) > time.Minute {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatal("a paused process is left")
		}
	}
}

func TestEachCellIsChosenByACommit(t *testing.T) {
	chosen, families := make(map[string]bool), make(map[string]int)
	for n := range 1000 {
		c := rotation(n)
		chosen[c.name] = true
		families[c.family]++
	}
	for i := range cells {
		if c := &cells[i]; chosen[c.name] == c.today {
			t.Errorf("%s: chosen %v, in each run of CI %v", c.name, chosen[c.name], c.today)
		}
	}
	if len(families) != 3 || families[sqlite] != 333 {
		t.Errorf("%v", families)
	}
}

func TestNoTwoCellsHaveOneName(t *testing.T) {
	seen := make(map[string]bool)
	for i := range cells {
		if c := &cells[i]; seen[c.name] || c.version == "" || c.suites[0].driver == "" {
			t.Errorf("%+v", c)
		}
		seen[cells[i].name] = true
	}
}

func TestTheMirrorIsTheOneOfTheMachine(t *testing.T) {
	for text, want := range map[string]string{
		"# none\ndeb http://a.example/debian bookworm main\n":                 "http://a.example/debian",
		"deb http://a.example/debian-security/ bookworm main\n":               "",
		"Types: deb\nURIs: https://b.example/debian/\nSuites: bookworm\n":     "https://b.example/debian/",
		"deb http://a.example/ubuntu noble main\n":                            "",
		"deb [arch=amd64] http://c.example/x/debian/ bookworm main contrib\n": "http://c.example/x/debian/",
	} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "sources.list.d"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "sources.list.d", "x.sources"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := mirrorIn(dir); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestTheNewestVersionOfALineIsTheLast(t *testing.T) {
	const versions = `["11.22.1-beta.11", "12.10.0-beta.6", "12.22.0-beta.14", "12.22.0-beta.15", "13.6.0-beta.6"]`
	if v, err := newest(versions, "12."); v != "12.22.0-beta.15" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	if v, err := newest(versions, "1."); err == nil {
		t.Errorf("%q of a line that is not there", v)
	}
}

func TestNothingIsDownloadedTwiceOrAgainstTheWill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	calls := 0
	get := func(dir string) error { calls++; return os.WriteFile(filepath.Join(dir, "f"), nil, 0o644) }
	t.Setenv("SQLLOCK_INSTALL", "0")
	if err := install(dir, "x", get); err == nil || !strings.Contains(err.Error(), "SQLLOCK_INSTALL") || calls > 0 {
		t.Errorf("%v after %d calls", err, calls)
	}
	t.Setenv("SQLLOCK_INSTALL", "")
	if err := install(dir, "x", func(string) error { return errors.New("no network") }); err == nil {
		t.Error("a download that failed is an engine")
	}
	for range 2 {
		if err := install(dir, "x", get); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "f")); err != nil || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

// broken is an engine that cannot be had.
type broken struct{}

func (broken) prepare(context.Context, string) ([]string, error) {
	return nil, errors.New("no network")
}

func TestAnEngineThatCannotBeHadIsNotCoveredAndHasNotFailed(t *testing.T) {
	s := &settings{cache: t.TempDir()}
	r := s.cell(t.Context(), &cell{name: "a", engine: broken{}}, "c")
	if r.Failed != 0 || r.outcome() != "NOT covered: no network" {
		t.Errorf("%+v: %s", r, r.outcome())
	}
}

func TestTheTableOfADocumentIsReplaced(t *testing.T) {
	file := filepath.Join(t.TempDir(), "d.md")
	text := "# A\n\n| x |\n|---|\n\n" + heading + "\n|---|\n| old |\n\nB\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := replaceTable(file, heading+"\n|---|\n| new |\n| row |\n"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	want := "# A\n\n| x |\n|---|\n\n" + heading + "\n|---|\n| new |\n| row |\n\nB\n"
	if err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
	if err := replaceTable(filepath.Join("..", "LICENSE"), ""); err == nil {
		t.Error("a document without the table was changed")
	}
}

func TestTheListHasAllCells(t *testing.T) {
	var b bytes.Buffer
	list(&b, results{{Cell: cells[0].name, Date: "2026-11-26", Version: "12.22", Passed: 7}})
	if n := strings.Count(b.String(), "\n"); n != len(cells) || !strings.Contains(b.String(), "7 passed") || !strings.Contains(b.String(), "not yet") {
		t.Errorf("%d lines:\n%s", n, &b)
	}
}
