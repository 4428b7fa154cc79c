package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock"
)

var oncePromises = []promise{
	{sentence: "Once runs a function to its end once for each name and key", test: testOnce, needs: needLeases},
	{sentence: "of many that run a key once at the same time one runs it, and the others wait for it", test: testOnceAtOnce, needs: needLeases},
	{sentence: "Once of a key that is complete waits for nobody", test: testOnceWaitsForNobody, needs: needLeases},
	{sentence: "a run that fails or panics is not complete, and the next one has a higher Attempt", test: testOnceFails, needs: needLeases},
	{sentence: "InTx of a run commits what was written with the completion, or neither", test: testOnceInTx, needs: needLeases},
	{sentence: "what InTx of a run has committed is complete, whatever the function returns", test: testOnceFailsAfterTx, needs: needLeases},
	{sentence: "an InTx that failed is not made up for by a function that returns nil", test: testOnceIgnoresTx, needs: needLeases},
	{sentence: "a run that has lost its lease completes nothing, in a transaction or without", test: testOnceLost, needs: needLeases},
	{sentence: "Once excludes itself, whatever lease or owner its context carries", test: testOnceReenters, needs: needLeases},
	{sentence: "Once with a bad argument is an error before any SQL", test: testOnceArguments, needs: needLeases},
	{sentence: "Inspect and List tell of the last completion", test: testOnceInspect, needs: needLeases},
	{sentence: "Once is not supported where sessions keep the locks", test: testOnceUnsupported, needs: needSessions},
}

// once runs a key, and reports whether the function was called.
func (e *env) once(l *sqllock.Locker, name, key string, fn func(ctx context.Context, run *sqllock.Run) error) bool {
	e.Helper()
	ran, err := l.Once(e.ctx(), name, key, fn)
	if err != nil {
		e.Fatalf("Once: %v", err)
	}
	return ran
}

// wantDone checks that a key is complete.
func (e *env) wantDone(l *sqllock.Locker, name, key string) {
	e.Helper()
	if e.once(l, name, key, runNothing) {
		e.Errorf("%q ran again", key)
	}
}

func runNothing(context.Context, *sqllock.Run) error { return nil }

func testOnce(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	for _, key := range []string{"2026-11", "ключ \"'%", strings.Repeat("k", 255), sqllock.TimeKey(time.Now())} {
		var lease *sqllock.Lease
		ran := e.once(l, name, key, func(ctx context.Context, run *sqllock.Run) error {
			lease = run.Lease()
			e.live(lease)
			if run.Key() != key || run.Attempt() != 1 || lease.Name() != name || ctx.Err() != nil {
				e.Errorf("the run has the key %q, the attempt %d and the lease of %q", run.Key(), run.Attempt(), lease.Name())
			}
			return nil
		})
		if !ran || lease.Remaining() != 0 {
			e.Errorf("%q: it ran: %v, and left the lease %v", key, ran, lease.Remaining())
		}
		e.wantDone(l, name, key)
		e.wantDone(other, name, key)
	}
	if !e.once(other, e.name("other"), "2026-11", runNothing) || !e.once(other, name, "2026-12", runNothing) {
		e.Error("a key is complete for another name, or another key is")
	}
}

func testOnceAtOnce(e *env) {
	lockers := []*sqllock.Locker{e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})}
	name := e.name("k")
	var runs, ran, ended atomic.Int32
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			did, err := lockers[i%2].Once(e.ctx(), name, "key", func(context.Context, *sqllock.Run) error {
				runs.Add(1)
				time.Sleep(50 * time.Millisecond)
				ended.Store(1)
				return nil
			})
			if err != nil || ended.Load() == 0 {
				e.Errorf("Once has returned %v, and the run has ended: %d", err, ended.Load())
			}
			if did {
				ran.Add(1)
			}
		})
	}
	wg.Wait()
	if runs.Load() != 1 || ran.Load() != 1 {
		e.Errorf("it ran %d times, and %d callers say so", runs.Load(), ran.Load())
	}
}

func testOnceWaitsForNobody(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	e.once(l, name, "key", runNothing)
	lease := e.lock(l, name)
	e.wantDone(l, name, "key")
	e.wantDone(other, name, "key")
	_, err := other.Once(e.ctx(), name, "another key", runNothing, sqllock.Tries(1))
	e.wantError("Once of another key", err, sqllock.ErrHeld)
	e.unlock(lease)
}

