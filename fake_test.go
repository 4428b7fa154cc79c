package sqllock_test

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
)

// fake is a database whose time passes under testing/synctest. It keeps the
// contract of driver.Store; faults are put in front of its statements and
// behind them.
type fake struct {
	mu   sync.Mutex
	rows map[string]*row
	sent map[string]int // statements by kind

	swept, sweepPause int64

	// skew is how far the clock of the database is ahead.
	skew time.Duration
	// before runs before the statement, and may delay it or fail it.
	before func(ctx context.Context, kind string) error
	// after runs when the statement has been committed: an error loses the reply.
	after func(ctx context.Context, kind string) error
	// last is the acquisition that asked last, even if it did not get through.
	last driver.ID
	// locked are rows that somebody else has locked.
	locked map[string]bool
	// poison are names that spoil every grant and release they are part of.
	poison map[string]error
	// largest is how many requests came in one statement of a kind.
	largest map[string]int
	// mixed says that requests came in one statement that should not.
	mixed bool
	// settle says of each request to abandon an acquisition if it was to be settled.
	settle []bool
}

type row struct {
	acq        driver.ID
	key        driver.ID // of a term that was detached
	owner      string
	version    int64
	leaseCount int
	since      int64
	until      int64
	notBefore  int64
	ended      driver.Ending
	revoked    int64
	requested  int64
	value      []byte
	readers    map[driver.ID]*reader
	claims     []*fakeClaim
	seq        int64
}

var (
	errNoReply  = errors.New("fake: no reply")
	errDeadlock = errors.New("fake: deadlock")
	errDown     = errors.New("fake: connection refused")
	errDenied   = errors.New("fake: permission denied")
)

func newFake() *fake {
	return &fake{rows: make(map[string]*row), sent: make(map[string]int), locked: make(map[string]bool),
		poison: make(map[string]error), largest: make(map[string]int)}
}

func (f *fake) now() int64 { return time.Now().Add(f.skew).UnixMicro() }

// statement runs one statement between its faults.
func (f *fake) statement(ctx context.Context, kind string, run func()) error {
	f.mu.Lock()
	before, after := f.before, f.after
	f.mu.Unlock()
	if before != nil {
		if err := before(ctx, kind); err != nil {
			return err
		}
	}
	f.mu.Lock()
	f.sent[kind]++
	run()
	f.mu.Unlock()
	if after != nil {
		return after(ctx, kind)
	}
	return nil
}

// spoiled notes the size of a batch, and returns the error of a name in it.
func (f *fake) spoiled(kind string, n int, name func(i int) string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.largest[kind] = max(f.largest[kind], n)
	for i := range n {
		if err := f.poison[name(i)]; err != nil {
			return err
		}
	}
	return nil
}

// Acquire dispatches to the statements of the three kinds of requests.
func (f *fake) Acquire(ctx context.Context, reqs []driver.AcquireRequest) ([]driver.AcquireResult, error) {
	switch {
	case reqs[0].Resumes != 0:
		return f.resumeTerm(ctx, reqs[0])
	case reqs[0].Adopts != driver.ID{}:
		return f.adoptTerm(ctx, reqs[0])
	case reqs[0].Life > 0:
		return f.enqueue(ctx, reqs)
	}
	return f.grants(ctx, reqs)
}

func (f *fake) grants(ctx context.Context, reqs []driver.AcquireRequest) (res []driver.AcquireResult, err error) {
	f.set(func(f *fake) {
		f.last = reqs[0].Acq
		for _, r := range reqs {
			if r.Shared != reqs[0].Shared || len(r.Value) > 0 != (len(reqs[0].Value) > 0) || r.TTL > 2*reqs[0].TTL || reqs[0].TTL > 2*r.TTL {
				f.mixed = true
			}
		}
	})
	if err := f.spoiled("grant", len(reqs), func(i int) string { return reqs[i].Name }); err != nil {
		return nil, err
	}
	err = f.statement(ctx, "grant", func() {
		if reqs[0].All {
			res = f.grantAll(reqs)
			return
		}
		for _, r := range reqs {
			res = append(res, f.grant(r))
		}
	})
	return res, err
}

