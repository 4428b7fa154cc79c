package lockpg

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// Release implements driver.LeaseStore. It is one statement, and another for those
// whose names somebody waits for; the first is saved if that is known.
func (s *store) Release(ctx context.Context, reqs []driver.ReleaseRequest) ([]driver.ReleaseResult, error) {
	res := make([]driver.ReleaseResult, len(reqs))
	var plain, guarded, shared, rest []int
	for i := range reqs {
		switch r := &reqs[i]; {
		case r.Awaited:
			rest = append(rest, i)
		case r.Shared:
			shared = append(shared, i)
		case r.Guarded:
			guarded = append(guarded, i)
		default:
			plain = append(plain, i)
		}
	}
	freed := false
	for _, part := range []struct {
		query string
		which []int
	}{{s.queries.release, plain}, {s.queries.releaseGuarded, guarded}, {s.queries.shared.leave, shared}} {
		left, err := s.release(ctx, part.query, reqs, part.which, res)
		if err != nil {
			return nil, after(freed, err)
		}
		freed = freed || len(left) < len(part.which)
		rest = append(rest, left...)
	}
	if err := s.handOver(ctx, reqs, rest, res); err != nil {
		return nil, after(freed, err)
	}
	return res, nil
}

// after is the error of a statement that came after others, which may have changed
// something.
func after(changed bool, err error) error {
	if changed {
		return partly(err)
	}
	return err
}

// release frees the requests at which, where nobody waits. It returns those that it
// has left as they were.
func (s *store) release(ctx context.Context, query string, reqs []driver.ReleaseRequest, which []int, res []driver.ReleaseResult) (left []int, err error) {
	if len(which) == 0 {
		return nil, nil
	}
	for _, at := range which {
		res[at].Freed = true
	}
	err = s.query(ctx, query, releaseArgs(reqs, which), func(rows *sql.Rows) error { // a row for each that was not
		var ord int
		var held bool
		if err := rows.Scan(&ord, &held); err != nil {
			return err
		}
		at := which[ord-1]
		res[at].Freed = false
		if held {
			left = append(left, at)
		}
		return nil
	})
	return left, err
}

func releaseArgs(reqs []driver.ReleaseRequest, which []int) []any {
	n := len(which)
	return []any{
		array(n, func(i int) string { return reqs[which[i]].Name }),
		ids(n, func(i int) driver.ID { return reqs[which[i]].Acq }),
		integers(n, func(i int) int64 { return reqs[which[i]].Version }),
		integers(n, func(i int) int64 { return reqs[which[i]].MinHold.Microseconds() }),
	}
}

// handOver frees the requests at which, and makes those who wait the next holders.
func (s *store) handOver(ctx context.Context, reqs []driver.ReleaseRequest, which []int, res []driver.ReleaseResult) error {
	n := len(which)
	if n == 0 {
		return nil
	}
	args := append(releaseArgs(reqs, which),
		booleans(n, func(i int) bool { return reqs[which[i]].Shared }),
		booleans(n, func(i int) bool { return reqs[which[i]].Guarded }),
		s.client.Instance.String())
	return s.query(ctx, s.queries.line.handOver, args, func(rows *sql.Rows) error {
		var ord int
		var freed bool
		var version, now sql.NullInt64
		var acqs, until sql.NullString
		if err := rows.Scan(&ord, &freed, &version, &now, &acqs, &until); err != nil {
			return err
		}
		r := &res[which[ord-1]]
		r.Freed = freed
		if acqs.String == "" {
			return nil
		}
		ends := strings.Split(until.String, ",")
		for i, text := range strings.Split(acqs.String, ",") {
			turn := driver.Turn{Version: version.Int64, Now: now.Int64}
			var err error
			if turn.Acq, err = parseID(text); err != nil {
				return err
			}
			end, err := strconv.ParseInt(ends[i], 10, 64)
			if err != nil {
				return err
			}
			turn.Remaining = time.Duration(end-turn.Now) * time.Microsecond
			r.Next = append(r.Next, turn)
		}
		return nil
	})
}

// Abandon implements driver.LeaseStore. It is one statement.
func (s *store) Abandon(ctx context.Context, reqs []driver.AbandonRequest) error {
	n := len(reqs)
	args := []any{
		array(n, func(i int) string { return reqs[i].Name }),
		ids(n, func(i int) driver.ID { return reqs[i].Acq }),
		integers(n, func(i int) int64 { return reqs[i].MinHold.Microseconds() }),
		booleans(n, func(i int) bool { return reqs[i].Shared }),
		booleans(n, func(i int) bool { return reqs[i].Guarded }),
		s.client.Instance.String(),
	}
	return s.query(ctx, s.queries.line.abandon, args, func(*sql.Rows) error { return nil })
}
