package conformance

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/netproxy"
)

var onceFaultPromises = []promise{
	{sentence: "a commit of a run whose reply is lost is looked up: the key is complete", test: testOnceCommitReplyLost, needs: needNetwork | needLeases},
	{sentence: "a commit of a run that never arrives is looked up: the key is not complete", test: testOnceCommitLost, needs: needNetwork | needLeases},
	{sentence: "while a commit of a run hangs in the network nobody runs the key, and when it has arrived the key is complete", test: testOnceCommitLate, needs: needNetwork | needTable | needLeases},
	{sentence: "Once of which any one reply is lost runs what it commits once", test: testOnceReplyLost, needs: needNetwork | needLeases},
	{sentence: "a completion without a transaction whose reply is lost is recorded", test: testOnceRecordReplyLost, needs: needNetwork | needLeases},
	{sentence: "Once completes its key while its Locker is closed", test: testOnceClosing, needs: needLeases},
	{sentence: "of processes that are killed at random each key is completed by one", test: testOnceKilled, needs: needLeases},
	{sentence: "old keys are forgotten, and of times the highest stays complete with all below it", test: testOncePurge, needs: needTable | needLeases},
}

// entry returns a function for Once that writes into the ledger, in the run's transaction.
// The function before is called at the end of the transaction.
func (l ledger) entry(text string, before func()) func(context.Context, *sqllock.Run) error {
	return func(ctx context.Context, run *sqllock.Run) error {
		return run.InTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO `+l.table+` VALUES ('`+text+`')`)
			if before != nil {
				before()
			}
			return err
		})
	}
}

func isCommit(b []byte) bool { return bytes.Contains(bytes.ToLower(b), []byte("commit")) }

func testOnceCommitReplyLost(e *env) {
	book := e.ledger()
	p, l := e.proxied(&Options{TTL: long})
	name := e.name("k")
	e.warm(l)
	ran, err := l.Once(e.ctx(), name, "key", book.entry("entry", func() {
		pieces(p, isCommit, 1, 1, loseReply)
	}))
	p.OnUp(nil)
	if err != nil || !ran {
		e.Errorf("Once = %v, %v", ran, err)
	}
	e.wantDone(e.locker(&Options{TTL: long}), name, "key")
	book.want("entry;")
}

func testOnceCommitLost(e *env) {
	book := e.ledger()
	p, l := e.proxied(&Options{TTL: long})
	name := e.name("k")
	e.warm(l)
	_, err := l.Once(e.ctx(), name, "key", book.entry("entry", func() {
		pieces(p, isCommit, 1, 1, func(int) netproxy.Action { return netproxy.Cut })
	}))
	p.OnUp(nil)
	if err == nil {
		e.Error("Once returns nil")
	}
	book.want("")
	other := e.locker(&Options{TTL: long})
	if !e.once(other, name, "key", book.entry("entry", nil)) {
		e.Error("the key is complete")
	}
	book.want("entry;")
}

// testOnceCommitLate keeps a commit in the network until after the lease.
func testOnceCommitLate(e *env) {
	book := e.ledger()
	p, l := e.proxied(&Options{TTL: e.ttl(time.Second)})
	other := e.locker(&Options{TTL: long, RetryMax: 50 * time.Millisecond})
	name := e.name("k")
	e.warm(l)
	frozen := freezeAtCommit(p, book.table)
	first := oncing(e.ctx(), l, name, book.entry("entry", nil))
	receive(e, frozen, "the run commits")
	second := oncing(e.ctx(), other, name, book.entry("entry of the second run", nil))
	e.waitForQueue(name, 1)
	var over sqllock.Info
	e.eventually(timeLimit, "the lease is over", func() bool {
		over = e.inspect(other, name)
		return over.Now.After(over.Until)
	})
	select {
	case r := <-second:
		e.Fatalf("Once while the commit of another run hangs = %v, %v", r.ran, r.err)
	case <-time.After(time.Second): // it looks every 50 ms
	}
	if info := e.inspect(other, name); info.Token != over.Token {
		e.Errorf("somebody got the name before the transaction that guards it has ended: %+v", info)
	}
	book.want("")
	p.OnUp(nil)
	p.Thaw()
	if r := receive(e, second, "Once returns"); r.ran || r.err != nil {
		e.Errorf("Once after the commit of another run has arrived = %v, %v", r.ran, r.err)
	}
	r := receive(e, first, "Once returns")
	e.Logf("the first Once = %v, %v", r.ran, r.err) // an error, if its lease has ended first
	book.want("entry;")
}

// freezeAtCommit freezes what goes to the server from the commit of a transaction on that has
// written into a table. Then it closes the channel.
func freezeAtCommit(p *netproxy.Proxy, table string) <-chan struct{} {
	frozen := make(chan struct{})
	var writer atomic.Int64 // its connection, counted from 1
	var once sync.Once
	p.OnUp(func(conn int, b []byte) netproxy.Action {
		switch {
		case bytes.Contains(b, []byte(table)):
			writer.Store(int64(conn) + 1)
		case writer.Load() == int64(conn)+1 && isCommit(b):
			once.Do(func() {
				p.FreezeUp()
				close(frozen)
			})
		}
		return netproxy.Pass
	})
	return frozen
}

// onceResult is what Once returned.
type onceResult struct {
	ran bool
	err error
}

// oncing calls Once on a goroutine of its own.
func oncing(ctx context.Context, l *sqllock.Locker, name string, fn func(context.Context, *sqllock.Run) error) <-chan onceResult {
	ch := make(chan onceResult, 1)
	go func() {
		ran, err := l.Once(ctx, name, "key", fn)
		ch <- onceResult{ran, err}
	}()
	return ch
}

func testOnceReplyLost(e *env) {
	book := e.ledger()
	p, l := e.proxied(&Options{TTL: long})
	other := e.locker(&Options{TTL: long})
	want := ""
	for n := int64(1); ; n++ {
		e.warm(l)
		name, entry := e.name("k"), fmt.Sprintf("entry %03d", n)
		seen := pieces(p, func([]byte) bool { return true }, n, n, loseReply)
		_, err := l.Once(e.ctx(), name, "key", book.entry(entry, nil))
		p.OnUp(nil)
		if ran := e.once(other, name, "key", book.entry(entry, nil)); err == nil && ran {
			e.Errorf("after a lost reply to request %d: Once has returned nil, and ran again", n)
		}
		want += entry + ";"
		if seen.Load() < n {
			e.Logf("%d requests", n-1)
			break
		}
	}
	book.want(want)
}

func testOnceRecordReplyLost(e *env) {
	p, l := e.proxied(&Options{TTL: long})
	other := e.locker(&Options{TTL: long})
	for n := int64(1); ; n++ {
		e.warm(l)
		name := e.name("k")
		seen := pieces(p, func([]byte) bool { return false }, 0, 0, nil)
		ran, err := l.Once(e.ctx(), name, "key", func(context.Context, *sqllock.Run) error {
			seen = pieces(p, func([]byte) bool { return true }, n, n, loseReply)
			return nil
		})
		p.OnUp(nil)
		if !ran {
			e.Fatalf("Once = %v, %v", ran, err)
		}
		if err != nil { // of Unlock
			e.Logf("after a lost reply to request %d: %v", n, err)
		}
		e.wantDone(other, name, "key")
		if seen.Load() < n {
			break
		}
	}
}

func testOnceClosing(e *env) {
	l := e.looseLocker(e.handle(), &Options{TTL: long})
	name := e.name("k")
	running, closed := make(chan struct{}), make(chan error, 1)
	go func() {
		<-running
		closed <- l.Close(e.ctx())
	}()
	_, err := l.Once(e.ctx(), name, "key", func(ctx context.Context, _ *sqllock.Run) error {
		close(running)
		<-ctx.Done()
		e.wantError("the context of the run", context.Cause(ctx), sqllock.ErrClosed)
		return nil
	})
	if err != nil {
		e.Errorf("Once: %v", err)
	}
	if err := receive(e, closed, "Close returns"); err != nil {
		e.Errorf("Close: %v", err)
	}
	e.wantDone(e.locker(&Options{TTL: long}), name, "key")
}

// keysVar says how many keys processes that are killed complete.
const keysVar = "SQLLOCK_TEST_KEYS"

func keys(e *env) int {
	text := os.Getenv(keysVar)
	if text == "" {
		return 30
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		e.Fatalf("%s=%q: must be a positive number", keysVar, text)
	}
	return n
}

func keyOf(i int) string { return fmt.Sprintf("key %04d", i) }

// testOnceKilled kills processes that complete the same keys, and starts others in their
// place, until one of them reports that all keys are complete. The first is killed in a run for
// certain.
func testOnceKilled(e *env) {
	book, n := e.ledger(), keys(e)
	order := order{Do: "once", Name: e.name("k"), Table: book.table, Keys: n}
	e.killInRun(order)
	all := make([]*process, 3)
	killed, start := 1, time.Now()
	for i := range all {
		all[i] = e.start(time.Second, "a child")
		all[i].send(order)
	}
	for end := start.Add(4*timeLimit + time.Duration(n)*time.Second); ; {
		i := rand.N(len(all))
		select {
		case line, ok := <-all[i].out:
			if !ok || line != "{}" {
				e.Fatalf("a child says %q", line)
			}
			e.wantEachOnce(book, n)
			e.wantBegunAgain(order, killed, time.Since(start))
			return
		case <-time.After(rand.N(300 * time.Millisecond)):
		}
		if time.Now().After(end) {
			e.Fatalf("the keys are not complete after %d kills", killed)
		}
		if killed == n || time.Since(start) > time.Duration(n)*time.Second/3 {
			continue // let them finish
		}
		killed++
		if err := all[i].cmd.Process.Kill(); err != nil {
			e.Fatal(err)
		}
		all[i].end()
		all[i] = e.start(time.Second, "a child")
		all[i].send(order)
	}
}

// wantBegunAgain checks that a kill met a run, and says what happened to the keys.
func (e *env) wantBegunAgain(o order, kills int, took time.Duration) {
	e.Helper()
	again, runs := e.begun(o.Name, 2), 0
	if again == 0 {
		e.Error("no key was begun twice: no kill met a run")
	}
	err := e.handle().QueryRowContext(e.ctx(), fmt.Sprintf(`SELECT sum(attempt) FROM sqllock_done WHERE name LIKE '%s%%' AND at > 0`, o.Name)).Scan(&runs)
	if err != nil || runs < o.Keys+again {
		e.Errorf("%d keys were completed in %d attempts: %v", o.Keys, runs, err)
	}
	if !e.Failed() {
		e.Logf("%d keys, each completed once: %d kills, %d attempts, %d keys begun more than once, in %v",
			o.Keys, kills, runs, again, took.Round(time.Second))
	}
}

// killInRun kills a process that has begun to run a key.
func (e *env) killInRun(o order) {
	e.Helper()
	o.What = hang
	p := e.start(time.Second, "a child that hangs")
	p.send(o)
	e.eventually(timeLimit, "a run has begun", func() bool { return e.begun(o.Name, 1) > 0 })
	if err := p.cmd.Process.Kill(); err != nil {
		e.Fatal(err)
	}
	p.end()
}

// hang has the runs of a process never end.
const hang = "hang"

// begun returns how many keys of names that begin with a text were begun so often at least.
func (e *env) begun(prefix string, least int) (n int) {
	e.Helper()
	err := e.handle().QueryRowContext(e.ctx(), fmt.Sprintf(`SELECT count(*) FROM sqllock_done WHERE name LIKE '%s%%' AND attempt >= %d`, prefix, least)).Scan(&n)
	if err != nil {
		e.Fatal(err)
	}
	return n
}

// wantEachOnce checks that each key was written once.
func (e *env) wantEachOnce(book ledger, n int) {
	e.Helper()
	want := ""
	for i := range n {
		want += keyOf(i) + ";"
	}
	book.want(want)
}

// once completes all keys, in any order. Names are few, so that runs meet.
func (c *child) once(o order) answer {
	book := ledger{table: o.Table}
	left := rand.Perm(o.Keys)
	for len(left) > 0 {
		i := left[0]
		left = left[1:]
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		write := book.entry(keyOf(i), pauseShortly)
		_, err := c.locks.Once(ctx, fmt.Sprint(o.Name, i%7), keyOf(i), func(ctx context.Context, run *sqllock.Run) error {
			if o.What == hang {
				time.Sleep(timeLimit)
			}
			pauseShortly()
			err := write(ctx, run)
			pauseShortly()
			return err
		}, sqllock.Wait(3*time.Second))
		cancel()
		if err != nil {
			left = append(left, i)
		}
		if errors.Is(err, sqllock.ErrClosed) || errors.Is(err, sqllock.ErrInvalidOption) {
			return failure(err)
		}
	}
	return answer{}
}

// pauseShortly is where a kill often meets a run.
func pauseShortly() { time.Sleep(rand.N(10 * time.Millisecond)) }

func testOncePurge(e *env) {
	e.fresh()
	l := e.locker(&Options{TTL: long, Reaper: &sqllock.ReaperOptions{Off: true, KeyRetention: time.Hour, Batch: 3}})
	name, noon := e.name("k"), time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	at := func(minutes int) string { return sqllock.TimeKey(noon.Add(time.Duration(minutes) * time.Minute)) }
	age := func() { // all rows are two hours older
		for _, column := range []string{"since", "at"} {
			if _, err := e.handle().ExecContext(e.ctx(), `UPDATE sqllock_done SET `+column+` = `+column+` - 7200000000 WHERE `+column+` > 0`); err != nil {
				e.Fatal(err)
			}
		}
	}
	reap := func(want int) {
		e.Helper()
		if rep, err := l.Reaper().Reap(e.ctx()); err != nil || rep.PurgedKeys != want {
			e.Errorf("%d keys were deleted, want %d: %v", rep.PurgedKeys, want, err)
		}
	}
	fail := func(context.Context, *sqllock.Run) error { return errors.New("a failure of the application") }
	for _, key := range []string{"2026-11", "2026-12", at(1), at(3), at(2)} {
		e.once(l, name, key, runNothing)
	}
	_, _ = l.Once(e.ctx(), name, at(9), fail)
	reap(0)
	age()
	e.once(l, name, "2027-01", runNothing)
	reap(5) // all but the highest time that is complete
	for key, runs := range map[string]bool{"2026-11": true, "2027-01": false, at(0): false, at(1): false, at(2): false, at(3): false, at(4): true, at(9): true} {
		if e.once(l, name, key, runNothing) != runs {
			e.Errorf("%s runs again: %v", key, !runs)
		}
	}
	if !e.once(l, e.name("other"), at(0), runNothing) {
		e.Error("the floor of a name is that of another")
	}
	age()
	reap(4) // at(4) and the former floor, at(3), among them
	e.wantDone(l, name, at(9))
	e.wantDone(l, name, at(4))
	if k := e.inspect(l, name).LastDone; k.Key != at(9) {
		e.Errorf("the last completion is %+v", k)
	}
}
