package lockpg

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// Grant implements [driver.Session].
func (s *advisorySession) Grant(ctx context.Context, reqs []driver.AcquireRequest) ([]driver.AcquireResult, error) {
	if !s.lifted {
		if err := s.query(ctx, s.store.texts["lift"], []any{s.store.lift}, ignore); err != nil {
			return nil, err
		}
		s.lifted = true
	}
	g := &granting{s: s, reqs: reqs, res: make([]driver.AcquireResult, len(reqs)), keys: make([]int64, len(reqs)),
		won: make([]bool, len(reqs)), drawn: make([]bool, len(reqs)), noted: make([]bool, len(reqs))}
	for i := range reqs {
		g.keys[i] = s.store.key(reqs[i].Name)
	}
	err := g.run(ctx)
	if err == nil {
		return g.res, nil
	}
	return nil, tooMany(s.reconcile(ctx, reqs, err))
}

// granting is one call of Grant.
type granting struct {
	s    *advisorySession
	reqs []driver.AcquireRequest
	res  []driver.AcquireResult
	keys []int64 // of the locks

	won   []bool // which locks the session has got
	drawn []bool // for which of them a token was asked for with the lock
	noted []bool // for which of them it is written who has it
}

func (g *granting) run(ctx context.Context) error {
	if err := g.lock(ctx); err != nil {
		return err
	}
	if err := g.draw(ctx); err != nil {
		return err
	}
	var keys []int64
	var shared []bool
	var losers []int
	for i := range g.reqs {
		if g.res[i].Granted {
			continue
		}
		if g.won[i] && g.s.keys[g.keys[i]] == 0 {
			keys, shared = append(keys, g.keys[i]), append(shared, g.reqs[i].Shared)
		}
		if g.res[i].Holder == (driver.Holder{}) && g.res[i].Crashed.Acq == (driver.ID{}) {
			losers = append(losers, i)
		}
	}
	if _, err := g.s.letGo(ctx, keys, shared); err != nil {
		return err
	}
	if err := g.tell(ctx, losers); err != nil {
		return err
	}
	for i := range g.reqs {
		if g.res[i].Granted && !g.res[i].Found {
			g.s.hold(g.keys[i], &g.reqs[i], &g.res[i], g.noted[i])
		}
	}
	return nil
}

// lock tries the locks. What this session shares already the server is not asked for
// again. Of those who are kept off by a guard it may be somebody who was granted the
// same name at the same time, to share it: those are tried again.
func (g *granting) lock(ctx context.Context) error {
	var ask []int
	for i := range g.reqs {
		if own := g.s.locks[g.reqs[i].Acq]; own != nil {
			g.res[i] = driver.AcquireResult{Granted: true, Found: true, Version: own.version, Remaining: g.s.store.ttl}
			continue
		}
		if g.won[i] = g.s.keys[g.keys[i]] > 0; !g.won[i] {
			ask = append(ask, i)
		}
	}
	if len(ask) == 0 {
		return nil
	}
	return retry(ctx, false, func() (bool, error) {
		var err error
		ask, err = g.tryKeys(ctx, ask)
		return len(ask) == 0, err
	})
}

// tryKeys tries the locks of the requests at which, and returns which to try again.
func (g *granting) tryKeys(ctx context.Context, which []int) (again []int, err error) {
	n := len(which)
	args := []any{
		integers(n, func(i int) int64 { return g.keys[which[i]] }),
		integers(n, func(i int) int64 { return g.s.store.guard(g.reqs[which[i]].Name) }),
		booleans(n, func(i int) bool { return g.reqs[which[i]].Shared }),
		array(n, func(i int) string { return g.reqs[which[i]].Name }),
		booleans(n, func(i int) bool { return !written(&g.reqs[which[i]]) }),
		g.s.store.lift,
	}
	var now int64
	var tokens, gates list
	err = g.s.query(ctx, g.s.store.texts["try"], args, func(rows *sql.Rows) error { return rows.Scan(&now, &tokens, &gates) })
	if err == nil && len(tokens) != n {
		err = fmt.Errorf("sqllock: %d answers to %d requests", len(tokens), n)
	}
	if err != nil {
		return nil, err
	}
	for k, i := range which {
		p := passed{token: max(tokens[k], 0), now: now}
		if gates != nil {
			p.gate = gates[k]
		}
		switch {
		case tokens[k] == tokenOthers:
		case tokens[k] == tokenGuarded:
			if g.reqs[i].Shared {
				again = append(again, i)
			}
		default:
			g.won[i] = true
			if p.gate >= 0 && !written(&g.reqs[i]) { // else its row names somebody
				g.drawn[i], g.res[i] = true, p.result(g.s.store.ttl)
			}
		}
	}
	return again, nil
}

// What the statement try answers for a lock of which it has drawn no token, unless it is locked.
const (
	tokenOthers  = 0  // have it
	tokenGuarded = -1 // by a transaction
)

// written reports that it has to be written down, before a lease is believed in, who
// has it.
func written(r *driver.AcquireRequest) bool {
	return r.Named || r.Delay > 0 || r.MinHold > 0 || len(r.Value) > 0
}

// draw draws the tokens for what was locked. A name whose row has to be written, or
// is not up to date, is drawn for by itself.
func (g *granting) draw(ctx context.Context) error {
	var plain, alone []int
	for i := range g.reqs {
		switch {
		case !g.won[i] || g.drawn[i]:
		case written(&g.reqs[i]):
			alone = append(alone, i)
		default:
			plain = append(plain, i)
		}
	}
	if len(plain) > 0 {
		asked := make([]driver.AcquireRequest, len(plain))
		for k, i := range plain {
			asked[k] = g.reqs[i]
		}
		passes, err := g.s.store.pass(ctx, g.s.query, asked)
		if err != nil {
			return err
		}
		for k, i := range plain {
			g.res[i] = passes[k].result(g.s.store.ttl)
			if passes[k].named {
				alone = append(alone, i)
			}
		}
	}
	for _, i := range alone {
		var err error
		d := &drawing{req: &g.reqs[i], named: !g.reqs[i].Shared, pid: g.s.pid, started: g.s.started, run: g.s.query, lift: g.s.store.lift}
		if g.res[i], err = g.s.store.draw(ctx, d); err != nil {
			return err
		}
		g.noted[i] = d.named
	}
	return nil
}

// result is what a request gets that has the lock.
func (p *passed) result(ttl time.Duration) driver.AcquireResult {
	switch {
	case p.token > 0:
		return driver.AcquireResult{Granted: true, Version: p.token, Remaining: ttl, Now: p.now}
	case p.gate > p.now:
		return driver.AcquireResult{Now: p.now, Holder: driver.Holder{Until: p.gate}}
	}
	return driver.AcquireResult{Now: p.now}
}

// hold notes that the session has a lock.
func (s *advisorySession) hold(key int64, req *driver.AcquireRequest, res *driver.AcquireResult, noted bool) {
	l := &sessionLock{req: *req, key: key, version: res.Version, since: res.Now, holds: 1, noted: noted}
	s.locks[req.Acq] = l
	s.keys[l.key]++
}

// tell says who holds what others have, as far as is known.
func (g *granting) tell(ctx context.Context, losers []int) error {
	if len(losers) == 0 {
		return nil
	}
	names := make([]string, len(losers))
	for k, i := range losers {
		names[k] = g.reqs[i].Name
	}
	terms, err := g.s.store.Terms(ctx, g.s.store.on(g.s.query), names...)
	if err != nil {
		return err
	}
	for k, i := range losers {
		g.res[i].Now, g.res[i].Holder = terms[k].Now, terms[k].Known()
	}
	return nil
}
