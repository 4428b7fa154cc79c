package main

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sqllock/sqllock/internal/doctor"
	"github.com/sqllock/sqllock/internal/output"
)

// doctorTimeout bounds all that doctor does.
const doctorTimeout = 30 * time.Second

func (a *app) doctorCommand() *cli.Command {
	return &cli.Command{
		Name:            "doctor",
		Usage:           "check the database, and say what is wrong and what to do",
		Description:     doctorDescription,
		HideHelpCommand: true,
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return fail(exitUsage, "doctor takes no argument")
			}
			db, err := a.existing(cmd, false)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
			defer cancel()
			defer db.close(ctx)
			if db.nodes != nil {
				return a.checkNodes(ctx, db)
			}
			return db.failure(a.check(ctx, db, a.putFinding))
		},
	}
}

func (a *app) putFinding(f doctor.Finding) error { return a.put(findingLine(f)) }

// check writes a line for each finding.
func (a *app) check(ctx context.Context, db *database, write func(doctor.Finding) error) error {
	var bad bool
	var writeErr error
	report := func(f doctor.Finding) {
		bad = bad || f.Grade == doctor.Bad
		if err := write(f); err != nil {
			writeErr = err
		}
	}
	if db.inMemory {
		report(doctor.Finding{Grade: doctor.Warn, About: "file", Text: db.shown + " does not exist",
			Advice: "\"sqllock run\" makes it when it is used first"})
	} else if err := doctor.Check(ctx, checkedDatabase{db}, report); err != nil {
		return err
	}
	switch {
	case writeErr != nil:
		return writeErr
	case bad:
		return exit(exitNo)
	}
	return nil
}

func findingLine(f doctor.Finding) []byte {
	text := f.Text
	if f.Advice != "" {
		text += "; " + f.Advice
	}
	return fmt.Appendf(nil, "%-4s  %-12s  %s\n", f.Grade, f.About, output.Line(redact(text)))
}

// checkedDatabase is a database as doctor sees it.
type checkedDatabase struct{ *database }

var _ doctor.Database = checkedDatabase{}

func (d checkedDatabase) Conn(ctx context.Context) (*sql.Conn, error) { return d.handle.Conn(ctx) }

func (d checkedDatabase) File() string { return d.shown }

// Modes are all modes. In a database of a quorum it is the first, of which it makes its nodes.
func (d checkedDatabase) Modes() []string {
	if slices.Contains(d.modes, quorumMode) {
		return doctor.Modes[:1]
	}
	return doctor.Modes
}

func (d checkedDatabase) TryMode(ctx context.Context, name string) error {
	m := mode(name)
	if !m.offeredBy(d.locks) {
		return doctor.ErrNotOffered
	}
	timeout := openTimeout
	if m.sessions() {
		timeout = extraModeTimeout
	}
	locker, err := d.locker(ctx, m, quietOptions(), timeout)
	if err == nil {
		_ = locker.Close(ctx)
	}
	return err
}

const doctorDescription = `doctor checks the database and writes a line for each finding: ok, warn or bad, the
subject, what it found and what to do about it. It changes nothing, holds no lock and
needs no more privileges than "sqllock run". With those of a monitoring account
(pg_monitor, PROCESS) it sees more of the sessions of others.

It checks the server and its version, whether the server is a standby or read-only,
whether commits are flushed, the clock, a pooler in between, the isolation level,
time-outs, the privileges of the account, the tables, their index, dead rows, the
migrations, and transactions that are open for long. At the end it tries each mode
(unique, forupdate, advisory), and says why the server does not offer it.

Examples:

   sqllock doctor
   sqllock --dsn postgres://app@db/app doctor

Exit codes: 0 all is ok or a warning,
   1    something is bad: locks cannot be used, or cannot be trusted
   64   wrong usage
   69   the database cannot be reached`
