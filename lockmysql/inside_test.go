package lockmysql_test

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// clock is the server's, as in the tables.
const clock = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

// expire lets the terms of names be over for long.
func expire(t *testing.T, db *sql.DB, names ...string) {
	t.Helper()
	for _, name := range names {
		exec(t, db, "UPDATE `sqllock_lock` SET expires_at = 1 WHERE name = ?", name)
	}
}

func look(t *testing.T, s driver.Store, names ...string) []driver.Row {
	t.Helper()
	read, err := s.Read(t.Context(), driver.ReadRequest{Names: names})
	rows := read.Rows
	if err != nil || len(rows) != len(names) {
		t.Fatalf("Look: %d rows for %d names, %v", len(rows), len(names), err)
	}
	for i, r := range rows {
		if r.Name != names[i] || r.Now == 0 {
			t.Fatalf("Look of %q: %+v", names[i], r)
		}
	}
	return rows
}

func list(t *testing.T, s driver.Store, req driver.ListRequest) driver.Page {
	t.Helper()
	page, err := s.Read(t.Context(), driver.ReadRequest{List: req})
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	return page.Page
}

// revocations are requests to end whichever terms there are.
func revocations(names ...string) []driver.RevokeRequest {
	reqs := make([]driver.RevokeRequest, len(names))
	for i, name := range names {
		reqs[i].Name = name
	}
	return reqs
}

func revoke(t *testing.T, s driver.Store, names ...string) []driver.RevokeResult {
	t.Helper()
	res, err := patiently(func() ([]driver.RevokeResult, error) { return s.Revoke(t.Context(), revocations(names...)) })
	if err != nil || len(res) != len(names) {
		t.Fatalf("Revoke: %d results for %d names, %v", len(res), len(names), err)
	}
	return res
}

func TestALookTellsOfTheHolderOrOfTheLastOne(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, _ := f.store(t)
		if r := look(t, s, "a")[0]; r.Held() || r.Holder != (driver.Holder{}) || r.Ended != 0 || r.Holds != 0 || r.Gate != 0 {
			t.Errorf("a name that was never locked: %+v", r)
		}
		req := request("a")
		res := take(t, s, req)
		more := renewals([]driver.AcquireRequest{req}, res, minute)
		more[0].Holds = 3
		renew(t, s, false, more...)
		rows := look(t, s, "b", "a")
		r := rows[1]
		until := r.Holder.Until
		want := driver.Holder{Acq: req.Acq, Owner: req.Owner, Label: "host/test/1", Version: res[0].Version, Since: res[0].Now, Until: until}
		if r.Holder != want || r.Holds != 3 || until < res[0].Now+minute.Microseconds() || rows[0].Held() {
			t.Errorf("got %+v", rows)
		}
		release(t, s, releases([]driver.AcquireRequest{req}, res)...)
		r = look(t, s, "a")[0]
		want = driver.Holder{Version: res[0].Version, Since: res[0].Now, Until: r.Holder.Until}
		if r.Holder != want || r.Ended != driver.EndedReleased || r.Holds != 0 || r.Holder.Until > r.Now || r.Holder.Until < res[0].Now {
			t.Errorf("after the release: %+v", r)
		}
	})
}

func TestTheMinimumHoldKeepsTheName(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, db := f.store(t)
		for _, n := range []int{1, 3} {
			for _, undo := range []bool{false, true} {
				reqs := requests(n, fmt.Sprintf("hold of %d, %v, %%d", n, undo))
				end := func(res []driver.AcquireResult, hold time.Duration) {
					t.Helper()
					var abandon []driver.ReleaseRequest
					free := releases(reqs, res)
					for i := range free {
						free[i].MinHold = hold
						abandon = append(abandon, driver.ReleaseRequest{Name: reqs[i].Name, Acq: reqs[i].Acq, MinHold: hold})
					}
					if !undo {
						if freed := release(t, s, free...); slices.Contains(freed, false) {
							t.Errorf("%v", freed)
						}
					} else if _, err := s.Release(t.Context(), abandon); err != nil {
						t.Error(err)
					}
				}
				res := take(t, s, reqs...)
				end(res, time.Hour)
				for i, r := range grant(t, s, requests(n, fmt.Sprintf("hold of %d, %v, %%d", n, undo))...) {
					want := driver.Holder{Until: res[i].Now + time.Hour.Microseconds()}
					if row := look(t, s, reqs[i].Name)[0]; r.Granted || r.Holder != want || row.Gate != want.Until || row.Ended != driver.EndedReleased {
						t.Errorf("%d: %+v, want to be told %+v; %+v", i, r, want, row)
					}
				}
				for hold, gate := range map[time.Duration]int64{0: 77, minute: 9e15} { // untouched; not shortened
					exec(t, db, "UPDATE `sqllock_lock` SET not_before = 0")
					res = take(t, s, reqs...)
					exec(t, db, "UPDATE `sqllock_lock` SET not_before = ?", gate)
					end(res, hold)
					if row := look(t, s, reqs[0].Name)[0]; row.Held() || row.Gate != gate {
						t.Errorf("held at least %v: %+v, want gate %d", hold, row, gate)
					}
				}
				exec(t, db, "UPDATE `sqllock_lock` SET not_before = 0")
			}
		}
	})
}

func TestAGateBehindAnExpiredHolderIsTold(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, db := f.store(t)
		take(t, s, request("a"))
		until := time.Now().Add(minute).UnixMicro()
		exec(t, db, "UPDATE `sqllock_lock` SET expires_at = 1, not_before = ?", until)
		if r := grant(t, s, request("a"))[0]; r.Granted || r.Holder != (driver.Holder{Until: until}) {
			t.Errorf("%+v", r)
		}
	})
}

func TestAListGoesThroughTheTableInWindows(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, db := f.store(t)
		for i := range 95 {
			var acq []byte
			gate := 0
			if i%10 == 9 {
				id := newID()
				acq = id[:]
			}
			if i == 54 {
				gate = 9e15
			}
			exec(t, db, "INSERT INTO `sqllock_lock` (name, acq, version, not_before, expires_at, value) VALUES (?, ?, 1, ?, 1, 'x')",
				fmt.Sprintf("%03d", i+1), acq, gate)
		}
		for _, free := range []bool{false, true} {
			var names []string
			req := driver.ListRequest{Limit: 20, Free: free}
			for calls := 1; ; calls++ {
				page := list(t, s, req)
				for _, r := range page.Rows {
					if names = append(names, r.Name); r.Value != nil {
						t.Error("a value was read")
					}
				}
				if want := fmt.Sprintf("%03d", min(20*calls, 95)); page.Last != want {
					t.Fatalf("call %d looked up to %q, want %q", calls, page.Last, want)
				}
				if req.After = page.Last; !page.More {
					break
				}
			}
			switch got := strings.Join(names, " "); {
			case !free && got != "010 020 030 040 050 055 060 070 080 090":
				t.Errorf("listed %s", got)
			case free && (len(names) != 95 || !strings.HasPrefix(got, "001 002 003")):
				t.Errorf("listed %s", got)
			}
		}
		if page := list(t, s, driver.ListRequest{After: "095", Limit: 20}); page.More || len(page.Rows) > 0 || page.Last != "" {
			t.Errorf("after the last: %+v", page)
		}
	})
}
