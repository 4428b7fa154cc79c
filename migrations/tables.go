package migrations

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pressly/goose/v3/lock"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/sqlconn"
)

// querier is what a *sql.DB, a *sql.Conn and a *sql.Tx have in common.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// exists asks a query that answers 1 or 0.
func (m *migrator) exists(ctx context.Context, db querier, query string) (bool, error) {
	var found int
	err := db.QueryRowContext(ctx, m.text(query)).Scan(&found)
	return found > 0, err
}

// checkSession refuses sessions in which nothing commits by itself.
func (m *migrator) checkSession(ctx context.Context) error {
	if m.autocommit == "" {
		return nil
	}
	on, err := m.exists(ctx, m.DB, m.autocommit)
	if err == nil && !on {
		err = fmt.Errorf("%w: autocommit is 0 in this session; remove autocommit from the DSN, or from init_connect",
			driver.ErrUnsupported)
	}
	return err
}

// meta is the row that tells about the tables. The zero meta means that there is
// none.
type meta struct{ version, compatibleFrom int64 }

func (m *migrator) readMeta(ctx context.Context, db querier) (row meta, err error) {
	if found, err := m.exists(ctx, db, m.existsMeta); err != nil || !found {
		return row, err
	}
	err = db.QueryRowContext(ctx, m.text(m.meta)).Scan(&row.version, &row.compatibleFrom)
	if err == nil || errors.Is(err, sql.ErrNoRows) {
		return row, nil
	}
	if found, e := m.exists(ctx, db, m.existsMeta); e == nil && !found { // a Down has just dropped it
		return meta{}, nil
	}
	return row, err
}

// applied is a row of the version table. Version 0 is goose's and always there.
type applied struct {
	version int64
	done    bool // false if it died on the way up or down
	at      time.Time
}

// readVersions returns the version table, the latest row first.
func (m *migrator) readVersions(ctx context.Context, db querier) ([]applied, error) {
	rows, err := db.QueryContext(ctx, m.text(m.applied))
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var list []applied
	for rows.Next() {
		var row applied
		var seconds int64
		if err := rows.Scan(&row.version, &row.done, &seconds); err != nil {
			return nil, err
		}
		row.at = time.Unix(seconds, 0)
		list = append(list, row)
	}
	return list, rows.Err()
}

// readDone returns what was applied to the end, the latest first.
func (m *migrator) readDone(ctx context.Context, db querier) ([]applied, error) {
	list, err := m.readVersions(ctx, db)
	return slices.DeleteFunc(list, func(row applied) bool { return !row.done }), err
}

// newest returns the highest version of list.
func newest(list []applied) (version int64) {
	for _, row := range list {
		version = max(version, row.version)
	}
	return version
}

// merge puts together what is known, what the version table has, and the version that
// the tables tell, which need not stand in that table.
func merge(files []file, rows []applied, version int64) []Migration {
	list := make([]Migration, 0, len(files))
	for _, f := range files {
		step := Migration{Version: f.version, Name: f.name, Applied: f.version <= version}
		if i := slices.IndexFunc(rows, func(row applied) bool { return row.version == f.version }); i >= 0 {
			step.Applied = rows[i].done
			if step.Applied {
				step.AppliedAt = rows[i].at
			}
		}
		list = append(list, step)
	}
	if version > 0 && !slices.ContainsFunc(rows, func(row applied) bool { return row.version == version }) {
		rows = append(slices.Clip(rows), applied{version: version, done: true})
	}
	for _, row := range rows {
		known := slices.ContainsFunc(files, func(f file) bool { return f.version == row.version })
		if !known && row.version > 0 {
			list = append(list, Migration{Version: row.version, Applied: row.done, AppliedAt: row.at})
		}
	}
	slices.SortFunc(list, func(x, y Migration) int { return cmp.Compare(x.Version, y.Version) })
	return list
}

// checkHome refuses to make tables in another schema than that of the tables that are there.
func (m *migrator) checkHome(ctx context.Context) error {
	if m.elsewhere == "" || m.Schema != "" {
		return nil
	}
	var home string
	if err := m.DB.QueryRowContext(ctx, m.text(m.elsewhere)).Scan(&home); err != nil || home == "" {
		return err
	}
	return fmt.Errorf("%w: the tables are in schema %s, and others would be made elsewhere: set search_path to that schema alone, or use lockpg.Schema",
		driver.ErrInvalidOption, home)
}

