package sqllock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/batch"
)

// lining is a mode in which waiters stand in line in the database.
type lining interface {
	Queue(ctx context.Context, reqs []driver.TicketRequest) ([]driver.TicketResult, error)
	Waits(ctx context.Context) ([]driver.Wait, error)
	Look(ctx context.Context, names []string) ([]driver.Row, error)
	Listen(ctx context.Context, heard func(driver.ID)) error
}

// tickets are the places that waiters of this Locker have in the lines of the
// database. One goroutine sees to all of them while there are any: it keeps them
// alive, and finds out whose turn has come. It hears of that from the release of
// this Locker that handed a name over, from the database where that can push, or by
// looking at all names at once.
type tickets struct {
	l     *Locker
	mode  lining // nil if the mode has no lines
	calls *batch.Batcher[driver.TicketRequest, driver.TicketResult]

	mu      sync.Mutex
	all     map[driver.ID]*ticket
	names   map[string][]*ticket // in the order in which they came
	next    time.Duration        // when something is due, or earlier
	carry   int                  // of how many a deadlock is possible
	running bool
	wake    chan struct{}
	ears    ears
	poll    poll
	cycles  cycles

	wg sync.WaitGroup
}

// ticket is the place of one waiter. What changes is guarded by tickets.mu.
type ticket struct {
	req     driver.TicketRequest
	kind    batch.Kind
	timeout time.Duration
	entered time.Duration

	due    time.Duration // when to ask the database again, or to give the answer
	asking bool
	answer *reply // to be given when nothing is asked any more, or it is due
	over   bool   // the answer is in got, or the waiter has left
	left   bool
	pauses *pauses
	shown  shown // what the row said when it was looked at last

	// What the attempt has to know in the end.
	asked   int
	told    bool
	unclear bool
	since   time.Duration
	holder  driver.Holder
	until   time.Duration // for how long that holder had the name when it was asked for
	err     error

	got chan reply // a grant, or an error that ends the wait; buffered
}

const (
	// A ticket lasts for as long as a lease, within these bounds: so long a waiter
	// that has died may be in the way of others. For as long the row keeps a name that
	// was handed over: the waiter asks three times in a ticket's life, and so learns of
	// it in time.
	minTicket = 500 * time.Millisecond
	maxTicket = 5 * time.Second
)

func newTickets(l *Locker, m lining) *tickets {
	t := &tickets{l: l, mode: m, all: make(map[driver.ID]*ticket), names: make(map[string][]*ticket), wake: make(chan struct{}, 1)}
	t.poll.next = never
	if m != nil {
		t.calls = newBatcher(l, batch.Options[driver.TicketRequest, driver.TicketResult]{
			Send:        t.send,
			SortKey:     func(r *driver.TicketRequest) string { return r.Name },
			DistinctKey: func(r *driver.TicketRequest) string { return string(r.Acq[:]) },
			MaxInFlight: 1,
		})
	}
	return t
}

// offered reports whether waiters can stand in line.
func (t *tickets) offered() bool { return t.mode != nil && !t.l.cfg.barging }

// waitFor reports whether somebody of this Locker stands in line for name.
func (t *tickets) waitFor(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.names[name]) > 0
}

func (t *tickets) send(ctx context.Context, reqs []driver.TicketRequest) ([]driver.TicketResult, error) {
	defer t.l.keeper.stir()
	res, err := t.mode.Queue(ctx, reqs)
	if err != nil {
		return nil, err
	}
	for i := range res {
		t.l.noteCrash(reqs[i].Name, res[i].Crashed)
	}
	return res, nil
}

