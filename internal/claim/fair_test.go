package claim_test

import "fmt"

// fairTicks is how many ticks a fair continuation takes.
const fairTicks = 14

// fair lets a world go on without faults: what was sent arrives, holders unlock, waiters
// wait and beat. It returns why that does not end well, or "": every live client has to
// have had its turn, and nobody may hold the name or wait for it in the end. It calls trace with
// each world on the way.
func (w world) fair(o *options, trace func(*world)) string {
	w.faults, w.deaths, w.crashes = 0, 0, 0
	for range fairTicks {
		for steps := 0; w.fairStep(o); steps++ {
			if steps > 10_000 {
				return "the same goes on for ever"
			}
			trace(&w)
			if why := w.broken(o); why != "" {
				return "fair continuation: " + why
			}
		}
		w.now++
		for l := range int8(lockers) {
			if w.beats[l].stage == 0 && !w.dead[l] && w.waits(l) {
				w.sendBeat(l)
			}
		}
	}
	for i := range int8(clients) {
		if c := &w.clients[i]; !w.dead[lockerOfClient(i)] && c.phase != idle {
			return fmt.Sprintf("client %d is never served: %s", i, w.String())
		}
	}
	w.send(packet{op: opSweep})
	for w.fairStep(o) {
		continue
	}
	if w.db.acq != nobody || w.db.holding != 0 || w.db.waiting != 0 {
		return "something is left behind: " + w.String()
	}
	q := o.request(0)
	row := w.db.row()
	if w.db.notBefore <= w.now && !row.Grant(&q, int64(w.now)) {
		return "the name cannot be granted any more: " + w.String()
	}
	return ""
}

// fairStep takes one step that brings a world to rest. It reports false if it is at rest.
func (w *world) fairStep(o *options) bool {
	for acq := range int8(acqs) {
		if w.renewing[acq] != 0 {
			w.commitRenewal(acq)
			return true
		}
	}
	if w.visit.stage == 2 {
		w.commit(o)
		return true
	}
	if w.visit.stage == 1 && w.read(o) {
		return true
	}
	for i := range w.packets {
		switch p := &w.packets[i]; {
		case p.op == opNone || p.reply == pending:
		case p.reply != unsent:
			w.hear(o, i)
			return true
		case w.arrive(o, i):
			return true
		}
	}
	for l := range int8(lockers) {
		switch w.beats[l].stage {
		case 1:
			w.runBeat(o, l)
			return true
		case 2:
			w.hearBeat(l)
			return true
		}
	}
	for i := range int8(clients) {
		if !w.dead[lockerOfClient(i)] && w.fairClient(o, i) {
			return true
		}
	}
	return false
}

// fairClient lets a client go on with what it has begun.
func (w *world) fairClient(o *options, i int8) bool {
	c, acq := &w.clients[i], w.acq(i)
	again := func(p packet) bool {
		if w.awaits(p.op, acq) {
			return false
		}
		p.acq, p.heard = acq, true
		return w.send(p)
	}
	switch c.phase {
	case trying:
		return again(packet{op: opTry})
	case adopting:
		return again(packet{op: opAdopt})
	case wanting:
		l := lockerOfClient(i)
		if !w.knowsToLive(o, l) {
			if w.beats[l].stage == 0 && w.lives[l] != w.now+1 {
				w.sendBeat(l)
				return true
			}
			return false
		}
		if w.send(packet{op: opEnter, acq: acq, heard: true}) {
			c.phase = entering
			return true
		}
	case entering:
		return again(packet{op: opEnter})
	case holding:
		if w.now >= c.trust {
			w.finish(i)
			return true
		}
		if w.send(packet{op: opRelease, acq: acq, token: c.token, heard: true}) {
			c.phase = releasing
			return true
		}
	case releasing:
		return again(packet{op: opRelease, token: c.token})
	case detaching:
		return again(packet{op: opDetach, token: c.token})
	case cleaning:
		return w.now >= c.until && again(packet{op: opWithdraw})
	}
	return false
}
