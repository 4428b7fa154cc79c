package lockmysql

import (
	"context"

	"github.com/sqllock/sqllock/driver"
)

// clean reports that a name was released and may be had, see queries_clean.go.
func (st *state) clean() bool {
	return st.grantable && !st.held() && st.others == 0 && st.holder.Version < st.now
}

// seeUnclean is see for all requests, but for those whose names are clean.
func (g *granting) seeUnclean(ctx context.Context) (err error) {
	b := newBatch(len(g.reqs))
	for i := range g.reqs {
		b.row(g.reqs[i].Name, driver.ID{}).end()
	}
	if g.states, err = g.s.states(ctx, g.c, g.s.queries.clean.unclean, b, len(g.reqs)); err != nil {
		return err
	}
	for i := range g.states {
		if st := &g.states[i]; st.seen() {
			g.res[i] = st.answer(g.reqs[i].Acq)
		}
	}
	return nil
}

// seen reports that a look over many names has told of this one.
func (st *state) seen() bool { return st.now != 0 }

// takeClean takes the names that were found clean. If that fails, be it for one of them,
// they are looked at, as if nothing had been known of them.
func (g *granting) takeClean(ctx context.Context) error {
	var which []int
	for i := range g.states {
		if st := &g.states[i]; len(g.states) > 1 && !st.seen() {
			which = append(which, i)
		}
	}
	if err := g.take(ctx, which, g.updateClean); err != nil {
		return err
	}
	late := g.late
	g.late = nil
	if len(late) == 0 {
		return nil
	}
	return g.see(ctx, late)
}

func (g *granting) updateClean(ctx context.Context, which []int) (rows, now int64, err error) {
	b := newBatch(len(which))
	for _, i := range which {
		r := &g.reqs[i]
		b.row(r.Name, r.Acq).int(r.TTL.Microseconds())
		if r.Owner != r.Acq.String() {
			b.hex([]byte(r.Owner))
		}
		b.end()
	}
	return g.hastily(ctx, g.s.queries.clean.grant, b.String(), g.s.client.Instance.String(), digits(g.s.client.Label))
}

// hastily runs a statement that changes nothing if a row is locked.
func (g *granting) hastily(ctx context.Context, text string, args ...any) (rows, now int64, err error) {
	rows, now, err = g.c.exec(ctx, text, args...)
	if isInTheWay(err) {
		return 0, 0, nil
	}
	return rows, now, err
}
