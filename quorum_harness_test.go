package sqllock_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
	"github.com/sqllock/sqllock/sqllocktest"
)

// nodePrefixes are those of three sets of tables in one SQLite file, which a quorum cannot tell from
// three files. What happens to the file happens to all nodes at the same time; package quorumtest
// has what happens to a minority, on servers too.
var nodePrefixes = []string{"qa_", "qb_", "qc_"}

func nodesOf(db *sql.DB) (nodes []database) {
	for _, p := range nodePrefixes {
		nodes = append(nodes, locksqlite.DB(db, locksqlite.TablePrefix(p)))
	}
	return nodes
}

// quorum is the quorum mode on three nodes of SQLite.
func (e *engine) quorum() sqllocktest.Harness {
	h := e.shared().Unique()
	h.Mode = "quorum"
	h.Brief = os.Getenv("SQLLOCK_TEST_QUORUM") != "full"
	h.Nodes, h.Table, h.MinTTL = len(nodePrefixes), nodeTables(), 9*time.Second
	h.Fresh = func(t testing.TB) string {
		d := testdb.New(t, e.name)
		for _, n := range nodesOf(d.Open(t)) {
			if err := migrations.Up(context.Background(), n); err != nil {
				t.Fatal(err)
			}
		}
		return d.DSN(e.params...)
	}
	h.DSN = h.Fresh
	h.New = func(ctx context.Context, db *sql.DB, o *sqllocktest.Options) (*sqllock.Locker, error) {
		var dbs []driver.UniqueDatabase
		for _, n := range nodesOf(db) {
			dbs = append(dbs, n)
		}
		return sqllock.NewQuorum(ctx, dbs, o.Quorum())
	}
	return h
}

// nodeTables reaches into the tables of all nodes: a % is the prefix.
func nodeTables() *sqllocktest.Table {
	exec := func(text string) func(context.Context, *sql.DB) error {
		return func(ctx context.Context, db *sql.DB) error { return onNodes(ctx, db, text) }
	}
	update := func(set string) func(context.Context, *sql.DB, string) error {
		return func(ctx context.Context, db *sql.DB, name string) error {
			return onNodes(ctx, db, `UPDATE %lock SET `+set+` WHERE name = ?`, name)
		}
	}
	return &sqllocktest.Table{
		Row:     rowOfQuorum,
		Expire:  update(`expires_at = 1`),
		Stretch: update(`expires_at = expires_at + 3600000000`),
		Pin: func(ctx context.Context, conn *sql.Conn, _ string) error { // nobody else writes to the file then
			_, err := conn.ExecContext(ctx, `BEGIN IMMEDIATE`)
			return err
		},
		Unpin: func(ctx context.Context, conn *sql.Conn) error {
			_, err := conn.ExecContext(ctx, `ROLLBACK`)
			return err
		},
		Succeed: func(ctx context.Context, conn *sql.Conn, name string) error {
			const nobody = `X'000000000000000000000000000000ff'`
			if err := onNodes(ctx, conn, `UPDATE %lock SET version = version + 1, acq = `+nobody+`, value = NULL WHERE name = ?`, name); err != nil {
				return err
			}
			_, err := conn.ExecContext(ctx, `COMMIT`)
			return err
		},
		Waiters: func(context.Context, *sql.DB, string) (int, error) { return 0, nil },
		Schema: sqllocktest.Schema{
			NewerSchema: exec(`UPDATE %meta SET schema_version = 99990101000001, compatible_from = 99990101000001`),
			OlderSchema: exec(`UPDATE %meta SET schema_version = 1, compatible_from = 1`),
			DropTables: func(ctx context.Context, db *sql.DB) error {
				return errors.Join(onNodes(ctx, db, `DROP VIEW %locks`), onNodes(ctx, db, `DROP TABLE %lock`))
			},
		},
	}
}

// onNodes runs a statement on the tables of each node.
func onNodes(ctx context.Context, db interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, text string, args ...any) error {
	for _, p := range nodePrefixes {
		if _, err := db.ExecContext(ctx, strings.ReplaceAll(text, "%", p), args...); err != nil {
			return err
		}
	}
	return nil
}

// rowOfQuorum is what a quorum of the rows of a name says: since when the first of them is held, and
// until when most are.
func rowOfQuorum(ctx context.Context, db *sql.DB, name string) (sqllocktest.Row, error) {
	var rows []sqllocktest.Row
	byOwner := make(map[string][]sqllocktest.Row)
	for _, p := range nodePrefixes {
		var r sqllocktest.Row
		err := db.QueryRowContext(ctx, `
			SELECT acq IS NOT NULL, coalesce(owner, ''), coalesce(label, ''), version, holds, since, expires_at
			FROM `+p+`lock WHERE name = ?`, name).
			Scan(&r.Held, &r.Owner, &r.Label, &r.Version, &r.Holds, &r.AcquiredAt, &r.ExpiresAt)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return r, err
		}
		rows, byOwner[r.Owner] = append(rows, r), append(byOwner[r.Owner], r)
	}
	for _, same := range byOwner {
		if len(same) < 2 || !same[0].Held {
			continue
		}
		slices.SortFunc(same, func(a, b sqllocktest.Row) int { return cmp.Compare(b.ExpiresAt, a.ExpiresAt) })
		until := same[1].ExpiresAt
		row := slices.MinFunc(same, func(a, b sqllocktest.Row) int { return cmp.Compare(a.AcquiredAt, b.AcquiredAt) })
		row.ExpiresAt = until
		return row, nil
	}
	if rows = slices.DeleteFunc(rows, func(r sqllocktest.Row) bool { return r.Held }); len(rows) == 0 {
		return sqllocktest.Row{}, sql.ErrNoRows
	}
	return slices.MaxFunc(rows, func(a, b sqllocktest.Row) int { return cmp.Compare(a.Version, b.Version) }), nil
}
