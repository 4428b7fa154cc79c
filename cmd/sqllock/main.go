// Command sqllock runs commands under a lock of the SQL database that is there
// anyway: Postgres, MySQL or MariaDB, or an SQLite file that it makes itself.
//
//	sqllock run nightly -- ./backup.sh
//
// "sqllock help" and "sqllock help run" tell the rest.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"github.com/urfave/cli/v3"

	"github.com/sqllock/sqllock/internal/output"
	"github.com/sqllock/sqllock/internal/supervise"
)

func main() {
	if supervise.IsWatchdog() {
		os.Exit(supervise.WatchdogMain())
	}
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ()}
	os.Exit(a.main(os.Args))
}

// app is one call of the program.
type app struct {
	stdin, stdout, stderr *os.File
	environ               []string

	arguments []string // of ours, as they were given
	command   []string // CMD and its arguments, which are not ours to parse

	messages output.Messages
	status   atomic.Pointer[statusLine] // nil if there is none
}

// main runs the program and returns its exit code.
func (a *app) main(args []string) int {
	if values := completeMode(args); values != "" {
		_, _ = a.stdout.WriteString(values)
		return 0
	}
	root := a.root()
	args, a.command = splitCommand(root, args)
	a.arguments = args
	err := root.Run(context.Background(), args)
	if err == nil {
		return 0
	}
	f := a.usageOf(root, err)
	if f.err != nil {
		a.say("%v", f.err)
	}
	if f.interrupted {
		supervise.InterruptGroup()
	}
	return f.code
}

// say writes a message of one line to stderr. Nothing else does, so that no password
// gets there, nor what a stranger has put into a name. If nobody reads it, say does not wait.
func (a *app) say(format string, args ...any) {
	text := strings.TrimPrefix(fmt.Sprintf(format, args...), "sqllock: ")
	a.status.Load().without(func() { a.messages.Write(a.stderr, "sqllock: "+output.Line(redact(text))+"\n") })
}

// getenv returns the last value, which is the one that counts.
func (a *app) getenv(key string) string {
	value := ""
	for _, kv := range a.environ {
		if k, v, ok := strings.Cut(kv, "="); ok && k == key {
			value = v
		}
	}
	return value
}

func (a *app) root() *cli.Command {
	root := &cli.Command{
		Name:        "sqllock",
		Usage:       "run commands under a lock in an SQL database, and look after the locks",
		UsageText:   "sqllock [options] COMMAND [options] [arguments]",
		Version:     readBuildInfo().line(),
		Description: rootDescription,
		Flags: []cli.Flag{
			&cli.GenericFlag{Name: "dsn", Value: &texts{}, Usage: "keep the locks in the database `DSN`; several --dsn are a quorum (default: $SQLLOCK_DSN, else an SQLite file of this user)"},
			&cli.StringFlag{Name: "table-prefix", Usage: "begin the names of all tables with `PREFIX` (default: $SQLLOCK_TABLE_PREFIX, else sqllock_, or quorum_ with several --dsn)"},
			&cli.StringFlag{Name: "schema", Usage: "look for the tables in the Postgres `SCHEMA` (default: $SQLLOCK_SCHEMA, else as search_path finds them)"},
			&cli.BoolFlag{Name: "allow-unsafe-durability", Usage: "accept a server that may forget in a crash who holds what; then two can hold one name"},
			&cli.BoolFlag{Name: "allow-session-pooler", Usage: "with forupdate and advisory, accept a pooler of Postgres that is in session mode"},
			&cli.BoolFlag{Name: "allow-silent-holders", Usage: "with advisory, accept Postgres 12 and 13, where a holder that is paused keeps its names"},
			&cli.IntFlag{Name: "faulty-nodes", HideDefault: true, Usage: "with several --dsn, tolerate that `N` of the databases forget what they have stored (default: 0)"},
			&cli.DurationFlag{Name: "node-timeout", HideDefault: true, Usage: "with several --dsn, give each of them `DURATION` for a statement (default: a tenth of the TTL, at most 1s)"},
		},
		Commands: []*cli.Command{
			a.initCommand(), a.runCommand(), a.electCommand(), a.leaderCommand(), a.listCommand(), a.inspectCommand(), a.waitCommand(), a.unlockCommand(), a.webCommand(), a.topCommand(),
			a.reapCommand(), a.doctorCommand(), a.migrateCommand(), a.manCommand(), a.versionCommand(),
		},
		Reader:                          a.stdin,
		Writer:                          a.stdout,
		ErrWriter:                       a.stderr,
		Action:                          a.noCommand,
		ExitErrHandler:                  func(context.Context, *cli.Command, error) {}, // main does it
		EnableShellCompletion:           true,
		ConfigureShellCompletionCommand: a.showCompletion,
	}
	a.setUsageErrors(root, "")
	return root
}

