package lockpg

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"

	"github.com/sqllock/sqllock/driver"
)

// reconcile makes the session hold what it is known to hold, after a statement over
// requests has failed on the way: the locks of a session outlive the statement that
// took them. If that cannot be done, the session ends. It returns err.
func (s *advisorySession) reconcile(ctx context.Context, reqs []driver.AcquireRequest, err error) error {
	if s.Over() {
		return err
	}
	has, failed := s.ownLocks(ctx)
	if isFull(failed) { // there is not even room to look
		if failed = s.drop(ctx, reqs, nil); failed == nil {
			has, failed = s.ownLocks(ctx)
		}
	}
	if failed == nil {
		failed = s.drop(ctx, reqs, has)
	}
	for key := range s.keys {
		if _, ok := has[key]; !ok && failed == nil {
			failed = fmt.Errorf("sqllock: the server does not know of the advisory lock %d of the session, which is ended", key)
		}
	}
	if failed != nil {
		s.End()
		return errors.Join(err, failed)
	}
	return err
}

// ownLocks returns the keys that the server says the session has, and whether it
// shares them.
func (s *advisorySession) ownLocks(ctx context.Context) (map[int64]bool, error) {
	has := make(map[int64]bool)
	err := s.query(ctx, s.store.texts["own_locks"], nil, func(rows *sql.Rows) error {
		var key int64
		var shared bool
		err := rows.Scan(&key, &shared)
		has[key] = shared
		return err
	})
	return has, err
}

// drop lets go of what requests may have left the session with, of the keys that the
// server says it has, unless that is nil.
func (s *advisorySession) drop(ctx context.Context, reqs []driver.AcquireRequest, has map[int64]bool) error {
	var keys []int64
	var shared []bool
	seen := make(map[int64]bool)
	add := func(key int64, sharing bool) {
		was, known := has[key]
		switch {
		case s.keys[key] > 0 || seen[key] || has != nil && !known:
			return
		case known:
			sharing = was
		}
		seen[key] = true
		keys, shared = append(keys, key), append(shared, sharing)
	}
	for i := range reqs {
		add(s.store.key(reqs[i].Name), reqs[i].Shared)
		add(s.store.guard(reqs[i].Name), false)
	}
	_, err := s.letGo(ctx, keys, shared)
	return err
}

func isFull(err error) bool {
	state, _ := stateOf(err)
	return state == "53200" // out_of_memory
}

// tooMany says in our words that the server's table of locks is full.
func tooMany(err error) error {
	if isFull(err) && !errors.Is(err, driver.ErrTooManyLocks) {
		return fmt.Errorf("%w: see max_locks_per_transaction: %w", driver.ErrTooManyLocks, err)
	}
	return err
}

func keyText(key int64) string { return strconv.FormatInt(key, 10) }
