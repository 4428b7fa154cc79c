package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/sqllock/sqllock/driver"
)

// migrator does the work of one call on one database.
type migrator struct {
	driver.Migration
	dialect
	files []file
	names *strings.Replacer
	acq   string // of the row of a cluster, while this call holds it
}

// newMigrator runs no SQL. The caller calls Close.
func newMigrator(db driver.Migratable) (*migrator, error) {
	if db == nil {
		return nil, driver.NilError("database")
	}
	desc, err := db.Migration()
	if err != nil {
		return nil, err
	}
	m := &migrator{Migration: desc}
	if err := m.prepare(); err != nil {
		return nil, errors.Join(err, desc.Close())
	}
	return m, nil
}

func (m *migrator) prepare() (err error) {
	known := false
	if m.dialect, known = dialects[m.Dialect]; !known {
		return fmt.Errorf("%w: no migrations for dialect %q", driver.ErrInvalidOption, m.Dialect)
	}
	if err := driver.CheckIdentifier("table prefix", m.Prefix); err != nil {
		return err
	}
	if m.Schema != "" {
		if m.createSchema == "" {
			return fmt.Errorf("%w: %s takes no schema", driver.ErrInvalidOption, m.Dialect)
		}
		if err := driver.CheckIdentifier("schema", m.Schema); err != nil {
			return err
		}
	}
	m.names = strings.NewReplacer(
		"{versions}", m.quote("migration"), "{versions-}", m.Prefix+"migration",
		"{meta}", m.quote("meta"), "{meta-}", m.Prefix+"meta", "{schema}", m.Schema,
		"{migrating}", m.quote("migrating"), "{migrating-}", m.Prefix+"migrating")
	m.files, err = render(m.Dialect, m.mark, m.quote)
	return err
}

// quote returns the quoted name of a table of ours.
func (m *migrator) quote(name string) string {
	mark := string(m.mark)
	name = mark + m.Prefix + name + mark
	if m.Schema != "" {
		name = mark + m.Schema + mark + "." + name
	}
	return name
}

// patience is for how long conflicts with others are tried again.
const patience = 30 * time.Second

// retry calls fn until it meets no conflict that trying again would solve.
func (m *migrator) retry(ctx context.Context, fn func(context.Context) error) error {
	wait := 5 * time.Millisecond
	for start := time.Now(); ; wait = min(2*wait, 200*time.Millisecond) {
		err := fn(ctx)
		if err == nil || !m.Retryable(err) || time.Since(start) > patience {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w while trying again after: %w", context.Cause(ctx), err)
		case <-time.After(wait/2 + rand.N(wait)):
		}
	}
}

// up implements Up.
func (m *migrator) up(ctx context.Context) error {
	return m.exclusive(ctx, m.current, func(ctx context.Context) error { return m.retry(ctx, m.upOnce) })
}

func (m *migrator) upOnce(ctx context.Context) error {
	switch current, err := m.current(ctx); {
	case err != nil:
		return err
	case current:
		return nil
	}
	if version, err := m.unreleasedVersion(ctx, m.DB); err != nil {
		return err
	} else if version > 0 {
		return driver.CheckSchema(version, 0, m.latest())
	}
	if err := m.checkHome(ctx); err != nil {
		return err
	}
	if err := m.checkRow(ctx); err != nil {
		return err
	}
	if err := m.createVersions(ctx); err != nil {
		return err
	}
	if err := m.forget(ctx); err != nil {
		return err
	}
	p, err := m.provider()
	if err != nil {
		return err
	}
	_, err = p.Up(ctx)
	return err
}

