package locksqlite

import (
	"context"
	"database/sql"
	"slices"

	"github.com/sqllock/sqllock/driver"
)

// Abandon implements [driver.LeaseStore]. It is called again and again for what is
// long gone, so it looks first: that needs no write lock.
func (s *store) Abandon(ctx context.Context, reqs []driver.AbandonRequest) error {
	b := newBatch(len(reqs))
	for i := range reqs {
		b.add(i, reqs[i].Name, reqs[i].Acq)
	}
	return s.do(ctx, len(reqs), func(ctx context.Context, conn *sql.Conn) error {
		var left []driver.AbandonRequest
		err := query(ctx, conn, s.queries.line.left, b.args(), func(scan func(...any) error) error {
			var key int
			if err := scan(&key); err != nil {
				return err
			}
			left = append(left, reqs[key])
			return nil
		})
		if err != nil || len(left) == 0 {
			return err
		}
		return s.immediate(ctx, conn, func(ctx context.Context) error { return s.abandon(ctx, conn, left) })
	})
}

// abandon ends, in a transaction, what acquisitions hold and what they wait for, and
// hands over what became free by that.
func (s *store) abandon(ctx context.Context, conn *sql.Conn, reqs []driver.AbandonRequest) error {
	all, alone, shared := newBatch(len(reqs)), newBatch(len(reqs)), newBatch(len(reqs))
	minHold := make(map[member]int64)
	for i := range reqs {
		r := &reqs[i]
		all.add(i, r.Name, r.Acq)
		if r.Shared {
			shared.add(i, r.Name, r.Acq)
			minHold[member{r.Name, r.Acq}] = r.MinHold.Microseconds()
		} else {
			alone.add(i, r.Name, r.Acq, r.MinHold.Microseconds())
		}
	}
	_, moved, err := s.leave(ctx, conn, s.queries.shared.quit, shared, minHold)
	if err != nil {
		return err
	}
	err = query(ctx, conn, s.queries.abandon, alone.args(), func(scan func(...any) error) error {
		var name string
		var awaited bool
		err := scan(&name, &awaited)
		if awaited {
			moved = append(moved, name)
		}
		return err
	})
	if err != nil {
		return err
	}
	err = query(ctx, conn, s.queries.line.cancel, all.args(), func(scan func(...any) error) error {
		var name string
		err := scan(&name)
		moved = append(moved, name)
		return err
	})
	if err != nil {
		return err
	}
	slices.Sort(moved)
	_, err = s.advance(ctx, conn, slices.Compact(moved))
	return err
}
