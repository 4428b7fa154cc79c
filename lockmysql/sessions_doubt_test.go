package lockmysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
)

// A session of the mode for update may end after it has got the lock and before its
// token is drawn, on another connection. Somebody else may have the lock by then.
func TestATokenThatIsDrawnTooLateIsNotBelieved(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		a, b, db := forUpdate.client(t, f), forUpdate.client(t, f), f.Open(t)
		s, first := a.lock(t, request("k")) // now there are rows
		giveBack(t, s)
		table, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = table.Close() }()
		late := func() bool { // the server has a second before it no longer waits for the table
			s := a.session(t)
			exec(t, table, "LOCK TABLES `sqllock_term` WRITE")
			defer exec(t, table, "UNLOCK TABLES")
			answer := make(chan error, 1)
			go func() {
				_, err := s.Grant(context.Background(), []driver.AcquireRequest{request("k")})
				answer <- err
			}()
			var pid int64
			for pid == 0 || !pinIsLocked(t, db, "k") {
				if err := db.QueryRow("SELECT COALESCE(IS_USED_LOCK(?), 0)", s.ID()).Scan(&pid); err != nil {
					t.Fatal(err)
				}
				if len(answer) > 0 {
					return false
				}
			}
			exec(t, db, fmt.Sprintf("KILL %d", pid))
			eventually(t, "the lock is free", 10*time.Second, func() bool { return !pinIsLocked(t, db, "k") })
			if len(answer) > 0 {
				return false
			}
			exec(t, table, "UNLOCK TABLES")
			if err := <-answer; err == nil || !closed(s) {
				t.Errorf("believed in a lock that it had lost: %v", err)
			}
			return true
		}
		for try := 1; !late(); try++ {
			if try == 10 {
				t.Fatal("the token was never drawn after the end of the session")
			}
		}
		_, res := b.eventuallyGets(t, request("k"), 5*time.Second)
		if res.Version <= first.Version {
			t.Errorf("%+v after %+v", res, first)
		}
	})
}

func pinIsLocked(t *testing.T, db *sql.DB, name string) bool {
	t.Helper()
	err := db.QueryRow("SELECT 1 FROM `sqllock_pin` WHERE name = ? FOR UPDATE SKIP LOCKED", name).Scan(new(int))
	if err != nil && err != sql.ErrNoRows {
		t.Fatal(err)
	}
	return err != nil
}

// retryGrant is lock for a client whose statements the server may break off.
func (c *client) retryGrant(t *testing.T, r driver.AcquireRequest) (driver.Session, driver.AcquireResult) {
	t.Helper()
	for try := 0; ; try++ {
		s, err := c.Session(t.Context())
		if err == nil {
			t.Cleanup(func() { _ = s.Close() })
			var res []driver.AcquireResult
			if res, err = s.Grant(t.Context(), []driver.AcquireRequest{r}); err == nil {
				return s, res[0]
			}
		}
		if try == 500 {
			t.Fatal(err)
		}
		if s != nil {
			_ = s.Close()
		}
	}
}

// A statement that the server breaks off has taken a part of the locks.
func TestAfterAFailedGrantNothingIsHeld(t *testing.T) {
	const n = 3000
	eachServer(t, func(t *testing.T, f *fixture) {
		param := "max_statement_time=0.01"
		if f.Engine() == testdb.MySQL {
			param = "max_execution_time=10"
		}
		a, b := advisory.client(t, f, param), advisory.client(t, f)
		kept := request("kept")
		s, res := a.retryGrant(t, kept)
		broken := false
		for i := range 20 {
			reqs := requests(n, fmt.Sprintf("%d %%04d", i))
			for k := range reqs {
				reqs[k].Shared = i%2 == 0
			}
			got, err := s.Grant(t.Context(), reqs)
			if err == nil {
				rel := releases(reqs, got)
				for k := range rel {
					rel[k].Shared = reqs[k].Shared
				}
				if _, err := s.Release(t.Context(), rel); err != nil {
					t.Log(err)
				}
			} else {
				broken = true
				other := b.session(t)
				deadline := time.Now().Add(20 * time.Second)
				for missing := 1; missing > 0; {
					alone := requests(n, fmt.Sprintf("%d %%04d", i))
					all, err := other.Grant(t.Context(), alone)
					if err != nil {
						t.Fatal(err)
					}
					missing = 0
					for _, r := range all {
						if !r.Granted {
							missing++
						}
					}
					if _, err := other.Release(t.Context(), releases(alone, all)); err != nil {
						t.Fatal(err)
					}
					if missing > 0 && time.Now().After(deadline) {
						t.Fatalf("%d names are held after a grant that failed; session gone: %v", missing, closed(s))
					}
				}
			}
			if closed(s) {
				break
			}
			if status := pings(t, s, kept, res); status != driver.Renewed {
				t.Errorf("%v", status)
			}
		}
		if !broken {
			t.Log("the server was too quick to break off a statement")
		}
	})
}

