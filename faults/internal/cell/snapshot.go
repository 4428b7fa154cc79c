//go:build linux

package cell

import (
	"context"
	"database/sql"
	"time"

	"github.com/sqllock/sqllock/faults/internal/client"
	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/faults/internal/server"
)

// reading is the pause between two looks at the tables.
const reading = 50 * time.Millisecond

// hexID is the SQL that turns the column of an ID into hexadecimal digits, or none.
var hexID = map[string]func(column string) string{
	server.Postgres: func(c string) string { return "replace(coalesce(" + c + "::text, ''), '-', '')" },
	server.MariaDB:  func(c string) string { return "coalesce(lower(hex(" + c + ")), '')" },
	server.Galera:   func(c string) string { return "coalesce(lower(hex(" + c + ")), '')" },
	server.SQLite:   func(c string) string { return "lower(hex(coalesce(" + c + ", '')))" },
}

// readRows writes the contents of the tables into the history again and again, until ctx ends. Each
// time it sees them as they were at one moment.
func (s *site) readRows(ctx context.Context) {
	if s.Mode != client.Unique {
		return
	}
	db, err := sql.Open(s.srv.Driver(), s.srv.DSN(""))
	if err != nil {
		panic("bug: " + err.Error())
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	for ctx.Err() == nil {
		e := history.Event{Op: history.Rows, T: history.Now(), Wall: time.Now().UnixMicro()}
		within, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := s.readOnce(within, db, &e)
		cancel()
		if err == nil { // that the server is down is the fault of a nemesis
			e.Until = history.Now()
			s.log.Write(e)
		}
		time.Sleep(reading)
	}
}

// readOnce reads the tables in one transaction, which has one snapshot.
func (s *site) readOnce(ctx context.Context, db *sql.DB, e *history.Event) error {
	opts := &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
	if s.Database == server.SQLite {
		opts = nil
	}
	tx, err := db.BeginTx(ctx, opts)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	return s.readTables(ctx, tx, e)
}

func (s *site) readTables(ctx context.Context, tx *sql.Tx, e *history.Event) error {
	id := hexID[s.Database]
	at := make(map[string]int)
	err := each(ctx, tx, `SELECT name, version, `+id("acq")+`, coalesce(owner, ''), `+id("locker")+`, holds, since, expires_at, not_before,
		permits, waiting, holding, seq, revoked FROM sqllock_lock WHERE name NOT LIKE '`+client.KeptPrefix+`%'`, func(scan func(...any) error) error {
		var r history.Row
		err := scan(&r.Name, &r.Version, &r.Acq, &r.Owner, &r.Locker, &r.Holds, &r.Since, &r.Expires, &r.Before, &r.Permits, &r.Waiting, &r.Holding,
			&r.Seq, &r.Revoked)
		at[r.Name] = len(e.Names)
		e.Names = append(e.Names, r)
		return err
	})
	if err != nil {
		return err
	}
	err = each(ctx, tx, `SELECT name, `+id("acq")+`, state, kind, slot, seq, token, holds, ttl, handed, since, expires_at, `+id("locker")+`, owner
		FROM sqllock_claim ORDER BY seq`, func(scan func(...any) error) error {
		var c history.Claim
		var name string
		var state int
		err := scan(&name, &c.Acq, &state, &c.Kind, &c.Slot, &c.Seq, &c.Token, &c.Holds, &c.TTL, &c.Handed, &c.Since, &c.Expires, &c.Locker, &c.Owner)
		c.Holding = state == 1
		if i, ok := at[name]; ok {
			e.Names[i].Claims = append(e.Names[i].Claims, c)
		}
		return err
	})
	return err
}

// each runs a query and calls row for each row of its result.
func each(ctx context.Context, tx *sql.Tx, query string, row func(scan func(...any) error) error) error {
	rows, err := tx.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
