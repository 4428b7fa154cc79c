package batch_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/internal/batch"
)

// goroutine returns the number of the goroutine that calls it.
func goroutine() string {
	stack := make([]byte, 64)
	return strings.Fields(string(stack[:runtime.Stack(stack, false)]))[1]
}

// stub runs statements as it is told to, and knows on which goroutine it ran the last
// request of each kind.
type stub struct {
	mu   sync.Mutex
	ran  map[string]string
	late []batch.Reply[string]
	run  func(ctx context.Context, reqs []string) error // nil: it takes no time
}

// takes makes statements that take d, unless their context ends.
func takes(d time.Duration) func(context.Context, []string) error {
	return func(ctx context.Context, _ []string) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *stub) set(run func(context.Context, []string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run = run
}

func (s *stub) send(ctx context.Context, reqs []string) ([]string, error) {
	s.mu.Lock()
	for _, q := range reqs {
		s.ran[q] = goroutine()
	}
	run := s.run
	s.mu.Unlock()
	if run == nil {
		return slices.Clone(reqs), nil
	}
	return slices.Clone(reqs), run(ctx, reqs)
}

// newDirectHarness returns a harness whose last statement was quick.
func newDirectHarness(t *testing.T, change func(*batch.Options[string, string])) (*harness, *stub) {
	s := &stub{ran: make(map[string]string)}
	h := newHarness(t, func(o *batch.Options[string, string]) {
		o.Send, o.MaxInFlight = s.send, 2
		o.Late = func(_ *string, r batch.Reply[string]) { s.late = append(s.late, r) }
		if change != nil {
			change(o)
		}
	})
	h.Do(t.Context(), nil, "warm", batch.Kind{}, time.Minute)
	return h, s
}

// wantOwn runs a statement, and checks whether its caller runs it.
func (h *harness) wantOwn(t *testing.T, s *stub, want bool) {
	t.Helper()
	r, ok := h.Do(t.Context(), nil, "own", batch.Kind{}, time.Minute)
	if !ok || r.Err != nil || r.Result != "own" {
		t.Errorf("the reply is %+v, %v", r, ok)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if own := s.ran["own"] == goroutine(); own != want {
		t.Errorf("the caller ran its statement: %v, want %v", own, want)
	}
}

func TestALoneCallerRunsItsStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s := newDirectHarness(t, nil)
		defer h.close(t)
		h.wantOwn(t, s, true)
		if r, ok := h.TryDirect("a", time.Minute); !ok || r.Result != "a" || s.ran["a"] != goroutine() {
			t.Errorf("the reply is %+v, %v", r, ok)
		}
		synctest.Wait() // the first request was another goroutine's, who counts it after its reply
		if n := h.began.Load(); n != 0 {
			t.Errorf("%d requests have begun and not ended", n)
		}
	})
}

func TestNobodyWaitsForATimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s := newDirectHarness(t, nil)
		defer h.close(t)
		began := time.Now()
		for range 100 {
			h.wantOwn(t, s, true)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("100 statements took %v longer than they take", took)
		}
		s.set(takes(5 * time.Millisecond))
		h.do(t, "a", "b", "c", "d")
		if took := time.Since(began); took != 10*time.Millisecond {
			t.Errorf("two statements of 5 ms took %v", took)
		}
	})
}

func TestALoneCallerDoesNotWorkForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s := newDirectHarness(t, nil)
		defer h.close(t)
		s.set(takes(10 * time.Millisecond))
		began := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			h.wantOwn(t, s, true)
			if took := time.Since(began); took != 10*time.Millisecond {
				t.Errorf("the lone caller was kept for %v", took)
			}
		})
		synctest.Wait()
		h.do(t, "b", "a")
		if took := time.Since(began); took != 20*time.Millisecond {
			t.Errorf("those who came meanwhile had their replies after %v", took)
		}
		wg.Wait()
		h.wantOwn(t, s, false) // more of them may come
		h.wantOwn(t, s, true)
	})
}

func TestASlowStatementOfALoneCallerLetsTheNextStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s := newDirectHarness(t, nil)
		defer h.close(t)
		h.wantOwn(t, s, true) // the watchdog is set for an earlier statement
		time.Sleep(batch.SlowAfter / 2)
		s.set(takes(time.Second))
		began := time.Now()
		h.do(t, "a", "b")
		if took := time.Since(began); took != time.Second+batch.SlowAfter {
			t.Errorf("two statements took %v", took)
		}
		s.set(nil)
		h.wantOwn(t, s, false) // else it could not leave a database that is slow
		h.wantOwn(t, s, true)
	})
}

