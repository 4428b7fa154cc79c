package claim_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/internal/claim"
	"github.com/sqllock/sqllock/internal/claim/proof"
)

// The proof is about actions that are written down in SMT-LIB. Here the steps of the
// exploration, in which this package decides, are read as actions, and the text of the proof
// is evaluated on them.

// everybody are the acquisitions of the model: nobody, those of the worlds, and the key.
const everybody = acqs + 2

func of(acq int8) int { return int(acq) + 1 }

// translation reads a step of a world as actions of the model.
type translation struct {
	*proof.Checker
	o        *options
	l        label
	from, to *world
	now      int8 // when the database has read its clock
	s        proof.State
	actions  []action
	wrong    string
}

// action is one of the model, with the states before and after it.
type action struct {
	name          string
	args          []int64
	before, after proof.State
}

func (a action) String() string { return fmt.Sprintf("%s%v", a.name, a.args) }

// get and set are about variables of the state so far.
func (r *translation) get(name string, acq int) int64    { return *r.At(r.s, name, acq) }
func (r *translation) set(name string, acq int, v int64) { *r.At(r.s, name, acq) = v }
func (r *translation) add(name string, v int64)          { *r.At(r.s, name, 0) += v }

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// read reads tables into a state.
func (r *translation) read(d *tables, s proof.State) {
	set := func(name string, acq int, v int64) { *r.At(s, name, acq) = v }
	set("version", 0, int64(d.version))
	set("holder", 0, int64(of(d.acq)))
	set("until", 0, int64(d.expires))
	set("not-before", 0, int64(d.notBefore))
	set("permits", 0, int64(d.permits))
	set("holding", 0, int64(d.holding))
	set("waiting", 0, int64(d.waiting))
	set("room", 0, int64(max(d.permits, d.holding)))
	rank, position := int64(0), int64(0)
	for acq := range int8(acqs) {
		c := &d.claims[acq]
		set("shares", of(acq), truth(c.state == hasTerm))
		set("waits", of(acq), truth(c.state == waits))
		set("token", of(acq), int64(c.token))
		set("slot", of(acq), int64(c.slot))
		set("ends", of(acq), int64(c.expires))
		switch c.state {
		case hasTerm:
			set("rank", of(acq), rank)
			rank++
		case waits:
			set("position", of(acq), position)
			position++
		}
	}
}

// isOver reports that the client of an acquisition does not trust it, and will not.
func (w *world) isOver(acq int8) bool {
	c := &w.clients[acq/slots]
	if w.dead[lockerOf(acq)] || w.acq(acq/slots) != acq {
		return true
	}
	switch c.phase {
	case trying, wanting, entering, waiting, adopting, resuming:
		return false
	case holding:
		return c.trust <= now
	}
	return true
}

// state is what the model sees of a world.
func (r *translation) state(w *world) proof.State {
	s := r.NewState()
	if w.left.crashes > 0 {
		r.read(&w.durable, s)
		r.Flush(s)
		r.read(&w.db, s)
	} else {
		r.read(&w.db, s)
		r.Flush(s)
	}
	*r.At(s, "now", 0), *r.At(s, "top", 0), *r.At(s, "revoked", 0) = int64(r.now), int64(w.top), int64(w.revoked)
	*r.At(s, "stranger", 0) = truth(w.otherPin)
	for acq := range int8(acqs) {
		token := w.db.claims[acq].token
		if w.db.acq == acq {
			token = w.db.version
		}
		*r.At(s, "pinned", of(acq)) = truth(w.guards>>acq&1 == 1)
		*r.At(s, "guarded", of(acq)) = int64(token)
		*r.At(s, "renewing", of(acq)) = truth(w.renewing[acq] != 0)
		*r.At(s, "new-end", of(acq)) = int64(w.renewing[acq])
		*r.At(s, "over", of(acq)) = truth(w.isOver(acq))
	}
	*r.At(s, "over", of(key)) = 1
	return s
}

// newTranslation prepares a checker for options.
func newTranslation(c *proof.Checker, o *options, from *world) *translation {
	for acq := range int8(acqs) {
		c.SetKind(of(acq), [...]string{"exclusive", "shared", "permit"}[o.kind(acq)])
	}
	c.SetKind(of(key), "detached")
	return &translation{Checker: c, o: o, from: from}
}

