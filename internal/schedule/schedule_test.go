package schedule

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/tables"
)

var (
	seed  = flag.Uint64("schedule.seed", 0, "run this schedule alone, and print its trace")
	first = flag.Uint64("schedule.first", 1, "the seed of the first schedule")
	count = flag.Int("schedule.count", 0, "how many schedules to run; 0: 1,500, or 300 with -short")
)

// newWorld makes a schedule from its seed.
func newWorld(seed uint64) *world {
	rnd := rand.New(rand.NewPCG(seed, 0))
	w := &world{
		seed: seed, rnd: rnd, style: &styles[rnd.IntN(len(styles))], drift: (rnd.Float64() - 0.5) / 60,
		ttl: between(rnd, 200*time.Millisecond, 8*time.Second), looks: rnd.IntN(2) == 0,
		names: []string{"a", "b", "c"}[:1+rnd.IntN(3)], began: time.Now(),
		tables: tables.New(), taken: make(map[time.Duration]struct{}), ids: make(map[driver.ID]int),
		held: make(map[string][]*held), versions: make(map[string]int64), closed: make(map[string]bool), revoked: make(map[string]int64),
		freeSince: make(map[string]time.Duration), met: make(map[string]*[cases]int),
	}
	return w
}

// open makes a Locker with options that the seed draws.
func (w *world) open(i int) *locker {
	rnd := w.rnd
	db := &database{w: w, label: string(rune('A' + i)), rnd: rand.New(rand.NewPCG(w.seed, uint64(2*i+1))),
		spread: rand.New(rand.NewPCG(w.seed, uint64(2*i+2))), pushes: rnd.IntN(2) == 0, heard: make(chan driver.ID, 100)}
	w.databases = append(w.databases, db)
	w.sleep(between(rnd, time.Microsecond, 10*time.Millisecond))
	o := &sqllock.UniqueOptions{TTL: w.ttl, Label: db.label, Logger: slog.New(slog.DiscardHandler), Barging: rnd.IntN(8) == 0,
		Reaper: &sqllock.ReaperOptions{Off: rnd.IntN(2) == 0, Interval: w.ttl, Retention: time.Second + w.ttl}}
	if rnd.IntN(3) == 0 {
		o.TTL = between(rnd, 100*time.Millisecond, 2*w.ttl)
	}
	if rnd.IntN(4) == 0 {
		o.StatementTimeout = between(rnd, 10*time.Millisecond, w.ttl)
	}
	if rnd.IntN(3) == 0 {
		o.RetryMin, o.RetryMax = between(rnd, time.Millisecond, 100*time.Millisecond), between(rnd, 100*time.Millisecond, time.Second)
	}
	if rnd.IntN(4) == 0 {
		o.MaxBatch, o.MaxInFlight = 1+rnd.IntN(3), 1+rnd.IntN(3)
	}
	if rnd.IntN(3) == 0 {
		o.Hooks = &sqllock.Hooks{Acquired: func(sqllock.AcquiredEvent) {}}
	}
	l, err := sqllock.NewUnique(context.Background(), db, o)
	if err != nil {
		w.fail("NewUnique: %v", err)
	}
	return &locker{Locker: l, db: db, ttl: o.TTL, timeout: o.StatementTimeout, slowest: max(o.RetryMax, sqllock.DefaultRetryMax)}
}

// run runs the schedule to its end.
func (w *world) run() {
	var callers []*caller
	var lockers []*caller
	for i := range 2 + w.rnd.IntN(3) {
		l := w.open(i)
		for k := range 1 + w.rnd.IntN(3) {
			c := &caller{locker: l, w: w, name: fmt.Sprintf("%s%d", l.db.label, k), rnd: rand.New(rand.NewPCG(w.seed, uint64(100+10*i+k)))}
			if callers = append(callers, c); k == 0 {
				lockers = append(lockers, c)
			}
		}
	}
	var wg sync.WaitGroup
	for _, c := range callers {
		steps, after := 1+w.rnd.IntN(6), w.freeSlot(between(w.rnd, time.Microsecond, w.ttl/2))
		wg.Go(func() {
			time.Sleep(after)
			c.run(steps)
		})
	}
	wg.Wait()
	for _, c := range lockers {
		after := w.freeSlot(between(w.rnd, time.Microsecond, w.ttl))
		wg.Go(func() {
			time.Sleep(after)
			c.shut(between(c.rnd, time.Millisecond, 4*w.ttl))
		})
	}
	wg.Wait()
	w.goes.Wait()
	w.leavesNothing(len(lockers))
}

