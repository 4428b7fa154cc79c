package migrations

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"time"
)

// On a Galera cluster the lock of a session is one of its node: on each node somebody else can
// have it. So whoever migrates there holds a row instead, on which the nodes agree: the table
// "sqllock_migrating" has it. The row expires, so that nobody waits for ever for a process that
// died. Before each statement its holder extends it, on the same connection. Nothing of that
// happens if the tables are current.

// silence is for how long the row is kept for a process that runs no statement.
const silence = 30 * time.Second

// cluster is the SQL of that row, see dialect. {until} is when it expires.
type cluster struct {
	variable string // answers with a name and a value if the server may be a node
	exists   string // answers 1 or 0
	create   string
	look     string // how many rows there are, and whether somebody holds it
	insert   string // makes it, held by nobody
	take     string // changes the row if nobody holds it
	extend   string // changes it if it is held by {acq}
	free     string
	drop     string
}

const microseconds = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`

var galera = cluster{
	variable: `SHOW SESSION VARIABLES LIKE 'wsrep_on'`,
	exists:   `SELECT count(*) FROM information_schema.tables WHERE table_schema = database() AND table_name = '{migrating-}'`,
	create: `CREATE TABLE IF NOT EXISTS {migrating} (
	one        tinyint NOT NULL PRIMARY KEY,
	acq        binary(16) NOT NULL,
	expires_at bigint NOT NULL
) ENGINE = InnoDB`,
	look:   `SELECT count(*), COALESCE(MAX(expires_at > ` + microseconds + `), 0) FROM {migrating}`,
	insert: `INSERT IGNORE INTO {migrating} (one, acq, expires_at) VALUES (1, '', 0)`,
	take:   `UPDATE {migrating} SET acq = UNHEX('{acq}'), expires_at = ` + microseconds + ` + {silence} WHERE one = 1 AND expires_at <= ` + microseconds,
	extend: `UPDATE {migrating} SET expires_at = GREATEST(expires_at + 1, ` + microseconds + ` + {silence}) WHERE one = 1 AND acq = UNHEX('{acq}')`,
	free:   `UPDATE {migrating} SET expires_at = 0 WHERE one = 1 AND acq = UNHEX('{acq}')`,
	drop:   `DROP TABLE IF EXISTS {migrating}`,
}

// errTaken says that another process migrates, because this one was silent for too long.
var errTaken = errors.New("another process has begun to migrate meanwhile")

// isNode reports whether the server is a node of a cluster whose nodes do not see each other's
// locks.
func (m *migrator) isNode(ctx context.Context) (bool, error) {
	if m.cluster.variable == "" {
		return false, nil
	}
	var name, value string
	err := m.DB.QueryRowContext(ctx, m.cluster.variable).Scan(&name, &value)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil && !strings.EqualFold(value, "OFF") && value != "0", err
}

// exclusive calls fn, on a cluster while no process on another node is in its own. idle reports
// that there is nothing to do; it only reads. It is asked again after each wait.
func (m *migrator) exclusive(ctx context.Context, idle func(context.Context) (bool, error), fn func(context.Context) error) error {
	node := false
	err := m.retry(ctx, func(ctx context.Context) (err error) {
		node, err = m.isNode(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if !node {
		return fn(ctx)
	}
	for {
		done, err := m.enter(ctx, idle)
		if err != nil || done {
			return err
		}
		err = fn(ctx)
		m.leave(ctx, err)
		if !errors.Is(err, errTaken) {
			return err
		}
	}
}

// enter waits until this process holds the row, or there is nothing to do.
func (m *migrator) enter(ctx context.Context, idle func(context.Context) (bool, error)) (done bool, err error) {
	for {
		taken := false
		err := m.retry(ctx, func(ctx context.Context) (err error) {
			if done, err = idle(ctx); err == nil && !done {
				taken, err = m.take(ctx)
			}
			return err
		})
		if err != nil || done || taken {
			return done, err
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("waited for a process that migrates: %w", context.Cause(ctx))
		case <-time.After(100*time.Millisecond + mathrand.N(100*time.Millisecond)):
		}
	}
}

// take tries to get the row. It makes the table if there is none, and the row. While somebody
// holds it, it reads only.
func (m *migrator) take(ctx context.Context) (taken bool, err error) {
	found, err := m.exists(ctx, m.DB, m.cluster.exists)
	if err != nil {
		return false, err
	}
	if !found {
		if _, err := m.DB.ExecContext(ctx, m.text(m.cluster.create)); err != nil {
			return false, err
		}
	}
	var rows int
	var held bool
	err = m.DB.QueryRowContext(ctx, m.text(m.cluster.look)).Scan(&rows, &held)
	if err == nil && rows == 0 {
		_, err = m.DB.ExecContext(ctx, m.text(m.cluster.insert))
	}
	if err != nil || held {
		return false, m.unlessDropped(ctx, err)
	}
	acq := make([]byte, 16)
	_, _ = rand.Read(acq) // never fails
	m.acq = hex.EncodeToString(acq)
	if taken, err = changed(m.DB.ExecContext(ctx, m.rowText(m.cluster.take))); !taken {
		m.acq = ""
	}
	return taken, m.unlessDropped(ctx, err)
}

// unlessDropped returns the error of a statement about the row, unless a Down explains it, which
// drops the table last.
func (m *migrator) unlessDropped(ctx context.Context, err error) error {
	if err == nil || m.Retryable(err) {
		return err
	}
	if found, e := m.exists(ctx, m.DB, m.cluster.exists); e == nil && !found {
		return nil
	}
	return err
}

// extendRow keeps the row, on the connection that migrates. It fails if another process has it.
func (m *migrator) extendRow(ctx context.Context, tx *sql.Tx) error {
	if m.acq == "" {
		return nil
	}
	held, err := changed(tx.ExecContext(ctx, m.rowText(m.cluster.extend)))
	if err == nil && !held {
		return errTaken
	}
	return err
}

// leave gives the row up. If it cannot, the row expires. After a Down that has dropped the tables it
// drops the table of the row, too.
func (m *migrator) leave(ctx context.Context, failed error) {
	free := m.rowText(m.cluster.free)
	m.acq = ""
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if failed == nil {
		if found, err := m.exists(ctx, m.DB, m.existsVersions); err == nil && !found {
			_, _ = m.DB.ExecContext(ctx, m.text(m.cluster.drop))
			return
		}
	}
	_, _ = m.DB.ExecContext(ctx, free)
}

// rowText is text with what the statements about the row need.
func (m *migrator) rowText(statement string) string {
	return strings.NewReplacer("{acq}", m.acq, "{silence}", fmt.Sprint(silence.Microseconds())).Replace(m.text(statement))
}

// changed reports that a statement has changed a row.
func changed(res sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}
