package report_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/bench/internal/report"
)

var (
	ours   = report.Key{Workload: report.Distinct, Contender: "sqllock/postgres/unique", Callers: 1024}
	theirs = report.Key{Workload: report.Distinct, Contender: "rueidis", Callers: 1024}
)

// measured are three rounds of which the machine was slow in one.
func measured() *report.Results {
	r := report.NewResults()
	for _, round := range [][2]float64{{70, 100}, {8, 10}, {90, 100}} {
		r.Add(ours, true, report.Sample{Cycles: round[0], P50: 12.34567})
		r.Add(theirs, false, report.Sample{Cycles: round[1]})
	}
	return r
}

func TestARatioIsTakenRoundByRound(t *testing.T) {
	if got, ok := measured().Ratio(ours, theirs, report.Cycles); !ok || got != 0.8 {
		t.Errorf("the ratio is %v, %v, want 0.8", got, ok)
	}
	if _, ok := measured().Ratio(ours, report.Key{Contender: "nobody"}, report.Cycles); ok {
		t.Error("there is a ratio to what was not measured")
	}
}

func TestARoundThatWasDroppedCountsOnlyAsAFailure(t *testing.T) {
	r := report.NewResults()
	for _, s := range []report.Sample{{Cycles: 10}, {Cycles: 1000, Dropped: true, Failures: 2}, {Cycles: 30}} {
		r.Add(ours, true, s)
	}
	for _, cycles := range []float64{20, 100, 60} {
		r.Add(theirs, false, report.Sample{Cycles: cycles})
	}
	if got := r.Get(ours).Median(report.Cycles); got != 20 {
		t.Errorf("the median is %v, want 20", got)
	}
	if got, ok := r.Ratio(ours, theirs, report.Cycles); !ok || got != 0.5 {
		t.Errorf("the ratio is %v, %v, want 0.5: each round with its own", got, ok)
	}
	r.AddFailures(ours, true, 3)
	if n := r.Get(ours).Failures(); n != 5 {
		t.Errorf("%d failures, want 5", n)
	}
	if n := r.Failures(); n != 5 {
		t.Errorf("%d failures in all, want 5", n)
	}
}

func TestTheTableHasTheFailuresOfAllRounds(t *testing.T) {
	r := measured()
	r.Add(theirs, false, report.Sample{Cycles: 100, Failures: 7})
	var b strings.Builder
	r.WriteTable(&b)
	if !regexp.MustCompile(`failed in all.*\n.*\b0  sqllock/postgres/unique\n.*\b7  rueidis\n`).MatchString(b.String()) {
		t.Errorf("the table is\n%s", b.String())
	}
}

func TestAGoalOfASeriesWithFailuresHasFailed(t *testing.T) {
	r := measured()
	r.AddFailures(theirs, false, 4)
	var b strings.Builder
	r.WriteGoals(&b)
	if !regexp.MustCompile(`(?m)^0\.80  .*  FAILED 4  `).MatchString(b.String()) {
		t.Errorf("the goals are\n%s", b.String())
	}
}

func TestAGoalWhoseRoundsWereAllDroppedHasFailed(t *testing.T) {
	r := report.NewResults()
	r.Add(ours, true, report.Sample{Dropped: true, Failures: 1})
	r.Add(theirs, false, report.Sample{Cycles: 10})
	var b strings.Builder
	r.WriteGoals(&b)
	if !regexp.MustCompile(`(?m)  FAILED 1  .*1024 callers$`).MatchString(b.String()) {
		t.Errorf("the goals are\n%s", b.String())
	}
}

func TestTooFewRowsPerBeatAreMissedBeats(t *testing.T) {
	for value, want := range map[float64]string{0.25: "MISSED", 0.8: "reached", 1: "reached", 1.05: "reached", 1.1: "MISSED"} {
		if got := report.BeatVerdict(value); got != want {
			t.Errorf("%v: %q, want %q", value, got, want)
		}
	}
}

func TestTheJSONHasTheAgreedFieldsAndNoOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "latest.json")
	if err := measured().WriteJSON(path, report.ThisMachine(".")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var document map[string]json.RawMessage
	var rows []map[string]any
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(document["rows"], &rows); err != nil {
		t.Fatal(err)
	}
	if len(document) != 2 || document["machine"] == nil || len(rows) != 2 {
		t.Fatalf("the document is %s", text)
	}
	want := []string{
		"workload", "contender", "callers", "durable", "cycles_per_s", "p50_us", "p99_us", "across_us", "jain",
		"statements_per_handover", "statements_per_s", "rows_per_s", "log_bytes_per_s", "connections",
		"allocs", "client_cpu_us", "server_cpu_us", "failed",
	}
	for _, row := range rows {
		for _, field := range want {
			if _, there := row[field]; !there {
				t.Errorf("a row lacks %s: %v", field, row)
			}
		}
		if len(row) != len(want) {
			t.Errorf("a row has %d fields, want %d: %v", len(row), len(want), row)
		}
	}
	if rows[0]["cycles_per_s"] != 70.0 || rows[0]["durable"] != true || rows[0]["p50_us"] != 12.3457 {
		t.Errorf("the first row is %v", rows[0])
	}
}

func TestAGoalIsMissedUnlessItsMustIsReached(t *testing.T) {
	for _, c := range []struct {
		atLeast          bool
		must, aim, value float64
		want             string
	}{
		{true, 0.6, 1, 0.59, "MISSED"},
		{true, 0.6, 1, 0.6, "must reached, aim missed"},
		{true, 0.6, 1, 1, "aim reached"},
		{true, 0, 8, 7, "aim missed"},
		{true, 2, 0, 2, "reached"},
		{false, 3, 2, 3.1, "MISSED"},
		{false, 3, 2, 2.5, "must reached, aim missed"},
		{false, 3, 2, 1.9, "aim reached"},
		{false, 1.2, 0, 1.3, "MISSED"},
	} {
		if got := report.Verdict(c.atLeast, c.must, c.aim, c.value, 0); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
	if got := report.Verdict(true, 0.6, 1, 1, 3); got != "FAILED 3" {
		t.Errorf("with failures: %q", got)
	}
}

func TestReportShowsOnlyMeasuredGoals(t *testing.T) {
	var b strings.Builder
	measured().WriteGoals(&b)
	lines := slices.DeleteFunc(strings.Split(b.String(), "\n"), func(l string) bool { return !strings.Contains(l, "must") })
	if len(lines) != 1 || !strings.HasPrefix(lines[0], "0.80") || !strings.Contains(lines[0], "aim reached") {
		t.Errorf("the goals are told as\n%s", b.String())
	}
	if !regexp.MustCompile(`\n\d+ goals were not measured\n$`).MatchString(b.String()) {
		t.Errorf("what was not measured is not counted in\n%s", b.String())
	}
}

func TestPlotsShowTheMeasuredSeries(t *testing.T) {
	dir := t.TempDir()
	if err := measured().WritePlots(dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "throughput.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", "sqllock/postgres/unique *", "rueidis", "1,024", "</svg>"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the plot lacks %q", want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "handover.svg")); err == nil {
		t.Error("a plot was drawn of what was not measured")
	}
}