// isRead reports that a step is read at all: not the passing of time, to which all times are
// relative, and not what somebody writes by hand.
func (l label) isRead(from, to *world) bool {
	return l.what != "tick" && l.what != "the clock of the database steps back" && !from.db.miscounted && !to.db.miscounted
}

// step takes an action: what changes, and whether it is on the disk then.
func (r *translation) step(name string, args []int64, durably bool, change func()) {
	before := slices.Clone(r.s)
	change()
	if durably {
		r.Flush(r.s)
	}
	a := action{name, args, before, slices.Clone(r.s)}
	r.actions = append(r.actions, a)
	if why := r.Refuses(name, args, a.before, a.after); why != "" && r.wrong == "" {
		r.wrong = fmt.Sprintf("%v does not satisfy %s", a, why)
	}
	if why := r.BreaksPromise(name, a.before, a.after); why != "" && r.wrong == "" {
		r.wrong = fmt.Sprintf("%v breaks %s", a, why)
	}
}

// readStep reads the step to another world. It returns why it is none of the model's.
func (r *translation) readStep(l label, to *world) string {
	r.l, r.to, r.now, r.actions, r.wrong = l, to, now, nil, ""
	if strings.HasPrefix(l.what, "a visit for") {
		r.now = r.from.visit.now
	}
	r.s = r.state(r.from)
	r.stops()
	switch l.what {
	case "the database crashes":
		r.crash()
	case "the reaper deletes the row":
		r.step("Purge", nil, false, func() { r.set("version", 0, 0); r.set("permits", 0, 0); r.set("not-before", 0, 0) })
	default:
		r.transactions()
		r.renewals()
		r.visits()
		if r.to.left.crashes > 0 && r.from.durable != r.to.durable {
			r.step("Flush", nil, true, func() {})
		}
	}
	if r.wrong == "" {
		r.wrong = r.differs()
	}
	return r.wrong
}

// stops lets clients stop trusting. An acquisition that nothing is about may be a new one.
func (r *translation) stops() {
	used := r.from.mentioned()
	for acq := range int8(acqs) {
		switch over := r.to.isOver(acq); {
		case r.get("over", of(acq)) == truth(over):
		case over:
			r.step("Stop", []int64{int64(of(acq))}, false, func() { r.set("over", of(acq), 1) })
		case used>>acq&1 == 0:
			r.set("over", of(acq), 0)
		default:
			r.wrong = fmt.Sprintf("%d trusts again", acq)
		}
	}
}

func (r *translation) crash() {
	r.step("Crash", nil, false, func() {
		r.Restore(r.s)
		r.set("stranger", 0, 0)
		for acq := range everybody {
			r.set("pinned", acq, 0)
			r.set("renewing", acq, 0)
		}
	})
}

// transactions are those of the application.
func (r *translation) transactions() {
	for acq := range int8(acqs) {
		a, was, is := of(acq), r.from.guards>>acq&1, r.to.guards>>acq&1
		switch {
		case was == is:
		case is == 1:
			r.step("BeginGuard", []int64{int64(a), r.get("guarded", a)}, false, func() { r.set("pinned", a, 1) })
		case r.l.what == "a transaction ends the term of %d":
			kept := int64(r.to.db.notBefore)
			r.step("EndInTx", []int64{int64(a), r.get("version", 0), kept}, false, func() {
				r.set("holder", 0, 0)
				r.set("not-before", 0, kept)
				r.set("pinned", a, 0)
			})
		default:
			r.step("EndGuard", []int64{int64(a)}, false, func() { r.set("pinned", a, 0) })
		}
	}
	if r.from.otherPin != r.to.otherPin {
		r.step("Strange", nil, false, func() { r.set("stranger", 0, truth(r.to.otherPin)) })
	}
}

// goesOn reports that a claim that holds does so still.
func (r *translation) goesOn(acq int8) bool {
	b, a := &r.from.db.claims[acq], &r.to.db.claims[acq]
	return b.state == hasTerm && a.state == hasTerm && b.seq == a.seq
}

func (r *translation) renewals() {
	b, a := &r.from.db, &r.to.db
	if b.acq != nobody && a.acq == b.acq && a.version == b.version && a.expires != b.expires {
		e := int64(a.expires)
		r.step("Renew", []int64{int64(of(a.acq)), int64(a.version), e}, true, func() { r.set("until", 0, e) })
	}
	for acq := range int8(acqs) {
		was, is := r.from.renewing[acq], r.to.renewing[acq]
		if end := a.claims[acq].expires; was == 0 && is == 0 && r.goesOn(acq) && end != b.claims[acq].expires {
			r.beginRenewal(acq, end)
			r.commitRenewal(acq)
		}
		if was == 0 && is != 0 {
			r.beginRenewal(acq, is)
		}
		if was != 0 && is == 0 {
			r.commitRenewal(acq)
		}
	}
}

