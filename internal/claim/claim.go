// Package claim decides who holds a name, who waits for it, and who is next.
//
// The package is pure: it runs no SQL, reads no clock and starts no goroutine. A driver
// locks the row of a name, reads in a later statement what a [Visit] needs, calls one or
// more of its operations, and writes [Visit.Changes] in the same transaction.
//
// A name has one [Row]. The row says who holds the name alone. Those who hold it together
// with others, and those who wait, have a [Claim] each. The row counts them. It caches
// no time of any claim: what is cached can be stale.
//
// All times are microseconds since the epoch on the clock of the database.
package claim

import (
	"cmp"
	"errors"
	"reflect"
	"slices"

	"github.com/sqllock/sqllock/driver"
)

// Kind is how a name is held.
type Kind uint8

const (
	// Exclusive is held by one, and by nobody else.
	Exclusive Kind = iota
	// Shared is held by any number of readers at the same time.
	Shared
	// Permit is held by as many as the name has permits.
	Permit
)

// State is that of a claim.
type State uint8

const (
	// Waiting claims stand in the queue, in the order of Seq.
	Waiting State = iota
	// Holding claims are terms. Their kind is Shared or Permit.
	Holding
)

// Ended says how the last term ended.
type Ended uint8

const (
	NotEnded Ended = iota
	Released
	Expired
	Revoked
)

// Party is who holds or waits. It decides nothing but Locker, which says whose beat
// keeps a waiting claim alive.
type Party struct {
	Acq    driver.ID
	Locker driver.ID // zero: a detached term, which nobody renews
	Owner  string
	Label  string
	Value  []byte
}

// Limits are the durations that a request asks for, in microseconds.
type Limits struct {
	TTL     int64 // for how long the database keeps the name for a silent holder, delay included
	Handed  int64 // the same after a hand-over by another Locker
	MaxHold int64 // how long the term may last; 0: no bound
	Delay   int64 // the part of TTL and Handed that the holder does not trust
}

// Row is the lock row of a name.
type Row struct {
	Version int64 // the token of the last term
	Party         // the exclusive holder; Acq is zero if there is none
	Holds   int   // how often the holder holds the lease
	Since   int64 // when the last term began
	Expires int64 // when the exclusive term ends by itself, or when the last term ended
	Limit   int64 // the term is not renewed beyond; 0: no bound
	Delay   int64

	NotBefore int64 // nobody is granted the name before
	Permits   int   // how many there are, 0: as yet nobody asked for one
	Waiting   int   // claims that wait
	Holding   int   // claims that hold
	Seq       int64 // the highest of any claim, ever

	Ended   Ended
	Revoked int64 // the version of the last term that was revoked
}

// Claim is a row of somebody who waits for a name, or holds it with others.
type Claim struct {
	Party
	Limits
	Seq     int64
	Kind    Kind
	Slot    int // of a permit that is held, from 0
	State   State
	Token   int64
	Holds   int
	Since   int64 // when it was granted; while it waits, when it was entered
	Expires int64 // while it holds
	Limit   int64
	Carries []driver.ID // while it waits: acquisitions that cannot end before; for people and for the search for deadlocks
}

// Request asks for a name.
type Request struct {
	Party
	Limits
	Kind    Kind
	Permits int  // of a Permit: how many the name has, unless its row says so
	Waits   bool // the request stays in the queue until it is granted or withdrawn
	Carries []driver.ID
	Floor   int64 // a grant at once has this token at least; a claim does not keep it
}

// Outcome is what became of a request.
type Outcome uint8

const (
	// Refused: somebody else holds the name or waits for it, and the request does not wait.
	Refused Outcome = iota
	// Granted: the request holds the name.
	Granted
	// Queued: the request waits.
	Queued
	// Mismatch: the name has another number of permits, which is in Answer.Permits.
	Mismatch
)

