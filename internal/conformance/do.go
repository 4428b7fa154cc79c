package conformance

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/sqllock/sqllock"
)

var doPromises = []promise{
	{sentence: "Do runs the function while it holds the name, and unlocks", test: testDo},
	{sentence: "Do returns the error of its function as it is, and unlocks", test: testDoError},
	{sentence: "TryDo of a held name returns false and nil and does not run", test: testTryDoHeld},
	{sentence: "Do unlocks when its function panics, and the panic goes on", test: testDoPanic},
	{sentence: "Do unlocks when its function ends the goroutine", test: testDoGoexit},
	{sentence: "Do unlocks although its context was cancelled meanwhile", test: testDoCancelled},
	{sentence: "Do that lost its lease returns a LostError, joined with the function's", test: testDoLost},
	{sentence: "a function that unlocks by itself gets ErrNotHeld from Do", test: testDoUnlocked},
	{sentence: "the context of Do's function is over when Do returns", test: testDoContextEnds},
}

func testDo(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	ctx := context.WithValue(e.ctx(), testKey{}, "from Do")
	ran := 0
	fn := func(ctx context.Context, lease *sqllock.Lease) error {
		ran++
		e.wantHeld(other, name)
		e.live(lease)
		if ctx.Err() != nil || ctx.Value(testKey{}) != "from Do" {
			e.Errorf("Err %v, value %v of the function's context", ctx.Err(), ctx.Value(testKey{}))
		}
		if _, ok := ctx.Deadline(); !ok {
			e.Error("the function's context has not the deadline of Do's")
		}
		return nil
	}
	if err := l.Do(ctx, name, fn); err != nil {
		e.Errorf("Do: %v", err)
	}
	e.unlock(e.try(other, name))
	if ok, err := l.TryDo(ctx, name, fn); !ok || err != nil {
		e.Errorf("TryDo: %v, %v", ok, err)
	}
	e.unlock(e.try(other, name))
	if ran != 2 {
		e.Errorf("the function ran %d times", ran)
	}
}

var errOfFn = errors.New("the function's error")

func testDoError(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	fail := func(context.Context, *sqllock.Lease) error { return errOfFn }
	if err := l.Do(e.ctx(), name, fail); err != errOfFn {
		e.Errorf("Do: want the function's error itself, got %v", err)
	}
	e.unlock(e.try(other, name))
	if ran, err := l.TryDo(e.ctx(), name, fail); !ran || err != errOfFn {
		e.Errorf("TryDo: want true and the function's error itself, got %v, %v", ran, err)
	}
	e.unlock(e.try(other, name))
}

func testTryDoHeld(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	lease := e.lock(other, e.name("k"))
	ran, err := l.TryDo(e.ctx(), lease.Name(), func(context.Context, *sqllock.Lease) error {
		e.Error("the function ran")
		return errOfFn
	})
	if ran || err != nil {
		e.Errorf("TryDo: want false and nil, got %v, %v", ran, err)
	}
	e.unlock(lease)
	// A function that says ErrHeld of something else has run all the same.
	ran, err = l.TryDo(e.ctx(), lease.Name(), func(context.Context, *sqllock.Lease) error { return sqllock.ErrHeld })
	if !ran || !errors.Is(err, sqllock.ErrHeld) {
		e.Errorf("TryDo: want true and the function's ErrHeld, got %v, %v", ran, err)
	}
}

func testDoPanic(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	func() {
		defer func() {
			if p := recover(); p != errOfFn {
				e.Errorf("the panic became %v", p)
			}
		}()
		_ = l.Do(e.ctx(), name, func(context.Context, *sqllock.Lease) error { panic(errOfFn) })
		e.Error("Do returned")
	}()
	e.unlock(e.try(other, name))
}

func testDoGoexit(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = l.Do(e.ctx(), name, func(context.Context, *sqllock.Lease) error {
			runtime.Goexit()
			return nil
		})
		e.Error("Do returned")
	})
	wg.Wait()
	e.unlock(e.try(other, name))
}

func testDoCancelled(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	ctx, cancel := context.WithCancel(e.ctx())
	err := l.Do(ctx, name, func(ctx context.Context, lease *sqllock.Lease) error {
		cancel()
		receive(e, ctx.Done(), "the function's context is done")
		e.live(lease)
		return ctx.Err()
	})
	e.wantError("Do", err, context.Canceled)
	e.unlock(e.try(other, name)) // at once, not after the TTL
}

func testDoLost(e *env) {
	e.losable()
	l, other := e.locker(&Options{TTL: e.ttl(2 * time.Second)}), e.locker(&Options{TTL: long})
	for _, fnErr := range []error{nil, errOfFn} {
		name := e.name("k")
		err := l.Do(e.ctx(), name, func(ctx context.Context, lease *sqllock.Lease) error {
			next := e.lose(lease, other)
			receive(e, ctx.Done(), "the function's context is done")
			e.wantLost("the cause of the function's context", context.Cause(ctx))
			e.unlock(next)
			return fnErr
		})
		if lost := e.wantLost("Do", err); lost.Name != name {
			e.Errorf("the LostError is of %q", lost.Name)
		}
		if fnErr != nil {
			e.wantError("Do", err, fnErr)
		}
	}
}

func testDoUnlocked(e *env) {
	l := e.locker(&Options{TTL: long})
	err := l.Do(e.ctx(), e.name("k"), func(ctx context.Context, lease *sqllock.Lease) error { return lease.Unlock(ctx) })
	e.wantError("Do", err, sqllock.ErrNotHeld)
}

func testDoContextEnds(e *env) {
	l := e.locker(&Options{TTL: long})
	var kept context.Context
	var lease *sqllock.Lease
	if err := l.Do(e.ctx(), e.name("k"), func(ctx context.Context, l *sqllock.Lease) error {
		kept, lease = ctx, l
		return nil
	}); err != nil {
		e.Fatal(err)
	}
	receive(e, kept.Done(), "the function's context is done")
	e.wantError("cause of the lease's context", context.Cause(lease.Context()), sqllock.ErrUnlocked)
	if left := lease.Remaining(); left > 0 {
		e.Errorf("Remaining is %v", left)
	}
}
