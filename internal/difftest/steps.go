package difftest

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/claim"
	"github.com/sqllock/sqllock/internal/tables"
)

// unit is the unit of the times in a run.
const unit = time.Second

// step does one step on the store and on the model.
func (r *run) step() {
	locker := r.rnd.IntN(lockers)
	r.lives()
	switch n := r.rnd.IntN(100); {
	case n < 20:
		r.grant(locker, r.batch(locker, true))
	case n < 40:
		r.enqueue(locker, r.batch(locker, false))
	case n < 58:
		r.release(locker)
	case n < 60:
		r.alternate()
	case n < 63:
		r.permits()
	case n < 64:
		r.permitsOfSeveral(locker)
	case n < 72:
		r.renew(locker)
	case n < 78:
		r.abandon(locker)
	case n < 79:
		r.revoke(locker)
	case n < 80:
		r.requestEnd(locker)
	case n < 82:
		r.sweep(locker)
	case n < 83:
		r.resume(locker)
	case n < 85:
		r.detach(locker)
	case n < 87:
		r.adopt(locker)
	case n < 88:
		r.setValue(locker)
	case n < 89:
		r.look(locker)
	case n < 90:
		r.die(locker)
	case n < 92:
		r.end(locker)
	case n < 93:
		r.guard(locker)
	case n < 94:
		r.resize(locker)
	case n < 95:
		r.together(locker)
	case n < 97:
		r.handOver()
	default:
		r.tick(time.Duration(r.rnd.IntN(5)) * unit)
	}
}

// some returns up to eight, most often one.
func (r *run) some() int {
	if r.rnd.IntN(2) == 0 {
		return 1
	}
	return 1 + r.rnd.IntN(8)
}

// request makes a new request.
func (r *run) request(locker int) driver.AcquireRequest {
	r.next++
	var acq driver.ID
	binary.BigEndian.PutUint64(acq[8:], r.next)
	q := driver.AcquireRequest{
		Name: fmt.Sprintf("name %c", "abcdefabcdefabcdefabcdefgh"[r.rnd.IntN(26)]), Acq: acq, Owner: fmt.Sprintf("owner %d", r.rnd.IntN(4)),
		TTL: time.Duration(1+r.rnd.IntN(20)) * unit, Shared: r.rnd.IntN(3) == 0,
		Life: time.Hour, Handed: time.Duration(1+r.rnd.IntN(5)) * unit,
	}
	if !q.Shared && r.rnd.IntN(3) == 0 {
		q.Permits = 2 + r.rnd.IntN(8)/6
	}
	if r.rnd.IntN(4) == 0 {
		q.Value = []byte{0, '"', byte(r.next)}
	}
	if r.rnd.IntN(8) == 0 {
		q.Carries = []driver.ID{{1}, {2}}
	}
	return q
}

// batch makes requests, some of them anew, in the order that a store wants. perName says that
// exclusive requests are distinct by name.
func (r *run) batch(locker int, perName bool) (reqs []driver.AcquireRequest) {
	for range r.some() {
		q := r.request(locker)
		// Nobody asks at once for a permit that it waits for: only a request that waits knows that
		// it keeps its place after a Resize.
		if old, ok := r.earlier(locker); ok && r.rnd.IntN(4) == 0 && !(perName && old.Permits != 0 && r.requested[old.Acq]) {
			q = old.AcquireRequest
		}
		if !slices.ContainsFunc(reqs, func(o driver.AcquireRequest) bool {
			return o.Acq == q.Acq || perName && o.Name == q.Name && (!o.Together() || !q.Together())
		}) {
			reqs = append(reqs, q)
		}
	}
	slices.SortStableFunc(reqs, func(a, b driver.AcquireRequest) int { return cmp.Compare(a.Name, b.Name) })
	for _, q := range reqs {
		r.made = append(r.made, made{q, locker})
	}
	if n := len(r.made); n > 60 {
		r.made = r.made[n-60:]
	}
	r.requests += len(reqs)
	return reqs
}