func (r *translation) beginRenewal(acq, end int8) {
	a := of(acq)
	r.step("BeginRenewal", []int64{int64(a), r.get("token", a), int64(end)}, false, func() {
		r.set("renewing", a, 1)
		r.set("new-end", a, int64(end))
	})
}

func (r *translation) commitRenewal(acq int8) {
	a := of(acq)
	r.step("CommitRenewal", []int64{int64(a)}, true, func() {
		r.set("renewing", a, 0)
		r.set("ends", a, r.get("new-end", a))
	})
}

// visits are what statements and visits do with terms and the queue.
func (r *translation) visits() {
	if r.revokes() {
		r.step("Revoke", nil, true, func() {
			for acq := range everybody {
				r.set("shares", acq, 0)
			}
			r.set("holding", 0, 0)
			r.set("revoked", 0, r.get("top", 0))
			r.set("not-before", 0, 0)
			r.beginTerm(0, 0)
		})
	}
	r.endShared()
	next := int8(nobody) // who holds alone from now on
	if b, a := &r.from.db, &r.to.db; a.acq != nobody && (a.acq != b.acq || a.version != b.version) {
		next = a.acq
	}
	for acq := range int8(acqs) { // who is handed the name leaves the queue with that
		b, a := &r.from.db.claims[acq], &r.to.db.claims[acq]
		if b.state == waits && (a.state != waits || a.seq != b.seq) && !(acq == next && r.handsOver()) {
			r.leavesQueue(acq)
		}
	}
	if p := r.to.db.permits; p != r.from.db.permits {
		r.step("SetPermits", []int64{int64(p)}, false, func() {
			r.set("permits", 0, int64(p))
			r.set("room", 0, max(int64(p), r.get("holding", 0)))
		})
	}
	r.alone(next)
	r.enters()
	r.grantShared()
}

// revokes reports that all terms were ended by force.
func (r *translation) revokes() bool {
	b := &r.from.db
	return r.l.op == opRevoke && (b.acq != nobody || b.isShared() || b.notBefore > r.now) && b.lockRow != r.to.db.lockRow &&
		!(r.from.visit.open && r.l.what != "a visit for %d commits") && r.to.db.version > b.version
}

// beginTerm makes the row say who holds alone, with a new version.
func (r *translation) beginTerm(holder, e int64) {
	version := max(r.get("version", 0)+1, r.get("now", 0))
	r.set("holder", 0, holder)
	r.set("version", 0, version)
	r.set("top", 0, version)
	if holder != 0 {
		r.set("until", 0, e)
	}
}

func (r *translation) leavesQueue(acq int8) {
	r.step("LeaveQueue", []int64{int64(of(acq))}, false, func() { r.leave("waits", "position", "waiting", of(acq)) })
}

// leave takes a claim out of those that are counted: the last one takes its place.
func (r *translation) leave(state, rank, count string, acq int) {
	last, free := r.get(count, 0)-1, r.get(rank, acq)
	for c := range everybody {
		if r.get(rank, c) == last {
			r.set(rank, c, free)
		}
	}
	r.set(state, acq, 0)
	r.add(count, -1)
}

// ends reports that a step is to end the term of an acquisition.
func (r *translation) ends(acq int8) bool {
	if r.l.op != opRelease && r.l.op != opWithdraw || acq == key {
		return false
	}
	isCurrent := r.from.acq(acq/slots) == acq
	switch {
	case strings.HasPrefix(r.l.what, "clients 0 and 1"):
		return acq/slots < 2 && isCurrent
	case strings.HasPrefix(r.l.what, "client %d"):
		return acq/slots == r.l.who && isCurrent
	}
	return acq == r.l.who
}

// endShared ends terms that were held with others.
func (r *translation) endShared() {
	kept := int64(r.to.db.notBefore)
	for acq := range int8(acqs) {
		a := of(acq)
		if r.get("shares", a) == 0 || r.goesOn(acq) {
			continue
		}
		end := func() { r.leave("shares", "rank", "holding", a) }
		endAndKeep := func() { end(); r.set("not-before", 0, kept) }
		switch own := r.ends(acq); {
		case own && r.l.op == opRelease:
			r.step("ReleaseClaim", []int64{int64(a), r.get("token", a), kept}, false, endAndKeep)
		case own:
			r.step("WithdrawClaim", []int64{int64(a), kept}, false, endAndKeep)
		default:
			r.step("ExpireClaim", []int64{int64(a)}, false, end)
		}
	}
}