func (a *app) showCompletion(cmd *cli.Command) {
	cmd.Hidden = false
	cmd.Usage = "print a script that completes the commands and flags of sqllock in a shell"
	cmd.ArgsUsage = "bash|zsh|fish|pwsh"
	cmd.Action = a.noCommand
	a.setUsageErrors(cmd, "sqllock ")
}

const rootDescription = `A lock is a row in a table of the database. sqllock renews it while the lock is
held. If the holder dies, another process gets the lock after the TTL. All
processes that use the same database and the same names share the locks.

This is unique mode. Most commands take --mode for two others, in which a session
of the database keeps the lock and the server frees it when the session ends:
forupdate (an open transaction that has locked a row) and advisory (a lock in the
memory of the server). SQLite has unique mode only. The same name in two modes is
two locks.

Name the database with --dsn or, if the DSN has a password, with SQLLOCK_DSN:

   postgres://user:password@host:5432/database?sslmode=require
   mysql://user:password@host:3306/database?tls=true
   mysql://user:password@/database?socket=/run/mysqld/mysqld.sock
   sqlite:/var/lib/app/locks.db

With several --dsn the databases are a quorum: a name is held on a majority of them, and
locks go on while a minority is down. All processes must name the same databases, and
the same --faulty-nodes. A quorum has its own tables, with the prefix quorum_; make them
with "sqllock migrate up" and the same --dsn. It has one holder of a name at a time:
--mode, --shared, --permits, --once, --resign, --may-resign, --allow-session-pooler and
--allow-silent-holders need one database, and so do "init" and "migrate copy". Messages
count the databases from 0. SQLLOCK_DSN can have a DSN on each line.

   sqllock --dsn postgres://a/app --dsn postgres://b/app --dsn mysql://c/app run ...

If the application gives its tables a prefix or a schema, give each command the same,
with --table-prefix or SQLLOCK_TABLE_PREFIX, and --schema or SQLLOCK_SCHEMA.

Some servers are refused, because they cannot keep what a mode promises. The message says
why. It names the flag that accepts such a server, if there is one.

Without a DSN, sqllock uses an SQLite file, sqllock/locks.db in the user's state
directory ($XDG_STATE_HOME or ~/.local/state; ~/Library/Application Support on
macOS, %LocalAppData% on Windows), for locks between the processes of one user on
one host. sqllock makes the tables of an SQLite file itself; in other databases
make them once with "sqllock migrate up".

Examples:

   sqllock run nightly -- ./backup.sh
   sqllock run --try nightly -- ./backup.sh
   sqllock run --mode advisory nightly -- ./backup.sh
   sqllock elect scheduler -- ./scheduler
   sqllock ls
   sqllock doctor
   SQLLOCK_DSN=postgres://app@db/app sqllock migrate up
   source <(sqllock completion bash)

Exit codes of sqllock itself: 64 wrong usage, 69 the database is unreachable or
not usable, 71 the operating system refused something, 73 stdout or a file cannot
be written. 1 is an answer: the name is held, or not, or something is bad. Each
command's --help has its own.`
