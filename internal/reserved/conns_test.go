package reserved_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/reserved"
)

// Renewals do not wait behind all others that wait for the connection.
func TestWhatIsUrgentGoesBeforeThoseWhoShareTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each, waiting = 100 * time.Millisecond, 50
		conns := reserved.New(reserved.Options[string]{
			Pool: "pool", Exhausted: func() bool { return true },
			Classify: func(error) driver.Fault { return driver.Unclear },
			Reserve: func(context.Context, bool) (string, func() error, error) {
				return "reserved", func() error { return nil }, nil
			},
		})
		defer conns.Close()
		var wg sync.WaitGroup
		for range waiting {
			wg.Go(func() {
				_ = conns.Pool(t.Context(), func(string) error {
					time.Sleep(each)
					return nil
				})
			})
		}
		synctest.Wait()
		began, on := time.Now(), ""
		if err := conns.Urgent(t.Context(), func(conn string) error {
			on = conn
			return nil
		}); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 2*each || on != "reserved" {
			t.Errorf("it ran on %q after %v", on, took)
		}
		wg.Wait()
	})
}

// What may use the connection while it is idle does not make one be reserved.
func TestWhatIsIdleUsesTheConnectionOnlyIfItIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reservations := 0
		conns := reserved.New(reserved.Options[string]{
			Pool: "pool", Exhausted: func() bool { return false },
			Classify: func(error) driver.Fault { return driver.Unclear },
			Reserve: func(context.Context, bool) (string, func() error, error) {
				reservations++
				return "reserved", func() error { return nil }, nil
			},
		})
		defer conns.Close()
		runsOn := func(what, want string) {
			t.Helper()
			on := ""
			if err := conns.Idle(t.Context(), func(conn string) error {
				on = conn
				return nil
			}); err != nil || on != want {
				t.Errorf("%s: it ran on %q, %v, want %q", what, on, err, want)
			}
		}
		runsOn("none is reserved", "pool")
		if reservations > 0 {
			t.Error("it has reserved a connection")
		}
		_ = conns.Any(t.Context(), func(string) error {
			runsOn("it is in use", "pool")
			return nil
		})
		runsOn("it is idle", "reserved")
		conns.CloseIdle()
		runsOn("it was given back", "pool")
	})
}

// The connections that are left in the pool may be as silent as the one that has not answered.
func TestAConnectionThatDoesNotAnswerInTimeIsReplacedByAFreshOne(t *testing.T) {
	var fresh []bool
	conns := reserved.New(reserved.Options[string]{
		Pool: "pool", Exhausted: func() bool { return false },
		Classify: func(error) driver.Fault { return driver.Unclear },
		Reserve: func(_ context.Context, f bool) (string, func() error, error) {
			fresh = append(fresh, f)
			return "reserved", func() error { return nil }, nil
		},
	})
	defer conns.Close()
	for _, err := range []error{context.DeadlineExceeded, errors.New("it is broken"), nil} {
		if got := conns.Any(t.Context(), func(string) error { return err }); got != err {
			t.Errorf("%v, want %v", got, err)
		}
	}
	if want := []bool{false, true, false}; !slices.Equal(fresh, want) {
		t.Errorf("fresh: %v, want %v", fresh, want)
	}
}

// pool is one that notes which connections were asked for.
type pool struct {
	fresh     []bool
	err       error // of the next ones
	exhausted bool
}

func (p *pool) conns(fault driver.Fault) *reserved.Conns[string] {
	return reserved.New(reserved.Options[string]{
		Pool: "pool", Exhausted: func() bool { return p.exhausted },
		Classify: func(error) driver.Fault { return fault },
		Reserve: func(ctx context.Context, fresh bool) (string, func() error, error) {
			p.fresh = append(p.fresh, fresh)
			return "reserved", func() error { return nil }, p.err
		},
	})
}

func (p *pool) wants(t *testing.T, what string, fresh ...bool) {
	t.Helper()
	if !slices.Equal(p.fresh, fresh) {
		t.Errorf("%s: fresh: %v, want %v", what, p.fresh, fresh)
	}
	p.fresh = nil
}

func TestAfterAConnectionThatWasNotToBeHadInTimeAFreshOneIsOpened(t *testing.T) {
	for _, c := range []struct {
		what  string
		err   error
		fresh bool
	}{
		{"nothing has answered", context.DeadlineExceeded, true},
		{"the application has them all", errors.Join(driver.ErrNoConnection, context.DeadlineExceeded), false},
		{"it was refused", errors.New("refused"), false},
	} {
		p := &pool{err: c.err}
		conns := p.conns(driver.Unreachable)
		_ = conns.Any(t.Context(), func(string) error { return nil })
		p.err = nil
		_ = conns.Any(t.Context(), func(string) error { return nil })
		p.wants(t, c.what, false, c.fresh)
		conns.Close()
	}
}

