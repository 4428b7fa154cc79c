package sqllocktest

import (
	"context"
	"time"

	"github.com/sqllock/sqllock"
)

// eventually waits until cond holds, for d at most.
func (e *env) eventually(d time.Duration, what string, cond func() bool) {
	e.Helper()
	for end := time.Now().Add(d); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			e.Fatalf("waited %v in vain until %s", d, what)
		}
	}
}

// receive waits for a value.
func receive[T any](e *env, ch <-chan T, what string) T {
	e.Helper()
	return receiveWithin(e, ch, patience, what)
}

func receiveWithin[T any](e *env, ch <-chan T, d time.Duration, what string) T {
	e.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(d):
		e.Fatalf("waited %v in vain until %s", d, what)
		panic("unreachable")
	}
}

// silent checks that nothing comes for a while.
func silent[T any](e *env, ch <-chan T, what string) {
	e.Helper()
	select {
	case v := <-ch:
		e.Fatalf("%s: %v", what, v)
	case <-time.After(200 * time.Millisecond):
	}
}

// result is what Lock or TryLock returned.
type result struct {
	lease *sqllock.Lease
	err   error
}

// locking calls Lock on a goroutine of its own.
func locking(ctx context.Context, l *sqllock.Locker, name string, opts ...sqllock.LockOption) <-chan result {
	ch := make(chan result, 1)
	go func() {
		lease, err := l.Lock(ctx, name, opts...)
		ch <- result{lease, err}
	}()
	return ch
}

// granted waits for the lease of a call of locking.
func (e *env) granted(ch <-chan result) *sqllock.Lease {
	e.Helper()
	r := receive(e, ch, "Lock returns")
	e.oneOf(r.lease, r.err)
	if r.err != nil {
		e.Fatalf("Lock: %v", r.err)
	}
	return r.lease
}