func testOnceFails(e *env) {
	l := e.locker(&Options{TTL: long})
	name := e.name("k")
	failure := errors.New("a failure of the application")
	ran, err := l.Once(e.ctx(), name, "key", func(context.Context, *sqllock.Run) error { return failure })
	e.wantError("Once", err, failure)
	if !ran {
		e.Error("Once says that it did not run")
	}
	func() {
		defer func() {
			if recover() == nil {
				e.Error("the panic was swallowed")
			}
		}()
		_, _ = l.Once(e.ctx(), name, "key", func(context.Context, *sqllock.Run) error { panic("of the application") })
	}()
	number := 0
	e.once(l, name, "key", func(_ context.Context, run *sqllock.Run) error {
		number = run.Attempt()
		return nil
	})
	if number != 3 {
		e.Errorf("the third run is number %d", number)
	}
	e.wantDone(l, name, "key")
}

func testOnceInTx(e *env) {
	book := e.ledger()
	l := e.locker(&Options{TTL: long})
	name := e.name("k")
	failure := errors.New("a failure of the application")
	write := func(entry string, err error) func(context.Context, *sqllock.Run) error {
		return func(ctx context.Context, run *sqllock.Run) error {
			return run.InTx(ctx, nil, func(_ context.Context, tx *sql.Tx) error {
				book.write(tx, entry)
				return err
			})
		}
	}
	_, err := l.Once(e.ctx(), name, "key", write("before an error", failure))
	e.wantError("Once whose InTx fails", err, failure)
	e.once(l, name, "key", func(ctx context.Context, run *sqllock.Run) error {
		if err := write("again", failure)(ctx, run); !errors.Is(err, failure) {
			e.Errorf("the first InTx: %v", err)
		}
		if err := write("committed", nil)(ctx, run); err != nil {
			return err
		}
		if err := write("twice", nil)(ctx, run); !errors.Is(err, sqllock.ErrDone) {
			e.Errorf("an InTx after that: want ErrDone, got %v", err)
		}
		return nil
	})
	e.wantDone(l, name, "key")
	book.want("committed;")
}

func testOnceFailsAfterTx(e *env) {
	l := e.locker(&Options{TTL: long})
	name := e.name("k")
	failure := errors.New("a failure of the application")
	_, err := l.Once(e.ctx(), name, "key", func(ctx context.Context, run *sqllock.Run) error {
		if err := run.InTx(ctx, nil, func(context.Context, *sql.Tx) error { return nil }); err != nil {
			e.Errorf("InTx: %v", err)
		}
		return failure
	})
	e.wantError("Once", err, failure)
	e.wantDone(l, name, "key")
}

func testOnceIgnoresTx(e *env) {
	l := e.locker(&Options{TTL: long})
	name := e.name("k")
	failure := errors.New("a failure of the application")
	_, err := l.Once(e.ctx(), name, "key", func(ctx context.Context, run *sqllock.Run) error {
		_ = run.InTx(ctx, nil, func(context.Context, *sql.Tx) error { return failure })
		return nil
	})
	e.wantError("Once whose InTx fails", err, failure)
	_, err = l.Once(e.ctx(), name, "key", func(ctx context.Context, run *sqllock.Run) error {
		defer func() { _ = recover() }()
		_ = run.InTx(ctx, nil, func(context.Context, *sql.Tx) error { panic("of the application") })
		return nil
	})
	if err == nil {
		e.Error("Once whose InTx panics returns nil")
	}
	if !e.once(l, name, "key", runNothing) {
		e.Error("the key is complete")
	}
}

