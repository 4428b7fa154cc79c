package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/sqllock/sqllock/examples/start"
	"github.com/sqllock/sqllock/internal/doctor"
	"github.com/sqllock/sqllock/internal/output"
	"github.com/sqllock/sqllock/migrations"
)

func (a *app) initCommand() *cli.Command {
	return &cli.Command{
		Name:            "init",
		Usage:           "check a database, make the tables, and print a Go program that uses it",
		Description:     initDescription,
		HideHelpCommand: true,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "make the tables without asking"},
		},
		Action: a.newAction(func(ctx context.Context, o *action) error {
			if o.cmd.Args().Present() {
				return o.usageError("unexpected: %s", o.quoted(o.cmd.Args().First()))
			}
			i := &initializer{action: o, shown: make(map[doctor.Finding]bool)}
			return i.run(ctx)
		}),
	}
}

// initializer is one call of init. Its stdout is the program alone.
type initializer struct {
	*action
	target target
	shown  map[doctor.Finding]bool
}

// step is a migration that is to be applied.
type step struct{ name, text string }

func (i *initializer) run(ctx context.Context) error {
	if err := i.needDSN(ctx); err != nil {
		return err
	}
	exists, err := i.openToLook()
	if err != nil {
		return err
	}
	steps, err := i.steps(ctx)
	if err != nil {
		return err
	}
	if exists {
		err = i.check(ctx, len(steps) > 0)
	} else {
		i.tell(doctor.Finding{Grade: doctor.OK, About: "file", Text: i.db.shown + " does not exist yet"})
	}
	if err != nil {
		return err
	}
	if len(steps) == 0 {
		i.say("the tables are there, in the version that this program needs")
	} else if err := i.makeTables(ctx, steps); err != nil {
		return err
	}
	return i.printProgram()
}

// needDSN asks for a DSN if none is given.
func (i *initializer) needDSN(ctx context.Context) error {
	if i.cmd.IsSet("dsn") || i.dsns(i.cmd)[0] != "" {
		return nil
	}
	if !isTerminal(i.stdin) {
		return i.usageError("no database is named: set SQLLOCK_DSN or --dsn")
	}
	i.say("the DSN of the database looks like %s", dsnForms)
	dsn, err := i.promptSecret(ctx, "DSN (it is not shown; empty: an SQLite file of this user): ")
	if err != nil {
		return err
	}
	i.environ = append(i.environ, "SQLLOCK_DSN="+strings.TrimSpace(dsn)) // the last one counts
	return nil
}

// openToLook opens the database and makes nothing. For a file of SQLite that does not exist, it
// opens an empty one in memory.
func (i *initializer) openToLook() (exists bool, err error) {
	if i.target, err = i.app.target(i.cmd); err != nil {
		return false, err
	}
	t := i.target
	if t.product == "sqlite" {
		if err := sqliteFile(t.path); err != nil {
			return false, err
		}
		if _, err := os.Stat(t.path); errors.Is(err, fs.ErrNotExist) {
			i.db, err = openInMemory(t)
			return false, err
		}
		t.mustExist = true
	}
	i.db, err = t.open()
	return true, err
}

// steps are the migrations that were not applied.
func (i *initializer) steps(ctx context.Context) (steps []step, err error) {
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	list, err := migrations.Status(ctx, i.db)
	if err != nil {
		return nil, migrationError{err}
	}
	files, err := migrations.FS(i.db)
	if err != nil {
		return nil, err
	}
	for _, m := range list {
		if m.Applied {
			continue
		}
		text, err := fs.ReadFile(files, m.Name)
		if err != nil {
			return nil, err
		}
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		steps = append(steps, step{m.Name, strings.TrimSpace(up)})
	}
	return steps, nil
}

// check runs doctor. It tells each finding once, and not what the migrations repair that are
// about to be applied. It returns an error if something else is bad.
func (i *initializer) check(ctx context.Context, willMake bool) error {
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	bad := false
	err := doctor.Check(ctx, checkedDatabase{i.db}, func(f doctor.Finding) {
		if willMake && f.MigrateUp {
			return
		}
		bad = bad || f.Grade == doctor.Bad
		i.tell(f)
	})
	if err == nil && bad {
		err = fail(exitNo, "something is bad; do what the lines above say, and call init again")
	}
	return err
}

// tell writes a finding to stderr, unless it did already.
func (i *initializer) tell(f doctor.Finding) {
	if !i.shown[f] {
		_, _ = i.stderr.Write(findingLine(f))
	}
	i.shown[f] = true
}

