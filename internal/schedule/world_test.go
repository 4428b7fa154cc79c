package schedule

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/claim"
	"github.com/sqllock/sqllock/internal/tables"
)

// world is one schedule: the tables, those who work on them, and what is known of both.
type world struct {
	seed  uint64
	rnd   *rand.Rand
	style *style
	drift float64       // by how much the clock of the database is faster
	ttl   time.Duration // the TTL of most leases
	looks bool          // the leases are asked at each change whether they are held
	names []string
	began time.Time

	mu        sync.Mutex
	tables    *tables.Tables
	swept     int64
	unswept   int64 // for how long nobody is to sweep after that, in µs
	databases []*database
	taken     map[time.Duration]struct{} // times at which somebody wakes
	ids       map[driver.ID]int
	held      map[string][]*held
	versions  map[string]int64         // the highest so far
	revoked   map[string]int64         // the highest that was ended by force
	freeSince map[string]time.Duration // names that nobody holds or waits for, and nothing keeps
	handovers []string                 // texts of detached terms
	closed    map[string]bool          // Lockers that are being closed
	healed    bool                     // nothing fails any more
	lines     []string
	failures  []string
	calls     int // of Lockers that had their effect
	faults    int // calls that were different
	lost      int // leases that Unlock found to be lost

	met map[string]*[cases]int // faults by kind of call and case, and listeners that were cut off

	goes sync.WaitGroup // what goes on by itself and ends soon
}

// now is the time since the schedule began.
func (w *world) now() time.Duration { return time.Since(w.began) }

// epoch is the time of the database when a schedule begins.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// databaseTime is how long something lasts by the clock of the database.
func (w *world) databaseTime(d time.Duration) time.Duration {
	return d + time.Duration(w.drift*float64(d))
}

// slot returns when, about d from now, nobody else wakes; the caller holds mu. So one goroutine
// runs at a time, and the order of their steps does not depend on the scheduler.
func (w *world) slot(d time.Duration) time.Duration {
	now := w.now()
	at := now + max(d, 1)
	for {
		if _, ok := w.taken[at]; !ok {
			break
		}
		at++
	}
	w.taken[at] = struct{}{}
	return at - now
}

func (w *world) freeSlot(d time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.slot(d)
}

func (w *world) sleep(d time.Duration) { time.Sleep(w.freeSlot(d)) }

// pause waits for d, or until ctx ends.
func (w *world) pause(ctx context.Context, d time.Duration) error {
	over := time.NewTimer(w.freeSlot(d))
	defer over.Stop()
	select {
	case <-over.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// id is a number for an ID: they are random.
func (w *world) id(id driver.ID) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.number(id)
}

func (w *world) number(id driver.ID) int {
	n, ok := w.ids[id]
	if !ok {
		n = len(w.ids) + 1
		w.ids[id] = n
	}
	return n
}

// note adds a line to the trace.
func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.add(format, args...)
}

func (w *world) add(format string, args ...any) {
	w.lines = append(w.lines, fmt.Sprintf("%13.6f ", w.now().Seconds()*1000)+fmt.Sprintf(format, args...))
}

// fail notes what must not be.
func (w *world) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	w.add("FAILURE: %s", text)
	w.failures = append(w.failures, text)
}

// hash is that of the trace.
func (w *world) hash() uint64 {
	h := fnv.New64a()
	for _, line := range w.lines {
		_, _ = h.Write([]byte(line))
	}
	return h.Sum64()
}

// change has a call of a Locker change the tables, and looks at what is true then.
func (w *world) change(what string, effect func()) {
	w.mu.Lock()
	w.calls++
	w.setClock()
	effect()
	w.checkCrashes()
	text := w.state()
	w.add("%s done: %s", what, text)
	w.mu.Unlock()
	w.check()
}

func (w *world) setClock() {
	w.tables.Now = epoch.Add(w.databaseTime(w.now())).UnixMicro()
}

// checkCrashes checks that on a quiet day no term expires: it is renewed, or given back, and who is
// handed a name learns of it in time. The caller holds mu.
func (w *world) checkCrashes() {
	for _, t := range w.tables.Crashed {
		if w.style.isQuiet() && !strings.HasPrefix(t.Owner, limitedOwner) && !w.closed[t.Label] {
			w.failures = append(w.failures, fmt.Sprintf("on a quiet day the term of #%d of Locker %s expires", w.number(t.Acq), t.Label))
		}
	}
	w.tables.Crashed = nil
}

// state is what the tables say, for the trace; the caller holds mu.
func (w *world) state() (text string) {
	for _, name := range w.names {
		x := w.tables.Names[name]
		if x == nil {
			continue
		}
		text += fmt.Sprintf("%s v%d", name, w.shortToken(x.Version))
		if x.Acq != (driver.ID{}) {
			text += fmt.Sprintf(" #%d for %d", w.number(x.Acq), x.Expires-w.tables.Now)
		}
		for i := range x.Claims {
			c := &x.Claims[i]
			if c.State == claim.Holding {
				text += fmt.Sprintf(" +#%d for %d", w.number(c.Acq), c.Expires-w.tables.Now)
			} else {
				text += fmt.Sprintf(" ?#%d", w.number(c.Acq))
			}
		}
		text += "; "
	}
	return text
}

