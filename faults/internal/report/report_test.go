//go:build linux

package report_test

import (
	"strings"
	"testing"

	"github.com/sqllock/sqllock/faults/internal/cell"
	"github.com/sqllock/sqllock/faults/internal/check"
	"github.com/sqllock/sqllock/faults/internal/client"
	"github.com/sqllock/sqllock/faults/internal/nemesis"
	"github.com/sqllock/sqllock/faults/internal/report"
	"github.com/sqllock/sqllock/faults/internal/server"
)

// ran is a run of a cell that has replayed enough.
func ran(fault, database string) cell.Result {
	return cell.Result{
		Spec:     cell.Spec{Nemesis: nemesis.ByName(fault), Mode: client.Unique, Use: client.Locks, Database: database, Seed: 1},
		Replayed: check.Replayed{Operations: 1000, Changes: 1000, Excused: 10},
		Lines:    8,
	}
}

// several are runs with three kinds of faults.
func several() []cell.Result {
	return []cell.Result{ran("none", server.Postgres), ran("client-kill", server.Postgres), ran("net-reset", server.Postgres)}
}

func TestARunThatHasLeftOutTooMuchFails(t *testing.T) {
	const kept = ""
	for _, c := range []struct {
		what   string
		change func(all []cell.Result) []cell.Result
		fails  string
	}{
		{"nothing", func(all []cell.Result) []cell.Result { return all }, kept},
		{"most is excused", func(all []cell.Result) []cell.Result { all[1].Excused = 4000; return all }, "4020 of 7020 operations are excused"},
		{"most is excused on MariaDB", func(all []cell.Result) []cell.Result {
			refused := ran("client-kill", server.MariaDB)
			refused.Excused = 10_000
			return append(all, refused)
		}, kept},
		{"most is excused where the server was killed", func(all []cell.Result) []cell.Result {
			killed := ran("server-kill", server.Postgres)
			killed.Excused = 10_000
			return append(all, killed)
		}, kept},
		{"most is excused in a run with one fault", func(all []cell.Result) []cell.Result { all[1].Excused = 4000; return all[1:2] }, kept},
		{"much is excused without faults", func(all []cell.Result) []cell.Result { all[0].Excused = 300; return all[:1] },
			"300 of 1300 operations without faults are excused"},
		{"most is not judged", func(all []cell.Result) []cell.Result { all[1].Unjudged = 4000; return all }, "4000 of 7030 operations are not judged"},
		{"changes are too hard", func(all []cell.Result) []cell.Result { all[1].Hard = 4; return all }, "4 of 3000 changes are too hard to explain"},
		{"few searches are given up", func(all []cell.Result) []cell.Result { all[1].Unordered = make([]string, 6); return all }, kept},
		{"many searches are given up", func(all []cell.Result) []cell.Result { all[1].Unordered = make([]string, 7); return all },
			"7 of 24 searches for an order of calls were given up"},
	} {
		var out strings.Builder
		if ok := report.Control(&out, c.change(several())); ok != (c.fails == kept) {
			t.Errorf("%s: %v", c.what, ok)
		}
		if text := out.String(); c.fails == kept && text != "" || !strings.Contains(text, c.fails) {
			t.Errorf("%s: %q", c.what, text)
		}
	}
}

func TestARunOfManyCellsMustShowLeasesThatAreHeldBesideThoseOfAnotherTTL(t *testing.T) {
	const readers, permits = "reader × reader of another TTL", "permit × permit of another TTL"
	run := func(cells int, pairs ...string) (string, bool) {
		var all []cell.Result
		for range cells {
			r := ran("none", server.SQLite)
			r.Covered = check.Coverage{Met: map[string]int{}, Possible: map[string]bool{}}
			for _, pair := range append(pairs, "exclusive × Value") {
				r.Covered.Met[pair], r.Covered.Possible[pair] = 1, true
			}
			all = append(all, r)
		}
		var out strings.Builder
		ok := report.Control(&out, all)
		return out.String(), ok
	}
	if text, ok := run(9); !ok {
		t.Errorf("nine cells: %s", text)
	}
	if text, ok := run(10, readers, permits); !ok {
		t.Errorf("both have met: %s", text)
	}
	if text, ok := run(10); ok || !strings.Contains(text, readers) || !strings.Contains(text, permits) {
		t.Errorf("neither has met: %v, %s", ok, text)
	}
	if text, ok := run(10, permits); ok || !strings.Contains(text, readers) || strings.Contains(text, permits) {
		t.Errorf("readers have not met: %v, %s", ok, text)
	}
}

func TestWhatWasNotReplayedIsPrinted(t *testing.T) {
	all := several()
	all = append(all, ran("none", server.SQLite), ran("client-kill", server.SQLite))
	options := ran("none", server.Postgres)
	options.Use = client.Options
	all = append(all, options)
	all[0].Unjudged = 7
	all[0].Unordered = []string{"a"}
	var out strings.Builder
	report.Print(&out, all, nil)
	for _, line := range []string{
		"excused: 60 operations", "not judged: 7 operations", "of 48 names and slots, the search was given up for 1",
		"not replayed: 2 runs of cells with unique on sqlite", "not replayed: 1 runs of cells with options on postgres",
	} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("%q is missing in\n%s", line, &out)
		}
	}
	if strings.Contains(out.String(), "with unique on postgres") || strings.Contains(out.String(), "with unique on mariadb") {
		t.Errorf("what was replayed is said not to be:\n%s", &out)
	}
}
