package lockmysql

import (
	"context"
	"slices"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
	"github.com/sqllock/sqllock/internal/termstore"
)

// A draw begins a term, with a new token, for somebody who has the lock already: what
// is drawn before a wait could come out of order. It is committed by itself, at once,
// so that nothing which happens to the session takes it back.

// mark is by which the row of a term tells whose it is.
type mark struct {
	key func(name string) string // a lock of GET_LOCK that goes with the session
	pid int64
}

// drawing is one call that draws. It waits for no row that somebody has locked: a
// guard does that, for as long as its transaction is open.
type drawing struct {
	s     *sessions
	run   termstore.Runner
	reqs  []driver.AcquireRequest
	terms []termstore.Term // as seen; they may be out of date
	by    *mark            // nil if nothing is to be recorded but the token
	res   []driver.AcquireResult
}

// drawRounds is how often a draw looks again, with pauses that double, when a row has
// changed or is locked. So it does not mind what is locked for a moment, nor a session
// that has let go of its lock and is about to be gone.
const drawRounds = 5

// draw draws for each request or tells what keeps the name. After an error something
// may have been drawn.
func (s *sessions) draw(
	ctx context.Context, run termstore.Runner, reqs []driver.AcquireRequest, terms []termstore.Term, by *mark,
) ([]driver.AcquireResult, error) {
	d := &drawing{s: s, run: run, reqs: reqs, terms: terms, by: by, res: make([]driver.AcquireResult, len(reqs))}
	todo := every(len(reqs))
	for round := 0; ; round++ {
		rest, err := d.once(ctx, todo)
		if err != nil || len(rest) == 0 {
			return d.res, err
		}
		if todo = rest; round == drawRounds {
			break
		}
		if round > 0 {
			if err := rowstore.Sleep(ctx, time.Millisecond<<round); err != nil {
				return nil, errLocked
			}
		}
		if err := d.look(ctx, todo); err != nil {
			return nil, err
		}
	}
	for _, i := range todo {
		d.res[i] = driver.AcquireResult{Now: d.terms[i].Now}
	}
	return d.res, nil
}

// undraw ends terms that a call may have begun which has failed: nobody is told of
// them. It does what it can at once; what it leaves is taken for a crash.
func (s *sessions) undraw(ctx context.Context, reqs []driver.AcquireRequest) {
	names := make([]string, len(reqs))
	for i := range reqs {
		names[i] = reqs[i].Name
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), glance)
	defer cancel()
	_ = s.onControl(ctx, func(ctx context.Context, c session) error {
		terms, err := s.Terms(ctx, s.on(c), names...)
		if err != nil {
			return stale(ctx, err)
		}
		var over []driver.ReleaseRequest
		for i := range terms {
			if h := &terms[i].Holder; h.Acq == reqs[i].Acq {
				over = append(over, driver.ReleaseRequest{Name: names[i], Acq: h.Acq, Version: h.Version})
			}
		}
		if over == nil {
			return nil
		}
		return s.EndTerms(ctx, s.on(c), over)
	})
}

func (d *drawing) look(ctx context.Context, which []int) error {
	names := make([]string, len(which))
	for k, i := range which {
		names[k] = d.reqs[i].Name
	}
	terms, err := d.s.Terms(ctx, d.run, names...)
	if err != nil {
		return err
	}
	for k, i := range which {
		d.terms[i] = terms[k]
	}
	return nil
}

// once does what the terms ask for, as they were seen, and returns the requests for
// which they turned out to be out of date, or locked.
func (d *drawing) once(ctx context.Context, todo []int) (rest []int, err error) {
	if err := d.make(ctx, todo); err != nil {
		return nil, err
	}
	var take []int
	for _, i := range todo {
		acq, t := d.reqs[i].Acq, &d.terms[i]
		switch {
		case d.s.Pins && t.Other(acq) && t.Alive: // who draws has lost the lock meanwhile
			rest = append(rest, i)
		case t.Other(acq) && t.Delay > 0:
			done, err := d.delay(ctx, i)
			if err != nil {
				return nil, err
			}
			if !done {
				rest = append(rest, i)
			}
		case t.KeptFrom(acq):
			d.res[i] = driver.AcquireResult{Now: t.Now, Holder: driver.Holder{Until: t.NotBefore}}
		default:
			take = append(take, i)
		}
	}
	late, err := d.take(ctx, take)
	return append(rest, late...), err
}

