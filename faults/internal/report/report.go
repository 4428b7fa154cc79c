//go:build linux

// Package report prints the results of the cells, for people and as JSON.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/sqllock/sqllock/faults/internal/cell"
	"github.com/sqllock/sqllock/faults/internal/check"
	"github.com/sqllock/sqllock/faults/internal/server"
)

// Without is a cell that there is not.
type Without struct{ Nemesis, Mode, Database, Why string }

// Line prints how a cell went, as soon as that is known.
func Line(w io.Writer, r cell.Result, err error) {
	switch {
	case err != nil:
		fmt.Fprintf(w, "ERROR %s: %v", r.Name(), err)
		if r.Histories != "" {
			fmt.Fprintf(w, ", histories in %s", r.Histories)
		}
		fmt.Fprintln(w)
	case len(r.Failures) == 0:
		fmt.Fprintf(w, "ok    %s: %d acquisitions (%d permits, %d beside others, %d the last), %d faults, %d operations replayed, %d excused, %d not judged, %.1f s\n",
			r.Name(), r.Acquisitions, r.Permits, r.Beside, r.Full, r.Faults, r.Operations, r.Excused, r.Unjudged, r.Took.Seconds())
	}
	if len(r.Failures) > 0 {
		fmt.Fprintf(w, "FAIL  %s: %s after %.1f s, seed %d, histories in %s\n", r.Name(), strings.Join(Failed(r), ", "), r.Took.Seconds(), r.Seed, r.Histories)
	}
	for i, f := range r.Failures {
		if i == 10 {
			fmt.Fprintf(w, "      and %d more\n", len(r.Failures)-i)
			break
		}
		fmt.Fprintf(w, "      %v\n", f)
	}
	if len(r.Covered.Possible) > 0 {
		fmt.Fprintf(w, "      options: %v\n", &r.Covered)
	}
	if !r.Strict {
		for _, f := range r.Unexplained {
			fmt.Fprintf(w, "      not explained: %.1000s\n", f.What)
		}
	}
	for _, name := range r.Unordered {
		fmt.Fprintf(w, "      the search for an order of the calls of %q was given up\n", name)
	}
}

// Failed returns the names of the checks that failed.
func Failed(r cell.Result) []string {
	var names []string
	for _, name := range check.Names {
		if count(r, name) > 0 {
			names = append(names, name)
		}
	}
	return names
}

func count(r cell.Result, checks ...string) int {
	n := 0
	for _, f := range r.Failures {
		if slices.Contains(checks, f.Check) {
			n++
		}
	}
	return n
}

// Print prints the matrix, with all rounds of a cell in one line, and the sums of each
// nemesis.
func Print(w io.Writer, results []cell.Result, without []Without) {
	table(w, sum(results, cell.Spec.Name), func(r cell.Result) string {
		return r.Nemesis.Name + "\t" + r.Kind() + "\t" + r.Database
	})
	for _, none := range without {
		fmt.Fprintf(w, "not applicable: %s with %s on %s: %s\n", none.Nemesis, none.Mode, none.Database, none.Why)
	}
	fmt.Fprintln(w)
	table(w, sum(results, func(s cell.Spec) string { return s.Nemesis.Name }), func(r cell.Result) string {
		return r.Nemesis.Name + "\tall\tall"
	})
	permits(w, results)
	keptLeases(w, results)
	replayed(w, results)
	covered(w, results)
	all := sum(results, func(cell.Spec) string { return "" })
	for _, r := range all {
		fmt.Fprintf(w, "in all: %d runs of cells, %d acquisitions, %d hand-overs, %d faults, %d failures\n", len(results), r.Acquisitions, r.HandOvers, r.Counts.Faults, len(r.Failures))
		fmt.Fprintf(w, "replayed: %d operations, %d changes of names; not explained: %d; too hard: %d\n", r.Operations, r.Changes, len(r.Unexplained), r.Hard)
		fmt.Fprintf(w, "excused: %d operations of which nothing can be judged\n", r.Excused)
		fmt.Fprintf(w, "not judged: %d operations of names with a change that is not explained, or too hard\n", r.Unjudged)
		fmt.Fprintf(w, "orders of calls: of %d names and slots, the search was given up for %d\n", r.Lines, len(r.Unordered))
	}
	notReplayed(w, results)
}

