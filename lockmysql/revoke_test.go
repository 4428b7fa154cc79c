package lockmysql_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/queuetest"
	"github.com/sqllock/sqllock/lockmysql"
)

// dump is a row as it stands.
func dump(t *testing.T, db *sql.DB, name string) (text string) {
	t.Helper()
	err := db.QueryRow("SELECT CONCAT_WS(' ', COALESCE(HEX(acq), '-'), COALESCE(owner, '-'), version, holds, since, expires_at, not_before,"+
		" waiting, holding, seq, COALESCE(HEX(value), '-'), ended, revoked) FROM `sqllock_lock` WHERE name = ?", name).Scan(&text)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestRevokingEndsTheTermAndTellsItsHolder(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, db := f.store(t)
		reqs := []driver.AcquireRequest{request("a"), request("b"), request("c")}
		reqs[0].Value = []byte("v")
		old := take(t, s, reqs...)
		release(t, s, releases(reqs[1:2], old[1:2])...)
		expire(t, db, "c") // but names its holder
		ahead := time.Now().Add(time.Hour).UnixMicro()
		exec(t, db, "UPDATE `sqllock_lock` SET version = ? WHERE name = 'c'", ahead)
		before := dump(t, db, "b")

		res := revoke(t, s, "a", "b", "c", "d")
		if r := res[0]; !r.Revoked || r.Row.Holder.Acq != reqs[0].Acq || r.Row.Holder.Version != old[0].Version || string(r.Row.Value) != "v" {
			t.Errorf("a: %+v", r)
		}
		if r := res[1]; r.Revoked || r.Row.Holder.Version != old[1].Version || r.Row.Ended != driver.EndedReleased {
			t.Errorf("b, which is free: %+v", r)
		}
		if r := res[2]; !r.Revoked || r.Row.Holder.Acq != reqs[2].Acq {
			t.Errorf("c, whose holder has expired: %+v", r)
		}
		if r := res[3]; r.Revoked || r.Row.Name != "d" || r.Row.Holder != (driver.Holder{}) {
			t.Errorf("d, which is unknown: %+v", r)
		}
		if now := dump(t, db, "b"); now != before {
			t.Errorf("a free name was touched: %s, was %s", now, before)
		}
		rows := look(t, s, "a", "c")
		for i, r := range rows {
			if r.Held() || r.Holder.Owner != "" || r.Ended != driver.EndedRevoked || r.Value != nil || r.Holds != 0 || r.Holder.Until > r.Now || r.Holder.Until < 1 {
				t.Errorf("afterwards %d: %+v", i, r)
			}
		}
		if rows[0].Holder.Version != rows[0].Holder.Until || rows[1].Holder.Until != 1 || rows[1].Holder.Version != ahead+1 {
			t.Errorf("the versions afterwards: %+v", rows)
		}
		ask := renewals(reqs, old, minute)
		for _, when := range []string{"while they are free", "when somebody else has them"} {
			for _, wait := range []bool{false, true} {
				if got := renew(t, s, wait, ask[0]).Status[0]; got != driver.Revoked {
					t.Errorf("a renewal %s: %v", when, got)
				}
				if got := renew(t, s, wait, ask...).Status; got[0] != driver.Revoked || got[1] != driver.Gone {
					t.Errorf("renewals %s: %v", when, got)
				}
			}
			if next := grant(t, s, request("a"))[0]; next.Granted && (next.Version <= rows[0].Holder.Version || next.Crashed != (driver.Holder{})) {
				t.Errorf("granted after that: %+v", next)
			}
		}
		if freed := release(t, s, releases(reqs[:1], old[:1])...); freed[0] {
			t.Error("the former holder has freed the name")
		}
	})
}

func TestOnlyTheLastRevokedTermIsToldThatItWasRevoked(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, _ := f.store(t)
		var terms []driver.RenewRequest
		for i := range 4 {
			reqs := []driver.AcquireRequest{request("a")}
			res := take(t, s, reqs...)
			terms = append(terms, renewals(reqs, res, minute)...)
			if i < 2 {
				revoke(t, s, "a")
			} else {
				release(t, s, releases(reqs, res)...)
			}
		}
		for i, want := range []driver.RenewStatus{driver.Gone, driver.Revoked, driver.Gone, driver.Gone} {
			if got := renew(t, s, false, terms[i]).Status[0]; got != want {
				t.Errorf("term %d: %v, want %v", i, got, want)
			}
		}
	})
}

