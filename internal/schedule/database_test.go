package schedule

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/claim"
	"github.com/sqllock/sqllock/internal/clock"
	"github.com/sqllock/sqllock/internal/tables"
)

// database is what one Locker sees of the tables.
type database struct {
	w      *world
	label  string
	client driver.Client
	rnd    *rand.Rand // draws the faults
	spread *rand.Rand // draws the pauses of the Locker
	jumped time.Duration
	pushes bool // it tells waiters of their turn
	heard  chan driver.ID
}

var (
	errAgain   = errors.New("fake: deadlock")
	errDown    = errors.New("fake: connection refused")
	errBroken  = errors.New("fake: the connection broke")
	errDenied  = errors.New("fake: permission denied")
	errNoTx    = errors.New("fake: there are no transactions")
	errSilence = fmt.Errorf("%w: the server ends it", errBroken)
)

func (d *database) OpenUnique(_ context.Context, client driver.Client) (driver.Store, error) {
	d.client = client
	if d.pushes {
		return pushStore{d}, nil
	}
	return d, nil
}

func (d *database) Classify(err error) driver.Fault {
	switch {
	case errors.Is(err, errAgain):
		return driver.Again
	case errors.Is(err, errDown), errors.Is(err, driver.ErrNoConnection):
		return driver.Unreachable
	case errors.Is(err, errDenied):
		return driver.Refused
	}
	return driver.Unclear
}

// Clock implements clock.Source.
func (d *database) Clock() clock.Clock { return clock.Func(d.now) }

// now is the clock of the machine of the Locker. It goes ahead of its timers while that sleeps.
func (d *database) now() time.Duration {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	return d.w.now() + d.jumped
}

// sleepsFor makes the clock of the machine go on, but not its timers.
func (d *database) sleepsFor(t time.Duration) {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	d.jumped += t
}

// Spread is what spreads the pauses of the Locker.
func (d *database) Spread() clock.Spread {
	return func(n time.Duration) time.Duration {
		d.w.mu.Lock()
		defer d.w.mu.Unlock()
		return time.Duration(d.spread.Int64N(int64(n)))
	}
}

// call makes one call: each of its parts takes its time, and may fail. The effect is that on the
// first so many of n requests.
func (d *database) call(ctx context.Context, kind string, n int, what func() string, effect func(n int)) error {
	f := d.fault(kind, n)
	d.w.note("%s %s %s", d.label, kind, what())
	if f.err != nil {
		d.w.pause(ctx, f.before)
		if f.late > 0 {
			d.later(f.late, kind, n, effect)
		}
		return d.replied(kind, f.err)
	}
	if err := d.w.pause(ctx, f.before); err != nil {
		if f.arrives {
			d.later(f.late, kind, n, effect)
		}
		return d.replied(kind, err)
	}
	if f.lost {
		n = f.some
	}
	d.w.change(d.label+" "+kind, func() { effect(n) })
	if err := d.w.pause(ctx, f.after); err != nil {
		return d.replied(kind, err)
	}
	if f.lost {
		return d.replied(kind, errBroken)
	}
	return d.replied(kind, nil)
}

// later lets a request arrive whose caller has been told that it failed.
func (d *database) later(after time.Duration, kind string, n int, effect func(n int)) {
	after = d.w.freeSlot(after)
	d.w.goes.Go(func() {
		time.Sleep(after)
		d.w.change(d.label+" late "+kind, func() { effect(n) })
	})
}

func (d *database) replied(kind string, err error) error {
	d.w.note("%s %s: %s", d.label, kind, short(err))
	return err
}

// order returns the indexes of n requests in an order that does not depend on that of a map. The
// same requests are given to each effect, which may come late.
func (d *database) order(n int, name func(i int) string, acq func(i int) driver.ID) []int {
	indexes := make([]int, n)
	for i := range indexes {
		indexes[i] = i
	}
	slices.SortFunc(indexes, func(a, b int) int {
		return cmp.Or(cmp.Compare(name(a), name(b)), cmp.Compare(d.w.id(acq(a)), d.w.id(acq(b))))
	})
	return indexes
}