// notReplayed prints how many runs of cells there were whose histories are not replayed.
func notReplayed(w io.Writer, results []cell.Result) {
	runs := map[string]int{}
	for _, r := range results {
		if !r.Replays() {
			runs[r.Kind()+" on "+r.Database]++
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(runs)) {
		fmt.Fprintf(w, "not replayed: %d runs of cells with %s\n", runs[kind], kind)
	}
}

func table(w io.Writer, results []cell.Result, name func(cell.Result) string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "nemesis\tmode\tdatabase\tacquisitions\thand-overs\tin faults\tand a TTL\tfaults\tlosses\tinversions\toverlaps\ttoken\tregister\tothers\tunprotected\t")
	for _, r := range results {
		others := len(r.Failures) - count(r, check.Overlap, check.Remaining, check.Token, check.Register)
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", name(r),
			r.Acquisitions, r.HandOvers, r.Active, r.Recovering, r.Counts.Faults, r.Lost, r.Inversions,
			count(r, check.Overlap, check.Remaining), count(r, check.Token), count(r, check.Register), others, r.Unprotected)
	}
	_ = t.Flush()
}

// permits prints how many permits were acquired under each nemesis on each database.
func permits(w io.Writer, results []cell.Result) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "semaphores\tdatabase\tpermits\tbeside others\tthe last")
	for _, r := range sum(results, func(s cell.Spec) string { return s.Nemesis.Name + "/" + s.Database }) {
		if r.Permits > 0 {
			fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\n", r.Nemesis.Name, r.Database, r.Permits, r.Beside, r.Full)
		}
	}
	_ = t.Flush()
}

// keptLeases prints how many leases were kept all the time under each nemesis, and how many of them
// were lost.
func keptLeases(w io.Writer, results []cell.Result) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "kept\tleases\tlost\tlongest outage")
	none := true
	for _, r := range sum(results, func(s cell.Spec) string { return s.Nemesis.Name }) {
		if r.Kept > 0 {
			none = false
			fmt.Fprintf(t, "%s\t%d\t%d\t%.1f s\n", r.Nemesis.Name, r.Kept, r.KeptLost, r.LongestOutage.Seconds())
		}
	}
	if !none {
		_ = t.Flush()
	}
}

// replayed prints what the replay has explained of each kind of cells on each database.
func replayed(w io.Writer, results []cell.Result) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "replay\tdatabase\truns of cells\toperations\tchanges\tnot explained\ttoo hard")
	runs := map[string]int{}
	for _, r := range results {
		runs[r.Kind()+"/"+r.Database]++
	}
	for _, r := range sum(results, func(s cell.Spec) string { return s.Kind() + "/" + s.Database }) {
		if r.Changes > 0 {
			fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%d\n", r.Kind(), r.Database, runs[r.Kind()+"/"+r.Database], r.Operations, r.Changes, len(r.Unexplained), r.Hard)
		}
	}
	_ = t.Flush()
}

// covered prints which options, kinds and events have not met in any cell, if cells had options.
func covered(w io.Writer, results []cell.Result) {
	for _, r := range sum(results, func(cell.Spec) string { return "" }) {
		if len(r.Covered.Possible) == 0 {
			continue
		}
		fmt.Fprintf(w, "options: %v have met in acquisitions that were granted\n", &r.Covered)
		for _, pair := range r.Covered.Missing() {
			fmt.Fprintf(w, "      not: %s\n", pair)
		}
	}
}

// sum adds up the results of one key, in the order of the first of each.
func sum(results []cell.Result, key func(cell.Spec) string) []cell.Result {
	var sums []cell.Result
	at := map[string]int{}
	for _, r := range results {
		k := key(r.Spec)
		i, ok := at[k]
		if !ok {
			i = len(sums)
			at[k] = i
			sums = append(sums, cell.Result{Spec: r.Spec})
		}
		s := &sums[i]
		s.Counts.Add(r.Counts)
		s.Failures = append(s.Failures, r.Failures...)
		s.Unprotected += r.Unprotected
		s.Replayed.Add(r.Replayed)
		s.Lines += r.Lines
		s.Unordered = append(s.Unordered, r.Unordered...)
		s.Covered.Add(r.Covered)
	}
	return sums
}