// createVersions makes the version table if it is not complete, and the schema
// where one is configured.
func (m *migrator) createVersions(ctx context.Context) error {
	found, err := m.exists(ctx, m.DB, m.existsVersions)
	if err != nil {
		return err
	}
	if found {
		// An error is met again below, unless a Down has just dropped it.
		if list, err := m.readVersions(ctx, m.DB); err == nil && len(list) > 0 {
			return nil
		}
	}
	create := m.create
	if m.Schema != "" {
		found, err := m.exists(ctx, m.DB, m.existsSchema)
		if err != nil {
			return err
		}
		if !found {
			create = slices.Insert(slices.Clone(create), len(m.begin), m.createSchema)
		}
	}
	tx, err := m.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := m.execute(ctx, tx, append(slices.Clip(create), m.textFor(m.insert, 0))...); err != nil {
		return err
	}
	return tx.Commit()
}

// forget strikes out what the tables do not know of: they were dropped by hand,
// or by a Down that died on the way, and are made again.
func (m *migrator) forget(ctx context.Context) error {
	return m.alone(ctx, func(tx *sql.Tx) error {
		meta, err := m.readMeta(ctx, tx)
		if err != nil {
			return err
		}
		list, err := m.readVersions(ctx, tx)
		if err != nil {
			return err
		}
		for _, row := range list {
			if row.version > max(0, meta.version) {
				err = errors.Join(err, m.execute(ctx, tx, m.textFor(m.remove, row.version)))
			}
		}
		return err
	})
}

// dropVersions drops the version table if it is empty.
func (m *migrator) dropVersions(ctx context.Context) error {
	if found, err := m.exists(ctx, m.DB, m.existsVersions); err != nil || !found {
		return err
	}
	return m.unlessGone(ctx, m.alone(ctx, func(tx *sql.Tx) error {
		if found, err := m.exists(ctx, tx, m.existsVersions); err != nil || !found {
			return err
		}
		list, err := m.readVersions(ctx, tx)
		if err != nil || newest(list) > 0 {
			return err
		}
		return m.execute(ctx, tx, m.drop)
	}))
}

// unlessGone returns the error of a Down, unless another Down explains it.
func (m *migrator) unlessGone(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if found, e := m.exists(ctx, m.DB, m.existsVersions); e == nil && !found {
		return nil
	}
	return err
}

// alone calls fn in a transaction while nobody else migrates.
func (m *migrator) alone(ctx context.Context, fn func(*sql.Tx) error) (err error) {
	conn, err := m.DB.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if m.hold != "" {
		if err := (*session)(m).SessionLock(ctx, conn); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, (*session)(m).SessionUnlock(context.WithoutCancel(ctx), conn)) }()
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := m.execute(ctx, tx, m.begin...); err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// session lets goose migrate alone where the lock is one of the session. It is
// on the connection that goose migrates with, so that one connection is enough.
type session migrator

var _ lock.SessionLocker = (*session)(nil)

// SessionLock implements [lock.SessionLocker]. If ctx ends the query, the
// connection ends too, and with it what may have been granted.
func (s *session) SessionLock(ctx context.Context, conn *sql.Conn) error {
	if s.acq != "" { // the row of the cluster does it
		return nil
	}
	var held sql.NullBool
	for !held.Bool {
		if err := conn.QueryRowContext(ctx, s.hold).Scan(&held); err != nil {
			return err
		}
		if !held.Valid {
			return errors.New("the server gave no lock: GET_LOCK answered NULL")
		}
	}
	return nil
}

// SessionUnlock implements [lock.SessionLocker]. A connection that may still hold
// the lock does not go back to the pool.
func (s *session) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	if s.acq != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := sqlconn.AfterTx(conn, func() error {
		_, err := conn.ExecContext(ctx, s.release)
		return err
	})
	if err != nil {
		sqlconn.Destroy(conn, nil)
	}
	return nil
}