// grantAll grants all of the names or none.
func (f *fake) grantAll(reqs []driver.AcquireRequest) []driver.AcquireResult {
	res, now, refused := make([]driver.AcquireResult, len(reqs)), f.now(), false
	for i, r := range reqs {
		if x := f.rows[r.Name]; x != nil && (x.acq != driver.ID{} && x.acq != r.Acq && x.until > now || x.notBefore > now) {
			res[i], refused = driver.AcquireResult{Now: now, Refused: true, Holder: x.holder()}, true
		}
	}
	for i := range reqs {
		if !refused {
			res[i] = f.grant(reqs[i])
		}
	}
	return res
}

// grant is take for those who do not stand in line.
func (f *fake) grant(r driver.AcquireRequest) driver.AcquireResult {
	x, now := f.rows[r.Name], f.now()
	if x != nil && x.acq != r.Acq && (x.acq == driver.ID{} || x.until <= now) && x.readers[r.Acq] == nil {
		if claims := x.waiting(now); len(claims) > 0 {
			return driver.AcquireResult{Now: now, Holder: driver.Holder{Until: claims[len(claims)-1].until}}
		}
	}
	return f.take(r)
}

func (f *fake) take(r driver.AcquireRequest) driver.AcquireResult {
	now := f.now()
	x := f.rows[r.Name]
	if x == nil {
		x = &row{}
		f.rows[r.Name] = x
	}
	held := x.acq != (driver.ID{}) && x.until > now
	sharing := x.sharing(now)
	switch {
	case held && x.acq == r.Acq:
		return driver.AcquireResult{Granted: true, Found: true, Version: x.version, Now: now, Remaining: time.Duration(x.until-now) * time.Microsecond}
	case held:
		return driver.AcquireResult{Now: now, Holder: driver.Holder{Acq: x.acq, Owner: x.owner, Label: "fake", Until: x.until}}
	case sharing > 0 && !r.Shared:
		return driver.AcquireResult{Now: now, Holder: x.together()}
	case x.acq == driver.ID{} && x.notBefore > now:
		return driver.AcquireResult{Now: now, Holder: driver.Holder{Until: x.notBefore}}
	case r.Shared:
		return f.grantShared(x, r)
	}
	res := driver.AcquireResult{Granted: true, Version: max(x.version+1, now), Now: now, Remaining: r.TTL}
	if x.acq != (driver.ID{}) && x.acq != r.Acq {
		res.Crashed = x.holder()
	}
	x.acq, x.owner, x.version, x.leaseCount, x.value = r.Acq, r.Owner, res.Version, 1, r.Value
	x.since, x.until = now, now+r.TTL.Microseconds()
	return res
}

func (f *fake) Renew(ctx context.Context, reqs []driver.RenewRequest, wait bool) (res driver.RenewResults, err error) {
	kind := "renew"
	if wait {
		kind = "renew alone"
	}
	err = f.statement(ctx, kind, func() {
		res.Now = f.now()
		for _, r := range reqs {
			res.Status = append(res.Status, f.renew(r, wait))
		}
	})
	return res, err
}

func (f *fake) renew(r driver.RenewRequest, wait bool) driver.RenewStatus {
	if r.Shared {
		return f.renewShared(r)
	}
	now := f.now()
	x := f.rows[r.Name]
	switch {
	case x != nil && x.revoked == r.Version:
		return driver.Revoked
	case x == nil || x.acq != r.Acq || x.version != r.Version || x.until <= now:
		return driver.Gone
	case f.locked[r.Name] && !wait:
		return driver.Busy
	}
	x.until = max(x.until, now+r.TTL.Microseconds())
	x.leaseCount = r.Holds
	return driver.Renewed
}

func (f *fake) Release(ctx context.Context, reqs []driver.ReleaseRequest) (res []driver.ReleaseResult, err error) {
	if reqs[0].To != (driver.ID{}) {
		return f.detachTerm(ctx, reqs[0])
	}
	if reqs[0].Version == 0 {
		return make([]driver.ReleaseResult, len(reqs)), f.abandon(ctx, reqs)
	}
	if err := f.spoiled("release", len(reqs), func(i int) string { return reqs[i].Name }); err != nil {
		return nil, err
	}
	err = f.statement(ctx, "release", func() {
		for _, r := range reqs {
			x := f.rows[r.Name]
			switch ok := x != nil && x.acq == r.Acq && x.version == r.Version; {
			case r.Shared && !f.leaveShared(r.Name, r.Acq), !r.Shared && !ok:
				none := driver.ReleaseResult{}
				if x != nil && r.Awaited {
					none.Next = f.handOver(r.Name)
					none.HandedOver = len(none.Next)
				}
				res = append(res, none)
				continue
			case !r.Shared:
				x.release(f.now(), r.MinHold)
			}
			next := f.handOver(r.Name)
			res = append(res, driver.ReleaseResult{Freed: true, Next: next, HandedOver: len(next)})
		}
	})
	return res, err
}