func TestACallThatIsCancelledSaysThatNothingAnswersOnlyIfItHasWaited(t *testing.T) {
	for waited, fresh := range map[time.Duration]bool{time.Millisecond: false, time.Second: true} {
		synctest.Test(t, func(t *testing.T) {
			p := new(pool)
			conns := p.conns(driver.Unclear)
			defer conns.Close()
			ctx, cancel := context.WithCancel(t.Context())
			_ = conns.Any(ctx, func(string) error {
				time.Sleep(waited)
				cancel()
				return ctx.Err()
			})
			_ = conns.Any(t.Context(), func(string) error { return nil })
			p.wants(t, waited.String(), false, fresh)
		})
	}
}

// The application may keep all connections of the pool for longer than leases last.
func TestAConnectionThatIsLostIsReplacedBesideAPoolThatIsExhausted(t *testing.T) {
	broken := func(string) error { return errors.New("it is broken") }
	ok := func(string) error { return nil }
	p := &pool{exhausted: true}
	conns := p.conns(driver.Unclear)
	defer conns.Close()
	_ = conns.Any(t.Context(), broken)
	p.wants(t, "the first", false)
	_ = conns.Any(t.Context(), ok)
	p.wants(t, "it was lost", true)
	conns.CloseIdle()
	_ = conns.Any(t.Context(), broken)
	p.wants(t, "it was given back", false)
	conns.CloseIdle()
	_ = conns.Any(t.Context(), ok)
	p.wants(t, "nothing needs one", false)
	conns.CloseIdle()
	_ = conns.Urgent(t.Context(), ok)
	p.wants(t, "a lease needs one", true)
}

// A connection that the library has opened may lack what the application does to its own.
func TestAFreshConnectionThatIsRefusedSomethingIsGivenBack(t *testing.T) {
	p := new(pool)
	conns := p.conns(driver.Refused)
	defer conns.Close()
	refused := func(string) error { return errors.New("refused") }
	_ = conns.Any(t.Context(), refused)
	_ = conns.Any(t.Context(), refused)
	p.wants(t, "that of the pool", false)
	_ = conns.Any(t.Context(), func(string) error { return context.DeadlineExceeded })
	conns.CloseIdle()
	_ = conns.Any(t.Context(), refused)
	_ = conns.Any(t.Context(), refused)
	p.wants(t, "a fresh one", true, false)
}

// What was done before the connection died would be forgotten.
func TestWhatWasDoneInPartIsNotRepeatedOnAnotherConnection(t *testing.T) {
	partly := fmt.Errorf("a part was done: %w", sqldriver.ErrBadConn)
	conns := reserved.New(reserved.Options[string]{
		Pool: "pool", Exhausted: func() bool { return false },
		Classify: func(err error) driver.Fault {
			if err == sqldriver.ErrBadConn {
				return driver.Unreachable
			}
			return driver.Unclear
		},
		Reserve: func(context.Context, bool) (string, func() error, error) {
			return "reserved", func() error { return nil }, nil
		},
	})
	defer conns.Close()
	for err, want := range map[error]int{sqldriver.ErrBadConn: 2, partly: 1} {
		runs := 0
		got := conns.Any(t.Context(), func(string) error {
			runs++
			return err
		})
		if runs != want || !errors.Is(got, err) {
			t.Errorf("%v: it ran %d times, and %v was returned", err, runs, got)
		}
	}
}

// After a fail-over the connections of the pool lead to the server that answers that it is of no use.
func TestAServerThatSendsElsewhereIsAskedOnAFreshConnection(t *testing.T) {
	for _, c := range []struct {
		what  string
		err   error
		fresh bool
	}{
		{"it is read-only", errors.New("read-only"), true},
		{"there is none", driver.ErrNoConnection, false},
	} {
		p := new(pool)
		conns := p.conns(driver.Unreachable)
		_ = conns.Any(t.Context(), func(string) error { return c.err })
		_ = conns.Any(t.Context(), func(string) error { return nil })
		p.wants(t, c.what, false, c.fresh)
		conns.Close()
	}
}

// A driver may have closed a connection after a call that has done what it was for.
func TestAConnectionThatWasClosedIsReplaced(t *testing.T) {
	p := new(pool)
	conns := p.conns(driver.Unreachable)
	defer conns.Close()
	n := 0
	err := conns.Any(t.Context(), func(string) error {
		if n++; n == 1 {
			return sql.ErrConnDone
		}
		return nil
	})
	if err != nil || n != 2 {
		t.Errorf("after %d calls: %v", n, err)
	}
	p.wants(t, "it was closed", false, false)
}

// A connection in the middle of something is not used again.
func TestAConnectionWhoseUserPanicsIsGivenBack(t *testing.T) {
	p := new(pool)
	conns := p.conns(driver.Refused)
	defer conns.Close()
	func() {
		defer func() { _ = recover() }()
		_ = conns.Any(t.Context(), func(string) error { panic("a bug") })
	}()
	_ = conns.Any(t.Context(), func(string) error { return nil })
	p.wants(t, "another one", false, false)
}
