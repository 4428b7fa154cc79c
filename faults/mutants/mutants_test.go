//go:build linux

package main

import (
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// changes returns the changes of a finder, each as the resulting line of a source with
// one line.
func changes(f *finder) (all []string) {
	for _, m := range f.sorted() {
		all = append(all, m.operator+": "+string(m.apply(f.source)))
	}
	return all
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestEachGoOperatorMakesItsMutants(t *testing.T) {
	const before = "package p; func f() error { "
	for body, want := range map[string][]string{
		"if ok { g() }":                     {"negate: if !(ok) { g() }", "remove: if ok {  }"},
		"if a < b { x := 2 }":               {"boundary: if a <= b { x := 2 }", "opposite: if a >= b { x := 2 }"},
		"switch { case a && b: }":           {"negate: switch { case !(a && b): }", "logic: switch { case a || b: }"},
		"for { continue }":                  {"remove: for {  }"},
		"defer g(true)":                     {"remove: ", "bool: defer g(false)"},
		"n = min(0, n-2)":                   {"remove: ", "extreme: n = max(0, n-2)", "constant: n = min(1, n-2)", "arithmetic: n = min(0, n+2)"},
		`s := "a" + b; panic("bug"); _ = s`: nil,
		"return err":                        {"swallow: return nil"},
		"return":                            {"remove: "},
	} {
		f := &finder{file: "x.go", source: []byte(before + body + " }")}
		if err := f.inGo(); err != nil {
			t.Fatal(err)
		}
		got := changes(f)
		for i := range got {
			got[i] = strings.TrimSuffix(strings.Replace(got[i], before, "", 1), " }")
		}
		expect(t, got, want...)
	}
}

func TestEachSQLOperatorMakesItsMutants(t *testing.T) {
	for body, want := range map[string][]string{
		"SELECT a FROM t WHERE b = 1 AND c > ` + now": {
			"sql opposite: SELECT a FROM t WHERE b <> 1 AND c > ` + now",
			"sql without: SELECT a FROM t WHERE c > ` + now",
			"sql logic: SELECT a FROM t WHERE b = 1 OR c > ` + now",
			"sql without: SELECT a FROM t WHERE b = 1 `",
			"sql boundary: SELECT a FROM t WHERE b = 1 AND c >= ` + now",
			"sql opposite: SELECT a FROM t WHERE b = 1 AND c <= ` + now",
		},
		"UPDATE t SET a = a + 1, b = ` + now + `, c = NULL WHERE d IS NULL FOR UPDATE`": {
			"sql column: UPDATE t SET b = ` + now + `, c = NULL WHERE d IS NULL FOR UPDATE`",
			"sql column: UPDATE t SET a = a + 1, c = NULL WHERE d IS NULL FOR UPDATE`",
			"sql column: UPDATE t SET a = a + 1, b = ` + now + ` WHERE d IS NULL FOR UPDATE`",
			"sql constant: UPDATE t SET a = a + 0, b = ` + now + `, c = NULL WHERE d IS NULL FOR UPDATE`",
			"sql null: UPDATE t SET a = a + 1, b = ` + now + `, c = NULL WHERE d IS NOT NULL FOR UPDATE`",
			"sql lock: UPDATE t SET a = a + 1, b = ` + now + `, c = NULL WHERE d IS NULL `",
		},
		"SELECT greatest(a, 1) -- 1 < 2`": {"sql extreme: SELECT least(a, 1) -- 1 < 2`"},
		"SELECT '1 < 2', a->>b`":          nil,
	} {
		f := &finder{file: "queries.go", source: []byte("package p; const q = `" + body)}
		if err := f.inGo(); err != nil {
			t.Fatal(err)
		}
		got := changes(f)
		for i := range got {
			got[i] = strings.Replace(got[i], "package p; const q = `", "", 1)
		}
		expect(t, got, want...)
	}
}

func TestEachStatementOfASQLFileMakesItsMutants(t *testing.T) {
	const source = "-- The head has 1 < 2.\n\n-- name: one\n-- It isn't 1 < 2.\nSELECT a -- it isn't\nFROM t WHERE b < 1;\n\n" +
		"-- name: two\nDELETE FROM t WHERE c = '-- 1 < 2' OR d;\n"
	f := &finder{file: "x.sql", source: []byte(source)}
	f.inStatements()
	var want []string
	for _, change := range []struct{ operator, old, text string }{
		{"boundary", "b < 1", "b <= 1"}, {"opposite", "b < 1", "b >= 1"}, {"opposite", "c = '", "c <> '"}, {"logic", "OR d", "AND d"},
	} {
		want = append(want, "sql "+change.operator+": "+strings.Replace(source, change.old, change.text, 1))
	}
	expect(t, changes(f), want...)
}

func TestEachDriverHasMutantsOfItsStatements(t *testing.T) {
	lists, err := sample("../..", 1, regexp.MustCompile("^lock"))
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		n := 0
		for i := range list {
			if m := &list[i]; isSQL(m.operator) && strings.HasSuffix(m.file, ".sql") {
				n++
			}
		}
		if n < 50 {
			t.Errorf("%s has %d mutants of SQL", list[0].group, n)
		}
	}
	if len(lists) != 3 {
		t.Errorf("%d drivers", len(lists))
	}
}

func TestATargetThatThereIsNotIsAnError(t *testing.T) {
	if lists, err := sample("../..", 1, regexp.MustCompile("nothing")); err == nil {
		t.Errorf("%d targets", len(lists))
	}
}

func TestASampleDependsOnlyOnItsSeed(t *testing.T) {
	first, err := sample("../..", 1, regexp.MustCompile(""))
	if err != nil {
		t.Fatal(err)
	}
	again, _ := sample("../..", 1, regexp.MustCompile(""))
	other, _ := sample("../..", 2, regexp.MustCompile(""))
	for i := range first {
		if len(first[i]) < 50 {
			t.Errorf("%s has %d mutants", targets[i].name, len(first[i]))
		}
		if !slices.Equal(first[i], again[i]) || slices.Equal(first[i], other[i]) {
			t.Errorf("%s: the sample is not that of its seed", targets[i].name)
		}
	}
}

func TestEachTestOfTheLibraryBelongsToAStage(t *testing.T) {
	s, err := newSuites("../..", 4)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(s.instant, "TestADeadlockEndsTheYoungestWaiter") || slices.Contains(s.instant, "TestOnLinuxTheClockIsNotTheWallClock") {
		t.Errorf("in no time: %v", s.instant)
	}
	for _, target := range targets {
		for i, stage := range s.stages(&mutant{group: target.name, file: target.files[0]}) {
			if len(stage.jobs) == 0 {
				t.Errorf("%s: nothing is run in stage %d", target.name, i)
			}
		}
	}
}

func TestTheFirstFailureCounts(t *testing.T) {
	for output, want := range map[string]string{
		"=== RUN   TestA\n=== RUN   TestA/b\n    --- FAIL: TestA/b (0.00s)\n--- FAIL: TestA (0.00s)\nFAIL\n": "TestA/b",
		"--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/b (0.00s)\npanic: oh\n":                                "TestA/b",
		"=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestB\npanic: oh\n":                             "panic: oh in TestB",
		"=== RUN   TestA\n--- PASS: TestA (0.00s)\nsqllock: a goroutine is left\n":                           "sqllock: a goroutine is left",
	} {
		o := observe(strings.NewReader(output), 0, func() {})
		if f := o.failure(job{}, true); f.by != want {
			t.Errorf("got %q, want %q", f.by, want)
		}
	}
}

func TestSilenceCountsAsAHang(t *testing.T) {
	r, w := io.Pipe()
	go func() { _, _ = io.WriteString(w, "=== RUN   TestA\n") }()
	o := observe(r, 10*time.Millisecond, func() { _ = w.Close() })
	if f := o.failure(job{}, true); f.by != hanging+" in TestA" || f.died {
		t.Errorf("got %+v", f)
	}
}