// enter puts an attempt in line.
func (t *tickets) enter(a *attempt, carries []driver.ID) *ticket {
	trusted := a.opts.trusted()
	life := min(max(trusted, minTicket), maxTicket)
	x := &ticket{
		req: driver.TicketRequest{
			GrantRequest: a.req,
			Life:         life,
			Handed:       a.req.TTL - trusted + life,
			Carries:      carries,
		},
		kind:    batch.Kind{Group: group(a.opts.ttl), Large: len(a.req.Value) > 0},
		timeout: t.l.cfg.timeout(a.opts.ttl),
		entered: t.l.clock.Now(),
		pauses:  newPauses(&t.l.cfg),
		unclear: a.unclear, since: a.since,
		got: make(chan reply, 1),
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.plan(x, x.entered)
	t.all[x.req.Acq] = x
	if len(carries) > 0 {
		t.carry++
	}
	t.names[x.req.Name] = append(t.names[x.req.Name], x)
	t.poll.hurry(t.l.cfg.pollMin(), x.entered)
	if !t.running {
		t.running = true
		t.wg.Go(t.run)
	}
	t.kick()
	return x
}

// kick makes the goroutine look; the caller holds mu.
func (t *tickets) kick() {
	rouse(t.wake)
}

// leave takes a waiter out of the line. It returns false if its wait is over: then
// the answer is in got.
func (t *tickets) leave(x *ticket) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if x.over {
		return false
	}
	x.left = true
	t.remove(x)
	if !x.asking {
		t.cancel(x)
	}
	return true
}

// remove ends a ticket for this process; the caller holds mu.
func (t *tickets) remove(x *ticket) {
	x.over = true
	delete(t.all, x.req.Acq)
	if len(x.req.Carries) > 0 {
		t.carry--
	}
	rest := slices.DeleteFunc(t.names[x.req.Name], func(y *ticket) bool { return y == x })
	if len(rest) == 0 {
		delete(t.names, x.req.Name)
	} else {
		t.names[x.req.Name] = rest
	}
}

// cancel takes the ticket of a waiter who has left, and what it may have been given,
// away from the database; the caller holds mu.
func (t *tickets) cancel(x *ticket) {
	r := driver.AbandonRequest{Name: x.req.Name, Acq: x.req.Acq, Shared: x.req.Shared}
	switch {
	case x.unclear: // a request may still arrive
		t.l.undo.add(r, x.req.TTL)
	case x.asked > 0:
		t.l.undo.once(r, x.req.TTL)
	}
}

// finish gives a waiter its answer; the caller holds mu. While a request of the
// ticket is under way the answer waits for it a little: if it arrived when the name
// has been given back again, it would stand in line for nobody.
func (t *tickets) finish(x *ticket, r reply) {
	if !x.asking {
		t.remove(x)
		x.got <- r
	} else if x.answer == nil {
		x.answer = &r
		t.plan(x, t.l.clock.Now()+batch.SlowAfter)
		t.kick()
	}
}

// deliver gives a waiter its answer although a request of the ticket has not been
// answered. It counts as one without a reply: should it arrive late, it is undone.
func (t *tickets) deliver(x *ticket) {
	x.unclear, x.since = true, x.answer.Before
	t.remove(x)
	x.got <- *x.answer
}

// fail ends a wait; the caller holds mu.
func (t *tickets) fail(x *ticket, err error) {
	x.left = true
	t.remove(x)
	x.got <- reply{Err: err}
	if !x.asking {
		t.cancel(x)
	}
}

// turn notes that a release of this Locker, that was sent at before, has made a
// waiter of its own the holder.
func (t *tickets) turn(turn driver.Turn, before time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.all[turn.Acq]
	if x == nil { // it has left, and takes back what it was given
		return
	}
	t.finish(x, reply{Before: before, After: t.l.clock.Now(), Result: driver.GrantResult{
		Granted: true, Found: true, Version: turn.Version, Remaining: turn.Remaining, Now: turn.Now,
	}})
}

// nudge asks again for name: for the first in line, and if that would share it for
// those who would enter with it.
func (t *tickets) nudge(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.l.clock.Now()
	for i, x := range t.names[name] {
		if i > 0 && !x.req.Shared {
			break
		}
		t.plan(x, now)
		t.kick()
		if !x.req.Shared {
			break
		}
	}
}

// join waits for what is under way; the Locker's statements have ended.
func (t *tickets) join() {
	t.wg.Wait()
	if t.calls != nil {
		t.calls.Close()
	}
}
