//go:build unix

package gocronlock_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/jonboulle/clockwork"
	"golang.org/x/sys/unix"

	"github.com/sqllock/sqllock"
	gocronlock "github.com/sqllock/sqllock/gocron"
	"github.com/sqllock/sqllock/internal/testdb"
)

func init() { child = replica }

// replicaConfig tells a replica what to do. It has a scheduler with one job, which
// notes each tick of a clock that all replicas have.
type replicaConfig struct {
	Mode, Engine, DSN string
	TTL               time.Duration
	Every             time.Duration // from tick to tick

	Settle  time.Duration // with an Elector
	MinHold time.Duration // with a Locker, if it is not 0
	Skew    time.Duration // by which its clock is behind
}

const ticksTable = `CREATE TABLE ticks (tick BIGINT NOT NULL, pid BIGINT NOT NULL, at BIGINT NOT NULL)`

// replica runs until its input ends, and prints what it does and believes.
func replica() error {
	var cfg replicaConfig
	if err := json.Unmarshal([]byte(os.Getenv(envChild)), &cfg); err != nil {
		return err
	}
	driver := map[string]string{testdb.SQLite: "sqlite", testdb.Postgres: "pgx"}[cfg.Engine]
	if driver == "" {
		driver = "mysql"
	}
	db, err := sql.Open(driver, cfg.DSN)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	ctx := context.Background()
	locks, err := openLocks(ctx, pair{cfg.Mode, cfg.Engine}, db, sqllock.UniqueOptions{TTL: cfg.TTL, RetryMax: 50 * time.Millisecond})
	if err != nil {
		return err
	}
	run := runElector
	if cfg.MinHold != 0 {
		run = runLocker
	}
	return errors.Join(run(ctx, &cfg, db, locks), locks.Close(ctx))
}

func runElector(ctx context.Context, cfg *replicaConfig, db *sql.DB, locks *sqllock.Locker) error {
	election, err := locks.Election(electionName, nil)
	if err != nil {
		return err
	}
	elector, err := gocronlock.NewElector(election, gocronlock.Settle(cfg.Settle))
	if err != nil {
		return err
	}
	s, err := cfg.schedule(db, gocron.WithDistributedElector(elector))
	if err != nil {
		return err
	}
	over, observed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(observed)
		observe(ctx, election, elector, over)
	}()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); { // each line asks to resign
		fmt.Println("resigning", int64(monotonic()))
		if err := election.Resign(ctx); err != nil && !errors.Is(err, sqllock.ErrNotLeader) && !errors.Is(err, sqllock.ErrLost) {
			fmt.Fprintln(os.Stderr, "resign:", err) // the database did not answer in time
		}
	}
	err = errors.Join(s.Shutdown(), elector.Close(ctx))
	close(over)
	<-observed
	return err
}

func runLocker(ctx context.Context, cfg *replicaConfig, db *sql.DB, locks *sqllock.Locker) error {
	l, err := gocronlock.NewLocker(locks, prefix, sqllock.MinHold(cfg.MinHold))
	if err != nil {
		return err
	}
	lock, err := l.Lock(ctx, fmt.Sprint(os.Getpid())) // connects, so that no tick has to wait for that
	if err == nil {
		err = lock.Unlock(ctx)
	}
	if err != nil {
		return err
	}
	s, err := cfg.schedule(db, gocron.WithDistributedLocker(l))
	if err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
	}
	return s.Shutdown()
}

// schedule starts a scheduler.
func (cfg *replicaConfig) schedule(db *sql.DB, opt gocron.SchedulerOption) (gocron.Scheduler, error) {
	clock := &tickClock{Clock: clockwork.NewRealClock(), every: cfg.Every, skew: cfg.Skew}
	s, err := gocron.NewScheduler(gocron.WithClock(clock), opt)
	if err != nil {
		return nil, err
	}
	_, err = s.NewJob(gocron.DurationJob(cfg.Every), gocron.NewTask(func() error {
		tick := clock.tick.Load()
		if _, err := db.Exec(fmt.Sprintf(`INSERT INTO ticks VALUES (%d, %d, %d)`, tick, os.Getpid(), monotonic())); err != nil {
			fmt.Fprintln(os.Stderr, "tick", tick, err)
			return err
		}
		fmt.Println("tick", tick)
		return nil
	}), gocron.WithName("tick"), gocron.WithStartAt(gocron.WithStartDateTimePast(time.Now().Truncate(cfg.Every).Add(cfg.Skew))))
	if err != nil {
		return nil, err
	}
	s.Start()
	return s, nil
}

// tickClock knows for which tick a timer was set that fires: however late a job starts, it
// is known which tick it was due at.
type tickClock struct {
	clockwork.Clock
	every, skew time.Duration
	tick        atomic.Int64
}

func (c *tickClock) AfterFunc(d time.Duration, f func()) clockwork.Timer {
	due := time.Now().Add(d - c.skew)
	return c.Clock.AfterFunc(d, func() {
		c.tick.Store(due.Round(c.every).UnixNano() / int64(c.every))
		f()
	})
}

// observe prints what the replica believes, with the time before and after the look: each
// time that it leads, or has just led, and now and then while another leads.
func observe(ctx context.Context, election *sqllock.Election, elector *gocronlock.Elector, over <-chan struct{}) {
	const seldom = 50 * time.Millisecond
	var token int64
	var led bool
	var reported time.Duration
	for {
		before := monotonic()
		leads := elector.IsLeader(ctx) == nil
		leads = election.IsLeader() || leads
		after := monotonic()
		if leads || led || before-reported >= seldom {
			if lease, err := election.Lease(); err == nil {
				token = lease.Token() // else the one that it may have lost since
			}
			fmt.Println("leads", leads, token, int64(before), int64(after))
			reported = before
		}
		led = leads
		select {
		case <-over:
			return
		case <-time.After(3 * time.Millisecond):
		}
	}
}

// monotonic is a clock that all processes of the machine share.
func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}