// Answer says what became of a request.
type Answer struct {
	Outcome Outcome
	Found   bool // it was granted before
	First   bool // it is queued, and nobody whose Locker lives waits before it
	Token   int64
	Slot    int
	Expires int64
	Permits int
}

// Visit is a transaction's view of a name whose row it has locked, and what it does to
// it. It must see every claim that holds, every claim of the acquisitions that it is
// about, and as much of the head of the queue as is admitted.
type Visit struct {
	// Now is read after the row was locked: what has expired during a wait for the row is over. Some
	// statements that do the work of a visit read the clock before they wait, see package rowstore.
	Now int64
	// By is the Locker for which the visit is made. It needs no wake-up for a grant: it reads
	// the changes. What is handed over to it lasts for the whole TTL.
	By driver.ID
	// Pinned says that the row cannot be locked against guards: a transaction guards the
	// last exclusive term, which therefore cannot end, and no other can begin.
	Pinned bool
	// ReadTo is the place in the queue up to which all claims were read that wait and live; 0:
	// all were. Of later ones only those are known that the visit is about: others may wait
	// before them.
	ReadTo int64
	// Locked reports that a claim that holds could be locked, so that neither a guard nor a
	// renewal is at work on it. What could not be locked is alive.
	Locked func(acq driver.ID) bool
	// Alive reports that the database has heard of a Locker in time. Claims of others
	// keep their place and are passed over.
	Alive func(locker driver.ID) bool

	row     Row
	first   Row     // the row as it was read
	claims  []Claim // in the order of Seq
	before  []Claim
	passes  int // how often all claims were gone through
	changes Changes
}

// Wake is somebody to be told that its claim was granted, or that it should ask at a time.
type Wake struct {
	Locker, Acq driver.ID
	At          int64 // 0: it was granted
}

// Term is a term that has ended.
type Term struct {
	Party
	Kind    Kind
	Token   int64
	Since   int64
	Expires int64
}

func (r *Row) term() Term { return Term{r.Party, Exclusive, r.Version, r.Since, r.Expires} }

func (c *Claim) term() Term { return Term{c.Party, c.Kind, c.Token, c.Since, c.Expires} }

// HandOver is a grant that was handed over to a waiting claim of the Locker that makes the visit.
type HandOver struct {
	Acq     driver.ID
	Token   int64
	Slot    int
	Expires int64
}

// ErrExhausted says that a row has the highest version or Seq that there is. Nobody can be granted
// such a name, or wait for it. No clock leads there: somebody has written the row by hand.
var ErrExhausted = errors.New("the lock row has the highest version or seq that there is")

// Changes is what a visit has to write, and whom to tell after the commit.
type Changes struct {
	Err       error // ErrExhausted: nothing may be written
	Changed   bool  // there is something to write
	Row       Row
	Delete    []driver.ID // acqs of claims; what is inserted is deleted first if it was there
	Insert    []Claim
	Durable   bool       // somebody was granted the name: the commit is flushed
	Wakes     []Wake     // for other Lockers; for any if somebody should ask at a time
	HandOvers []HandOver // for the Locker that makes the visit
	Crashed   []Term     // which have expired
}

// NewVisit begins a visit of a name. It sorts the claims.
func NewVisit(row Row, claims []Claim) *Visit {
	slices.SortFunc(claims, func(a, b Claim) int { return cmp.Compare(a.Seq, b.Seq) })
	return &Visit{row: row, first: row, before: claims, claims: slices.Clone(claims)}
}

// Row returns the lock row as the operations so far have left it.
func (v *Visit) Row() *Row { return &v.row }

// Crashed returns the terms that had expired and that the operations so far have ended.
func (v *Visit) Crashed() []Term { return v.changes.Crashed }

// HandOvers returns what the operations so far have handed over to the Locker of the visit.
func (v *Visit) HandOvers() []HandOver { return v.changes.HandOvers }