func (d *database) Acquire(ctx context.Context, reqs []driver.AcquireRequest) ([]driver.AcquireResult, error) {
	reqs = slices.Clone(reqs)
	res := make([]driver.AcquireResult, len(reqs))
	order := d.order(len(reqs), func(i int) string { return reqs[i].Name }, func(i int) driver.ID { return reqs[i].Acq })
	first := &reqs[0]
	kind, one := "grant", d.grant
	switch {
	case first.Resumes != 0:
		return nil, errDenied
	case first.Adopts != driver.ID{}:
		kind, one = "adopt", d.adopt
	case first.Life > 0:
		kind, one = "queue", d.enqueue
	case first.All:
		err := d.call(ctx, "grant all", 1, func() string { return d.describe(reqs, order) }, func(n int) {
			if n > 0 {
				copy(res, d.grantAll(reqs))
			}
		})
		return answered(res, err)
	}
	err := d.call(ctx, kind, len(reqs), func() string { return d.describe(reqs, order) }, func(n int) {
		for _, i := range order[:n] {
			res[i] = one(&reqs[i])
		}
	})
	return answered(res, err)
}

// answered returns results, or an error without any. An effect may come late, so they are copied.
func answered[R any](res []R, err error) ([]R, error) {
	if err != nil {
		return nil, err
	}
	return slices.Clone(res), nil
}

func (d *database) describe(reqs []driver.AcquireRequest, order []int) (text string) {
	for _, i := range order {
		r := &reqs[i]
		text += fmt.Sprintf("%s#%d", r.Name, d.w.id(r.Acq))
		switch {
		case r.Shared:
			text += "s"
		case r.Permits != 0:
			text += fmt.Sprintf("p%d", r.Permits)
		}
		text += fmt.Sprintf("(%v) ", r.TTL)
	}
	return text
}

func (d *database) grant(r *driver.AcquireRequest) driver.AcquireResult {
	if res, ok := d.w.tables.Grant(d.client, r); ok {
		return res
	}
	return d.acquire(r, false)
}

func (d *database) enqueue(r *driver.AcquireRequest) driver.AcquireResult {
	t := d.w.tables
	t.Beats[d.client.Instance] = max(t.Beats[d.client.Instance], t.Now+r.Life.Microseconds())
	return d.acquire(r, true)
}

func (d *database) acquire(r *driver.AcquireRequest, waits bool) driver.AcquireResult {
	res := d.w.tables.Acquire(d.client, r, waits)
	d.tell(true, r.Acq)
	if !res.Granted {
		res.Holder = d.row(r.Name).Holder
	}
	return res
}

func (d *database) grantAll(reqs []driver.AcquireRequest) []driver.AcquireResult {
	return d.w.tables.AcquireAll(d.client, reqs)
}

func (d *database) adopt(r *driver.AcquireRequest) (res driver.AcquireResult) {
	var a claim.Answer
	t := d.w.tables
	t.Visit(d.client, r.Name, func(v *claim.Visit) { a, _ = v.Adopt(r.Adopts, tables.Request(d.client, r, false)) })
	res.Now = t.Now
	if a.Outcome == claim.Granted {
		res.Granted, res.Found, res.Version = true, a.Found, a.Token
		res.Remaining = time.Duration(a.Expires-t.Now) * time.Microsecond
	}
	return res
}

func (d *database) Renew(ctx context.Context, reqs []driver.RenewRequest, wait bool) (res driver.RenewResults, err error) {
	reqs = slices.Clone(reqs)
	order := d.order(len(reqs), func(i int) string { return reqs[i].Name }, func(i int) driver.ID { return reqs[i].Acq })
	status := make([]driver.RenewStatus, len(reqs))
	now := int64(0)
	busy := !wait && d.rolls(d.w.style.busy)
	err = d.call(ctx, "renew", len(reqs), func() (text string) {
		for _, i := range order {
			text += fmt.Sprintf("%s#%d(%v) ", reqs[i].Name, d.w.id(reqs[i].Acq), reqs[i].TTL)
		}
		return text
	}, func(n int) {
		now = d.w.tables.Now
		for _, i := range order[:n] {
			if status[i] = driver.Busy; !busy {
				status[i] = d.w.tables.Renew(&reqs[i])
			}
		}
	})
	if err != nil {
		return res, err
	}
	return driver.RenewResults{Now: now, Status: slices.Clone(status)}, nil
}

func (d *database) Release(ctx context.Context, reqs []driver.ReleaseRequest) ([]driver.ReleaseResult, error) {
	reqs = slices.Clone(reqs)
	res := make([]driver.ReleaseResult, len(reqs))
	order := d.order(len(reqs), func(i int) string { return reqs[i].Name }, func(i int) driver.ID { return reqs[i].Acq })
	kind, one := "release", d.free
	switch {
	case reqs[0].To != driver.ID{}:
		kind, one = "detach", d.detach
	case reqs[0].Version == 0:
		kind, one = "withdraw", d.withdraw
	}
	err := d.call(ctx, kind, len(reqs), func() (text string) {
		for _, i := range order {
			text += fmt.Sprintf("%s#%d ", reqs[i].Name, d.w.id(reqs[i].Acq))
		}
		return text
	}, func(n int) {
		for _, i := range order[:n] {
			res[i] = one(&reqs[i])
		}
	})
	return answered(res, err)
}

