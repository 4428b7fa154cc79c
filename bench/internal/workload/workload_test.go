package workload_test

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/bench/internal/contender"
	"github.com/sqllock/sqllock/bench/internal/workload"
)

func TestHandoversAreMeasuredFromUnlockToTheNextLocksReturn(t *testing.T) {
	s, count, overlaps := workload.Handovers([]workload.Times{
		{Process: 1, Caller: 1, Called: 0, Got: 3_000_000, Freed: 4_000_000}, // not in order
		{Process: 0, Caller: 0, Called: 0, Got: 1_000_000, Freed: 2_000_000},
		{Process: 1, Caller: 1, Called: 4_000_000, Got: 4_100_000, Freed: 5_000_000},
		{Process: 0, Caller: 0, Called: 2_000_000, Got: 9_000_000, Freed: 9_000_000}, // after the window
	}, 2, 500_000, 8_000_000)
	if count != 3 || overlaps != 0 {
		t.Errorf("%d hand-overs, %d overlaps, want 3 and 0", count, overlaps)
	}
	if s.P50 != 100 || s.P99 != 1000 || s.Across != 1000 || s.Longest != 3 || s.Cycles != 400 || s.Jain != 0.9 {
		t.Errorf("the sample is %+v", s)
	}
}

func TestHandoversCountOverlappingHolders(t *testing.T) {
	if _, _, overlaps := workload.Handovers([]workload.Times{{Got: 1, Freed: 10}, {Got: 9, Freed: 11}}, 1, 0, 20); overlaps != 1 {
		t.Errorf("%d overlaps, want 1", overlaps)
	}
}

func TestAnEarlierHolderThatKeepsTheNameOverlapsWithAllLaterOnes(t *testing.T) {
	if _, _, overlaps := workload.Handovers([]workload.Times{{Got: 1, Freed: 10}, {Got: 2, Freed: 3}, {Got: 5, Freed: 6}}, 1, 0, 20); overlaps != 2 {
		t.Errorf("%d overlaps, want 2", overlaps)
	}
}

func TestALockThatGrantsEverybodyIsFoundOut(t *testing.T) {
	if count, overlaps := workload.RunKeeping(grantingClient{}, 4, 50*time.Millisecond); count < 8 || overlaps < count/2 {
		t.Errorf("%d overlaps of %d grants", overlaps, count)
	}
}

func TestALockThatExcludesHasNoOverlaps(t *testing.T) {
	count, overlaps := workload.RunKeeping(&mutexClient{}, 4, 50*time.Millisecond)
	if count < 4 || overlaps != 0 {
		t.Errorf("%d overlaps of %d grants, want 0 of 4 at least", overlaps, count)
	}
}

func TestCallersKeepTheirLocksAlsoIfALaterLineSaysSo(t *testing.T) {
	if overlaps := workload.RunKeepingLater(pausingClient{}, 4, 100*time.Millisecond); overlaps < 4 {
		t.Errorf("%d overlaps", overlaps)
	}
}

// grantingClient grants everything to everybody.
type grantingClient struct{}

func (grantingClient) Lock(context.Context, int, string) (contender.Lock, error) {
	return grantedLock{}, nil
}

func (grantingClient) Close() error { return nil }

type grantedLock struct{}

func (grantedLock) Unlock(context.Context) error { return nil }

// pausingClient is a grantingClient that takes a while.
type pausingClient struct{ grantingClient }

func (c pausingClient) Lock(ctx context.Context, caller int, name string) (contender.Lock, error) {
	time.Sleep(time.Millisecond)
	return c.grantingClient.Lock(ctx, caller, name)
}

// mutexClient has one lock for all names.
type mutexClient struct{ mu sync.Mutex }

func (c *mutexClient) Lock(context.Context, int, string) (contender.Lock, error) {
	c.mu.Lock()
	return c, nil
}

func (c *mutexClient) Unlock(context.Context) error {
	c.mu.Unlock()
	return nil
}

func (*mutexClient) Close() error { return nil }

func TestEachUpdateHasARowOfItsOwn(t *testing.T) {
	rows := make(map[string]bool)
	for p := range workload.Processes {
		for _, name := range workload.UpdateNames(p) {
			rows[name] = true
		}
	}
	if len(rows) != workload.Updates {
		t.Errorf("%d rows, want %d", len(rows), workload.Updates)
	}
}

func TestTheMostConnectionsCountAndNoStatementOfTheCountItself(t *testing.T) {
	statements, most, err := workload.Watch(time.Second, 1, []float64{1, 3, 2})
	if statements != 0 || most != 3 || err != nil {
		t.Errorf("%v statements, %v connections, %v; want 0 and 3", statements, most, err)
	}
}