// earlier returns an earlier request of a locker.
func (r *run) earlier(locker int) (made, bool) {
	for range 10 {
		if len(r.made) == 0 {
			break
		}
		if m := r.made[r.rnd.IntN(len(r.made))]; m.locker == locker {
			return m, true
		}
	}
	return made{}, false
}

// permits ends what a name has, and then does steps with permits of it alone, so that few of
// them find something unusual.
func (r *run) permits() {
	const name = "name g"
	r.withdrawAll(name)
	for range 10 {
		locker := r.rnd.IntN(lockers)
		q := r.request(locker)
		q.Name, q.Shared, q.Permits, q.TTL = name, false, 1+r.rnd.IntN(3), q.TTL+20*unit
		if s := r.model.Names[name]; s != nil && s.Permits != 0 && r.rnd.IntN(20) > 0 {
			q.Permits = s.Permits
		}
		held := r.claims(name, func(c *claim.Claim) bool { return c.State == claim.Holding && c.Kind == claim.Permit })
		r.lives()
		switch n := r.rnd.IntN(10); {
		case n == 9 && r.rnd.IntN(3) == 0:
			r.tick(time.Duration(r.rnd.IntN(20)) * unit)
		case len(held) > 0 && (n < 3 || len(held) == q.Permits && r.model.Names[name].Waiting > 0 && n > 4):
			c := held[r.rnd.IntN(len(held))]
			r.releaseOne(r.lockerOf(&c), driver.ReleaseRequest{Name: name, Acq: c.Acq, Version: c.Token, Shared: true, Permit: true})
		case n == 4 && len(held) > 0: // the reply to a request is lost
			c := held[r.rnd.IntN(len(held))]
			q.Acq = c.Acq
			r.grant(r.lockerOf(&c), []driver.AcquireRequest{q})
		case len(held) < q.Permits && n < 9:
			r.grant(locker, r.known(locker, q))
		default:
			r.enqueue(locker, r.known(locker, q))
		}
		r.compare()
	}
}

// permitsOfSeveral ends what names have, and then grants and ends permits of them together.
func (r *run) permitsOfSeveral(locker int) {
	var reqs []driver.AcquireRequest
	for _, name := range []string{"name g", "name h"} {
		r.withdrawAll(name)
		q := r.request(locker)
		q.Name, q.Shared, q.Permits = name, false, 1+r.rnd.IntN(3)
		if s := r.model.Names[name]; s != nil && s.Permits != 0 {
			q.Permits = s.Permits
		}
		reqs = append(reqs, r.known(locker, q)...)
	}
	r.lives()
	r.grant(locker, reqs)
	r.compare()
	if r.rnd.IntN(3) == 0 {
		q := r.request(locker)
		q.Name = reqs[r.rnd.IntN(len(reqs))].Name
		r.enqueue(locker, r.known(locker, q))
		r.compare()
	}
	var terms []driver.ReleaseRequest
	for _, q := range reqs {
		for _, c := range r.claims(q.Name, func(c *claim.Claim) bool { return c.Acq == q.Acq && c.State == claim.Holding }) {
			terms = append(terms, driver.ReleaseRequest{Name: q.Name, Acq: q.Acq, Version: c.Token, Shared: true, Permit: true})
		}
	}
	r.free(locker, terms)
}

// alternate has callers lock a name one after the other: each releases it, and somebody asks for it at once. It may
// be free by then.
func (r *run) alternate() {
	const name = "name h"
	r.withdrawAll(name)
	for range 10 {
		r.lives()
		s, holder := r.model.Names[name], -1
		if s != nil && s.Acq != (driver.ID{}) {
			holder = r.lockerOf(&claim.Claim{Party: s.Party})
		}
		if holder >= 0 && r.rnd.IntN(2) == 0 {
			r.releaseOne(holder, driver.ReleaseRequest{Name: name, Acq: s.Acq, Version: s.Version})
		} else {
			locker := r.rnd.IntN(lockers)
			q := r.request(locker)
			q.Name, q.Shared, q.Permits = name, false, 0
			r.enqueue(locker, r.known(locker, q))
		}
		r.compare()
	}
}

