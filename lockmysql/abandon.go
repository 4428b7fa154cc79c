package lockmysql

import (
	"context"
	"database/sql"

	"github.com/sqllock/sqllock/driver"
)

// Abandon implements [driver.LeaseStore]. It looks first, because as a rule there is
// nothing to do.
func (s *store) Abandon(ctx context.Context, reqs []driver.AbandonRequest) error {
	if len(reqs) == 0 {
		return nil
	}
	return s.do(ctx, func(ctx context.Context, c session) error {
		patience := newPatience(brief)
		a := abandoning{s: s, c: c, reqs: reqs}
		for {
			done, err := a.once(ctx)
			if err == nil && !done {
				err = patience.wait(ctx)
			}
			switch {
			case err != nil && a.wrote:
				return &unresolvedError{err}
			case err != nil || done:
				return err
			}
		}
	})
}

// abandoning is one call of Abandon.
type abandoning struct {
	s     *store
	c     session
	reqs  []driver.AbandonRequest
	wrote bool
}

// once reports whether nothing is left to do.
func (a *abandoning) once(ctx context.Context) (bool, error) {
	stands, err := a.look(ctx)
	if err != nil {
		return false, err
	}
	return a.act(ctx, stands)
}

func (a *abandoning) look(ctx context.Context) ([]stand, error) {
	b := newBatch(len(a.reqs))
	for i := range a.reqs {
		b.row(a.reqs[i].Name, a.reqs[i].Acq).end()
	}
	return a.s.standing(ctx, a.c, b, len(a.reqs))
}

// act takes away what the look has found.
func (a *abandoning) act(ctx context.Context, stands []stand) (done bool, err error) {
	held := newBatch(1)
	var n int64
	var waiting []int
	var shared []driver.AbandonRequest
	for i := range a.reqs {
		r, st := &a.reqs[i], &stands[i]
		switch {
		case st.seq != 0, st.heldBy(r.Acq) && st.waited():
			waiting = append(waiting, i)
		case st.heldBy(r.Acq):
			held.row(r.Name, r.Acq).int(st.holder.Version).int(r.MinHold.Microseconds()).end()
			n++
		}
		if st.version != 0 {
			shared = append(shared, *r)
		}
	}
	done = true
	if n > 0 {
		freed, _, err := a.c.exec(ctx, a.s.queries.abandon, held.String())
		if err != nil {
			return false, err
		}
		a.wrote = a.wrote || freed > 0
		done = freed == n
	}
	if len(waiting) > 0 {
		left, err := a.leave(ctx, stands, waiting)
		if err != nil {
			return false, err
		}
		done = done && left
	}
	if len(shared) > 0 {
		err = a.s.quit(ctx, a.c, shared)
		a.wrote = a.wrote || err == nil
	}
	return done, err
}

// leave takes the requests at which out of the line, with what they hold, and reports
// whether it did: all of them or none.
func (a *abandoning) leave(ctx context.Context, stands []stand, which []int) (bool, error) {
	done, err := a.s.orLocked(ctx, a.c, func(tx *sql.Tx) error {
		m := moving{s: a.s, tx: tx}
		names := distinct(which, func(i int) string { return a.reqs[i].Name })
		if err := m.lockNames(ctx, names); err != nil {
			return err
		}
		leaving := m.which(func(p *place) bool { return a.holder(p) != nil })
		if err := m.entries(ctx, leaving); err != nil {
			return err
		}
		for _, p := range leaving {
			if !p.entry {
				return errLocked
			}
			p.release(a.holder(p).MinHold)
		}
		if err := a.withdraw(ctx, tx, stands, which); err != nil {
			return err
		}
		return m.handOver(ctx)
	})
	a.wrote = a.wrote || done
	return done, err
}

// withdraw deletes the tickets that were seen. If one is gone, its turn has come: then
// another look is needed.
func (a *abandoning) withdraw(ctx context.Context, tx *sql.Tx, stands []stand, which []int) error {
	gone := newBatch(len(which))
	n := 0
	for _, i := range which {
		if seq := stands[i].seq; seq != 0 {
			gone.row(a.reqs[i].Name, a.reqs[i].Acq).int(seq).end()
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return change(ctx, tx, a.s.queries.line.gone, gone, n)
}

// holder is the request of the one who has the name alone, nil if there is none.
func (a *abandoning) holder(p *place) *driver.AbandonRequest {
	for i := range a.reqs {
		if r := &a.reqs[i]; r.Name == p.name && p.heldBy(r.Acq) {
			return r
		}
	}
	return nil
}
