//go:build linux

package worker

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/faults/peers/internal/ledger"
	"github.com/sqllock/sqllock/faults/peers/internal/locks"
)

const (
	// every is how often a lock is looked at while it is held.
	every = 20 * time.Millisecond
	// bound is for how long a look or an Unlock may take.
	bound = 2 * time.Second
	// lockTimeout is how long a worker waits for a lock before it tries again.
	lockTimeout = 15 * time.Second
)

// worker locks one name at a time.
type worker struct {
	*process
	number int
	rng    *rand.Rand
}

func newWorker(p *process, number int) *worker {
	return &worker{p, number, rand.New(rand.NewPCG(p.cfg.Seed, uint64(number)))}
}

// run works until the process is stopped. It finishes what it has begun.
func (w *worker) run() {
	for w.ctx.Err() == nil {
		name := w.cfg.Names[w.rng.IntN(len(w.cfg.Names))]
		if t := w.acquire(name); t != nil {
			w.work(t)
			w.unlock(t)
		}
		time.Sleep(time.Duration(w.rng.IntN(5)) * time.Millisecond)
	}
}

// term is a lock that is held, and looked at until watched ends.
type term struct {
	locks.Held
	ledger.Term
	name  string
	token int64

	end     chan struct{}
	watched sync.WaitGroup
}

// acquire waits for a name. It returns nil if that failed.
func (w *worker) acquire(name string) *term {
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	t := &term{name: name, end: make(chan struct{})}
	t.ID, t.Called = w.id(), history.Now()
	held, err := w.locks.Lock(ctx, w.number, name)
	t.Granted = history.Now()
	e := history.Event{T: t.Granted, Op: history.Lock, Ret: true, ID: t.ID, Lease: t.ID, Name: name, Work: w.number}
	if err != nil {
		e.Err = err.Error()
		w.say(e)
		time.Sleep(10 * time.Millisecond) // a server that is down is not to be overrun
		return nil
	}
	t.Held, t.token = held, held.Token()
	e.Token = t.token
	w.say(e)
	t.watched.Go(func() { w.watch(t) })
	return t
}

// watch looks at a lock until that is about to be unlocked.
func (w *worker) watch(t *term) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-t.end:
			return
		case <-tick.C:
			w.look(t)
		}
	}
}

// look asks whether a lock is held, as one does before a write.
func (w *worker) look(t *term) bool {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	e := history.Event{T: history.Now(), Op: history.Look, Lease: t.ID, Name: t.name}
	e.OK = t.Holds(ctx)
	e.Until = history.Now()
	w.say(e)
	return e.OK
}

// work writes to the registers: without a check, and with the token if there is one.
func (w *worker) work(t *term) {
	if !w.look(t) {
		return
	}
	w.plain(t)
	if w.look(t) && t.token != 0 {
		w.fenced(t)
		w.look(t)
	}
}

// plain shows a wrong use: it has looked at the lock, waits, and writes.
func (w *worker) plain(t *term) {
	n := must(w.ledger.Read(ledger.Plain, t.name))
	w.pause(history.Plain)
	_ = must(w.ledger.Write(ledger.Write{Register: ledger.Plain, Name: t.name, Term: t.Term, N: n + 1}))
}

// fenced announces its token, reads, waits, and writes the successor of what it read.
func (w *worker) fenced(t *term) {
	if !must(w.ledger.Announce(t.name, t.token)) {
		return
	}
	n := must(w.ledger.Read(ledger.Fenced, t.name))
	w.pause(history.Fenced)
	_ = must(w.ledger.Write(ledger.Write{Register: ledger.Fenced, Name: t.name, Term: t.Term, Token: t.token, N: n + 1}))
}

// pause takes a few milliseconds, and now and then up to half a TTL, which all locks
// survive. It stops the process here if an order says so.
func (w *worker) pause(at string) {
	d := 10 * time.Millisecond
	if w.rng.IntN(16) == 0 {
		d = w.cfg.Site.TTL / 2
	}
	time.Sleep(time.Duration(w.rng.Int64N(int64(d))))
	w.orders.Reach(at)
}

// unlock ends a term. An error is the library's way to say that it was over, or that it
// does not know.
func (w *worker) unlock(t *term) {
	close(t.end)
	t.watched.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	e := history.Event{Op: history.Unlock, Ret: true, Lease: t.ID, Name: t.name}
	if err := t.Unlock(ctx); err != nil {
		e.Err = err.Error()
	}
	e.T = history.Now()
	w.say(e)
}

// must panics if the ledger cannot be reached: then there is nothing to compare.
func must[T any](v T, err error) T {
	if err != nil {
		panic("ledger: " + err.Error())
	}
	return v
}