// handsOver reports that an exclusive term ends and another begins, of one who has waited.
func (r *translation) handsOver() bool {
	b, a := &r.from.db, &r.to.db
	return r.l.op == opRelease && b.acq != nobody && a.acq != nobody && r.ends(b.acq) && r.get("holder", 0) == int64(of(b.acq)) &&
		r.get("over", of(b.acq)) == 1 && b.claims[a.acq].state == waits && a.notBefore == b.notBefore
}

// alone ends the exclusive term, and begins that of the next.
func (r *translation) alone(next int8) {
	b, a := &r.from.db, &r.to.db
	h, e, t := r.get("holder", 0), int64(a.expires), r.get("version", 0)
	n, kept := int64(of(next)), int64(a.notBefore)
	begin := func() { r.beginTerm(n, e) }
	free := func() { r.set("holder", 0, 0); r.set("not-before", 0, kept) }
	goesOn := h != 0 && int64(of(a.acq)) == h && int64(a.version) == t
	switch {
	case h == 0 || goesOn:
	case a.acq == key:
		r.step("Detach", []int64{h, t, n, e}, true, func() { r.set("holder", 0, n); r.set("until", 0, e) })
		return
	case r.l.op == opAdopt && b.acq == key && b.expires > r.now:
		r.step("Adopt", []int64{n, h, e}, true, begin)
		return
	case r.l.op == opResume && b.expires > r.now:
		r.step("Resume", []int64{n, h, t, e}, true, begin)
		return
	case next != nobody && r.handsOver():
		r.step("HandOver", []int64{h, t, n, e}, true, func() { begin(); r.leave("waits", "position", "waiting", of(next)) })
		return
	case r.ends(b.acq) && r.l.op == opRelease:
		r.step("Release", []int64{h, t, kept}, false, free)
	case r.ends(b.acq):
		r.step("Withdraw", []int64{h, kept}, false, free)
	case next != nobody:
		r.step("TakeOver", []int64{n, e}, true, begin)
		return
	default:
		r.step("Expire", nil, false, func() { r.set("holder", 0, 0) })
	}
	if next != nobody && !goesOn {
		r.grantAlone(n, e)
	}
}

func (r *translation) grantAlone(n, e int64) {
	name := "Grant"
	if r.get("holding", 0) == 0 && r.get("waiting", 0) == 0 {
		name = "GrantByRow"
	}
	r.step(name, []int64{n, e}, true, func() { r.beginTerm(n, e) })
}

// enters puts claims into the queue.
func (r *translation) enters() {
	for acq := range int8(acqs) {
		b, c, a := &r.from.db.claims[acq], &r.to.db.claims[acq], of(acq)
		if c.state == waits && (b.state != waits || b.seq != c.seq) {
			r.step("EnterQueue", []int64{int64(a)}, false, func() {
				r.set("waits", a, 1)
				r.set("position", a, r.get("waiting", 0))
				r.add("waiting", 1)
			})
		}
	}
}

// grantShared begins terms that are held with others, in their order.
func (r *translation) grantShared() {
	var granted []int8
	for acq := range int8(acqs) {
		if r.to.db.claims[acq].state == hasTerm && !r.goesOn(acq) {
			granted = append(granted, acq)
		}
	}
	slices.SortFunc(granted, func(a, b int8) int { return cmp.Compare(r.to.db.claims[a].seq, r.to.db.claims[b].seq) })
	for _, acq := range granted {
		r.grantClaim(acq, &r.to.db.claims[acq])
	}
}

func (r *translation) grantClaim(acq int8, c *claimRow) {
	a, e := of(acq), int64(c.expires)
	share := func() {
		r.set("shares", a, 1)
		r.set("token", a, r.get("version", 0))
		r.set("slot", a, int64(c.slot))
		r.set("ends", a, e)
		r.set("rank", a, r.get("holding", 0))
		r.add("holding", 1)
	}
	begin := func() { r.beginTerm(r.get("holder", 0), r.get("until", 0)); share() }
	other := int64(0)
	for b := range everybody {
		if r.get("shares", b) == 1 {
			other = int64(b)
		}
	}
	switch {
	case r.o.kind(acq) == claim.Permit:
		r.step("GrantPermit", []int64{int64(a), int64(c.slot), e}, true, begin)
	case other == 0:
		r.step("GrantFirstReader", []int64{int64(a), e}, true, begin)
	default:
		r.step("GrantNextReader", []int64{int64(a), other, e}, true, share)
	}
}

