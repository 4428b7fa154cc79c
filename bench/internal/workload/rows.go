package workload

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/sqllock/sqllock/bench/internal/contender"
	"github.com/sqllock/sqllock/bench/internal/report"
	"github.com/sqllock/sqllock/bench/internal/server"
)

// The sizes of the tables that are compared, and the callers.
var (
	rowsSizes   = []int{1_000, 1_000_000}
	rowsCallers = []int{1, 64}
)

// namesInUse is of how many rows the names are locked, evenly spread over a table of
// whatever size: so that two sizes differ in nothing else.
const namesInUse = 1_000

// Labels that are appended to the names of contenders.
const (
	anyName = "@anyname" // all names of the large table, at random
	oneName = "@onename" // one hot name
	oldTx   = "@oldtx"   // one hot name beside an old open transaction
)

func rowsPrefix(size int) string { return fmt.Sprintf("t%d_", size) }

func rowsLabel(name string, size int) string { return fmt.Sprintf("%s@%drows", name, size) }

// rows locks as many names that are all over a large table as in a small one, and any
// names of the large one; one name again and again, without and with a transaction open
// that is older than all of its versions; and all names of a large table beside a snapshot.
func (b *Bench) rows(ctx context.Context) error {
	list, err := b.entries(ctx, func(c contender.Contender) bool {
		return strings.HasPrefix(c.Name, "sqllock/") && strings.HasSuffix(c.Name, "/unique")
	})
	if err != nil {
		return err
	}
	if err := b.tableSizes(ctx, list); err != nil {
		return err
	}
	if err := b.oldTransaction(ctx, list); err != nil {
		return err
	}
	return b.besideSnapshot(ctx, list)
}

func (b *Bench) tableSizes(ctx context.Context, list []*entry) error {
	type picks struct{ rows, names int }
	pick := make(map[*entry]picks)
	var tables []*entry
	for _, e := range list {
		for _, n := range rowsSizes {
			v := e.variant(rowsLabel(e.label, n), func(s *contender.Site) { s.Prefix = rowsPrefix(n) })
			b.Say("%d rows for %s", n, e.label)
			if err := errors.Join(b.prepare(ctx, v), fill(ctx, v, n)); err != nil {
				return err
			}
			pick[v] = picks{n, namesInUse}
			tables = append(tables, v)
		}
		all := tables[len(tables)-1].variant(e.label+anyName, func(*contender.Site) {})
		n := rowsSizes[len(rowsSizes)-1]
		pick[all] = picks{n, n}
		tables = append(tables, all)
	}
	tables = b.open(ctx, tables)
	defer b.close(tables)
	for _, callers := range rowsCallers {
		if b.Quick && callers == 1 {
			continue
		}
		b.Say("small and large tables, %d callers", callers)
		if err := eachRound(ctx, b, tables, func(e *entry) {
			s, err := newLoop(e, callers, spreadNames(pick[e].rows, pick[e].names, callers)).run(ctx, b.Round)
			b.note(e.key(report.Rows, callers), e.Durable, s, err)
		}); err != nil {
			return err
		}
	}
	return nil
}

// spreadNames returns names of rows that are there, at random: some of them, which are
// evenly spread, and of which no two callers have the same.
func spreadNames(rows, names, callers int) func(caller, cycle int) string {
	return func(caller, _ int) string {
		n := caller + callers*rand.IntN((names-caller-1)/callers+1)
		return strconv.Itoa(1 + n*(rows/names))
	}
}

// fill inserts idle rows named 1 to n and has the server look at them.
func fill(ctx context.Context, e *entry, n int) error {
	db, err := contender.SQL(ctx, e.Server, e.site)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	for _, statement := range fillStatements(e.Server, e.site.Prefix+"lock", n) {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// oldTransaction measures one name before and during a long transaction.
func (b *Bench) oldTransaction(ctx context.Context, list []*entry) error {
	without, with := make([]*entry, len(list)), make([]*entry, len(list))
	for i, e := range list {
		without[i] = e.variant(e.label+oneName, func(*contender.Site) {})
		with[i] = e.variant(e.label+oldTx, func(*contender.Site) {})
	}
	b.Say("one name, one caller")
	if err := b.oneName(ctx, without); err != nil {
		return err
	}
	for _, e := range list {
		end, err := beginOld(ctx, e)
		if err != nil {
			return err
		}
		defer end()
	}
	b.Say("one name beside an old transaction")
	return b.oneName(ctx, with)
}

func (b *Bench) oneName(ctx context.Context, list []*entry) error {
	list = b.open(ctx, list)
	defer b.close(list)
	return eachRound(ctx, b, list, func(e *entry) {
		s, err := newLoop(e, 1, ownNames(1)).run(ctx, b.Round)
		b.note(e.key(report.Rows, 1), e.Durable, s, err)
	})
}

// beginOld begins a transaction that sees the table as it is now, until end is
// called.
func beginOld(ctx context.Context, e *entry) (end func(), err error) {
	db, err := contender.SQL(ctx, e.Server, e.site)
	if err != nil {
		return nil, err
	}
	opts := &sql.TxOptions{Isolation: sql.LevelRepeatableRead}
	if e.Server == server.SQLite {
		opts = nil
	}
	tx, err := db.BeginTx(ctx, opts)
	if err == nil {
		var n int
		err = tx.QueryRowContext(ctx, countLocks).Scan(&n)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("an old transaction of %s: %w", e.label, err), db.Close())
	}
	return func() { _, _ = tx.Rollback(), db.Close() }, nil
}