// Whoever loses writes nothing, though for update he begins a transaction.
func TestWhoLosesInASessionLeavesNoTrace(t *testing.T) {
	for _, engine := range testdb.Startable() {
		if engine == testdb.Postgres {
			continue
		}
		for _, m := range sessionModes {
			t.Run(engine+" "+m.name, func(t *testing.T) {
				f := &fixture{testdb.StartServer(t, engine).Database}
				f.migrate(t)
				a, b, db := m.client(t, f), m.client(t, f), f.Open(t)
				a.lock(t, request("k"))
				s := b.session(t)
				lose := func() {
					if res, err := s.Grant(t.Context(), []driver.AcquireRequest{request("k")}); err != nil || res[0].Granted {
						t.Fatalf("%+v, %v", res, err)
					}
				}
				lose()
				var before, after string
				for range 20 { // the server itself writes now and then
					before = written(t, db)
					for range 100 {
						lose()
					}
					if after = written(t, db); after == before || fewer(before, after, 50) {
						return
					}
				}
				t.Errorf("100 losing attempts wrote to the redo log, each time: %s, was %s", after, before)
			})
		}
	}
}

func written(t *testing.T, db *sql.DB) string {
	t.Helper()
	rows, err := db.Query(`SHOW GLOBAL STATUS WHERE Variable_name IN ('Innodb_lsn_current', 'Innodb_log_write_requests')`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var all []string
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			t.Fatal(err)
		}
		all = append(all, name+"="+value)
	}
	return strings.Join(all, " ")
}

// fewer reports that the redo log has had fewer than n writes from one state to another: MySQL writes
// some by itself.
func fewer(before, after string, n int) bool {
	var first, last int
	_, e1 := fmt.Sscanf(before, "Innodb_log_write_requests=%d", &first)
	_, e2 := fmt.Sscanf(after, "Innodb_log_write_requests=%d", &last)
	return e1 == nil && e2 == nil && last-first < n
}

// MariaDB can be told that no statement of a transaction may lock what the
// transaction does not see.
func TestASnapshotThatKnowsNoPinIsTooOld(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		if f.Engine() != testdb.MariaDB {
			return
		}
		db := f.Open(t, "innodb_snapshot_isolation=1")
		c := forUpdate.client(t, f)
		exec(t, db, "CREATE TABLE work (v INT)")
		tx := begin(t, db, sql.LevelRepeatableRead)
		if err := tx.QueryRow("SELECT COUNT(*) FROM work").Scan(new(int)); err != nil {
			t.Fatal(err)
		}
		if status := c.tryTx(t, tx, "k", false); status != driver.TxTooOld {
			t.Errorf("%v", status)
		}
		if status := c.tryTx(t, begin(t, db, sql.LevelRepeatableRead), "k", false); status != driver.TxTaken {
			t.Errorf("a new one: %v", status)
		}
	})
}

// Whether a term is the current one is decided in the transaction. The look before it
// is a courtesy, for which there may be no connection.
func TestAGuardDecidesInTheTransaction(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, f *fixture, m sessionMode) {
		db, admin := f.Open(t), f.Open(t)
		db.SetMaxOpenConns(3)
		c := m.on(t, db, sessionTTL)
		control := connections(t, admin)
		other := m.client(t, f)
		r := request("k")
		s, res := c.lock(t, r)
		unlock(t, s, r, res)
		giveBack(t, s)
		next := request("k")
		holder, now := other.lock(t, next)

		tx := begin(t, db, sql.LevelRepeatableRead)
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		queued := make(chan struct{})
		go func() { // takes the connection that the store would open
			defer close(queued)
			if conn, err := db.Conn(context.Background()); err == nil {
				time.Sleep(2 * time.Second)
				_ = conn.Close()
			}
		}()
		defer func() { <-queued }()
		eventually(t, "somebody waits for a connection", 20*time.Second, func() bool { return db.Stats().WaitCount > 0 })
		for _, id := range control {
			_, _ = admin.Exec(fmt.Sprintf("KILL %d", id))
		}
		if status, err := c.Guard(t.Context(), tx, guardRequest(s, r, res)); err != nil || status != driver.Fenced {
			t.Errorf("a former term: %v, %v", status, err)
		}
		_ = tx.Rollback()
		unlock(t, holder, next, now)
	})
}

func TestAnAcquisitionThatAsksAgainIsNotItsOwnPredecessor(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, f *fixture, m sessionMode) {
		c := m.client(t, f)
		r := request("k")
		r.MinHold, r.Delay = time.Hour, time.Hour
		res := c.dies(t, r)
		_, again := c.lock(t, r)
		if again.Crashed != (driver.Holder{}) || again.Version <= res.Version {
			t.Errorf("%+v", again)
		}
	})
}

// Draws that do not come from who has the lock, as those of a session that is gone,
// must not hand out a token twice.
func TestDrawsAtOneTimeShareNoToken(t *testing.T) {
	t.Parallel()
	const clients, draws = 5, 30
	eachServer(t, func(t *testing.T, f *fixture) {
		exec(t, f.Open(t), "INSERT INTO `sqllock_term` (mode, name, version) VALUES (2, 'k', 9000000000000000)") // ahead of the clock
		var mu sync.Mutex
		tokens := make(map[int64]int)
		var wg sync.WaitGroup
		for range clients {
			c := forUpdate.client(t, f)
			wg.Go(func() {
				for range draws {
					res, err := c.Draw(t.Context(), request("k"))
					if err != nil {
						t.Errorf("Draw: %v", err)
						return
					}
					mu.Lock()
					if res.Granted {
						tokens[res.Version]++
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		for token, n := range tokens {
			if n > 1 {
				t.Errorf("token %d was drawn %d times", token, n)
			}
		}
		if len(tokens) < clients {
			t.Errorf("only %d draws succeeded", len(tokens))
		}
	})
}