// withdrawAll ends all claims of a name.
func (r *run) withdrawAll(name string) {
	for _, c := range r.claims(name, func(*claim.Claim) bool { return true }) {
		r.withdraw(r.lockerOf(&c), []driver.ReleaseRequest{{Name: name, Acq: c.Acq}})
		r.compare()
	}
}

// known notes a request, and makes a batch of it.
func (r *run) known(locker int, q driver.AcquireRequest) []driver.AcquireRequest {
	r.requests++
	r.made = append(r.made, made{q, locker})
	return []driver.AcquireRequest{q}
}

// claims returns those claims of a name that pick picks.
func (r *run) claims(name string, pick func(c *claim.Claim) bool) (picked []claim.Claim) {
	s := r.model.Names[name]
	for i := 0; s != nil && i < len(s.Claims); i++ {
		if pick(&s.Claims[i]) {
			picked = append(picked, s.Claims[i])
		}
	}
	return picked
}

// lockerOf returns which locker a claim is of.
func (r *run) lockerOf(c *claim.Claim) int {
	return slices.IndexFunc(r.clients, func(other driver.Client) bool { return other.Instance == c.Locker })
}

func (r *run) grant(locker int, reqs []driver.AcquireRequest) {
	plain := make([]driver.AcquireRequest, len(reqs))
	want := make([]driver.AcquireResult, len(reqs))
	done := make([]bool, len(reqs))
	for i := range reqs {
		reqs[i].Floor = r.floor(&reqs[i])
		plain[i] = reqs[i]
		plain[i].Life, plain[i].Handed, plain[i].Carries = 0, 0, nil
		want[i], done[i] = r.model.Grant(r.clients[locker], &reqs[i])
	}
	for i := range reqs {
		if !done[i] {
			want[i] = r.model.Acquire(r.clients[locker], &reqs[i], false)
		}
	}
	r.note("grant", "%d: %v", locker, names(reqs))
	got, err := r.stores[locker].Acquire(r.Context(), plain)
	for i := range got {
		got[i].Holder = driver.Holder{} // for people
	}
	same(r, "Acquire", got, want, err)
}

// floor returns the lowest version that a request asks for, as a rule none.
func (r *run) floor(q *driver.AcquireRequest) int64 {
	if q.Together() || r.rnd.IntN(4) > 0 {
		return 0
	}
	return r.model.Now + int64(r.rnd.IntN(4)-1)*unit.Microseconds()
}

// together acquires several names, all of them or none.
func (r *run) together(locker int) {
	var reqs []driver.AcquireRequest
	for _, q := range r.batch(locker, true) {
		q.Life, q.Handed, q.Carries, q.All, q.Permits = 0, 0, nil, true, 0 // nobody asks for several permits together
		q.Floor = r.floor(&q)
		if n := len(reqs); n == 0 || reqs[n-1].Name != q.Name && reqs[n-1].Shared == q.Shared {
			reqs = append(reqs, q)
		}
	}
	r.note("together", "%d: %v", locker, names(reqs))
	want := r.model.AcquireAll(r.clients[locker], reqs)
	got, err := r.stores[locker].Acquire(r.Context(), reqs)
	for i := range got {
		got[i].Holder = driver.Holder{}
	}
	same(r, "Acquire of all", got, want, err)
}

func (r *run) enqueue(locker int, reqs []driver.AcquireRequest) {
	// A store that has a beat is alive.
	r.note("line", "%d: %v", locker, names(reqs))
	got, err := r.stores[locker].Acquire(r.Context(), reqs)
	r.lives()
	want := make([]driver.AcquireResult, len(reqs))
	for _, known := range []bool{false, true} { // new claims are entered first
		for i := range reqs {
			if r.requested[reqs[i].Acq] == known {
				want[i] = r.model.Acquire(r.clients[locker], &reqs[i], true)
			}
		}
	}
	for i := range reqs {
		r.requested[reqs[i].Acq] = true
	}
	for i := range got {
		got[i].Holder = driver.Holder{}
	}
	same(r, "Acquire", got, want, err)
}

