//go:build linux

// Package worker is a process that locks, works and unlocks with any of the locks, until
// it gets the order to stop. It writes a history.
package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/faults/internal/orders"
	"github.com/sqllock/sqllock/faults/peers/internal/ledger"
	"github.com/sqllock/sqllock/faults/peers/internal/locks"
)

// Variable is set in the environment of such a process, and only there; it holds a
// Config.
const Variable = "SQLLOCK_PEERS_CLIENT"

// Config is the configuration of a process.
type Config struct {
	System  string // of package locks
	Site    locks.Site
	Ledger  string // path of the socket
	History string // file to create
	Names   []string
	Seed    uint64
}

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
		fmt.Fprintf(os.Stderr, "client %s: %v\n", cfg.Site.Proc, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// process is the state that the workers share.
type process struct {
	cfg    Config
	log    *history.Writer
	locks  locks.Client
	ledger *ledger.Client
	orders orders.Orders
	ids    atomic.Int64
	ctx    context.Context // ends with the order to stop
}

func serve(cfg Config) error {
	log, err := history.Create(cfg.History)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	p := &process{cfg: cfg, log: log, ctx: ctx}
	go p.orders.Obey(stop)
	if p.ledger, err = ledger.Dial(cfg.Ledger); err != nil {
		return err
	}
	if p.open() {
		var workers sync.WaitGroup
		for i := range cfg.Site.Workers {
			workers.Go(func() { newWorker(p, i).run() })
		}
		workers.Wait()
		if err := p.locks.Close(); err != nil {
			return err
		}
	}
	if err := p.ledger.Close(); err != nil {
		return err
	}
	return log.Close()
}

// open makes the client of the locks, trying again while the server cannot be reached.
// It reports false if the process was stopped before.
func (p *process) open() bool {
	system, ok := locks.ByName(p.cfg.System)
	if !ok {
		panic("bug: no system is named " + p.cfg.System)
	}
	for p.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(p.ctx, 3*time.Second)
		client, err := system.Open(ctx, p.cfg.Site)
		cancel()
		if err == nil {
			p.locks = client
			return true
		}
		time.Sleep(50 * time.Millisecond)
	}
	return false
}

// say writes down an event of this process.
func (p *process) say(e history.Event) {
	e.Proc = p.cfg.Site.Proc
	p.log.Write(e)
}

// id returns the id of a new call.
func (p *process) id() string {
	return p.cfg.Site.Proc + "/" + strconv.FormatInt(p.ids.Add(1), 10)
}