func (d *database) free(r *driver.ReleaseRequest) driver.ReleaseResult {
	res := d.w.tables.Free(d.client, r)
	d.tell(false)
	return res
}

func (d *database) withdraw(r *driver.ReleaseRequest) (none driver.ReleaseResult) {
	d.w.tables.Visit(d.client, r.Name, func(v *claim.Visit) { v.Withdraw(r.Acq, r.MinHold.Microseconds(), r.Guarded) })
	d.tell(true)
	return none
}

func (d *database) detach(r *driver.ReleaseRequest) (res driver.ReleaseResult) {
	d.w.tables.Visit(d.client, r.Name, func(v *claim.Visit) {
		res.Freed, _ = v.Detach(r.Acq, r.Version, r.To, r.TTL.Microseconds())
	})
	return res
}

func (d *database) Revoke(ctx context.Context, reqs []driver.RevokeRequest) ([]driver.RevokeResult, error) {
	reqs = slices.Clone(reqs)
	res := make([]driver.RevokeResult, len(reqs))
	err := d.call(ctx, "revoke", len(reqs), func() string { return reqs[0].Name }, func(n int) {
		for i := range reqs[:n] {
			res[i] = d.revoke(&reqs[i])
		}
	})
	return answered(res, err)
}

func (d *database) revoke(r *driver.RevokeRequest) (res driver.RevokeResult) {
	res.Row = d.row(r.Name)
	if r.Politely || r.Version != 0 && r.Version != res.Row.Holder.Version {
		return res
	}
	d.w.tables.Visit(d.client, r.Name, func(v *claim.Visit) { res.Revoked, _ = v.Revoke() })
	if res.Revoked {
		d.w.revoked[r.Name] = max(d.w.revoked[r.Name], res.Row.Holder.Version)
	}
	d.tell(true)
	return res
}

// Resize implements driver.PermitStore.
func (d *database) Resize(ctx context.Context, name string, permits int) error {
	return d.call(ctx, "resize", 1, func() string { return fmt.Sprintf("%s to %d", name, permits) }, func(n int) {
		if n > 0 {
			d.w.tables.Visit(d.client, name, func(v *claim.Visit) { v.Resize(permits) })
			d.tell(true)
		}
	})
}

// SetValue is for elections, of which there are none.
func (d *database) SetValue(context.Context, driver.SetValueRequest) (bool, error) {
	return false, errDenied
}

func (d *database) Sweep(ctx context.Context, r driver.SweepRequest) (res driver.SweepResult, err error) {
	t := d.w.tables
	if r.Every > 0 {
		err = d.call(ctx, "turn", 1, func() string { return "" }, func(int) {
			if d.w.swept <= t.Now-max(r.Every.Microseconds(), d.w.unswept) {
				d.w.swept, res.Due = t.Now, true
			}
		})
		return res, err
	}
	if r.Pause > 0 {
		return res, d.call(ctx, "pause", 1, func() string { return r.Pause.String() }, func(n int) {
			if n > 0 {
				d.w.unswept = r.Pause.Microseconds()
			}
		})
	}
	err = d.call(ctx, "sweep", 1, func() string { return "" }, func(n int) {
		if n == 0 {
			return
		}
		res.Seen = len(t.Names)
		purged, crashed := t.Sweep(d.client, r.Retention)
		res.Purged = purged
		for _, acq := range crashed {
			res.Crashed = append(res.Crashed, driver.Crash{Holder: driver.Holder{Acq: acq}})
		}
	})
	return res, err
}

func (d *database) Read(ctx context.Context, r driver.ReadRequest) (res driver.ReadResult, err error) {
	names := slices.Clone(r.Names)
	slices.Sort(names)
	err = d.call(ctx, "read", 1, func() string { return fmt.Sprint(names, r.Waiters) }, func(int) {
		switch {
		case r.Waiters:
			res.Waiters = d.waiters()
		case r.List.Limit > 0:
			for _, name := range slices.Sorted(maps.Keys(d.w.tables.Names)) {
				res.Page.Rows = append(res.Page.Rows, d.row(name))
			}
		}
		for _, name := range r.Names {
			res.Rows = append(res.Rows, d.row(name))
		}
	})
	if err != nil {
		return driver.ReadResult{}, err
	}
	return res, nil
}