func (f *fake) abandon(ctx context.Context, reqs []driver.ReleaseRequest) error {
	f.set(func(f *fake) {
		for _, r := range reqs {
			f.settle = append(f.settle, r.Settle)
		}
	})
	if err := f.spoiled("abandon", len(reqs), func(i int) string { return reqs[i].Name }); err != nil {
		return err
	}
	return f.statement(ctx, "abandon", func() {
		for _, r := range reqs {
			if x := f.rows[r.Name]; x != nil && x.acq == r.Acq {
				x.release(f.now(), r.MinHold)
			}
			f.leaveShared(r.Name, r.Acq)
			if x := f.rows[r.Name]; x != nil {
				x.takeAway(r.Acq)
				f.handOver(r.Name)
			}
		}
	})
}

func (f *fake) CloseIdle() bool   { return true }
func (f *fake) Info() driver.Info { return driver.Info{Server: "fake"} }
func (f *fake) Close() error      { return nil }

func (f *fake) Classify(err error) driver.Fault {
	switch {
	case errors.Is(err, errDeadlock):
		return driver.Again
	case errors.Is(err, errDown), errors.Is(err, driver.ErrNoConnection), errors.Is(err, sqldriver.ErrBadConn): // as the drivers say
		return driver.Unreachable
	case errors.Is(err, errDenied):
		return driver.Refused
	}
	return driver.Unclear
}

// set changes the faults.
func (f *fake) set(change func(*fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// settled returns of each withdrawal whether it was to settle the request.
func (f *fake) settled() []bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.settle)
}

// count returns how many statements of a kind have run.
func (f *fake) count(kind string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sent[kind]
}

// held reports whether somebody holds name as the database sees it.
func (f *fake) held(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.rows[name]
	return x != nil && x.acq != (driver.ID{}) && x.until > f.now()
}

// row returns a copy of the row of name.
func (f *fake) row(name string) row {
	f.mu.Lock()
	defer f.mu.Unlock()
	return *f.rows[name]
}

// bench is a Locker on a fake database with a clock that the test can move.
type bench struct {
	*sqllock.Locker
	t     *testing.T
	db    *fake
	start time.Time
	mu    sync.Mutex
	slept time.Duration // how long the machine was suspended
}

func newBench(t *testing.T, db *fake, opts *sqllock.UniqueOptions) *bench {
	t.Helper()
	return newBenchOn(t, db, db, opts)
}

// newBenchOn is newBench for a store that stands before db.
func newBenchOn(t *testing.T, store sqllock.ClassifyingStore, db *fake, opts *sqllock.UniqueOptions) *bench {
	t.Helper()
	b := &bench{t: t, db: db, start: time.Now()}
	l, err := sqllock.NewWithClock(store, b.now, opts)
	if err != nil {
		t.Fatal(err)
	}
	b.Locker = l
	return b
}

func (b *bench) now() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Since(b.start) + b.slept
}

// suspend lets time pass without timers, for this machine only.
func (b *bench) suspend(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.slept += d
}

// close ends the Locker; nothing must be held.
func (b *bench) close() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	if err := b.Close(ctx); err != nil {
		b.t.Errorf("Close: %v", err)
	}
}

func (b *bench) lock(name string, opts ...sqllock.LockOption) *sqllock.Lease {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), testTimeout)
	defer cancel()
	lease, err := b.Lock(ctx, name, opts...)
	if err != nil {
		b.t.Fatalf("Lock(%q): %v", name, err)
	}
	return lease
}

// testTimeout is longer than any wait of a test that goes well.
const testTimeout = 2 * time.Hour

func (b *bench) unlock(lease *sqllock.Lease) {
	b.t.Helper()
	if err := lease.Unlock(b.t.Context()); err != nil {
		b.t.Errorf("Unlock(%q): %v", lease.Name(), err)
	}
}
