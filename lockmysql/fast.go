package lockmysql

import (
	"context"
	"database/sql"
	"encoding/hex"
	"slices"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
)

// Grant implements [rowstore.Engine]. It looks first, and changes only what nobody keeps: a
// losing attempt reads. So a name that is free takes two statements, and so do many. On MariaDB
// names that this Locker has just freed take one.
func (e *engine) Grant(
	ctx context.Context, look func() rowstore.Statement, free func() []driver.AcquireRequest, granted func(i int, g rowstore.Granted),
) error {
	g := granting{e: e, granted: granted}
	g.reqs = free()
	if !e.mariaDB || !e.freed.Take(g.reqs) {
		if err := e.do(ctx, func(ctx context.Context, c session) error { return g.look(ctx, c, look()) }); err != nil {
			return err
		}
		g.reqs = free()
	}
	if len(g.reqs) == 0 {
		return nil
	}
	if err := e.checkValues(g.reqs); err != nil {
		return err
	}
	if err := e.do(ctx, g.takeAll); err != nil {
		return partly(g.wrote, err)
	}
	return nil
}

// GrantAll implements [rowstore.AllGranter]. It looks as Grant does. On MariaDB one statement
// then changes all rows or none. It leaves the rest to a visit: other servers, names without a
// row, rows that are locked, and values.
func (e *engine) GrantAll(
	ctx context.Context, look func() rowstore.Statement, free func() []driver.AcquireRequest, granted func(i int, g rowstore.Granted),
) error {
	g := granting{e: e, granted: granted}
	if !e.mariaDB {
		return nil
	}
	if err := e.do(ctx, func(ctx context.Context, c session) error { return g.look(ctx, c, look()) }); err != nil {
		return err
	}
	if g.reqs = free(); len(g.reqs) == 0 || len(g.fresh) > 0 || g.valued(every(len(g.reqs))) {
		return nil
	}
	if e.fitting(len(g.reqs), func(i int) int { return textSize(&g.reqs[i]) }) < len(g.reqs) {
		return nil
	}
	return e.do(ctx, func(ctx context.Context, c session) error {
		g.c = c
		return g.takeTogether(ctx)
	})
}

// takeTogether takes all of the requests or none. If a row was deleted since the look, it has
// taken a part.
func (g *granting) takeTogether(ctx context.Context) error {
	n, now, err := g.send(ctx, "grant_all", every(len(g.reqs)))
	switch {
	case isInTheWay(err), isMismatch(err):
		return nil
	case err != nil:
		return err
	case n > 0 && n < int64(len(g.reqs)):
		return partly(true, errVanished)
	case n == 0:
		return nil
	}
	for i := range g.reqs {
		g.granted(i, g.at(i, now))
	}
	return nil
}

// partly is the error of a call that has done something before.
func partly(wrote bool, err error) error {
	if wrote {
		return &rowstore.PartlyError{Err: err}
	}
	return err
}

// granting is one call of Grant.
type granting struct {
	e       *engine
	c       session
	fresh   map[string]bool // names without a row
	reqs    []driver.AcquireRequest
	next    int // of the requests
	granted func(i int, g rowstore.Granted)
	wrote   bool
}

// look reads the rows of names. Of many it reads only those that are not simply free.
func (g *granting) look(ctx context.Context, c session, look rowstore.Statement) error {
	g.fresh = make(map[string]bool)
	names := look.Batch[0].([]string)
	if len(names) > 1 {
		var err error
		if names, err = g.lookMany(ctx, c, look.Batch); err != nil || len(names) == 0 {
			return err
		}
	}
	found := 0
	look.Batch = []rowstore.Column{names}
	scan := look.Scan
	look.Scan = func(s rowstore.Scanner) error {
		found++
		return scan(s)
	}
	err := (&run{e: g.e, c: c}).one(ctx, &look)
	if len(names) == 1 && found == 0 {
		g.fresh[names[0]] = true
	}
	return err
}

// lookMany returns the names that have rows and are not simply free.
func (g *granting) lookMany(ctx context.Context, c session, names []rowstore.Column) (kept []string, err error) {
	clear(g.fresh)
	err = (&run{e: g.e, c: c}).one(ctx, &rowstore.Statement{Name: "look_many", Batch: names,
		Scan: func(scan rowstore.Scanner) error {
			var name string
			var absent bool
			if err := scan(&name, &absent); err != nil {
				return err
			}
			if absent {
				g.fresh[name] = true
			} else {
				kept = append(kept, name)
			}
			return nil
		}})
	return kept, err
}

