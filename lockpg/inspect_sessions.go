package lockpg

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/sqlconn"
)

// inspectSessions refuses a server that cannot keep locks in sessions. It also
// reports whether statements must choose their isolation level themselves.
func (d *Database) inspectSessions(ctx context.Context, conn *sql.Conn, s *sessions, mode string) (info driver.Info, isolate bool, err error) {
	var version string
	if err := conn.QueryRowContext(ctx, openTexts["version"]).Scan(&version); err == nil {
		if d.version != nil {
			version = d.version(version)
		}
		if err := refuseEngine(version); err != nil {
			return info, false, err
		}
	}
	functions := ""
	if mode == modeAdvisory {
		functions = "try_1"
	}
	info, isolate, err = d.inspect(ctx, conn, &s.tables, functions)
	if err != nil {
		return info, false, err
	}
	s.texts = s.tables.sessions(mode)
	if err := checkSessionTables(ctx, conn, s, mode, &info); err != nil {
		return info, false, err
	}
	return info, isolate, checkDirect(ctx, conn, s.pool, d.sessionPooler)
}

// refuseEngine refuses what speaks as Postgres does and keeps no locks in sessions,
// or on one of its nodes only.
func refuseEngine(version string) error {
	for _, e := range []struct{ mark, name string }{
		{"cockroachdb", "CockroachDB"}, {"-yb-", "YugabyteDB"}, {"redshift", "Redshift"}, {"greenplum", "Greenplum"}, {"spanner", "Spanner"},
		{"materialize", "Materialize"}, {"cratedb", "CrateDB"},
	} {
		if strings.Contains(strings.ToLower(version), e.mark) {
			instead := "it is not supported in any mode"
			if majorVersion(version) >= oldest/10000 {
				instead = "use unique mode (NewUnique)"
			}
			return fmt.Errorf("%w: the server is %s (%q), which does not keep the locks of sessions as Postgres does; %s",
				driver.ErrUnsupported, e.name, version, instead)
		}
	}
	return nil
}

// majorVersion is 15 for "PostgreSQL 15.2 on …", and 0 for the text of another product.
func majorVersion(version string) (major int) {
	_, _ = fmt.Sscanf(version, "PostgreSQL %d", &major)
	return major
}

func checkSessionTables(ctx context.Context, conn *sql.Conn, s *sessions, mode string, info *driver.Info) error {
	var term, pin, token string
	var locks int64
	var idle bool
	terms, pins, tokens := s.tables.name("term"), s.tables.name("pin"), s.tables.name("token")
	err := conn.QueryRowContext(ctx, openTexts["session_tables"], terms, pins, tokens).Scan(&term, &pin, &token, &locks, &idle)
	if err != nil {
		return err
	}
	for _, t := range []struct{ what, name, persistence string }{
		{"table", terms, term}, {"table", pins, pin}, {"sequence", tokens, token},
	} {
		switch t.persistence {
		case "p":
		case "":
			return fmt.Errorf("%w: %s %s does not exist; create it with migrations.Up or \"sqllock migrate up\"", driver.ErrSchema, t.what, t.name)
		default:
			return fmt.Errorf("%w: %s %s is unlogged or temporary, a crash would empty it; ALTER … SET LOGGED", driver.ErrUnsupported, t.what, t.name)
		}
	}
	if mode == modeAdvisory {
		info.MaxLocks = int(locks * 3 / 4)
		if !idle && !s.silent {
			return fmt.Errorf("%w: the mode advisory needs PostgreSQL 14 or newer: before that the server has no idle_session_timeout, so a holder "+
				"that is paused keeps its names for longer than the TTL; use the mode unique or for update, or accept that with AdvisoryOptions.AllowSilentHolders",
				driver.ErrUnsupported)
		}
		if !idle {
			info.Warnings = append(info.Warnings, "before PostgreSQL 14 a session that is silent is not ended: the locks of a process that is paused are kept until it goes on; "+
				"of a host that has vanished the system's keepalives tell")
		}
	}
	return nil
}

// checkDirect refuses a pooler between here and the server that gives a session's
// connection to others between two transactions.
func checkDirect(ctx context.Context, conn *sql.Conn, pool *sqlconn.Pool, sessionPooler bool) error {
	told := toldPID(conn)
	pid, err := backend(ctx, conn)
	if err != nil {
		return err
	}
	again, err := backend(ctx, conn)
	switch {
	case err != nil:
		return err
	case pid != again:
		return pooled(fmt.Sprintf("it was served by backend %d, and then by %d", pid, again))
	case told == pid:
		return nil
	case told != 0 && !sessionPooler:
		return pooled(fmt.Sprintf("it is served by backend %d and was told that it would be %d", pid, told))
	}
	return checkKept(ctx, conn, pool, pid)
}

// checkKept looks whether somebody else can get the backend that serves a connection
// between two transactions.
func checkKept(ctx context.Context, conn *sql.Conn, pool *sqlconn.Pool, pid int64) error {
	other, err := pool.Reserve(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = other.Close() }()
	return other.Do(ctx, func(ctx context.Context, other *sql.Conn) error {
		return inOwnTx(ctx, other, queryBound, func() error {
			var theirs int64
			if err := other.QueryRowContext(ctx, openTexts["backend"]).Scan(&theirs); err != nil {
				return err
			}
			if theirs == pid {
				return pooled(fmt.Sprintf("its backend %d serves another connection too", pid))
			}
			again, err := backend(ctx, conn)
			if err == nil && again != pid {
				err = pooled(fmt.Sprintf("it was served by backend %d, and then by %d", pid, again))
			}
			return err
		})
	})
}

func pooled(why string) error {
	return fmt.Errorf("%w: the connection goes through a pooler: %s. In transaction mode that would give a session's locks to others: "+
		"use the mode unique (NewUnique), or connect to the server directly; lockpg.AllowSessionPooler accepts a pooler in session mode", driver.ErrUnsupported, why)
}

func backend(ctx context.Context, conn *sql.Conn) (pid int64, err error) {
	err = conn.QueryRowContext(ctx, openTexts["backend"]).Scan(&pid)
	return pid, err
}

// toldPID returns the process that the server has named when pgx connected, 0 if it is
// another driver.
func toldPID(conn *sql.Conn) (pid int64) {
	_ = conn.Raw(func(c any) error {
		if c, ok := c.(*stdlib.Conn); ok {
			pid = int64(c.Conn().PgConn().PID())
		}
		return nil
	})
	return pid
}
