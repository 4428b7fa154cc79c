package workload

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/bench/internal/contender"
	"github.com/sqllock/sqllock/bench/internal/report"
)

const (
	waitersProcesses = 5
	// enough is how long waiters may take until all of them wait.
	enough = time.Minute

	waitingLockers      = 1_000
	waitingLockersQuick = 200
	waitingProcesses    = 4
	waitingConns        = 32 // of a process, beside one for each Locker that listens
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
		b.noteComplete(c.key, c.durable, s, err)
	})
}

// longQueue measures hand-overs after all waiters are in the queue, where each goes again
// when it has had the name.
func (b *Bench) longQueue(ctx context.Context, t *team, waiters int) (report.Sample, error) {
	name, each := fmt.Sprintf("queue-%d", waiters), waiters/waitersProcesses
	lock, err := t.client.Lock(ctx, 0, name)
	if err != nil {
		return report.Sample{Failures: 1}, err
	}
	callers := ofOneName(name, each)
	sent := tell(t.processes, order{Callers: callers, Until: true})
	late := awaitWaiting(ctx, t.entry, waiters)
	unlocked := lock.Unlock(ctx)
	time.Sleep(b.Round / 4)
	var w window
	counted := w.measure(ctx, t, 2*b.Round)
	stopped := tell(t.processes, order{})
	a, gone := collect(t.processes, each)
	s, overlaps := w.sample(a.Grants, waiters)
	s.Jain, s.Longest = 0, 0 // few of them have their turn
	s.Failures = a.Failures + overlaps
	left := awaitWaiting(ctx, t.entry, 0)
	return s, errors.Join(sent, late, unlocked, counted, stopped, gone, left, failure(a, overlaps))
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
	large := e.variant(e.label, func(s *contender.Site) { s.Conns = each + waitingConns })
	all, err := b.teamsOf(ctx, []*entry{large}, waitingProcesses, setup{Clients: each, Share: true})
	defer func() { b.endTeams(all) }()
	if err != nil || len(all) == 0 {
		return err
	}
	s, err := b.countBeats(ctx, all[0], each)
	b.noteComplete(report.Key{Workload: report.Waiters, Contender: e.label + beatsLabel, Callers: n}, e.Durable, s, err)
	return nil
}

// noteComplete leaves out a sample if not all waited: then it says nothing.
func (b *Bench) noteComplete(k report.Key, durable bool, s report.Sample, err error) {
	if err != nil && s.Failures == 0 {
		b.Say("%s %s with %d callers: %v", k.Workload, k.Contender, k.Callers, err)
		return
	}
	b.note(k, durable, s, err)
}

// waitingName is what one of n Lockers waits for.
func waitingName(i, n int) string { return fmt.Sprintf("waited-for-%d", i%(n/waitingPerName)) }

// countBeats has each client of a team wait, and counts what the server does meanwhile.
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
	did, err := t.counter.count(ctx, d)
	did.perSecond(&s, d)
	var err2 error
	s.Conns, err2 = t.counter.conns(ctx)
	stopped := tell(t.processes, order{})
	a, gone := collect(t.processes, each)
	s.Failures = a.Failures + len(a.Grants)
	return s, errors.Join(sent, late, err, err2, stopped, gone, failure(a, 0))
}
