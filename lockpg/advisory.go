package lockpg

import (
	"context"
	"database/sql"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/sqlconn"
)

// OpenAdvisory implements [driver.AdvisoryDatabase].
func (d *Database) OpenAdvisory(ctx context.Context, client driver.Client, opts driver.SessionOptions) (driver.SessionStore, error) {
	s, err := d.openSessions(ctx, client, opts, modeAdvisory)
	if err != nil {
		return nil, err
	}
	s.key = func(name string) int64 { return AdvisoryKey(s.id, name) }
	if d.hash != nil {
		s.key = d.hash
	}
	return &advisoryStore{sessions: s, lift: liftKey(s.id)}, nil
}

// advisoryStore is advisory mode: locks that a session has in the memory of the
// server.
type advisoryStore struct {
	*sessions
	lift int64 // the key of lifting

	lifted *sql.Conn // the last connection on which the sequence was lifted; of whoever has the turn
}

var _ driver.SessionStore = (*advisoryStore)(nil)

// Key implements [driver.SessionStore].
func (s *advisoryStore) Key(name string) string { return keyText(s.key(name)) }

// guard is the key of those who guard a lease of a name.
func (s *advisoryStore) guard(name string) int64 { return guardKey(s.id, name) }

// alone is a Source that has one connection, which is somebody else's.
type alone struct{ conn *sql.Conn }

var _ sqlconn.Source = alone{}

func (a alone) Do(ctx context.Context, fn func(context.Context, *sql.Conn) error) error {
	return fn(ctx, a.conn)
}

func (a alone) Close() error { return nil }

// onControl calls fn with the connection that is kept, for statements that may be
// repeated: see onKept. The sequence was lifted on it.
func (s *advisoryStore) onControl(ctx context.Context, fn func(runner) error) error {
	return tooMany(s.onKept(ctx, func(ctx context.Context, conn *sql.Conn, run runner) error {
		if err := s.liftOnce(ctx, conn, run); err != nil {
			return err
		}
		return fn(run)
	}))
}

func (s *advisoryStore) liftOnce(ctx context.Context, conn *sql.Conn, run runner) error {
	if s.lifted == conn {
		return nil
	}
	err := run(ctx, s.texts["lift"], []any{s.lift}, ignore)
	if err == nil {
		s.lifted = conn
	}
	return err
}

// checkGuards reports whether no transaction guards a lease of one of the names.
// Others who are granted one of them, together with the caller, have its key for a
// moment: that is waited for.
func (s *advisoryStore) checkGuards(ctx context.Context, run runner, names []string) (free bool, err error) {
	args := []any{integers(len(names), func(i int) int64 { return s.guard(names[i]) })}
	err = retry(ctx, false, func() (bool, error) {
		err := run(ctx, s.texts["check_guards"], args, func(rows *sql.Rows) error { return rows.Scan(&free) })
		return free, err
	})
	return free, err
}

// passed is what came of drawing a token.
type passed struct {
	token, gate, now int64
	named            bool // the row of the name says who holds it: it is not up to date
}

// pass draws tokens for locks that the caller has, where nothing else keeps the name.
func (s *advisoryStore) pass(ctx context.Context, run runner, reqs []driver.AcquireRequest) ([]passed, error) {
	n := len(reqs)
	args := []any{
		array(n, func(i int) string { return reqs[i].Name }),
		ids(n, func(i int) driver.ID { return reqs[i].Acq }),
		s.lift,
	}
	all := make([]passed, 0, n)
	err := run(ctx, s.texts["pass"], args, func(rows *sql.Rows) error {
		var p passed
		err := rows.Scan(&p.token, &p.named, &p.gate, &p.now)
		all = append(all, p)
		return err
	})
	return all, err
}
