package lockmysql_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

func TestLookingInsideAndCleaningUpAreTheSameInEverySession(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		admin := f.Open(t)
		for name, params := range sessions(t, f) {
			t.Run(name, func(t *testing.T) {
				s, _ := f.store(t, params...)
				cleanUp(t, s, admin, name)
			})
		}
		t.Run("sql_select_limit", func(t *testing.T) {
			s, db := f.store(t)
			exec(t, db, "SET sql_select_limit = 1")
			cleanUp(t, s, admin, "limit")
		})
	})
}

// cleanUp does what the other tests look at more closely.
func cleanUp(t *testing.T, s driver.Store, admin *sql.DB, prefix string) {
	t.Helper()
	exec(t, admin, "DELETE FROM `sqllock_lock`")
	exec(t, admin, "UPDATE `sqllock_meta` SET swept_at = 0")
	reqs := requests(6, prefix+" %d")
	names := make([]string, len(reqs))
	for i := range reqs {
		names[i] = reqs[i].Name
	}
	res := take(t, s, reqs...)
	if r := revoke(t, s, names[0], names[1]); !r[0].Revoked || !r[1].Revoked {
		t.Errorf("%+v", r)
	}
	if status := renew(t, s, false, renewals(reqs, res, minute)...).Status; status[1] != driver.Revoked || status[2] != driver.Renewed {
		t.Errorf("%v", status)
	}
	expire(t, admin, names[2], names[3])
	if r := sweep(t, s, time.Hour); len(r.Crashed) != 2 || r.Crashed[1].Name != names[3] || r.Seen != 6 || r.Purged != 0 {
		t.Errorf("%+v", r)
	}
	if page := list(t, s, driver.ListRequest{Limit: 10}); len(page.Rows) != 2 || page.Last != names[5] || page.Rows[0].Holder.Acq != reqs[4].Acq {
		t.Errorf("%+v", page)
	}
	exec(t, admin, "UPDATE `sqllock_lock` SET version = 1, expires_at = 1 WHERE acq IS NULL")
	if r := sweep(t, s, time.Hour); r.Purged != 4 || len(r.Crashed) != 0 {
		t.Errorf("%+v", r)
	}
	if rows := look(t, s, names...); rows[0].Holder.Version != 0 || rows[4].Holder.Version != res[4].Version {
		t.Errorf("%+v", rows)
	}
	if first, second := sweepDue(t, s, time.Hour), sweepDue(t, s, time.Hour); !first || second {
		t.Errorf("turns: %v, %v", first, second)
	}
}
