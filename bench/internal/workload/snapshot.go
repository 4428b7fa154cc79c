package workload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/bench/internal/contender"
	"github.com/sqllock/sqllock/bench/internal/report"
)

const (
	// lap is how long callers take for all names at least, so that none is used more than
	// once a minute.
	lap = 70 * time.Second
	// snapshotFor is how long a snapshot is open before cycles beside it count.
	snapshotFor      = 10 * time.Minute
	snapshotForQuick = 10 * time.Second
	snapshotCallers  = 64
	tourPart         = 10 * time.Second // of a long tour, which keeps the times of its cycles

	noSnapshot = "@nosnapshot"
	snapshot   = "@snapshot-"
)

// tour hands out the names of a table, each once in a lap, in the same random order.
type tour struct {
	order []int32
	next  atomic.Int64
	began time.Time
}

func newTour(n int) *tour {
	t := &tour{order: make([]int32, n), began: time.Now()}
	for i := range t.order {
		t.order[i] = int32(i + 1)
	}
	rand.Shuffle(n, func(i, k int) { t.order[i], t.order[k] = t.order[k], t.order[i] })
	return t
}

func (t *tour) name(int, int) string {
	return strconv.Itoa(int(t.order[(t.next.Add(1)-1)%int64(len(t.order))]))
}

// pacedName waits until the lap may have come so far.
func (t *tour) pacedName(caller, cycle int) string {
	due := t.began.Add(time.Duration(float64(t.next.Load()) / float64(len(t.order)) * float64(lap)))
	time.Sleep(time.Until(due))
	return t.name(caller, cycle)
}

// besideSnapshot measures cycles of a large table, all names of it in a random order, and
// the same beside a snapshot that has been open for long, while the names were used. The
// tables are filled.
func (b *Bench) besideSnapshot(ctx context.Context, list []*entry) error {
	d := snapshotFor
	if b.Quick {
		d = snapshotForQuick
	}
	n := rowsSizes[len(rowsSizes)-1]
	tours := make(map[*entry]*tour)
	var tables []*entry
	for _, e := range list {
		if !isUniqueOnServer(e.Contender) {
			continue // what is written beside a snapshot of SQLite stays in the WAL
		}
		v := e.variant(e.label, func(s *contender.Site) { s.Prefix = rowsPrefix(n) })
		tours[v] = newTour(n)
		tables = append(tables, v)
	}
	tables = b.open(ctx, tables)
	defer b.close(tables)
	if err := b.tourAll(ctx, tables, tours, min(d, lap)); err != nil { // as it is in the end
		return err
	}
	if err := b.tourRounds(ctx, tables, tours, noSnapshot); err != nil {
		return err
	}
	for _, e := range tables {
		end, err := beginOld(ctx, e)
		if err != nil {
			return err
		}
		defer end()
	}
	b.Say("snapshots are open for %v", d)
	if err := b.tourAll(ctx, tables, tours, d); err != nil {
		return err
	}
	return b.tourRounds(ctx, tables, tours, snapshot+d.String())
}

// tourAll uses the names of all entries at the same time.
func (b *Bench) tourAll(ctx context.Context, list []*entry, tours map[*entry]*tour, d time.Duration) error {
	return each(len(list), len(list), func(i int) error {
		t := tours[list[i]]
		t.began = time.Now().Add(-time.Duration(float64(t.next.Load()) / float64(len(t.order)) * float64(lap)))
		for end := time.Now().Add(d); time.Now().Before(end); {
			if _, err := newLoop(list[i], snapshotCallers, t.pacedName).run(ctx, min(d, tourPart)); err != nil {
				return fmt.Errorf("%s: %w", list[i].label, err)
			}
		}
		return nil
	})
}

func (b *Bench) tourRounds(ctx context.Context, list []*entry, tours map[*entry]*tour, label string) error {
	return eachRound(ctx, b, list, func(e *entry) {
		s, err := newLoop(e, snapshotCallers, tours[e].name).run(ctx, b.Round)
		b.note(report.Key{Workload: report.Rows, Contender: e.label + label, Callers: snapshotCallers}, e.Durable, s, err)
	})
}
