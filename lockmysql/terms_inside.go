package lockmysql

import (
	"context"
	"database/sql"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// lookRows is Look of both modes. share counts who has locks together that nobody has
// alone; it may be nil.
func (s *sessions) lookRows(ctx context.Context, names []string, share counter) ([]driver.Row, error) {
	rows := make([]driver.Row, len(names))
	if len(names) == 0 {
		return rows, nil
	}
	err := s.aside(ctx, func(ctx context.Context, c session) error {
		terms, err := s.lookBy(ctx, c, s.q.lookValues, names)
		if err != nil {
			return err
		}
		for i := range terms {
			rows[i] = terms[i].row()
		}
		return share.count(ctx, c, rows)
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// counter finds out how many sessions share locks.
type counter func(ctx context.Context, c session, names []string) ([]int, error)

// count notes how many share the names that nobody has alone.
func (f counter) count(ctx context.Context, c session, rows []driver.Row) error {
	if f == nil {
		return nil
	}
	var names []string
	var which []int
	for i := range rows {
		if !rows[i].Session {
			names = append(names, rows[i].Name)
			which = append(which, i)
		}
	}
	if names == nil {
		return nil
	}
	readers, err := f(ctx, c, names)
	if err != nil {
		return err
	}
	for k, i := range which {
		if readers[k] > 0 {
			rows[i].Readers, rows[i].Session = readers[k], true
			rows[i].Holder = driver.Holder{Version: rows[i].Holder.Version, Since: rows[i].Holder.Since, Shared: true}
		}
	}
	return nil
}

// listRows is List of both modes.
func (s *sessions) listRows(ctx context.Context, req driver.ListRequest, share counter) (page driver.Page, err error) {
	err = s.onPool(ctx, func(ctx context.Context, c session) error {
		terms, err := s.window(ctx, c, req.After, req.Limit)
		if err != nil {
			return err
		}
		rows := make([]driver.Row, len(terms))
		for i := range terms {
			rows[i] = terms[i].row()
		}
		if err := share.count(ctx, c, rows); err != nil {
			return err
		}
		page = driver.Page{More: len(rows) == req.Limit}
		for _, r := range rows {
			if req.Free || r.Held() || r.Gate > r.Now {
				page.Rows = append(page.Rows, r)
			}
			page.Last = r.Name
		}
		return nil
	})
	return page, err
}

// window returns the next terms after a name.
func (s *sessions) window(ctx context.Context, c session, after string, limit int) (terms []term, err error) {
	err = s.base.read(ctx, c, s.q.window, []any{digits(after), limit}, func(rows *sql.Rows) error {
		var t term
		err := t.scan(rows)
		terms = append(terms, t)
		return err
	})
	return terms, err
}

// Revoke implements [driver.SessionStore]. Those who share a name are not asked:
// nobody has written down who they are.
func (s *sessions) Revoke(ctx context.Context, reqs []driver.RevokeRequest) ([]driver.RevokeResult, error) {
	res := make([]driver.RevokeResult, len(reqs))
	err := s.onPool(ctx, func(ctx context.Context, c session) error {
		for i, req := range reqs {
			var err error
			if res[i], err = s.revoke(ctx, c, req); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

func (s *sessions) revoke(ctx context.Context, c session, req driver.RevokeRequest) (driver.RevokeResult, error) {
	patience := newPatience(brief)
	for {
		terms, err := s.lookBy(ctx, c, s.q.lookValues, []string{req.Name})
		if err != nil {
			return driver.RevokeResult{}, err
		}
		t := &terms[0]
		res := driver.RevokeResult{Row: t.row(), Revoked: (t.held() || t.notBefore > t.now) && (req.Version == 0 || req.Version == t.holder.Version)}
		text := s.q.revoke
		if t.held() && t.alive {
			text = s.q.ask
		}
		if !res.Revoked || t.held() && t.alive && t.asked {
			return res, nil
		}
		n, _, err := c.exec(ctx, text, digits(req.Name), t.holder.Version, idDigits(t.holder.Acq))
		if err != nil || n == 1 {
			return res, err
		}
		if err := patience.wait(ctx); err != nil {
			return driver.RevokeResult{}, err
		}
	}
}

// Sweep implements [driver.SessionStore]. A look finds what there is to do.
func (s *sessions) Sweep(ctx context.Context, req driver.SweepRequest) (res driver.SweepResult, err error) {
	err = s.onPool(ctx, func(ctx context.Context, c session) error {
		terms, err := s.window(ctx, c, req.After, req.Limit)
		if err != nil {
			return err
		}
		res, err = s.clean(ctx, c, req, terms)
		return err
	})
	if err != nil {
		return driver.SweepResult{}, err
	}
	return res, nil
}

// clean does what the terms of a window ask for. It purges first: a failure after
// terms have been ended would hide who has crashed.
func (s *sessions) clean(ctx context.Context, c session, req driver.SweepRequest, terms []term) (res driver.SweepResult, err error) {
	res.Seen, res.More = len(terms), len(terms) == req.Limit
	var idle []string
	var dead []*term
	for i := range terms {
		t := &terms[i]
		switch {
		case t.held() && !t.alive:
			dead = append(dead, t)
		case t.idle(req.Retention):
			idle = append(idle, t.name)
		}
		res.Last = t.name
	}
	if idle != nil {
		if res.Purged, err = s.purge(ctx, c, idle, req.Retention); err != nil {
			return res, err
		}
	}
	for _, t := range dead {
		ended, at, _, err := s.endTerm(ctx, c, t)
		if err != nil {
			if len(res.Crashed) > 0 { // who is told of must not be forgotten
				return res, nil
			}
			return res, err
		}
		if ended {
			res.Crashed = append(res.Crashed, driver.Crash{Name: t.name, Holder: t.crashed(at)})
		}
	}
	return res, nil
}

// purge deletes rows that have been idle for so long. A row that is locked is in use;
// any other can be deleted, because whoever needs it makes it again.
func (s *sessions) purge(ctx context.Context, c session, names []string, retention time.Duration) (int, error) {
	b, age := nameBatch(names).String(), retention.Microseconds()
	if s.pinned {
		if _, _, err := c.exec(ctx, s.q.pinPurge, b); err != nil {
			return 0, err
		}
	}
	n, _, err := c.exec(ctx, s.q.purge, b, age, age, age, age)
	return int(n), err
}

// Turn implements [driver.SessionStore]. It reads before it writes, see store.Turn.
func (s *sessions) Turn(ctx context.Context, every time.Duration) (mine bool, err error) {
	err = s.onPool(ctx, func(ctx context.Context, c session) error {
		due, known := false, false
		err := s.base.read(ctx, c, s.q.due, []any{every.Microseconds()}, func(rows *sql.Rows) error {
			known = true
			return rows.Scan(&due)
		})
		if err == nil && !known {
			_, _, err = c.exec(ctx, s.q.new, nameBatch([]string{""}).String())
			due = true
		}
		if err != nil || !due {
			return err
		}
		n, _, err := c.exec(ctx, s.q.turn, every.Microseconds())
		mine = n > 0
		return err
	})
	return mine, err
}

// asked returns which acquisitions the Locker is asked to give up.
func (s *sessions) asked(ctx context.Context, c session) (at int64, acqs map[driver.ID]bool, err error) {
	acqs = make(map[driver.ID]bool)
	err = s.base.read(ctx, c, s.q.asked, []any{s.client.Instance.String()}, func(rows *sql.Rows) error {
		var acq []byte
		var readOnly string
		err := rows.Scan(&at, &readOnly, &acq)
		if err == nil && !isWritable(readOnly) {
			return errDemoted
		}
		if acq != nil {
			var id driver.ID
			copy(id[:], acq)
			acqs[id] = true
		}
		return err
	})
	return at, acqs, err
}
