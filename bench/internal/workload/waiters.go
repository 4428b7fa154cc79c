package workload

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/bench/internal/contender"
	"github.com/sqllock/sqllock/bench/internal/platform"
	"github.com/sqllock/sqllock/bench/internal/report"
)

const (
	waitersProcesses = 5
	// enough is how long waiters may take until all of them wait.
	enough = time.Minute

	waitingLockers      = 400
	waitingLockersQuick = 200
	waitingProcesses    = 4
	waitingConns        = 32 // of a process, beside those that each Locker keeps
	connsPerLocker      = 2  // one that listens, and one that is reserved
	waitingPerName      = 100
	// waitingSpread is over which time the Lockers begin to wait.
	waitingSpread = 10 * time.Second
	// beatsLabel is appended to the names of contenders whose Lockers wait in vain.
	beatsLabel = "@lockers"
)

// queues are the numbers of waiters of one name, over all processes.
var queues = []int{100, 10_000}

// waiters has callers of one name lock it again and again: few, and very many. Then many
// Lockers wait for names that others keep.
func (b *Bench) waiters(ctx context.Context) error {
	list, err := b.entries(ctx, isUniqueOnServer)
	if err != nil {
		return err
	}
	if err := b.longQueues(ctx, counted(list)); err != nil {
		return err
	}
	for _, e := range list {
		if err := b.waitingLockers(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bench) longQueues(ctx context.Context, list []*entry) error {
	list = b.open(ctx, list)
	defer b.close(list)
	all, err := b.teams(ctx, list, waitersProcesses, 1)
	defer func() { b.endTeams(all) }()
	if err != nil {
		return err
	}
	few := *b
	few.Rounds = min(b.Rounds, herdRounds)
	if b.Quick {
		few.Rounds = 1
	}
	var cells []cell
	for _, t := range all {
		for _, n := range queues {
			cells = append(cells, cell{t.key(report.Waiters, n), t.Durable, func() (report.Sample, error) {
				return b.longQueue(ctx, t, n)
			}})
		}
	}
	return eachRound(ctx, &few, cells, func(c cell) {
		b.Say("%d waiters of %s", c.key.Callers, c.key.Contender)
		s, err := c.measure()
		b.note(c.key, c.durable, s, err)
	})
}

// longQueue measures hand-overs after all waiters are in the queue, where each goes again
// when it has had the name. Without all of them the figures do not count.
func (b *Bench) longQueue(ctx context.Context, t *team, waiters int) (report.Sample, error) {
	name, each := fmt.Sprintf("queue-%d", waiters), waiters/waitersProcesses
	lock, err := t.client.Lock(ctx, 0, name)
	if err != nil {
		return dropped, err
	}
	first := grant{Name: name, Process: -1, Got: platform.Monotonic()}
	callers := ofOneName(name, each)
	sent := tell(t.processes, order{Callers: callers, Until: true})
	late := awaitWaiting(ctx, t.entry, waiters)
	warm := b.Round / 4
	kept := tell(t.processes, order{KeepUntil: platform.Monotonic() + int64(warm/2)})
	first.Freed = platform.Monotonic()
	unlocked := lock.Unlock(ctx)
	time.Sleep(warm)
	var w window
	counted := w.measure(ctx, t, 2*b.Round)
	stopped := tell(t.processes, order{})
	a, gone := collect(t.processes, each)
	s, overlaps := w.sample(append(a.Grants, first), waiters)
	s.Jain, s.Longest = 0, 0 // few of them have their turn
	s.Failures, s.Dropped = a.Failures+overlaps, late != nil || gone != nil
	left := awaitWaiting(ctx, t.entry, 0)
	return s, errors.Join(sent, late, kept, unlocked, counted, stopped, gone, left, failure(a, overlaps))
}

// awaitWaiting returns when so many wait for names of an entry.
func awaitWaiting(ctx context.Context, e *entry, n int) error {
	db, err := contender.SQL(ctx, e.Server, e.site)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	ctx, cancel := context.WithTimeout(ctx, enough)
	defer cancel()
	for {
		waiting, err := waitingNow(ctx, db)
		if waiting == n && err == nil {
			return nil
		}
		if ctx.Err() != nil || err != nil {
			return errors.Join(fmt.Errorf("%d wait, not %d", waiting, n), err, ctx.Err())
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func waitingNow(ctx context.Context, db *sql.DB) (n int, err error) {
	err = db.QueryRowContext(ctx, countWaiting).Scan(&n)
	return n, err
}

// waitingLockers counts what Lockers cost that wait for names and do not get them. Those of
// a process share a pool.
func (b *Bench) waitingLockers(ctx context.Context, e *entry) error {
	n := waitingLockers
	if b.Quick {
		n = waitingLockersQuick
	}
	b.Say("%d Lockers of %s wait", n, e.label)
	holder, err := e.Open(ctx, e.site)
	if err != nil {
		return err
	}
	defer func() { _ = holder.Close() }()
	for i := range n / waitingPerName {
		lock, err := holder.Lock(ctx, i, waitingName(i, n))
		if err != nil {
			return err
		}
		defer func() { _ = lock.Unlock(context.Background()) }()
	}
	each := n / waitingProcesses
	large := e.variant(e.label, func(s *contender.Site) { s.Conns = connsPerLocker*each + waitingConns })
	all, err := b.teamsOf(ctx, []*entry{large}, waitingProcesses, setup{Clients: each, Share: true})
	defer func() { b.endTeams(all) }()
	if err != nil || len(all) == 0 {
		return err
	}
	s, err := b.countBeats(ctx, all[0], each)
	b.note(report.Key{Workload: report.Waiters, Contender: e.label + beatsLabel, Callers: n}, e.Durable, s, err)
	return nil
}

// waitingName is what one of n Lockers waits for.
func waitingName(i, n int) string { return fmt.Sprintf("waited-for-%d", i%(n/waitingPerName)) }

// countBeats has each client of a team wait, and counts what the server does meanwhile. A
// Locker that waits and whose row has expired in the end is a failure.
func (b *Bench) countBeats(ctx context.Context, t *team, each int) (s report.Sample, err error) {
	var callers []caller
	for i := range each {
		callers = append(callers, caller{Client: i, Name: waitingName(i, each*waitingProcesses)})
	}
	o := order{Callers: callers, Until: true, Spread: waitingSpread}
	d := 20 * time.Second
	if b.Quick {
		d, o.Spread = d/2, o.Spread/5
	}
	sent := tell(t.processes, o)
	late := awaitWaiting(ctx, t.entry, each*waitingProcesses)
	time.Sleep(settle)
	did, conns, counted := t.counter.count(ctx, d)
	did.perSecond(&s, d)
	s.Conns = conns
	expired, err := expiredNow(ctx, t.entry)
	if expired > 0 {
		err = fmt.Errorf("%d Lockers wait whose rows have expired", expired)
	}
	stopped := tell(t.processes, order{})
	a, gone := collect(t.processes, each)
	s.Failures, s.Dropped = a.Failures+len(a.Grants)+expired, late != nil || gone != nil
	return s, errors.Join(sent, late, counted, err, stopped, gone, failure(a, 0))
}

// expiredNow returns how many claims of an entry wait for a name while their Locker has no row
// that says that it lives.
func expiredNow(ctx context.Context, e *entry) (n int, err error) {
	db, err := contender.SQL(ctx, e.Server, e.site)
	if err != nil {
		return 0, err
	}
	defer func() { _ = db.Close() }()
	err = db.QueryRowContext(ctx, countExpired[e.Server]).Scan(&n)
	return n, err
}
