package lockmysql_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/lockmysql"
)

// The row of a name may say that it is free while a transaction guards the version: then
// nobody gets it, nobody waits, and the others of the batch get theirs.
func TestANameThatIsFreeAndGuardedIsLeftAlone(t *testing.T) {
	eachServer(t, func(t *testing.T, f *fixture) {
		for k, level := range levels {
			t.Run(level.String(), func(t *testing.T) {
				s, _ := f.store(t)
				reqs := requests(3, fmt.Sprintf("%d %%d", k))
				res := take(t, s, reqs...)
				tx := guard(t, s, f.Open(t), level, renewals(reqs, res, minute)[1])
				exec(t, f.Open(t), "UPDATE `sqllock_lock` SET acq = NULL")

				again, least := requests(3, fmt.Sprintf("%d %%d", k)), time.Hour
				for range 4 { // a wait for the row would take a second each time
					began := time.Now()
					if r := grant(t, s, request(reqs[1].Name))[0]; r.Granted {
						t.Errorf("alone: %+v", r)
					}
					for i, r := range grant(t, s, again...) {
						if r.Granted != (i != 1) || r.Granted && r.Version <= res[i].Version {
							t.Errorf("%d: %+v", i, r)
						}
					}
					least = min(least, time.Since(began))
				}
				if least > time.Second/2 {
					t.Errorf("took %v at least", least)
				}
				if err := tx.Commit(); err != nil {
					t.Error(err)
				}
				take(t, s, again...)
			})
		}
	})
}

func TestAReleaseLeavesNoValues(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, db := f.store(t)
		for _, n := range []int{1, 3} {
			reqs := requests(n, fmt.Sprintf("%d %%d", n))
			reqs[n/2].Value = []byte("some")
			for i, freed := range release(t, s, releases(reqs, take(t, s, reqs...))...) {
				if !freed {
					t.Errorf("%d of %d was not freed", i, n)
				}
			}
		}
		var left int
		if err := db.QueryRow("SELECT COUNT(*) FROM `sqllock_lock` WHERE value IS NOT NULL OR acq IS NOT NULL").Scan(&left); err != nil || left > 0 {
			t.Errorf("%d rows have one, %v", left, err)
		}
	})
}

// A release frees what is still held and leaves alone what another holds by now, even
// with the acquisition or the version that the release knows.
func TestAReleaseFreesItsOwnTermsOnly(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, db := f.store(t)
		for _, column := range []string{"acq = REVERSE(acq)", "version = version + 1"} {
			for _, n := range []int{1, 4} {
				reqs := requests(n, fmt.Sprintf("%s %d %%d", column, n))
				leases := releases(reqs, take(t, s, reqs...))
				exec(t, db, "UPDATE `sqllock_lock` SET "+column+" WHERE name = ?", reqs[n-1].Name)
				for i, freed := range release(t, s, leases...) {
					if freed != (i != n-1) {
						t.Errorf("%s: %d of %d: %v", column, i, n, freed)
					}
				}
				var holders int
				if err := db.QueryRow("SELECT COUNT(*) FROM `sqllock_lock` WHERE acq IS NOT NULL AND name = ?", reqs[n-1].Name).Scan(&holders); err != nil || holders != 1 {
					t.Errorf("%s: %d holders, %v", column, holders, err)
				}
				exec(t, db, "DELETE FROM `sqllock_lock`")
			}
		}
	})
}

// It cannot be told what a batch has freed, of whose rows some were deleted by hand.
func TestAReleaseOfMissingRowsIsUnclear(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, db := f.store(t)
		reqs := requests(3, "%d")
		leases := releases(reqs, take(t, s, reqs...))
		exec(t, db, "DELETE FROM `sqllock_lock` WHERE name = ?", reqs[1].Name)
		res, err := s.Release(t.Context(), leases)
		if err != nil && lockmysql.Classify(err) != driver.Unclear || err == nil && (!res[0].Freed || res[1].Freed || !res[2].Freed) {
			t.Errorf("Release: %+v, %v", res, err)
		}
		take(t, s, requests(3, "%d")...)
	})
}
