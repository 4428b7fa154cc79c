package lockmysql

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
	"github.com/sqllock/sqllock/internal/termstore"
)

// grabbing is one call of Grant.
type grabbing struct {
	a     *advisorySession
	reqs  []driver.AcquireRequest
	res   []driver.AcquireResult
	terms []termstore.Term
	locks []string // what was taken for each request, "" if nothing
	sent  []int    // requests that were sent to the server
	drew  bool     // terms may have begun
}

// A momentary lock is asked for again, so often and with such pauses.
const (
	grabTries = 8
	grabPause = time.Millisecond
)

func (g *grabbing) run(ctx context.Context) error {
	var alone, together, draw []int
	for i := range g.reqs {
		r := &g.reqs[i]
		key := g.a.s.Key(r.Name)
		held := g.a.held[key]
		switch lease := g.a.leases[r.Acq]; {
		case lease != nil:
			g.res[i] = lease.res
			g.res[i].Found, g.res[i].Crashed = true, driver.Holder{}
		case held != nil && held.shared && r.Shared:
			draw = append(draw, i)
		case held != nil: // the server would let the session have it again
		case r.Shared:
			together = append(together, i)
		default:
			alone = append(alone, i)
		}
	}
	if err := g.lock(ctx, "lock", alone); err != nil {
		return err
	}
	for try := 0; len(together) > 0; try++ {
		if err := g.lock(ctx, "lock_shared", together); err != nil {
			return err
		}
		if together = g.blocked(together); len(together) == 0 || try == grabTries {
			break
		}
		if err := rowstore.Sleep(ctx, grabPause); err != nil {
			return errLocked
		}
	}
	for i := range g.locks {
		if g.locks[i] != "" {
			draw = append(draw, i)
		}
	}
	return g.draw(ctx, draw)
}

// blocked are those of the requests that met somebody who has the lock itself, though
// no term says who: it may be another who shares it, for a moment.
func (g *grabbing) blocked(which []int) (again []int) {
	for _, i := range which {
		if g.locks[i] == "" && g.res[i].Holder == (driver.Holder{}) {
			again = append(again, i)
		}
	}
	return again
}

// lock sends requests, and notes what was taken.
func (g *grabbing) lock(ctx context.Context, statement string, which []int) error {
	if len(which) == 0 {
		return nil
	}
	g.sent = append(g.sent, which...)
	names, first := make([]string, len(which)), make([]int64, len(which))
	for k, i := range which {
		names[k], first[k] = g.reqs[i].Name, int64(g.a.s.client.Instance[0])%slots
	}
	batch := []rowstore.Column{names, g.a.s.Keys(names), first}
	return g.a.run().Read(ctx, termstore.Statement{Name: statement, Batch: batch}, func(scan rowstore.Scanner) error {
		var got sql.NullInt64
		k, t, err := termstore.ScanTerm(scan, &got)
		if err != nil {
			return err
		}
		g.note(which[k], t, got)
		if !t.Writable {
			return errDemoted
		}
		if !got.Valid {
			return fmt.Errorf("%w: GET_LOCK failed", errInDoubt)
		}
		return nil
	})
}

// note notes the answer to a request, see the statement lock.
func (g *grabbing) note(i int, t termstore.Term, got sql.NullInt64) {
	t.Name = g.reqs[i].Name
	g.terms[i] = t
	key := g.a.s.Key(t.Name)
	switch {
	case got.Int64 == 1:
		g.locks[i] = key
	case got.Int64 > 1:
		g.locks[i] = fmt.Sprintf("%s:%d", key, got.Int64-2)
	default:
		g.res[i] = driver.AcquireResult{Now: t.Now, Holder: t.Known()}
		if got.Int64 == -1 && !t.Held() {
			g.res[i].Holder = driver.Holder{Shared: true}
		}
	}
}

// draw draws for the requests that have their locks.
func (g *grabbing) draw(ctx context.Context, which []int) error {
	if len(which) == 0 {
		return nil
	}
	a := g.a
	if err := g.look(ctx, which); err != nil {
		return err
	}
	reqs, terms := make([]driver.AcquireRequest, len(which)), make([]termstore.Term, len(which))
	for k, i := range which {
		reqs[k], terms[k] = g.reqs[i], g.terms[i]
	}
	g.drew = true
	res, err := a.s.draw(ctx, a.run(), reqs, terms, &mark{key: a.s.Key, pid: a.line.pid})
	if err != nil {
		return err
	}
	var back []string
	for k, i := range which {
		g.res[i] = res[k]
		if !res[k].Granted {
			if g.locks[i] != "" {
				back = append(back, g.locks[i])
				g.locks[i] = ""
			}
			continue
		}
		key := a.s.Key(g.reqs[i].Name)
		if g.locks[i] != "" {
			a.held[key] = &grasp{lock: g.locks[i], shared: g.reqs[i].Shared}
			g.locks[i] = ""
		}
		a.held[key].leases++
		a.leases[g.reqs[i].Acq] = &advisoryLease{key: key, res: res[k]}
	}
	if _, err = a.unlock(ctx, back); err != nil {
		a.line.End()
	}
	return err
}

// look reads the terms of requests that had not to be sent.
func (g *grabbing) look(ctx context.Context, which []int) error {
	var names []string
	var unseen []int
	for _, i := range which {
		if g.locks[i] == "" {
			names = append(names, g.reqs[i].Name)
			unseen = append(unseen, i)
		}
	}
	if names == nil {
		return nil
	}
	terms, err := g.a.s.Terms(ctx, g.a.run(), names...)
	for k, i := range unseen {
		g.terms[i] = terms[k]
	}
	return err
}

// undo gives back what a call may have taken that has failed. If that fails too, the
// session is over.
func (g *grabbing) undo(ctx context.Context) {
	a := g.a
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	var locks []string
	var over []driver.AcquireRequest
	for _, i := range g.sent {
		key := a.s.Key(g.reqs[i].Name)
		if a.held[key] != nil {
			continue
		}
		over = append(over, g.reqs[i])
		locks = append(locks, key)
		for slot := range slots {
			locks = append(locks, fmt.Sprintf("%s:%d", key, slot))
		}
	}
	if g.drew && len(over) > 0 {
		a.s.undraw(ctx, over)
	}
	if _, err := a.unlock(ctx, locks); err != nil {
		a.line.End()
	}
}
