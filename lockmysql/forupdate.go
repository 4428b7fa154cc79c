package lockmysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
	"github.com/sqllock/sqllock/internal/termstore"
)

// OpenForUpdate implements [driver.ForUpdateDatabase]. The TTL must be two seconds or
// more; the server counts it in whole ones, so that it keeps the names of a host that
// has vanished for up to a second longer if it is not. A wait in the database ends
// after a second at most, as the server counts seconds.
func (d *Database) OpenForUpdate(ctx context.Context, client driver.Client, opts driver.SessionOptions) (driver.SessionStore, error) {
	s, err := d.openSessions(ctx, client, opts, modeForUpdate)
	if err != nil {
		return nil, err
	}
	s.Pins = true
	return &forUpdateStore{s}, nil
}

// forUpdateStore is the mode for update: a lock is a row, its pin, that an open
// transaction has locked.
type forUpdateStore struct{ *sessions }

var (
	_ driver.SessionStore = (*forUpdateStore)(nil)
	_ driver.Session      = (*forUpdateSession)(nil)
)

// Key implements [driver.SessionStore].
func (s *forUpdateStore) Key(name string) string { return name }

// Session implements [driver.SessionStore].
func (s *forUpdateStore) Session(ctx context.Context) (driver.Session, error) {
	l, err := s.openLine(ctx)
	if err != nil {
		return nil, err
	}
	f := &forUpdateSession{s: s, line: l, mark: newMark()}
	var got, pid sql.NullInt64
	err = l.ask(ctx, s.texts["mark"], []any{f.mark}, &got, &pid)
	if err == nil && (got.Int64 != 1 || pid.Int64 != l.pid) {
		err = fmt.Errorf("%w: GET_LOCK has answered %v to connection %d, now %d", driver.ErrUnsupported, got, l.pid, pid.Int64)
	}
	if err != nil {
		_ = l.close(false, nil)
		return nil, err
	}
	return f, nil
}

// forUpdateSession has one lock.
type forUpdateSession struct {
	s    *forUpdateStore
	line *line
	mark string // a lock of GET_LOCK, by which others can tell that the session lives

	busy bool // a transaction may be open
	held bool
	acq  driver.ID
	res  driver.AcquireResult
}

// ID implements [driver.Session].
func (f *forUpdateSession) ID() string { return f.mark }

// Gone implements [driver.Session].
func (f *forUpdateSession) Gone() <-chan struct{} { return f.line.Gone() }

var errOneLock = errors.New("lockmysql: a session of the mode for update takes one lock")

// Grant implements [driver.Session]. The token is drawn on the connection that is
// kept: what the transaction of the lock writes would be undone if it were rolled
// back. After that the session is asked once more: if it lives, it had the lock while
// the token was drawn.
func (f *forUpdateSession) Grant(ctx context.Context, reqs []driver.AcquireRequest) ([]driver.AcquireResult, error) {
	if len(reqs) != 1 {
		return nil, errOneLock
	}
	r := &reqs[0]
	if f.held {
		if r.Acq != f.acq {
			return nil, errOneLock
		}
		again := f.res
		again.Found, again.Crashed = true, driver.Holder{}
		return []driver.AcquireResult{again}, nil
	}
	if err := f.s.base.checkValues(reqs); err != nil {
		return nil, err
	}
	got, err := f.lock(ctx, r)
	if err != nil {
		return nil, err
	}
	if !got {
		return []driver.AcquireResult{f.lost(ctx, r)}, nil
	}
	res, err := f.draw(ctx, reqs)
	if err != nil || !res[0].Granted {
		if end := f.rollback(ctx); end != nil && err == nil {
			err = end
		}
		if errors.Is(err, errOtherServer) { // which of the two is the right one is not known
			f.line.End()
		}
		return res, err
	}
	if err := f.ping(ctx); err != nil {
		f.s.undraw(ctx, reqs)
		return nil, err
	}
	f.held, f.acq, f.res = true, r.Acq, res[0]
	return res, nil
}

// draw draws the token of the one request, on the server of the session.
func (f *forUpdateSession) draw(ctx context.Context, reqs []driver.AcquireRequest) (res []driver.AcquireResult, err error) {
	err = f.s.onServer(ctx, &f.line.host, func(ctx context.Context, c session) error {
		terms, err := f.s.lookFirst(ctx, c, reqs[0].Name)
		if err != nil {
			return err
		}
		res, err = f.s.draw(ctx, f.s.on(c), reqs, terms, &mark{key: func(string) string { return f.mark }, pid: f.line.pid})
		return err
	})
	if err != nil {
		f.s.undraw(ctx, reqs)
	}
	return res, err
}

// lost tells who has the lock, as far as that can be found out.
func (f *forUpdateSession) lost(ctx context.Context, r *driver.AcquireRequest) (res driver.AcquireResult) {
	_ = f.s.onControl(ctx, func(ctx context.Context, c session) error {
		terms, err := f.s.lookFirst(ctx, c, r.Name)
		if err == nil {
			res = driver.AcquireResult{Now: terms[0].Now, Holder: terms[0].Known()}
		}
		return err
	})
	return res
}

