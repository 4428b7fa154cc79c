package locktest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/locktest"
)

// example takes the place of the *testing.T that go test passes to a test.
type example struct {
	testing.TB
	dir      string
	cleanups []func()
}

func newExample() *example {
	dir, err := os.MkdirTemp("", "locktest")
	if err != nil {
		log.Fatal(err)
	}
	return &example{dir: dir}
}

func (e *example) end() {
	for _, fn := range slices.Backward(e.cleanups) {
		fn()
	}
	_ = os.RemoveAll(e.dir)
}

func (*example) Helper()                   {}
func (*example) Output() io.Writer         { return io.Discard }
func (*example) Context() context.Context  { return context.Background() }
func (*example) Errorf(f string, a ...any) { fmt.Printf(f+"\n", a...) }
func (*example) Fatalf(f string, a ...any) { log.Fatalf(f, a...) }
func (e *example) Cleanup(fn func())       { e.cleanups = append(e.cleanups, fn) }
func (e *example) TempDir() string         { return e.dir }
func (e *example) Error(args ...any)       { fmt.Println(args...) }
func (e *example) Fatal(args ...any)       { log.Fatal(args...) }

func ExampleNew() {
	t := newExample() // in a test: its t
	defer t.end()

	locks := locktest.New(t, nil)
	err := locks.Do(t.Context(), "report", func(_ context.Context, lease *sqllock.Lease) error {
		_, err := locks.TryLock(t.Context(), "report") // as another caller
		fmt.Println("held:", errors.Is(err, sqllock.ErrHeld))
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	// Output:
	// held: true
}

func ExampleDatabase_Expire() {
	t := newExample() // in a test: its t
	defer t.end()

	d := locktest.NewDatabase(t)
	former, err := d.Locker(nil).Lock(t.Context(), "report")
	if err != nil {
		t.Fatal(err)
	}
	d.Expire("report")
	holder, err := d.Locker(nil).Lock(t.Context(), "report")
	if err != nil {
		t.Fatal(err)
	}
	err = former.InTx(t.Context(), nil, func(context.Context, *sql.Tx) error {
		fmt.Println("this does not run")
		return nil
	})
	fmt.Println("the former holder is fenced:", errors.Is(err, sqllock.ErrFenced))
	if err := holder.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	// Output:
	// the former holder is fenced: true
}

func ExampleDatabase_Lose() {
	t := newExample() // in a test: its t
	defer t.end()

	d := locktest.NewDatabase(t)
	locks := d.Locker(nil)
	err := locks.Do(t.Context(), "report", func(ctx context.Context, _ *sqllock.Lease) error {
		d.Lose("report")
		<-ctx.Done() // the work stops
		return context.Cause(ctx)
	})
	fmt.Println("lost:", errors.Is(err, sqllock.ErrLost))
	// Output:
	// lost: true
}

func ExampleDatabase_Advance() {
	t := newExample() // in a test: its t
	defer t.end()

	d := locktest.NewDatabase(t)
	locks := d.Locker(nil)
	tick := func() bool { // runs at most once an hour
		ran, err := locks.TryDo(t.Context(), "tick", func(context.Context, *sqllock.Lease) error {
			return nil
		}, sqllock.MinHold(time.Hour))
		return ran && err == nil
	}
	fmt.Println(tick(), tick())
	d.Advance(time.Hour)
	fmt.Println(tick())
	// Output:
	// true false
	// true
}