// terms returns the terms of a locker that the model knows, and some that are over.
func (r *run) terms(locker int) (terms []driver.ReleaseRequest) {
	for range r.some() {
		m, ok := r.earlier(locker)
		if !ok {
			continue
		}
		q := driver.ReleaseRequest{Name: m.Name, Acq: m.Acq, Shared: m.Together(), Permit: m.Permits != 0, Version: 1}
		if s := r.model.Names[m.Name]; s != nil {
			q.Version = s.Version
			for i := range s.Claims {
				if s.Claims[i].Acq == m.Acq {
					q.Version = s.Claims[i].Token
				}
			}
			q.Version = max(q.Version, 1) // one without a version is another request
		}
		if !slices.ContainsFunc(terms, func(o driver.ReleaseRequest) bool {
			return o.Acq == q.Acq || o.Name == q.Name && (!o.Shared || !q.Shared)
		}) {
			terms = append(terms, q)
		}
	}
	slices.SortStableFunc(terms, func(a, b driver.ReleaseRequest) int { return cmp.Compare(a.Name, b.Name) })
	r.requests += len(terms)
	return terms
}

func (r *run) release(locker int) {
	reqs := r.terms(locker)
	for i := range reqs {
		if r.rnd.IntN(5) == 0 {
			reqs[i].MinHold = time.Duration(r.rnd.IntN(20)) * unit
		}
		reqs[i].Awaited, reqs[i].Guarded = r.rnd.IntN(3) == 0, r.rnd.IntN(5) == 0
	}
	r.free(locker, reqs)
}

// free ends terms.
func (r *run) free(locker int, reqs []driver.ReleaseRequest) {
	r.note("release", "%d: %+v", locker, reqs)
	want := make([]driver.ReleaseResult, len(reqs))
	for i := range reqs {
		want[i] = r.model.Free(r.clients[locker], &reqs[i])
	}
	got, err := r.stores[locker].Release(r.Context(), reqs)
	if len(reqs) == 0 {
		return
	}
	same(r, "Release", got, want, err)
}

// handOver has the holder of a name that others wait for release it.
func (r *run) handOver() {
	var reqs []driver.ReleaseRequest
	var holders []int
	for _, name := range slices.Sorted(maps.Keys(r.model.Names)) {
		s := r.model.Names[name]
		holder := slices.IndexFunc(r.clients, func(c driver.Client) bool { return c.Instance == s.Locker })
		if holder >= 0 && s.Acq != (driver.ID{}) && s.Waiting > 0 {
			reqs, holders = append(reqs, driver.ReleaseRequest{Name: name, Acq: s.Acq, Version: s.Version}), append(holders, holder)
		}
	}
	if len(reqs) == 0 {
		return
	}
	i := r.rnd.IntN(len(reqs))
	r.releaseOne(holders[i], reqs[i])
}

// releaseOne has a holder release its term.
func (r *run) releaseOne(locker int, req driver.ReleaseRequest) {
	req.Awaited = r.rnd.IntN(2) == 0
	if r.rnd.IntN(4) == 0 {
		req.MinHold = time.Duration(r.rnd.IntN(20)) * unit
	}
	r.requests++
	r.note("hand over", "%d: %+v", locker, req)
	want := r.model.Free(r.clients[locker], &req)
	got, err := r.stores[locker].Release(r.Context(), []driver.ReleaseRequest{req})
	same(r, "Release", got, []driver.ReleaseResult{want}, err)
}