// leavesNothing checks that every name becomes free, and that nothing stays in the tables.
func (w *world) leavesNothing(i int) {
	w.mu.Lock()
	w.healed = true
	w.mu.Unlock()
	l := w.open(i)
	c := &caller{locker: l, w: w, name: "last", rnd: w.rnd}
	for _, name := range w.names {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		var lease *sqllock.Lease
		err := c.inTime("the last Lock of "+name, w.now()+20*w.ttl, func() (err error) {
			lease, err = l.Lock(ctx, name)
			return err
		})
		if err == nil {
			err = lease.Unlock(ctx)
		}
		if err != nil {
			w.fail("the last Lock of %s: %v", name, err)
		}
		cancel()
	}
	w.sleep(2 * time.Minute) // those whose Lockers are gone are forgotten
	if _, err := l.Reaper().Reap(context.Background()); err != nil {
		w.fail("Reap: %v", err)
	}
	c.shut(time.Minute)
	for name, x := range w.tables.Names {
		if x.Acq != (driver.ID{}) || len(x.Claims) > 0 || x.Waiting != 0 || x.Holding != 0 {
			w.fail("%s is left: %+v", name, x)
		}
	}
}

// schedule runs a schedule, and returns what was.
func schedule(t *testing.T, seed uint64) (w *world) {
	returned := false
	defer func() {
		if !returned {
			fmt.Printf("the schedule of seed %d does not end; its last steps:\n%s\n", seed, strings.Join(w.lines[max(0, len(w.lines)-100):], "\n"))
		}
	}()
	defer seedChance(seed)()
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(seed)
		w.run()
	})
	returned = true
	return w
}

// seedChance makes what is drawn elsewhere depend on a seed: the IDs, and what the runtime draws if it
// was built for that. It returns a function that restores what was.
func seedChance(seed uint64) (restore func()) {
	reader := crand.Reader
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	crand.Reader = rand.NewChaCha8(key)
	seedRuntime(seed)
	return func() {
		seedRuntime(0)
		crand.Reader = reader
	}
}

// oneAtATime lets one goroutine run at a time, and the collector between schedules only.
func oneAtATime(t *testing.T) {
	procs, percent := runtime.GOMAXPROCS(1), debug.SetGCPercent(-1)
	t.Cleanup(func() {
		runtime.GOMAXPROCS(procs)
		debug.SetGCPercent(percent)
	})
}

// sums are what schedules have done.
type sums struct {
	schedules, calls, faults, leases, lost, failures int
	met                                              map[string]*[cases]int // as in world
}

func (s *sums) add(w *world) {
	s.schedules++
	s.calls += w.calls
	s.faults += w.faults
	for _, leases := range w.held {
		s.leases += len(leases)
	}
	s.lost += w.lost
	if len(w.failures) > 0 {
		s.failures++
	}
	if s.met == nil {
		s.met = make(map[string]*[cases]int)
	}
	for kind, met := range w.met {
		if s.met[kind] == nil {
			s.met[kind] = new([cases]int)
		}
		for i, n := range met {
			s.met[kind][i] += n
		}
	}
}

// byDefault is how many schedules are run by default.
const byDefault = 1500

// leastMet is how many of the cases calls of a kind must have met in so many schedules: all of them
// where there are thousands of such calls.
var leastMet = map[string]int{
	"grant": cases, "queue": cases, "renew": cases, "release": cases, "turn": cases, "withdraw": 14, "sweep": 14,
	"revoke": 12, "grant all": 10, "read": 10, "resize": 10, "pause": 10, "adopt": 5, "detach": 5, "listen": 1,
}

