package lockmysql

import (
	"context"
	"database/sql"
	"slices"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/access"
)

// Release implements [driver.LeaseStore].
func (s *store) Release(ctx context.Context, reqs []driver.ReleaseRequest) ([]driver.ReleaseResult, error) {
	return access.Each(reqs, func(r *driver.ReleaseRequest) bool { return r.Shared },
		func(reqs []driver.ReleaseRequest) ([]driver.ReleaseResult, error) { return s.releaseAlone(ctx, reqs) },
		func(reqs []driver.ReleaseRequest) ([]driver.ReleaseResult, error) { return s.releaseShared(ctx, reqs) },
		partly)
}

// releaseAlone is Release for those who do not share. It is one statement as long as
// every lease is still held, nobody waits and no row is locked.
func (s *store) releaseAlone(ctx context.Context, reqs []driver.ReleaseRequest) ([]driver.ReleaseResult, error) {
	if len(reqs) == 0 {
		return nil, nil
	}
	r := releasing{s: s, reqs: reqs}
	if err := s.do(ctx, r.run); err != nil {
		return nil, err
	}
	return r.res, nil
}

// releasing is one call of releaseAlone.
type releasing struct {
	s    *store
	reqs []driver.ReleaseRequest
	res  []driver.ReleaseResult
}

// run frees all that is held or, if an error is returned, nothing. What a look
// does not find with us any more was lost before, for nobody gets back what was
// lost. If it finds everything, somebody has locked a row or waits.
func (r *releasing) run(ctx context.Context, c session) error {
	r.res = make([]driver.ReleaseResult, len(r.reqs))
	todo := every(len(r.reqs))
	patience := newPatience(brief)
	awaited := slices.ContainsFunc(r.reqs, func(q driver.ReleaseRequest) bool { return q.Awaited })
	hasty := r.s.hasty && !slices.ContainsFunc(r.reqs, func(q driver.ReleaseRequest) bool { return q.Guarded || q.MinHold > 0 })
	for ; len(todo) > 0; hasty = false {
		try := r.plain
		switch {
		case awaited:
			try = r.handOver
		case hasty:
			try = r.clean
		}
		done, err := try(ctx, c, todo)
		if err != nil || done {
			return err
		}
		held, waited, err := r.stillHeld(ctx, c, todo)
		if err != nil {
			return err
		}
		if len(held) == len(todo) && (awaited || !waited && !hasty) {
			if err := patience.wait(ctx); err != nil {
				return err
			}
		}
		todo, awaited = held, awaited || waited
	}
	return nil
}

// clean is plain for leases that were never guarded and have no minimum hold time. It
// does not lock the entry that a guard would lock, nor does it wait.
func (r *releasing) clean(ctx context.Context, c session, todo []int) (bool, error) {
	var n int64
	var err error
	if len(todo) == 1 {
		q := &r.reqs[todo[0]]
		n, _, err = c.exec(ctx, r.s.queries.clean.releaseOne, digits(q.Name), q.Acq.String(), q.Version)
	} else {
		b := newBatch(len(todo))
		for _, i := range todo {
			b.row(r.reqs[i].Name, r.reqs[i].Acq).int(r.reqs[i].Version).end()
		}
		n, _, err = c.exec(ctx, r.s.queries.clean.release, b.String())
	}
	switch {
	case isInTheWay(err), err == nil && n == 0:
		return false, nil
	case err != nil:
		return false, err
	case n != int64(len(todo)):
		return false, &unresolvedError{errVanished}
	}
	for _, i := range todo {
		r.res[i].Freed = true
	}
	return true, nil
}

// plain frees the requests at todo together and reports whether it did. If not, it
// freed none.
func (r *releasing) plain(ctx context.Context, c session, todo []int) (bool, error) {
	var n int64
	var err error
	if len(todo) == 1 {
		q := &r.reqs[todo[0]]
		n, _, err = c.exec(ctx, r.s.queries.release, q.MinHold.Microseconds(), digits(q.Name), q.Acq.String(), q.Version)
	} else {
		n, _, err = c.exec(ctx, r.s.queries.releaseMany, releases(r.reqs, todo).String(), len(todo))
	}
	if err != nil || n != int64(len(todo)) {
		return false, err
	}
	for _, i := range todo {
		r.res[i].Freed = true
	}
	return true, nil
}

// handOver is plain for names for which somebody may stand in line.
func (r *releasing) handOver(ctx context.Context, c session, todo []int) (bool, error) {
	m := moving{s: r.s}
	done, err := r.s.orLocked(ctx, c, func(tx *sql.Tx) error {
		m.tx = tx
		err := m.lock(ctx, r.s.queries.line.heldTerms, releases(r.reqs, todo), func(k int, p *place) {
			p.entry = true
			p.release(r.reqs[todo[k]].MinHold)
		})
		if err == nil && len(m.places) < len(todo) {
			err = errLocked
		}
		if err != nil {
			return err
		}
		return m.handOver(ctx)
	})
	if !done || err != nil {
		return false, err
	}
	next := m.next()
	for _, i := range todo {
		r.res[i] = driver.ReleaseResult{Freed: true, Next: next[r.reqs[i].Name]}
	}
	return true, nil
}

// stillHeld are those of the requests that are held. It reports whether somebody may
// wait for one of them.
func (r *releasing) stillHeld(ctx context.Context, c session, todo []int) (held []int, awaited bool, err error) {
	states, err := r.s.look(ctx, c, releases(r.reqs, todo), len(todo))
	if err != nil {
		return nil, false, err
	}
	for k, i := range todo {
		if st := &states[k]; st.heldBy(r.reqs[i].Acq) && st.holder.Version == r.reqs[i].Version {
			held = append(held, i)
			awaited = awaited || st.waited()
		}
	}
	return held, awaited, nil
}

func releases(reqs []driver.ReleaseRequest, which []int) *batch {
	b := newBatch(len(which))
	for _, i := range which {
		r := &reqs[i]
		b.row(r.Name, r.Acq).int(r.Version).int(r.MinHold.Microseconds()).end()
	}
	return b
}
