package lockmysql

import (
	"context"

	"github.com/sqllock/sqllock/driver"
)

// Classify is what the stores' Classify does.
func Classify(err error) driver.Fault { return classify(err) }

// ErrLocked is what a call returns that has waited for a row in vain.
var ErrLocked = errLocked

// Unresolved makes an error of a call that did something before it.
func Unresolved(err error) error { return &unresolvedError{err} }

// Statements returns the texts over the lock table, by name.
func Statements(prefix string) map[string]string {
	q := newQueries(prefix)
	return map[string]string{
		"look": q.look, "lookMany": q.lookMany, "lookValues": q.lookValues, "window": q.window,
		"grant": q.grant, "grantMany": q.grantMany, "grantValues": q.grantValues,
		"unclean": q.clean.unclean, "grantClean": q.clean.grant, "grantOne": q.clean.grantOne,
		"releaseClean": q.clean.release, "releaseOne": q.clean.releaseOne,
		"renew": q.renew, "release": q.release, "releaseMany": q.releaseMany, "abandon": q.abandon,
		"revoke": q.revoke, "crashed": q.crashed, "end": q.end, "purge": q.purge,
		"shared look": q.shared.look, "joinable": q.shared.joinable, "join": q.shared.join, "shared renew": q.shared.renew,
		"leaving": q.shared.leaving, "quitting": q.shared.quitting, "leave": q.shared.leave, "count": q.shared.count,
		"hold": q.shared.hold, "held": q.shared.held, "drop": q.shared.drop,
		"stand": q.line.stand, "heads": q.line.heads, "line": q.line.line, "tickets": q.line.tickets, "readers": q.line.readers,
		"entries": q.line.entries, "held terms": q.line.heldTerms, "revokable": q.line.revokable, "move": q.line.move,
		"queue": q.line.queue, "values": q.line.values, "stay": q.line.stay, "last": q.line.last, "gone": q.line.gone,
		"dead": q.line.dead, "bury": q.line.bury,
	}
}

// SweepWith is what Sweep of a store does, with something that happens after it has
// looked.
func SweepWith(ctx context.Context, st driver.LeaseStore, req driver.SweepRequest, happens func()) (res driver.SweepResult, err error) {
	s := st.(*store)
	err = s.do(ctx, func(ctx context.Context, c session) error {
		states, err := s.window(ctx, c, req.After, req.Limit)
		if err != nil {
			return err
		}
		happens()
		res, err = s.clean(ctx, c, req, states)
		return err
	})
	return res, err
}

// GrantWith is what Grant of a store does, with something that happens after it has
// looked.
func GrantWith(ctx context.Context, st driver.LeaseStore, reqs []driver.GrantRequest, happens func()) (res []driver.GrantResult, err error) {
	s := st.(*store)
	err = s.do(ctx, func(ctx context.Context, c session) error {
		g := granting{s: s, c: c, reqs: reqs}
		if err := g.look(ctx); err != nil {
			return err
		}
		happens()
		res, err = g.act(ctx)
		return err
	})
	return res, err
}

// LineWith is what Line of a store does for one request, with something that happens
// after it has looked. It tells that a row was locked by the zero result.
func LineWith(ctx context.Context, st driver.LeaseStore, req driver.TicketRequest, happens func()) (driver.TicketResult, error) {
	s := st.(*store)
	w := waiting{s: s, reqs: []driver.TicketRequest{req}, res: make([]driver.TicketResult, 1), stands: make([]stand, 1)}
	err := s.do(ctx, func(ctx context.Context, c session) error {
		w.c = c
		todo, places, err := w.look(ctx, []int{0})
		if err != nil {
			return err
		}
		happens()
		_, err = w.act(ctx, todo, places)
		return err
	})
	return w.res[0], err
}

// AbandonWith is what Abandon of a store does at its first attempt, with something that
// happens after it has looked. It reports whether nothing is left to do.
func AbandonWith(ctx context.Context, st driver.LeaseStore, reqs []driver.AbandonRequest, happens func()) (done bool, err error) {
	s := st.(*store)
	err = s.do(ctx, func(ctx context.Context, c session) error {
		a := abandoning{s: s, c: c, reqs: reqs}
		stands, err := a.look(ctx)
		if err != nil {
			return err
		}
		happens()
		done, err = a.act(ctx, stands)
		return err
	})
	return done, err
}

// Judge tells what is thought of a server that says this of itself.
func Judge(d *Database, version string, variables map[string]string, noRedo bool) (warnings []string, err error) {
	s, err := parse(version)
	if err != nil {
		return nil, err
	}
	s.variables, s.noRedo = variables, noRedo
	var info driver.Info
	err = d.refuse(s, &info)
	return info.Warnings, err
}

// Keys replaces the hash of the mode advisory.
func Keys(hash func(name string) [16]byte) Option { return func(d *Database) { d.hash = hash } }

// JudgeNodes tells what the modes that keep locks in sessions think of a server.
func JudgeNodes(variables map[string]string) error {
	return (&server{variables: variables}).refuseNodes()
}

// SessionStatements returns the texts over the table of terms and the pins, by name.
func SessionStatements(prefix, mode string) map[string]string {
	q := newTermQueries(prefix, mode)
	return map[string]string{
		"look": q.look, "lookValues": q.lookValues, "window": q.window, "new": q.new, "draw": q.draw, "drawMany": q.drawMany,
		"end": q.end, "release": q.release, "ask": q.ask, "revoke": q.revoke, "purge": q.purge, "due": q.due,
		"turn": q.turn, "pin": q.pin, "pinNow": q.pinNow, "pinShared": q.pinShared, "pinPurge": q.pinPurge, "lock": q.lock,
		"lockShared": q.lockShared,
	}
}

// SweepSessionsWith is SweepWith for the modes that keep locks in sessions.
func SweepSessionsWith(ctx context.Context, st driver.SessionStore, req driver.SweepRequest, happens func()) (res driver.SweepResult, err error) {
	var s *sessions
	switch st := st.(type) {
	case *forUpdateStore:
		s = st.sessions
	case *advisoryStore:
		s = st.sessions
	}
	err = s.onPool(ctx, func(ctx context.Context, c session) error {
		terms, err := s.window(ctx, c, req.After, req.Limit)
		if err != nil {
			return err
		}
		happens()
		res, err = s.clean(ctx, c, req, terms)
		return err
	})
	return res, err
}
