package sqllocktest

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/sqllock/sqllock"
)

// killsVar says how many holders the suite kills in one test.
const killsVar = "SQLLOCK_TEST_KILLS"

func kills(e *env) int {
	text := os.Getenv(killsVar)
	if text == "" {
		return 16
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		e.Fatalf("%s=%q: must be a positive number", killsVar, text)
	}
	return n
}

// testManyKilled kills processes that hold a name each. Every other name is asked
// for by a waiter, the rest are left to the reaper.
func testManyKilled(e *env) {
	e.fresh()
	var c crashes
	hooks := c.hooks()
	ttl := e.ttl(2 * time.Second)
	slack := e.ttl(time.Second) // longer where the database is slow
	l := e.looseLocker(e.handle(), &Options{TTL: long, Hooks: hooks, Reaper: &sqllock.ReaperOptions{Interval: 200 * time.Millisecond}})
	type kill struct {
		name    string
		token   int64
		blocked time.Duration
		err     error
		process *process
	}
	all := make([]kill, kills(e))
	var wg sync.WaitGroup
	for i := range all {
		k := &all[i]
		k.name = e.name("k")
		k.process = e.start(ttl, fmt.Sprint("holder ", i))
		k.token = k.process.hold(k.name).Token
	}
	for i := range all {
		k := &all[i]
		e.known(l, k.name)
		if err := k.process.cmd.Process.Kill(); err != nil {
			e.Fatal(err)
		}
		killed := time.Now()
		k.process.end()
		wg.Go(func() {
			if i%2 == 1 { // nobody asks until it is over
				time.Sleep(time.Until(killed.Add(ttl + 300*time.Millisecond)))
			}
			lease, err := l.Lock(e.ctx(), k.name)
			if k.blocked, k.err = time.Since(killed), err; err == nil {
				k.err = lease.Unlock(e.ctx())
			}
		})
	}
	wg.Wait()
	if err := l.Close(e.ctx()); err != nil { // after it all hooks have been called
		e.Errorf("Close: %v", err)
	}
	var longest time.Duration
	for i, k := range all {
		longest = max(longest, k.blocked)
		if k.err != nil || k.blocked > ttl+slack {
			e.Errorf("the name of holder %d was blocked for %v after the kill, with a TTL of %v: %v", i, k.blocked, ttl, k.err)
		}
		if told := c.of(k.name); len(told) != 1 || told[0].Token != k.token || told[0].Label != fmt.Sprint("holder ", i) {
			e.Errorf("of holder %d with token %d the hook was told %+v", i, k.token, told)
		}
	}
	e.Logf("%d holders were killed; no name was blocked for longer than %v, with a TTL of %v", len(all), longest, ttl)
}
