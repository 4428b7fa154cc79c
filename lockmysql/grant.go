package lockmysql

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/access"
)

// Grant implements [driver.LeaseStore].
func (s *store) Grant(ctx context.Context, reqs []driver.GrantRequest) ([]driver.GrantResult, error) {
	return access.Each(reqs, func(r *driver.GrantRequest) bool { return r.Shared },
		func(reqs []driver.GrantRequest) ([]driver.GrantResult, error) { return s.grantAlone(ctx, reqs) },
		func(reqs []driver.GrantRequest) ([]driver.GrantResult, error) { return s.grantShared(ctx, reqs) },
		partly)
}

// grantAlone is Grant for those who do not share. It looks first, and changes only
// what nobody keeps: a losing attempt reads. So a name that is free takes two
// statements, be it one or many; names without a row take one of their own. Of many
// names that are clean, where that is known, the look does not even speak.
func (s *store) grantAlone(ctx context.Context, reqs []driver.GrantRequest) (res []driver.GrantResult, err error) {
	if len(reqs) == 0 {
		return nil, nil
	}
	if err := s.checkValues(reqs); err != nil {
		return nil, err
	}
	err = s.do(ctx, func(ctx context.Context, c session) error {
		g := granting{s: s, c: c, reqs: reqs}
		if err := g.look(ctx); err != nil {
			return err
		}
		crashed, err := g.mend(ctx)
		if err != nil {
			return err
		}
		if res, err = g.act(ctx); err == nil {
			tell(crashed, reqs, res)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

// checkValues refuses values that the server would not take even one at a time.
func (s *store) checkValues(reqs []driver.GrantRequest) error {
	for i := range reqs {
		size := statementBytes + requestBytes + 2*textSize(&reqs[i])
		if len(reqs[i].Value) > 0 && s.maxPacket > 0 && size > s.maxPacket {
			return fmt.Errorf("%w: %d bytes, and max_allowed_packet is %d", errTooLarge, len(reqs[i].Value), s.maxPacket)
		}
	}
	return nil
}

func textSize(r *driver.GrantRequest) int { return len(r.Name) + len(r.Owner) + len(r.Value) }

// granting is one call of Grant.
type granting struct {
	s      *store
	c      session
	reqs   []driver.GrantRequest
	states []state // of which those that the look found clean say nothing
	res    []driver.GrantResult

	wrote  bool  // something was granted
	partly bool  // and it is not known what
	late   []int // requests for which it looks as if others were quicker
}

// look finds out who holds what.
func (g *granting) look(ctx context.Context) error {
	g.states = make([]state, len(g.reqs))
	g.res = make([]driver.GrantResult, len(g.reqs))
	if g.s.hasty && len(g.reqs) > 1 && !g.valued(every(len(g.reqs))) {
		return g.seeUnclean(ctx)
	}
	return g.see(ctx, every(len(g.reqs)))
}

// act takes what the look has found free.
func (g *granting) act(ctx context.Context) ([]driver.GrantResult, error) {
	if err := g.takeClean(ctx); err != nil {
		return nil, g.unresolved(err)
	}
	var absent, free []int
	for i := range g.reqs {
		switch st := &g.states[i]; {
		case g.res[i].Granted:
		case !st.exists:
			absent = append(absent, i)
		case st.grantable:
			free = append(free, i)
		}
	}
	if err := g.take(ctx, absent, g.insert); err != nil {
		return nil, g.unresolved(err)
	}
	if err := g.take(ctx, free, g.update); err != nil {
		return nil, g.unresolved(err)
	}
	if len(g.late) == 0 {
		return g.res, nil
	}
	// Who was quicker is good to know and no more, unless it might be us.
	before := slices.Clone(g.states)
	if err := g.see(ctx, g.late); err != nil && g.partly {
		return nil, g.unresolved(err)
	}
	for _, i := range g.late {
		if g.res[i].Granted {
			g.res[i].Crashed = before[i].crashed(g.reqs[i].Acq)
		}
	}
	return g.res, nil
}

// unresolved is err, unless some names are ours already: then nobody may take err
// to say that nothing happened.
func (g *granting) unresolved(err error) error {
	if g.wrote {
		return &unresolvedError{err}
	}
	return err
}

// see reads the rows of the requests at which, and what they say of them.
func (g *granting) see(ctx context.Context, which []int) error {
	states, err := g.read(ctx, which)
	if err != nil {
		return err
	}
	for k, i := range which {
		g.states[i] = states[k]
		g.res[i] = states[k].answer(g.reqs[i].Acq)
	}
	return nil
}

func (g *granting) read(ctx context.Context, which []int) ([]state, error) {
	if len(which) == 1 {
		st, err := g.s.lookAt(ctx, g.c, g.reqs[which[0]].Name)
		return []state{st}, err
	}
	b := newBatch(len(which))
	for _, i := range which {
		b.row(g.reqs[i].Name, g.reqs[i].Acq).end()
	}
	return g.s.look(ctx, g.c, b, len(which))
}

// answer tells a requester what a look found: that it holds the name, or who does,
// or until when a gate keeps it.
func (st *state) answer(acq driver.ID) driver.GrantResult {
	r := driver.GrantResult{Now: st.now}
	switch {
	case st.held() && !st.expired() && st.holder.Acq == acq:
		r.Granted, r.Found = true, true
		r.Version, r.Remaining = st.holder.Version, micros(st.holder.Until-st.now)
	case st.held() && !st.expired(), st.readers > 0:
		r.Holder = st.holder
	case st.gate() > st.now:
		r.Holder.Until = st.gate()
	}
	return r
}

// crashed is whose term ends with a grant that found this state. That an
// acquisition has expired itself before it asked again is no crash.
func (st *state) crashed(acq driver.ID) driver.Holder {
	if !st.held() || st.holder.Acq == acq {
		return driver.Holder{}
	}
	return st.holder
}

// take runs a statement that takes what it can of the requests at which, in parts
// if the server takes little at once.
func (g *granting) take(ctx context.Context, which []int, statement func(context.Context, []int) (int64, int64, error)) error {
	for len(which) > 0 {
		n := g.s.fitting(len(which), func(k int) int { return textSize(&g.reqs[which[k]]) })
		if err := g.takePart(ctx, which[:n], statement); err != nil {
			return err
		}
		which = which[n:]
	}
	return nil
}

// takePart is one statement. It says how many it took; if those are all, nothing is
// left to ask, because the new version follows from the old one and the server's
// clock.
func (g *granting) takePart(ctx context.Context, which []int, statement func(context.Context, []int) (int64, int64, error)) error {
	n, now, err := statement(ctx, which)
	if err != nil {
		return err
	}
	g.wrote = g.wrote || n > 0
	if n < int64(len(which)) {
		g.partly = g.partly || n > 0
		g.late = append(g.late, which...)
		return nil
	}
	for _, i := range which {
		g.res[i] = driver.GrantResult{
			Granted:   true,
			Version:   max(g.states[i].holder.Version+1, now),
			Remaining: micros(g.reqs[i].TTL.Microseconds()),
			Now:       now,
			Crashed:   g.states[i].crashed(g.reqs[i].Acq),
		}
	}
	return nil
}

func (g *granting) insert(ctx context.Context, which []int) (rows, now int64, err error) {
	b, valued := g.batch(which)
	text := g.s.queries.insert
	if valued {
		text = g.s.queries.insertValues
	}
	return g.c.exec(ctx, text, g.s.client.Instance.String(), digits(g.s.client.Label), b.String())
}

func (g *granting) update(ctx context.Context, which []int) (rows, now int64, err error) {
	instance, label := g.s.client.Instance.String(), digits(g.s.client.Label)
	if len(which) > 1 {
		b, valued := g.batch(which)
		text := g.s.queries.grantMany
		if valued {
			text = g.s.queries.grantValues
		}
		return g.c.exec(ctx, text, b.String(), instance, label)
	}
	r, st := &g.reqs[which[0]], &g.states[which[0]]
	if g.s.hasty && st.clean() {
		return g.hastily(ctx, g.s.queries.clean.grantOne, r.Acq.String(), digits(r.Owner), instance, label,
			r.TTL.Microseconds(), hex.EncodeToString(r.Value), digits(r.Name))
	}
	return g.c.exec(ctx, g.s.queries.grant, digits(r.Name), st.holder.Version, idDigits(st.holder.Acq),
		r.Acq.String(), digits(r.Owner), instance, label, r.TTL.Microseconds(), hex.EncodeToString(r.Value))
}

// valued reports that some of the requests at which have values.
func (g *granting) valued(which []int) bool {
	return slices.ContainsFunc(which, func(i int) bool { return len(g.reqs[i].Value) > 0 })
}

// batch has the versions and the holders that were seen. It reports whether it has
// values.
func (g *granting) batch(which []int) (b *batch, valued bool) {
	valued = g.valued(which)
	b = newBatch(len(which))
	for _, i := range which {
		r, st := &g.reqs[i], &g.states[i]
		b.row(r.Name, r.Acq).int(st.holder.Version).int(r.TTL.Microseconds()).hex([]byte(r.Owner)).id(st.holder.Acq)
		if valued {
			b.hex(r.Value)
		}
		b.end()
	}
	return b, valued
}