func testOnceLost(e *env) {
	book := e.ledger()
	l, other := e.locker(&Options{TTL: sqllock.MaxTTL}), e.locker(&Options{TTL: long})
	name := e.name("k")
	lose := func() {
		if _, err := other.ForceUnlock(e.ctx(), name); err != nil {
			e.Errorf("ForceUnlock: %v", err)
		}
	}
	_, err := l.Once(e.ctx(), name, "key", func(context.Context, *sqllock.Run) error {
		lose()
		return nil
	})
	e.wantLost("Once without a transaction", err)
	_, err = l.Once(e.ctx(), name, "key", func(ctx context.Context, run *sqllock.Run) error {
		lose()
		return run.InTx(ctx, nil, func(_ context.Context, tx *sql.Tx) error {
			book.write(tx, "of a former holder")
			return nil
		})
	})
	if !errors.Is(err, sqllock.ErrFenced) && !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("Once with a transaction: %v", err)
	}
	_, err = l.Once(e.ctx(), name, "key", func(ctx context.Context, run *sqllock.Run) error {
		lose()
		next := e.lock(other, name)
		defer e.unlock(next)
		return nil
	})
	e.wantLost("Once when another holds the name", err)
	_, err = l.Once(e.ctx(), name, "key", func(ctx context.Context, _ *sqllock.Run) error {
		<-ctx.Done() // nobody has the name then, and the row stands
		return nil
	}, sqllock.MaxHold(200*time.Millisecond), sqllock.LockDelay(300*time.Millisecond))
	e.wantLost("Once that lasts longer than MaxHold", err)
	if !e.once(other, name, "key", runNothing) {
		e.Error("the key is complete")
	}
	book.want("")
}

func testOnceReenters(e *env) {
	l := e.locker(&Options{TTL: long})
	name := e.name("k")
	ctx := sqllock.WithOwner(e.ctx(), "an owner")
	ran, err := l.Once(ctx, name, "key", func(ctx context.Context, _ *sqllock.Run) error {
		_, err := l.Once(ctx, name, "key", runNothing)
		e.wantError("Once in itself", err, sqllock.ErrDeadlock)
		owned, cancel := context.WithTimeout(sqllock.WithOwner(context.Background(), "an owner"), 300*time.Millisecond)
		defer cancel()
		_, err = l.Once(owned, name, "key", runNothing)
		e.wantError("Once of the same owner", err, context.DeadlineExceeded)
		return nil
	})
	if err != nil || !ran {
		e.Errorf("Once = %v, %v", ran, err)
	}
}

func testOnceArguments(e *env) {
	l := e.locker(&Options{TTL: long})
	for key, want := range map[string]error{"": sqllock.ErrInvalidName, "nul\x00": sqllock.ErrInvalidName,
		"\xff": sqllock.ErrInvalidName, strings.Repeat("k", 256): sqllock.ErrInvalidName} {
		_, err := l.Once(e.ctx(), e.name("k"), key, runNothing)
		e.wantError(fmt.Sprintf("Once of the key %.10q", key), err, want)
	}
	_, err := l.Once(e.ctx(), "", "key", runNothing)
	e.wantError("Once without a name", err, sqllock.ErrInvalidName)
	_, err = l.Once(e.ctx(), e.name("k"), "key", nil)
	e.wantError("Once without a function", err, sqllock.ErrInvalidOption)
	_, err = l.Once(e.ctx(), e.name("k"), "key", runNothing, sqllock.Wait(-1))
	e.wantError("Once with a bad option", err, sqllock.ErrInvalidOption)
}

func testOnceInspect(e *env) {
	l := e.locker(&Options{TTL: long})
	name := e.name("k")
	if info := e.inspect(l, name); info.LastDone != (sqllock.Completion{}) {
		e.Errorf("before: %+v", info.LastDone)
	}
	e.once(l, name, "b", runNothing)
	time.Sleep(2 * time.Millisecond) // the clock of SQLite has milliseconds
	_, _ = l.Once(e.ctx(), name, "a", func(context.Context, *sqllock.Run) error { return errors.New("a failure") })
	e.once(l, name, "a", runNothing)
	_, _ = l.Once(e.ctx(), name, "c", func(context.Context, *sqllock.Run) error { return errors.New("a failure") })
	info := e.inspect(l, name)
	if k := info.LastDone; k.Key != "a" || k.Attempt != 2 || k.At.After(info.Now) || info.Now.Sub(k.At) > timeLimit {
		e.Errorf("Inspect tells of %+v at %v", k, info.Now)
	}
	for listed, err := range l.List(e.ctx(), sqllock.IncludeFree()) {
		if err != nil {
			e.Fatalf("List: %v", err)
		}
		if listed.Name == name && listed.LastDone != info.LastDone {
			e.Errorf("List tells of %+v", listed.LastDone)
		}
	}
}

func testOnceUnsupported(e *env) {
	l := e.locker(&Options{TTL: long})
	_, err := l.Once(e.ctx(), e.name("k"), "key", runNothing)
	e.wantError("Once", err, sqllock.ErrUnsupported)
}