// takeAll takes what it can, as much at once as the server does.
func (g *granting) takeAll(ctx context.Context, c session) error {
	g.c = c
	for g.next < len(g.reqs) {
		n := g.e.fitting(len(g.reqs)-g.next, func(i int) int { return textSize(&g.reqs[g.next+i]) })
		var fresh, known []int
		for i := g.next; i < g.next+n; i++ {
			if g.fresh[g.reqs[i].Name] {
				fresh = append(fresh, i)
			} else {
				known = append(known, i)
			}
		}
		if err := g.take(ctx, fresh, g.insert); err != nil {
			return err
		}
		if err := g.take(ctx, known, g.update); err != nil {
			return err
		}
		g.next += n
	}
	return nil
}

// take runs a statement that takes what it can of the requests at which. It says how many
// it took; if those are all, nothing is left to ask. The version of each is the server's clock, or its
// floor.
func (g *granting) take(ctx context.Context, which []int, statement func(context.Context, []int) (int64, int64, error)) error {
	if len(which) == 0 {
		return nil
	}
	n, now, err := statement(ctx, which)
	if err != nil || n == 0 {
		return err
	}
	g.wrote = true
	if n == int64(len(which)) {
		for _, i := range which {
			g.granted(i, g.at(i, now))
		}
		return nil
	}
	b := newBatch(len(which))
	for _, i := range which {
		b.row(g.reqs[i].Name, g.reqs[i].Acq).end()
	}
	return g.e.read(ctx, g.c, g.e.queries.texts["granted"], []any{b.String()}, func(rows *sql.Rows) error {
		var i int
		var one rowstore.Granted
		err := rows.Scan(&i, &one.Version, &one.Now, &one.Expires)
		if err == nil {
			g.granted(which[i], one)
		}
		return err
	})
}

// at is what request i was granted when the server's clock was now.
func (g *granting) at(i int, now int64) rowstore.Granted {
	r := &g.reqs[i]
	return rowstore.Granted{Version: max(now, r.Floor), Now: now, Expires: now + r.TTL.Microseconds()}
}

func (g *granting) insert(ctx context.Context, which []int) (rows, now int64, err error) {
	return g.send(ctx, "grant_new", which)
}

// update tries MariaDB's quick ways first. If they fail, it is because a row is locked.
func (g *granting) update(ctx context.Context, which []int) (rows, now int64, err error) {
	if !g.e.mariaDB {
		return g.send(ctx, "grant", which)
	}
	if len(which) == 1 {
		r := &g.reqs[which[0]]
		rows, now, err = g.c.exec(ctx, g.e.queries.texts["grant_one"], r.Acq.String(), digits(r.Owner), g.e.locker, g.e.label, hex.EncodeToString(r.Value), r.Floor, r.TTL.Microseconds(), digits(r.Name), r.Floor)
		if isInTheWay(err) {
			return 0, 0, nil
		}
		return rows, now, err
	}
	if !g.valued(which) {
		rows, now, err = g.send(ctx, "grant_quickly", which)
		if !isInTheWay(err) {
			return rows, now, err
		}
	}
	return g.send(ctx, "grant", which)
}

func (g *granting) send(ctx context.Context, name string, which []int) (rows, now int64, err error) {
	b := newBatch(len(which))
	for _, i := range which {
		r := &g.reqs[i]
		b.row(r.Name, r.Acq).hex([]byte(r.Owner)).hex(r.Value).int(r.TTL.Microseconds()).int(r.Floor).end()
	}
	text := g.e.queries.short[name]
	if text == "" || g.valued(which) {
		text = g.e.queries.texts[name]
	}
	return g.c.exec(ctx, text, b.String(), g.e.locker, g.e.label)
}

// valued reports that some of the requests at which have values.
func (g *granting) valued(which []int) bool {
	return slices.ContainsFunc(which, func(i int) bool { return len(g.reqs[i].Value) > 0 })
}

// Free implements [rowstore.Engine]. It is one statement, which frees all of the names or
// none of them. If it frees none it may be because one is locked, or was lost before, or
// somebody waits for it.
func (e *engine) Free(ctx context.Context, reqs []driver.ReleaseRequest, freed func(i int)) error {
	for from := 0; from < len(reqs); {
		n := e.fitting(len(reqs)-from, func(i int) int { return len(reqs[from+i].Name) })
		part := reqs[from : from+n]
		changed := int64(0)
		err := e.do(ctx, func(ctx context.Context, c session) (err error) {
			changed, err = e.free(ctx, c, part)
			return err
		})
		if err == nil && changed > 0 && changed < int64(n) {
			err = errVanished
		}
		if err != nil {
			return partly(from > 0 || changed > 0, err)
		}
		for i := range int(changed) {
			freed(from + i)
			e.freed.Add(part[i].Name)
		}
		from += n
	}
	return nil
}