func TestRevokingOpensTheMinimumHold(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, db := f.store(t)
		req := request("a")
		free := releases([]driver.AcquireRequest{req}, take(t, s, req))
		free[0].MinHold = time.Hour
		release(t, s, free...)
		if r := revoke(t, s, "a")[0]; !r.Revoked || r.Row.Gate <= r.Row.Now || r.Row.Held() {
			t.Errorf("%+v", r)
		}
		take(t, s, req)
		revoke(t, s, "a")
		before := dump(t, db, "a")
		if r := revoke(t, s, "a")[0]; r.Revoked {
			t.Errorf("%+v", r)
		}
		if now := dump(t, db, "a"); now != before {
			t.Errorf("%s, was %s", now, before)
		}
	})
}

func TestRevokingWaitsForALockedRowAndThenSaysAgain(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, db := f.store(t)
		names := make([]string, 9)
		reqs := requests(len(names), "%d")
		for i := range reqs {
			names[i] = reqs[i].Name
		}
		take(t, s, reqs...)
		for _, strength := range []string{"FOR UPDATE", "LOCK IN SHARE MODE"} {
			for _, batch := range [][]string{names[4:5], names} {
				tx, err := f.Open(t).Begin()
				if err != nil {
					t.Fatal(err)
				}
				if err := tx.QueryRow("SELECT version FROM `sqllock_lock` WHERE name = ? "+strength, names[4]).Scan(new(int64)); err != nil {
					t.Fatal(err)
				}
				var before []string
				for _, name := range names {
					before = append(before, dump(t, db, name))
				}
				queuetest.Within(t, 3*time.Second, func() {
					began := time.Now()
					_, err := s.Revoke(t.Context(), revocations(batch...))
					if took := time.Since(began); lockmysql.Classify(err) != driver.Again || took < 900*time.Millisecond {
						t.Errorf("%s, %d names: %v after %v", strength, len(batch), err, took)
					}
				})
				for i, name := range names {
					if now := dump(t, db, name); now != before[i] {
						t.Errorf("%s, %d names: %s, was %s", strength, len(batch), now, before[i])
					}
				}
				time.AfterFunc(200*time.Millisecond, func() { _ = tx.Rollback() })
				for i, r := range revoke(t, s, batch...) {
					if !r.Revoked {
						t.Errorf("%s, %d names, when the row is free: %d is not revoked", strength, len(batch), i)
					}
				}
				for i := range reqs {
					reqs[i].Acq = newID()
				}
				revoke(t, s, names...)
				take(t, s, reqs...)
			}
		}
		if db.Stats().OpenConnections != 1 {
			t.Error("a locked row cost a connection")
		}
	})
}

// Heartbeats and releases go on while names are revoked; each term is ended by one
// of them.
func TestATermIsEndedByItsHolderOrRevoked(t *testing.T) {
	t.Parallel()
	const rounds = 100
	eachServer(t, func(t *testing.T, f *fixture) {
		s := open(t, f.Open(t))
		byHolder := 0
		for i := range rounds {
			reqs := requests(3, fmt.Sprintf("%d, %%d", i))
			free := releases(reqs, take(t, s, reqs...))
			done := make(chan []bool)
			go func() {
				time.Sleep(time.Duration(i%10) * 100 * time.Microsecond)
				done <- release(t, s, free...)
			}()
			res, err := s.Revoke(t.Context(), []driver.RevokeRequest{{Name: reqs[0].Name}, {Name: reqs[1].Name}, {Name: reqs[2].Name}})
			freed := <-done
			if err != nil {
				t.Errorf("%v", err)
				continue
			}
			for k := range reqs {
				if freed[k] == res[k].Revoked {
					t.Errorf("freed %v, revoked %v", freed[k], res[k].Revoked)
				}
				if freed[k] {
					byHolder++
				}
			}
		}
		t.Logf("%d of %d were released before", byHolder, 3*rounds)
	})
}
