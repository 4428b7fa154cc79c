package lockmysql

import (
	"context"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/access"
)

// Release implements [driver.LeaseStore].
func (s *store) Release(ctx context.Context, reqs []driver.ReleaseRequest) ([]bool, error) {
	return access.Each(reqs, func(r *driver.ReleaseRequest) bool { return r.Shared },
		func(reqs []driver.ReleaseRequest) ([]bool, error) { return s.releaseAlone(ctx, reqs) },
		func(reqs []driver.ReleaseRequest) ([]bool, error) { return s.releaseShared(ctx, reqs) },
		partly)
}

// releaseAlone is Release for those who do not share. It is one statement as long as
// every lease is still held and no row is locked.
func (s *store) releaseAlone(ctx context.Context, reqs []driver.ReleaseRequest) ([]bool, error) {
	freed := make([]bool, len(reqs))
	if len(reqs) == 0 {
		return freed, nil
	}
	err := s.do(ctx, func(ctx context.Context, c session) error {
		clear(freed)
		return s.release(ctx, c, reqs, freed)
	})
	if err != nil {
		return nil, err
	}
	return freed, nil
}

// release frees all that is held or, if an error is returned, nothing. What a look
// does not find with us any more was lost before, for nobody gets back what was
// lost. If it finds everything, somebody has locked a row.
func (s *store) release(ctx context.Context, c session, reqs []driver.ReleaseRequest, freed []bool) error {
	todo := every(len(reqs))
	patience := newPatience(brief)
	for len(todo) > 0 {
		done, err := s.releaseAll(ctx, c, reqs, todo)
		if err != nil {
			return err
		}
		if done {
			for _, i := range todo {
				freed[i] = true
			}
			return nil
		}
		held, err := s.stillHeld(ctx, c, reqs, todo)
		if err != nil {
			return err
		}
		if len(held) == len(todo) {
			if err := patience.wait(ctx); err != nil {
				return err
			}
		}
		todo = held
	}
	return nil
}

// releaseAll frees the requests at todo together and reports whether it did. If
// not, it freed none.
func (s *store) releaseAll(ctx context.Context, c session, reqs []driver.ReleaseRequest, todo []int) (bool, error) {
	if len(todo) == 1 {
		r := &reqs[todo[0]]
		n, _, err := c.exec(ctx, s.queries.release, r.MinHold.Microseconds(), digits(r.Name), r.Acq.String(), r.Version)
		return n == 1, err
	}
	n, _, err := c.exec(ctx, s.queries.releaseMany, releases(reqs, todo).String(), len(todo))
	return n == int64(len(todo)), err
}

func (s *store) stillHeld(ctx context.Context, c session, reqs []driver.ReleaseRequest, todo []int) (held []int, err error) {
	states, err := s.look(ctx, c, releases(reqs, todo), len(todo))
	if err != nil {
		return nil, err
	}
	for k, i := range todo {
		if states[k].heldBy(reqs[i].Acq) && states[k].holder.Version == reqs[i].Version {
			held = append(held, i)
		}
	}
	return held, nil
}

func releases(reqs []driver.ReleaseRequest, which []int) *batch {
	b := newBatch(len(which))
	for _, i := range which {
		r := &reqs[i]
		b.row(r.Name, r.Acq).int(r.Version).int(r.MinHold.Microseconds()).end()
	}
	return b
}

// Abandon implements [driver.LeaseStore].
func (s *store) Abandon(ctx context.Context, reqs []driver.AbandonRequest) error {
	type none struct{}
	_, err := access.Each(reqs, func(r *driver.AbandonRequest) bool { return r.Shared },
		func(reqs []driver.AbandonRequest) ([]none, error) { return nil, s.abandonAlone(ctx, reqs) },
		func(reqs []driver.AbandonRequest) ([]none, error) { return nil, s.abandonShared(ctx, reqs) },
		partly)
	return err
}

// abandonAlone is Abandon for those who do not share. It looks first, because as a
// rule nothing is held.
func (s *store) abandonAlone(ctx context.Context, reqs []driver.AbandonRequest) error {
	if len(reqs) == 0 {
		return nil
	}
	return s.do(ctx, func(ctx context.Context, c session) error {
		patience := newPatience(brief)
		for {
			done, err := s.abandonOnce(ctx, c, reqs)
			if err != nil || done {
				return err
			}
			if err := patience.wait(ctx); err != nil {
				return err
			}
		}
	})
}

// abandonOnce reports whether nothing is held any more.
func (s *store) abandonOnce(ctx context.Context, c session, reqs []driver.AbandonRequest) (bool, error) {
	b := newBatch(len(reqs))
	for i := range reqs {
		b.row(reqs[i].Name, reqs[i].Acq).end()
	}
	states, err := s.look(ctx, c, b, len(reqs))
	if err != nil {
		return false, err
	}
	held := newBatch(1)
	var n int64
	for i := range reqs {
		if r := &reqs[i]; states[i].heldBy(r.Acq) {
			held.row(r.Name, r.Acq).int(states[i].holder.Version).int(r.MinHold.Microseconds()).end()
			n++
		}
	}
	if n == 0 {
		return true, nil
	}
	freed, _, err := c.exec(ctx, s.queries.abandon, held.String())
	return freed == n, err
}
