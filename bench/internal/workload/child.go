package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/bench/internal/contender"
	"github.com/sqllock/sqllock/bench/internal/platform"
)

// childVariable is set in the environment of a process that takes locks for
// another one, and only there.
const childVariable = "SQLLOCK_BENCH_CHILD"

// Child makes the process one that takes locks, and does not return, if it was
// started as one. Call it first in main.
func Child() {
	if os.Getenv(childVariable) == "" {
		return
	}
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench: a client:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// setup is the first line for a child: the clients to open.
type setup struct {
	Contender string
	Site      contender.Site
	Clients   int
	Share     bool // their connections
}

// order is each later line: callers that lock and unlock a name each.
type order struct {
	Callers []caller
	For     time.Duration // 0: each caller once
	Until   bool          // a line without KeepUntil; callers that wait then give up
	Spread  time.Duration // over which the callers begin
	// KeepUntil is a time of the monotonic clock. Until then callers keep each lock for a while:
	// else it would hardly show when a lock is granted to two of them.
	KeepUntil int64
}

// keepTime is for how long callers keep a lock until KeepUntil.
const keepTime = time.Millisecond

// caller is one that locks and unlocks a name through one of the process's clients.
type caller struct {
	Client int
	Name   string
}

// ofOneName returns callers through the first client.
func ofOneName(name string, n int) []caller { return slices.Repeat([]caller{{Name: name}}, n) }

// grant is a lock that a caller had. Times are of the machine's monotonic clock,
// in ns, which is one for all processes.
type grant struct {
	Name    string
	Process int // the parent's number of it
	Caller  int
	Called  int64 // when Lock was called
	Got     int64 // when Lock had returned
	Freed   int64 // when Unlock was called
}

// tail is how long the last waiters may wait after the other callers have stopped. A
// waiter with a lost wake-up counts as a failure.
const tail = 10 * time.Second

// answer is the child's line for each of the parent's.
type answer struct {
	Grants   []grant
	Failures int
	Err      string // the first failure
}

// serve obeys orders until there are no more.
func serve(in io.Reader, out io.Writer) error {
	orders, answers := json.NewDecoder(in), json.NewEncoder(out)
	var o setup
	if err := orders.Decode(&o); err != nil {
		return err
	}
	c, ok := contender.ByName(o.Contender)
	if !ok {
		return fmt.Errorf("no contender is named %q", o.Contender)
	}
	clients, err := openAll(c, o)
	if err != nil {
		return errors.Join(err, closeAll(clients), answers.Encode(answer{Err: err.Error()}))
	}
	if err := answers.Encode(answer{}); err != nil {
		return err
	}
	for {
		var o order
		err := orders.Decode(&o)
		if errors.Is(err, io.EOF) {
			return closeAll(clients)
		}
		if err != nil {
			return err
		}
		if err := answers.Encode(newCallGroup(clients, o).run(orders)); err != nil {
			return err
		}
	}
}

// openAll returns the clients that it could open also with an error.
func openAll(c contender.Contender, o setup) ([]contender.Client, error) {
	if o.Share {
		return c.OpenMany(context.Background(), o.Site, o.Clients)
	}
	clients := make([]contender.Client, max(1, o.Clients))
	err := each(len(clients), openers, func(i int) (err error) {
		clients[i], err = c.Open(context.Background(), o.Site)
		return err
	})
	return clients, err
}

// openers is how many clients are opened or closed at a time.
const openers = 8

func closeAll(clients []contender.Client) error {
	return each(len(clients), openers, func(i int) error {
		if clients[i] == nil {
			return nil
		}
		return clients[i].Close()
	})
}

// A callGroup is the callers of one order.
type callGroup struct {
	clients   []contender.Client
	order     order
	stop      atomic.Bool
	keepUntil atomic.Int64

	mu     sync.Mutex
	answer answer
}

func newCallGroup(clients []contender.Client, o order) *callGroup {
	c := &callGroup{clients: clients, order: o}
	c.keepUntil.Store(o.KeepUntil)
	return c
}

// run returns when all callers are done. A later line may be what ends them.
func (c *callGroup) run(orders *json.Decoder) answer {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	if c.order.Until {
		wg.Go(func() {
			c.awaitEnd(orders)
			c.stop.Store(true)
			cancel()
		})
	} else {
		defer c.stopInTime(cancel)()
	}
	for i, one := range c.order.Callers {
		wg.Go(func() { c.call(ctx, i, one) })
	}
	wg.Wait()
	return c.answer
}

// awaitEnd returns when a line comes that ends the callers, or when the parent is gone. Lines
// before it say until when the callers keep their locks.
func (c *callGroup) awaitEnd(orders *json.Decoder) {
	for {
		var o order
		if err := orders.Decode(&o); err != nil || o.KeepUntil == 0 {
			return
		}
		c.keepUntil.Store(o.KeepUntil)
	}
}

// stopInTime stops the callers when their time is over, and cancels their calls when no
// call should take any longer.
func (c *callGroup) stopInTime(cancel func()) (end func()) {
	if c.order.For == 0 {
		timer := time.AfterFunc(roundGrace, cancel)
		return func() { timer.Stop() }
	}
	stop := time.AfterFunc(c.order.For, func() { c.stop.Store(true) })
	late := time.AfterFunc(c.order.For+tail, cancel)
	return func() { stop.Stop(); late.Stop() }
}

func (c *callGroup) call(ctx context.Context, number int, one caller) {
	time.Sleep(c.order.Spread / time.Duration(len(c.order.Callers)) * time.Duration(number))
	var grants []grant
	var failures int
	var first error
	for {
		g, err := c.cycle(ctx, number, one)
		switch {
		case err == nil:
			grants = append(grants, g)
		case c.order.Until && ctx.Err() != nil: // it gave up
		default:
			failures++
			first = firstError(first, err)
		}
		if c.isOver(ctx) {
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer.Grants = append(c.answer.Grants, grants...)
	c.answer.Failures += failures
	if first != nil && c.answer.Err == "" {
		c.answer.Err = first.Error()
	}
}

// isOver reports whether callers begin no further cycle.
func (c *callGroup) isOver(ctx context.Context) bool {
	once := c.order.For == 0 && !c.order.Until
	return once || c.stop.Load() || ctx.Err() != nil
}

func (c *callGroup) cycle(ctx context.Context, number int, one caller) (grant, error) {
	g := grant{Name: one.Name, Caller: number, Called: platform.Monotonic()}
	lock, err := c.clients[one.Client].Lock(ctx, number, one.Name)
	if err != nil {
		return g, err
	}
	g.Got = platform.Monotonic()
	if g.Got < c.keepUntil.Load() {
		time.Sleep(keepTime)
	}
	g.Freed = platform.Monotonic()
	return g, lock.Unlock(ctx)
}

// firstError returns the first error that is not nil.
func firstError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}
