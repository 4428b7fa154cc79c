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
	now    int64 // µs
	names  map[string]*table
	events []history.Event
	ids    int
	beats  map[string]int64
}

// table is a name.
type table struct {
	row    claim.Row
	claims []claim.Claim
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
	return &story{now: 1_000 * second, names: make(map[string]*table), beats: map[string]int64{one: 1 << 60, two: 1 << 60}}
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
	var answer history.Answer
	do(v, &answer)
	t.write(v.Changes())
	s.now += after
	if e.Ret, e.Requests = true, []history.Request{{Answer: answer}}; lost {
		e.Err, e.Requests = "reset", nil
	}
	s.say(e)
	return answer
}

func (t *table) write(c claim.Changes) {
	t.row = c.Row
	t.claims = slices.DeleteFunc(slices.Clone(t.claims), func(o claim.Claim) bool { return slices.Contains(c.Delete, o.Acq) })
	t.claims = append(t.claims, c.Insert...)
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
		if a.Shared && i >= 0 && t.claims[i].Renew(a.Token, a.TTL, a.Holds, s.now) || !a.Shared && t.row.Renew(id(a.Acq), a.Token, a.TTL, a.Holds, s.now) {
			to.Status = "renewed"
		}
		*v = *claim.NewVisit(t.row, t.claims)
	})
}

// rows takes a snapshot.
func (s *story) rows() {
	e := history.Event{Op: history.Rows, Beats: s.beats, Until: (s.now + 100) * 1000}
	for name, t := range s.names {
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