// checkRow refuses tables of which the row is missing that tells their version: a dump without data
// was restored, or all tables were emptied. Where a migration can die on the way, it may have been that.
func (m *migrator) checkRow(ctx context.Context) error {
	if m.halfway != "" {
		return nil
	}
	found, err := m.exists(ctx, m.DB, m.existsMeta)
	if err != nil || !found {
		return err
	}
	meta, err := m.readMeta(ctx, m.DB)
	if err != nil || meta.version != 0 {
		return err
	}
	if found, err = m.exists(ctx, m.DB, m.existsMeta); err != nil || !found { // a Down has just dropped it
		return err
	}
	return fmt.Errorf("%w: table %s has lost its row, as after a restore without data; drop all tables, views and functions with its prefix, then migrate up",
		driver.ErrSchema, m.text("{meta}"))
}

// latest is the version of the newest file.
func (m *migrator) latest() int64 { return m.files[len(m.files)-1].version }

// current reports that there is nothing to do. It only reads, and of the version table only where a
// migration can die on the way: an application's role may lack the right to it.
func (m *migrator) current(ctx context.Context) (bool, error) {
	meta, err := m.readMeta(ctx, m.DB)
	if err != nil || meta.version < m.latest() {
		return false, err
	}
	if err := driver.CheckSchema(meta.version, meta.compatibleFrom, m.latest()); err != nil {
		return false, err
	}
	if m.halfway == "" {
		return true, nil
	}
	ours, err := m.exists(ctx, m.DB, m.existsVersions)
	if err != nil || !ours {
		return true, err // the application's own goose made the tables
	}
	list, err := m.readDone(ctx, m.DB)
	return newest(list) >= m.latest(), err
}

// down implements Down. Its parts are tried again each by itself, so that one
// migration is undone and not two.
func (m *migrator) down(ctx context.Context) error {
	return m.exclusive(ctx, m.absent, func(ctx context.Context) error {
		if err := m.retry(ctx, m.undoNewest); err != nil {
			return err
		}
		return m.retry(ctx, m.dropVersions)
	})
}

// absent reports that there are no tables. It only reads.
func (m *migrator) absent(ctx context.Context) (bool, error) {
	found, err := m.exists(ctx, m.DB, m.existsVersions)
	if err != nil || found {
		return false, err
	}
	meta, err := m.readMeta(ctx, m.DB)
	return meta.version == 0, err
}

func (m *migrator) undoNewest(ctx context.Context) error {
	ours, err := m.exists(ctx, m.DB, m.existsVersions)
	if err != nil {
		return err
	}
	if !ours {
		meta, err := m.readMeta(ctx, m.DB)
		switch {
		case err != nil || meta.version == 0:
			return err
		case meta.version >= driver.FirstSchema:
			return fmt.Errorf("%w: the tables were not made by Up; undo their migrations where they were applied", driver.ErrSchema)
		}
	}
	return m.unlessGone(ctx, m.downByOne(ctx))
}

func (m *migrator) downByOne(ctx context.Context) error {
	if err := m.createVersions(ctx); err != nil { // an Up may have died over it
		return err
	}
	if dropped, err := m.beginDown(ctx); err != nil || dropped {
		return err
	}
	p, err := m.provider()
	if err != nil {
		return err
	}
	_, err = p.Down(ctx)
	switch {
	case errors.Is(err, goose.ErrVersionNotFound):
		return fmt.Errorf("%w: the newest migration was applied by a newer library, which has to undo it", driver.ErrSchema)
	case errors.Is(err, goose.ErrNoNextVersion):
		return nil
	}
	return err
}

// beginDown drops tables that are older than any that was released, whoever made them,
// and makes other migrations that died on the way ready to be undone. It looks once nobody
// else migrates: then no other Down takes the version table away.
func (m *migrator) beginDown(ctx context.Context) (dropped bool, err error) {
	err = m.alone(ctx, func(tx *sql.Tx) error {
		if found, err := m.exists(ctx, tx, m.existsVersions); err != nil || !found {
			return err
		}
		switch version, err := m.unreleasedVersion(ctx, tx); {
		case err != nil:
			return err
		case version > 0:
			dropped = true
			return m.execute(ctx, tx, m.dropUnreleased()...)
		case m.resume != "":
			return m.execute(ctx, tx, m.resume)
		}
		return nil
	})
	return dropped, err
}

