//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/sqllock/sqllock/faults/internal/fleet"
	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/faults/internal/nemesis"
	"github.com/sqllock/sqllock/faults/internal/server"
	"github.com/sqllock/sqllock/faults/peers/internal/judge"
	"github.com/sqllock/sqllock/faults/peers/internal/ledger"
	"github.com/sqllock/sqllock/faults/peers/internal/locks"
	"github.com/sqllock/sqllock/faults/peers/internal/worker"
	"github.com/sqllock/sqllock/internal/testdb/supervisor"
)

// The settings of a cell, for all systems. The TTL is the shortest that etcd accepts.
const (
	clients = 4
	workers = 3
	ttl     = 2 * time.Second
	settle  = 500 * time.Millisecond
	// ending is how long the clients may take to end in order: each waiter may have to
	// wait for the lease of a dead client.
	ending = time.Minute
)

var names = []string{"a", "b", "c"}

// aims are where a process is paused, in turn.
var aims = []string{history.Plain, history.Fenced, history.Plain, ""}

// plainly is for systems that have no fenced write.
var plainly = []string{history.Plain, history.Plain, history.Plain, ""}

// A spec describes a cell.
type spec struct {
	system  locks.System
	nemesis *nemesis.Nemesis
	each    time.Duration
	seed    uint64
	keep    string // directory for the histories, "" to forget them
}

func (s spec) name() string { return s.nemesis.Name + "/" + s.system.Name }

// A result is the result of a cell.
type result struct {
	spec
	judge.Counts
	unprotected, fenced int // writes that came too late
	refused             int
	stuck               []string // clients that did not end in order, or that ended by themselves
	took                time.Duration
}

// cell is one that runs.
type cell struct {
	spec
	dir       string
	log       *history.Writer
	srv       *server.Server
	site      locks.Site
	registers *ledger.Registers
	ledger    *ledger.Server
	fleet     []*fleet.Client
}

// runCell runs a cell. It returns an error if the cell could not be run.
func runCell(ctx context.Context, w *supervisor.Supervisor, s spec) (r result, err error) {
	began := time.Now()
	c := &cell{spec: s, registers: ledger.New()}
	defer func() {
		err = errors.Join(err, c.close(c.keep != "" || len(r.stuck) > 0 || err != nil && ctx.Err() == nil))
	}()
	if err := c.open(ctx, w); err != nil {
		return r, err
	}
	r.spec = s
	if err := c.storm(ctx); err != nil && !errors.Is(err, fleet.ErrEnded) { // end says it
		return r, err
	}
	if r.stuck, err = c.end(); err != nil {
		return r, err
	}
	events, err := c.events()
	if err != nil {
		return r, err
	}
	r.Counts = judge.Count(events)
	writes := c.registers.Writes()
	if err := c.keepWrites(writes); err != nil {
		return r, err
	}
	r.unprotected, r.fenced = judge.Stale(writes, ledger.Plain), judge.Stale(writes, ledger.Fenced)
	r.refused = c.registers.Refused()
	r.took = time.Since(began)
	return r, context.Cause(ctx)
}

// open starts the server, the ledger and the clients.
func (c *cell) open(ctx context.Context, w *supervisor.Supervisor) (err error) {
	if c.dir, err = os.MkdirTemp(c.keep, "sqllock-peers-"); err != nil {
		return err
	}
	if c.log, err = history.Create(filepath.Join(c.dir, "faults.jsonl")); err != nil {
		return err
	}
	if c.srv, err = server.Start(w, c.system.Server, c.nemesis.Steps); err != nil {
		return err
	}
	c.site = locks.Site{Addr: c.srv.Addr(), TTL: ttl, Workers: workers}
	if c.srv.Driver() != "" {
		c.site.Driver, c.site.DSN = c.srv.Driver(), c.srv.DSN("")
	}
	if c.nemesis.Steps {
		if err := c.stepped(ctx); err != nil {
			return err
		}
	}
	if c.system.Prepare != nil {
		if err := c.system.Prepare(ctx, c.site); err != nil {
			return err
		}
	}
	socket := filepath.Join(c.dir, "ledger")
	if c.ledger, err = ledger.Serve(socket, c.registers); err != nil {
		return err
	}
	for i := range clients {
		if err := c.join(i+1, socket); err != nil {
			return err
		}
	}
	return nil
}

