//go:build linux

// Package cell runs one nemesis against one mode on one database, and checks the
// histories of the clients.
package cell

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/faults/internal/check"
	"github.com/sqllock/sqllock/faults/internal/client"
	"github.com/sqllock/sqllock/faults/internal/fleet"
	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/faults/internal/nemesis"
	"github.com/sqllock/sqllock/faults/internal/register"
	"github.com/sqllock/sqllock/faults/internal/server"
	"github.com/sqllock/sqllock/internal/netproxy"
	"github.com/sqllock/sqllock/internal/testdb/supervisor"
	"github.com/sqllock/sqllock/migrations"
)

// Spec describes a cell.
type Spec struct {
	Nemesis        *nemesis.Nemesis
	Mode, Database string
	Use            string        // what of the library: see package client
	Path           string        // to the database: see package client
	For            time.Duration // for how long faults strike
	Seed           uint64
	Binary         string // of the clients
	Keep           string // directory for the histories, "" to forget them
	Strict         bool   // what the replay does not explain is a failure
}

// Name returns the name of the cell.
func (s Spec) Name() string { return s.Nemesis.Name + "/" + s.Kind() + "/" + s.Database }

// Kind returns the mode, or what else than locks the clients use, or how they reach the database.
func (s Spec) Kind() string {
	if s.Path != "" {
		return s.Path
	}
	if s.Use != client.Locks {
		return s.Use
	}
	return s.Mode
}

// Result is the result of a cell.
type Result struct {
	Spec
	check.Counts
	check.Replayed // what is unexplained is a failure only if Strict
	Failures       []check.Failure
	Unprotected    int
	Covered        check.Coverage // with Options
	Lines          int            // names and slots for which an order of the calls was searched for
	Unordered      []string       // those of them for which the search took too long
	Took           time.Duration
	Histories      string // directory, if they were kept
}

// The settings of all cells.
const (
	clients = 4
	workers = 4
	poll    = 25 * time.Millisecond
	delay   = 200 * time.Millisecond
	pool    = 8
	permits = 3 // of each semaphore
	kept    = 5 // leases that each client keeps
	keptTTL = 11 * time.Second
	busy    = 6 // calls of the application, of the pool's 8

	// longestWork is for how long a lease is held at will, with options; longestInOutages is the same
	// where leases have to survive outages, so longer than some TTLs.
	longestWork      = 1500 * time.Millisecond
	longestInOutages = 4 * time.Second
)

// delays are the LockDelay of those names that have one.
var delays = map[string]time.Duration{"b": delay, "e": delay, "semaphore b": delay}

// names are those that the clients lock.
func (s Spec) names() []string {
	switch s.Use {
	case client.Permits:
		return nil
	case client.Options:
		return []string{"a", "b", "c", "d", "e", "f", "long a", "long b"}
	}
	return []string{"a", "b", "c", "d", "e", "f"}
}

// semaphores are those of whose permits the clients want one, where the mode has permits: few, since
// each has several.
func (s Spec) semaphores() []string {
	switch {
	case s.Use == client.Permits:
		return []string{"semaphore a", "semaphore b"}
	case s.Use == client.Options:
		return []string{"semaphore a", "semaphore b", "long semaphore"}
	case s.Use == client.Locks && s.Mode == client.Unique:
		return []string{"semaphore a"}
	}
	return nil
}

// lines name the registers: one for each name, and for each slot.
func (s Spec) lines() []string {
	lines := s.names()
	for _, name := range s.semaphores() {
		for slot := range permits {
			lines = append(lines, history.Slot(name, slot))
		}
	}
	return lines
}

// ttl is the shortest that the mode takes: MySQL counts in whole seconds. A cluster stands still
// for two seconds when a node is gone, and longer on a busy machine.
func (s Spec) ttl() time.Duration {
	if s.Database == server.Galera {
		return 5 * time.Second
	}
	if s.Mode != client.Unique && s.Database == server.MariaDB {
		return 2 * time.Second
	}
	return time.Second
}

// grace is the longest time that a waiter may take without faults: the TTL of a dead
// holder, the delay, a poll, the longest term of another client, and time for a busy
// machine.
func (s Spec) grace() time.Duration {
	if s.Use == client.Options {
		return client.MostWaitedIn + client.LongestDelay + client.LongestMinHold + poll + 3*time.Second
	}
	return s.ttl() + delay + poll + 3*time.Second
}

func (s Spec) rules() check.Rules {
	return check.Rules{
		Sessions: s.Mode != client.Unique,
		Unsteady: s.Nemesis.Unsteady && s.Mode == client.Unique,
		Forgets:  s.Nemesis.Loses && s.Mode == client.Unique,
		Replayed: s.Replays(),
		Permits:  permits,
		Least:    s.least(),
		TTL:      s.ttl(), Grace: s.grace(),
	}
}

