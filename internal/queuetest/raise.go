package queuetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// raiseTests are about the versions that a quorum raises on its nodes.
var raiseTests = map[string]func(*testing.T, *suite, string){
	"a raise lifts the version of its own live term and of no other": func(t *testing.T, s *suite, name string) {
		for i, c := range raiseCases {
			h := s.take(t, writer(fmt.Sprintf("%s-%d", name, i)))
			req := driver.RaiseRequest{Name: h.Name, Acq: h.Acq, Version: h.Version}
			if c.change != nil {
				c.change(t, s, h, &req)
			}
			if c.lifted {
				s.raises(t, c.what, []bool{true}, req)
				if r := s.look(t, h.Name); r.Holder.Acq != h.Acq || r.Holder.Version != req.Version || r.Holder.Until != h.Now+minute.Microseconds() {
					t.Errorf("%s: %+v, want version %d", c.what, r, req.Version)
				}
				continue
			}
			s.leavesNoTrace(t, h.Name, func() { s.raises(t, c.what, []bool{c.done}, req) })
		}
	},

	"each raise of a batch has its own answer": func(t *testing.T, s *suite, name string) {
		var reqs []driver.RaiseRequest
		var want []bool
		var versions []int64
		for i, c := range slices.Concat(raiseCases, raiseCases) {
			h := s.take(t, writer(fmt.Sprintf("%s-%02d", name, i)))
			req := driver.RaiseRequest{Name: h.Name, Acq: h.Acq, Version: h.Version}
			if c.change != nil {
				c.change(t, s, h, &req)
			}
			reqs, want, versions = append(reqs, req), append(want, c.done), append(versions, h.Version)
			if c.lifted {
				versions[i] = req.Version
			}
		}
		for range 2 { // it may be repeated
			s.raises(t, "a batch", want, reqs...)
			for i, req := range reqs {
				if got := s.number(t, `SELECT version FROM {lock} WHERE name = '`+req.Name+`'`); got != versions[i] {
					t.Errorf("%s: version %d, want %d", raiseCases[i%len(raiseCases)].what, got, versions[i])
				}
			}
		}
	},

	"nothing is raised of a name that has no row": func(t *testing.T, s *suite, name string) {
		s.leavesNoTrace(t, name, func() {
			s.raises(t, "a new name", []bool{false}, driver.RaiseRequest{Name: name, Acq: newID(), Version: 9})
		})
	},
}

// ahead is by how much a version is raised.
const ahead = 1_000_000

// raiseCases are requests to raise the version of a term that was just granted. One that lifts no
// version leaves the row as it is.
var raiseCases = []struct {
	what         string
	change       func(*testing.T, *suite, held, *driver.RaiseRequest)
	done, lifted bool
}{
	{what: "its own term, which has a lower version", done: true, lifted: true,
		change: func(_ *testing.T, _ *suite, _ held, r *driver.RaiseRequest) { r.Version += ahead }},
	{what: "its own term, which has that version", done: true},
	{what: "its own term, which has a higher version", done: true,
		change: func(_ *testing.T, _ *suite, _ held, r *driver.RaiseRequest) { r.Version -= ahead }},
	{what: "the term of another acquisition, which has a lower version",
		change: func(_ *testing.T, _ *suite, _ held, r *driver.RaiseRequest) {
			r.Acq, r.Version = newID(), r.Version+ahead
		}},
	{what: "the term of another acquisition, which has a higher version",
		change: func(_ *testing.T, _ *suite, _ held, r *driver.RaiseRequest) {
			r.Acq, r.Version = newID(), r.Version-ahead
		}},
	{what: "its own term, which has expired",
		change: func(t *testing.T, s *suite, h held, r *driver.RaiseRequest) {
			s.expire(t, h)
			r.Version += ahead
		}},
	{what: "its own term, which has expired with a higher version",
		change: func(t *testing.T, s *suite, h held, r *driver.RaiseRequest) {
			s.expire(t, h)
			r.Version -= ahead
		}},
	{what: "its own term, which has ended",
		change: func(t *testing.T, s *suite, h held, r *driver.RaiseRequest) {
			end(t, s.store, h)
			r.Version += ahead
		}},
}

// raise calls Raise, as often as a quorum may.
func (s *suite) raise(t *testing.T, reqs ...driver.RaiseRequest) ([]bool, error) {
	t.Helper()
	r := s.store.(*retrier)
	return again(r, func() ([]bool, error) { return r.Store.(driver.NodeStore).Raise(t.Context(), reqs) })
}

// raises is raise where each request has a certain answer.
func (s *suite) raises(t *testing.T, what string, want []bool, reqs ...driver.RaiseRequest) {
	t.Helper()
	if done, err := s.raise(t, reqs...); err != nil || !slices.Equal(done, want) {
		t.Errorf("%s: Raise = %v, %v; want %v", what, done, err, want)
	}
}

// raiseRowTests are for databases that lock rows.
var raiseRowTests = map[string]func(*testing.T, *suite, string){
	"a raise of a row that somebody has locked is soon given up": func(t *testing.T, s *suite, name string) {
		h := s.take(t, writer(name))
		req := driver.RaiseRequest{Name: name, Acq: h.Acq, Version: h.Version + ahead}
		store := s.store.(*retrier).Store.(driver.NodeStore)
		unlock := s.lock(t, `SELECT version FROM {lock} WHERE name = '`+name+`' FOR UPDATE`)
		s.leavesNoTrace(t, name, func() {
			Within(t, 4*time.Second, func() { // what waits for the row waits for a second
				done, err := store.Raise(t.Context(), []driver.RaiseRequest{req})
				if err != nil && s.Classify(err) != driver.Again || err == nil && !slices.Equal(done, []bool{false}) {
					t.Errorf("Raise = %v, %v", done, err)
				}
			})
		})
		unlock()
		s.raises(t, "the row is free again", []bool{true}, req)
		if r := s.look(t, name); r.Holder.Version != req.Version {
			t.Errorf("%+v, want version %d", r, req.Version)
		}
	},
}