// leastOfRun is the share of the pairs, in hundredths, that must meet in a run with some cells with
// options.
const leastOfRun = 90

// few is how many cells are too few to tell that something should have happened, and many how many
// must show what happens seldom.
const (
	few  = 3
	many = 10
)

// Which share of all there is may be left out: one of so many.
const (
	hardShare    = 1000 // of the changes, as too hard to explain
	excusedShare = 2    // of the operations, as excused, or as not judged
	quietShare   = 5    // the same where there are no faults, on Postgres
	orderShare   = 4    // of the names and slots, because the search for an order was given up
)

// Control returns false and prints a failure if the run could not have shown what it is to show:
// pauses did no harm to the unprotected register, so that they were too short, and the other
// registers prove nothing; or clients never held all permits of a semaphore, so that one more did
// not show; or too few pairs of options, kinds and events have met, or none of leases that are held
// at the same time with different TTLs; for these it ignores runs with few cells. Or too many
// changes were too hard to explain, or too much was left out.
func Control(w io.Writer, results []cell.Result) bool {
	pauses, harm, semaphores, full := 0, 0, 0, 0
	for _, r := range results {
		if r.Nemesis.Name == "client-pause" {
			pauses, harm = pauses+1, harm+r.Unprotected
		}
		if r.Permits > 0 {
			semaphores, full = semaphores+1, full+r.Full
		}
	}
	ok := true
	for _, r := range sum(results, func(cell.Spec) string { return "" }) {
		if r.Hard*hardShare > r.Changes {
			fmt.Fprintf(w, "FAIL  %d of %d changes are too hard to explain\n", r.Hard, r.Changes)
			ok = false
		}
	}
	ok = leftOut(w, results) && ok
	var options check.Coverage
	covered := 0
	for _, r := range results {
		if len(r.Covered.Possible) > 0 {
			covered++
			options.Add(r.Covered)
		}
	}
	if missing := options.Few(leastOfRun); covered >= few && len(missing) > 0 {
		fmt.Fprintf(w, "FAIL  %v\n", missing[0])
		ok = false
	}
	if pairs := options.NotBeside(); covered >= many && len(pairs) > 0 {
		fmt.Fprintf(w, "FAIL  in %d cells with options nobody held %s\n", covered, strings.Join(pairs, ", nor "))
		ok = false
	}
	if pauses >= few && harm == 0 {
		fmt.Fprintf(w, "FAIL  the register that nothing protects came to no harm in %d cells with pauses\n", pauses)
		ok = false
	}
	if semaphores >= few && full == 0 {
		fmt.Fprintf(w, "FAIL  never were all permits of a semaphore held in %d cells\n", semaphores)
		ok = false
	}
	return ok
}

// leftOut returns false and prints a failure if too much of what was to be judged on Postgres was
// not. A server that is killed leaves most requests without an answer, and some other faults do: so
// the share of these counts only if there are a few kinds of faults. MariaDB refuses requests that
// compete, also without faults.
func leftOut(w io.Writer, results []cell.Result) (ok bool) {
	var all, quiet check.Replayed
	lines, unordered := 0, 0
	kinds := map[string]bool{}
	for _, r := range results {
		lines, unordered = lines+r.Lines, unordered+len(r.Unordered)
		if !r.Replays() {
			continue
		}
		if r.Nemesis.Name == "none" && r.Database == server.Postgres {
			quiet.Add(r.Replayed)
		}
		if r.Nemesis.Name != "server-kill" && r.Database == server.Postgres {
			all.Add(r.Replayed)
			kinds[r.Nemesis.Name] = true
		}
	}
	ok = true
	fails := func(n, of int, what string) {
		ok = false
		fmt.Fprintf(w, "FAIL  %d of %d %s\n", n, of, what)
	}
	if n, of := all.Excused, all.Operations+all.Excused; len(kinds) >= few && n*excusedShare > of {
		fails(n, of, "operations are excused")
	}
	if n, of := all.Unjudged, all.Operations+all.Excused+all.Unjudged; len(kinds) >= few && n*excusedShare > of {
		fails(n, of, "operations are not judged")
	}
	if n, of := quiet.Excused, quiet.Operations+quiet.Excused; n*quietShare > of {
		fails(n, of, "operations without faults are excused")
	}
	if len(results) >= few && unordered*orderShare > lines {
		fails(unordered, lines, "searches for an order of calls were given up")
	}
	return ok
}

