package workload

import (
	"context"
	"errors"
	"time"

	"github.com/sqllock/sqllock/bench/internal/contender"
	"github.com/sqllock/sqllock/bench/internal/platform"
	"github.com/sqllock/sqllock/bench/internal/report"
	"github.com/sqllock/sqllock/bench/internal/server"
)

const (
	herdProcesses = 5
	herdRounds    = 3 // at most
	// gather is how long waiters may take to be waiting. It is longer than the
	// longest pause of those that ask again and again.
	gather = 1500 * time.Millisecond
)

// herds are the numbers of waiters, over all processes.
var herds = []int{5, 500}

// herd has waiters queue up behind a holder of this process, which then unlocks:
// each of them has the name once. The statements are those from that Unlock to
// the last waiter's; that the waiters got into the queue was before.
func (b *Bench) herd(ctx context.Context) error {
	list, err := b.entries(ctx, func(c contender.Contender) bool {
		return c.Waits && c.Server != server.Etcd && c.Server != server.ZooKeeper && c.Server != server.SQLite
	})
	if err != nil {
		return err
	}
	all, err := b.teams(ctx, counted(list), herdProcesses, 1)
	defer func() { b.endTeams(all) }()
	if err != nil {
		return err
	}
	byEntry := make(map[*entry]*team)
	var entries []*entry
	for _, t := range all {
		byEntry[t.entry] = t
		entries = append(entries, t.entry)
	}
	entries = b.open(ctx, entries)
	defer b.close(entries)
	few := *b
	few.Rounds = min(b.Rounds, herdRounds)
	if b.Quick {
		few.Rounds = 1
	}
	for _, waiters := range herds {
		b.Say("a herd of %d waiters in %d processes", waiters, herdProcesses)
		if err := eachRound(ctx, &few, entries, func(e *entry) {
			s, err := herdRound(ctx, byEntry[e], waiters)
			b.note(e.key(report.Herd, waiters), e.Durable, s, err)
		}); err != nil {
			return err
		}
	}
	return nil
}

func herdRound(ctx context.Context, t *team, waiters int) (report.Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*roundGrace)
	defer cancel()
	each := waiters / herdProcesses
	lock, err := t.client.Lock(ctx, 0, "herd")
	if err != nil {
		return dropped, err
	}
	first := grant{Name: "herd", Process: -1, Caller: waiters, Called: platform.Monotonic(), Got: platform.Monotonic()}
	sent := tell(t.processes, order{Callers: ofOneName("herd", each)})
	time.Sleep(gather)
	var a answer
	var gone error
	did, err := t.counter.during(ctx, func() {
		first.Freed = platform.Monotonic()
		gone = lock.Unlock(ctx)
		var lost error
		a, lost = collect(t.processes, each)
		gone = errors.Join(gone, lost)
	})
	s, count, overlaps := handovers(append(a.Grants, first), waiters+1, first.Freed, platform.Monotonic())
	s.Statements = did.statements / float64(max(1, count))
	s.Jain = 0 // each has it once
	s.Failures, s.Dropped = a.Failures+overlaps, gone != nil
	return s, errors.Join(err, sent, gone, failure(a, overlaps))
}
