package batch_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/internal/batch"
	"github.com/sqllock/sqllock/internal/clock"
)

// sender runs statements that take a second, and keeps what they carried.
type sender struct {
	mu      sync.Mutex
	batches [][]string
	refuses string // fails each batch that has it
}

var errRefused = errors.New("refused")

func (s *sender) send(ctx context.Context, reqs []string) ([]string, error) {
	s.mu.Lock()
	s.batches = append(s.batches, slices.Clone(reqs))
	s.mu.Unlock()
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if slices.Contains(reqs, s.refuses) {
		return nil, errRefused
	}
	return reqs, nil
}

// harness has a Batcher whose requests that are begun are counted.
type harness struct {
	*batch.Batcher[string, string]
	sender
	began atomic.Int64
}

func newHarness(t *testing.T, change func(*batch.Options[string, string])) *harness {
	h := new(harness)
	self := func(q *string) string { return *q }
	o := batch.Options[string, string]{
		Send: h.send, SortKey: self, DistinctKey: self,
		Splits: func(err error) bool { return errors.Is(err, errRefused) },
		Began:  func() { h.began.Add(1) }, Ended: func() { h.began.Add(-1) },
		Clock: clock.System{}, Base: t.Context(),
		MaxFast: 1, MaxInFlight: 1, MaxSize: 100,
	}
	if change != nil {
		change(&o)
	}
	h.Batcher = batch.New(o)
	return h
}

// close checks that each request was counted out.
func (h *harness) close(t *testing.T) {
	h.Close()
	if n := h.began.Load(); n != 0 {
		t.Errorf("%d requests have begun and not ended", n)
	}
}

// do sends requests in their order at one time, and returns what came of them.
func (h *harness) do(t *testing.T, reqs ...string) []batch.Reply[string] {
	res := make([]batch.Reply[string], len(reqs))
	var wg sync.WaitGroup
	for i, q := range reqs {
		wg.Go(func() {
			var ok bool
			if res[i], ok = h.Do(t.Context(), nil, q, batch.Kind{}, time.Minute); !ok {
				t.Errorf("no reply to %q", q)
			}
		})
		synctest.Wait()
	}
	wg.Wait()
	return res
}

func TestRequestsLeaveTogetherInOrderWhileAStatementIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		defer h.close(t)
		for i, r := range h.do(t, "d", "c", "a", "b") {
			if want := []string{"d", "c", "a", "b"}[i]; r.Result != want || r.Err != nil || r.SharedBatch != (i > 0) {
				t.Errorf("the reply to %q is %+v", want, r)
			}
		}
		if want := [][]string{{"d"}, {"a", "b", "c"}}; !slices.EqualFunc(h.batches, want, slices.Equal) {
			t.Errorf("%q were sent, want %q", h.batches, want)
		}
	})
}

func TestRequestsThatAreNotDistinctAreSentOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		defer h.close(t)
		h.do(t, "a", "b", "b")
		if want := [][]string{{"a"}, {"b"}, {"b"}}; !slices.EqualFunc(h.batches, want, slices.Equal) {
			t.Errorf("%q were sent, want %q", h.batches, want)
		}
	})
}

func TestAReplyThatIsEnoughAnswersFollowers(t *testing.T) {
	for enough, statements := range map[bool]int{true: 2, false: 3} {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, func(o *batch.Options[string, string]) {
				o.Follow = func(_ *string, r batch.Reply[string], _ *string) (batch.Reply[string], bool) { return r, enough }
			})
			defer h.close(t)
			for _, r := range h.do(t, "a", "b", "b")[1:] {
				if r.Result != "b" || r.Err != nil {
					t.Errorf("the reply is %+v", r)
				}
			}
			if len(h.batches) != statements {
				t.Errorf("%q were sent, want %d statements", h.batches, statements)
			}
		})
	}
}

func TestOneRequestDoesNotFailItsBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		defer h.close(t)
		h.refuses = "c"
		for i, r := range h.do(t, "a", "b", "c", "d") {
			if refused := i == 2; errors.Is(r.Err, errRefused) != refused {
				t.Errorf("reply %d is %+v", i, r)
			}
		}
	})
}

func TestASlowStatementLetsTheNextStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *batch.Options[string, string]) { o.MaxInFlight = 2 })
		defer h.close(t)
		began := time.Now()
		h.do(t, "a", "b")
		if took := time.Since(began); took != time.Second+batch.SlowAfter {
			t.Errorf("two statements took %v", took)
		}
	})
}

func TestARequestThatIsWithdrawnIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var late []string
		h := newHarness(t, func(o *batch.Options[string, string]) {
			o.Late = func(q *string, r batch.Reply[string]) { late = append(late, *q) }
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		var wg sync.WaitGroup
		for _, q := range []string{"a", "b"} {
			wg.Go(func() {
				if r, ok := h.Do(ctx, nil, q, batch.Kind{}, time.Minute); ok {
					t.Errorf("the reply to %q is %+v", q, r)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		h.close(t)
		if want := [][]string{{"a"}}; !slices.EqualFunc(h.batches, want, slices.Equal) || !slices.Equal(late, want[0]) {
			t.Errorf("%q were sent and %q came late, want %q", h.batches, late, want)
		}
	})
}