// row is what a look at a name shows.
func (d *database) row(name string) driver.Row {
	t := d.w.tables
	x := t.Names[name]
	if x == nil {
		return driver.Row{Name: name, Now: t.Now}
	}
	r := driver.Row{Name: name, Now: t.Now, Holds: x.Holds, Gate: x.NotBefore, Ended: driver.Ending(x.Ended), Revoked: x.Revoked,
		Asked: x.Asked, Value: x.Value, Permits: x.Permits, Detached: x.Acq != driver.ID{} && x.Locker == driver.ID{},
		Holder: driver.Holder{Acq: x.Acq, Owner: x.Owner, Label: x.Label, Version: x.Version, Since: x.Since, Until: x.Expires}}
	until := int64(0)
	for i := range x.Claims {
		c := &x.Claims[i]
		switch {
		case c.State != claim.Holding || c.Expires <= t.Now:
			continue
		case c.Kind == claim.Permit:
			r.PermitsHeld++
		default:
			r.Readers++
		}
		until = max(until, c.Expires)
	}
	if r.Together() > 0 {
		r.Holder = driver.Holder{Version: x.Version, Since: x.Since, Until: until, Shared: true, Permit: r.PermitsHeld > 0}
	}
	return r
}

// waiters are the claims of those who hold something while they wait.
func (d *database) waiters() (waits []driver.Waiter) {
	t := d.w.tables
	for _, name := range slices.Sorted(maps.Keys(t.Names)) {
		x := t.Names[name]
		var holders []driver.ID
		if x.Acq != (driver.ID{}) && x.Expires > t.Now {
			holders = append(holders, x.Acq)
		}
		for i := range x.Claims {
			if c := &x.Claims[i]; c.State == claim.Holding && c.Expires > t.Now {
				holders = append(holders, c.Acq)
			}
		}
		for i := range x.Claims {
			if c := &x.Claims[i]; c.State == claim.Waiting && len(c.Carries) > 0 && t.Beats[c.Locker] > t.Now {
				waits = append(waits, driver.Waiter{Name: name, Acq: c.Acq, Label: c.Label, Seq: c.Seq, Since: c.Since,
					Kind: driver.Kind(c.Kind), Carries: c.Carries, Holders: holders})
			}
		}
	}
	return waits
}

func (d *database) CloseIdle() bool   { return true }
func (d *database) Close() error      { return nil }
func (d *database) Info() driver.Info { return driver.Info{Server: "fake"} }

func (d *database) Guard(context.Context, *sql.Tx, driver.GuardRequest) (driver.GuardStatus, error) {
	return 0, errNoTx
}

func (d *database) Begin(context.Context, *sql.TxOptions) (*sql.Tx, error) { return nil, errNoTx }

// tell tells waiters that it is their turn, after a visit: those of other Lockers, and those of this one if own
// is set, but for those that an answer tells.
func (d *database) tell(own bool, known ...driver.ID) {
	done := d.w.tables.Last
	for _, wake := range done.Wakes {
		if !slices.Contains(known, wake.Acq) {
			d.push(wake.Locker, wake.Acq)
		}
	}
	for _, t := range done.HandOvers {
		if own && !slices.Contains(known, t.Acq) {
			d.push(d.client.Instance, t.Acq)
		}
	}
}

// push tells a waiter, after a while or never.
func (d *database) push(locker, acq driver.ID) {
	i := slices.IndexFunc(d.w.databases, func(o *database) bool { return o.client.Instance == locker })
	if i < 0 || !d.w.databases[i].pushes || d.draws(d.w.style.unheard) {
		return
	}
	to, after := d.w.databases[i], d.w.slot(d.lasts())
	d.w.goes.Go(func() {
		time.Sleep(after)
		select {
		case to.heard <- acq:
		default:
		}
	})
}

// pushStore is a database that tells waiters of their turn.
type pushStore struct{ *database }

// Listen implements driver.Listener.
func (p pushStore) Listen(ctx context.Context, heard func(driver.ID)) error {
	p.w.note("%s listens", p.label)
	life := time.Duration(1<<62 - 1)
	if p.rolls(p.w.style.faults) {
		p.w.mu.Lock()
		p.w.meets("listen", 0)
		p.w.mu.Unlock()
		life = p.takes() * 1000
	}
	if err := p.w.pause(ctx, p.takes()); err != nil {
		return err
	}
	heard(driver.ID{})
	over := time.NewTimer(life)
	defer over.Stop()
	for {
		select {
		case acq := <-p.heard:
			p.w.note("%s hears of #%d", p.label, p.w.id(acq))
			heard(acq)
		case <-ctx.Done():
			return ctx.Err()
		case <-over.C:
			return errSilence
		}
	}
}
