package lockpg

import (
	"context"
	"database/sql"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// grantShared is Grant for those who share. As there, names whose holder was seen
// to have expired are asked for by a second statement.
func (s *store) grantShared(ctx context.Context, reqs []driver.GrantRequest) ([]driver.GrantResult, error) {
	j := joining{store: s, reqs: reqs, res: make([]driver.GrantResult, len(reqs))}
	stale, expired, err := j.join(ctx, every(len(reqs)))
	if err != nil {
		return nil, err
	}
	if len(stale) > 0 { // which their requesters may still be counted for
		if err := j.quit(ctx, stale); err != nil {
			return nil, j.partly(err, stale)
		}
		_, more, err := j.join(ctx, stale)
		if err != nil {
			return nil, j.partly(err, stale)
		}
		expired = append(expired, more...)
	}
	if len(expired) > 0 {
		if err := j.takeOver(ctx, expired); err != nil {
			return nil, j.partly(err, expired)
		}
	}
	return j.res, nil
}

// joining is one call of grantShared.
type joining struct {
	store *store
	reqs  []driver.GrantRequest
	res   []driver.GrantResult
}

// partly is an error of what was done for the requests at which only.
func (j *joining) partly(err error, which []int) error {
	if len(which) < len(j.reqs) {
		return partly(err)
	}
	return err
}

func (j *joining) args(which []int) []any {
	n := len(which)
	return []any{
		array(n, func(i int) string { return j.reqs[which[i]].Name }),
		ids(n, func(i int) driver.ID { return j.reqs[which[i]].Acq }),
		array(n, func(i int) string { return j.reqs[which[i]].Owner }),
		integers(n, func(i int) int64 { return j.reqs[which[i]].TTL.Microseconds() }),
		j.store.client.Instance.String(),
		j.store.client.Label,
	}
}

// join tries the requests at which. It returns those of which something is left
// over from before, and those whose names have a holder that has expired.
func (j *joining) join(ctx context.Context, which []int) (stale, expired []int, err error) {
	i := 0
	err = j.store.query(ctx, j.store.queries.shared.grant, j.args(which), func(rows *sql.Rows) error {
		at := which[i]
		i++
		var won, until, gate sql.NullInt64
		var known, mine bool
		var h nullHolder
		r := driver.GrantResult{}
		if err := rows.Scan(h.into(&won, &known, &mine, &until).then(&gate, &r.Now)...); err != nil {
			return err
		}
		holder, err := h.holder()
		held := holder.Acq != driver.ID{}
		switch {
		case won.Valid:
			r.Granted, r.Version, r.Remaining = true, won.Int64, j.reqs[at].TTL
		case mine:
			r.Granted, r.Found, r.Version = true, true, holder.Version
			r.Remaining = time.Duration(until.Int64-r.Now) * time.Microsecond
		case held && holder.Until > r.Now:
			r.Holder = holder
		case gate.Int64 > r.Now:
			r.Holder.Until = gate.Int64
		case held:
			expired = append(expired, at)
			r.Holder = holder
		case known:
			stale = append(stale, at)
		}
		j.res[at] = r
		return err
	})
	return stale, expired, err
}

func (j *joining) quit(ctx context.Context, which []int) error {
	reqs := make([]driver.AbandonRequest, len(which))
	for i, at := range which {
		reqs[i] = driver.AbandonRequest{Name: j.reqs[at].Name, Acq: j.reqs[at].Acq, Shared: true}
	}
	return j.store.Abandon(ctx, reqs)
}

func (j *joining) takeOver(ctx context.Context, which []int) error {
	i := 0
	return j.store.query(ctx, j.store.queries.shared.takeOver, j.args(which), func(rows *sql.Rows) error {
		at := which[i]
		i++
		var version sql.NullInt64
		var h nullHolder
		r := driver.GrantResult{Granted: true, Remaining: j.reqs[at].TTL}
		if err := rows.Scan(h.into(&version).then(&r.Now)...); err != nil || !version.Valid {
			return err
		}
		var err error
		r.Version = version.Int64
		if at == which[0] || j.reqs[at].Name != j.reqs[which[i-2]].Name { // one of them tells
			r.Crashed, err = h.holder()
		}
		j.res[at] = r
		return err
	})
}

func every(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
