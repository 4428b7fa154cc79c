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
		return isUniqueOnServer(c) || c.Floor && strings.HasSuffix(c.Name, "/"+contender.FloorUpdate) || isNotify(c)
	})
	if err != nil {
		return err
	}
	if err := b.namesWithFlush(ctx, list, 0); err != nil {
		return err
	}
	postgres := slices.DeleteFunc(slices.Clone(list), func(e *entry) bool {
		return e.Server != server.Postgres || isNotify(e.Contender)
	})
	return b.namesWithFlush(ctx, postgres, slowFlush)
}

func isNotify(c contender.Contender) bool {
	return strings.HasSuffix(c.Name, "/"+contender.FloorNotify)
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
	lockers, updates, notifiers := namesEntries(list, flush)
	notifiers = b.open(ctx, notifiers)
	defer b.close(notifiers)
	updaters, err := b.teams(ctx, updates, namesProcesses, 1)
	defer func() { b.endTeams(updaters) }()
	if err != nil {
		return err
	}
	all, err := b.teams(ctx, lockers, namesProcesses, manyNames.lockers/namesProcesses)
	defer func() { b.endTeams(all) }()
	if err != nil {
		return err
	}
	b.Say("names that change hands between many Lockers%s", label)
	cells := b.updateCells(ctx, updaters, label)
	for _, e := range notifiers {
		cells = append(cells, b.neighbourCells(ctx, e, updaters, all)...)
	}
	for _, t := range all {
		cells = append(cells, b.nameCells(ctx, t, label)...)
	}
	return eachRound(ctx, b, cells, func(c cell) {
		s, err := c.measure()
		b.note(c.key, c.durable, s, err)
	})
}

// namesEntries returns the entries with their numbers of connections and with slower flushes.
func namesEntries(list []*entry, flush time.Duration) (lockers, updates, notifiers []*entry) {
	for _, e := range list {
		v := e.variant(e.label, func(s *contender.Site) { s.Flush = flush })
		switch {
		case isNotify(e.Contender):
			notifiers = append(notifiers, v)
		case e.Floor:
			v.site.Conns = namesUpdates / namesProcesses
			updates = append(updates, v)
		default:
			v.site.Conns = namesConns
			lockers = append(lockers, v)
		}
	}
	return lockers, updates, notifiers
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

// updateCells are plain UPDATEs. They come from as many processes as the hand-overs do.
func (b *Bench) updateCells(ctx context.Context, updaters []*team, label string) (list []cell) {
	for _, t := range updaters {
		k := updateBeside(t.entry, report.Names+label, namesUpdates)
		list = append(list, cell{k, t.Durable, func() (report.Sample, error) { return b.teamRound(ctx, t, namesWarm, updateCallers) }})
	}
	return list
}

// updateCallers returns those of a process. Each has a row of its own.
func updateCallers(process int) (list []caller) {
	for i := range namesUpdates / namesProcesses {
		list = append(list, caller{Name: fmt.Sprintf("row-%d", process*namesUpdates/namesProcesses+i)})
	}
	return list
}

// neighbourCells are a neighbour's NOTIFY: by itself, beside the UPDATEs and beside the
// hand-overs of the same server. Both loads come from other processes.
func (b *Bench) neighbourCells(ctx context.Context, e *entry, updaters, all []*team) (list []cell) {
	long := *b // enough for a percentile
	long.Round = max(2*b.Round, time.Second)
	add := func(beside string, load func() (report.Sample, error)) {
		k := report.Key{Workload: report.Floor, Contender: e.Server + "/notify" + beside, Callers: 1}
		list = append(list, cell{k, e.Durable, func() (report.Sample, error) { return long.neighbour(ctx, e, load) }})
	}
	add("", func() (report.Sample, error) { return report.Sample{}, nil })
	for _, t := range updaters {
		if t.Server == e.Server {
			add("@update", func() (report.Sample, error) { return long.teamRound(ctx, t, namesWarm, updateCallers) })
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
	var beside report.Sample
	var failed error
	wg.Go(func() { beside, failed = load() })
	time.Sleep(namesWarm)
	l := newLoop(e, 1, ownNames(1))
	l.pause = neighbourPause
	s, err := l.run(ctx, b.Round*4/5) // the loop's own warm-up is a quarter of that
	wg.Wait()
	s.Allocs, s.Bytes, s.CPU, s.ServerCPU = 0, 0, 0, 0 // those of the load, too
	s.Failures, s.Dropped = s.Failures+beside.Failures, beside.Dropped
	return s, firstError(err, failed)
}