// shortToken is a shorter number.
func (w *world) shortToken(t int64) int64 {
	if t == 0 {
		return 0
	}
	return t - epoch.UnixMicro()
}

// held is a lease that a caller has, or one of several that it has together.
type held struct {
	by             *caller
	name           string
	token          int64
	slot           int
	shared, permit bool
	owner          string // "": it is not known
	terms
	latest         time.Duration // when it ends at the latest, by the clock of the Locker; 0: no bound
	keptUntil      int64         // until when nobody else has the name, by that of the database; 0: it is not known
	remaining      func() time.Duration
	ctx            context.Context
	unlock         func(context.Context) error
	*sqllock.Lease // nil if there are several

	over bool // the caller has begun to give it back
	gone bool // it was seen that the tables say nothing of it any more
}

// begins notes a lease that a call has returned.
func (w *world) begins(c *caller, l *sqllock.Lease, o *terms) *held {
	h := &held{by: c, name: l.Name(), token: l.Token(), slot: l.Slot(), shared: l.Shared(), permit: l.Permit(), owner: l.Owner(), terms: *o,
		remaining: l.Remaining, ctx: l.Context(), unlock: l.Unlock, Lease: l}
	w.has(h)
	return h
}

// has notes what a caller has.
func (w *world) has(h *held) {
	if h.owner == "" || strings.HasPrefix(h.owner, sharedOwner) { // it may re-enter the lease of another call, with its TTL
		h.ttl = max(h.ttl, 3*w.ttl)
	}
	w.mu.Lock()
	if x := w.tables.Names[h.name]; x != nil && x.Version == h.token && w.isNew(h) {
		if h.keptUntil = x.Since + h.minHold.Microseconds(); h.maxHold > 0 {
			h.latest = w.now() + h.by.db.jumped + h.maxHold
		}
	} else {
		h.lockDelay = 0 // those of a lease that is re-entered count
	}
	w.held[h.name] = append(w.held[h.name], h)
	w.add("%s has %s token %d slot %d", h.by.name, h.name, w.shortToken(h.token), h.slot)
	w.mu.Unlock()
	w.check()
}

// isNew reports that nobody has had a lease of the term before; the caller holds mu.
func (w *world) isNew(h *held) bool {
	return !h.shared && !h.permit && !strings.HasPrefix(h.owner, sharedOwner) && !slices.ContainsFunc(w.held[h.name], func(o *held) bool { return o.token == h.token })
}

// ends notes that a caller gives a lease back.
func (w *world) ends(h *held) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h.over = true
}

// goesOn notes that a caller still has a lease that it wanted to give back.
func (w *world) goesOn(h *held) {
	w.mu.Lock()
	h.over = false
	w.mu.Unlock()
	w.check()
}

// check looks at all leases and tables.
func (w *world) check() {
	w.mu.Lock()
	w.setClock()
	var suspects []*held
	for _, name := range w.names {
		x := w.tables.Names[name]
		if x != nil {
			if x.Version < w.versions[name] && x.Version != 0 { // 0: the row was deleted, and is there again

				w.failures = append(w.failures, fmt.Sprintf("the version of %s falls from %d to %d", name, w.versions[name], x.Version))
			}
			w.versions[name] = max(w.versions[name], x.Version)
			w.revoked[name] = max(w.revoked[name], x.Revoked)
			w.checkHolders(name, x)
		}
		w.noteFree(name, x)
		for _, h := range w.held[name] {
			w.checkMinHold(h, x)
			if !h.over && (w.looks || w.expires(h, x) <= w.tables.Now) {
				suspects = append(suspects, h)
			}
		}
	}
	w.mu.Unlock()
	for _, h := range suspects {
		w.checkLease(h)
	}
}

// noteFree notes since when a name is free; the caller holds mu.
func (w *world) noteFree(name string, x *tables.Name) {
	holds := func(c claim.Claim) bool { return c.State == claim.Holding && c.Expires > w.tables.Now }
	busy := x != nil && (x.Acq != driver.ID{} && x.Expires > w.tables.Now || slices.ContainsFunc(x.Claims, holds) || x.NotBefore > w.tables.Now)
	if _, ok := w.freeSince[name]; busy {
		delete(w.freeSince, name)
	} else if !ok {
		w.freeSince[name] = w.now()
	}
}

// wasFree returns for how long a name has been free.
func (w *world) wasFree(name string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if since, ok := w.freeSince[name]; ok {
		return w.now() - since
	}
	return 0
}

// checkMinHold checks that nobody has a name while a MinHold keeps it; the caller holds mu.
func (w *world) checkMinHold(h *held, x *tables.Name) {
	if h.keptUntil == 0 || x == nil || x.Version <= h.token {
		return
	}
	if x.Since < h.keptUntil && h.token > w.revoked[h.name] {
		w.failures = append(w.failures, fmt.Sprintf("%s is granted %d µs before the MinHold of token %d is over",
			h.name, h.keptUntil-x.Since, w.shortToken(h.token)))
	}
	h.keptUntil = 0
}