// tooLittle tells what so many schedules have done too seldom for what they have not found to say
// anything.
func (s *sums) tooLittle() (found []string) {
	for _, of := range []struct {
		what     string
		n, least int
	}{
		{"calls", s.calls, 40 * s.schedules}, {"faults", s.faults, 4 * s.schedules},
		{"leases", s.leases, 2 * s.schedules}, {"leases that were lost", s.lost, s.schedules / 20},
	} {
		if of.n < max(of.least, 1) {
			found = append(found, fmt.Sprintf("only %d %s", of.n, of.what))
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(leastMet)) {
		if n := s.cases(kind); n < leastMet[kind] {
			found = append(found, fmt.Sprintf("calls of the kind %q have met %d of the %d kinds of faults", kind, n, cases))
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(s.met)) {
		if leastMet[kind] == 0 {
			found = append(found, fmt.Sprintf("nobody knows how often calls of the kind %q have faults", kind))
		}
	}
	return found
}

// cases is how many kinds of faults calls of a kind have met.
func (s *sums) cases(kind string) (n int) {
	if met := s.met[kind]; met != nil {
		for _, times := range met {
			n += min(times, 1)
		}
	}
	return n
}

func TestSchedulesThatDoTooLittleAreFound(t *testing.T) {
	enough := func() *sums {
		s := &sums{schedules: byDefault, calls: 300_000, faults: 25_000, leases: 14_000, lost: 1300, met: make(map[string]*[cases]int)}
		for kind := range leastMet {
			met := new([cases]int)
			for i := range met {
				met[i] = 1
			}
			s.met[kind] = met
		}
		return s
	}
	if found := enough().tooLittle(); len(found) > 0 {
		t.Errorf("enough: %q", found)
	}
	for what, change := range map[string]func(s *sums){
		"no calls":                  func(s *sums) { s.calls = 0 },
		"no faults":                 func(s *sums) { s.faults = 0 },
		"no leases":                 func(s *sums) { s.leases = 0 },
		"no leases that were lost":  func(s *sums) { s.lost = 0 },
		"a case that is not met":    func(s *sums) { s.met["renew"][7] = 0 },
		"a kind without a fault":    func(s *sums) { delete(s.met, "detach") },
		"a kind with few cases":     func(s *sums) { s.met["adopt"] = &[cases]int{9, 9, 9, 9} },
		"a kind that is not listed": func(s *sums) { s.met["set value"] = &[cases]int{1} },
	} {
		s := enough()
		change(s)
		if found := s.tooLittle(); len(found) != 1 {
			t.Errorf("%s: %q", what, found)
		}
	}
	var none sums
	if found := none.tooLittle(); len(found) != 4+len(leastMet) {
		t.Errorf("nothing was done: %q", found)
	}
}

// enough failures end the test.
const enough = 5

func TestSchedules(t *testing.T) {
	oneAtATime(t)
	if *seed != 0 {
		w := schedule(t, *seed)
		t.Logf("seed %d, hash %x:\n%s", *seed, w.hash(), strings.Join(w.lines, "\n"))
		report(t, w)
		return
	}
	n := cmp.Or(*count, byDefault)
	if *count == 0 && testing.Short() {
		n = 300
	}
	var all sums
	for s := *first; s < *first+uint64(n) && all.failures < enough; s++ {
		if s%50 == 0 {
			runtime.GC()
		}
		w := schedule(t, s)
		if all.add(w); len(w.failures) > 0 && all.failures == 1 {
			t.Log(strings.Join(w.lines, "\n"))
		}
		report(t, w)
	}
	t.Logf("in all: %d schedules, %d calls, %d faults, %d leases, %d lost, %d failures",
		all.schedules, all.calls, all.faults, all.leases, all.lost, all.failures)
	for _, kind := range slices.Sorted(maps.Keys(all.met)) {
		t.Logf("faults of %s: %v", kind, *all.met[kind])
	}
	if all.failures == 0 && all.schedules >= byDefault {
		for _, text := range all.tooLittle() {
			t.Error(text)
		}
	}
}

// report fails if a schedule has failed.
func report(t *testing.T, w *world) {
	t.Helper()
	if len(w.failures) == 0 {
		return
	}
	again := "go test ./internal/schedule -args -schedule.seed=%d, as the case may be several times"
	if isSeeded {
		again = "go run ./scripts/schedules -seed %d"
	}
	t.Errorf("seed %d:\n%s\nto repeat it: "+again, w.seed, strings.Join(w.failures, "\n"), w.seed)
}
