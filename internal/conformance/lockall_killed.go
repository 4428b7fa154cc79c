package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sqllock/sqllock"
)

// allWork is what goroutines do that each lock some of the names together. The table has a row
// for each name, with the number of visits and the token of the last, and the table of the visits
// has one for each.
type allWork struct {
	Table      string
	Prefix     string
	Names      int
	Each       int // names that one call locks
	Goroutines int
	Visits     int // of each goroutine
}

// testLockAllKilled has 64 goroutines in four processes lock 8 of 20 names, at random, while the
// processes are killed. A visit reads the rows of its names, and writes what it has read plus one,
// in a transaction that guards all leases: if two were in at the same time, a visit would be lost.
func testLockAllKilled(e *env) {
	w := &allWork{Table: e.ledger().table, Prefix: e.name("k"), Names: 20, Each: 8, Goroutines: 16, Visits: 4}
	kills := 6
	if e.h.slow() {
		w.Visits, kills = 1, 3
	}
	e.exec(`CREATE TABLE ` + w.Table + `_n (name INTEGER PRIMARY KEY, visits BIGINT NOT NULL, token BIGINT NOT NULL)`)
	for i := range w.Names {
		e.exec(fmt.Sprintf(`INSERT INTO %s_n VALUES (%d, 0, 0)`, w.Table, i))
	}
	ttl := e.ttl(time.Second)
	o, all, start := order{Do: "together", All: w}, make([]*process, 4), time.Now()
	for i := range all {
		all[i] = e.start(ttl, "a child")
		all[i].send(o)
	}
	for range kills {
		time.Sleep(rand.N(time.Second))
		i := rand.N(len(all))
		if err := all[i].cmd.Process.Kill(); err != nil {
			e.Fatal(err)
		}
		all[i].end()
		all[i] = e.start(ttl, "a child")
		all[i].send(o)
	}
	for _, p := range all {
		if a := p.readWithin(4 * timeLimit); a.Err != "" {
			e.Errorf("a child: %s", a.Err)
		}
	}
	e.Logf("served in %v, with %d kills", time.Since(start).Round(time.Millisecond), kills)
	e.wantNoVisitLost(w, 4*w.Goroutines*w.Visits)
}

func (e *env) exec(query string) {
	e.Helper()
	if _, err := e.handle().ExecContext(e.ctx(), query); err != nil {
		e.Fatalf("%s: %v", query, err)
	}
}

// wantNoVisitLost checks that the rows count all visits that were committed, each for all of its
// names, and that there are as many visits as were asked for or more.
func (e *env) wantNoVisitLost(w *allWork, atLeast int) {
	e.Helper()
	var visits, counted int
	err := e.handle().QueryRowContext(e.ctx(), `SELECT (SELECT count(*) FROM `+w.Table+`), (SELECT sum(visits) FROM `+w.Table+`_n)`).Scan(&visits, &counted)
	if err != nil || counted != visits*w.Each || visits < atLeast {
		e.Errorf("%d visits of %d names each, at least %d; the rows count %d: %v", visits, w.Each, atLeast, counted, err)
	}
}

// run makes the visits of one process.
func (w *allWork) run(c *child) answer {
	ctx, cancel := context.WithTimeout(context.Background(), 4*timeLimit)
	defer cancel()
	errs := make([]error, w.Goroutines)
	var wg sync.WaitGroup
	for g := range w.Goroutines {
		wg.Go(func() {
			for n := 0; n < w.Visits && errs[g] == nil; {
				err := w.visit(ctx, c.locks)
				switch {
				case err == nil:
					n++
				case errors.Is(err, errWrong), ctx.Err() != nil:
					errs[g] = err
				} // else the lease was lost, or the database was busy
			}
		})
	}
	wg.Wait()
	return failure(errors.Join(errs...))
}

// errWrong says that what must never be has been seen.
var errWrong = errors.New("a token does not rise, or calls of LockAll have deadlocked")

func (w *allWork) visit(ctx context.Context, l *sqllock.Locker) error {
	some := rand.Perm(w.Names)[:w.Each]
	names := make([]string, w.Each)
	for k, i := range some {
		names[k] = fmt.Sprint(w.Prefix, i)
	}
	leases, err := l.LockAll(ctx, names)
	if errors.Is(err, sqllock.ErrDeadlock) {
		return fmt.Errorf("%w: %w", errWrong, err)
	}
	if err != nil {
		return err
	}
	defer func() { _ = leases.Unlock(ctx) }()
	return leases.InTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		for k, i := range some {
			var visits, last int64
			err := tx.QueryRowContext(ctx, fmt.Sprintf(`SELECT visits, token FROM %s_n WHERE name = %d`, w.Table, i)).Scan(&visits, &last)
			if err != nil {
				return err
			}
			token := leases.Token(names[k])
			if token <= last {
				return fmt.Errorf("%w: %d follows %d", errWrong, token, last)
			}
			_, err = tx.ExecContext(ctx, fmt.Sprintf(`UPDATE %s_n SET visits = %d, token = %d WHERE name = %d`, w.Table, visits+1, token, i))
			if err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO `+w.Table+` VALUES ('visit')`)
		return err
	})
}
