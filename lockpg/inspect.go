package lockpg

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/sqllock/sqllock/driver"
)

// oldest is the oldest server that is tested, as server_version_num has it.
const oldest = 120000

// server is what a server says of itself.
type server struct {
	version        string
	number         int
	recovery       bool
	readOnly       bool
	fsync          bool
	fullPageWrites bool
	readCommitted  bool   // by default
	persistence    string // of the lock table: p is permanent, "" that there is none
	hasMeta        bool
}

// inspect refuses a server that cannot keep the promises. It also reports
// whether statements must choose their isolation level themselves.
func (d *Database) inspect(ctx context.Context, conn *sql.Conn, q *queries) (info driver.Info, isolate bool, err error) {
	var s server
	if err := conn.QueryRowContext(ctx, queryVersion).Scan(&s.version); err != nil {
		if strings.Contains(err.Error(), "no such function") { // so says SQLite
			err = fmt.Errorf("%w: the handle is not of Postgres: %w", driver.ErrInvalidOption, err)
		}
		return info, false, err
	}
	if !strings.HasPrefix(s.version, "PostgreSQL ") {
		return info, false, fmt.Errorf("%w: the handle is not of Postgres but of %q", driver.ErrInvalidOption, s.version)
	}
	err = conn.QueryRowContext(ctx, queryCheck, q.lockTable, q.metaTable).Scan(&s.number, &s.recovery, &s.readOnly,
		&s.fsync, &s.fullPageWrites, &s.readCommitted, &s.persistence, &s.hasMeta)
	if err != nil {
		return info, false, err
	}
	info.Server, _, _ = strings.Cut(s.version, " on ")
	if err := d.refuse(&s, &info); err != nil {
		return info, false, err
	}
	if s.persistence == "" || !s.hasMeta {
		return info, false, fmt.Errorf("%w: table %s does not exist; create it with migrations.Up or \"sqllock migrate up\"",
			driver.ErrSchema, q.lockTable)
	}
	q.id, err = checkMeta(ctx, conn, q)
	return info, !s.readCommitted, err
}

func (d *Database) refuse(s *server, info *driver.Info) error {
	switch {
	case s.number < oldest:
		return fmt.Errorf("%w: %s is older than PostgreSQL 12", driver.ErrUnsupported, info.Server)
	case s.recovery:
		return fmt.Errorf("%w: the server is a hot standby (in recovery); locks need the primary", driver.ErrUnsupported)
	case s.readOnly:
		return fmt.Errorf("%w: transactions are read-only here (default_transaction_read_only)", driver.ErrUnsupported)
	case s.persistence != "p" && s.persistence != "":
		return fmt.Errorf("%w: the lock table is unlogged or temporary, a crash would empty it; ALTER TABLE … SET LOGGED", driver.ErrUnsupported)
	case s.fsync && s.fullPageWrites:
		return nil
	}
	const what = "fsync or full_page_writes is off: after a crash the server may have forgotten who holds what"
	if d.unsafe {
		info.Warnings = append(info.Warnings, what)
		return nil
	}
	return fmt.Errorf("%w: %s; lockpg.AllowUnsafeDurability accepts that in tests", driver.ErrUnsupported, what)
}

// checkMeta returns the id of the database.
func checkMeta(ctx context.Context, conn *sql.Conn, q *queries) (id string, err error) {
	var version, compatible int64
	if err := conn.QueryRowContext(ctx, q.meta).Scan(&version, &compatible, &id); err != nil {
		return "", fmt.Errorf("%w: table %s cannot be read: %w", driver.ErrSchema, q.metaTable, err)
	}
	return id, driver.CheckSchema(version, compatible)
}