// end ends a term in a transaction of the application, which commits or not.
func (r *run) end(locker int) {
	terms := r.terms(locker)
	if len(terms) == 0 || terms[0].Shared {
		return
	}
	m := terms[0]
	req := driver.GuardRequest{Name: m.Name, Acq: m.Acq, Version: m.Version, Ends: true, MinHold: time.Duration(r.rnd.IntN(2)*r.rnd.IntN(20)) * unit}
	before, want := claim.Row{}, driver.Fenced
	s := r.model.Names[m.Name]
	if s != nil {
		before = s.Row
		if s.End(req.Acq, req.Version, req.MinHold.Microseconds(), r.model.Now) {
			want = driver.Guarded
		}
		if want == driver.Guarded && s.Waiting > 0 {
			want = driver.Awaited
		}
	}
	commits := r.rnd.IntN(4) > 0
	if !commits && s != nil {
		s.Row = before
	}
	r.note("end", "%d: %+v, commits: %v", locker, req, commits)
	got, err := r.endTerm(r.stores[locker], req, commits)
	if got == driver.PassedOver { // who cannot look beside the transaction does not know more
		got = driver.Fenced
	}
	same(r, "Guard that ends", got, want, err)
}

// guard guards a term that is held together with others, in a transaction that is rolled back.
func (r *run) guard(locker int) {
	terms := r.terms(locker)
	if len(terms) == 0 || !terms[0].Shared {
		return
	}
	m := terms[0]
	want := driver.Fenced
	if s := r.model.Names[m.Name]; s != nil && slices.ContainsFunc(s.Claims, func(c claim.Claim) bool {
		return c.Acq == m.Acq && c.State == claim.Holding && c.Token == m.Version
	}) {
		want = driver.Guarded
	}
	req := driver.GuardRequest{Name: m.Name, Acq: m.Acq, Version: m.Version, Shared: true}
	r.note("guard", "%d: %+v", locker, req)
	got, err := r.endTerm(r.stores[locker], req, false)
	same(r, "Guard", got, want, err)
}

// resize changes how many permits a name has.
func (r *run) resize(locker int) {
	name, permits := r.request(locker).Name, 1+r.rnd.IntN(4)
	r.note("resize", "%d: %s to %d", locker, name, permits)
	r.model.Visit(r.clients[locker], name, func(v *claim.Visit) { v.Resize(permits) })
	if err := r.stores[locker].(driver.PermitStore).Resize(r.Context(), name, permits); err != nil {
		r.Errorf("Resize: %v", err)
	}
}

// endTerm has a store guard a term in a transaction, or end it.
func (r *run) endTerm(s driver.Store, req driver.GuardRequest, commits bool) (driver.GuardStatus, error) {
	tx, err := r.DB.BeginTx(r.Context(), nil)
	if err != nil {
		return 0, err
	}
	status, err := s.Guard(r.Context(), tx, req)
	if err != nil || !commits {
		_ = tx.Rollback()
		return status, err
	}
	return status, tx.Commit()
}

func (r *run) renew(locker int) {
	terms := r.terms(locker)
	if len(terms) == 0 {
		return
	}
	reqs := make([]driver.RenewRequest, len(terms))
	want := make([]driver.RenewStatus, len(terms))
	for i, m := range terms {
		reqs[i] = driver.RenewRequest{Name: m.Name, Acq: m.Acq, Version: m.Version, TTL: time.Duration(r.rnd.IntN(20)) * unit, Holds: 1 + r.rnd.IntN(3), Shared: m.Shared}
		want[i] = r.model.Renew(&reqs[i])
	}
	r.note("renew", "%d: %+v", locker, reqs)
	got, err := r.stores[locker].Renew(r.Context(), reqs, r.rnd.IntN(2) == 0)
	same(r, "Renew", got.Status, want, err)
}

func (r *run) abandon(locker int) {
	var reqs []driver.ReleaseRequest
	for _, m := range r.terms(locker) {
		reqs = append(reqs, driver.ReleaseRequest{Name: m.Name, Acq: m.Acq, Shared: m.Shared, MinHold: time.Duration(r.rnd.IntN(2)*r.rnd.IntN(20)) * unit,
			Settle: r.rnd.IntN(3) == 0})
	}
	r.withdraw(locker, reqs)
}

