//go:build linux

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/faults/internal/server"
	"github.com/sqllock/sqllock/internal/testdb/supervisor"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/migrations"
)

// products are the databases of the quorum.
var products = []string{server.Postgres, server.Postgres, server.Postgres, server.MariaDB, server.MariaDB}

// faults are what is done to two databases at a time.
var faults = []struct {
	name string
	away bool // both are away for as long as the flag says
	do   func(s *server.Server, down time.Duration) error
}{
	{"killed", true, func(s *server.Server, down time.Duration) error { return s.Crash(down) }},
	{"frozen", true, func(s *server.Server, down time.Duration) error { return s.Pause(down) }},
	{"restarted", false, func(s *server.Server, _ time.Duration) error { return s.Crash(0) }},
}

const prefix = "quorum_"

// scene is what a run consists of.
type scene struct {
	settings
	servers []*server.Server
	lockers []*sqllock.Locker
	watches []*watch // of names whose terms are short
	long    []*watch // of as many names whose terms are long
	raises  atomic.Int64
	errs    atomic.Int64 // calls that returned an error
	applied []int        // how often each fault was applied to two databases
	silent  []int        // how often nobody was granted a name while both were away
}

// applyFaults returns false if a promise was broken.
func applyFaults(ctx context.Context, w *supervisor.Supervisor, s settings, out io.Writer) (ok bool, err error) {
	c := &scene{settings: s, applied: make([]int, len(faults)), silent: make([]int, len(faults))}
	defer func() {
		for _, one := range c.servers {
			err = errors.Join(err, one.Remove())
		}
	}()
	for _, product := range products {
		one, err := server.Start(w, product, false)
		if err != nil {
			return false, err
		}
		c.servers = append(c.servers, one)
	}
	for range s.lockers {
		l, err := c.open(ctx)
		if err != nil {
			return false, err
		}
		c.lockers = append(c.lockers, l)
	}
	versions, err := c.versions(ctx)
	if err != nil {
		return false, err
	}
	fmt.Fprintf(out, "%s\n%s\n", time.Now().UTC().Format("2006-01-02 15:04 MST"), versions)
	began := time.Now()
	err = c.load(ctx)
	return c.tell(out, time.Since(began), err) && err == nil, err
}

// open opens a Locker with handles of its own. The first one makes the tables.
func (c *scene) open(ctx context.Context) (*sqllock.Locker, error) {
	var dbs []driver.UniqueDatabase
	for _, s := range c.servers {
		handle, err := sql.Open(s.Driver(), s.DSN(""))
		if err != nil {
			return nil, err
		}
		handle.SetMaxOpenConns(10)
		var db interface {
			driver.UniqueDatabase
			driver.Migratable
		} = lockpg.DB(handle, lockpg.TablePrefix(prefix))
		if s.Name() == server.MariaDB {
			db = lockmysql.DB(handle, lockmysql.TablePrefix(prefix))
		}
		if len(c.lockers) == 0 {
			if err := migrations.Up(ctx, db); err != nil {
				return nil, err
			}
		}
		dbs = append(dbs, &counted{db, &c.raises})
	}
	return sqllock.NewQuorum(ctx, dbs, &sqllock.QuorumOptions{TTL: c.ttl, RetryMax: 100 * time.Millisecond})
}

// counted counts the statements that raise versions.
type counted struct {
	driver.UniqueDatabase
	raises *atomic.Int64
}

func (d *counted) OpenUnique(ctx context.Context, client driver.Client) (driver.Store, error) {
	s, err := d.UniqueDatabase.OpenUnique(ctx, client)
	if err != nil {
		return nil, err
	}
	return &countedStore{s.(driver.NodeStore), d.raises}, nil
}

type countedStore struct {
	driver.NodeStore
	raises *atomic.Int64
}

func (s *countedStore) Raise(ctx context.Context, reqs []driver.RaiseRequest) ([]bool, error) {
	s.raises.Add(1)
	return s.NodeStore.Raise(ctx, reqs)
}

func (c *scene) versions(ctx context.Context) (all string, err error) {
	for i, s := range c.servers {
		handle, err := sql.Open(s.Driver(), s.DSN(""))
		if err != nil {
			return "", err
		}
		var version string
		err = handle.QueryRowContext(ctx, `SELECT version()`).Scan(&version)
		if err = errors.Join(err, handle.Close()); err != nil {
			return "", err
		}
		all += fmt.Sprintf("database %d: %s %.15s\n", i, s.Name(), version)
	}
	return all, nil
}

// load has callers compete while faults strike. Beside those of the flag, each Locker has one for the
// long terms.
func (c *scene) load(ctx context.Context) error {
	for range c.names {
		c.watches = append(c.watches, newWatch(c.ttl))
		c.long = append(c.long, newWatch(c.ttl))
	}
	compete, stop := context.WithCancel(ctx)
	defer stop()
	var callers sync.WaitGroup
	for i, l := range c.lockers {
		for range c.callers {
			callers.Go(func() { c.call(compete, l) })
		}
		callers.Go(func() { c.callForLong(compete, l, i) })
	}
	err := c.nemesis(ctx)
	for _, w := range c.watches {
		w.end()
	}
	stop()
	callers.Wait()
	closing, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, l := range c.lockers {
		err = errors.Join(err, l.Close(closing))
	}
	return err
}

// call takes names until ctx ends.
func (c *scene) call(ctx context.Context, l *sqllock.Locker) {
	for ctx.Err() == nil {
		i := rand.IntN(c.names)
		lease, err := l.Lock(ctx, fmt.Sprintf("name %d", i))
		if err != nil {
			if ctx.Err() == nil {
				c.errs.Add(1)
			}
			continue
		}
		c.watches[i].enter(lease)
		time.Sleep(rand.N(5 * time.Millisecond))
		c.watches[i].leave(lease)
		_ = lease.Unlock(context.Background()) // a loss is counted, what is unknown is freed in the background
	}
}

