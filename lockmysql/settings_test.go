package lockmysql_test

import (
	"testing"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
)

// works takes a name, is asked who has it, is refused another time, and gives it back,
// in every mode.
func (f *fixture) works(t *testing.T, params ...string) {
	t.Helper()
	s, _ := f.store(t, params...)
	one, two := request("one"), request("two")
	res, err := s.Acquire(t.Context(), []driver.AcquireRequest{one, two})
	if err != nil || !res[0].Granted || !res[1].Granted {
		t.Fatalf("Grant: %+v, %v", res, err)
	}
	other, err := s.Acquire(t.Context(), []driver.AcquireRequest{request("one"), request("three")})
	if err != nil || other[0].Granted || other[0].Holder.Acq != one.Acq || !other[1].Granted {
		t.Errorf("of a name that is held and one that is not: %+v, %v", other, err)
	}
	if page, err := s.Read(t.Context(), driver.ReadRequest{List: driver.ListRequest{Limit: 10}}); err != nil || len(page.Rows) != 3 {
		t.Errorf("List: %+v, %v", page, err)
	}
	freed, err := s.Release(t.Context(), []driver.ReleaseRequest{{Name: "one", Acq: one.Acq, Version: res[0].Version}, {Name: "two", Acq: two.Acq, Version: res[1].Version}})
	if err != nil || !freed[0].Freed || !freed[1].Freed {
		t.Errorf("Release: %+v, %v", freed, err)
	}
	for _, m := range sessionModes {
		c := m.client(t, f, params...)
		for _, r := range []driver.AcquireRequest{request("one"), sharedRequest("one")} {
			s, res := c.lock(t, r)
			c.wantDenied(t, request("one"))
			if pings(t, s, r, res) != driver.Renewed {
				t.Errorf("%s: not renewed", m.name)
			}
			if page, err := c.List(t.Context(), driver.ListRequest{Limit: 10}); err != nil || !r.Shared && len(page.Rows) == 0 {
				t.Errorf("%s: List: %+v, %v", m.name, page, err)
			}
			unlock(t, s, r, res)
			giveBack(t, s)
		}
	}
}

func TestTheCharacterSetOfTheDatabaseDoesNotMatter(t *testing.T) {
	eachServer(t, func(t *testing.T, f *fixture) {
		for _, set := range []string{"utf16", "ucs2", "utf32", "binary", "latin1"} {
			t.Run(set, func(t *testing.T) {
				f := &fixture{testdb.New(t, f.Engine())}
				var database string
				if err := f.Open(t).QueryRow("SELECT DATABASE()").Scan(&database); err != nil {
					t.Fatal(err)
				}
				exec(t, f.Open(t), "ALTER DATABASE `"+database+"` CHARACTER SET "+set)
				f.migrate(t)
				f.works(t)
			})
		}
	})
}

// The parameters of a prepared statement have a collation of their own.
func TestTheCollationOfTheConnectionDoesNotMatter(t *testing.T) {
	eachServer(t, func(t *testing.T, f *fixture) {
		for _, collation := range []string{"utf8mb4_unicode_ci", "utf8mb4_bin", "latin1_swedish_ci"} {
			for _, interpolate := range []string{"true", "false"} {
				t.Run(collation+" "+interpolate, func(t *testing.T) {
					f.works(t, "collation_connection="+collation, "interpolateParams="+interpolate)
					exec(t, f.Open(t), "DELETE FROM sqllock_lock")
				})
			}
		}
	})
}

func TestSettingsThatChangeTheLanguageAreRefusedByName(t *testing.T) {
	eachServer(t, func(t *testing.T, f *fixture) {
		settings := map[string]string{"utf16": "character_set_connection=utf16", "ucs2": "character_set_connection=ucs2"}
		if f.Engine() == testdb.MariaDB {
			settings["ORACLE"] = "sql_mode='ORACLE'"
			settings["EMPTY_STRING_IS_NULL"] = "sql_mode='EMPTY_STRING_IS_NULL'"
		}
		for word, param := range settings {
			db := lockmysql.DB(f.Open(t, param))
			wants(t, openErr(t, db), driver.ErrUnsupported, word)
			for _, m := range sessionModes {
				_, err := m.open(db, t.Context(), driver.Client{Instance: newID()}, driver.SessionOptions{TTL: sessionTTL})
				wants(t, err, driver.ErrUnsupported, word)
			}
		}
	})
}