// withdraw has a locker end whatever acquisitions have.
func (r *run) withdraw(locker int, reqs []driver.ReleaseRequest) {
	r.note("abandon", "%d: %+v", locker, reqs)
	for i := range reqs {
		r.model.Visit(r.clients[locker], reqs[i].Name, func(v *claim.Visit) { v.Withdraw(reqs[i].Acq, reqs[i].MinHold.Microseconds(), false) })
	}
	if _, err := r.stores[locker].Release(r.Context(), reqs); err != nil {
		r.Errorf("Release: %v", err)
	}
}

func (r *run) revoke(locker int) {
	m, ok := r.earlier(locker)
	if !ok {
		return
	}
	req := driver.RevokeRequest{Name: m.Name}
	s := r.model.Names[m.Name]
	if s != nil && r.rnd.IntN(2) == 0 {
		req.Version = s.Version - int64(r.rnd.IntN(2))
	}
	want := false
	if s == nil || req.Version == 0 || req.Version == s.Version {
		r.model.Visit(r.clients[locker], m.Name, func(v *claim.Visit) { want, _ = v.Revoke() })
	}
	r.note("revoke", "%+v", req)
	got, err := r.stores[locker].Revoke(r.Context(), []driver.RevokeRequest{req})
	if err != nil || got[0].Revoked != want {
		r.Errorf("Revoke: %+v, %v, want %v", got, err, want)
	}
}

// requestEnd asks the holder of a name to end its term, which may be detached; most often one that is
// held by one.
func (r *run) requestEnd(locker int) {
	var all, held []string
	for _, name := range slices.Sorted(maps.Keys(r.model.Names)) {
		s := r.model.Names[name]
		if all = append(all, name); s.Acq != (driver.ID{}) && s.Expires > r.model.Now {
			held = append(held, name)
		}
	}
	if len(held) > 0 && r.rnd.IntN(5) > 0 {
		all = held
	}
	if len(all) == 0 {
		return
	}
	name := all[r.rnd.IntN(len(all))]
	s := r.model.Names[name]
	req := driver.RevokeRequest{Name: name, Version: s.Version - int64(r.rnd.IntN(4)/3), Politely: true}
	want := s.Asked
	if s.Acq != (driver.ID{}) && s.Expires > r.model.Now && s.Version == req.Version {
		s.Asked = s.Version
	}
	r.note("ask", "%+v", req)
	got, err := r.stores[locker].Revoke(r.Context(), []driver.RevokeRequest{req})
	if err != nil || got[0].Revoked || got[0].Row.Asked != want || got[0].Row.Holder.Version != s.Version {
		r.Errorf("Revoke that asks: %+v, %v, want %d", got, err, want)
	}
}

func (r *run) sweep(locker int) {
	retention := time.Duration(r.rnd.IntN(100)) * unit
	r.note("sweep", "%v", retention)
	purged, crashed := r.model.Sweep(r.clients[locker], retention)
	got, err := r.stores[locker].Sweep(r.Context(), driver.SweepRequest{Limit: 1000, Retention: retention})
	var acqs []driver.ID
	for _, c := range got.Crashed {
		acqs = append(acqs, c.Holder.Acq)
	}
	same(r, "purged", got.Purged, purged, err)
	same(r, "crashed", acqs, crashed, err)
}

