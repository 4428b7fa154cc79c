package lockpg_test

import (
	"testing"

	"github.com/sqllock/sqllock/driver"
)

// The clock may not have moved between two keys.
func TestOfSeveralKeysThatWereCompletedAtOneTimeTheHighestIsTheLast(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db).(driver.OnceStore)
	mustExec(t, db, `INSERT INTO sqllock_done (name, key, attempt, since, at) VALUES
		('falling', 'c', 1, 5, 0), ('falling', 'b', 1, 5, 9), ('falling', 'a', 1, 5, 9),
		('rising', 'a', 1, 5, 9), ('rising', 'b', 1, 5, 9), ('rising', 'c', 1, 5, 8)`)
	last, err := store.LastKeys(t.Context(), []string{"falling", "none", "rising"})
	if err != nil || len(last) != 2 || last["falling"].Key != "b" || last["rising"].Key != "b" {
		t.Errorf("the last keys are %+v, %v; want b of either name", last, err)
	}
}
