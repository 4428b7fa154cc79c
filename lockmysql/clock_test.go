package lockmysql_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// serverTime is the time that it is for the server.
func serverTime(t *testing.T, db *sql.DB) (at int64) {
	t.Helper()
	if err := db.QueryRow("SELECT " + clock).Scan(&at); err != nil {
		t.Fatal(err)
	}
	return at
}

// A visit judges by the time when it has the row, and not by that when it began to wait for it: a
// term that has expired meanwhile is over. When a visit has ended a term, the row tells its time.
func TestAVisitReadsTheClockWhenItHasWaitedForTheRow(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		admin := f.Open(t)
		for what, params := range map[string][]string{"plain": nil, "another time zone": {"time_zone='-07:30'"}} {
			t.Run(what, func(t *testing.T) {
				s, _ := f.store(t, params...)
				r := request("k")
				take(t, s, r)
				unlock := lockRow(t, admin, r.Name)
				ended := make(chan error, 1)
				go func() {
					_, err := patiently(func() ([]driver.ReleaseResult, error) {
						return s.Release(t.Context(), []driver.ReleaseRequest{{Name: r.Name, Acq: r.Acq}})
					})
					ended <- err
				}()
				time.Sleep(500 * time.Millisecond) // it waits for a second
				locked := serverTime(t, admin)
				unlock()
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
				row, done := look(t, s, r.Name)[0], serverTime(t, admin)
				if row.Held() || row.Holder.Until < locked || row.Holder.Until > done {
					t.Errorf("the term ended at %d; the row was locked until %d, and it is %d: %+v", row.Holder.Until, locked, done, row)
				}
			})
		}
	})
}