func (r *run) resume(locker int) {
	q := r.request(locker)
	s := r.model.Names[q.Name]
	if s == nil || s.Version <= 1 { // a request that resumes nothing is another one
		return
	}
	if s.Acq != (driver.ID{}) && r.rnd.IntN(4) > 0 {
		q.Owner = s.Owner
	}
	req := driver.AcquireRequest{Name: q.Name, Acq: q.Acq, Owner: q.Owner, Resumes: s.Version - int64(r.rnd.IntN(5)/4), TTL: q.TTL, Value: q.Value}
	q.Shared, q.Permits, q.Carries = false, 0, nil
	var a claim.Answer
	r.model.Visit(r.clients[locker], q.Name, func(v *claim.Visit) {
		a, _ = v.Resume(req.Resumes, tables.Request(r.clients[locker], &q, false))
	})
	r.note("resume", "%d: %+v", locker, req)
	got, err := r.stores[locker].Acquire(r.Context(), []driver.AcquireRequest{req})
	if err != nil || got[0].Granted != (a.Outcome == claim.Granted) || got[0].Version != a.Token {
		r.Errorf("Acquire: %+v, %v, want %+v", got, err, a)
	}
}

// detach detaches a term of a locker, or one that is over; now and then once more.
func (r *run) detach(locker int) {
	terms := r.terms(locker)
	if len(terms) == 0 || terms[0].Shared {
		return
	}
	req := terms[0]
	req.To, req.TTL = keyOf(req.Acq), time.Duration(1+r.rnd.IntN(20))*unit
	req.Guarded = r.rnd.IntN(2) == 0
	var want driver.ReleaseResult
	r.model.Visit(r.clients[locker], req.Name, func(v *claim.Visit) {
		want.Freed, _ = v.Detach(req.Acq, req.Version, req.To, req.TTL.Microseconds())
	})
	r.note("detach", "%d: %+v", locker, req)
	got, err := r.stores[locker].Release(r.Context(), []driver.ReleaseRequest{req})
	same(r, "Release that detaches", got, []driver.ReleaseResult{want}, err)
}

// keyOf is the key of a term that is detached.
func keyOf(acq driver.ID) driver.ID {
	acq[0] = 0xdd
	return acq
}

// adopt adopts a detached term, or asks for one that was never detached.
func (r *run) adopt(locker int) {
	q := r.request(locker)
	if old, ok := r.earlier(locker); ok && r.rnd.IntN(5) == 0 && !old.Together() {
		q = old.AcquireRequest
	}
	q.Shared, q.Permits, q.Carries = false, 0, nil
	key := keyOf(driver.ID{1})
	for _, name := range slices.Sorted(maps.Keys(r.model.Names)) {
		s := r.model.Names[name]
		if s.Locker == (driver.ID{}) && s.Acq != (driver.ID{}) && r.rnd.IntN(4) > 0 {
			q.Name, key = name, s.Acq
		}
	}
	req := driver.AcquireRequest{Name: q.Name, Acq: q.Acq, Owner: q.Owner, Adopts: key, TTL: q.TTL, Value: q.Value}
	var a claim.Answer
	r.model.Visit(r.clients[locker], q.Name, func(v *claim.Visit) {
		a, _ = v.Adopt(key, tables.Request(r.clients[locker], &q, false))
	})
	r.made = append(r.made, made{q, locker})
	r.note("adopt", "%d: %+v", locker, req)
	got, err := r.stores[locker].Acquire(r.Context(), []driver.AcquireRequest{req})
	if err != nil || got[0].Granted != (a.Outcome == claim.Granted) || got[0].Found != a.Found || got[0].Version != a.Token {
		r.Errorf("Acquire that adopts: %+v, %v, want %+v", got, err, a)
	}
}

func (r *run) setValue(locker int) {
	m, ok := r.earlier(locker)
	s := r.model.Names[m.Name]
	if !ok || s == nil {
		return
	}
	req := driver.SetValueRequest{Name: m.Name, Acq: m.Acq, Version: s.Version, Value: []byte{byte(r.next)}, Rising: r.rnd.IntN(2) == 0}
	want := s.Acq == req.Acq && s.Expires > r.model.Now &&
		(!req.Rising || len(s.Value) == 0 || bytes.Compare(s.Value, req.Value) <= 0)
	if want {
		s.Value = req.Value
	}
	r.note("value", "%+v", req)
	got, err := r.stores[locker].SetValue(r.Context(), req)
	same(r, "SetValue", got, want, err)
}