// status implements Status.
func (m *migrator) status(ctx context.Context) (list []Migration, err error) {
	err = m.retry(ctx, func(ctx context.Context) error {
		meta, err := m.readMeta(ctx, m.DB)
		if err != nil {
			return err
		}
		var rows []applied
		if ours, err := m.exists(ctx, m.DB, m.existsVersions); err != nil {
			return err
		} else if ours {
			if rows, err = m.readVersions(ctx, m.DB); err != nil {
				return err
			}
		}
		list = merge(m.files, rows, meta.version)
		return nil
	})
	return list, err
}

// provider returns a goose provider for the migrations. It has them as
// functions, because they must look again once they are alone.
func (m *migrator) provider() (*goose.Provider, error) {
	migrations := make([]*goose.Migration, len(m.files))
	for i := range m.files {
		f := &m.files[i]
		migrations[i] = goose.NewGoMigration(f.version,
			&goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error { return m.apply(ctx, tx, f) }},
			&goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error { return m.undo(ctx, tx, f) }})
	}
	opts := []goose.ProviderOption{
		goose.WithStore((*account)(m)),
		goose.WithGoMigrations(migrations...),
		goose.WithDisableGlobalRegistry(true),
	}
	if m.hold != "" {
		opts = append(opts, goose.WithSessionLocker((*session)(m)))
	}
	return goose.NewProvider(goose.DialectCustom, m.DB, nil, opts...)
}

// apply runs one migration, unless it was run while we waited to be alone: in a
// transaction meta tells that. Where there is no such thing, goose has looked
// after the session became alone.
func (m *migrator) apply(ctx context.Context, tx *sql.Tx, f *file) error {
	if err := m.execute(ctx, tx, m.begin...); err != nil {
		return err
	}
	if m.hold == "" {
		meta, err := m.readMeta(ctx, tx)
		if err != nil || meta.version >= f.version {
			return err
		}
	}
	return m.step(ctx, tx, f, f.up)
}

// undo reverts one migration, unless it was reverted while we waited.
func (m *migrator) undo(ctx context.Context, tx *sql.Tx, f *file) error {
	if err := m.execute(ctx, tx, m.begin...); err != nil {
		return err
	}
	list, err := m.readVersions(ctx, tx)
	if err != nil || !slices.ContainsFunc(list, func(a applied) bool { return a.version == f.version }) {
		return err
	}
	return m.step(ctx, tx, f, f.down)
}

// step runs the statements of a file, up or down. Where each of them commits by
// itself the version is noted first, so that what dies on the way is known; the
// files of such a database can be repeated from any statement.
func (m *migrator) step(ctx context.Context, tx *sql.Tx, f *file, statements []string) error {
	if m.halfway != "" {
		if err := m.execute(ctx, tx, m.textFor(m.halfway, f.version)); err != nil {
			return err
		}
	}
	if err := m.execute(ctx, tx, statements...); err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	return nil
}

// execute runs statements. Those of files have no names left to put in.
func (m *migrator) execute(ctx context.Context, tx *sql.Tx, statements ...string) error {
	for _, statement := range statements {
		if err := m.extendRow(ctx, tx); err != nil {
			return err
		}
		statement = m.text(statement)
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			first, _, _ := strings.Cut(statement, "\n")
			return fmt.Errorf("%s: %w", first, err)
		}
	}
	return nil
}

// text puts the names into a statement of the dialect.
func (m *migrator) text(statement string) string { return m.names.Replace(statement) }

// textFor is text with a version as well.
func (m *migrator) textFor(statement string, version int64) string {
	return strings.ReplaceAll(m.text(statement), "{version}", strconv.FormatInt(version, 10))
}
