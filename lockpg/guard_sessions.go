package lockpg

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/sqllock/sqllock/driver"
)

// Guard implements [driver.GuardStore].
func (s *forUpdateStore) Guard(ctx context.Context, tx *sql.Tx, req driver.GuardRequest) (driver.GuardStatus, error) {
	return s.guardIn(ctx, ofSQL(tx), req)
}

// guardIn locks the row of the term, which whoever draws the next token must have
// alone.
func (s *forUpdateStore) guardIn(ctx context.Context, run inTx, req driver.GuardRequest) (driver.GuardStatus, error) {
	var same, current bool
	err := run(ctx, s.texts["guard"], []any{req.Name, req.Acq.String(), req.Version, s.tables.id}, &same, &current)
	return guardStatus(same, current), err
}

// Guard implements [driver.GuardStore].
func (s *advisoryStore) Guard(ctx context.Context, tx *sql.Tx, req driver.GuardRequest) (driver.GuardStatus, error) {
	return s.guardIn(ctx, ofSQL(tx), req)
}

// guardIn takes a lock for the rest of the transaction that the next holder must not
// find, and looks whether the session lives and has the lock of the name. Somebody who has just got the lock of the
// name has the guard's lock for a moment, and it is not known yet whether it stays so.
func (s *advisoryStore) guardIn(ctx context.Context, run inTx, req driver.GuardRequest) (driver.GuardStatus, error) {
	var session, pid int64
	if _, err := fmt.Sscanf(req.Session, "%d of %d", &session, &pid); err != nil {
		return driver.Fenced, fmt.Errorf("%w: the session %q of a lease", driver.ErrInvalidOption, req.Session)
	}
	status := driver.Fenced
	err := retry(ctx, false, func() (bool, error) {
		var found int
		err := run(ctx, s.texts["guard_lock"], []any{s.tables.id, s.guard(req.Name), session, pid, s.key(req.Name)}, &found)
		switch found {
		case 0:
			status = driver.Foreign
		case 3:
			status = driver.Guarded
		}
		return found != 1, tooMany(err)
	})
	return status, err
}