// HandedOver returns to how many claims the operations so far have handed the name over, those of
// other Lockers included.
func (v *Visit) HandedOver() int {
	n := len(v.changes.HandOvers)
	for i := range v.changes.Wakes {
		if v.changes.Wakes[i].At == 0 { // else it is only told until when the name is kept
			n++
		}
	}
	return n
}

// Together returns of what kind those are who hold the name together, and when the first and
// the last of them expires. Nobody does if all is 0.
func (v *Visit) Together() (kind Kind, first, last int64) {
	for i := range v.all() {
		c := &v.claims[i]
		if !v.lives(c) {
			continue
		}
		if last == 0 {
			first = c.Expires
		}
		kind, first, last = c.Kind, min(first, c.Expires), max(last, c.Expires)
	}
	return kind, first, last
}

// Changes returns what the operations so far have changed.
func (v *Visit) Changes() Changes {
	c := v.changes
	c.Row = v.row
	// No operation changes a claim but by a new one, which it puts behind the others. So those that
	// stay come first, in their order. A name may have 10,000, so they are not searched for.
	stay := 0
	for i := range v.before {
		b := &v.before[i]
		if stay < len(v.claims) && v.claims[stay].Acq == b.Acq && v.claims[stay].Seq == b.Seq {
			stay++
		} else {
			c.Delete = append(c.Delete, b.Acq)
		}
	}
	c.Insert = slices.Clone(v.claims[stay:])
	if v.row.Version < v.first.Version || v.row.Seq < v.first.Seq {
		c.Err = ErrExhausted
	}
	c.Changed = len(c.Delete) > 0 || !reflect.DeepEqual(&v.row, &v.first) // what is inserted raises Seq
	return c
}

// Acquire grants a name to a request, or queues it, or refuses it. It may be repeated:
// a request that holds or waits already is found by its acq.
func (v *Visit) Acquire(r Request) Answer {
	if a, ok := v.held(r.Acq); ok {
		a.Found = true
		return a
	}
	if r.Kind == Permit && v.row.Permits != 0 {
		if v.row.Permits != r.Permits && !v.waits(r.Acq) { // one that waits keeps its place, see Resize
			return Answer{Outcome: Mismatch, Permits: v.row.Permits}
		}
		r.Permits = v.row.Permits
	}
	v.Advance()
	if a, ok := v.held(r.Acq); ok {
		return a
	}
	if v.isNext(r.Acq) && v.isFree(r.Kind, r.Permits) && v.isOver(r.Acq) {
		v.leave(r.Acq, Expired)
		v.grant(r, r.TTL)
		a, _ := v.held(r.Acq)
		return a
	}
	if !r.Waits {
		return Answer{Outcome: Refused, Permits: v.row.Permits}
	}
	if c := v.find(r.Acq); c == nil || c.State == Holding && v.isOver(r.Acq) {
		v.leave(r.Acq, Expired)
		v.enter(r)
	}
	return Answer{Outcome: Queued, First: v.isNext(r.Acq), Permits: v.row.Permits}
}

// held returns the answer to a request that holds the name.
func (v *Visit) held(acq driver.ID) (Answer, bool) {
	if v.row.Acq == acq && v.isHeldAlone() {
		return Answer{Outcome: Granted, Token: v.row.Version, Expires: v.row.Expires}, true
	}
	if c := v.find(acq); c != nil && c.State == Holding && c.Expires > v.Now {
		return Answer{Outcome: Granted, Token: c.Token, Slot: c.Slot, Expires: c.Expires, Permits: v.row.Permits}, true
	}
	return Answer{}, false
}

// waits reports that acq has a claim that waits.
func (v *Visit) waits(acq driver.ID) bool {
	c := v.find(acq)
	return c != nil && c.State == Waiting
}

// isOver reports that acq has no term together with others, or one that has expired.
func (v *Visit) isOver(acq driver.ID) bool {
	c := v.find(acq)
	return c == nil || !v.lives(c)
}

