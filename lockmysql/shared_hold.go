package lockmysql

import (
	"context"
	"database/sql"

	"github.com/sqllock/sqllock/driver"
)

// onceShared is renewOnce for those who share. A look always follows, for the statement
// changes the rows of names as well, or does not have to.
func (r *renewing) onceShared(ctx context.Context, todo []int) (busy []int, err error) {
	b := r.batch(todo)
	_, now, err := r.c.exec(ctx, r.s.queries.shared.renew, b.String())
	if err != nil {
		return nil, err
	}
	seats, err := r.s.lookShared(ctx, r.c, b.String(), len(todo))
	if err != nil {
		return nil, err
	}
	for k, i := range todo {
		r.res.Status[i] = seats[k].renewed(&r.reqs[i], now)
		if r.res.Status[i] == driver.Busy {
			busy = append(busy, i)
		}
		r.res.Now = seats[k].now
	}
	return busy, nil
}

// renewed is what state.renewed is for those who do not share.
func (st *seat) renewed(q *driver.RenewRequest, now int64) driver.RenewStatus {
	switch {
	case !st.mine() || st.version != q.Version:
		if st.revoked == q.Version {
			return driver.Revoked
		}
		return driver.Gone
	case now != 0 && st.until >= now+q.TTL.Microseconds():
		return driver.Renewed
	}
	return driver.Busy
}

// leaving is one who leaves: from which term, and whether it held the name until
// now.
type leaving struct {
	name    string
	acq     driver.ID
	version int64
	minHold int64
	at      int // of the request
	live    bool
}

// releaseShared is Release for those who share.
func (s *store) releaseShared(ctx context.Context, reqs []driver.ReleaseRequest) ([]driver.ReleaseResult, error) {
	var res []driver.ReleaseResult
	who := make([]leaving, len(reqs))
	err := s.do(ctx, func(ctx context.Context, c session) error {
		res = make([]driver.ReleaseResult, len(reqs))
		for i := range reqs {
			r := &reqs[i]
			who[i] = leaving{name: r.Name, acq: r.Acq, version: r.Version, minHold: r.MinHold.Microseconds(), at: i}
		}
		left, next, err := s.leave(ctx, c, s.queries.shared.leaving, who)
		for _, l := range left {
			res[l.at].Freed = l.live
			res[l.at].Next = next[l.name]
			delete(next, l.name) // of several who leave one is told
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

func (s *store) quit(ctx context.Context, c session, reqs []driver.AbandonRequest) error {
	who := make([]leaving, len(reqs))
	for i := range reqs {
		who[i] = leaving{name: reqs[i].Name, acq: reqs[i].Acq, minHold: reqs[i].MinHold.Microseconds()}
	}
	_, _, err := s.leave(ctx, c, s.queries.shared.quitting, who)
	return err
}

// leave takes away all of those who are there or, if an error is returned, nobody.
// Who is not found was gone before, or its row is locked: that is for a look to tell.
// It returns whose turn it is, by name.
func (s *store) leave(ctx context.Context, c session, text string, who []leaving) ([]leaving, map[string][]driver.Turn, error) {
	patience := newPatience(brief)
	for len(who) > 0 {
		left, next, err := s.leaveOnce(ctx, c, text, who)
		if err != nil || len(left) == len(who) {
			return left, next, err
		}
		seats, err := s.lookShared(ctx, c, leavers(who).String(), len(who))
		if err != nil {
			return nil, nil, err
		}
		var there []leaving
		for k, l := range who {
			if v := seats[k].version; v != 0 && (l.version == 0 || v == l.version) {
				there = append(there, l)
			}
		}
		if len(there) == len(who) {
			if err := patience.wait(ctx); err != nil {
				return nil, nil, err
			}
		}
		who = there
	}
	return nil, nil, nil
}

func leavers(who []leaving) *batch {
	b := newBatch(len(who))
	for _, l := range who {
		b.row(l.name, l.acq).int(l.version).end()
	}
	return b
}

// leaveOnce takes away all or, if not all can be locked, nobody. Who left another
// than the current term was not counted any more.
func (s *store) leaveOnce(ctx context.Context, c session, text string, who []leaving) (left []leaving, next map[string][]driver.Turn, err error) {
	err = s.briefly(ctx, c, func(tx *sql.Tx) error {
		m := moving{s: s, tx: tx}
		left = nil
		names := make(map[string]*place)
		err := query(ctx, tx, text, []any{leavers(who).String()}, func(rows *sql.Rows) error {
			var i int
			var version, since, until int64
			var st state
			if err := st.scan(rows, &i, &version, &since, &until); err != nil {
				return err
			}
			l := who[i]
			if st.holder.Version == version {
				p := names[st.name]
				if p == nil {
					p = newPlace(&st)
					p.moved = true
					names[st.name] = p
					m.places = append(m.places, p)
				}
				l.live = until > st.now
				p.countOut(since, l.minHold)
			}
			left = append(left, l)
			return nil
		})
		if err != nil || len(left) < len(who) {
			return err
		}
		if err := change(ctx, tx, s.queries.shared.leave, leavers(who), len(who)); err != nil {
			return err
		}
		err = m.handOver(ctx)
		next = m.next()
		return err
	})
	return left, next, err
}

// countOut makes one less of those who share, who had the name since then.
func (st *state) countOut(since, minHold int64) {
	if minHold > 0 {
		st.notBefore = max(st.notBefore, since+minHold)
	}
	if st.others = max(st.others-1, 0); st.others == 0 {
		st.othersUntil, st.expiresAt, st.ended = 0, st.now, driver.EndedReleased
	}
}

// count adds the row as it is to be written.
func (st *state) count(b *batch) {
	b.row(st.name, st.holder.Acq).int(0).int(0).int(int64(st.others)).int(st.othersUntil).
		int(st.expiresAt).int(int64(st.ended)).int(st.notBefore).end()
}