// differs returns what the actions do not explain.
func (r *translation) differs() string {
	want := r.state(r.to)
	differ := func(prefix, name string, acq int) string {
		if got, is := r.get(prefix+name, acq), *r.At(want, prefix+name, acq); got != is {
			return fmt.Sprintf("%s%s of %d is %d, and %d after the actions", prefix, name, acq-1, is, got)
		}
		return ""
	}
	tables := []string{""}
	if r.to.left.crashes > 0 {
		tables = append(tables, "flushed.")
	}
	var found []string
	for _, prefix := range tables {
		for _, name := range []string{"version", "holder", "permits", "holding", "waiting"} {
			found = append(found, differ(prefix, name, 0))
		}
		if *r.At(want, prefix+"holder", 0) != 0 {
			found = append(found, differ(prefix, "until", 0))
		}
		if *r.At(want, prefix+"not-before", 0) > int64(now) || r.get(prefix+"not-before", 0) > int64(now) {
			found = append(found, differ(prefix, "not-before", 0))
		}
		for acq := range everybody {
			found = append(found, differ(prefix, "shares", acq), differ(prefix, "waits", acq))
			if *r.At(want, prefix+"shares", acq) == 1 {
				found = append(found, differ(prefix, "token", acq), differ(prefix, "ends", acq), differ(prefix, "slot", acq))
			}
		}
	}
	found = append(found, differ("", "top", 0), differ("", "stranger", 0))
	for acq := range everybody {
		found = append(found, differ("", "pinned", acq), differ("", "renewing", acq), differ("", "over", acq))
	}
	for _, why := range found {
		if why != "" {
			return why
		}
	}
	return ""
}

// walk takes steps at random, and reads each that could have been taken.
func walk(t *testing.T, c *proof.Checker, o *options, rng *rand.Rand, steps int, each func(r *translation)) {
	t.Helper()
	o.prepare()
	w := start(o)
	s := &successors{o: o}
	for range steps {
		from := w
		r := newTranslation(c, o, &from)
		r.now = now
		if why := r.Breaks(r.state(&from)); why != "" {
			t.Fatalf("a state breaks %s: %s", why, from.String())
		}
		s.each = func(l label, to *world) {
			if why := to.broken(o); why != "" {
				t.Fatalf("%s\n  from %s\n  by   %v\n  to   %s", why, from.String(), l, to.String())
			}
			if !l.isRead(&from, to) {
				return
			}
			if why := r.readStep(l, to); why != "" {
				t.Fatalf("%s\n  from %s\n  by   %v\n  to   %s\n  read as %v", why, from.String(), l, to.String(), r.actions)
			}
			each(r)
		}
		if s.steps(&w); len(s.worlds) == 0 {
			return
		}
		w = s.worlds[rng.IntN(len(s.worlds))]
	}
}

func TestStepsOfThePackageAreActionsOfTheProof(t *testing.T) {
	c, err := proof.NewChecker(everybody, 0)
	if err != nil {
		t.Fatal(err)
	}
	all, _ := pairwise(*exploreWeight)
	rng := rand.New(rand.NewPCG(1, 2))
	steps, taken := 0, make(map[string]int)
	for _, configuration := range all {
		for range 8 {
			walk(t, c, configuration.options(), rng, 60, func(r *translation) {
				steps++
				for _, a := range r.actions {
					taken[a.name]++
				}
			})
			if t.Failed() {
				t.Fatalf("in the configuration %s", configuration)
			}
		}
	}
	t.Logf("%d steps: %v", steps, taken)
	if steps < 10_000 {
		t.Errorf("%d steps are too few", steps)
	}
	for _, name := range c.Actions() {
		if taken[name] == 0 && !slices.Contains(unread, name) {
			t.Errorf("no step is read as %s", name)
		}
	}
}

// unread are what is not read: clocks, replies, and counts that somebody has written by hand.
var unread = []string{"Tick", "Send", "Answer", "Hear", "HearTooLate", "Recount"}
