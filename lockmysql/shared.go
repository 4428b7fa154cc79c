package lockmysql

import (
	"context"
	"database/sql"

	"github.com/sqllock/sqllock/driver"
)

// grantShared is Grant for those who share: a look, and a transaction for what it
// has found to be had.
func (s *store) grantShared(ctx context.Context, reqs []driver.GrantRequest) (res []driver.GrantResult, err error) {
	for len(reqs) > 0 {
		n := s.fitting(len(reqs), func(i int) int { return textSize(&reqs[i]) })
		j := joining{s: s, reqs: reqs[:n], res: make([]driver.GrantResult, n), crashed: make([]driver.Holder, n)}
		if err := s.do(ctx, j.run); err != nil {
			if len(res) > 0 {
				return nil, &unresolvedError{err}
			}
			return nil, err
		}
		res, reqs = append(res, j.res...), reqs[n:]
	}
	return res, nil
}

// joining is one transaction's share of a call of grantShared.
type joining struct {
	s       *store
	reqs    []driver.GrantRequest
	res     []driver.GrantResult
	crashed []driver.Holder
}

// run tries for a little while: of those who ask for a name at the same time each
// finds its row locked by another, though all can have it.
func (j *joining) run(ctx context.Context, c session) error {
	todo := every(len(j.reqs))
	patience := newPatience(brief)
	wrote := false
	for {
		free, err := j.look(ctx, c, todo)
		if err == nil && len(free) > 0 {
			todo, err = j.take(ctx, c, free)
			wrote = wrote || err == nil && len(todo) < len(free)
		}
		switch {
		case err != nil && wrote:
			return &unresolvedError{err}
		case err != nil:
			return err
		case len(free) == 0, len(todo) == 0, patience.wait(ctx) != nil:
			return nil
		}
	}
}

// look fills the results of the requests at todo and returns which can be had. It
// makes sure that their names have rows, and that they hold nothing that is over.
func (j *joining) look(ctx context.Context, c session, todo []int) (free []int, err error) {
	seats, err := j.s.lookShared(ctx, c, j.batch(todo).String(), len(todo))
	if err != nil {
		return nil, err
	}
	absent := newBatch(1)
	missing := false
	var stale []driver.AbandonRequest
	for k, i := range todo {
		st, r := &seats[k], &j.reqs[i]
		j.res[i] = st.answer(r.Acq)
		switch {
		case st.mine():
			j.res[i] = driver.GrantResult{Granted: true, Found: true, Version: st.version, Remaining: micros(st.until - st.now), Now: st.now}
			continue
		case !st.exists:
			absent.row(r.Name, r.Acq).end()
			missing = true
		case st.held() && !st.expired():
			continue
		case st.gate() > st.now:
			j.res[i].Holder = driver.Holder{Until: st.gate()}
			continue
		}
		j.res[i].Holder = driver.Holder{}
		if st.version > 0 {
			stale = append(stale, driver.AbandonRequest{Name: r.Name, Acq: r.Acq})
		}
		free = append(free, i)
	}
	if missing {
		if _, _, err := c.exec(ctx, j.s.queries.shared.free, absent.String()); err != nil {
			return nil, err
		}
	}
	if len(stale) > 0 {
		return free, j.s.quit(ctx, c, stale)
	}
	return free, nil
}

func (j *joining) batch(which []int) *batch {
	b := newBatch(len(which))
	for _, i := range which {
		b.row(j.reqs[i].Name, j.reqs[i].Acq).end()
	}
	return b
}

