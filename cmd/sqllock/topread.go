package main

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/monitor"
)

// topOrder is how names are sorted.
type topOrder int

const (
	byName topOrder = iota
	byWaiters
	byAge
	byUntil
	topOrders // how many there are
)

// String returns what the names are sorted by.
func (o topOrder) String() string {
	return [...]string{"name", "waiters", "age", "time left"}[o]
}

// topQuery is what a screen shows.
type topQuery struct {
	prefix string
	free   bool
	order  topOrder
	after  string // the name before the page, in the order of the names
	from   int    // the number of names before the page, in the other orders
	size   int    // of the page
	name   string // of the name that is shown, "" for a list
}

func (q topQuery) sized(n int) topQuery {
	q.size = n
	return q
}

// topResult is what was read for a screen.
type topResult struct {
	number   int
	rows     []sqllock.Info
	next     *topQuery // nil at the end
	overview *monitor.Overview
	losses   []monitor.Loss
	info     sqllock.Info   // of the name
	changes  []sqllock.Info // the newest first
	err      error
}

func (r *topReader) read(ctx context.Context, q topQuery) topResult {
	var got topResult
	if q.name != "" {
		got.info, got.err = r.locks.Inspect(ctx, q.name)
		got.changes, _ = r.watches.Visit(q.name)
		return got
	}
	if q.order == byName {
		var last string
		got.rows, last, got.err = monitor.Page(ctx, r.locks, monitor.Query{Prefix: q.prefix, After: q.after, Free: q.free, Limit: q.size})
		if last != "" {
			got.next = &topQuery{prefix: q.prefix, free: q.free, after: last}
		}
	} else {
		got.rows, got.next, got.err = r.ordered.page(ctx, r.locks, q)
	}
	if got.err == nil {
		got.overview, got.losses, got.err = r.sampler.Sample(ctx)
	}
	return got
}

// orderedNames are names that were read and sorted.
type orderedNames struct {
	mu    sync.Mutex
	query topQuery // without the page
	at    time.Time
	took  time.Duration
	rows  []sqllock.Info
}

const (
	maxOrdered = 20_000 // names that are sorted
	fewOrdered = 1000   // that are read each time
)

// page returns a page of the names in the order of a query.
func (o *orderedNames) page(ctx context.Context, locks *sqllock.Locker, q topQuery) (rows []sqllock.Info, next *topQuery, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := q
	all.after, all.from, all.size = "", 0, 0
	fresh := time.Since(o.at) < max(manyInterval, 10*o.took)
	if all != o.query || len(o.rows) <= fewOrdered || !fresh {
		began := time.Now()
		rows, _, err := monitor.Page(ctx, locks, monitor.Query{Prefix: q.prefix, Free: q.free, Limit: maxOrdered})
		if err != nil {
			return nil, nil, err
		}
		slices.SortStableFunc(rows, func(a, b sqllock.Info) int { return compareNames(q.order, &a, &b) })
		o.query, o.rows, o.at, o.took = all, rows, time.Now(), time.Since(began)
	}
	first, last := min(q.from, len(o.rows)), min(q.from+q.size, len(o.rows))
	if last < len(o.rows) {
		following := all
		following.from = last
		next = &following
	}
	return slices.Clone(o.rows[first:last]), next, nil
}

// compareNames says which of two names comes first.
func compareNames(order topOrder, a, b *sqllock.Info) int {
	switch order {
	case byWaiters:
		return cmp.Compare(b.Waiters, a.Waiters)
	case byAge:
		return cmp.Or(heldFirst(a, b), a.Since.Compare(b.Since))
	case byUntil:
		return cmp.Or(heldFirst(a, b), a.Until.Compare(b.Until))
	}
	return cmp.Compare(a.Name, b.Name)
}

// heldFirst has those names first that are held.
func heldFirst(a, b *sqllock.Info) int {
	switch x, y := monitor.IsHeld(a), monitor.IsHeld(b); {
	case x == y:
		return 0
	case x:
		return -1
	}
	return 1
}