func TestTheEndOfItsContextEndsOnlyASlowStatementOfALoneCaller(t *testing.T) {
	for what, c := range map[string]struct {
		takes, leaves, want time.Duration
		answered            bool
	}{
		"a quick statement is answered":                  {10 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, true},
		"a statement that becomes slow later":            {time.Second, 5 * time.Millisecond, batch.SlowAfter, false},
		"a statement that is slow by then":               {time.Second, time.Second / 2, time.Second / 2, false},
		"a slow statement that is answered before":       {time.Second, time.Minute, time.Second, true},
		"a statement that is answered before it is slow": {10 * time.Millisecond, time.Minute, 10 * time.Millisecond, true},
	} {
		for _, closing := range []bool{false, true} {
			t.Run(what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h, s := newDirectHarness(t, nil)
					defer h.close(t)
					s.set(takes(c.takes))
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					ending := make(chan struct{})
					stop := time.AfterFunc(c.leaves, func() {
						if closing {
							close(ending)
						} else {
							cancel()
						}
					})
					defer stop.Stop()
					began := time.Now()
					r, ok := h.Do(ctx, ending, "a", batch.Kind{}, time.Minute)
					if took := time.Since(began); took != c.want || ok != c.answered || r.Err != nil {
						t.Errorf("Do = %+v, %v after %v", r, ok, took)
					}
					if left := len(s.late) == 1 && errors.Is(s.late[0].Err, context.Canceled); left == c.answered {
						t.Errorf("%+v came late", s.late)
					}
					s.set(nil)
					h.wantOwn(t, s, c.takes < batch.SlowAfter)
				})
			})
		}
	}
}

func TestTheEndOfOneContextFailsNoneOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s := newDirectHarness(t, nil)
		s.set(takes(time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		var wg sync.WaitGroup
		call := func(ctx context.Context, q string, answered bool, want time.Duration) {
			began := time.Now()
			wg.Go(func() {
				r, ok := h.Do(ctx, nil, q, batch.Kind{}, time.Minute)
				if took := time.Since(began); ok != answered || r.Err != nil || took != want {
					t.Errorf("the reply to %q after %v is %+v, %v", q, took, r, ok)
				}
			})
			synctest.Wait()
		}
		call(t.Context(), "alone", true, time.Second)
		call(t.Context(), "a", true, time.Second+batch.SlowAfter)
		call(ctx, "b", false, time.Second/2)
		call(t.Context(), "c", true, time.Second+batch.SlowAfter)
		wg.Wait()
		h.close(t)
		if len(s.late) != 1 || s.late[0].Err != nil || s.late[0].Result != "b" {
			t.Errorf("%+v came late, want the reply to b", s.late)
		}
	})
}

func TestAStatementOfALoneCallerEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base, end := context.WithCancel(t.Context())
		h, s := newDirectHarness(t, func(o *batch.Options[string, string]) { o.Base = base })
		defer h.close(t)
		send := func(timeout time.Duration, run func(context.Context, []string) error) time.Duration {
			s.set(run)
			began := time.Now()
			r, ok := h.TryDirect("a", timeout)
			if !ok || (r.Err == nil) != (run == nil) {
				t.Errorf("TryDirect = %+v, %v", r, ok)
			}
			return time.Since(began)
		}
		hang := takes(time.Hour)
		for _, timeout := range []time.Duration{time.Second, time.Minute, 2 * time.Second} {
			for _, pause := range []time.Duration{0, timeout / 64, timeout / 16, 2 * timeout} {
				h.do(t, "warm") // after a slow statement
				send(timeout, nil)
				time.Sleep(pause)
				if took := send(timeout, hang); took > timeout || took < timeout-timeout/32 {
					t.Errorf("a statement ended after %v, want %v", took, timeout)
				}
				s.set(nil)
			}
		}
		h.do(t, "warm")
		time.AfterFunc(time.Second, end)
		if took := send(time.Minute, hang); took != time.Second {
			t.Errorf("it ended %v after the Batcher's context", took-time.Second)
		}
	})
}

func TestAfterADriverHasPanickedOthersAreServed(t *testing.T) {
	for what, abort := range map[string]func(){
		"it panics":             func() { panic("a bug") },
		"it ends the goroutine": runtime.Goexit,
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, s := newDirectHarness(t, nil)
				s.set(func(ctx context.Context, reqs []string) error {
					time.Sleep(time.Millisecond)
					if reqs[0] == "bad" {
						abort()
					}
					return nil
				})
				var wg sync.WaitGroup
				wg.Go(func() {
					defer func() { _ = recover() }()
					h.Do(t.Context(), nil, "bad", batch.Kind{}, time.Minute)
					t.Error("Do has returned")
				})
				synctest.Wait()
				h.do(t, "a", "b")
				wg.Wait()
				if len(s.late) != 1 || s.late[0].Err == nil {
					t.Errorf("%+v came late, want one reply of unknown outcome", s.late)
				}
				s.set(nil)
				h.do(t, "warm")
				h.wantOwn(t, s, true)
				h.close(t)
				if r, ok := h.TryDirect("a", time.Minute); ok {
					t.Errorf("a statement of a Batcher that is closed: %+v", r)
				}
			})
		})
	}
}

func TestAStatementOfALoneCallerTakesNoMemory(t *testing.T) {
	h, s := newDirectHarness(t, func(o *batch.Options[string, string]) {
		res := make([]string, 1)
		o.Send = func(context.Context, []string) ([]string, error) { return res, nil }
	})
	defer h.close(t)
	s.set(nil)
	ctx := t.Context()
	if n := testing.AllocsPerRun(1000, func() { h.Do(ctx, nil, "a", batch.Kind{}, time.Hour) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}
