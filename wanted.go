package sqllock

import (
	"context"

	"github.com/sqllock/sqllock/driver"
)

// wanted is one batch of requests on its way to a session.
type wanted struct {
	m    *sessions
	reqs []driver.GrantRequest
	res  []driver.GrantResult

	// What has to be sent: to others this process knows the answer.
	asked []driver.GrantRequest
	grips []*grip
	at    []int // where in reqs
}

// reserve finds out what has to be sent. If one request fails, none is.
func (w *wanted) reserve() error {
	for i := range w.reqs {
		g, res, err := w.m.reserve(&w.reqs[i])
		if err != nil {
			w.forget()
			return err
		}
		w.res[i] = res
		if g != nil {
			w.asked, w.grips, w.at = append(w.asked, w.reqs[i]), append(w.grips, g), append(w.at, i)
		}
	}
	return nil
}

func (w *wanted) forget() {
	for _, g := range w.grips {
		w.m.forget(g)
	}
}

// park lets the one request of a session of its own wait in the database, if not too
// many do. The result is to be called when it is back.
func (w *wanted) park() (leave func()) {
	room := w.m.room
	if room != nil && w.asked[0].Wait > 0 && room.park() {
		return room.unpark
	}
	for i := range w.asked {
		w.asked[i].Wait = 0
	}
	return func() {}
}

// ask asks the session; the caller has its turn.
func (w *wanted) ask(ctx context.Context, st *seat) error {
	all, err := st.session.Grant(ctx, w.asked)
	if err != nil {
		w.forget()
		w.m.leave(st, len(w.grips))
		return err
	}
	var over error
	for k, g := range w.grips {
		if !all[k].Granted {
			w.m.forget(g)
			w.m.leave(st, 1)
		} else if err := w.settle(ctx, st, g, &all[k]); err != nil {
			over = err
		}
		w.res[w.at[k]] = all[k]
	}
	return over
}

// settle notes what was granted.
func (w *wanted) settle(ctx context.Context, st *seat, g *grip, res *driver.GrantResult) error {
	held, wanted := w.m.settle(st, g, res)
	if !held || !wanted { // who gave it up asks again if this fails
		_ = w.m.letGo1(ctx, st, g, driver.ReleaseRequest{})
	}
	if !held {
		w.m.forget(g)
		return errUnanswered
	}
	return nil
}
