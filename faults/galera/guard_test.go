//go:build linux && galera

package galera

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/lockmysql"
)

// bulk is how many rows keep a node from hearing of what is committed after them, for a second or
// so: it applies what the others have committed in its order.
const bulk = 100_000

// lag has another node commit so much that the first one is behind.
func (n *node) lag(t *testing.T) {
	t.Helper()
	mustExec(t, n.db, `INSERT INTO bulk (filler) SELECT REPEAT('x', 150) FROM seq_1_to_1000000 LIMIT ?`, bulk)
}

// succeed makes the caller of another node the holder, by force, and writes. Former holders on the
// first node do not hear of it at once.
func (n *node) succeed(t *testing.T, name string) {
	t.Helper()
	n.lag(t)
	if _, err := n.locks.ForceUnlock(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	lease, err := n.locks.Lock(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, n.db, `INSERT INTO work (name, who) VALUES (?, 'successor')`, name)
	t.Cleanup(func() { _ = lease.Unlock(context.Background()) })
}

func write(ctx context.Context, tx *sql.Tx, name string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO work (name, who) VALUES (?, 'former holder')`, name)
	return err
}

// lock locks a name, whose lease ends with the test.
func (n *node) lock(t *testing.T, name string) *sqllock.Lease {
	t.Helper()
	lease, err := n.locks.Lock(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lease.Unlock(context.Background()) })
	return lease
}

// inTx calls fn in a transaction and commits.
func (n *node) inTx(ctx context.Context, opts *sql.TxOptions, fn func(tx *sql.Tx) error) error {
	tx, err := n.db.BeginTx(ctx, opts)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// unprotected shows that the former holder is behind: its transaction asks nothing, and commits.
func unprotected(t *testing.T, n *node, name string, succeeded func()) error {
	n.lock(t, name)
	return n.inTx(t.Context(), nil, func(tx *sql.Tx) error {
		if err := write(t.Context(), tx, name); err != nil {
			return err
		}
		succeeded()
		if heard := number(t, n.db, `SELECT COUNT(*) FROM work WHERE name = ? AND who = 'successor'`, name); heard > 0 {
			t.Error("the node has heard of the successor: this shows nothing")
		}
		return nil
	})
}

// protected are the ways to bind a transaction to a lease. Each calls succeeded before it commits.
var protected = map[string]func(t *testing.T, n *node, name string, succeeded func()) error{
	"InTx": func(t *testing.T, n *node, name string, succeeded func()) error {
		return n.lock(t, name).InTx(t.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
			defer succeeded()
			return write(ctx, tx, name)
		})
	},
	"Guard in READ COMMITTED": func(t *testing.T, n *node, name string, succeeded func()) error {
		lease := n.lock(t, name)
		return n.inTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(tx *sql.Tx) error {
			if err := lease.Guard(t.Context(), tx); err != nil {
				return err
			}
			defer succeeded()
			return write(t.Context(), tx, name)
		})
	},
	"Guard of several": func(t *testing.T, n *node, name string, succeeded func()) error {
		leases, err := n.locks.LockAll(t.Context(), []string{"a " + name, name, "z " + name})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = leases.Unlock(context.Background()) })
		return leases.InTx(t.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
			defer succeeded()
			return write(ctx, tx, name)
		})
	},
	"UnlockTx": func(t *testing.T, n *node, name string, succeeded func()) error {
		lease := n.lock(t, name)
		return n.inTx(t.Context(), nil, func(tx *sql.Tx) error {
			if err := write(t.Context(), tx, name); err != nil {
				return err
			}
			if err := lease.UnlockTx(t.Context(), tx); err != nil {
				return err
			}
			succeeded()
			return nil
		})
	},
	"UnlockInTx": func(t *testing.T, n *node, name string, succeeded func()) error {
		return n.lock(t, name).UnlockInTx(t.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
			defer succeeded()
			return write(ctx, tx, name)
		})
	},
	"InTx of Once": func(t *testing.T, n *node, name string, succeeded func()) error {
		_, err := n.locks.Once(t.Context(), name, "a key", func(ctx context.Context, run *sqllock.Run) error {
			return run.InTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
				defer succeeded()
				return write(ctx, tx, name)
			})
		})
		return err
	},
	"Fence": func(t *testing.T, n *node, name string, succeeded func()) error {
		lease := n.lock(t, name)
		fence := func(tx *sql.Tx) error { return lockmysql.Fence(t.Context(), tx, name, lease.Token()) }
		if err := n.inTx(t.Context(), nil, fence); err != nil { // the next write of the term raises no token
			return err
		}
		return n.inTx(t.Context(), nil, func(tx *sql.Tx) error {
			if err := errors.Join(fence(tx), write(t.Context(), tx, name)); err != nil {
				return err
			}
			succeeded()
			return nil
		})
	},
}

// What a former holder writes is not committed once another node has granted the name, though the
// node of the former holder has not heard of that.
func TestAFormerHolderCommitsNothing(t *testing.T) {
	all := start(t)
	t.Run("the node is behind", func(t *testing.T) {
		if err := unprotected(t, all[0], t.Name(), func() { all[1].succeed(t, t.Name()) }); err != nil {
			t.Errorf("a transaction that nothing protects: %v", err)
		}
		settle(t, all[0].db)
	})
	for what, transaction := range protected {
		t.Run(what, func(t *testing.T) {
			name := t.Name()
			err := transaction(t, all[0], name, func() {
				all[1].succeed(t, name)
				if what == "Fence" {
					successor := func(tx *sql.Tx) error { return lockmysql.Fence(t.Context(), tx, name, 1<<52) }
					if err := all[1].inTx(t.Context(), nil, successor); err != nil {
						t.Fatal(err)
					}
				}
			})
			check(t, all[2], name, err)
		})
	}
	t.Run("Guard of a permit", func(t *testing.T) {
		name := t.Name()
		s, err := all[0].locks.Semaphore(name, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		permit, err := s.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = permit.Unlock(context.Background()) })
		err = permit.InTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx *sql.Tx) error {
			defer func() {
				all[1].lag(t)
				if _, err := all[1].locks.ForceUnlock(t.Context(), name); err != nil {
					t.Fatal(err)
				}
				other, err := all[1].locks.Semaphore(name, 1, nil)
				if err != nil {
					t.Fatal(err)
				}
				successor, err := other.Acquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = successor.Unlock(context.Background()) })
			}()
			return write(ctx, tx, name)
		})
		check(t, all[2], name, err)
	})
}

// check looks for what a former holder has written.
func check(t *testing.T, n *node, name string, err error) {
	t.Helper()
	var conflict *mysql.MySQLError
	if !errors.As(err, &conflict) || conflict.Number != 1213 {
		t.Errorf("the transaction of a former holder: %v; want error 1213", err)
	}
	settle(t, n.db)
	if wrote := number(t, n.db, `SELECT COUNT(*) FROM work WHERE name = ? AND who = 'former holder'`, name); wrote > 0 {
		t.Error("a former holder has written after its successor was granted the name")
	}
}

// A Locker that was made on a server that is no node does not guard on one that is.
func TestAHandleThatComesToANodeIsNoticed(t *testing.T) {
	all := start(t)
	alone, err := sql.Open("mysql", dsn(0)+"&wsrep_on=OFF") // what it writes, the other nodes do not get
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = alone.Close() }()
	locks, err := sqllock.NewUnique(t.Context(), lockmysql.DB(alone), &sqllock.UniqueOptions{
		Reaper: &sqllock.ReaperOptions{Off: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { mustExec(t, alone, `DELETE FROM sqllock_lock WHERE name = ?`, t.Name()) }()
	defer func() { _ = locks.Close(context.Background()) }()
	lease, err := locks.Lock(t.Context(), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lease.Unlock(context.Background()) }()
	guard := func(tx *sql.Tx) error { return lease.Guard(t.Context(), tx) }
	if err := all[0].inTx(t.Context(), nil, guard); !errors.Is(err, sqllock.ErrUnsupported) {
		t.Errorf("a transaction on a node: %v", err)
	}
	if err := (&node{db: alone}).inTx(t.Context(), nil, guard); err != nil {
		t.Errorf("a transaction that is on none: %v", err)
	}
}

// A transaction of the holder commits if nobody else changes who holds the name or waits for it, and
// renewals wait meanwhile.
func TestAHolderCommits(t *testing.T) {
	all := start(t)
	for round := range 20 {
		n := all[round%len(all)]
		err := n.locks.Do(t.Context(), t.Name(), func(ctx context.Context, lease *sqllock.Lease) error {
			return lease.InTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error { return write(ctx, tx, t.Name()) })
		})
		if err != nil {
			t.Errorf("round %d: %v", round, err)
		}
	}
	settle(t, all[0].db)
	if wrote := number(t, all[0].db, `SELECT COUNT(*) FROM work WHERE name = ?`, t.Name()); wrote != 20 {
		t.Errorf("%d of 20 writes are there", wrote)
	}
}

// The constructor says what is different, and the session modes are refused.
func TestANodeIsNoticed(t *testing.T) {
	all := start(t)
	if _, err := sqllock.NewForUpdate(t.Context(), lockmysql.DB(all[0].db), nil); !errors.Is(err, sqllock.ErrUnsupported) {
		t.Errorf("for-update mode: %v", err)
	}
	if _, err := sqllock.NewAdvisory(t.Context(), lockmysql.DB(all[0].db), nil); !errors.Is(err, sqllock.ErrUnsupported) {
		t.Errorf("advisory mode: %v", err)
	}
	var warned strings.Builder
	locks, err := sqllock.NewUnique(t.Context(), lockmysql.DB(all[0].db), &sqllock.UniqueOptions{Logger: logTo(&warned)})
	if err != nil {
		t.Fatal(err)
	}
	if err := locks.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for _, word := range []string{"Galera", "1213", "wsrep_sync_wait=7"} {
		if !strings.Contains(warned.String(), word) {
			t.Errorf("the constructor does not say %q: %s", word, &warned)
		}
	}
}
