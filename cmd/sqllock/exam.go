package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/output"
)

const (
	// clockTolerance is how far two clocks may differ before it is worth a word.
	clockTolerance = 2 * time.Second
	// longTransaction is how old a transaction may be: those that are older keep the
	// database from cleaning up rows that change every few seconds.
	longTransaction = time.Minute
	// shortTimeout is a time-out that ends statements of ours that are in order:
	// they wait for a locked row for a second.
	shortTimeout = 2 * time.Second
	// shortIdle is for how long connections of ours rest between two renewals, or in
	// the pool.
	shortIdle = time.Minute
)

// check is one thing to look at. An error says that it could not be looked at; what
// is found goes to the exam.
type check struct {
	what string
	look func(ctx context.Context) error
}

// exam is the examination of one database.
type exam struct {
	conn *sql.Conn
	tables
	out      io.Writer
	writeErr error
	ill      bool // something is bad
	hopeless bool // nothing else is worth a look
	there    bool // the tables are
	old      bool // and older than this program

	without []mode // for which the account lacks privileges
}

// run does the checks one by one. What the server refuses to tell is worth a warning,
// a server that is not alive any more ends it all.
func (e *exam) run(ctx context.Context, checks []check, alive func(context.Context) error) error {
	for _, c := range checks {
		if e.hopeless {
			return nil
		}
		err := c.look(ctx)
		if err == nil {
			continue
		}
		if alive(ctx) != nil {
			return err
		}
		e.warn(c.what, "this could not be looked at: "+err.Error(), "see whether the account may read it")
	}
	return nil
}

// ifThere leaves out a look at tables that are not there.
func (e *exam) ifThere(look func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if !e.there {
			return nil
		}
		return look(ctx)
	}
}

func (e *exam) ok(what, finding string)           { e.tell("ok", what, finding, "") }
func (e *exam) warn(what, finding, advice string) { e.tell("warn", what, finding, advice) }
func (e *exam) bad(what, finding, advice string)  { e.ill = true; e.tell("bad", what, finding, advice) }

func (e *exam) tell(grade, what, finding, advice string) {
	if advice != "" {
		finding += "; " + advice
	}
	if _, err := fmt.Fprintf(e.out, "%-4s  %-12s  %s\n", grade, what, output.Line(redact(finding))); err != nil {
		e.writeErr = fail(exitCannotWrite, "%w", err)
	}
}

func (e *exam) verdict() error {
	switch {
	case e.writeErr != nil:
		return e.writeErr
	case e.ill:
		return exit(exitNo)
	}
	return nil
}

// one scans the only row of a query.
func (e *exam) one(ctx context.Context, query string, args []any, into ...any) error {
	return e.conn.QueryRowContext(ctx, query, args...).Scan(into...)
}

// each calls scan for each row of a query.
func (e *exam) each(ctx context.Context, query string, args []any, scan func(*sql.Rows) error) error {
	rows, err := e.conn.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// limits judges time-outs that end statements or connections, by name.
func (e *exam) limits(limits map[string]time.Duration) {
	sound := true
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		least := shortTimeout
		if strings.HasPrefix(name, "idle") || name == "wait_timeout" {
			least = shortIdle
		}
		if limit := limits[name]; limit > 0 && limit < least {
			sound = false
			e.warn("time-outs", fmt.Sprintf("%s is %v, which ends what is in order", name, limit),
				fmt.Sprintf("set it to %v at least for this account", least))
		}
	}
	if sound {
		e.ok("time-outs", "none that would end statements or connections of ours")
	}
}

// clock compares the server's clock with ours. The query returns microseconds since
// the epoch.
func (e *exam) clock(ctx context.Context, query string) error {
	const rounds = 3 // one of them will be quick
	var least time.Duration
	for i := range rounds {
		before := time.Now()
		var micros int64
		if err := e.one(ctx, query, nil, &micros); err != nil {
			return err
		}
		if off := skew(time.UnixMicro(micros), before, time.Now()); i == 0 || off.Abs() < least.Abs() {
			least = off
		}
	}
	if least.Abs() <= clockTolerance {
		e.ok("clock", "the server's clock and this host's agree")
		return nil
	}
	direction := "ahead of"
	if least < 0 {
		direction = "behind"
	}
	e.warn("clock", fmt.Sprintf("the server's clock is %v %s this host's", least.Abs().Round(time.Millisecond), direction),
		"locks do not depend on it, but times in logs will not match: let both follow a time server")
	return nil
}

// skew is by how much a clock that was read between two moments is ahead, at least.
func skew(read, before, after time.Time) time.Duration {
	switch {
	case read.After(after):
		return read.Sub(after)
	case read.Before(before):
		return read.Sub(before)
	}
	return 0
}

// age judges the oldest transaction; unseen says of how many it is not known.
func (e *exam) age(oldest time.Duration, unseen, harm, advice string) {
	if oldest < longTransaction {
		e.ok("transactions", "none is older than "+output.Duration(longTransaction)+unseen)
		return
	}
	e.warn("transactions", "one has been open for "+output.Duration(oldest)+": "+harm, advice)
}

// version judges what the tables say of themselves.
func (e *exam) version(ctx context.Context) error {
	var version, compatible int64
	err := e.one(ctx, "SELECT schema_version, compatible_from FROM "+e.meta, nil, &version, &compatible)
	if isDenied(err) {
		e.bad("migrations", "this account may not read "+e.meta, "see \"privileges\" below")
		return nil
	}
	if err != nil {
		e.bad("migrations", "table "+e.meta+" cannot be read: "+err.Error(), "run \"sqllock migrate up\" with an account that may create tables")
		return nil
	}
	switch mine := driver.SchemaVersion; {
	case compatible > mine:
		e.bad("migrations", fmt.Sprintf("the tables are of version %d, which needs a newer sqllock than this one (%d)", version, mine), "update sqllock")
	case version < mine:
		e.old = true
		e.bad("migrations", fmt.Sprintf("the tables are of version %d, older than this program's (%d)", version, mine), "run \"sqllock migrate up\"")
	case version > mine:
		e.ok("migrations", fmt.Sprintf("the tables are of version %d, newer than this program (%d), which can work with them", version, mine))
	default:
		e.ok("migrations", fmt.Sprintf("version %d", version))
	}
	return nil
}

// opens asks the library itself, if there was nothing to object to so far: so that
// doctor never praises what run refuses. It tells of each mode.
func (e *exam) opens(ctx context.Context, db *database) {
	if e.ill {
		return
	}
	for _, m := range modes {
		if !m.offeredBy(db.locks) {
			e.ok("locks", string(m)+": not with this kind of database")
			continue
		}
		if slices.Contains(e.without, m) { // which the constructor need not notice
			e.warn("locks", string(m)+": the account lacks privileges", "see above")
			continue
		}
		patience := openTimeout
		if m.sessions() {
			patience = extraModeTimeout
		}
		locks, err := db.locker(ctx, m, quietly(), patience)
		switch {
		case err == nil:
			_ = locks.Close(ctx)
			e.ok("locks", string(m)+": sqllock works with this database")
		case m.sessions():
			e.warn("locks", string(m)+": sqllock refuses this database: "+err.Error(), "nobody needs this mode who uses the mode unique")
		default:
			e.bad("locks", string(m)+": sqllock refuses this database: "+err.Error(), "see the message")
			return
		}
	}
}