// take counts in the requests at which and writes who they are. It returns those
// whose rows were locked, or have changed.
func (j *joining) take(ctx context.Context, c session, which []int) (rest []int, err error) {
	got := make(map[int]driver.GrantResult, len(which))
	err = j.s.briefly(ctx, c, func(tx *sql.Tx) error {
		holders := newBatch(len(which))
		names := make(map[string]*joined, len(which))
		err := j.s.queryStates(ctx, tx, j.s.queries.shared.joinable, j.batch(which), func(k int, st *state) {
			r := &j.reqs[which[k]]
			row := names[r.Name]
			if row == nil {
				row = &joined{state: *st}
				names[r.Name] = row
			}
			got[which[k]] = row.enter(r, holders)
		})
		if err != nil || len(got) == 0 {
			return err
		}
		counts := newBatch(len(names))
		for name, row := range names {
			counts.row(name, driver.ID{}).int(row.holder.Version).int(row.holder.Since).int(int64(row.others)).int(row.othersUntil).end()
		}
		client := &j.s.client
		if _, err := tx.ExecContext(ctx, j.s.queries.shared.enter, client.Instance.String(), digits(client.Label), holders.String()); err != nil {
			return err
		}
		return change(ctx, tx, j.s.queries.shared.join, counts, len(names))
	})
	if err != nil {
		return nil, err
	}
	for _, i := range which {
		if r, ok := got[i]; ok {
			j.res[i] = r
		} else {
			rest = append(rest, i)
		}
	}
	return rest, nil
}

// joined is the row of a name that some more share, as it is to be written.
type joined struct {
	state
	began bool // the one who was first has ended what was there before
}

// enter counts one in. Those of one term have one version.
func (row *joined) enter(r *driver.GrantRequest, holders *batch) driver.GrantResult {
	res := driver.GrantResult{Granted: true, Remaining: r.TTL, Now: row.now}
	until := row.now + r.TTL.Microseconds()
	if !row.began && (row.held() || row.others <= 0 || row.othersUntil <= row.now) {
		res.Crashed = row.crashed(r.Acq)
		row.holder = driver.Holder{Version: max(row.holder.Version+1, row.now), Since: row.now}
		row.others, row.othersUntil = 0, until
	}
	row.began = true
	row.others++
	row.othersUntil = max(row.othersUntil, until)
	res.Version = row.holder.Version
	holders.row(r.Name, r.Acq).int(res.Version).hex([]byte(r.Owner)).int(row.now).int(until).end()
	return res
}

// seat is what a look found of a name and of one who shares it.
type seat struct {
	state
	version, until int64 // 0 if there is nothing
}

// mine reports that the one holds it.
func (st *seat) mine() bool {
	return st.readers > 0 && st.version == st.state.holder.Version && st.until > st.now
}

// lookShared returns the seats of n requests.
func (s *store) lookShared(ctx context.Context, c session, batch string, n int) ([]seat, error) {
	seats := make([]seat, n)
	err := s.read(ctx, c, s.queries.shared.look, []any{batch}, func(rows *sql.Rows) error {
		var i int
		var st seat
		var version, until sql.NullInt64
		err := st.scan(rows, &i, &version, &until)
		if err == nil {
			st.version, st.until = version.Int64, until.Int64
			seats[i] = st
		}
		return err
	})
	return seats, err
}

// briefly calls fn in a transaction, which waits for nobody's rows. It has the
// isolation level of the session, for a server that logs statements takes no writes
// in READ COMMITTED; but a transaction that is SERIALIZABLE would lock what it reads.
func (s *store) briefly(ctx context.Context, c session, fn func(*sql.Tx) error) error {
	return s.inOwnTx(ctx, c, &sql.TxOptions{Isolation: s.level}, fn)
}

// orLocked is briefly for what is to be tried again if fn meets a locked row. It
// reports whether it was done.
func (s *store) orLocked(ctx context.Context, c session, fn func(*sql.Tx) error) (bool, error) {
	switch err := s.briefly(ctx, c, fn); err {
	case nil:
		return true, nil
	case errLocked:
		return false, nil
	default:
		return false, err
	}
}

// queryStates is for statements that lock rows of names and return their states.
func (s *store) queryStates(ctx context.Context, tx *sql.Tx, text string, b *batch, each func(k int, st *state)) error {
	return query(ctx, tx, text, []any{b.String()}, func(rows *sql.Rows) error {
		var k int
		var st state
		err := st.scan(rows, &k)
		if err == nil {
			each(k, &st)
		}
		return err
	})
}

// change changes n rows that are locked.
func change(ctx context.Context, tx *sql.Tx, text string, b *batch, n int) error {
	done, err := tx.ExecContext(ctx, text, b.String())
	if err != nil {
		return err
	}
	if changed, err := done.RowsAffected(); err != nil || changed != int64(n) {
		return errLocked // all or nothing
	}
	return nil
}