// isNext reports that nobody whose Locker lives waits before acq.
func (v *Visit) isNext(acq driver.ID) bool {
	head, ok := v.head()
	return !ok && v.ReadTo == 0 || head.Acq == acq
}

// enter puts a request at the end of the queue.
func (v *Visit) enter(r Request) {
	v.row.Seq = max(v.row.Seq+1, v.Now) // above that of orphans of a row that was deleted
	v.row.Waiting++
	if r.Kind == Permit {
		v.row.Permits = r.Permits
	}
	v.claims = append(v.claims, Claim{Party: r.Party, Limits: r.Limits, Kind: r.Kind, State: Waiting, Seq: v.row.Seq, Since: v.Now,
		Carries: r.Carries})
}

// Release ends the term of an acquisition whose token is known. It reports whether there
// was one, and true for guarded while a transaction guards it, of a claim only if
// mayGuard. Until minHold after the grant nobody is granted the name.
func (v *Visit) Release(acq driver.ID, token, minHold int64, mayGuard bool) (freed, guarded bool) {
	switch c := v.find(acq); {
	case v.row.Acq == acq && v.row.Version == token:
		if v.Pinned {
			return false, true
		}
		v.keep(v.row.Since, minHold)
		v.endTerm(Released)
		freed = true
	case c != nil && c.State == Holding && c.Token == token:
		if mayGuard && !v.Locked(acq) {
			return false, true
		}
		v.keep(c.Since, minHold)
		v.leave(acq, Released)
		freed = true
	}
	v.Advance()
	return freed, false
}

// keep keeps the name from everybody until its minimum hold time is over.
func (v *Visit) keep(since, minHold int64) {
	if until := since + minHold; minHold > 0 && until > v.Now { // since lies ahead if the clock went back
		v.row.NotBefore = max(v.row.NotBefore, until)
	}
}

// Withdraw ends whatever an acquisition has, whether it waits or holds: its request is
// given up, or its outcome is unknown. It reports true while a transaction guards it, of a
// claim only if mayGuard.
func (v *Visit) Withdraw(acq driver.ID, minHold int64, mayGuard bool) (guarded bool) {
	c := v.find(acq)
	holds := c != nil && c.State == Holding
	if v.row.Acq == acq && v.Pinned || holds && mayGuard && !v.Locked(acq) {
		return true
	}
	if v.row.Acq == acq { // it may wait, too, if that term has expired
		v.keep(v.row.Since, minHold)
		v.endTerm(Released)
	}
	if holds {
		v.keep(c.Since, minHold)
	}
	v.leave(acq, Released)
	v.Advance()
	return false
}

// Forget takes an acquisition out of the queue that nobody asks for any more. If it has been granted
// the name meanwhile its term goes on: whoever asked for it may have been told.
func (v *Visit) Forget(acq driver.ID) {
	if v.waits(acq) {
		v.drop(acq)
	}
	v.Advance()
}

// Revoke ends the terms of all holders, and the time for which the name is kept. It
// raises the version, so that the holders can tell. It reports false if nobody held the
// name and nothing kept it, and true for guarded while a transaction guards a term.
func (v *Visit) Revoke() (revoked, guarded bool) {
	held := v.row.Acq != (driver.ID{}) || v.holding() > 0
	if !held && v.row.NotBefore <= v.Now {
		v.Advance()
		return false, false
	}
	if v.Pinned || v.guardsAny() {
		return false, true
	}
	v.leaveAll(func(c *Claim) bool { return c.State == Holding }, Revoked)
	if v.row.Acq != (driver.ID{}) {
		v.endTerm(Revoked)
	}
	if held {
		v.row.Revoked = v.row.Version
	}
	v.row.Version = max(v.row.Version+1, v.Now)
	v.row.NotBefore = 0
	v.changes.Durable = true // a crash must not undo what the caller was told
	v.Advance()
	return true, false
}

