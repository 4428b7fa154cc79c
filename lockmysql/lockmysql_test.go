package lockmysql_test

import (
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/lockmysql"
)

// sessions are ways to reach a server that must not make a difference.
func sessions(t *testing.T, f *fixture) map[string][]string {
	return map[string][]string{
		"plain":             nil,
		"clientFoundRows":   {"clientFoundRows=true"},
		"interpolateParams": {"interpolateParams=true"},
		"both":              {"clientFoundRows=true", "interpolateParams=true"},
		"READ UNCOMMITTED":  {f.isolation(t, "READ-UNCOMMITTED")},
		"READ COMMITTED":    {f.isolation(t, "READ-COMMITTED")},
		"REPEATABLE READ":   {f.isolation(t, "REPEATABLE-READ"), "clientFoundRows=true"},
		"SERIALIZABLE":      {f.isolation(t, "SERIALIZABLE")},
		"latin1":            {"charset=latin1", "interpolateParams=true"},
		"sjis":              {"charset=sjis"},
		"safe updates":      {"sql_safe_updates=1"},
		"sql_mode":          {"sql_mode='ANSI,NO_BACKSLASH_ESCAPES,HIGH_NOT_PRECEDENCE'", "interpolateParams=true"},
		"time_zone":         {"time_zone='-07:30'", "parseTime=true", "loc=Asia/Kolkata"},
	}
}

func TestALeaseLivesTheSameInEverySession(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		for name, params := range sessions(t, f) {
			t.Run(name, func(t *testing.T) {
				s, _ := f.store(t, params...)
				t.Run("one", func(t *testing.T) { life(t, s, requests(1, name+" %d")) })
				t.Run("many", func(t *testing.T) { life(t, s, requests(7, name+" %d")) })
				reserved := reserve(t, open(t, f.Open(t, params...)))
				for _, time := range []string{"first", "second", "third"} { // then statements are prepared
					t.Run("reserved, the "+time+" time", func(t *testing.T) { life(t, reserved, requests(1, name+time+" %d")) })
				}
			})
		}
	})
}

// life is what may happen to leases, in batches.
func life(t *testing.T, s driver.Store, reqs []driver.AcquireRequest) {
	rivals := make([]driver.AcquireRequest, len(reqs))
	for i, r := range reqs {
		rivals[i] = r
		rivals[i].Acq, rivals[i].Owner = newID(), "größer\x01"
	}
	first := take(t, s, reqs...)
	for i, r := range first {
		if skew := time.Since(time.UnixMicro(r.Now)).Abs(); skew > minute {
			t.Errorf("the database's clock differs by %v", skew)
		}
		if r.Remaining != minute || r.Version != r.Now {
			t.Errorf("new name: %+v", r)
		}
		if again := take(t, s, reqs[i])[0]; again.Version != r.Version || again.Remaining > minute || again.Remaining < minute/2 {
			t.Errorf("repeated with the same acq: %+v, was %+v", again, r)
		}
	}
	for i, r := range grant(t, s, rivals...) {
		want := driver.Holder{Acq: reqs[i].Acq, Owner: reqs[i].Owner, Label: "host/test/1",
			Version: first[i].Version, Since: first[i].Now, Until: first[i].Now + minute.Microseconds()}
		if r.Granted || r.Holder != want || r.Now < first[i].Now {
			t.Errorf("rival: %+v, want holder %+v", r, want)
		}
	}

	for i, status := range renew(t, s, false, renewals(reqs, first, 2*minute)...).Status {
		if status != driver.Renewed {
			t.Errorf("renewal %d: %v", i, status)
		}
	}
	shorter := renew(t, s, false, renewals(reqs, first, minute)...)
	for i, status := range shorter.Status {
		if status != driver.Renewed {
			t.Errorf("shorter renewal %d: %v", i, status)
		}
	}
	for i, r := range grant(t, s, rivals...) {
		if left := time.Duration(r.Holder.Until-first[i].Now) * time.Microsecond; left < 2*minute {
			t.Errorf("a shorter renewal shortened: %v", left)
		}
	}
	for i, status := range renew(t, s, false, renewals(rivals, first, minute)...).Status {
		if status != driver.Gone {
			t.Errorf("renewal of another acq %d: %v", i, status)
		}
	}
	for i, freed := range release(t, s, releases(rivals, first)...) {
		if freed {
			t.Errorf("release of another acq freed %d", i)
		}
	}

	for i, freed := range release(t, s, releases(reqs, first)...) {
		if !freed {
			t.Errorf("release %d did not free", i)
		}
	}
	for i, freed := range release(t, s, releases(reqs, first)...) {
		if freed {
			t.Errorf("second release freed %d", i)
		}
	}
	for i, status := range renew(t, s, true, renewals(reqs, first, minute)...).Status {
		if status != driver.Gone {
			t.Errorf("renewal after release %d: %v", i, status)
		}
	}

	for i := range rivals {
		rivals[i].TTL = 100 * time.Millisecond
	}
	second := take(t, s, rivals...)
	for i, r := range second {
		if r.Version <= first[i].Version {
			t.Errorf("token %d after %d", r.Version, first[i].Version)
		}
	}
	time.Sleep(110 * time.Millisecond)
	if status := renew(t, s, false, renewals(rivals, second, minute)...).Status[0]; status != driver.Gone {
		t.Errorf("renewal of an expired lease: %v", status)
	}
	third := take(t, s, reqs...)
	for i, r := range third {
		if r.Version <= second[i].Version {
			t.Errorf("token %d after %d", r.Version, second[i].Version)
		}
	}

	abandon := make([]driver.ReleaseRequest, len(reqs))
	for i := range reqs {
		abandon[i] = driver.ReleaseRequest{Name: reqs[i].Name, Acq: rivals[i].Acq}
	}
	for _, mine := range []bool{false, true} {
		for i := range abandon {
			if mine {
				abandon[i].Acq = reqs[i].Acq
			}
		}
		if _, err := s.Release(t.Context(), abandon); err != nil {
			t.Fatal(err)
		}
		if status := renew(t, s, false, renewals(reqs, third, minute)...).Status[0]; mine != (status == driver.Gone) {
			t.Errorf("after Abandon of ours (%v): %v", mine, status)
		}
	}
}

