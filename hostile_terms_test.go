package sqllock_test

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
)

// hostileTerms are hostile rows of the modes that keep locks in sessions: of a name
// that nobody holds, but that has a row because somebody did.
var hostileTerms = map[string]string{
	"kept until the end of time":     `UPDATE sqllock_term SET not_before = {end}`,
	"kept until before time":         `UPDATE sqllock_term SET not_before = -{end}, acquired_at = -{end}, ended_at = -{end}`,
	"the last version":               `UPDATE sqllock_term SET version = {end}`,
	"a version of 2^53 - 1":          `UPDATE sqllock_term SET version = 9007199254740991`,
	"a negative version":             `UPDATE sqllock_term SET version = -{end}`,
	"a holder without a session":     `UPDATE sqllock_term SET acq = {id}, owner = 'x', instance = {id}, label = 'x', holds = 1`,
	"a holder without owner":         `UPDATE sqllock_term SET acq = {id}, owner = NULL, instance = NULL, label = NULL`,
	"a holder of the last version":   `UPDATE sqllock_term SET acq = {id}, version = {end}, holds = -1`,
	"a holder with an endless delay": `UPDATE sqllock_term SET acq = {id}, delay = {end}, acquired_at = {end}`,
	"a holder with a negative delay": `UPDATE sqllock_term SET acq = {id}, delay = -{end}`,
	"an id that names nothing":       `UPDATE sqllock_term SET acq = {zero}, instance = {zero}`,
	"a session of the far future":    `UPDATE sqllock_term SET acq = {id}, pid = 9223372036854775807, started = {end}`,
	"a session that is another's":    `UPDATE sqllock_term SET acq = {id}, pid = 1, started = 1`,
	"asked to go by nobody":          `UPDATE sqllock_term SET revoke_for = {zero}, acq = {zero}`,
	"asked to go by somebody":        `UPDATE sqllock_term SET revoke_for = {id}, acq = {id}`,
	"an unknown end":                 `UPDATE sqllock_term SET ended = 77, revoked = {end}`,
	"no row":                         `DELETE FROM sqllock_term`,
	"no pin":                         `DELETE FROM sqllock_pin`,
}

func TestHostileTermsMakeNoPanicNoHangAndNoSecondHolder(t *testing.T) {
	const ttl = 2 * time.Second
	reaper := &sqllock.ReaperOptions{Off: true}
	onEachServer(t, func(t *testing.T, e *engine, d *testdb.Database) {
		t.Parallel()
		db := d.Open(t)
		for mode, open := range map[string]func(db *sql.DB) (*sqllock.Locker, error){
			"for update": func(db *sql.DB) (*sqllock.Locker, error) {
				return sqllock.NewForUpdate(t.Context(), e.open(db).(driver.ForUpdateDatabase), &sqllock.ForUpdateOptions{TTL: ttl, Reaper: reaper})
			},
			"advisory": func(db *sql.DB) (*sqllock.Locker, error) {
				return sqllock.NewAdvisory(t.Context(), e.open(db).(driver.AdvisoryDatabase), &sqllock.AdvisoryOptions{TTL: ttl, Reaper: reaper})
			},
		} {
			locker := func(t *testing.T) *sqllock.Locker {
				l, err := open(db)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { closeSoon(l) })
				return l
			}
			a, b := locker(t), locker(t)
			for _, what := range slices.Sorted(maps.Keys(hostileTerms)) {
				t.Run(mode+", "+what, func(t *testing.T) {
					lease, err := b.Lock(t.Context(), victim, sqllock.Value([]byte("noted")), sqllock.Wait(answer))
					if err != nil {
						t.Fatal(err)
					}
					if err := lease.Unlock(t.Context()); err != nil {
						t.Fatal(err)
					}
					spoil(t, e, db, hostileTerms[what])
					p := &probe{t, a, b}
					p.acquire("", true)
					_ = p.within(answer, "Inspect", func(ctx context.Context) error { _, err := a.Inspect(ctx, victim); return err })
					_ = p.within(answer, "List", func(ctx context.Context) error {
						for _, err := range a.List(ctx) {
							if err != nil {
								return err
							}
						}
						return nil
					})
					_ = p.within(answer, "Reap", func(ctx context.Context) error { _, err := b.Reaper().Reap(ctx); return err })
					_ = p.within(5*moment, "ForceUnlock", func(ctx context.Context) error { _, err := a.ForceUnlock(ctx, victim); return err })
					p.acquire("after ForceUnlock ", false)
					mustExec(t, db, `DELETE FROM sqllock_term WHERE name = 'victim'`)
				})
			}
		}
	})
}
