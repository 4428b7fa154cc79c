package replay_test

import (
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/internal/claim"
)

// story is a history that a database in memory writes. It does one call at a time, each at a moment
// between its begin and its end.
type story struct {
	now     int64 // µs
	names   map[string]*table
	events  []history.Event
	changes []history.Change
	ids     int

	sees    func(*claim.Visit) *claim.Visit // a database with a bug shows a visit something else
	writes  func(*claim.Changes)            // or writes something else
	gone    bool                            // the reaper takes all Lockers for dead
	crashes bool                            // a crash undoes what calls change
	vain    bool                            // calls are answered with an error that says that nothing was done
	revives bool                            // renewals do not ask whether a term has expired
}

// table is a name.
type table struct {
	row    claim.Row
	claims []claim.Claim
	exists bool
}

const (
	second = int64(1_000_000)
	before = int64(300) // from the begin of a call to its moment
	after  = int64(200) // from there to its end
)

// Lockers.
var (
	one = acq(101)
	two = acq(102)
)

// acq is the ID of an acquisition.
func acq(n uint64) string {
	var id driver.ID
	binary.BigEndian.PutUint64(id[8:], n)
	return id.String()
}

func newStory() *story {
	s := &story{now: 1_000 * second, names: make(map[string]*table)}
	s.beat(one, 1<<60)
	s.beat(two, 1<<60)
	s.now += 10 * second
	return s
}

// beat makes a Locker count as alive until a time.
func (s *story) beat(locker string, until int64) {
	s.changes = append(s.changes, history.Change{At: s.now, Tx: -1, Table: history.WaiterTable, New: &history.Record{Locker: locker, Expires: until}})
}

// end returns the events, with what the database has written down.
func (s *story) end() events {
	s.say(history.Event{Op: history.Changed, Changes: s.changes})
	return s.events
}

func (s *story) table(name string) *table {
	if s.names[name] == nil {
		s.names[name] = new(table)
	}
	return s.names[name]
}

func id(text string) (id driver.ID) {
	if text != "" && id.UnmarshalText([]byte(text)) != nil {
		panic(text)
	}
	return id
}

// say writes an event of now.
func (s *story) say(e history.Event) {
	e.T, e.Wall = s.now*1000, s.now
	s.events = append(s.events, e)
}

// call makes a call about one name. The answer of a call that is lost is not known.
func (s *story) call(locker, what string, a history.Request, lost bool, do func(v *claim.Visit, a *history.Answer)) history.Answer {
	s.ids++
	e := history.Event{Op: history.Requested, ID: "ask" + strconv.Itoa(s.ids), Reason: what, Locker: locker, Requests: []history.Request{a}}
	s.say(e)
	s.now += before
	t := s.table(a.Name)
	v := claim.NewVisit(t.row, t.claims)
	v.Now, v.By = s.now, id(locker)
	v.Alive, v.Locked = func(driver.ID) bool { return true }, func(driver.ID) bool { return true }
	if s.sees != nil {
		v = s.sees(v)
	}
	var answer history.Answer
	do(v, &answer)
	changes := v.Changes()
	if s.writes != nil {
		s.writes(&changes)
	}
	if changes.Changed && !s.crashes {
		s.write(a.Name, changes)
	}
	s.now += after
	if e.Ret, e.Requests = true, []history.Request{{Answer: answer}}; lost || s.vain {
		e.Err, e.Requests, e.Refuse = "reset", nil, s.vain
	}
	s.say(e)
	return answer
}

// write writes a table, and writes that down.
func (s *story) write(name string, c claim.Changes) {
	t := s.table(name)
	was := record(name, &t.row)
	if !t.exists {
		was = nil
	}
	t.row, t.exists = c.Row, true
	s.note(history.LockTable, was, record(name, &t.row))
	t.claims = slices.DeleteFunc(slices.Clone(t.claims), func(o claim.Claim) bool {
		gone := slices.Contains(c.Delete, o.Acq)
		if gone {
			s.note(history.ClaimTable, claimed(name, &o), nil)
		}
		return gone
	})
	for i := range c.Insert {
		s.note(history.ClaimTable, nil, claimed(name, &c.Insert[i]))
	}
	t.claims = append(t.claims, c.Insert...)
}

