package lockmysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/sqllock/sqllock/driver"
)

// Guard implements [driver.GuardStore]. It locks the row of the term, which nobody
// changes but who ends it. It looks outside of the transaction first: the row of a
// term that is not the current one would stay locked too, and keep the current
// holder from releasing it.
func (s *sessions) Guard(ctx context.Context, tx *sql.Tx, req driver.GuardRequest) (driver.GuardStatus, error) {
	if s.isOver(ctx, &req) {
		return driver.Fenced, nil
	}
	status := driver.Guarded
	var id string
	var alive bool
	err := tx.QueryRowContext(ctx, s.texts["guard"], digits(req.Name), req.Version, req.Acq.String()).Scan(&id, &alive)
	if err == nil && !alive {
		status = driver.Fenced
	}
	if errors.Is(err, sql.ErrNoRows) {
		status = driver.Fenced
		err = tx.QueryRowContext(ctx, s.texts["database"]).Scan(&id)
	}
	if err == nil && id != s.base.database {
		status = driver.Foreign
	}
	return status, err
}

// isOver reports that a term is certainly not the current one.
func (s *sessions) isOver(ctx context.Context, req *driver.GuardRequest) (over bool) {
	ctx, cancel := context.WithTimeout(ctx, glance)
	defer cancel()
	_ = s.onControl(ctx, func(ctx context.Context, c session) error {
		terms, err := s.lookFirst(ctx, c, req.Name)
		over = err == nil && (terms[0].Holder.Acq != req.Acq || terms[0].Holder.Version != req.Version)
		return err
	})
	return over
}

// PrepareTx implements [driver.TxStore]. It makes the pin.
func (s *forUpdateStore) PrepareTx(ctx context.Context, req driver.TxRequest) error {
	return s.onControl(ctx, func(ctx context.Context, c session) error {
		missing := map[string]bool{s.identity(): true, digits(req.Name): true}
		err := s.base.read(ctx, c, s.texts["find_pins"], []any{s.identity(), digits(req.Name)}, func(rows *sql.Rows) error {
			var pin string
			err := rows.Scan(&pin)
			delete(missing, pin)
			return err
		})
		if err != nil || len(missing) == 0 {
			return stale(ctx, err)
		}
		return s.patiently(ctx, c, func() error {
			for name := range missing {
				if _, err := c.ExecContext(ctx, s.texts["make_pin"], name); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// identity is the name of a pin, in digits, by which the database is told from
// others. No lock has such a name. A lock on the row of metadata would do as well, but
// keep others from writing there; and to read without a lock would fix what the
// transaction sees, before it has the lock that it asks for.
func (s *forUpdateStore) identity() string { return "00" + strings.ToLower(s.base.database) }

// patiently calls insert, which meets a locked row if somebody else is quicker. Then
// it fails after a second, for which MySQL needs a setting of the session.
func (s *sessions) patiently(ctx context.Context, c session, insert func() error) error {
	if s.base.mariaDB {
		return insert()
	}
	var was int64
	if err := c.QueryRowContext(ctx, queryWaitTimeout).Scan(&was); err != nil {
		return err
	}
	if _, err := c.ExecContext(ctx, querySetTimeout, 1); err != nil {
		return err
	}
	failed := insert()
	if failed != nil && !isAnswer(failed) {
		return failed
	}
	if _, err := c.ExecContext(ctx, querySetTimeout, was); err != nil {
		return fmt.Errorf("%w: %w", errInDoubt, err)
	}
	return failed
}

// TryTx implements [driver.TxStore]. All of its statements lock what they read: one
// that does not would fix what the transaction sees in REPEATABLE READ, before it has
// the lock.
func (s *forUpdateStore) TryTx(ctx context.Context, tx *sql.Tx, req driver.TxRequest) (driver.TxStatus, error) {
	var h host
	known, err := lockPin(ctx, tx, s.texts["pin_server"], s.identity(), h.into()...)
	switch {
	case isTooOld(err):
		return driver.TxTooOld, nil
	case err != nil:
		return 0, err
	case known && !h.writable:
		return 0, errReadOnlyTx
	case !known:
		return driver.TxForeign, nil
	}
	if err := s.reach(ctx, &h); errors.Is(err, driver.ErrNoConnection) {
		return 0, err
	} else if err != nil {
		return driver.TxForeign, nil
	}
	// With NOWAIT the statement fails and leaves the transaction as it was; with SKIP LOCKED it
	// would lock the gap behind a pin that somebody has, in REPEATABLE READ. But where
	// innodb_rollback_on_timeout is set, MariaDB would undo the transaction.
	how := "_now"
	if s.mortal {
		how = "_skip"
	}
	found, err := lockPin(ctx, tx, s.pinText(req.Shared, how), digits(req.Name), new(int))
	switch {
	case found && err == nil:
		return driver.TxTaken, nil
	case err == nil && s.mortal:
		return driver.TxHeld, nil
	case err == nil: // deleted since PrepareTx
		return driver.TxTooOld, nil
	case isHeldTx(err):
		return driver.TxHeld, nil
	case isTooOld(err):
		return driver.TxTooOld, nil
	}
	return 0, err
}

// reach checks that the connection that draws tokens is on server h. If it is on
// another, because it is older than a fail-over, it is replaced first.
func (s *sessions) reach(ctx context.Context, h *host) error {
	if s.host.Load().name == h.name {
		return nil
	}
	return s.onServer(ctx, h, func(context.Context, session) error { return nil })
}

// pinText is what locks a pin: how is what the statement does if it is locked.
func (s *forUpdateStore) pinText(shared bool, how string) string {
	if shared {
		return s.texts["pin_shared"+how]
	}
	return s.texts["pin"+how]
}

func lockPin(ctx context.Context, tx *sql.Tx, text, name string, into ...any) (found bool, err error) {
	err = query(ctx, tx, text, []any{name}, func(rows *sql.Rows) error {
		found = true
		return rows.Scan(into...)
	})
	return found, err
}

// isHeldTx is isHeld for what leaves the transaction as it was: a deadlock does not.
func isHeldTx(err error) bool {
	return numberOf(err) == 1205 || numberOf(err) == 3572
}

// isTooOld reports that a row has changed since the transaction began to read, where
// innodb_snapshot_isolation is set.
func isTooOld(err error) bool {
	return numberOf(err) == 1020
}

// Draw implements [driver.TxStore].
func (s *forUpdateStore) Draw(ctx context.Context, req driver.AcquireRequest) (res driver.AcquireResult, err error) {
	err = s.onControl(ctx, func(ctx context.Context, c session) error {
		terms, err := s.lookFirst(ctx, c, req.Name)
		if err != nil {
			return err
		}
		all, err := s.draw(ctx, s.on(c), []driver.AcquireRequest{req}, terms, nil)
		if err == nil {
			res = all[0]
		}
		return err
	})
	return res, err
}

var errNoTx = fmt.Errorf("%w: GET_LOCK locks for a session, not for a transaction; use for-update mode", driver.ErrUnsupported)

// PrepareTx implements [driver.TxStore].
func (s *advisoryStore) PrepareTx(context.Context, driver.TxRequest) error { return errNoTx }

// TryTx implements [driver.TxStore].
func (s *advisoryStore) TryTx(context.Context, *sql.Tx, driver.TxRequest) (driver.TxStatus, error) {
	return 0, errNoTx
}

// Draw implements [driver.TxStore].
func (s *advisoryStore) Draw(context.Context, driver.AcquireRequest) (driver.AcquireResult, error) {
	return driver.AcquireResult{}, errNoTx
}
