package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/doctor"
	"github.com/sqllock/sqllock/internal/quorum"
	"github.com/sqllock/sqllock/migrations"
)

// quorumMode is the mode of a quorum, which several --dsn make. It is no word for --mode.
const quorumMode mode = "quorum"

// quorumPrefix begins the names of the tables of a quorum unless the user says otherwise. A quorum
// cannot use those of unique mode.
const quorumPrefix = "quorum_"

// fileTimeout bounds making the tables in the SQLite files of a quorum.
const fileTimeout = 5 * time.Second

// texts are the values of a flag that can be given several times. A flag for slices would cut
// them at commas, which a DSN can have.
type texts []string

var _ cli.Value = (*texts)(nil)

func (t *texts) Set(text string) error {
	*t = append(*t, text)
	return nil
}

func (t *texts) Get() any       { return []string(*t) }
func (t *texts) String() string { return "" }

// dsns are the DSNs that the user gave; one that is empty if he gave none. The environment has
// one on each line.
func (a *app) dsns(cmd *cli.Command) []string {
	if given, _ := cmd.Value("dsn").([]string); cmd.IsSet("dsn") {
		return given
	}
	lines := strings.FieldsFunc(a.getenv("SQLLOCK_DSN"), func(r rune) bool { return r == '\n' })
	if len(lines) == 0 {
		return []string{""}
	}
	return lines
}

// quorumFlags are the flags that a quorum does not have, and why not.
var quorumFlags = map[string]string{
	"mode":       "a quorum has no other mode",
	"shared":     "a quorum has one holder at a time",
	"permits":    "a quorum has one holder at a time",
	"once":       "a quorum remembers no keys",
	"may-resign": "a quorum takes no requests to resign",
	"resign":     "a quorum takes no requests to resign",

	"allow-session-pooler": "a quorum has no mode that needs it",
	"allow-silent-holders": "a quorum has no mode that needs it",
}

// checkQuorum refuses what the flags say of a quorum of these databases, or of one.
func (a *app) checkQuorum(cmd *cli.Command, dsns []string) error {
	n, faulty := len(dsns), cmd.Int("faulty-nodes")
	ttl := cmp.Or(cmd.Duration("ttl"), sqllock.DefaultTTL)
	timeout := cmd.Duration("node-timeout")
	switch {
	case n == 1 && (cmd.IsSet("faulty-nodes") || cmd.IsSet("node-timeout")):
		return fail(exitUsage, "--faulty-nodes and --node-timeout are for a quorum: they need several --dsn")
	case n == 1:
		return nil
	case n > quorum.MaxNodes:
		return fail(exitUsage, "%d --dsn: a quorum has from 2 to %d databases", n, quorum.MaxNodes)
	case faulty < 0 || quorum.Need(n, faulty) > n:
		return fail(exitUsage, "--faulty-nodes %d: must be from 0 to %d for %d databases", faulty, n-1, n)
	case cmd.IsSet("node-timeout") && (timeout < 10*time.Millisecond || timeout > ttl/6):
		return fail(exitUsage, "--node-timeout %v: must be from 10ms to a sixth of the TTL, %v", timeout, ttl/6)
	case a.settings(cmd).prefix == driver.DefaultPrefix:
		return fail(exitUsage, "the table prefix %s is that of unique mode: a quorum needs another; without one it uses %s", driver.DefaultPrefix, quorumPrefix)
	}
	for _, c := range cmd.Lineage() {
		for _, f := range c.Flags {
			if reason := quorumFlags[f.Names()[0]]; reason != "" && f.IsSet() {
				return fail(exitUsage, "%s does not go with several --dsn: %s", dashes(f.Names()[0]), reason)
			}
		}
	}
	for i, dsn := range dsns {
		if first := slices.Index(dsns, dsn); first < i {
			return fail(exitUsage, "the databases %d and %d are the same; they are counted from 0", first, i)
		}
	}
	return nil
}

// openQuorum makes the Locker of a quorum. It reports wrong options before any SQL.
func (d *database) openQuorum(ctx context.Context, o *sqllock.UniqueOptions) (*sqllock.Locker, error) {
	dbs := make([]driver.UniqueDatabase, len(d.nodes))
	for i, node := range d.nodes {
		dbs[i] = node.locks
	}
	return sqllock.NewQuorum(ctx, dbs, &sqllock.QuorumOptions{
		FaultyNodes: d.faulty, NodeTimeout: d.nodeTimeout, TTL: o.TTL, Label: o.Label, Logger: o.Logger, Reaper: o.Reaper,
	})
}

// makeTables makes the tables of SQLite files. Of a quorum it leaves out a file that it cannot
// use: whether enough of them are left is for the quorum to say.
func (d *database) makeTables(ctx context.Context) error {
	if d.nodes == nil {
		return migrations.Up(ctx, d)
	}
	ctx, cancel := context.WithTimeout(ctx, fileTimeout)
	defer cancel()
	var all sync.WaitGroup
	for _, node := range d.nodes {
		if node.file != "" {
			all.Go(func() {
				if node.prepare(ctx) == nil {
					_ = migrations.Up(ctx, node)
				}
			})
		}
	}
	all.Wait()
	return nil
}

// hasFile reports that a database is an SQLite file, or one of a quorum is.
func (d *database) hasFile() bool {
	return d.file != "" || slices.ContainsFunc(d.nodes, (*database).hasFile)
}

// flatError is an error with a text of one line.
type flatError struct{ error }

func (e flatError) Unwrap() error { return e.error }
func (e flatError) Error() string { return strings.ReplaceAll(e.error.Error(), "\n", "; ") }

// onEach calls fn for a database, or under a heading for each one of a quorum. Then it tells of
// one that fails, and goes on with the others.
func (a *app) onEach(db *database, fn func(*database) error) error {
	if db.nodes == nil {
		return db.failure(fn(db))
	}
	code := 0
	for i, node := range db.nodes {
		if err := a.put(fmt.Appendf(nil, "database %d:\n", i)); err != nil {
			return err
		}
		if f := (*failure)(nil); errors.As(node.failure(fn(node)), &f) {
			a.say("database %d: %v", i, f)
			code = f.code
		}
	}
	return exit(code)
}

// checkNodes is doctor for a quorum: it checks each database, and opens the quorum.
func (a *app) checkNodes(ctx context.Context, db *database) error {
	bad := false
	for i, node := range db.nodes {
		say := func(f doctor.Finding) error {
			f.Text = fmt.Sprintf("database %d: %s", i, f.Text)
			return a.put(findingLine(f))
		}
		err := a.check(ctx, node, say)
		f := (*failure)(nil)
		if !errors.As(node.failure(err), &f) {
			continue
		}
		bad = true
		if f.code == exitCannotWrite {
			return f
		}
		if f.err != nil {
			if err := say(doctor.Finding{Grade: doctor.Bad, About: "database", Text: f.Error()}); err != nil {
				return err
			}
		}
	}
	result := doctor.Finding{Grade: doctor.OK, About: "quorum", Text: fmt.Sprintf("a name is kept on %d of %d databases", quorum.Need(len(db.nodes), db.faulty), len(db.nodes))}
	locker, err := db.locker(ctx, quorumMode, quietOptions(), openTimeout)
	if err != nil {
		bad = true
		result.Grade, result.Text = doctor.Bad, db.failure(err).Error()
	} else {
		_ = locker.Close(ctx)
	}
	if err := a.put(findingLine(result)); err != nil || !bad {
		return err
	}
	return exit(exitNo)
}
