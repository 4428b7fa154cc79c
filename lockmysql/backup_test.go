package lockmysql_test

import (
	"testing"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
)

// While a backup of MariaDB blocks commits, statements run as always. A transaction in a block has
// its results before its commit, which fails after a second: what it has done is undone.
func TestWhatABackupKeepsFromBeingCommittedIsNotBelieved(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.Startable() {
		if engine != testdb.MariaDB {
			continue
		}
		t.Run(engine, func(t *testing.T) {
			f := &fixture{testdb.StartServer(t, engine).Database} // a backup is of the whole server
			f.migrate(t)
			s, db := f.store(t)
			reqs := requests(3, "%d")
			held := releases(reqs, take(t, s, reqs...))
			first, late := waiter(reqs[0].Name), waiter(reqs[2].Name)
			line(t, s, first) // and the beat of the store is fresh
			held[0].Awaited, held[1].Awaited = true, true

			backup, err := f.Open(t).Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = backup.Close() }()
			exec(t, backup, "BACKUP STAGE START")
			exec(t, backup, "BACKUP STAGE BLOCK_COMMIT")
			for what, call := range map[string]func() error{
				"a hand-over":                             func() error { _, err := s.Release(t.Context(), held[:1]); return err },
				"a release of a name nobody waits for":    func() error { _, err := s.Release(t.Context(), held[1:2]); return err },
				"a claim that enters the queue of a name": func() error { _, err := s.Acquire(t.Context(), []driver.AcquireRequest{late}); return err },
			} {
				if err := call(); lockmysql.Classify(err) != driver.Again {
					t.Errorf("%s: %v, want an error after which it is tried again", what, err)
				}
			}
			exec(t, backup, "BACKUP STAGE END")

			for i, row := range look(t, s, reqs[0].Name, reqs[1].Name, reqs[2].Name) {
				if row.Holder.Acq != reqs[i].Acq || row.Holder.Version != held[i].Version {
					t.Errorf("after the backup name %d is held by %+v", i, row.Holder)
				}
			}
			var waiting int
			if err := db.QueryRow("SELECT COUNT(*) FROM `sqllock_claim` WHERE state = 0").Scan(&waiting); err != nil || waiting != 1 {
				t.Errorf("after the backup %d claims wait, want that of the first alone; %v", waiting, err)
			}
			// Then all of them can be done.
			if got := next(t, s, held[0]); len(got) != 1 || got[0] != first.Acq {
				t.Errorf("next are %v, want %v", got, first.Acq)
			}
			if got := next(t, s, held[1]); len(got) > 0 {
				t.Errorf("next are %v, and nobody waits", got)
			}
			if res := line(t, s, late)[0]; res.Granted || res.Ahead != 0 {
				t.Errorf("%+v", res)
			}
			if got := next(t, s, held[2]); len(got) != 1 || got[0] != late.Acq {
				t.Errorf("next are %v, want %v", got, late.Acq)
			}
		})
	}
}
