package lockmysql

import (
	"context"
	"database/sql"
	"slices"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
)

// GrantPermits implements [rowstore.PermitGranter]. It is one transaction, in one round trip, for
// all of the requests or none. It needs blocks. It looks first, as Grant does.
func (e *engine) GrantPermits(
	ctx context.Context, look func() rowstore.Statement, free func() []driver.AcquireRequest, granted func(i int, g rowstore.Granted),
) error {
	if !e.blocks() {
		return nil
	}
	reqs := free()
	if !e.freed.Take(reqs) {
		if err := e.Run(ctx, look()); err != nil {
			return err
		}
		reqs = free()
	}
	unusual := slices.ContainsFunc(reqs, func(r driver.AcquireRequest) bool { return len(r.Value) > 0 || r.Floor > 0 })
	if len(reqs) == 0 || unusual || e.fitting(len(reqs), func(i int) int { return textSize(&reqs[i]) }) < len(reqs) {
		return nil
	}
	now := int64(0)
	grant, enter := e.permitSteps(reqs)
	done, err := e.allOrNone(ctx, grant, changedAll(len(reqs)), enter, step{text: e.queries.texts["granted_permits"],
		scan: func(rows *sql.Rows) error { return rows.Scan(&now) }})
	if err != nil || !done {
		return err
	}
	for i := range reqs {
		granted(i, rowstore.Granted{Version: now, Now: now, Expires: now + reqs[i].TTL.Microseconds()})
	}
	return nil
}

// permitSteps are the steps that change the rows and make the claims.
func (e *engine) permitSteps(reqs []driver.AcquireRequest) (grant, enter step) {
	texts, locker, label := e.queries.texts, e.locker, e.label
	if len(reqs) == 1 {
		r := &reqs[0]
		name := digits(r.Name)
		return step{text: texts["grant_permits_one"], args: []any{name, r.Permits}},
			step{text: texts["enter_permits_one"], args: []any{name, r.Acq.String(), locker, digits(r.Owner), label, r.TTL.Microseconds()}}
	}
	b := newBatch(len(reqs))
	for i := range reqs {
		r := &reqs[i]
		b.row(r.Name, r.Acq).hex([]byte(r.Owner)).int(r.TTL.Microseconds()).int(int64(r.Permits)).end()
	}
	return step{text: texts["grant_permits"], args: []any{b.String()}},
		step{text: texts["enter_permits"], args: []any{b.String(), locker, label}}
}

// FreeClaims implements [rowstore.PermitGranter], as GrantPermits does.
func (e *engine) FreeClaims(ctx context.Context, reqs []driver.ReleaseRequest, freed func(i int)) error {
	if !e.blocks() || e.fitting(len(reqs), func(i int) int { return len(reqs[i].Name) }) < len(reqs) {
		return nil
	}
	free, remove := e.freeSteps(reqs)
	steps := []step{free, changedAll(len(reqs)), remove}
	unheld := false
	if len(reqs) == 1 {
		steps = append(steps, step{text: e.queries.texts["unheld_one"], args: []any{digits(reqs[0].Name)},
			scan: func(rows *sql.Rows) error { return rows.Scan(&unheld) }})
	}
	done, err := e.allOrNone(ctx, steps...)
	if err != nil || !done {
		return err
	}
	for i := range reqs {
		freed(i)
	}
	if unheld {
		e.freed.Add(reqs[0].Name)
	}
	return nil
}

// freeSteps are the steps that change the rows and delete the claims.
func (e *engine) freeSteps(reqs []driver.ReleaseRequest) (free, remove step) {
	texts := e.queries.texts
	if len(reqs) == 1 {
		r := &reqs[0]
		name, acq := digits(r.Name), r.Acq.String()
		return step{text: texts["free_claims_one"], args: []any{acq, name, r.Version}},
			step{text: texts["delete_claims_one"], args: []any{acq, name}}
	}
	b := newBatch(len(reqs))
	for i := range reqs {
		b.row(reqs[i].Name, reqs[i].Acq).int(reqs[i].Version).end()
	}
	return step{text: texts["free_claims"], args: []any{b.String()}}, step{text: texts["delete_claims"], args: []any{b.String()}}
}

// changedAll is the step that ends a block with an error unless the one before it has changed so
// many rows.
func changedAll(n int) step {
	return step{text: `IF ROW_COUNT() <> ? THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'sqllock: a row is not as it should be'; END IF`, args: []any{n}}
}

// allOrNone runs steps in a transaction. It reports that it has changed nothing because a row is
// not as it should be, or because somebody has locked it.
func (e *engine) allOrNone(ctx context.Context, steps ...step) (done bool, err error) {
	err = e.do(ctx, func(ctx context.Context, c session) error {
		err := e.inOwnTx(ctx, c, func(begin []step) ([]step, bool, error) { return append(begin, steps...), true, nil })
		if done = err == nil; isInTheWay(err) || isUnusual(err) {
			return nil
		}
		return err
	})
	return done, err
}