// Resize sets how many permits the name has, and serves whoever is next. If there are fewer than
// are held, nobody loses one: the next is granted when fewer than permits are held.
func (v *Visit) Resize(permits int) {
	if v.row.Permits != permits {
		v.row.Permits = permits
		v.changes.Durable = true // a crash must not undo what the caller was told
	}
	v.Advance()
}

// Detach gives the exclusive term of acq to nobody in particular: whoever knows key can
// adopt it before it expires. It reports true also if that was done before. The label stays,
// for people.
func (v *Visit) Detach(acq driver.ID, token int64, key driver.ID, ttl int64) (detached, guarded bool) {
	switch {
	case !v.isHeldAlone() || v.row.Version != token:
		return false, false
	case v.row.Acq == key:
		return true, false
	case v.row.Acq != acq:
		return false, false
	case v.Pinned:
		return false, true
	}
	v.row.Party = Party{Acq: key, Label: v.row.Label, Value: v.row.Value}
	v.row.Expires = v.Now + ttl
	v.changes.Durable = true
	return true, false
}

// Adopt takes a detached term over with a higher token, past the queue. It reports true for
// guarded while a transaction of the former holder guards the term.
func (v *Visit) Adopt(key driver.ID, r Request) (a Answer, guarded bool) {
	if a, ok := v.held(r.Acq); ok {
		a.Found = true
		return a, false
	}
	switch {
	case v.row.Acq != key || !v.isHeldAlone():
		return Answer{Outcome: Refused}, false
	case v.Pinned:
		return Answer{Outcome: Refused}, true
	}
	v.grant(r, r.TTL)
	a, _ = v.held(r.Acq)
	return a, false
}

// Resume takes the exclusive term of the same owner over with a higher token, past the
// queue and past what the term had asked for to be waited out after its end. It reports
// true for guarded while a transaction guards that term.
func (v *Visit) Resume(token int64, r Request) (a Answer, guarded bool) {
	if a, ok := v.held(r.Acq); ok {
		a.Found = true
		return a, false
	}
	switch {
	case !v.isHeldAlone() || v.row.Version != token || v.row.Owner != r.Owner:
		return Answer{Outcome: Refused}, false
	case v.Pinned:
		return Answer{Outcome: Refused}, true
	}
	v.endTerm(Released)
	v.grant(r, r.TTL)
	a, _ = v.held(r.Acq)
	return a, false
}

// Advance ends the terms of dead holders that are in the way, and gives a name that is
// free to those who are next. It changes nothing if there is nobody to be served.
func (v *Visit) Advance() {
	for {
		next, ok := v.head()
		if !ok || v.isHeldAlone() {
			return
		}
		if v.row.NotBefore > v.Now {
			v.changes.Wakes = append(v.changes.Wakes, Wake{next.Locker, next.Acq, v.row.NotBefore})
			return
		}
		if !v.isFree(next.Kind, v.row.Permits) {
			return
		}
		v.drop(next.Acq)
		ttl := next.Handed
		if next.Locker == v.By {
			ttl = next.TTL
		}
		v.grant(Request{Party: next.Party, Limits: next.Limits, Kind: next.Kind, Permits: v.row.Permits}, ttl)
		v.tell(&next)
	}
}

// UsedUp reports that the visit may have more to do: of the claims up to ReadTo none waits any
// more, and others may.
func (v *Visit) UsedUp() bool {
	_, ok := v.head()
	return !ok && v.ReadTo != 0
}

// tell notes that a claim that waited was granted.
func (v *Visit) tell(c *Claim) {
	if c.Locker != v.By {
		v.changes.Wakes = append(v.changes.Wakes, Wake{Locker: c.Locker, Acq: c.Acq})
		return
	}
	a, _ := v.held(c.Acq)
	v.changes.HandOvers = append(v.changes.HandOvers, HandOver{c.Acq, a.Token, a.Slot, a.Expires})
}