func (s *story) note(table string, was, is *history.Record) {
	s.changes = append(s.changes, history.Change{At: s.now + after/4, Tx: int64(s.ids), Table: table, Old: was, New: is})
}

func record(name string, r *claim.Row) *history.Record {
	return &history.Record{
		Name: name, Version: r.Version, Acq: text(r.Acq), Owner: r.Owner, Locker: text(r.Locker), Holds: r.Holds, Since: r.Since,
		Expires: r.Expires, Before: r.NotBefore, Permits: r.Permits, Waiting: r.Waiting, Holding: r.Holding, Seq: r.Seq,
	}
}

func claimed(name string, c *claim.Claim) *history.Record {
	return &history.Record{
		Name: name, Acq: text(c.Acq), Owner: c.Owner, Locker: text(c.Locker), State: int(c.State), Kind: int(c.Kind), Slot: c.Slot, Seq: c.Seq,
		Token: c.Token, Holds: c.Holds, TTL: c.TTL, Handed: c.Handed, Since: c.Since, Expires: c.Expires,
	}
}

// acquire requests for a name. It is a client's call, too, if it is granted.
func (s *story) acquire(locker string, a history.Request, lost bool) history.Answer {
	a.Owner = a.Acq
	a.TTL, a.Handed = second, second
	return s.call(locker, history.Acquire, a, lost, func(v *claim.Visit, to *history.Answer) {
		r := claim.Request{Party: claim.Party{Acq: id(a.Acq), Locker: id(locker), Owner: a.Owner}, Limits: claim.Limits{TTL: a.TTL, Handed: a.Handed}, Waits: a.Waits}
		switch {
		case a.Shared:
			r.Kind = claim.Shared
		case a.Permits > 0:
			r.Kind, r.Permits = claim.Permit, a.Permits
		}
		got := v.Acquire(r)
		*to = history.Answer{Now: v.Now, Granted: got.Outcome == claim.Granted, Ahead: got.Outcome == claim.Queued && !got.First}
		if to.Granted {
			to.Found, to.Got, to.Slot, to.Expires = got.Found, got.Token, got.Slot, got.Expires
		}
	})
}

func (s *story) release(locker string, a history.Request, lost bool) history.Answer {
	return s.call(locker, history.Release, a, lost, func(v *claim.Visit, to *history.Answer) {
		to.Freed, _ = v.Release(id(a.Acq), a.Token, a.MinHold, false)
		to.Handed = v.HandedOver()
		for _, h := range v.HandOvers() {
			to.Next = append(to.Next, history.Next{Acq: h.Acq.String(), Token: h.Token, Slot: h.Slot, Expires: h.Expires, Now: v.Now})
		}
	})
}

func (s *story) withdraw(locker string, a history.Request, lost bool) {
	s.call(locker, history.Withdraw, a, lost, func(v *claim.Visit, _ *history.Answer) { v.Withdraw(id(a.Acq), 0, false) })
}

// renew renews a term.
func (s *story) renew(locker string, a history.Request, lost bool) history.Answer {
	a.TTL, a.Holds = second, 1
	t := s.table(a.Name)
	return s.call(locker, history.Renew, a, lost, func(v *claim.Visit, to *history.Answer) {
		to.Now, to.Status = s.now, "gone"
		i := slices.IndexFunc(t.claims, func(c claim.Claim) bool { return c.Acq == id(a.Acq) })
		t.claims = slices.Clone(t.claims)
		row := record(a.Name, &t.row)
		if s.revives {
			t.row.Expires = s.now + 1
		}
		switch {
		case a.Shared && i >= 0:
			c := claimed(a.Name, &t.claims[i])
			if t.claims[i].Renew(a.Token, a.TTL, a.Holds, s.now) {
				to.Status = "renewed"
				s.note(history.ClaimTable, c, claimed(a.Name, &t.claims[i]))
			}
		case !a.Shared && t.row.Renew(id(a.Acq), a.Token, a.TTL, a.Holds, s.now):
			to.Status = "renewed"
			s.note(history.LockTable, row, record(a.Name, &t.row))
		}
		*v = *claim.NewVisit(t.row, t.claims)
	})
}

