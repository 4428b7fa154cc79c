package main

import (
	"context"
	"time"

	"github.com/urfave/cli/v3"
)

// examTimeout bounds all that doctor does.
const examTimeout = 30 * time.Second

func (a *app) doctorCommand() *cli.Command {
	return &cli.Command{
		Name:            "doctor",
		Usage:           "look for what is wrong with the database and say what to do",
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
			ctx, cancel := context.WithTimeout(ctx, examTimeout)
			defer cancel()
			defer db.close(ctx)
			return db.failure(a.examine(ctx, db))
		},
	}
}

// examine writes a line for each finding.
func (a *app) examine(ctx context.Context, db *database) error {
	e := &exam{out: a.stdout}
	if db.standIn {
		e.warn("file", db.shown+" does not exist", "\"sqllock run\" makes it when it is used first")
		return e.verdict()
	}
	m, err := db.Migration()
	if err != nil {
		return err
	}
	conn, err := db.handle.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	e.conn, e.tables = conn, tableNames(m)
	if err := e.run(ctx, examinations[m.Dialect](e, db), conn.PingContext); err != nil {
		return err
	}
	_ = conn.Close() // it may be the only one that the account can have
	e.opens(ctx, db)
	return e.verdict()
}

// examinations are what to look at, by database.
var examinations = map[string]func(*exam, *database) []check{
	"postgres": examinePostgres,
	"mysql":    examineMySQL,
	"sqlite":   examineSQLite,
}

const doctorDescription = `doctor looks at the database and writes a line for each thing: ok, warn or bad, what
it is about, what was found and what to do about it. It changes nothing, holds
nothing and needs no more rights than "sqllock run", but sees more of the sessions of
others with those of a monitoring account (pg_monitor, PROCESS).

It looks at the server and its version, whether it is a standby or read-only, whether
it flushes what it commits, its clock, a pooler in between, the isolation level,
time-outs, the account's privileges, the tables, their index, dead rows, and the
migrations, and at transactions that are open for long. In the end it tries each mode
(unique, forupdate, advisory), and says why the server does not offer it if so.

Examples:

   sqllock doctor
   sqllock --dsn postgres://app@db/app doctor

Exit codes: 0 all is ok or a warning,
   1    something is bad: locks cannot be used, or cannot be trusted
   64   wrong usage
   69   the database cannot be reached`