// callForLong takes the names of long terms, one after the other from the i'th on, until ctx ends.
// Every other term lasts for one to two TTLs, so that its lease is renewed under faults; the others
// are shorter.
func (c *scene) callForLong(ctx context.Context, l *sqllock.Locker, i int) {
	for n := i; ctx.Err() == nil; n++ {
		which := n % c.names
		lease, err := l.Lock(ctx, fmt.Sprintf("long %d", which))
		if err != nil {
			if ctx.Err() == nil {
				c.errs.Add(1)
			}
			continue
		}
		d := rand.N(c.ttl)
		if (n-i)%2 == 0 {
			d += c.ttl
		}
		w := c.long[which]
		w.enter(lease)
		w.keep(ctx, lease, d)
		w.leave(lease)
		_ = lease.Unlock(context.Background())
	}
}

// nemesis strikes each two databases in turn, each time in another way.
func (c *scene) nemesis(ctx context.Context) error {
	end := time.Now().Add(c.lasts)
	for round := 0; ; round++ {
		for i := range c.servers {
			for k := range i {
				which := (round + i*(i-1)/2 + k) % len(faults)
				if err := c.both(ctx, which, c.servers[i], c.servers[k]); err != nil {
					return err
				}
				c.applied[which]++
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-time.After(time.Second):
				}
				if time.Now().After(end) {
					return nil
				}
			}
		}
	}
}

func (c *scene) both(ctx context.Context, which int, a, b *server.Server) error {
	failed := make(chan error, 2)
	end := time.Now().Add(c.down) // neither is back before
	for _, s := range []*server.Server{a, b} {
		go func() { failed <- faults[which].do(s, c.down) }()
	}
	if faults[which].away && !c.goesOn(ctx, end) {
		c.silent[which]++
	}
	return errors.Join(<-failed, <-failed)
}

// goesOn returns whether somebody is granted a name while both databases are away, until end. It does
// not count what is granted in the first quarter of that time, which may have been in flight before.
// If ctx ends, or this machine pauses, nobody can say.
func (c *scene) goesOn(ctx context.Context, end time.Time) bool {
	paused := sleptLonger(time.Until(end) - c.down*3/4)
	before := c.terms()
	for {
		paused = sleptLonger(looking) || paused
		terms := c.terms()
		switch {
		case ctx.Err() != nil, paused:
			return true
		case time.Now().After(end):
			return false
		case terms > before:
			return true
		}
	}
}

// sleptLonger sleeps, and reports that this machine has paused meanwhile.
func sleptLonger(d time.Duration) bool {
	began := time.Now()
	time.Sleep(d)
	return time.Since(began) > max(d, 0)+200*time.Millisecond
}

// terms returns how many short terms began.
func (c *scene) terms() (n int) {
	for _, w := range c.watches {
		n += w.begun()
	}
	return n
}

// tell prints what was seen. It returns false if a promise was broken. failed is why the run could not
// be finished, or nil: then nothing is said to have been kept.
func (c *scene) tell(out io.Writer, took time.Duration, failed error) (ok bool) {
	var all, long watch
	for _, w := range c.watches {
		all.add(w)
		all.gap = max(all.gap, w.gap)
	}
	for _, w := range c.long {
		long.add(w)
	}
	all.add(&long)
	fmt.Fprintf(out, "%v, %d Lockers with %d callers each, %d names, TTL %v, two databases down for %v\n",
		took.Round(time.Second), c.settings.lockers, c.callers, c.names, c.ttl, c.down)
	for i := range faults {
		fmt.Fprintf(out, "two databases %s: %d times\n", faults[i].name, c.applied[i])
	}
	silent, away := 0, 0
	for i := range faults {
		if faults[i].away {
			silent, away = silent+c.silent[i], away+c.applied[i]
			fmt.Fprintf(out, "two databases %s, and nobody was granted a name meanwhile: %d times\n", faults[i].name, c.silent[i])
		}
	}
	fmt.Fprintf(out, "terms: %d\nstatements that raise: %d\nleases lost: %d\nerrors of Lock: %d\n", all.terms, c.raises.Load(), all.lost, c.errs.Load())
	fmt.Fprintf(out, "terms of %d other names that are kept for up to two TTLs: %d\nleases that were renewed beyond their TTL: %d\n",
		len(c.long), long.terms, long.renewed)
	fmt.Fprintf(out, "overlaps: %d\ntokens that do not rise: %d\ncontexts that go on after their lease: %d\nlongest time without a new term of a name: %v\n",
		all.overlaps, all.falls, all.late, all.gap.Round(time.Millisecond))
	idle := slices.ContainsFunc(c.watches, func(w *watch) bool { return w.terms == 0 })
	if took > leastLong*c.ttl {
		idle = idle || long.renewed == 0
	}
	if took > leastLong*c.ttl*time.Duration(c.names) {
		idle = idle || slices.ContainsFunc(c.long, func(w *watch) bool { return w.terms == 0 })
	}
	ok = all.overlaps == 0 && all.falls == 0 && all.late == 0 && all.gap <= c.gap && silent <= max(1, away/10) && !idle
	if !ok {
		fmt.Fprintln(out, "A PROMISE WAS BROKEN")
	}
	switch {
	case failed != nil:
		fmt.Fprintln(out, "THE RUN FAILED:", failed)
	case ok:
		fmt.Fprintln(out, "every promise was kept")
	}
	return ok
}

// leastLong is how many TTLs a run lasts at least that must have renewed leases.
const leastLong = 4