// look compares what is told of names.
func (r *run) look(locker int) {
	var all []string
	for c := 'a'; c <= 'h'; c++ {
		all = append(all, fmt.Sprintf("name %c", c))
	}
	r.note("look", "")
	slots, most := r.rnd.IntN(2) == 0, 0
	if !slots {
		most = r.rnd.IntN(4)
	}
	res, err := r.stores[locker].Read(r.Context(), driver.ReadRequest{Names: all, Slots: slots, Holders: most, Asked: true})
	if err != nil {
		r.Errorf("Read: %v", err)
		return
	}
	for i, name := range all {
		s := r.model.Names[name]
		if s == nil {
			s = new(tables.Name)
		}
		readers, slots := 0, make(map[int]driver.ID)
		r.seesTogether(&res.Rows[i], s, most)
		for k := range s.Claims {
			switch c := &s.Claims[k]; {
			case c.State != claim.Holding || c.Expires <= r.model.Now:
			case c.Kind == claim.Permit:
				slots[c.Slot] = c.Acq
			default:
				readers++
			}
		}
		g := &res.Rows[i]
		for _, slot := range g.Slots {
			if slots[slot.Slot] != slot.Acq || len(g.Slots) != len(slots) {
				r.Errorf("Read of %s: slots %+v, want %v", name, g.Slots, slots)
			}
		}
		if g.Name != name || g.Readers != readers || g.PermitsHeld != len(slots) || g.Permits != s.Permits || g.Together() == 0 && g.Holder.Acq != s.Acq || g.Holder.Version != s.Version || g.Gate != s.NotBefore ||
			g.Detached != (s.Acq != driver.ID{} && s.Locker == driver.ID{}) || g.Revoked != s.Revoked || g.Asked != s.Asked || g.Now != r.model.Now {
			r.Errorf("Read of %s: %+v, want %+v", name, g, s)
		}
	}
}

// seesTogether compares the first of those who hold a name together, most of them at most.
func (r *run) seesTogether(g *driver.Row, s *tables.Name, most int) {
	claims := slices.Clone(s.Claims)
	slices.SortFunc(claims, func(a, b claim.Claim) int {
		return cmp.Or(cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.Seq, b.Seq))
	})
	var want []driver.Slot
	for k := range claims {
		if c := &claims[k]; c.State == claim.Holding && c.Expires > r.model.Now {
			want = append(want, driver.Slot{Slot: c.Slot, Holder: driver.Holder{Acq: c.Acq, Owner: c.Owner, Label: c.Label,
				Version: c.Token, Since: c.Since, Until: c.Expires, Shared: true, Permit: c.Kind == claim.Permit}})
		}
	}
	if want = want[:min(len(want), most)]; !slices.Equal(g.Holders, want) {
		r.Errorf("Read of %s: holders %+v, want %+v", g.Name, g.Holders, want)
	}
}

// die ends the beat of a locker, now or long ago, or lets it come back.
func (r *run) die(locker int) {
	until := r.model.Now + []int64{-1, -time.Minute.Microseconds() - 1, time.Hour.Microseconds()}[r.rnd.IntN(3)]
	r.note("beat", "of %d until %d", locker, until)
	query := `UPDATE sqllock_waiter SET expires_at = ` + r.Parameter + ` WHERE ` + fmt.Sprintf(r.ID, "locker") + ` = '` + r.clients[locker].Instance.String() + `'`
	if _, err := r.DB.ExecContext(r.Context(), query, until); err != nil {
		r.Fatal(err)
	}
}

func names(reqs []driver.AcquireRequest) (texts []string) {
	for _, q := range reqs {
		kind := "alone"
		switch {
		case q.Shared:
			kind = "shared"
		case q.Permits != 0:
			kind = fmt.Sprintf("of %d", q.Permits)
		}
		texts = append(texts, fmt.Sprintf("%s %s by %x for %v", q.Name, kind, q.Acq[14:], q.TTL))
	}
	return texts
}