// sweep is a pass of the reaper over a name. It leaves it out in the history of requests if there is
// no Locker.
func (s *story) sweep(locker, name string) {
	e := history.Event{Op: history.Requested, ID: "sweep" + strconv.FormatInt(s.now, 10), Reason: history.Sweep, Locker: locker}
	if locker != "" {
		s.say(e)
	}
	s.now += before
	s.ids++
	t := s.table(name)
	v := claim.NewVisit(t.row, t.claims)
	v.Now = s.now
	v.Alive, v.Locked = func(driver.ID) bool { return true }, func(driver.ID) bool { return true }
	v.Sweep(func(driver.ID) bool { return s.gone })
	s.write(name, v.Changes())
	s.now += after
	if e.Ret = true; locker != "" {
		s.say(e)
	}
}

// forget takes a claim out of the queue that nobody wants, in a call that waits for another name.
func (s *story) forget(locker string, a, other history.Request) {
	e := history.Event{Op: history.Requested, ID: "forget" + strconv.FormatInt(s.now, 10), Reason: history.Acquire, Locker: locker, Requests: []history.Request{other}}
	s.say(e)
	s.now += before
	s.ids++
	t := s.table(a.Name)
	v := claim.NewVisit(t.row, t.claims)
	v.Now = s.now
	v.Alive, v.Locked = func(driver.ID) bool { return true }, func(driver.ID) bool { return true }
	v.Forget(id(a.Acq))
	s.write(a.Name, v.Changes())
	s.now += after
	e.Ret, e.Err, e.Requests = true, "reset", nil
	s.say(e)
}

// rows takes a snapshot.
func (s *story) rows() {
	e := history.Event{Op: history.Rows, Until: (s.now + 100) * 1000}
	for name, t := range s.names {
		if !t.exists {
			continue
		}
		r := history.Row{
			Name: name, Version: t.row.Version, Acq: text(t.row.Acq), Owner: t.row.Owner, Locker: text(t.row.Locker), Holds: t.row.Holds, Since: t.row.Since,
			Expires: t.row.Expires, Before: t.row.NotBefore, Permits: t.row.Permits, Waiting: t.row.Waiting, Holding: t.row.Holding, Seq: t.row.Seq,
		}
		for _, c := range t.claims {
			r.Claims = append(r.Claims, history.Claim{
				Acq: text(c.Acq), Holding: c.State == claim.Holding, Kind: int(c.Kind), Slot: c.Slot, Seq: c.Seq, Token: c.Token, Holds: c.Holds,
				TTL: c.TTL, Handed: c.Handed, Since: c.Since, Expires: c.Expires, Locker: text(c.Locker), Owner: c.Owner,
			})
		}
		e.Names = append(e.Names, r)
	}
	s.say(e)
	s.now += 1000
}

func text(id driver.ID) string {
	if id == (driver.ID{}) {
		return ""
	}
	return id.String()
}

// granted tells that a client was granted a lease just now, and looks at it.
func (s *story) granted(a history.Request, token int64, slot int) {
	e := history.Event{Op: history.Lock, ID: "lock" + a.Acq, Lease: a.Acq, Owner: a.Acq, Name: a.Name, Shared: a.Shared, Permit: a.Permits > 0, Slot: slot, Token: token}
	s.say(e)
	e.Ret = true
	s.say(e)
	s.now += 1000
	s.look(a)
}

func (s *story) look(a history.Request) {
	s.say(history.Event{Op: history.Look, Lease: a.Acq, Name: a.Name, Until: s.now * 1000, OK: true, Left: 1000})
	s.now += 1000
}