// least is how often clients must have done what the cell is for. Faults strike for longer if they
// have not, so it is little. How many permits they must have acquired is in package check.
func (s Spec) least() map[string]int {
	least := map[string]int{history.Unlock: 10, history.Fenced: 1, history.Plain: 1, history.Inspect: 1}
	switch {
	case s.Nemesis.Loses: // a guard is of the database of the locks
	case s.Database == server.Galera: // where another node ends most transactions that guard
		least[history.Guarded] = 1
	default:
		least[history.Guarded] = 3
	}
	switch s.Use {
	case client.Options:
		for _, kind := range history.Kinds {
			least[kind] = 1
		}
		least[history.Exclusive], least[history.Shared] = 5, 5
	case client.LockAll:
		least[history.Together] = 5
		fallthrough
	case client.Locks:
		least[history.Exclusive], least[history.Shared], least[history.Enter], least[history.Leave] = 20, 5, 1, 1
	}
	if s.Mode == client.Unique {
		least[history.Rows] = 20
		if s.Nemesis.Standby || s.Nemesis.Nodes { // the server is away for most of the time
			least[history.Rows] = 5
		}
		if s.Nemesis.Keeps {
			least[history.Kept] = kept
		}
	}
	return least
}

// Replays reports that the database writes down what is changed, and that the history can be
// explained by the rules of a name, step by step. The clock of SQLite counts milliseconds, and does
// not tell the order of steps within one. After a trigger MariaDB must be asked for each token, so
// every other seed does without. Nodes of a cluster read what was so a moment ago.
func (s Spec) Replays() bool {
	noted := s.Database == server.Postgres || s.Database == server.MariaDB && s.Seed%2 == 1
	known := s.Use == client.Locks || s.Use == client.Permits || s.Use == client.LockAll
	return s.Mode == client.Unique && known && noted && !s.Nemesis.Unsteady
}

// site is a cell that runs.
type site struct {
	Spec
	dir   string
	log   *history.Writer
	srv   *server.Server
	admin *sql.DB
	work  *register.Registers
	nets  []*netproxy.Proxy
	fleet []*fleet.Client

	elsewhere *client.Elsewhere // where the registers are, nil beside the locks
	workDB    *sql.DB           // their handle then

	reader history.Reader
	events []history.Event
	until  int64
	slow   atomic.Int64 // when the server was seen to be slow last, of package history
}

// Run runs a cell. It returns an error if the cell could not be run, not if a check
// failed. What checks have found until then is in the result all the same. The histories are kept
// in both cases.
func Run(ctx context.Context, w *supervisor.Supervisor, spec Spec) (r Result, err error) {
	began := time.Now()
	s := &site{Spec: spec}
	r = Result{Spec: spec}
	defer func() {
		r.Took = time.Since(began)
		if len(r.Failures) > 0 || err != nil && ctx.Err() == nil {
			r.Histories = s.dir
		}
		err = errors.Join(err, s.close(r.Histories != ""))
	}()
	if err := s.open(ctx, w); err != nil {
		return r, err
	}
	if s.Keep != "" {
		r.Histories = s.dir
	}
	probing, enough := context.WithCancel(ctx)
	defer enough()
	probed := make(chan error, 1)
	go func() {
		var reading sync.WaitGroup
		reading.Go(func() { s.readRows(probing) })
		err := s.probe(probing)
		reading.Wait()
		probed <- err
	}()
	r.Failures, err = s.storm(ctx)
	if err == nil && len(r.Failures) == 0 && ctx.Err() == nil {
		r.Failures, err = s.drain()
	}
	enough()
	err = errors.Join(err, <-probed)
	if err == nil && len(r.Failures) == 0 && ctx.Err() == nil {
		err = s.end(ctx, &r)
	}
	r.Counts = check.Count(s.events, s.rules())
	r.Covered = s.coverage()
	return r, errors.Join(err, context.Cause(ctx))
}

// open starts the server and the clients.
func (s *site) open(ctx context.Context, w *supervisor.Supervisor) (err error) {
	if s.dir, err = os.MkdirTemp(s.Keep, "sqllock-faults-"); err != nil {
		return err
	}
	if s.log, err = history.Create(filepath.Join(s.dir, "faults.jsonl")); err != nil {
		return err
	}
	if s.srv, err = server.Start(w, s.Database, s.Nemesis.Steps); err != nil {
		return err
	}
	if err := s.openAdmin(); err != nil {
		return err
	}
	if err := migrations.Up(ctx, client.Database(s.Database, s.admin)); err != nil {
		return err
	}
	if err := s.note(ctx); err != nil {
		return err
	}
	if err := s.registers(ctx); err != nil {
		return err
	}
	if s.Nemesis.Standby {
		if err := s.srv.Replicate(!s.Nemesis.Loses, s.Nemesis.Pair); err != nil {
			return err
		}
	}
	if s.Nemesis.Pair { // from now on through the addresses of both
		if err := s.admin.Close(); err != nil {
			return err
		}
		if err := s.openAdmin(); err != nil {
			return err
		}
		s.work = register.On(s.admin, s.srv.Driver())
	}
	if s.Path == client.Pgbouncer {
		if err := s.srv.Pool(); err != nil {
			return err
		}
	}
	for i := range clients {
		if err := s.join(i + 1); err != nil {
			return err
		}
	}
	return nil
}

