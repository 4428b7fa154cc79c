package web_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/web"
)

func TestTheActivityOfThisProcessIsCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		activity := web.NewActivity()
		hooks := activity.Hooks(sqllock.Hooks{})
		for range 4 { // seconds
			for i := range 10 {
				hooks.Acquired(sqllock.AcquiredEvent{Waited: time.Duration(i%2) * time.Second})
			}
			hooks.HandedOver(sqllock.HandedOverEvent{Waiters: 2})
			hooks.HandedOver(sqllock.HandedOverEvent{Waiters: 3})
			time.Sleep(time.Second)
		}
		for range 3 {
			hooks.Jeopardy(sqllock.JeopardyEvent{})
		}
		hooks.Lost(sqllock.LostEvent{Err: &sqllock.LostError{}})
		hooks.Crashed(sqllock.CrashedEvent{})
		check := func(what string, grants, handOvers float64) {
			t.Helper()
			got := activity.Read(time.Now())
			if got.Grants != grants || got.HandOvers != handOvers {
				t.Errorf("%s: %v grants and %v hand-overs a second, want %v and %v", what, got.Grants, got.HandOvers, grants, handOvers)
			}
			if got.Waited != 500*time.Millisecond || got.Jeopardy != 3 || got.Lost != 2 || len(got.Losses) != 2 {
				t.Errorf("%s: %+v", what, got)
			}
		}
		check("at once", 4, 2)
		time.Sleep(8 * time.Second)
		check("when the first two seconds are too old", 2, 1)
		time.Sleep(time.Minute)
		check("much later", 0, 0)
	})
}
