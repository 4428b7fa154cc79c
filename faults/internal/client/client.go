//go:build linux

// Package client is a process that locks, works and unlocks until it gets the order to
// stop. It writes a history of its calls.
package client

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/faults/internal/orders"
	"github.com/sqllock/sqllock/faults/internal/register"
)

// Variable is set in the environment of a client, and only there; it holds a Config.
const Variable = "SQLLOCK_FAULTS_CLIENT"

// Config is the configuration of a client.
type Config struct {
	Proc           string // its name, another one each time it is started
	Mode, Database string
	Use            string        // what of the library: Locks, Permits, LockAll or Options
	User           int           // with Options, what kind of user it is
	Longest        time.Duration // with Options, for how long at most a lease is held at will
	Short          int           // with Options, all leases but 11 of so many are held for a long time
	Driver, DSN    string
	Work           *Elsewhere // where the registers are; nil is beside the locks
	History        string     // file to create
	Names          []string
	Semaphores     []string                 // names of semaphores, beside those or alone
	Permits        int                      // of each semaphore
	Delays         map[string]time.Duration // the LockDelay by name
	TTL, Poll      time.Duration
	Workers        int
	Pool           int // connections of the pool that the locks use
	Kept           int // leases that are kept all the time
	KeptTTL        time.Duration
	Busy           int // calls of the application on the same pool, at any time
	Seed           uint64
}

// Elsewhere is a database other than the one with the locks.
type Elsewhere struct{ Driver, DSN string }

// Main makes the process a client, and does not return, if it was started as one. Call
// it early in main.
func Main() {
	text := os.Getenv(Variable)
	if text == "" {
		return
	}
	var cfg Config
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		panic("bug: " + err.Error())
	}
	if err := serve(cfg); err != nil {
		fmt.Fprintf(os.Stderr, "client %s: %v\n", cfg.Proc, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// client is the state that the workers share.
type client struct {
	cfg     Config
	log     *history.Writer
	locks   *sqllock.Locker
	locksDB *sql.DB // the handle of locks

	semaphores map[string]*sqllock.Semaphore // by name
	otherwise  map[string]*sqllock.Semaphore // with Options: with another number of permits
	permitted  sync.Map                      // names of semaphores of which this process has had a permit

	work   *register.Registers
	orders orders.Orders
	ids    atomic.Int64
	lag    lag

	watchers sync.WaitGroup
	ctx      context.Context // ends with the order to stop
}

func serve(cfg Config) error {
	log, err := history.Create(cfg.History)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	c := &client{cfg: cfg, log: log, ctx: ctx}
	go c.orders.Obey(stop)
	lockDB, err := handle(cfg.Driver, cfg.DSN, cfg.Pool)
	if err != nil {
		return err
	}
	c.locksDB = lockDB
	at := Elsewhere{cfg.Driver, cfg.DSN}
	if cfg.Work != nil {
		at = *cfg.Work
	}
	workDB, err := handle(at.Driver, at.DSN, cfg.Workers)
	if err != nil {
		return err
	}
	c.work = register.On(workDB, at.Driver)
	if c.open(lockDB) {
		var lagging sync.WaitGroup
		measuring, measured := context.WithCancel(context.Background())
		lagging.Go(func() { c.lag.measure(measuring) })
		c.run()
		measured()
		lagging.Wait()
	}
	c.left(lockDB)
	for _, db := range []*sql.DB{lockDB, workDB} {
		_ = db.Close() // Close writes to connections that may be broken
	}
	c.goroutines()
	return log.Close()
}

func handle(driver, dsn string, conns int) (*sql.DB, error) {
	db, err := sql.Open(driver, dsn)
	if err == nil {
		db.SetMaxOpenConns(conns)
		db.SetMaxIdleConns(conns)
	}
	return db, err
}

// open makes the Locker, trying again while the database cannot be reached. It reports
// false if the client was stopped before.
func (c *client) open(db *sql.DB) bool {
	for c.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(c.ctx, 3*time.Second)
		locks, err := locker(ctx, c.cfg, db, func(d driver.UniqueDatabase) driver.UniqueDatabase { return recorded{d, c} })
		cancel()
		if err == nil {
			c.locks = locks
			if err := c.addSemaphores(); err != nil {
				panic("bug: " + err.Error())
			}
			c.say(history.Event{T: history.Now(), Op: history.Open})
			return true
		}
		c.say(history.Event{T: history.Now(), Op: history.Open, Err: err.Error()})
		time.Sleep(50 * time.Millisecond)
	}
	return false
}

// addSemaphores makes the semaphores.
func (c *client) addSemaphores() error {
	c.semaphores = make(map[string]*sqllock.Semaphore)
	for _, name := range c.cfg.Semaphores {
		s, err := c.locks.Semaphore(name, c.cfg.Permits, nil)
		if err != nil {
			return err
		}
		c.semaphores[name] = s
	}
	if c.cfg.Use != Options {
		return nil
	}
	c.otherwise = make(map[string]*sqllock.Semaphore)
	for _, name := range c.cfg.Semaphores {
		s, err := c.locks.Semaphore(name, c.cfg.Permits+1, nil)
		if err != nil {
			return err
		}
		c.otherwise[name] = s
	}
	return nil
}

// run lets the workers work until the client is stopped, and closes the Locker.
func (c *client) run() {
	var workers sync.WaitGroup
	for i := range c.cfg.Workers {
		workers.Go(func() { newWorker(c, i).run() })
	}
	if c.cfg.Kept > 0 {
		workers.Go(c.keep)
	}
	for range c.cfg.Busy {
		workers.Go(c.keepBusy)
	}
	<-c.ctx.Done()
	c.say(history.Event{T: history.Now(), Op: history.Drain})
	workers.Wait()
	c.watchers.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := c.locks.Close(ctx); err != nil {
		c.say(history.Event{T: history.Now(), Op: history.Left, Reason: "leases", Err: err.Error()})
	}
}

// left reports connections that the Locker has not returned to the pool.
func (c *client) left(db *sql.DB) {
	for deadline := time.Now().Add(5 * time.Second); db.Stats().InUse > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.say(history.Event{
				T: history.Now(), Op: history.Left, Reason: "connections",
				Err: fmt.Sprint(db.Stats().InUse, " connections are in use after Close"),
			})
			return
		}
	}
}