// stepped makes sure that the server sees its clock being set: one that does not proves
// nothing.
func (c *cell) stepped(ctx context.Context) error {
	const step = 1000 * time.Second
	if err := c.srv.Step(step); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	t, err := c.system.Clock(ctx, c.site)
	if err != nil {
		return err
	}
	if by := time.Until(t); by < step-time.Minute || by > step+time.Minute {
		return fmt.Errorf("the clock of the server was set by %v, and it sees %v", step, by)
	}
	return c.srv.Step(-step)
}

// join starts a client.
func (c *cell) join(number int, socket string) error {
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	cfg := worker.Config{System: c.system.Name, Site: c.site, Ledger: socket, Names: names}
	client, err := fleet.Launch(fleet.Config{
		Binary: binary, Dir: c.dir,
		Variable: func(proc, file string, times int) (string, error) {
			cfg.Site.Proc, cfg.History = proc, file
			cfg.Seed = c.mix() + uint64(number)<<32 + uint64(times)
			text, err := json.Marshal(cfg)
			return worker.Variable + "=" + string(text), err
		},
	}, number, nil)
	if err == nil {
		c.fleet = append(c.fleet, client)
	}
	return err
}

// mix returns a seed for each fault: all systems get the same faults at the same times.
func (c *cell) mix() uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, c.nemesis.Name, c.seed)
	return h.Sum64()
}

// storm harms the cell again and again, with rests of up to half a TTL; after the end of
// the server for a TTL more, so that the sessions that ended with it expire.
func (c *cell) storm(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.each)
	defer cancel()
	target := &nemesis.Site{TTL: ttl, Clients: c.fleet, Server: c.srv, Log: c.log, Aims: aims}
	if c.system.Token == "" {
		target.Aims = plainly
	}
	rng := rand.New(rand.NewPCG(c.mix(), 1))
	least := time.Duration(0)
	if c.nemesis.Name == "server-kill" {
		least = ttl
	}
	for rest := settle; ; rest = least + time.Duration(rng.Int64N(int64(ttl/2))) {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rest):
		}
		if err := c.nemesis.Inject(ctx, target, rng); err != nil {
			return err
		}
	}
}

// end makes the clients end in order, and returns those that did not, also because they had ended by
// themselves.
func (c *cell) end() (stuck []string, err error) {
	for _, client := range c.fleet {
		if err := client.Drain(); err != nil && !errors.Is(err, fleet.ErrEnded) { // else Ended says it
			return nil, fmt.Errorf("client %s: %w", client.Proc(), err)
		}
	}
	deadline := time.Now().Add(ending)
	for _, client := range c.fleet {
		if err := client.Ended(time.Until(deadline)); err != nil {
			stuck = append(stuck, err.Error())
		}
	}
	return stuck, nil
}

// events reads the histories.
func (c *cell) events() ([]history.Event, error) {
	paths := []string{filepath.Join(c.dir, "faults.jsonl")}
	for _, client := range c.fleet {
		paths = append(paths, client.Histories()...)
	}
	var reader history.Reader
	return reader.More(paths...)
}

// keepWrites saves the accepted writes with the histories.
func (c *cell) keepWrites(writes []ledger.Accepted) error {
	if c.keep == "" {
		return nil
	}
	text, err := json.MarshalIndent(writes, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(c.dir, "writes.json"), text, 0o644)
}

// close ends everything. If keep is true, it keeps the histories.
func (c *cell) close(keep bool) error {
	var errs []error
	for _, client := range c.fleet {
		client.Close()
	}
	if c.ledger != nil {
		errs = append(errs, c.ledger.Close())
	}
	if c.srv != nil {
		errs = append(errs, c.srv.Remove())
	}
	if c.log != nil {
		errs = append(errs, c.log.Close())
	}
	if !keep && c.dir != "" {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}
