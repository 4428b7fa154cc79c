package locksqlite

import (
	"context"
	"database/sql"

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

// releaseAlone is Release for those who do not share. Only what is not freed at the
// first attempt may have a line.
func (s *store) releaseAlone(ctx context.Context, reqs []driver.ReleaseRequest) ([]driver.ReleaseResult, error) {
	var res []driver.ReleaseResult
	err := s.do(ctx, len(reqs), func(ctx context.Context, conn *sql.Conn) error {
		res = make([]driver.ReleaseResult, len(reqs))
		var plain, rest []int
		for i := range reqs {
			if !reqs[i].Awaited {
				plain = append(plain, i)
			}
		}
		err := s.alone(ctx, func() error {
			_, err := s.freeAlone(ctx, conn, reqs, plain, false, res)
			return err
		})
		if err != nil {
			return err
		}
		for i := range res {
			if !res[i].Freed {
				rest = append(rest, i)
			}
		}
		if len(rest) == 0 {
			return nil
		}
		err = s.immediate(ctx, conn, func(ctx context.Context) error { return s.handOver(ctx, conn, reqs, rest, res) })
		if err != nil && len(rest) < len(reqs) {
			return partly(err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

// handOver frees the requests at which, in a transaction, for those who wait.
func (s *store) handOver(ctx context.Context, conn *sql.Conn, reqs []driver.ReleaseRequest, which []int, res []driver.ReleaseResult) error {
	names, err := s.freeAlone(ctx, conn, reqs, which, true, res)
	if err != nil {
		return err
	}
	turns, err := s.advance(ctx, conn, names)
	if err != nil {
		return err
	}
	for _, i := range which {
		if res[i].Freed {
			res[i].Next = s.mine(turns, reqs[i].Name)
		}
	}
	return nil
}

// freeAlone frees the requests at which and returns the names. Unless awaited it leaves
// those for which somebody waits.
func (s *store) freeAlone(
	ctx context.Context, conn *sql.Conn, reqs []driver.ReleaseRequest, which []int, awaited bool, res []driver.ReleaseResult,
) (names []string, err error) {
	if len(which) == 0 {
		return nil, nil
	}
	b := newBatch(len(which))
	for _, i := range which {
		b.add(i, reqs[i].Name, reqs[i].Acq, reqs[i].MinHold.Microseconds(), reqs[i].Version)
	}
	err = query(ctx, conn, s.queries.release, b.args(bit(awaited)), func(scan func(...any) error) error {
		var name string
		if err := scan(&name); err != nil {
			return err
		}
		res[b.index[name]].Freed = true
		names = append(names, name)
		return nil
	})
	return names, err
}

// releaseShared is Release for those who share.
func (s *store) releaseShared(ctx context.Context, reqs []driver.ReleaseRequest) ([]driver.ReleaseResult, error) {
	b := newBatch(len(reqs))
	minHold := make(map[member]int64, len(reqs))
	for i := range reqs {
		r := &reqs[i]
		b.add(i, r.Name, r.Acq, nil, r.Version)
		minHold[member{r.Name, r.Acq}] = r.MinHold.Microseconds()
	}
	var res []driver.ReleaseResult
	err := s.do(ctx, len(reqs), func(ctx context.Context, conn *sql.Conn) error {
		res = make([]driver.ReleaseResult, len(reqs))
		return s.immediate(ctx, conn, func(ctx context.Context) error {
			left, awaited, err := s.leave(ctx, conn, s.queries.shared.leave, b, minHold)
			if err != nil {
				return err
			}
			turns, err := s.advance(ctx, conn, awaited)
			told := make(map[string]bool)
			for i := range reqs {
				name := reqs[i].Name
				res[i].Freed = left[member{name, reqs[i].Acq}]
				if res[i].Freed && !told[name] { // of several that let go, one brings the news
					told[name], res[i].Next = true, s.mine(turns, name)
				}
			}
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}
