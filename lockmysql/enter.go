package lockmysql

import (
	"context"
	"slices"

	"github.com/sqllock/sqllock/driver"
)

// entering decides who gets a name and who a ticket, where the rows of the names are
// locked.
type entering struct {
	w   *waiting
	m   *moving
	res []driver.TicketResult

	values, made, kept *batch
	extended           int
}

func (e *entering) run(ctx context.Context, which []int) error {
	e.values, e.made, e.kept = newBatch(1), newBatch(1), newBatch(1)
	places := make(map[string]*place, len(e.m.places))
	for _, p := range e.m.places {
		places[p.name] = p
	}
	for _, i := range which { // who asks is alive
		p, acq := places[e.w.reqs[i].Name], e.w.reqs[i].Acq
		p.revive(acq)
		e.res[i].Crashed = p.tidy(acq)
	}
	for _, i := range which {
		e.serve(places[e.w.reqs[i].Name], i)
	}
	for _, p := range e.m.places {
		p.close()
	}
	if err := e.write(ctx); err != nil {
		return err
	}
	for _, i := range which {
		r := &e.w.reqs[i]
		if p := places[r.Name]; e.res[i].Granted {
			e.res[i].Version = p.holder.Version
		} else {
			crashed := e.res[i].Crashed
			e.res[i] = p.tell(p.find(r.Acq))
			e.res[i].Crashed = crashed
		}
	}
	return nil
}

// serve gives a name to a request, or a ticket.
func (e *entering) serve(p *place, i int) {
	r := &e.w.reqs[i]
	at := p.find(r.Acq)
	switch res, mine := p.found(r.Acq); {
	case mine:
		e.res[i].GrantResult = res
	case p.may(r, at) && (p.entry || p.live() > 0):
		e.grant(p, i, at)
	default:
		e.queue(p, i, at)
	}
}

func (e *entering) grant(p *place, i, at int) {
	r, client := &e.w.reqs[i], &e.w.s.client
	t := ticket{acq: r.Acq, owner: r.Owner, instance: client.Instance, label: client.Label}
	ttl := r.TTL.Microseconds()
	crashed := p.crashed(r.Acq)
	if r.Shared {
		p.seat(t, ttl)
	} else {
		p.hold(t, ttl)
		if len(r.Value) > 0 {
			e.values.row(r.Name, r.Acq).hex(r.Value).end()
		}
	}
	if at >= 0 {
		p.serve(at)
	}
	if crashed == (driver.Holder{}) {
		crashed = e.res[i].Crashed
	}
	e.res[i].GrantResult = driver.GrantResult{Granted: true, Remaining: r.TTL, Now: p.now, Crashed: crashed}
}

// queue makes a ticket, or prolongs it. The gate is kept closed for longer, so that it
// need not be written for each.
func (e *entering) queue(p *place, i, at int) {
	r := &e.w.reqs[i]
	life := r.Life.Microseconds()
	until := p.now + life
	if at < 0 {
		p.qseq++
		p.tickets = append(p.tickets, ticket{seq: p.qseq, acq: r.Acq, shared: r.Shared, until: until})
		p.queued = true
		var carries []byte
		for _, id := range r.Carries {
			carries = append(carries, id[:]...)
		}
		shared := int64(0)
		if r.Shared {
			shared = 1
		}
		e.made.row(r.Name, r.Acq).int(p.qseq).int(until).hex([]byte(r.Owner)).int(shared).int(r.TTL.Microseconds()).
			int(r.Handed.Microseconds()).int(p.now).hex(r.Value).hex(carries).end()
	} else if t := &p.tickets[at]; t.until < until {
		t.until = until
		e.kept.row(r.Name, r.Acq).int(t.seq).int(until).end()
		e.extended++
	}
	if p.waitUntil < until {
		p.waitUntil, p.queued = until+life/2, true
	}
}

func (e *entering) write(ctx context.Context) error {
	if err := e.m.write(ctx); err != nil {
		return err
	}
	q, tx, client := &e.w.s.queries.line, e.m.tx, &e.w.s.client
	if !e.values.empty() {
		if _, err := tx.ExecContext(ctx, q.values, e.values.String()); err != nil {
			return err
		}
	}
	if e.extended > 0 { // unless a sweep has buried one
		if err := change(ctx, tx, q.last, e.kept, e.extended); err != nil {
			return err
		}
	}
	if e.made.empty() {
		return nil
	}
	_, err := tx.ExecContext(ctx, q.ticket, client.Instance.String(), digits(client.Label), e.made.String())
	return err
}

// find is where in line somebody stands, or -1.
func (p *place) find(acq driver.ID) int {
	return slices.IndexFunc(p.tickets, func(t ticket) bool { return t.acq == acq })
}

// revive puts somebody back into the line whose ticket has expired, if nobody has
// deleted it.
func (p *place) revive(acq driver.ID) {
	at := slices.IndexFunc(p.dead, func(t ticket) bool { return t.acq == acq })
	if at < 0 {
		return
	}
	p.tickets = append(p.tickets, p.dead[at])
	p.dead = slices.Delete(p.dead, at, at+1)
	inLine([]*place{p})
}

// found answers one who has the name already.
func (p *place) found(acq driver.ID) (driver.GrantResult, bool) {
	res := driver.GrantResult{Granted: true, Found: true, Now: p.now}
	if p.taken() && p.heldBy(acq) {
		res.Remaining = micros(p.holder.Until - p.now)
		return res, true
	}
	for i := range p.readers {
		if h := &p.readers[i]; h.Acq == acq && p.reads(h) {
			res.Remaining = micros(h.Until - p.now)
			return res, true
		}
	}
	return driver.GrantResult{}, false
}

// may reports that it is the turn of a request, which stands at a place in line, or
// nowhere. Whether a guard is in the way is another question.
func (p *place) may(r *driver.TicketRequest, at int) bool {
	ahead := p.tickets
	if at >= 0 {
		ahead = p.tickets[:at]
	}
	for i := range ahead {
		if !r.Shared || !ahead[i].shared {
			return false
		}
	}
	return p.free() || r.Shared && p.notBefore <= p.now && p.live() > 0
}

// tell tells one who waits, at this place in line, what for.
func (p *place) tell(at int) driver.TicketResult {
	r := driver.TicketResult{GrantResult: driver.GrantResult{Now: p.now}, Ahead: at}
	switch {
	case p.taken():
		r.Holder = p.holder
	case p.live() > 0:
		r.Holder = driver.Holder{Version: p.holder.Version, Since: p.holder.Since, Until: p.othersUntil, Shared: true}
	case p.notBefore > p.now:
		r.Holder.Until = p.notBefore
	}
	return r
}