// head returns the first claim of the queue whose Locker lives, if it was read.
func (v *Visit) head() (c Claim, ok bool) {
	for i := range v.all() {
		c := &v.claims[i]
		if c.State == Waiting && (v.ReadTo == 0 || c.Seq <= v.ReadTo) && v.Alive(c.Locker) {
			return *c, true
		}
	}
	return Claim{}, false
}

// isHeldAlone reports that the exclusive term goes on: it has not expired, or a
// transaction guards it.
func (v *Visit) isHeldAlone() bool {
	return v.row.Acq != (driver.ID{}) && (v.row.Expires > v.Now || v.Pinned)
}

// isFree reports that a kind may be granted now, as far as holders are concerned.
func (v *Visit) isFree(k Kind, permits int) bool {
	if v.isHeldAlone() || v.Pinned || v.row.NotBefore > v.Now {
		return false
	}
	readers, permitted := v.count(Shared), v.count(Permit)
	switch k {
	case Exclusive:
		return readers == 0 && permitted == 0
	case Shared:
		return permitted == 0
	}
	return readers == 0 && permitted < permits
}

// endDead ends the terms of the dead among those who hold together.
func (v *Visit) endDead() {
	for _, c := range v.leaveAll(func(c *Claim) bool { return c.State == Holding && !v.lives(c) }, Expired) {
		v.changes.Crashed = append(v.changes.Crashed, c.term())
	}
}

// lives reports that a claim holds, and has not expired or cannot be locked.
func (v *Visit) lives(c *Claim) bool {
	return c.State == Holding && (c.Expires > v.Now || !v.Locked(c.Acq))
}

// guardsAny reports that a claim that holds could not be locked.
func (v *Visit) guardsAny() bool {
	for i := range v.all() {
		if c := &v.claims[i]; c.State == Holding && !v.Locked(c.Acq) {
			return true
		}
	}
	return false
}

// holding counts them, without a list: a name may have 10,000.
func (v *Visit) holding() (n int) {
	for i := range v.all() {
		if v.claims[i].State == Holding {
			n++
		}
	}
	return n
}

// count counts the claims of a kind that hold and live.
func (v *Visit) count(k Kind) (n int) {
	for i := range v.all() {
		if v.claims[i].Kind == k && v.lives(&v.claims[i]) {
			n++
		}
	}
	return n
}

// grant begins a term. The name is free for it.
func (v *Visit) grant(r Request, ttl int64) {
	v.endDead()
	if v.row.Acq != (driver.ID{}) {
		if v.row.Acq != r.Acq && v.row.Locker != (driver.ID{}) { // a request that is repeated late is no crash of itself
			v.changes.Crashed = append(v.changes.Crashed, v.row.term())
		}
		v.endTerm(Expired)
	}
	v.changes.Durable = true
	if r.Kind != Shared || v.count(Shared) == 0 {
		v.row.Version = max(v.row.Version+1, v.Now, r.Floor)
		v.row.Since, v.row.Ended = v.Now, NotEnded
	}
	limit := int64(0)
	if r.MaxHold > 0 {
		limit = v.Now + r.MaxHold + r.Delay
		ttl = min(ttl, r.MaxHold+r.Delay)
	}
	if r.Kind == Exclusive {
		v.row.Party, v.row.Holds = r.Party, 1
		v.row.Expires, v.row.Limit, v.row.Delay = v.Now+ttl, limit, r.Delay
		return
	}
	v.row.Seq = max(v.row.Seq+1, v.Now)
	v.row.Holding = v.holding() // what somebody has written by hand does not hide a term
	v.row.Holding++
	c := Claim{Party: r.Party, Limits: r.Limits, Kind: r.Kind, State: Holding, Seq: v.row.Seq, Token: v.row.Version,
		Holds: 1, Since: v.Now, Expires: v.Now + ttl, Limit: limit}
	if r.Kind == Permit {
		v.row.Permits = r.Permits
		c.Slot = v.freeSlot()
	}
	v.claims = append(v.claims, c)
}