// lock locks the pin, and leaves no transaction if it does not.
func (f *forUpdateSession) lock(ctx context.Context, r *driver.AcquireRequest) (bool, error) {
	how := "" // the server waits
	if r.Wait < time.Second {
		how = "_now"
	}
	text := f.s.pinText(r.Shared, how)
	wait := rowstore.NewLockWait(min(r.Wait, time.Second))
	for made := 0; ; {
		found, err := f.tryLock(ctx, text, r.Name)
		if found {
			return true, nil
		}
		if err != nil && !isHeld(err) {
			return false, err
		}
		if err == nil { // there is no pin; nobody has it
			if made++; made > drawRounds {
				return false, errLocked
			}
			if err := f.line.exec(ctx, f.s.texts["make_pin"], digits(r.Name)); err != nil && !isHeld(err) {
				return false, err
			}
			continue
		}
		if r.Wait >= time.Second || wait.Pause(ctx) != nil {
			return false, nil
		}
	}
}

// tryLock reports whether there is a pin and it is ours. The transaction has the
// isolation level of the session: a server that logs statements locks no rows for an
// update in READ COMMITTED. It makes no difference, because the transaction reads
// nothing but the pin, and what that locks is the pin alone; or a gap, for as long as
// it takes to see that there is none.
func (f *forUpdateSession) tryLock(ctx context.Context, text, name string) (found bool, err error) {
	err = f.line.do(ctx, func(ctx context.Context, c session) error {
		f.busy = true
		if _, err := c.ExecContext(ctx, queryBegin); err != nil {
			return err
		}
		return query(ctx, c, text, []any{digits(name)}, func(rows *sql.Rows) error {
			found = true
			return rows.Scan(new(int))
		})
	})
	if found && err == nil {
		return true, nil
	}
	if f.line.Over() {
		return false, err
	}
	if end := f.rollback(ctx); end != nil {
		return false, end
	}
	return false, err
}

// isHeld reports that somebody else has locked a row. NOWAIT has an error of its own
// on MySQL.
func isHeld(err error) bool {
	return isHeldTx(err) || numberOf(err) == 1213
}

// rollback ends the transaction, also when ctx has ended. If it cannot, the session
// is over.
func (f *forUpdateSession) rollback(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	err := f.line.exec(ctx, queryRollback)
	if err != nil {
		f.line.End()
		return err
	}
	f.busy = false
	return nil
}

const rollbackTimeout = 5 * time.Second

// ping proves that the session lives, on a server that may be written to: else the
// session is over, because the name may have a holder on another server.
func (f *forUpdateSession) ping(ctx context.Context) error {
	return f.line.do(ctx, func(ctx context.Context, c session) error {
		var writable bool
		err := c.QueryRowContext(ctx, f.s.texts["writable"]).Scan(&writable)
		if err == nil && !writable {
			err = errDemoted
		}
		return err
	})
}

// Renew implements [driver.Session]. It reads no table on the session: the open
// transaction would keep the table from being altered. Whether somebody wants the lock
// back is asked for beside it, and told later if nobody answers.
func (f *forUpdateSession) Renew(ctx context.Context, reqs []driver.RenewRequest) (driver.RenewResults, error) {
	res := driver.RenewResults{Status: make([]driver.RenewStatus, len(reqs))}
	var asked termstore.Revocations
	var beside sync.WaitGroup
	beside.Go(func() { asked = f.revocations(ctx) })
	err := f.ping(ctx)
	beside.Wait()
	if err != nil {
		return res, err
	}
	res.Now = asked.Now
	for i := range reqs {
		res.Status[i] = driver.Ended
		if f.held && reqs[i].Acq == f.acq {
			res.Status[i] = asked.Status(&reqs[i])
		}
	}
	return res, nil
}

// revocations takes so little of the time of a renewal that it cannot make that fail.
func (f *forUpdateSession) revocations(ctx context.Context) (asked termstore.Revocations) {
	ctx, cancel := context.WithTimeout(ctx, min(f.s.timeout*3/4, time.Second))
	defer cancel()
	_ = f.s.onControl(ctx, func(ctx context.Context, c session) (err error) {
		asked, err = f.s.Revocations(ctx, f.s.on(c))
		return stale(ctx, err)
	})
	return asked
}

// Release implements [driver.Session]. The term ends before the lock: so whoever has
// the lock and finds a term knows that its holder has not released it.
func (f *forUpdateSession) Release(ctx context.Context, reqs []driver.ReleaseRequest) ([]bool, error) {
	freed := make([]bool, len(reqs))
	for i := range reqs {
		if !f.held || reqs[i].Acq != f.acq {
			continue
		}
		if !reqs[i].Shared && !reqs[i].Lost {
			err := f.s.onControl(ctx, func(ctx context.Context, c session) error {
				return f.s.EndTerms(ctx, f.s.on(c), reqs[i:i+1])
			})
			if err != nil {
				return nil, err
			}
		}
		f.held = false
		freed[i] = f.rollback(ctx) == nil
	}
	return freed, nil
}

// Close implements [driver.Session].
func (f *forUpdateSession) Close() error {
	return f.line.close(!f.busy && !f.held, func(ctx context.Context) error {
		return f.line.exec(ctx, f.s.texts["unmark"], f.mark)
	})
}