func TestARoleNeedsNoMoreThanTheTables(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		admin := f.Open(t)
		cfg, err := mysql.ParseDSN(f.DSN())
		if err != nil {
			t.Fatal(err)
		}
		cfg.User, cfg.Passwd = "role_"+cfg.DBName[len(cfg.DBName)-12:], "Secret-7"
		exec(t, admin, "CREATE USER "+cfg.User+" IDENTIFIED BY 'Secret-7'")
		t.Cleanup(func() { exec(t, admin, "DROP USER "+cfg.User) })
		exec(t, admin, "GRANT SELECT, INSERT, UPDATE, DELETE ON `sqllock_lock` TO "+cfg.User)
		exec(t, admin, "GRANT SELECT, INSERT, UPDATE, DELETE ON `sqllock_claim` TO "+cfg.User)
		exec(t, admin, "GRANT SELECT, INSERT, UPDATE, DELETE ON `sqllock_waiter` TO "+cfg.User)
		exec(t, admin, "GRANT SELECT ON `sqllock_done` TO "+cfg.User)
		exec(t, admin, "GRANT SELECT, UPDATE ON `sqllock_meta` TO "+cfg.User)
		connector, err := mysql.NewConnector(cfg)
		if err != nil {
			t.Fatal(err)
		}
		db := sql.OpenDB(connector)
		t.Cleanup(func() { _ = db.Close() })
		s := open(t, db)
		life(t, s, requests(1, "%d"))
		life(t, s, requests(3, "%d"))
		cleanUp(t, s, admin, "role")
		queue(t, s, "role")

		exec(t, admin, "REVOKE UPDATE ON `sqllock_lock` FROM "+cfg.User)
		if _, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: "0", TTL: minute}}, false); lockmysql.Classify(err) != driver.Refused {
			t.Errorf("without UPDATE: %v", err)
		}
		if err := openErr(t, lockmysql.DB(db)); err == nil {
			t.Error("a role that may not update was not refused at construction")
		}
	})
}

