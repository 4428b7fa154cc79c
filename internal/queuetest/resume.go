package queuetest

import (
	"testing"

	"github.com/sqllock/sqllock/driver"
)

// resumeTests are about holders that resume their own term, past the queue, and about
// proclaimed values.
var resumeTests = map[string]func(*testing.T, *suite, string){
	"a term is resumed past the queue, and no waiter is forgotten": func(t *testing.T, s *suite, name string) {
		r := writer(name)
		r.Value = []byte("old")
		first, a, b := s.take(t, r), writer(name), writer(name)
		wait(t, s.store, a, 0)
		wait(t, s.other, b, 1)
		next := s.resume(t, s.other, first, "new")
		row := s.look(t, name)
		want := driver.Holder{Acq: next.Acq, Owner: first.Owner, Label: row.Holder.Label, Version: next.Version, Since: next.Now, Until: row.Holder.Until}
		if row.Holder != want || row.Holder.Label == "" || row.Holder.Until-next.Now < next.Remaining.Microseconds() || row.Holds != 1 ||
			string(row.Value) != "new" || row.Ended == driver.EndedRevoked {
			t.Errorf("%+v, want %+v", row, want)
		}
		renew := driver.RenewRequest{Name: name, Acq: first.Acq, Version: first.Version, TTL: minute, Holds: 1}
		if res, err := s.store.Renew(t.Context(), []driver.RenewRequest{renew}, false); err != nil || res.Status[0] != driver.Gone {
			t.Errorf("the one before: %+v, %v", res, err)
		}
		if res, err := s.store.Release(t.Context(), []driver.ReleaseRequest{first.release()}); err != nil || res[0].Freed {
			t.Errorf("the one before: %+v, %v", res, err)
		}
		renew.Acq, renew.Version = next.Acq, next.Version
		if res, err := s.other.Renew(t.Context(), []driver.RenewRequest{renew}, true); err != nil || res.Status[0] != driver.Renewed {
			t.Errorf("%+v, %v", res, err)
		}
		wait(t, s.store, a, 0)
		end(t, s.other, next) // it goes to one of the other client
		end(t, s.store, has(t, s.store, a, handed))
		has(t, s.other, b, handed)
	},

	"only the term that was seen is resumed": func(t *testing.T, s *suite, name string) {
		first := s.take(t, writer(name))
		right := driver.AcquireRequest{Name: name, Acq: newID(), Owner: first.Owner, Resumes: first.Version, TTL: minute}
		refused := func(what string, change func(*driver.AcquireRequest)) {
			t.Helper()
			r := right
			change(&r)
			s.leavesNoTrace(t, name, func() {
				if res, err := s.store.Acquire(t.Context(), []driver.AcquireRequest{r}); err != nil || res[0].Granted || res[0].Version != 0 {
					t.Errorf("%s: %+v, %v", what, res, err)
				}
			})
		}
		refused("another version", func(r *driver.AcquireRequest) { r.Resumes++ })
		refused("the version before", func(r *driver.AcquireRequest) { r.Resumes-- })
		refused("another owner", func(r *driver.AcquireRequest) { r.Owner += "x" })
		refused("an owner in capitals", func(r *driver.AcquireRequest) { r.Owner = "O" + r.Owner[1:] })
		refused("another name", func(r *driver.AcquireRequest) { r.Name += "x" })
		s.resume(t, s.store, first, "")
		refused("a term that was resumed", func(*driver.AcquireRequest) {})
		other := s.take(t, writer(name+"2"))
		right = driver.AcquireRequest{Name: other.Name, Acq: newID(), Owner: other.Owner, Resumes: other.Version, TTL: minute}
		end(t, s.store, other)
		refused("a term that has ended", func(*driver.AcquireRequest) {})
		crashed := s.take(t, writer(name+"3"))
		right = driver.AcquireRequest{Name: crashed.Name, Acq: newID(), Owner: crashed.Owner, Resumes: crashed.Version, TTL: minute}
		s.expire(t, crashed)
		refused("a term that has expired", func(*driver.AcquireRequest) {})
	},

	"a token rises with a resumption though the clock went back": func(t *testing.T, s *suite, name string) {
		first := s.take(t, writer(name))
		s.exec(t, `UPDATE {lock} SET version = {now} + 3600000000 WHERE name = '`+name+`'`)
		first.Version = s.look(t, name).Holder.Version
		if next := s.resume(t, s.store, first, ""); next.Version != first.Version+1 || s.look(t, name).Holder.Version != next.Version {
			t.Errorf("%d after %d", next.Version, first.Version)
		}
	},

	"a value changes for the term that is held and for no other": func(t *testing.T, s *suite, name string) {
		first := s.take(t, writer(name))
		before := s.look(t, name)
		right := driver.SetValueRequest{Name: name, Acq: first.Acq, Version: first.Version, Value: []byte{0, '\'', '\\', 0xff}}
		sets := func(what string, r driver.SetValueRequest, want bool) {
			t.Helper()
			if done, err := s.other.SetValue(t.Context(), r); err != nil || done != want {
				t.Errorf("%s: %v, %v", what, done, err)
			}
		}
		for range 2 { // the same again is no loss
			sets("the holder", right, true)
		}
		row := s.look(t, name)
		if string(row.Value) != string(right.Value) || row.Holder != before.Holder {
			t.Errorf("%+v after %+v", row, before)
		}
		for what, change := range map[string]func(*driver.SetValueRequest){
			"another acquisition": func(r *driver.SetValueRequest) { r.Acq = newID() },
			"another version":     func(r *driver.SetValueRequest) { r.Version++ },
			"another name":        func(r *driver.SetValueRequest) { r.Name += "x" },
		} {
			r := right
			r.Value = []byte("wrong")
			change(&r)
			s.leavesNoTrace(t, name, func() { sets(what, r, false) })
		}
		right.Rising = true
		for _, c := range []struct {
			value string
			want  bool
		}{{"b", true}, {"b", true}, {"a", false}, {"", false}, {"b\x00", true}, {"b", false}, {"\xff", true}} {
			right.Value = []byte(c.value)
			sets("a value that rises: "+c.value, right, c.want)
		}
		right.Rising, right.Value = false, nil
		for range 2 {
			sets("nothing", right, true)
		}
		if row := s.look(t, name); len(row.Value) != 0 {
			t.Errorf("%+v", row)
		}
		s.expire(t, first)
		right.Value = []byte("late")
		s.leavesNoTrace(t, name, func() { sets("a holder who has expired", right, false) })
	},
}

// resume resumes a term by another acquisition of its owner.
func (s *suite) resume(t *testing.T, store driver.Store, was held, value string) held {
	t.Helper()
	next := was
	next.Acq = newID()
	all, err := store.Acquire(t.Context(), []driver.AcquireRequest{{
		Name: was.Name, Acq: next.Acq, Owner: was.Owner, Resumes: was.Version, TTL: minute, Value: []byte(value),
	}})
	if err != nil {
		t.Fatal(err)
	}
	res := all[0]
	if !res.Granted || res.Found || res.Version <= was.Version || res.Remaining != minute || res.Now < was.Now || res.Crashed != (driver.Holder{}) {
		t.Fatalf("Acquire = %+v, after %+v", res, was.AcquireResult)
	}
	next.AcquireResult = res
	return next
}