// row is a cell in the file.
type row struct {
	Nemesis      string          `json:"nemesis"`
	Mode         string          `json:"mode"`
	Database     string          `json:"database"`
	Seed         uint64          `json:"seed"`
	Seconds      float64         `json:"seconds"`
	Acquisitions int             `json:"acquisitions"`
	HandOvers    int             `json:"handovers"`
	InFaults     int             `json:"handovers_in_faults"`
	Recovering   int             `json:"handovers_in_faults_and_a_ttl"`
	Faults       int             `json:"faults"`
	Lost         int             `json:"lost"`
	Inversions   int             `json:"inversions"`
	Permits      int             `json:"permits"`
	Beside       int             `json:"permits_beside_others"`
	Full         int             `json:"last_permits"`
	Kept         int             `json:"kept"`
	KeptLost     int             `json:"kept_lost"`
	Outage       float64         `json:"longest_outage_seconds"`
	Overlaps     int             `json:"overlaps"`
	Tokens       int             `json:"token_regressions"`
	Registers    int             `json:"register_violations"`
	Unprotected  int             `json:"unprotected_violations"`
	Pairs        map[string]int  `json:"pairs,omitempty"`
	MissingPairs []string        `json:"missing_pairs,omitempty"`
	Replayed     int             `json:"operations_replayed"`
	Changes      int             `json:"changes_replayed"`
	Hard         int             `json:"changes_too_hard,omitempty"`
	Excused      int             `json:"operations_excused,omitempty"`
	Unjudged     int             `json:"operations_not_judged,omitempty"`
	Unexplained  []check.Failure `json:"unexplained,omitempty"`
	Failed       []string        `json:"failed"`
	Failures     []check.Failure `json:"failures,omitempty"`
	Lines        int             `json:"names_and_slots"`
	Unordered    []string        `json:"undecided,omitempty"`
	FaultSeconds float64         `json:"struck_seconds"`
}

// Save writes the report. It keeps the planted bugs of an existing file.
func Save(path string, results []cell.Result) error {
	var file struct {
		Cells   []row           `json:"cells"`
		Planted json.RawMessage `json:"planted"`
	}
	if text, err := os.ReadFile(path); err == nil {
		if err := json.Unmarshal(text, &file); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if file.Planted == nil {
		file.Planted = json.RawMessage("[]")
	}
	file.Cells = []row{}
	for _, r := range results {
		file.Cells = append(file.Cells, row{
			Nemesis: r.Nemesis.Name, Mode: r.Kind(), Database: r.Database, Seed: r.Seed, Seconds: r.Took.Seconds(),
			Acquisitions: r.Acquisitions, HandOvers: r.HandOvers, InFaults: r.Active, Recovering: r.Recovering, Faults: r.Counts.Faults,
			Lost: r.Lost, Inversions: r.Inversions, Permits: r.Permits, Beside: r.Beside, Full: r.Full, Kept: r.Kept, KeptLost: r.KeptLost, Outage: r.LongestOutage.Seconds(), Overlaps: count(r, check.Overlap, check.Remaining),
			Tokens: count(r, check.Token), Registers: count(r, check.Register), Unprotected: r.Unprotected, Pairs: r.Covered.Met, MissingPairs: r.Covered.Missing(),
			Replayed: r.Operations, Changes: r.Changes, Hard: r.Hard, Excused: r.Excused, Unjudged: r.Unjudged, Unexplained: r.Unexplained,
			Failed: append([]string{}, Failed(r)...), Failures: r.Failures, Lines: r.Lines, Unordered: r.Unordered, FaultSeconds: r.For.Seconds(),
		})
	}
	text, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
