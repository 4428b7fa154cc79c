//go:build linux

package client

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/faults/internal/history"
)

// end ends what a call has acquired, in the way that was drawn.
func (w *worker) end(c *choice, hs []*held) {
	h := hs[0]
	switch c.ending {
	case history.AfterGuard:
		w.guarded(hs, w.rng.IntN(2) == 0)
	case history.UnderGuard:
		w.endUnderGuard(h)
		return
	case history.ByUnlockTx:
		w.endInTx(h, c.ending, w.unlockTx(h))
	case history.ByUnlockInTx:
		w.endInTx(h, c.ending, h.lease.UnlockInTx)
	case history.BeyondMaxHold:
		select {
		case <-h.Context().Done():
		case <-time.After(time.Duration(c.options.MaxHold) + bound): // the check deadline tells
		}
	case history.ByDetach:
		w.detach(h)
	}
	w.release(c.ending, hs)
}

// release unlocks.
func (w *worker) release(how string, hs []*held) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	events := make([]history.Event, len(hs))
	for i, h := range hs {
		events[i] = h.event(history.Unlock)
		events[i].How = how
	}
	unlock := hs[0].Unlock
	if hs[0].unlock != nil {
		unlock = hs[0].unlock
	}
	_ = w.callAll(events, func(events []history.Event) error {
		err := unlock(ended)
		for i := range events {
			events[i].Lost = errors.Is(err, sqllock.ErrLost)
		}
		return err
	})
}

// endInTx ends a lease in a transaction that also writes.
func (w *worker) endInTx(h *held, how string, in inTx) {
	ends := h.event(history.Ends)
	ends.How = how
	events := []history.Event{h.write(history.Guarded, w.id()), ends}
	_ = w.callAll(events, func(events []history.Event) error {
		err := w.inTx(in, []*held{h}, events[:1])
		events[1].OK = err == nil
		return err
	})
}

// unlockTx returns what ends a lease in a transaction that the library does not know before, and
// that is rolled back now and then.
func (w *worker) unlockTx(h *held) inTx {
	return func(ctx context.Context, opts *sql.TxOptions, fn func(context.Context, *sql.Tx) error) error {
		return w.guard(ctx, h, opts, func(ctx context.Context, tx *sql.Tx) error {
			if err := fn(ctx, tx); err != nil {
				return err
			}
			if err := h.lease.UnlockTx(ctx, tx); err != nil {
				return err
			}
			if w.rng.IntN(4) == 0 {
				return errRollBack
			}
			return nil
		})
	}
}

var errRollBack = errors.New("rolled back at will")

// endUnderGuard unlocks while a transaction guards the lease, and then commits.
func (w *worker) endUnderGuard(h *held) {
	began, unlocked := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(unlocked)
		<-began
		w.release(history.UnderGuard, []*held{h})
	}()
	started := false
	begin := func() {
		if !started {
			started = true
			close(began)
		}
	}
	e := h.write(history.Guarded, w.id())
	_ = w.callAll([]history.Event{e}, func(events []history.Event) error {
		return w.inTx(func(ctx context.Context, opts *sql.TxOptions, fn func(context.Context, *sql.Tx) error) error {
			return w.guard(ctx, h, opts, func(ctx context.Context, tx *sql.Tx) error {
				begin()
				time.Sleep(time.Duration(w.rng.IntN(int(w.mostUnderGuard()))))
				return fn(ctx, tx)
			})
		}, []*held{h}, events)
	})
	begin() // if there was no guard
	<-unlocked
}

// mostUnderGuard is for how long at most a transaction guards a lease that is unlocked meanwhile.
// Unlock itself waits for a fifth of a second. On SQLite a guard keeps all others from writing.
func (w *worker) mostUnderGuard() time.Duration {
	if w.cfg.Database == "sqlite" {
		return 50 * time.Millisecond
	}
	return 350 * time.Millisecond
}

// detach gives a term away, to whoever finds the file with its text.
func (w *worker) detach(h *held) {
	ends := h.event(history.Ends)
	ends.How = history.ByDetach
	text := ""
	err := w.call(ends, func(e *history.Event) (err error) {
		ctx, cancel := context.WithTimeout(context.Background(), bound)
		defer cancel()
		text, err = h.lease.Detach(ctx)
		e.OK = err == nil
		if errors.Is(err, sqllock.ErrUnknown) {
			e.Reason = history.Unknown
		}
		return err
	})
	if err != nil || w.rng.IntN(5) == 0 { // nobody finds it: the term expires
		return
	}
	at := filepath.Join(filepath.Dir(w.cfg.History), strings.ReplaceAll(h.id, "/", "-"))
	if err := os.WriteFile(at+".writing", []byte(h.id+" "+h.name+" "+text), 0o600); err != nil {
		panic("detach: " + err.Error())
	}
	if err := os.Rename(at+".writing", at+detached); err != nil {
		panic("detach: " + err.Error())
	}
}

// detached is how the name of a file ends that has the text of a term that was detached.
const detached = ".detached"

// adopt adopts a term that another worker, mostly of another process, has detached, if there is one.
// More than one may try.
func (w *worker) adopt(c *choice) {
	files, _ := filepath.Glob(filepath.Join(filepath.Dir(w.cfg.History), "*"+detached))
	if len(files) == 0 {
		return
	}
	file := one(files, w.rng)
	source, err := os.ReadFile(file)
	if err != nil { // somebody else has it
		return
	}
	if w.rng.IntN(4) > 0 {
		_ = os.Remove(file)
	}
	words := strings.Fields(string(source))
	from, name, text := words[0], strings.Join(words[1:len(words)-1], " "), words[len(words)-1]
	c.how, c.names = adopts, []string{name}
	w.drawOptions(c)
	h := &held{id: w.id(), name: name}
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	e := c.of(h)
	e.From = from
	err = w.call(e, func(e *history.Event) error {
		lease, err := w.locks.Adopt(ctx, text, c.opts...)
		if errors.Is(err, sqllock.ErrNotHeld) {
			_ = os.Remove(file)
			e.Refuse = true
		}
		if err != nil {
			return err
		}
		h.has(lease, e)
		return nil
	})
	if err == nil {
		w.useAndEnd(c, []*held{h})
	}
}