// checkHolders checks that the tables let nobody hold what excludes another; the caller holds mu.
func (w *world) checkHolders(name string, x *tables.Name) {
	alone, readers, permits := 0, 0, 0
	slots := make(map[int]bool)
	if x.Acq != (driver.ID{}) && x.Expires > w.tables.Now {
		alone++
	}
	for i := range x.Claims {
		switch c := &x.Claims[i]; {
		case c.State != claim.Holding || c.Expires <= w.tables.Now:
		case c.Kind == claim.Permit:
			permits++
			if slots[c.Slot] {
				w.failures = append(w.failures, fmt.Sprintf("slot %d of %s is held twice", c.Slot, name))
			}
			slots[c.Slot] = true
		default:
			readers++
		}
	}
	if alone > 0 && readers+permits > 0 || readers > 0 && permits > 0 {
		w.failures = append(w.failures, fmt.Sprintf("%s is held %d times alone, %d shared, %d permits", name, alone, readers, permits))
	}
}

// expires is when the tables let the term of a lease expire, 0 if they do not know it; the caller
// holds mu.
func (w *world) expires(h *held, x *tables.Name) (latest int64) {
	if x == nil {
		return 0
	}
	if !h.shared && !h.permit || h.owner == "" { // a shared lease of several can re-enter one that is not
		if x.Acq != (driver.ID{}) && x.Version == h.token {
			latest = x.Expires
		}
	}
	for i := range x.Claims {
		c := &x.Claims[i]
		if c.State == claim.Holding && (h.shared || h.permit) && c.Token == h.token && (h.owner == "" || c.Owner == h.owner) && (!h.permit || c.Slot == h.slot) {
			latest = max(latest, c.Expires) // of several readers if the owner is not known
		}
	}
	return latest
}

// closes notes that a Locker is being closed.
func (w *world) closes(l *locker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed[l.db.label] = true
}

// isClosed reports that a Locker was closed, or is being closed.
func (w *world) isClosed(l *locker) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed[l.db.label]
}

// isRevoked reports that somebody has ended a term by force.
func (w *world) isRevoked(name string, token int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return token <= w.revoked[name]
}

// checkLease asks a lease whether it is held. As long as it believes so, the tables must say so, too.
func (w *world) checkLease(h *held) {
	left := h.remaining()
	w.mu.Lock()
	x := w.tables.Names[h.name]
	revoked := h.token <= w.revoked[h.name]
	expires := w.expires(h, x)
	over := h.over || revoked
	gone := expires <= w.tables.Now && !h.gone && !h.over
	h.gone = h.gone || gone
	row := time.Duration(expires-w.tables.Now) * time.Microsecond
	w.mu.Unlock()
	if now := h.by.db.now(); left > 0 && h.latest != 0 && now+left > h.latest {
		w.fail("%s has its lease of %s, token %d, for %v longer than MaxHold", h.by.name, h.name, w.shortToken(h.token), now+left-h.latest)
	}
	if lost := (*sqllock.LostError)(nil); left > 0 && errors.As(context.Cause(h.ctx), &lost) {
		w.fail("%s has its lease of %s, token %d, again, which was lost: %v", h.by.name, h.name, w.shortToken(h.token), lost)
	}
	// What a LockDelay keeps the name for begins when the holder does not trust its lease any more.
	if left > 0 && !over && w.databaseTime(left)+h.lockDelay > row+time.Microsecond {
		w.fail("%s trusts its lease of %s, token %d, for %v, and the tables let it expire in %v",
			h.by.name, h.name, w.shortToken(h.token), left, row)
	}
	if gone {
		w.hearsOfLoss(h, revoked)
	}
}

// hearsOfLoss checks that a caller is told soon that its lease is lost.
func (w *world) hearsOfLoss(h *held, revoked bool) {
	after := 110 * time.Millisecond
	if revoked { // it learns of it by its next renewal, or by its deadline
		after += h.ttl
	}
	wait := w.freeSlot(after)
	w.goes.Go(func() {
		time.Sleep(wait)
		select {
		case <-h.ctx.Done():
		default:
			w.mu.Lock()
			over := h.over
			w.mu.Unlock()
			if !over {
				w.fail("%s is not told that its lease of %s, token %d, is lost", h.by.name, h.name, w.shortToken(h.token))
			}
		}
	})
}

// short is an error for the trace.
func short(err error) string {
	var lost *sqllock.LostError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &lost):
		return fmt.Sprintf("lost: %v", lost.Reason)
	}
	for _, known := range []error{sqllock.ErrHeld, sqllock.ErrClosed, sqllock.ErrNotHeld, sqllock.ErrDeadlock, sqllock.ErrUpgrade, sqllock.ErrPermits,
		sqllock.ErrUnknown, sqllock.ErrInvalidOption, sqllock.ErrUnsupported, errAgain, errDown, errDenied, errBroken,
		driver.ErrNoConnection, context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return err.Error()
}
