package workload

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sqllock/sqllock/bench/internal/contender"
	"github.com/sqllock/sqllock/bench/internal/platform"
	"github.com/sqllock/sqllock/bench/internal/report"
)

// One hot name is locked by this many processes with this many callers each.
const (
	hotProcesses = 2
	hotCallers   = 8
)

// team is an entry with its processes and the counter of its server.
type team struct {
	*entry
	processes []*process
	counter   *counter
}

// teams starts processes for each entry. It reports and leaves out the entries that do
// not start.
func (b *Bench) teams(ctx context.Context, list []*entry, n int) ([]*team, error) {
	var all []*team
	for _, e := range list {
		e.site.Count = true
		t := &team{entry: e}
		var err error
		if t.counter, err = newCounter(ctx, e); err != nil {
			return all, err
		}
		if t.processes, err = spawn(e, n); err != nil {
			b.Say("%s: %v", e.label, err)
			continue
		}
		all = append(all, t)
	}
	return all, nil
}

func (b *Bench) endTeams(all []*team) {
	for _, t := range all {
		err := end(t.processes)
		if t.counter != nil {
			err = errors.Join(err, t.counter.close())
		}
		if err != nil {
			b.Say("%s: %v", t.label, err)
		}
	}
}

// hot has callers of two processes lock one name, and measures the hand-overs
// between them. A durable UPDATE of a row takes turns with them.
func (b *Bench) hot(ctx context.Context) error {
	list, err := b.entries(ctx, func(c contender.Contender) bool {
		return c.Waits || strings.HasSuffix(c.Name, "/"+contender.FloorUpdate)
	})
	if err != nil {
		return err
	}
	waiting, floors := split(list)
	floors = b.open(ctx, floors)
	defer b.close(floors)
	all, err := b.teams(ctx, waiting, hotProcesses)
	defer func() { b.endTeams(all) }()
	if err != nil {
		return err
	}
	b.Say("one hot name, %d processes with %d callers", hotProcesses, hotCallers)
	byEntry := make(map[*entry]*team)
	for _, t := range all {
		byEntry[t.entry] = t
		floors = append(floors, t.entry)
	}
	return b.eachRound(ctx, floors, func(_ int, e *entry) {
		if t := byEntry[e]; t != nil {
			s, err := b.hotRound(ctx, t)
			b.note(e.key(report.Hot, hotProcesses*hotCallers), e.Durable, s, err)
			return
		}
		s, err := (&loop{client: e.client, callers: 1, name: ownNames(1)}).run(ctx, b.Round)
		b.note(handoverFloor(e.Server), e.Durable, s, err)
	})
}

// handoverFloor is the key of the floor of hand-overs: a durable UPDATE of a row,
// measured between the hand-overs.
func handoverFloor(engine string) report.Key {
	return report.Key{Workload: report.Floor, Contender: engine + "/update@hot", Callers: 1}
}

func split(list []*entry) (waiting, floors []*entry) {
	for _, e := range list {
		if e.Floor {
			floors = append(floors, e)
		} else {
			waiting = append(waiting, e)
		}
	}
	return waiting, floors
}

// hotRound measures between a quarter of the round and its end, as a loop does.
func (b *Bench) hotRound(ctx context.Context, t *team) (report.Sample, error) {
	warm := b.Round / 4
	if err := tell(t.processes, order{Name: "hot", Callers: hotCallers, For: warm + b.Round}); err != nil {
		return report.Sample{}, err
	}
	time.Sleep(warm)
	var from, to int64
	statements, err := t.counter.during(ctx, func() {
		from = platform.Monotonic()
		time.Sleep(b.Round)
		to = platform.Monotonic()
	})
	a, gone := collect(t.processes, hotCallers)
	s, count, overlaps := handovers(a.Grants, hotProcesses*hotCallers, from, to)
	s.Statements = statements / float64(max(1, count))
	s.Failures = a.Failures + overlaps
	return s, errors.Join(err, gone, failure(a, overlaps))
}

func failure(a answer, overlaps int) error {
	var errs []error
	if a.Err != "" {
		errs = append(errs, errors.New(a.Err))
	}
	if overlaps > 0 {
		errs = append(errs, fmt.Errorf("%d times two had the name at once", overlaps))
	}
	return errors.Join(errs...)
}