func TestCallersLockDifferentNamesOfALargeTable(t *testing.T) {
	const rows, names, callers = 10_000, 1000, 64
	name := workload.SpreadNames(rows, names, callers)
	owner := make(map[string]int)
	for caller := range callers {
		for range 200 {
			n := name(caller, 0)
			if other, taken := owner[n]; taken && other != caller {
				t.Fatalf("callers %d and %d both lock %s", other, caller, n)
			}
			owner[n] = caller
			if i, err := strconv.Atoi(n); err != nil || i < 1 || i > rows {
				t.Fatalf("no row is named %q", n)
			}
		}
	}
	last := 0
	for n := range owner {
		i, _ := strconv.Atoi(n)
		last = max(last, i)
	}
	if len(owner) < names/2 || len(owner) > names || last < rows/2 {
		t.Errorf("%d rows are locked, up to row %d, want %d all over", len(owner), last, names)
	}
}

func TestAClientProcessRefusesAnUnknownContender(t *testing.T) {
	if err := workload.Serve(strings.NewReader(`{"Contender":"nobody"}`), io.Discard); err == nil {
		t.Error("it serves")
	}
}

func TestACycleCountsByItsShareOfTheWindow(t *testing.T) {
	const ms = time.Millisecond
	s := workload.Sample([][][2]time.Duration{
		{{0, 200 * ms}, {200 * ms, 400 * ms}}, // half of each is in the window
		{{0, 100 * ms}, {100 * ms, 300 * ms}}, // the first before it
	}, 100*ms, 300*ms)
	if s.Cycles != 10 || s.Jain != 1 || s.P50 != 200_000 {
		t.Errorf("the sample is %+v, want 2 cycles in 0.2 s, one for each caller", s)
	}
}

func TestEachNameHasLockersOfTwoProcesses(t *testing.T) {
	for _, c := range workload.NameCells {
		names, lockers := c.Size()
		processes := make(map[string]map[int]bool)
		used := make(map[[2]int]bool)
		perProcess := 0
		for p := range workload.Processes {
			of, list := c.Callers(p)
			if p > 0 && len(list) != perProcess {
				t.Errorf("%d names, %d Lockers: process %d has %d callers, another %d", names, lockers, p, len(list), perProcess)
			}
			perProcess = len(list)
			for i, name := range list {
				if processes[name] == nil {
					processes[name] = make(map[int]bool)
				}
				processes[name][p] = true
				used[[2]int{p, of[i]}] = true
			}
		}
		if len(processes) != names || len(used) != lockers {
			t.Errorf("%d names, %d Lockers: %d and %d are used", names, lockers, len(processes), len(used))
		}
		for name, list := range processes {
			if len(list) < 2 {
				t.Errorf("%d names, %d Lockers: %s is locked by one process only", names, lockers, name)
			}
		}
	}
}

// waitingClient grants nothing.
type waitingClient struct{ err error }

func (c waitingClient) Lock(ctx context.Context, _ int, _ string) (contender.Lock, error) {
	if c.err != nil {
		return nil, c.err
	}
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func (waitingClient) Close() error { return nil }

func TestCallersThatGiveUpHaveNotFailed(t *testing.T) {
	if n := workload.RunUntil(waitingClient{}, 3, strings.NewReader("{}")); n != 0 {
		t.Errorf("%d failed, want 0", n)
	}
}

func TestCallersThatAreRefusedHaveFailed(t *testing.T) {
	in, out := io.Pipe()
	time.AfterFunc(50*time.Millisecond, func() { _ = out.Close() })
	if n := workload.RunUntil(waitingClient{errors.New("no")}, 3, in); n < 3 {
		t.Errorf("%d failed, want 3 at least", n)
	}
}

func TestHandoversOfNamesAreNotMixed(t *testing.T) {
	s, count, overlaps := workload.Handovers([]workload.Times{
		{Name: "a", Got: 1_000, Freed: 9_000}, {Name: "b", Process: 1, Got: 2_000, Freed: 3_000},
		{Name: "b", Process: 0, Got: 7_000, Freed: 8_000}, {Name: "a", Process: 1, Got: 10_000, Freed: 11_000},
	}, 1, 0, 20_000)
	if count != 4 || overlaps != 0 || s.P50 != 1 || s.P99 != 4 {
		t.Errorf("%d hand-overs, %d overlaps, %+v; want 4, 0, of 1 and 4 µs", count, overlaps, s)
	}
}