// goroutines reports the goroutines that are left after Close, except the one that reads
// the orders.
func (c *client) goroutines() {
	deadline := time.Now().Add(5 * time.Second)
	for runtime.NumGoroutine() > 2 && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	if runtime.NumGoroutine() > 2 {
		stacks := make([]byte, 64<<10)
		stacks = stacks[:runtime.Stack(stacks, true)]
		c.say(history.Event{T: history.Now(), Op: history.Left, Reason: "goroutines", Err: string(stacks)})
	}
}

// say writes down an event of this process.
func (c *client) say(e history.Event) {
	e.Proc = c.cfg.Proc
	c.log.Write(e)
}

// id returns the id of a new call.
func (c *client) id() string { return c.cfg.Proc + "/" + strconv.FormatInt(c.ids.Add(1), 10) }

// call writes the event of a call, makes the call, and writes its result. Changes that do
// makes to its event appear in the second line only.
func (c *client) call(e history.Event, do func(e *history.Event) error) error {
	return c.callAll([]history.Event{e}, func(events []history.Event) error { return do(&events[0]) })
}

// callAll is call for a call that has an event for each of several names.
func (c *client) callAll(events []history.Event, do func(events []history.Event) error) error {
	for i := range events {
		events[i] = c.begin(events[i])
	}
	err := do(events)
	for i := range events {
		c.finish(events[i], err)
	}
	return err
}

// begin writes the event of a call before it is made, and returns the one for its return.
func (c *client) begin(e history.Event) history.Event {
	if e.ID == "" {
		e.ID = c.id()
	}
	e.T = history.Now()
	c.say(e)
	e.Ret = true
	return e
}

// finish writes the event of a call that has returned.
func (c *client) finish(e history.Event, err error) {
	e.T = history.Now()
	if err != nil {
		e.Err = err.Error()
	}
	c.say(e)
}
