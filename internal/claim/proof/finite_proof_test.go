package proof

import (
	"slices"
	"sync"
	"testing"
)

// example is what z3 answers, and the values that it shows.
func (m *model) find(t *testing.T, e example, show []string) (answer string, of map[string]string) {
	t.Helper()
	lines, err := run(t.Context(), m.script(e, show))
	if err != nil && (len(lines) == 0 || lines[0] != "unsat") { // then there are no values
		t.Errorf("%s: %v", e.name, err)
		return "", nil
	}
	if lines[0] != "sat" || len(show) == 0 {
		return lines[0], nil
	}
	if of, err = values(lines[1:]); err != nil {
		t.Errorf("%s: %v", e.name, err)
	}
	return lines[0], of
}

// eachOf runs a test of several examples, two at a time: z3 uses one processor.
func eachOf[T any](these []T, check func(T)) {
	var wg sync.WaitGroup
	tokens := make(chan struct{}, 2)
	for _, x := range these {
		tokens <- struct{}{}
		wg.Go(func() {
			defer func() { <-tokens }()
			check(x)
		})
	}
	wg.Wait()
}

func parsed(t *testing.T, text string) []expr {
	t.Helper()
	parts, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return parts
}

// Without these the proof could hold because nothing can happen.
func TestEachActionCanHappen(t *testing.T) {
	if !hasZ3(t) {
		return
	}
	m := wholeModel(t)
	eachOf(m.in("actions"), func(d definition) {
		e := example{name: d.name, params: d.params, given: []expr{atom("Rules"), d.call(), atom("Rules!")}}
		if answer, _ := m.find(t, e, nil); answer != "sat" {
			t.Errorf("%s: z3 says %s, so it never happens", d.name, answer)
		}
	})
}

func TestTheRulesCanBeSatisfied(t *testing.T) {
	if !hasZ3(t) {
		return
	}
	m := wholeModel(t)
	trusting := `(trusts req1) (= (of req1) acq1) (trusts req2) (= (of req2) acq2) `
	states := [][2]string{
		{"at the start", `Start`},
		{"a holder who trusts", `(trusts req1) (= holder (of req1))`},
		{"a holder who trusts, and one who waits", `(trusts req1) (= holder acq1) (= (of req1) acq1) (waits acq2) (= waiting 1)`},
		{"two readers who trust", trusting + `(= (kind acq1) shared) (= (kind acq2) shared)`},
		{"three permits that are trusted", trusting + `(trusts req3) (= (of req3) acq3) (= (kind acq1) permit) (= permits 3) (= room 3)`},
		{"three permits that are trusted, of which there are two now", trusting + `(trusts req3) (= (of req3) acq3) (= (kind acq1) permit) (= permits 2) (= room 3)`},
		{"a reader, and a writer who waits", `(trusts req1) (= (of req1) acq1) (= (kind acq1) shared) (waits acq2) (= (kind acq2) exclusive)`},
		{"a holder who has expired", `(not (= holder nobody)) (< until now) (not (over holder))`},
		{"a holder who has expired and is guarded", `(pinned holder) (< until now)`},
		{"a reader who has expired and is being renewed", `(renewing acq1) (< (ends acq1) now)`},
		{"a guard, and a client that trusts", `(trusts req1) (pinned (of req1))`},
		{"a client that was told and has not heard", `(may-trust req1) (= (stage req1) answered)`},
		{"a client that has stopped trusting a term that goes on", `(= (stage req1) heard) (not (over (of req1))) (not (trusts req1)) (= holder (of req1)) (< now until)`},
		{"a detached term", `(= holder key) (< now until)`},
		{"a release that is not on the disk", `(= holder nobody) (= flushed.holder acq1) (over acq1)`},
		{"a row that was deleted", `(= version 0) (< 0 top)`},
		{"a version ahead of the clock", `(trusts req1) (< now version)`},
		{"a client whose terms were revoked", `(= (stage req1) heard) (not (over (of req1))) (<= (received req1) revoked) (trusts req2)`},
		{"two tokens in one client", `(trusts req1) (= (stage req2) heard) (= (of req1) (of req2)) (< (received req2) (received req1))`},
		{"a clock that is behind", `(trusts req1) (< 0 (- (local (of req1)) (from req1))) (< (- (local (of req1)) (from req1)) (- now (began req1)))`},
		{"counts that are too high", `(= holder nobody) nobody-shares (< 0 holding)`},
	}
	eachOf(states, func(s [2]string) {
		e := example{name: s[0], given: append([]expr{atom("Rules")}, parsed(t, s[1])...)}
		if answer, _ := m.find(t, e, nil); answer != "sat" {
			t.Errorf("%s: z3 says %s, so the rules forbid it", s[0], answer)
		}
	})
}

// Each of these proves too little if it is not noticed.
func TestEachVariantBreaksTheProof(t *testing.T) {
	if !hasZ3(t) {
		return
	}
	texts := make([]string, len(variants))
	numbers := make([]int, len(variants))
	for i := range numbers {
		numbers[i] = i
	}
	eachOf(numbers, func(i int) { texts[i] = variants[i].counterexample(t) })
	for i, b := range variants {
		t.Logf("%s: %s breaks %s\n%s", b.name, b.action, b.breaks, texts[i])
	}
}

// counterexample tells how a variant breaks the proof.
func (b *broken) counterexample(t *testing.T) string {
	m, err := read(b.variant)
	if err != nil {
		t.Error(err)
		return ""
	}
	e := example{name: b.name, given: []expr{atom("Rules")}}
	steps := slices.ContainsFunc(m.in("steps"), func(d definition) bool { return d.name == b.breaks })
	suffix := "!"
	if steps || b.action == "" {
		suffix = ""
	}
	e.given = append(e.given, call("not", atom(b.breaks+suffix)))
	for _, d := range m.in("actions") {
		if d.name == b.action {
			e.params, e.given = d.params, append(e.given, d.call())
		}
	}
	if b.action != "" && len(e.given) != 3 {
		t.Errorf("%s: there is no action %q", b.name, b.action)
		return ""
	}
	show := slices.Concat(ofKinds(), m.terms(""), m.terms("!"))
	for _, p := range e.params {
		show = append(show, p.name)
	}
	answer, of := m.find(t, e, show)
	if answer != "sat" {
		t.Errorf("%s: %s is proved all the same: z3 says %s", b.name, b.breaks, answer)
		return ""
	}
	return tell(of, b.action, e.params)
}
