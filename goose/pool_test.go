package gooselock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
)

func TestAPoolOfOneFailsWithTheNumberOfConnectionsNeeded(t *testing.T) {
	onEach(t, func(t *testing.T, d *testdb.Database) {
		db := d.Open(t)
		db.SetMaxOpenConns(1)
		l := newLocker(t, newLocks(t, unique, d.Engine(), db, shortTTL))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, way := range ways {
			up := up(mustProvider(t, d.Engine(), db, way, l, 0))
			for what, err := range map[string]error{"alone": up(ctx), "within Do": l.Do(ctx, up)} {
				if !errors.Is(err, sqllock.ErrPoolExhausted) || !strings.Contains(err.Error(), "SetMaxOpenConns") {
					t.Errorf("%s, %s: %v", way, what, err)
				}
			}
			eventually(t, "no connection is in use", func() bool { return db.Stats().InUse == 0 })
		}
	})
}

func TestThePoolNeedsTwoConnectionsInUniqueModeAndThreeInTheOthers(t *testing.T) {
	each(t, func(t *testing.T, mode string, d *testdb.Database) {
		db := d.Open(t)
		db.SetMaxOpenConns(map[string]int{unique: 2, forUpdate: 3, advisory: 3}[mode])
		l := newLocker(t, newLocks(t, mode, d.Engine(), db, shortTTL))
		if err := l.Do(t.Context(), up(mustProvider(t, d.Engine(), db, bySession, l, takesLong))); err != nil {
			t.Error(err)
		}
		checkRuns(t, db, all...)
	})
}

func TestASessionModeFailsIfTheApplicationUsesTheThirdConnection(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{forUpdate, advisory} {
		on(t, mode, func(t *testing.T, d *testdb.Database) {
			db := d.Open(t)
			db.SetMaxOpenConns(3)
			l := newLocker(t, newLocks(t, mode, d.Engine(), db, shortTTL))
			newConn(t, db)
			if err := l.SessionLock(t.Context(), newConn(t, db)); !errors.Is(err, sqllock.ErrPoolExhausted) {
				t.Error(err)
			}
		})
	}
}
