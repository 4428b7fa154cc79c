package testdb

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
)

// coverage has the pairs that the tests of this process covered.
var coverage record

// record collects pairs of mode and database. It is safe for concurrent use.
type record struct {
	mu       sync.Mutex
	expected []pair
	covered  []pair
	absent   []absence
}

// pair is a mode on a database.
type pair struct{ mode, database string }

func (p pair) String() string { return p.mode + "×" + p.database }

// An absence is a database that tests needed and did not find.
type absence struct{ database, reason string }

// Expect declares that the tests should cover a mode on a database. [Main] reports the
// pairs that were expected and not covered.
func Expect(mode, database string) { coverage.expect(pair{mode, database}) }

// Cover declares that the tests of a mode on a database have run.
func Cover(mode, database string) { coverage.cover(pair{mode, database}) }

func (r *record) expect(p pair) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.expected, p) {
		r.expected = append(r.expected, p)
	}
}

func (r *record) cover(p pair) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.covered, p) {
		r.covered = append(r.covered, p)
	}
}

// missed notes that tests would have used an engine.
func (r *record) missed(engine, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := (absence{engine, reason}); !slices.Contains(r.absent, a) {
		r.absent = append(r.absent, a)
	}
}

// uncovered returns the expected pairs that were not covered.
//
// Caller holds mu.
func (r *record) uncovered() []pair {
	return slices.DeleteFunc(slices.Clone(r.expected), func(p pair) bool {
		return slices.Contains(r.covered, p)
	})
}

// otherwise returns the absent databases that no expected pair names.
//
// Caller holds mu.
func (r *record) otherwise() []absence {
	return slices.DeleteFunc(slices.Clone(r.absent), func(a absence) bool {
		return slices.ContainsFunc(r.expected, func(p pair) bool { return p.database == a.database })
	})
}

// report returns the lines for people.
func (r *record) report() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	if len(r.covered) > 0 {
		names := fmt.Sprint(r.covered)
		fmt.Fprintf(&b, "sqllock: covered: %s\n", strings.Trim(names, "[]"))
	}
	for _, p := range r.uncovered() {
		fmt.Fprintf(&b, "sqllock: NOT covered: %s (%s)\n", p, whyNot(p))
	}
	for _, a := range r.otherwise() {
		fmt.Fprintf(&b, "sqllock: NOT covered: tests on %s (%s)\n", a.database, a.reason)
	}
	return b.String()
}

// Tests of a mode with this suffix start a server. That is impossible with an address
// only: scripts/test.sh reports these tests and does not fail.
const (
	ownServer   = "of its own"
	noOwnServer = "no server of its own can be started here"
)

// whyNot explains an uncovered pair.
func whyNot(p pair) string {
	if e := engineOf(p.database); e != nil {
		if reason := absentReason(e); reason != "" {
			return reason
		}
		if reason := unstartableReason(e); reason != "" && strings.HasSuffix(p.mode, ownServer) {
			return noOwnServer + ": " + reason
		}
	}
	return "its tests did not run to the end"
}

// save appends the record to a file, "" for none: lines of a verb, a mode, "-" if
// it is about none, a database and a reason, with tabs between. Test binaries run
// at the same time, so it is one write.
func (r *record) save(file string) error {
	if file == "" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for _, p := range r.covered {
		fmt.Fprintf(&b, "covered\t%s\t%s\n", p.mode, p.database)
	}
	for _, p := range r.uncovered() {
		fmt.Fprintf(&b, "uncovered\t%s\t%s\t%s\n", p.mode, p.database, whyNot(p))
	}
	for _, a := range r.otherwise() {
		fmt.Fprintf(&b, "absent\t-\t%s\t%s\n", a.database, a.reason)
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(b.String())
	if closing := f.Close(); err == nil {
		err = closing
	}
	return err
}
