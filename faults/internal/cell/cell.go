//go:build linux

// Package cell runs one nemesis against one mode on one database, and judges what the
// clients have seen.
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

// Spec says what to run.
type Spec struct {
	Nemesis        *nemesis.Nemesis
	Mode, Database string
	For            time.Duration // for how long faults strike
	Seed           uint64
	Binary         string // of the clients
	Keep           string // directory for the histories, "" to forget them
}

// Name returns the name of the cell.
func (s Spec) Name() string { return s.Nemesis.Name + "/" + s.Mode + "/" + s.Database }

// Result is what came of it.
type Result struct {
	Spec
	check.Counts
	Failures    []check.Failure
	Unprotected int
	Unordered   []string // names whose order was not found in time
	Took        time.Duration
	Histories   string // directory, if they were kept
}

// What a cell is like. Each third name has a LockDelay.
const (
	clients = 4
	workers = 4
	poll    = 25 * time.Millisecond
	delay   = 200 * time.Millisecond
	pool    = 8
)

var (
	names  = []string{"a", "b", "c", "d", "e", "f"}
	delays = []time.Duration{0, delay, 0, 0, delay, 0}
)

// ttl is the shortest that the mode takes: MySQL counts in whole seconds.
func (s Spec) ttl() time.Duration {
	if s.Mode != client.Unique && s.Database == server.MariaDB {
		return 2 * time.Second
	}
	return time.Second
}

// grace is within how long somebody who waits is served when all is well: the TTL of
// who has gone, the delay, a poll, the longest hold of somebody else, and time for a
// machine that does much else.
func (s Spec) grace() time.Duration { return s.ttl() + delay + poll + 3*time.Second }

func (s Spec) rules() check.Rules {
	return check.Rules{
		Sessions: s.Mode != client.Unique,
		Unsteady: s.Nemesis.Unsteady && s.Mode == client.Unique,
		Forgets:  s.Nemesis.Loses && s.Mode == client.Unique,
		TTL:      s.ttl(), Grace: s.grace(),
	}
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

// Run runs a cell. The error says that it could not be run, not that a check failed.
func Run(ctx context.Context, w *supervisor.Supervisor, spec Spec) (r Result, err error) {
	began := time.Now()
	s := &site{Spec: spec}
	r = Result{Spec: spec}
	defer func() { err = errors.Join(err, s.close(r.Histories != "")) }()
	if err := s.open(ctx, w); err != nil {
		return r, err
	}
	if s.Keep != "" {
		r.Histories = s.dir
	}
	probing, enough := context.WithCancel(ctx)
	defer enough()
	probed := make(chan error, 1)
	go func() { probed <- s.probe(probing) }()
	r.Failures, err = s.storm(ctx)
	if err == nil && len(r.Failures) == 0 && ctx.Err() == nil {
		r.Failures, err = s.drain()
	}
	enough()
	if err = errors.Join(err, <-probed); err != nil {
		return r, err
	}
	if len(r.Failures) == 0 && ctx.Err() == nil {
		if err := s.end(ctx, &r); err != nil {
			return r, err
		}
	}
	r.Counts = check.Count(s.events, s.rules())
	r.Took = time.Since(began)
	if len(r.Failures) > 0 {
		r.Histories = s.dir
	}
	return r, context.Cause(ctx)
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
	if s.admin, err = sql.Open(s.srv.Driver(), s.srv.DSN("")); err != nil {
		return err
	}
	s.admin.SetMaxOpenConns(1) // so that the other sessions are those of the clients
	if err := migrations.Up(ctx, client.Database(s.Database, s.admin)); err != nil {
		return err
	}
	if err := s.registers(ctx); err != nil {
		return err
	}
	if s.Nemesis.Standby {
		if err := s.srv.Replicate(!s.Nemesis.Loses); err != nil {
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

// registers makes the registers, beside the locks if those forget nothing, or else in a
// file of their own.
func (s *site) registers(ctx context.Context) error {
	if !s.Nemesis.Loses {
		s.work = register.On(s.admin, s.srv.Driver())
		return s.work.Create(ctx, names...)
	}
	s.elsewhere = &client.Elsewhere{Driver: "sqlite", DSN: server.File(s.dir) + immediate}
	db, err := sql.Open(s.elsewhere.Driver, s.elsewhere.DSN)
	if err != nil {
		return err
	}
	s.workDB = db
	s.work = register.On(db, s.elsewhere.Driver)
	return s.work.Create(ctx, names...)
}

// immediate is for transactions that write: they say so first.
const immediate = "&_txlock=immediate"

// join starts a client behind a network of its own.
func (s *site) join(number int) (err error) {
	var net *netproxy.Proxy
	addr := ""
	if s.Database != server.SQLite {
		if net, err = netproxy.Listen(s.srv.Addr()); err != nil {
			return err
		}
		s.nets = append(s.nets, net)
		addr = net.Addr()
	}
	cfg := client.Config{
		Mode: s.Mode, Database: s.Database, Driver: s.srv.Driver(), DSN: s.srv.DSN(addr), History: s.dir,
		Names: names, Delays: delays, TTL: s.ttl(), Poll: poll, Workers: workers, Pool: pool, Seed: s.seed(),
		Work: s.elsewhere,
	}
	if s.Nemesis.Pool > 0 {
		cfg.Pool = s.Nemesis.Pool
	}
	if s.Database == server.SQLite {
		cfg.DSN += immediate
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

// close ends everything. To keep the histories is to keep what the server has said, too.
func (s *site) close(keep bool) error {
	var errs []error
	for _, c := range s.fleet {
		errs = append(errs, c.Kill())
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
	if keep {
		errs = append(errs, os.WriteFile(filepath.Join(s.dir, "server.log"), s.srv.LogText(), 0o644))
	} else if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	if s.srv != nil {
		errs = append(errs, s.srv.Remove())
	}
	return errors.Join(errs...)
}

// read reads what the clients and the nemesis have written meanwhile, and notes until
// when that is complete: what a call does comes after its line, so of no event before
// the reading the cause can be missing.
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