func TestNamesDifferByteForByte(t *testing.T) {
	t.Parallel()
	names := []string{"K", "k", "k ", "k\u0301", "ḱ", "ß", "ss", "'", `\`, `"`, "`", "?", "\x7f",
		strings.Repeat("ä", 127) + "a", strings.Repeat("ä", 127) + "b", strings.Repeat("🔒", 63) + "abc"}
	eachServer(t, func(t *testing.T, f *fixture) {
		for name, params := range sessions(t, f) {
			t.Run(name, func(t *testing.T) {
				s, db := f.store(t, params...)
				exec(t, db, "DELETE FROM `sqllock_lock` WHERE version > 0 ORDER BY name LIMIT 1000")
				for i, name := range names {
					if i%2 == 0 {
						take(t, s, requestBy(name, name))
					}
				}
				for i, name := range names {
					if got := grant(t, s, requestBy(name, name))[0].Granted; got != (i%2 == 1) {
						t.Errorf("name %q: granted %v", name, got)
					}
				}
			})
		}
		rows, err := f.Open(t).Query("SELECT name, held, owner, held_since, expires_at FROM sqllock_locks ORDER BY token DESC LIMIT 1")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var name, owner, since, until string
			var held bool
			if err := rows.Scan(&name, &held, &owner, &since, &until); err != nil {
				t.Fatal(err)
			}
			from, err1 := time.Parse("2006-01-02 15:04:05.000000", since)
			to, err2 := time.Parse("2006-01-02 15:04:05.000000", until)
			if name != names[len(names)-1] || !held || owner != name || err1 != nil || err2 != nil || to.Sub(from) != minute {
				t.Errorf("the view says %q %v %q %q %q", name, held, owner, since, until)
			}
		}
	})
}

// Whatever the rows of the others say.
func TestAReleaseOfManyChangesNoOthers(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, db := f.store(t)
		reqs := requests(3, "%d")
		mine := releases(reqs, take(t, s, reqs...))
		exec(t, db, "INSERT INTO `sqllock_lock` (name, version) VALUES ('free', 0), ('read', 0)")
		reader := request("read")
		reader.Shared = true
		take(t, s, reader)
		before := []string{dump(t, db, "free"), dump(t, db, "read")}
		all := append(slices.Clone(mine), driver.ReleaseRequest{Name: "free", Acq: newID()}, driver.ReleaseRequest{Name: "read", Acq: newID()})
		if freed := release(t, s, all...); !slices.Equal(freed, []bool{true, true, true, false, false}) {
			t.Errorf("freed: %v", freed)
		}
		if after := []string{dump(t, db, "free"), dump(t, db, "read")}; !slices.Equal(after, before) {
			t.Errorf("the rows are %q, were %q", after, before)
		}
	})
}

func TestABatchGetsEachNameItsOwnAnswer(t *testing.T) {
	t.Parallel()
	const n = 500
	eachServer(t, func(t *testing.T, f *fixture) {
		other, _ := f.store(t)
		s, _ := f.store(t, "interpolateParams=true")
		reqs := requests(n, "name %03d")
		var held, expired, free []driver.AcquireRequest
		for i, r := range reqs {
			r.Acq = newID()
			switch i % 4 {
			case 0: // no row
			case 1:
				held = append(held, r)
			case 2:
				r.TTL = time.Millisecond
				expired = append(expired, r)
			case 3:
				free = append(free, r)
			}
		}
		take(t, other, held...)
		old := take(t, other, expired...)
		release(t, other, releases(free, take(t, other, free...))...)
		time.Sleep(10 * time.Millisecond)

		res := grant(t, s, reqs...)
		for i, r := range res {
			if want := i%4 != 1; r.Granted != want || want && (r.Remaining != minute || r.Version == 0) || !want && r.Holder.Acq != held[i/4].Acq {
				t.Fatalf("request %d: %+v", i, r)
			}
		}
		if res[2].Version <= old[0].Version {
			t.Errorf("token %d after %d", res[2].Version, old[0].Version)
		}
		for i, r := range grant(t, s, reqs...) {
			if i%4 != 1 && (!r.Granted || r.Version != res[i].Version) {
				t.Fatalf("repeated request %d: %+v, was %+v", i, r, res[i])
			}
		}
		freed := release(t, s, releases(reqs, res)...)
		for i := range freed {
			if freed[i] != (i%4 != 1) {
				t.Fatalf("release %d: %v", i, freed[i])
			}
		}
	})
}
