package workload

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sqllock/sqllock/bench/internal/contender"
	"github.com/sqllock/sqllock/bench/internal/report"
	"github.com/sqllock/sqllock/bench/internal/server"
)

const (
	namesProcesses = 4
	namesConns     = 8 // of the pool of each Locker
	namesUpdates   = 64
	// namesWarm is how long Lockers may take to open connections that they had closed.
	namesWarm = 1500 * time.Millisecond
	// neighbourPause keeps the neighbour from being a load itself.
	neighbourPause = 2 * time.Millisecond
	slowFlush      = time.Millisecond
	flushLabel     = "@slowflush"
)

// namesCell is how many names so many Lockers lock, each with a pool of its own.
type namesCell struct{ names, lockers int }

var namesCells = []namesCell{{1, 32}, {16, 32}, {64, 32}, {1, 64}, {16, 64}, {64, 64}}

// manyNames is the cell that a neighbour is disturbed by.
var manyNames = namesCell{64, 64}

// quickCells are those that goals are made of.
var quickCells = []namesCell{{1, 32}, {16, 32}, {1, 64}, manyNames}

// names has Lockers hand over names to each other, some names or many, beside plain
// UPDATEs of as many rows.
func (b *Bench) names(ctx context.Context) error {
	list, err := b.entries(ctx, func(c contender.Contender) bool {
		return isUniqueOnServer(c) || c.Floor && strings.HasSuffix(c.Name, "/"+contender.FloorUpdate) ||
			strings.HasSuffix(c.Name, "/"+contender.FloorNotify)
	})
	if err != nil {
		return err
	}
	if err := b.namesWithFlush(ctx, list, 0); err != nil {
		return err
	}
	postgres := slices.DeleteFunc(slices.Clone(list), func(e *entry) bool {
		return e.Server != server.Postgres || strings.HasSuffix(e.Name, "/"+contender.FloorNotify)
	})
	return b.namesWithFlush(ctx, postgres, slowFlush)
}

// isUniqueOnServer reports whether c is this project's unique mode with a server.
func isUniqueOnServer(c contender.Contender) bool {
	return strings.HasPrefix(c.Name, "sqllock/") && strings.HasSuffix(c.Name, "/unique") && c.Server != server.SQLite
}

// cell is something to measure in each round.
type cell struct {
	key     report.Key
	durable bool
	measure func() (report.Sample, error)
}

func (b *Bench) namesWithFlush(ctx context.Context, list []*entry, flush time.Duration) error {
	label := ""
	if flush > 0 {
		label = flushLabel
	}
	var slow []*entry
	for _, e := range list {
		slow = append(slow, e.variant(e.label, func(s *contender.Site) {
			s.Flush = flush
			if !e.Floor {
				s.Conns = namesConns
			}
		}))
	}
	lockers, floors := split(slow)
	floors = b.open(ctx, floors)
	defer b.close(floors)
	all, err := b.teams(ctx, lockers, namesProcesses, manyNames.lockers/namesProcesses)
	defer func() { b.endTeams(all) }()
	if err != nil {
		return err
	}
	b.Say("names that change hands between many Lockers%s", label)
	warmUp(ctx, floors, namesUpdates)
	cells := b.floorCells(ctx, floors, all, label)
	for _, t := range all {
		cells = append(cells, b.nameCells(ctx, t, label)...)
	}
	return eachRound(ctx, b, cells, func(c cell) {
		s, err := c.measure()
		b.note(c.key, c.durable, s, err)
	})
}

func (b *Bench) nameCells(ctx context.Context, t *team, label string) (list []cell) {
	cells := namesCells
	if b.Quick {
		cells = quickCells
	}
	for _, c := range cells {
		list = append(list, cell{
			key:     report.Key{Workload: report.Names, Contender: t.label + namesLabel(c.names) + label, Callers: c.lockers},
			durable: t.Durable,
			measure: func() (report.Sample, error) { return b.teamRound(ctx, t, namesWarm, c.callers) },
		})
	}
	return list
}

func namesLabel(names int) string { return fmt.Sprintf("@%dnames", names) }

// callers returns those of a process. Each name has two Lockers at least, of different
// processes, and each Locker a caller for each of its names.
func (c namesCell) callers(process int) (list []caller) {
	for locker := process; locker < c.lockers; locker += namesProcesses {
		for i := range max(1, 2*c.names/c.lockers) {
			name := (locker*c.names/c.lockers + i) % c.names
			list = append(list, caller{Client: locker / namesProcesses, Name: fmt.Sprintf("name-%d", name)})
		}
	}
	return list
}

// floorCells are plain UPDATEs, and a neighbour's NOTIFY: by itself, beside the UPDATEs and
// beside the hand-overs of the same server.
func (b *Bench) floorCells(ctx context.Context, floors []*entry, all []*team, label string) (list []cell) {
	for _, e := range floors {
		if strings.HasSuffix(e.Name, "/"+contender.FloorNotify) {
			list = append(list, b.neighbourCells(ctx, e, floors, all)...)
			continue
		}
		k := updateBeside(e, report.Names+label, namesUpdates)
		list = append(list, cell{k, e.Durable, func() (report.Sample, error) { return b.updates(ctx, e) }})
	}
	return list
}

func (b *Bench) updates(ctx context.Context, e *entry) (report.Sample, error) {
	return newLoop(e, namesUpdates, ownNames(namesUpdates)).run(ctx, b.Round)
}

func (b *Bench) neighbourCells(ctx context.Context, e *entry, floors []*entry, all []*team) (list []cell) {
	long := *b // enough for a percentile
	long.Round = max(2*b.Round, time.Second)
	add := func(beside string, load func() (report.Sample, error)) {
		k := report.Key{Workload: report.Floor, Contender: e.Server + "/notify" + beside, Callers: 1}
		list = append(list, cell{k, e.Durable, func() (report.Sample, error) { return long.neighbour(ctx, e, load) }})
	}
	add("", func() (report.Sample, error) { return report.Sample{}, nil })
	for _, other := range floors {
		if other != e && other.Server == e.Server {
			add("@update", func() (report.Sample, error) {
				longer := long
				longer.Round += namesWarm
				return longer.updates(ctx, other)
			})
		}
	}
	for _, t := range all {
		if t.Server == e.Server {
			add("@names", func() (report.Sample, error) { return long.teamRound(ctx, t, namesWarm, manyNames.callers) })
		}
	}
	return list
}

// neighbour measures NOTIFYs beside a load.
func (b *Bench) neighbour(ctx context.Context, e *entry, load func() (report.Sample, error)) (report.Sample, error) {
	var wg sync.WaitGroup
	var failed error
	wg.Go(func() { _, failed = load() })
	time.Sleep(namesWarm)
	l := newLoop(e, 1, ownNames(1))
	l.pause = neighbourPause
	s, err := l.run(ctx, b.Round*4/5) // the loop's own warm-up is a quarter of that
	wg.Wait()
	s.Allocs, s.Bytes, s.CPU, s.ServerCPU = 0, 0, 0, 0 // the load's
	return s, firstError(err, failed)
}