// make makes the rows that are missing. They name nobody, so nobody minds if they
// stay.
func (d *drawing) make(ctx context.Context, which []int) error {
	var missing []string
	for _, i := range which {
		if !d.terms[i].Exists {
			missing = append(missing, d.reqs[i].Name)
			d.terms[i].Exists = true
		}
	}
	if missing == nil {
		return nil
	}
	_, _, err := d.run.Write(ctx, termstore.Statement{Name: "make_rows", Batch: []rowstore.Column{missing}})
	return err
}

// delay lets the lock delay of a holder begin whose session is gone.
func (d *drawing) delay(ctx context.Context, i int) (bool, error) {
	t := &d.terms[i]
	ended, at, until, err := d.s.EndTerm(ctx, d.run, t)
	if err != nil || !ended {
		return false, err
	}
	d.res[i] = driver.AcquireResult{Now: at, Holder: driver.Holder{Until: until}, Crashed: t.Crashed(at)}
	return true, nil
}

// take draws together if that works, and otherwise one by one.
func (d *drawing) take(ctx context.Context, which []int) (late []int, err error) {
	valued := slices.ContainsFunc(which, func(i int) bool { return len(d.reqs[i].Value) > 0 })
	if len(which) > 1 && !valued && d.s.base.fitting(len(which), func(k int) int { return textSize(&d.reqs[which[k]]) }) == len(which) {
		n, now, err := d.takeAll(ctx, which)
		if err != nil {
			return nil, err
		}
		if n == int64(len(which)) {
			for _, i := range which {
				d.won(i, now)
			}
			return nil, nil
		}
	}
	for _, i := range which {
		n, now, err := d.takeOne(ctx, i)
		if err != nil {
			return nil, err
		}
		if n == 1 {
			d.won(i, now)
		} else {
			late = append(late, i)
		}
	}
	return late, nil
}

// won notes a draw at the time now. The version follows from the one that was asked
// for.
func (d *drawing) won(i int, now int64) {
	t := &d.terms[i]
	d.res[i] = driver.AcquireResult{Granted: true, Version: max(t.Holder.Version+1, now), Remaining: d.s.ttl, Now: now}
	if t.Other(d.reqs[i].Acq) {
		d.res[i].Crashed = t.Crashed(now)
	}
}

// recorded is what a draw writes of a request, which is nothing but the token if
// others may share the lock.
func (d *drawing) recorded(i int) (acq driver.ID, owner, key string, hold, delay int64) {
	r := &d.reqs[i]
	if d.by == nil || r.Shared {
		return acq, "", "", 0, 0
	}
	return r.Acq, r.Owner, d.by.key(r.Name), r.MinHold.Microseconds(), r.Delay.Microseconds()
}

func (d *drawing) pid() (pid int64) {
	if d.by != nil {
		pid = d.by.pid
	}
	return pid
}

func (d *drawing) takeOne(ctx context.Context, i int) (n, now int64, err error) {
	r, t := &d.reqs[i], &d.terms[i]
	acq, owner, key, hold, delay := d.recorded(i)
	var value []byte
	if acq != (driver.ID{}) {
		value = r.Value
	}
	return d.run.Write(ctx, termstore.Statement{Name: "draw", Args: []any{acq, owner, key, hold, delay,
		r.Name, t.Holder.Version, t.Holder.Acq, d.s.client.Instance, d.s.client.Label, d.pid(), value}})
}

func (d *drawing) takeAll(ctx context.Context, which []int) (n, now int64, err error) {
	k := len(which)
	names, owners, keys := make([]string, k), make([]string, k), make([]string, k)
	acqs, was := make([]driver.ID, k), make([]driver.ID, k)
	versions, holds, delays := make([]int64, k), make([]int64, k), make([]int64, k)
	for k, i := range which {
		names[k], versions[k], was[k] = d.reqs[i].Name, d.terms[i].Holder.Version, d.terms[i].Holder.Acq
		acqs[k], owners[k], keys[k], holds[k], delays[k] = d.recorded(i)
	}
	return d.run.Write(ctx, termstore.Statement{Name: "draw_many",
		Batch: []rowstore.Column{names, acqs, versions, was, owners, keys, holds, delays},
		Args:  []any{d.s.client.Instance, d.s.client.Label, d.pid(), int64(k)}})
}