// freeSlot returns the lowest slot that nobody holds. All who hold the name have permits.
func (v *Visit) freeSlot() int {
	taken := make([]bool, len(v.claims)+1)
	for i := range v.all() {
		if c := &v.claims[i]; c.State == Holding && c.Slot < len(taken) {
			taken[c.Slot] = true
		}
	}
	return slices.Index(taken, false)
}

// endTerm makes the row say that nobody holds the name alone.
func (v *Visit) endTerm(how Ended) {
	v.row.Party, v.row.Holds = Party{}, 0
	v.row.Expires, v.row.Limit, v.row.Delay = min(v.row.Expires, v.Now), 0, 0
	v.row.Ended = how
}

// leave deletes a claim, if there is one. If it held the name, and was the last to do so, the
// name's term has ended.
func (v *Visit) leave(acq driver.ID, how Ended) {
	if c := v.find(acq); c != nil {
		left := *c
		v.drop(acq)
		v.left(&left, how)
	}
}

// leaveAll is leave for several claims, which it returns.
func (v *Visit) leaveAll(which func(c *Claim) bool, how Ended) []Claim {
	gone := v.dropAll(which)
	if len(gone) > 0 {
		v.left(&gone[len(gone)-1], how)
	}
	return gone
}

// left notes that the name's term has ended, if the claim that was dropped last held the name and
// nobody else does.
func (v *Visit) left(c *Claim, how Ended) {
	if c.State == Holding && v.holding() == 0 {
		v.row.Expires, v.row.Ended = min(c.Expires, v.Now), how
	}
}

// drop deletes a claim, if there is one, and counts it.
func (v *Visit) drop(acq driver.ID) {
	for i := range v.all() {
		if v.claims[i].Acq == acq {
			v.uncount(&v.claims[i])
			v.claims = slices.Delete(v.claims, i, i+1)
			return
		}
	}
}

// dropAll is drop for several claims, which it returns. It goes through all claims once, however
// many leave: a name may have 10,000.
func (v *Visit) dropAll(which func(c *Claim) bool) (gone []Claim) {
	stay := 0
	for i := range v.all() {
		c := &v.claims[i]
		if which(c) {
			v.uncount(c)
			gone = append(gone, *c)
			continue
		}
		v.claims[stay] = *c
		stay++
	}
	v.claims = v.claims[:stay]
	return gone
}

// uncount makes the row say that a claim is gone.
func (v *Visit) uncount(c *Claim) {
	if c.State == Waiting {
		v.row.Waiting--
	} else {
		v.row.Holding--
	}
}

// all returns the claims to go through them. It counts how often that is done, for a test.
func (v *Visit) all() []Claim {
	v.passes++
	return v.claims
}

func (v *Visit) find(acq driver.ID) *Claim {
	for i := range v.all() {
		if v.claims[i].Acq == acq {
			return &v.claims[i]
		}
	}
	return nil
}

// Sweep must see all claims of the name. It counts them, ends what has expired, deletes the
// waiting claims of Lockers that gone reports, and serves whoever is next. Gone Lockers have
// been silent for so long that they do not come back; others keep their place although they
// are passed over.
func (v *Visit) Sweep(gone func(locker driver.ID) bool) {
	v.endDead()
	if v.row.Acq != (driver.ID{}) && !v.isHeldAlone() {
		if v.row.Locker != (driver.ID{}) {
			v.changes.Crashed = append(v.changes.Crashed, v.row.term())
		}
		v.endTerm(Expired)
	}
	v.dropAll(func(c *Claim) bool { return c.State == Waiting && gone(c.Locker) })
	v.row.Holding = v.holding()
	v.row.Waiting = len(v.claims) - v.row.Holding
	v.Advance()
}

// IsIdle reports that the row may be deleted, if its retention is over: nobody holds the
// name, waits for it, or is kept from it.
func (v *Visit) IsIdle() bool {
	return v.row.Acq == (driver.ID{}) && len(v.claims) == 0 && v.row.NotBefore <= v.Now
}