// makeTables shows the migrations, asks, applies them, and checks the database again.
func (i *initializer) makeTables(ctx context.Context, steps []step) error {
	for _, s := range steps {
		_, _ = fmt.Fprintf(i.stderr, "\n-- %s\n%s\n\n", s.name, s.text)
	}
	if err := i.agree(ctx); err != nil {
		return err
	}
	i.close()
	var err error
	if i.db, err = i.database(i.cmd); err != nil {
		return err
	}
	migrating, cancel := context.WithTimeout(ctx, migrateTimeout)
	defer cancel()
	if err := i.db.prepare(migrating); err != nil {
		return err
	}
	if err := migrations.Up(migrating, i.db); err != nil {
		return migrationError{err}
	}
	for _, s := range steps {
		i.say("applied %s", s.name)
	}
	return i.check(ctx, false)
}

// agree asks whether the migrations are to be applied.
func (i *initializer) agree(ctx context.Context) error {
	if i.cmd.Bool("yes") {
		return nil
	}
	if !isTerminal(i.stdin) {
		return i.usageError("nothing was changed; if this is to be applied, add --yes")
	}
	answer, err := i.prompt(ctx, "Apply this? [y/N] ")
	if err != nil {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return fail(exitNo, "nothing was changed")
}

// printProgram prints the program for the database, and says how to start it.
func (i *initializer) printProgram() error {
	source, err := program(i.target)
	if err != nil {
		return err
	}
	if err := i.put(source); err != nil {
		return err
	}
	i.say("this program, on stdout, takes a lock in the database. Save it as main.go in a module, and run:")
	_, _ = fmt.Fprintf(i.stderr, "\n   %s\n   go mod tidy\n   DATABASE_URL=%s go run .\n\n", goGet(readBuildInfo().version), i.databaseURL())
	return nil
}

// released is the version of a build of a release.
var released = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+$`)

// goGet is the command that adds the library to a module. No proxy has the version of another
// build: its user has a clone.
func goGet(version string) string {
	if released.MatchString(version) {
		return "go get github.com/sqllock/sqllock@" + version
	}
	return "go mod edit -replace github.com/sqllock/sqllock=CLONE   # the path of your clone of sqllock"
}

// program is the start program for a database, with the names of its tables.
func program(t target) ([]byte, error) {
	source, err := start.Programs.ReadFile(t.product + "/main.go")
	if err != nil {
		return nil, err
	}
	pkg := map[string]string{"postgres": "lockpg", "mysql": "lockmysql", "sqlite": "locksqlite"}[t.product]
	options := ""
	if t.prefix != "" {
		options += fmt.Sprintf(", %s.TablePrefix(%q)", pkg, t.prefix)
	}
	if t.schema != "" {
		options += fmt.Sprintf(", %s.Schema(%q)", pkg, t.schema)
	}
	if t.sessionPooler {
		options += fmt.Sprintf(", %s.AllowSessionPooler()", pkg)
	}
	return []byte(strings.ReplaceAll(string(source), pkg+".DB(db)", pkg+".DB(db"+options+")")), nil
}

// databaseURL is what the driver of the program reads. It has no user and no password.
func (i *initializer) databaseURL() string {
	switch i.target.product {
	case "postgres":
		return "'…the DSN that init got…'"
	case "mysql":
		return "'USER:PASSWORD@tcp(HOST:3306)/DATABASE'"
	}
	path := i.db.shown
	if path != i.target.path || output.Line(path) != path || strings.ContainsAny(path, "?#%'") {
		path = "PATH" // which is not to be shown, or is not written as it is
	}
	return "'file:" + path + "?_pragma=journal_mode(wal)'"
}

const initDescription = `init prepares a database for locks. It takes the DSN from --dsn or SQLLOCK_DSN. If there
is none, it asks for it on the terminal, which does not show what you type. Then it

   checks the database, as "sqllock doctor" does,
   shows the SQL that makes the tables, asks, and applies it; --yes answers for you,
   prints a Go program that takes a lock in this database.

stdout is the program alone; everything else is on stderr. If the tables are there in the
right version, init changes nothing. It never shows the user or the password of a DSN.
--table-prefix, --schema and --allow-session-pooler are in the program too.

Examples:

   sqllock init
   SQLLOCK_DSN=postgres://app@db/app sqllock init --yes >main.go

Exit codes: 0 the tables are there, and the program was printed,
   1    something is bad, or the answer was not yes; nothing was changed, unless it
        says that a migration was applied
   64   wrong usage, or neither a terminal nor --yes
   69   the database is unreachable or not usable
   73   stdout cannot be written
   128+n  signal n came`
