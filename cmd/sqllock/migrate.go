package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/migrations"
)

// migrateTimeout bounds what is to be done while others may be doing the same.
const migrateTimeout = 5 * time.Minute

func (a *app) migrateCommand() *cli.Command {
	return &cli.Command{
		Name:            "migrate",
		Usage:           "make, change or remove the tables of sqllock",
		Description:     migrateDescription,
		HideHelpCommand: true,
		Action:          a.noCommand,
		Commands: []*cli.Command{
			a.migration("up", "bring the tables to the version that this program needs", a.migrateUp),
			a.migration("down", "undo the newest migration; undoing the first drops the tables, and all locks with them", a.migrateDown,
				&cli.BoolFlag{Name: "force", Usage: "undo it also if that drops the tables, and all locks and tokens with them"}),
			a.migration("status", "list the migrations and when they were applied", a.migrateStatus),
			{
				Name:            "copy",
				Usage:           "write the migrations as files for goose into DIR, for those who run goose themselves",
				ArgsUsage:       "DIR",
				HideHelpCommand: true,
				Action:          a.migrateCopy,
			},
		},
	}
}

// migration makes a subcommand that works on the database.
func (a *app) migration(name, usage string, fn func(context.Context, *cli.Command, *database) error, flags ...cli.Flag) *cli.Command {
	return &cli.Command{
		Name:            name,
		Usage:           usage,
		HideHelpCommand: true,
		Flags:           flags,
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return fail(exitUsage, "migrate %s takes no argument", name)
			}
			db, err := a.database(cmd)
			if err != nil {
				return err
			}
			defer db.close(ctx)
			return a.onEach(db, func(db *database) error {
				ctx, cancel := context.WithTimeout(ctx, migrateTimeout)
				defer cancel()
				if err := db.prepare(ctx); err != nil {
					return err
				}
				if err := fn(ctx, cmd, db); err != nil {
					return migrationError{err}
				}
				return nil
			})
		},
	}
}

// migrateUp tells what it has found to do. Of several that run at the same time each may
// tell the same.
func (a *app) migrateUp(ctx context.Context, _ *cli.Command, db *database) error {
	return a.changing(ctx, db, migrations.Up, "applied", "nothing to do: the tables are of the version that this program needs")
}

// migrateDown drops no tables without --force.
func (a *app) migrateDown(ctx context.Context, cmd *cli.Command, db *database) error {
	list, err := migrations.Status(ctx, db)
	if err != nil {
		return err
	}
	if dropsTables(list) && !cmd.Bool("force") {
		return fail(exitUsage, "migrate down: this drops the tables, and all locks and tokens with them; if that is what you want, add --force")
	}
	return a.changing(ctx, db, migrations.Down, "undone", "nothing to do: no migration was applied")
}

// dropsTables reports whether to undo the newest migration is to drop the tables: it is the
// first, or the tables are older than any that was released.
func dropsTables(list []migrations.Migration) bool {
	n := 0
	for _, m := range list {
		switch {
		case !m.Applied:
		case m.Version < driver.FirstSchema:
			return true
		default:
			n++
		}
	}
	return n == 1
}

// changing runs what applies migrations or undoes them, and writes a line for each.
func (a *app) changing(ctx context.Context, db *database, change func(context.Context, driver.Migratable) error, done, nothing string) error {
	before, err := migrations.Status(ctx, db)
	if err != nil {
		return err
	}
	if err := change(ctx, db); err != nil {
		return err
	}
	after, err := migrations.Status(ctx, db)
	if err != nil {
		return err
	}
	was, is := make(map[int64]bool), make(map[int64]bool)
	for _, m := range before {
		was[m.Version] = m.Applied
	}
	for _, m := range after {
		is[m.Version] = m.Applied
	}
	// Tables that are older than any that was released leave nothing behind, not even names.
	all := slices.SortedFunc(slices.Values(slices.Concat(before, after)),
		func(a, b migrations.Migration) int { return cmp.Compare(a.Version, b.Version) })
	var text bytes.Buffer
	for _, m := range slices.CompactFunc(all, func(a, b migrations.Migration) bool { return a.Version == b.Version }) {
		if was[m.Version] != is[m.Version] {
			fmt.Fprintln(&text, strings.TrimSpace(fmt.Sprint(done, " ", m.Version, " ", m.Name)))
		}
	}
	if text.Len() == 0 {
		fmt.Fprintln(&text, nothing)
	}
	return a.put(text.Bytes())
}

func (a *app) migrateStatus(ctx context.Context, _ *cli.Command, db *database) error {
	list, err := migrations.Status(ctx, db)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "VERSION\tAPPLIED\tNAME")
	for _, m := range list {
		fmt.Fprintf(w, "%d\t%s\t%s\n", m.Version, applied(m), m.Name)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return a.put(text.Bytes())
}

func applied(m migrations.Migration) string {
	switch {
	case !m.Applied:
		return "no"
	case m.AppliedAt.IsZero():
		return "yes"
	}
	return m.AppliedAt.UTC().Format(time.RFC3339)
}

func (a *app) migrateCopy(_ context.Context, cmd *cli.Command) error {
	if cmd.Args().Len() != 1 {
		return fail(exitUsage, "migrate copy takes one argument, the directory to write to")
	}
	t, err := a.target(cmd)
	if err != nil {
		return err
	}
	db, err := t.open()
	if err != nil {
		return err
	}
	defer db.close(context.Background())
	files, err := migrations.FS(db)
	if err != nil {
		return db.failure(err)
	}
	written, err := copyFiles(cmd.Args().First(), files)
	if err != nil {
		err = &failure{code: exitCannotWrite, err: err}
	}
	var text bytes.Buffer
	for _, path := range written {
		fmt.Fprintln(&text, path)
	}
	return cmp.Or(err, a.put(text.Bytes()))
}

// copyFiles writes files into dir, which it makes if necessary. It writes none
// if one of them is there with another content, and leaves alone those that are
// there with the same. It returns what it wrote.
func copyFiles(dir string, files fs.FS) (written []string, err error) {
	missing := make(map[string][]byte)
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		text, err := fs.ReadFile(files, e.Name())
		if err != nil {
			return nil, err
		}
		switch there, err := os.ReadFile(path); {
		case errors.Is(err, fs.ErrNotExist):
			missing[path] = text
		case err != nil:
			return nil, err
		case !bytes.Equal(there, text):
			return nil, fmt.Errorf("%s is there already and differs; nothing was written", path)
		}
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if text, ok := missing[path]; ok {
			if err := create(path, text); err != nil {
				return written, err
			}
			written = append(written, path)
		}
	}
	return written, nil
}

// create writes a file that must not be there.
func create(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

const migrateDescription = `Postgres, MySQL and MariaDB need "sqllock migrate up" once, and again after an
update that changes the tables; it says when. It writes a line for each migration that
was applied, or that there was nothing to do. Any number of them may run at the same
time. SQLite files do it by themselves.

"sqllock migrate down" undoes the newest migration. To undo the first one is to drop the
tables, with all locks and tokens: that needs --force. Nobody may use the locks meanwhile.

Tables that are older than any that was released are refused. Call "migrate down --force"
once, which drops them and all locks in them; then "migrate up" makes them anew.

The role that migrates owns the tables, and needs more privileges than "sqllock run"; see
"Privileges" in docs/operations.md. "sqllock doctor" does not look at those.

An application that keeps its own migrations with goose copies the files instead:

   sqllock --dsn postgres:// migrate copy db/migrations

Exit codes: 64 wrong usage, or --force is missing, 69 the database is unreachable or
refuses, 73 a file could not be written.`
