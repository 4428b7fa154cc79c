package conformance

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sqllock/sqllock"
)

// childVar is set in the environment of a test binary that the suite started; it
// holds a childConfig.
const childVar = "SQLLOCKTEST_CHILD"

// childConfig tells a child what it works on.
type childConfig struct {
	Mode, Database string
	DSN            string
	Label          string
	TTL            time.Duration
}

// order is one line on the standard input of a child, and answer the one that it
// writes for it.
type order struct {
	Do   string // lock, try, rlock, tryrlock, locktx, adopt, unlock, remaining, watch, write, work, together, wait, tokens, campaign, once
	Name string
	What string        `json:",omitempty"` // watch: what to look at; write: what to write; campaign: the identity, and the value; adopt: the handover; once: hang, or nothing
	Gap  time.Duration `json:",omitempty"` // watch: how long the pause will be at least; wait: for how long to hold
	Work *work         `json:",omitempty"`
	All  *allWork      `json:",omitempty"` // together

	Table string `json:",omitempty"` // write and once: of the ledger
	Keys  int    `json:",omitempty"` // once: how many
	Guard bool   `json:",omitempty"` // write: under a Guard
}

type answer struct {
	Token     int64         `json:",omitempty"`
	Remaining time.Duration `json:",omitempty"`
	Lost      bool          `json:",omitempty"` // what was watched showed it
	Detail    string        `json:",omitempty"`
	Took      time.Duration `json:",omitempty"`
	Tokens    []int64       `json:",omitempty"` // tokens: of the waiters, in the order of the orders
	Held      bool          `json:",omitempty"` // the error is an ErrHeld
	NotHeld   bool          `json:",omitempty"` // the error is an ErrNotHeld
	Err       string        `json:",omitempty"`
}

// Main must be called first in the TestMain of a package that calls Run, with the
// pairs that it runs. In the processes that the suite starts it never returns.
func Main(pairs ...Harness) {
	text, ok := os.LookupEnv(childVar)
	if !ok {
		return
	}
	if err := serve(text, pairs); err != nil {
		fmt.Fprintln(os.Stderr, "sqllocktest: child:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve obeys until the parent closes the pipe, or is gone.
func serve(text string, pairs []Harness) error {
	var cfg childConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	h := find(pairs, cfg)
	if h == nil {
		return fmt.Errorf("no pair %s on %s was given to Main", cfg.Mode, cfg.Database)
	}
	db, err := h.OpenDB(cfg.DSN)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	locks, err := h.New(context.Background(), db, &Options{TTL: cfg.TTL, Label: cfg.Label, RetryMax: 50 * time.Millisecond})
	if err != nil {
		return err
	}
	c := &child{db: db, locks: locks, leases: make(map[string]*sqllock.Lease), out: json.NewEncoder(os.Stdout)}
	if err := c.out.Encode(answer{}); err != nil { // ready
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var o order
		if err := json.Unmarshal(in.Bytes(), &o); err != nil {
			return err
		}
		if err := c.out.Encode(c.obey(o)); err != nil {
			return err
		}
	}
	return nil
}

func find(pairs []Harness, cfg childConfig) *Harness {
	for i, h := range pairs {
		if h.Mode == cfg.Mode && h.Database == cfg.Database {
			return &pairs[i]
		}
	}
	return nil
}

type child struct {
	db      *sql.DB
	locks   *sqllock.Locker
	leases  map[string]*sqllock.Lease
	waiting []<-chan answer // calls of doOnce
	out     *json.Encoder
}

func (c *child) obey(o order) answer {
	ctx := context.Background()
	lease := c.leases[o.Name]
	switch o.Do {
	case "lock":
		return c.keep(c.locks.Lock(ctx, o.Name))
	case "try":
		return c.keep(c.locks.TryLock(ctx, o.Name))
	case "rlock":
		return c.keep(c.locks.RLock(ctx, o.Name))
	case "tryrlock":
		return c.keep(c.locks.TryRLock(ctx, o.Name))
	case "locktx":
		return c.lockTx(o.Name)
	case "adopt":
		return c.keep(c.locks.Adopt(ctx, o.What))
	case "unlock":
		return failure(lease.Unlock(ctx))
	case "campaign":
		return c.campaign(o)
	case "remaining":
		return answer{Remaining: lease.Remaining()}
	case "watch":
		return c.watch(lease, o)
	case "write":
		return c.write(lease, o)
	case "work":
		return o.Work.run(c.locks)
	case "together":
		return o.All.run(c)
	case "wait":
		c.waiting = append(c.waiting, doOnce(c.locks, o.Name, o.Gap))
		return answer{}
	case "tokens":
		return c.tokens()
	case "once":
		return c.once(o)
	}
	return failure(errors.New("no such order: " + o.Do))
}

func (c *child) keep(lease *sqllock.Lease, err error) answer {
	if err != nil {
		return failure(err)
	}
	c.leases[lease.Name()] = lease
	return answer{Token: lease.Token(), Remaining: lease.Remaining()}
}

func failure(err error) answer {
	if err == nil {
		return answer{}
	}
	return answer{Err: err.Error(), Held: errors.Is(err, sqllock.ErrHeld), NotHeld: errors.Is(err, sqllock.ErrNotHeld), Lost: errors.Is(err, sqllock.ErrLost)}
}

// watch pauses this process, until the parent lets it go on, and then looks once.
//
// The look is the first thing that happens after the pause: the process has one
// processor, which this goroutine keeps meanwhile, so that the runtime's timers
// and the Locker's goroutines come later, whatever they would like to do.
func (c *child) watch(lease *sqllock.Lease, o order) answer {
	bound, cancel := lease.Bind(context.Background())
	defer cancel()
	look := looks(lease, bound)[o.What]
	if look == nil {
		return failure(errors.New("nothing to watch: " + o.What))
	}
	time.Sleep(time.Millisecond) // the processor is ours for some time from now on
	before := time.Now()
	pauseSelf()
	for time.Since(before) < o.Gap { // where a pause does not begin at once
	}
	woke := time.Now()
	lost, result := look()
	return answer{Lost: lost, Detail: result, Took: time.Since(woke)}
}

// looks are the ways in which a holder can see that its lease is lost.
func looks(lease *sqllock.Lease, bound context.Context) map[string]func() (lost bool, result string) {
	result := func(lost bool, v any) (bool, string) { return lost, fmt.Sprint(v) }
	ctx := lease.Context()
	return map[string]func() (bool, string){
		"Err": func() (bool, string) {
			err := ctx.Err()
			return result(err != nil, err)
		},
		"Remaining": func() (bool, string) {
			left := lease.Remaining()
			return result(left <= 0, left)
		},
		"Cause": func() (bool, string) {
			cause := context.Cause(ctx)
			return result(errors.Is(cause, sqllock.ErrLost), cause)
		},
		"bound Err": func() (bool, string) {
			err := bound.Err()
			return result(err != nil, err)
		},
		"bound Cause": func() (bool, string) {
			cause := context.Cause(bound)
			return result(errors.Is(cause, sqllock.ErrLost), cause)
		},
		"Unlock": func() (bool, string) {
			err := lease.Unlock(context.Background())
			return result(errors.Is(err, sqllock.ErrLost), err)
		},
		"Done": func() (bool, string) {
			<-ctx.Done()
			return result(errors.Is(context.Cause(ctx), sqllock.ErrLost), context.Cause(ctx))
		},
	}
}
