package testdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// Standby returns a server that follows s, which it stops for a moment: a hot standby of Postgres,
// or a replica of MariaDB that is read-only. From then on a commit on s waits until the other has
// it. It is a [Server] like any other; [Server.Promote] makes it the primary.
func (s *Server) Standby() *Server {
	s.t.Helper()
	var other *Server
	var err error
	switch s.engine {
	case Postgres:
		other, err = s.hotStandby()
	case MariaDB:
		other, err = s.replica()
	default:
		err = fmt.Errorf("no standby of %s", s.engine)
	}
	s.must("follow", err)
	return other
}

// copied returns a server on a copy of the files of s, which must not run. It is not booted.
func (s *Server) copied(args ...string) (*Server, error) {
	i, err := newInstance(s.i.engine, append(slices.Clone(s.i.args), args...))
	if err != nil {
		return nil, err
	}
	other := &Server{t: s.t, i: i}
	s.t.Cleanup(func() {
		if err := i.remove(); err != nil {
			s.t.Errorf("testdb: remove the standby: %v", err)
		}
	})
	return other, i.finish([]string{program("cp"), "-Rp", filepath.Join(s.i.dir, "data"), filepath.Join(i.dir, "data")})
}

// program returns the path of a program that each system has.
func program(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	return name
}

// run boots a server that was copied.
func (s *Server) run(from *Server) error {
	if err := s.i.bootAnywhere(); err != nil {
		return fmt.Errorf("%w\n%s", err, s.i.logTail())
	}
	s.Database = &Database{engine: from.engine, dialect: from.dialect, base: s.i.dsn(), name: from.name}
	return nil
}

func (s *Server) hotStandby() (*Server, error) {
	s.Stop()
	host, port, _ := net.SplitHostPort(s.i.addr())
	other, err := s.copied(
		"-c", fmt.Sprintf("primary_conninfo=host=%s port=%s user=postgres application_name=standby", host, port),
		"-c", "wal_retrieve_retry_interval=200ms") // so that it does not take long to be promoted
	if err != nil {
		return nil, err
	}
	if err := other.i.finish([]string{program("touch"), filepath.Join(other.i.dir, "data", "standby.signal")}); err != nil {
		return nil, err
	}
	s.Restart()
	if err := other.run(s); err != nil {
		return nil, err
	}
	const streaming = `SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'`
	if err := s.until(streaming); err != nil {
		return nil, err
	}
	// It is in a file that the standby does not get, so that it waits for none when it is promoted.
	if err := s.exec(`ALTER SYSTEM SET synchronous_standby_names = 'standby'`, `SELECT pg_reload_conf()`); err != nil {
		return nil, err
	}
	return other, s.until(streaming + ` AND sync_state = 'sync'`)
}

func (s *Server) replica() (*Server, error) {
	s.Stop()
	other, err := s.copied("--server-id=2", "--read-only", "--rpl-semi-sync-slave-enabled=ON",
		"--rpl-semi-sync-slave-kill-conn-timeout=1") // so that it is promoted soon while s is frozen
	if err != nil {
		return nil, err
	}
	s.i.args = append(s.i.args, "--server-id=1", "--log-bin=log", "--binlog-format=ROW",
		"--rpl-semi-sync-master-enabled=ON", "--rpl-semi-sync-master-timeout=3600000")
	s.Restart()
	if err := other.run(s); err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(s.i.addr())
	if err := other.exec(
		fmt.Sprintf(`CHANGE MASTER TO master_host = '%s', master_port = %s, master_user = 'root', master_connect_retry = 1`, host, port),
		`START SLAVE`,
	); err != nil {
		return nil, err
	}
	return other, s.until(`SELECT variable_value = 1 FROM information_schema.global_status WHERE variable_name = 'Rpl_semi_sync_master_clients'`)
}

// Promote makes a standby the primary, when it has all that it has received. It takes writes then.
func (s *Server) Promote() {
	s.t.Helper()
	if s.engine == Postgres {
		s.must("promote", s.exec(`SELECT pg_promote()`))
		s.must("promote", s.until(`SELECT (NOT pg_is_in_recovery())::int`))
		return
	}
	s.must("promote", s.exec(`STOP SLAVE IO_THREAD`))
	s.must("promote", s.applied())
	s.must("promote", s.exec(`STOP SLAVE`, `SET GLOBAL read_only = 0`))
}

// applied waits until a replica has carried out all that it has received.
func (s *Server) applied() error {
	return s.with(func(ctx context.Context, db *sql.DB) (bool, error) {
		rows, err := db.QueryContext(ctx, `SHOW SLAVE STATUS`)
		if err != nil {
			return false, err
		}
		defer rows.Close()
		columns, err := rows.Columns()
		if err != nil {
			return false, err
		}
		if !rows.Next() {
			return false, errors.Join(errors.New("it is no replica"), rows.Err())
		}
		values := make([]sql.NullString, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return false, err
		}
		is := func(column string) string { return values[slices.Index(columns, column)].String }
		return is("Read_Master_Log_Pos") == is("Exec_Master_Log_Pos"), nil
	})
}

// until waits for a query that finds a number other than 0.
func (s *Server) until(query string) error {
	return s.with(func(ctx context.Context, db *sql.DB) (bool, error) {
		var n int
		err := db.QueryRowContext(ctx, query).Scan(&n)
		return n > 0, err
	})
}

// exec runs statements.
func (s *Server) exec(statements ...string) error {
	return s.with(func(ctx context.Context, db *sql.DB) (bool, error) {
		for _, statement := range statements {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				return false, fmt.Errorf("%s: %w", statement, err)
			}
		}
		return true, nil
	})
}

// with calls f on a handle of its own until it is done.
func (s *Server) with(f func(context.Context, *sql.DB) (done bool, err error)) error {
	db, err := s.i.engine.open(s.i.dsn())
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
	defer cancel()
	for {
		done, err := f(ctx, db)
		if done || err != nil {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
