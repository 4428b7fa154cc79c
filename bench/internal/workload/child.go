package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
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

// setup is the first line for a child: the client to open.
type setup struct {
	Contender string
	Site      contender.Site
}

// order is each later line: callers that lock and unlock one name.
type order struct {
	Name    string
	Callers int
	For     time.Duration // 0: each caller once
}

// grant is a lock that a caller had. Times are of the machine's monotonic clock,
// in ns, which is one for all processes.
type grant struct {
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
	client, err := c.Open(context.Background(), o.Site)
	if err != nil {
		return errors.Join(err, answers.Encode(answer{Err: err.Error()}))
	}
	if err := answers.Encode(answer{}); err != nil {
		return err
	}
	for {
		var o order
		err := orders.Decode(&o)
		if errors.Is(err, io.EOF) {
			return client.Close()
		}
		if err != nil {
			return err
		}
		if err := answers.Encode(runOrder(client, o)); err != nil {
			return err
		}
	}
}

// A callGroup is the callers of one order.
type callGroup struct {
	client contender.Client
	name   string
	stop   atomic.Bool
	once   bool

	mu     sync.Mutex
	answer answer
}

func runOrder(client contender.Client, o order) answer {
	bound := roundGrace
	if o.For > 0 {
		bound = o.For + tail
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	c := &callGroup{client: client, name: o.Name, once: o.For == 0}
	if !c.once {
		timer := time.AfterFunc(o.For, func() { c.stop.Store(true) })
		defer timer.Stop()
	}
	var wg sync.WaitGroup
	for caller := range o.Callers {
		wg.Go(func() { c.call(ctx, caller) })
	}
	wg.Wait()
	return c.answer
}

func (c *callGroup) call(ctx context.Context, caller int) {
	var grants []grant
	var failures int
	var first error
	for {
		g, err := c.cycle(ctx, caller)
		if err == nil {
			grants = append(grants, g)
		} else {
			failures++
			first = firstError(first, err)
		}
		if c.once || c.stop.Load() || ctx.Err() != nil {
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

func (c *callGroup) cycle(ctx context.Context, caller int) (grant, error) {
	g := grant{Caller: caller, Called: platform.Monotonic()}
	lock, err := c.client.Lock(ctx, caller, c.name)
	if err != nil {
		return g, err
	}
	g.Got = platform.Monotonic()
	g.Freed = g.Got // nothing is done under the lock
	return g, lock.Unlock(ctx)
}

// firstError returns the first error that is not nil.
func firstError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}