// free tries MariaDB's quick ways first. They ask no guard, and know no minimum hold.
func (e *engine) free(ctx context.Context, c session, reqs []driver.ReleaseRequest) (n int64, err error) {
	batch := func() string {
		b := newBatch(len(reqs))
		for i := range reqs {
			b.row(reqs[i].Name, reqs[i].Acq).int(reqs[i].Version).int(reqs[i].MinHold.Microseconds()).end()
		}
		return b.String()
	}
	if e.mariaDB && !slices.ContainsFunc(reqs, func(r driver.ReleaseRequest) bool { return r.Guarded || r.MinHold > 0 }) {
		if len(reqs) == 1 {
			n, _, err = c.exec(ctx, e.queries.texts["free_one"], digits(reqs[0].Name), reqs[0].Acq.String(), reqs[0].Version)
		} else {
			n, _, err = c.exec(ctx, e.queries.texts["free_quickly"], batch())
		}
		if isMismatch(err) {
			return 0, nil
		}
		if !isInTheWay(err) {
			return n, err
		}
	}
	n, _, err = c.exec(ctx, e.queries.texts["free"], batch(), len(reqs))
	return n, err
}

// Renew implements [rowstore.Engine]. As long as every lease is still held and no row is
// locked, one statement renews all of those that do not share. Otherwise a look tells which
// were not renewed.
func (e *engine) Renew(
	ctx context.Context, shared bool, reqs []driver.RenewRequest, wait bool, renewed func(i int, now int64),
) error {
	for from := 0; from < len(reqs); {
		n := e.fitting(len(reqs)-from, func(i int) int { return len(reqs[from+i].Name) })
		r := renewing{e: e, reqs: reqs[from : from+n], renewed: func(i int, now int64) { renewed(from+i, now) },
			todo: every(n), seqs: make([]int64, n), update: "renew", find: "renewed"}
		if shared {
			r.update, r.find, r.unseen = "renew_shared", "renewed_shared", true
		}
		if wait && e.waitsOnServer(ctx) {
			r.update += "_patiently"
		}
		err := e.patiently(ctx, func(ctx context.Context, c session) (bool, error) {
			err := r.once(ctx, c)
			if wait && isHeld(err) {
				return false, nil
			}
			return !wait || len(r.todo) == 0, err
		})
		if err != nil {
			return err
		}
		from += n
	}
	return nil
}

// renewing is one statement's share of a call of Renew.
type renewing struct {
	e            *engine
	reqs         []driver.RenewRequest
	renewed      func(i int, now int64)
	todo         []int   // requests that are not renewed
	seqs         []int64 // of claims
	unseen       bool    // which are not known yet
	update, find string
}

// once renews what it can of what is left to do, and leaves those whose rows are locked.
func (r *renewing) once(ctx context.Context, c session) error {
	if r.unseen {
		if err := r.look(ctx, c, 0); err != nil {
			return err
		}
		r.unseen = false
	}
	if len(r.todo) == 0 {
		return nil
	}
	n, now, err := c.exec(ctx, r.e.queries.texts[r.update], r.batch())
	if err != nil {
		return err
	}
	if n < int64(len(r.todo)) {
		return r.look(ctx, c, now)
	}
	for _, i := range r.todo {
		r.renewed(i, now)
	}
	r.todo = nil
	return nil
}

func (r *renewing) batch() string {
	b := newBatch(len(r.todo))
	for _, i := range r.todo {
		q := &r.reqs[i]
		b.row(q.Name, q.Acq).int(q.Version).int(q.TTL.Microseconds()).int(int64(q.Holds)).int(r.seqs[i]).end()
	}
	return b.String()
}

// look finds out what became of renewals that were tried at a time, which is 0 if none found
// a row. A lease that reaches far enough was renewed, or did so before: then a connection that
// counts changed rows has not counted it.
func (r *renewing) look(ctx context.Context, c session, tried int64) error {
	var held []int
	err := r.e.read(ctx, c, r.e.queries.texts[r.find], []any{r.batch()}, func(rows *sql.Rows) error {
		var k int
		var now, expires, limit, seq int64
		if err := rows.Scan(&k, &now, &expires, &limit, &seq); err != nil {
			return err
		}
		i := r.todo[k]
		to := tried + r.reqs[i].TTL.Microseconds()
		if limit != 0 {
			to = min(to, limit)
		}
		if r.seqs[i] = seq; tried != 0 && expires >= to {
			r.renewed(i, now)
		} else {
			held = append(held, i)
		}
		return nil
	})
	r.todo = held
	return err
}
