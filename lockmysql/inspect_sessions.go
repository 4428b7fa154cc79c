package lockmysql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"strings"

	"github.com/sqllock/sqllock/driver"
)

// inspect refuses a server that cannot keep locks in sessions.
func (s *sessions) inspect(ctx context.Context, c session, d *Database) error {
	server, err := d.inspect(ctx, c, s.base)
	if err != nil {
		return err
	}
	if err := server.refuseNodes(); err != nil {
		return err
	}
	s.mortal = server.mariaDB && server.on("innodb_rollback_on_timeout")
	if d.readOnly {
		return checkEngine(ctx, c, s.base.queries.prefix+"term")
	}
	for _, table := range []string{s.base.queries.prefix + "term", s.base.queries.prefix + "pin"} {
		if err := checkEngine(ctx, c, table); err != nil {
			return err
		}
	}
	if err := s.probe(ctx, c); err != nil {
		return err
	}
	return s.checkSticky(ctx, c)
}

// refuseNodes refuses a server whose locks others do not see that write to the same
// tables.
func (s *server) refuseNodes() error {
	if s.on("wsrep_on") {
		return fmt.Errorf("%w: the server is a node of a Galera cluster: what a session has locked is not locked on other nodes; use unique mode", driver.ErrUnsupported)
	}
	return s.refusePrimaries()
}

// probe runs statements over no rows, so that what the server does not understand, or
// the account may not do, shows now.
func (s *sessions) probe(ctx context.Context, c session) error {
	none := newBatch(0).String()
	if _, _, err := c.exec(ctx, s.texts["make_rows"], none); err != nil {
		return err
	}
	if _, _, err := c.exec(ctx, s.texts["release"], none, 0); err != nil {
		return err
	}
	return query(ctx, c, s.texts["pin"], []any{""}, func(*sql.Rows) error { return nil })
}

// checkSticky refuses what moves a session from one connection to another, and a
// server on which GET_LOCK does nothing.
func (s *sessions) checkSticky(ctx context.Context, c session) error {
	key := newMark()
	var got, used, freed sql.NullInt64
	var free sql.NullBool
	var before, after int64
	if err := c.QueryRowContext(ctx, s.texts["mark"], key).Scan(&got, &before); err != nil {
		return err
	}
	if err := c.QueryRowContext(ctx, s.texts["marked"], key, key).Scan(&used, &free, &after); err != nil {
		return err
	}
	if err := c.QueryRowContext(ctx, s.texts["unmark"], key).Scan(&freed); err != nil {
		return err
	}
	switch {
	case before != after:
		return fmt.Errorf("%w: something between here and the server moves sessions between connections (CONNECTION_ID() was %d, then %d); "+
			"use unique mode, or reach the server directly", driver.ErrUnsupported, before, after)
	case got.Int64 != 1 || free.Bool || used.Int64 != after || freed.Int64 != 1:
		return fmt.Errorf("%w: GET_LOCK does not lock here; use unique mode", driver.ErrUnsupported)
	}
	return nil
}

// newMark returns the name of a lock by which a session can be told that lives.
func newMark() string { return "sqllock-session:" + strings.ToLower(rand.Text()) }