// openAdmin opens the handle of the cell itself.
func (s *site) openAdmin() (err error) {
	if s.admin, err = sql.Open(s.srv.Driver(), s.srv.DSN("")); err == nil {
		s.admin.SetMaxOpenConns(1) // so that the other sessions are those of the clients
	}
	return err
}

// registers makes the registers, beside the locks if those forget nothing, or else in a
// file of their own.
func (s *site) registers(ctx context.Context) error {
	if !s.Nemesis.Loses {
		s.work = register.On(s.admin, s.srv.Driver())
		return s.work.Create(ctx, s.lines()...)
	}
	s.elsewhere = &client.Elsewhere{Driver: "sqlite", DSN: server.File(s.dir) + immediate}
	db, err := sql.Open(s.elsewhere.Driver, s.elsewhere.DSN)
	if err != nil {
		return err
	}
	s.workDB = db
	s.work = register.On(db, s.elsewhere.Driver)
	return s.work.Create(ctx, s.lines()...)
}

// immediate is for transactions that write: they say so first.
const immediate = "&_txlock=immediate"

// join starts a client behind its own proxy, in front of one of the nodes if there are several, unless
// it knows two servers.
func (s *site) join(number int) (err error) {
	var net *netproxy.Proxy
	addr := ""
	if s.Database != server.SQLite && !s.Nemesis.Pair {
		nodes := s.srv.Nodes()
		if net, err = netproxy.Listen(nodes[number%len(nodes)].Front()); err != nil {
			return err
		}
		s.nets = append(s.nets, net)
		addr = net.Addr()
	}
	user := (number - 1) % client.Users
	cfg := client.Config{
		User: user, Longest: longestWork, Short: 12,
		Mode: s.Mode, Database: s.Database, Driver: s.srv.Driver(), DSN: s.srv.DSN(addr), History: s.dir,
		Names: s.names(), Semaphores: s.semaphores(), Permits: permits, Delays: delays, Use: s.Use, TTL: s.ttl(), Poll: poll, Workers: workers, Pool: pool, Seed: s.seed(),
		Work: s.elsewhere,
	}
	if s.Nemesis.Name == check.Outage {
		cfg.Longest, cfg.Short = longestInOutages, 16
	}
	if s.Nemesis.Pool > 0 {
		cfg.Pool = s.Nemesis.Pool
	}
	if s.Nemesis.Keeps && s.Mode == client.Unique {
		cfg.Kept, cfg.KeptTTL, cfg.Busy = kept, keptTTL, busy
	}
	switch {
	case s.Database == server.SQLite:
		cfg.DSN += immediate
	case s.Path == client.Pgbouncer:
		cfg.DSN += "&default_query_exec_mode=exec"
	case s.Path == client.LibPQ:
		cfg.Driver = "postgres"
	}
	c, err := fleet.New(cfg, number, s.Binary, net)
	if err == nil {
		s.fleet = append(s.fleet, c)
	}
	return err
}

// seed is another one for each cell.
func (s *site) seed() uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, s.Name(), s.Seed)
	return h.Sum64()
}

// close ends everything. If keep is true, it keeps the histories and the log of the
// server.
func (s *site) close(keep bool) error {
	var errs []error
	for _, c := range s.fleet {
		c.Close()
	}
	for _, p := range s.nets {
		errs = append(errs, p.Close())
	}
	for _, db := range []*sql.DB{s.admin, s.workDB} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	if s.log != nil {
		errs = append(errs, s.log.Close())
	}
	switch {
	case keep && s.srv != nil:
		errs = append(errs, os.WriteFile(filepath.Join(s.dir, "server.log"), s.srv.LogText(), 0o644))
	case !keep && s.dir != "":
		errs = append(errs, os.RemoveAll(s.dir))
	}
	if s.srv != nil {
		errs = append(errs, s.srv.Remove())
	}
	return errors.Join(errs...)
}

// read reads the new events of the clients and the nemesis. It notes until when the
// history is complete: a client writes the line of a call before the call, so the cause
// of each event before that time has been read.
func (s *site) read() error {
	s.until = history.Now()
	paths := []string{filepath.Join(s.dir, "faults.jsonl")}
	for _, c := range s.fleet {
		paths = append(paths, c.Histories()...)
	}
	more, err := s.reader.More(paths...)
	s.events = append(s.events, more...)
	return err
}

// complete returns the events that were read of which no cause is missing.
func (s *site) complete() []history.Event {
	var events []history.Event
	for _, e := range s.events {
		if e.T <= s.until {
			events = append(events, e)
		}
	}
	return events
}

func (s *site) rng() *rand.Rand { return rand.New(rand.NewPCG(s.seed(), 1)) }
