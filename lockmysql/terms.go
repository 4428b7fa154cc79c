package lockmysql

import (
	"context"
	"database/sql"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// term is what a look found in the table of terms.
type term struct {
	now       int64
	exists    bool
	name      string
	holder    driver.Holder // of the last term, without Acq if it was ended; Until is when
	holds     int
	notBefore int64
	delay     int64 // the lock delay of the holder
	ended     driver.Ending
	revoked   int64
	asked     bool // the holder was asked to give up
	alive     bool // its session lives
	readOnly  string
	value     []byte
}

// held reports that the row names a holder, whose session may be gone.
func (t *term) held() bool { return t.holder.Acq != driver.ID{} }

// other reports that the row names a holder other than acq.
func (t *term) other(acq driver.ID) bool { return t.held() && t.holder.Acq != acq }

// gated reports that something other than a holder keeps the name from acq.
func (t *term) gated(acq driver.ID) bool { return t.notBefore > t.now && t.holder.Acq != acq }

// crashed is the holder, who is over now.
func (t *term) crashed(now int64) driver.Holder {
	h := t.holder
	h.Until = now
	return h
}

// known is who holds the name, for somebody who lost against it.
func (t *term) known() driver.Holder {
	if !t.held() || !t.alive {
		return driver.Holder{}
	}
	return t.holder
}

// idle reports that nothing was done with the row for so long.
func (t *term) idle(retention time.Duration) bool {
	before := t.now - retention.Microseconds()
	return !t.held() && t.notBefore <= t.now && t.holder.Until <= before && t.holder.Version < before
}

// row is the term as others see it.
func (t *term) row() driver.Row {
	r := driver.Row{Name: t.name, Holder: t.holder, Holds: t.holds, Gate: t.notBefore, Ended: t.ended, Revoked: t.revoked, Value: t.value, Now: t.now}
	if t.held() {
		r.Session = t.alive
		if !t.alive { // nobody knows since when
			r.Holder.Until = t.now
		}
	}
	return r
}

// scan reads the columns of queryTerm and what follows.
func (t *term) scan(rows *sql.Rows, more ...any) error {
	var name, owner, label sql.NullString
	var acq []byte
	var version, since, until, holds, notBefore, delay, ended, revoked sql.NullInt64
	err := rows.Scan(append([]any{&t.now, &name, &acq, &owner, &label, &version, &since, &until, &holds,
		&notBefore, &delay, &ended, &revoked, &t.asked, &t.readOnly, &t.alive}, more...)...)
	t.exists, t.name = name.Valid, name.String
	t.holder = driver.Holder{Owner: owner.String, Label: label.String, Version: version.Int64, Since: since.Int64, Until: until.Int64}
	copy(t.holder.Acq[:], acq)
	t.holds, t.notBefore, t.delay = int(holds.Int64), notBefore.Int64, delay.Int64
	t.ended, t.revoked = driver.Ending(ended.Int64), revoked.Int64
	return err
}

// look returns the terms of names, in their order, of a server that may be written to.
func (s *sessions) look(ctx context.Context, c session, names ...string) ([]term, error) {
	terms, err := s.lookBy(ctx, c, s.q.look, names)
	if err == nil && !isWritable(terms[0].readOnly) {
		err = errDemoted
	}
	return terms, err
}

func (s *sessions) lookBy(ctx context.Context, c session, text string, names []string) ([]term, error) {
	terms := make([]term, len(names))
	err := s.base.read(ctx, c, text, []any{nameBatch(names).String()}, func(rows *sql.Rows) error {
		var i int
		var t term
		err := t.scan(rows, &i, &t.value)
		if err == nil {
			t.name = names[i]
			terms[i] = t
		}
		return err
	})
	return terms, err
}

// endTerm ends a term whose session is gone, and reports whether it did: somebody
// else may have been quicker, or has locked the row. It returns until when the lock
// delay keeps the name.
func (s *sessions) endTerm(ctx context.Context, c session, t *term) (ended bool, at, until int64, err error) {
	n, at, err := c.exec(ctx, s.q.end, digits(t.name), t.holder.Version, idDigits(t.holder.Acq))
	until = t.notBefore
	if t.delay > 0 {
		until = max(until, at+t.delay)
	}
	return n == 1, at, until, err
}

// releaseTerms writes that terms have ended by a release: all of those that are still
// the current ones or, if an error is returned, none. errLocked says that a
// transaction guards one.
func (s *sessions) releaseTerms(ctx context.Context, c session, reqs []driver.ReleaseRequest) error {
	todo := every(len(reqs))
	patience := newPatience(brief)
	for len(todo) > 0 {
		b := newBatch(len(todo))
		names := make([]string, len(todo))
		for k, i := range todo {
			b.row(reqs[i].Name, reqs[i].Acq).int(reqs[i].Version).int(reqs[i].MinHold.Microseconds()).end()
			names[k] = reqs[i].Name
		}
		n, _, err := c.exec(ctx, s.q.release, b.String(), len(todo))
		if err != nil || n == int64(len(todo)) {
			return err
		}
		terms, err := s.look(ctx, c, names...)
		if err != nil {
			return err
		}
		var current []int
		for k, i := range todo {
			if terms[k].holder.Acq == reqs[i].Acq && terms[k].holder.Version == reqs[i].Version {
				current = append(current, i)
			}
		}
		if len(current) == len(todo) {
			if err := patience.wait(ctx); err != nil {
				return err
			}
		}
		todo = current
	}
	return nil
}
