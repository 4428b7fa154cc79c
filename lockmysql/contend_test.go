package lockmysql_test

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// innodb is what the engine counts.
type innodb struct{ trx, lsn int64 }

var (
	trxCounter = regexp.MustCompile(`Trx id counter (\d+)`)
	logNumber  = regexp.MustCompile(`Log sequence number\s+(\d+)`)
)

func readInnoDB(t *testing.T, db *sql.DB) (n innodb) {
	t.Helper()
	var status string
	if err := db.QueryRow(`SHOW ENGINE INNODB STATUS`).Scan(new(string), new(string), &status); err != nil {
		t.Fatal(err)
	}
	for re, to := range map[*regexp.Regexp]*int64{trxCounter: &n.trx, logNumber: &n.lsn} {
		m := re.FindStringSubmatch(status)
		if m == nil {
			t.Fatalf("no %v in the status", re)
		}
		*to, _ = strconv.ParseInt(m[1], 10, 64)
	}
	return n
}

func TestALosingAttemptLeavesNoTrace(t *testing.T) {
	eachServer(t, func(t *testing.T, f *fixture) {
		holder, admin := f.store(t)
		reqs := requests(50, "name %02d")
		take(t, holder, reqs...)
		for _, level := range []string{"READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE"} {
			t.Run(level, func(t *testing.T) {
				s, _ := f.store(t, f.isolation(t, level))
				// While the rows are locked, as by a renewal, losers must not queue.
				unlock := lockRow(t, f.Open(t), reqs[0].Name, reqs[49].Name)
				began := time.Now()
				quiet := false
				for try := 0; try < 20 && !quiet; try++ { // the server itself writes now and then
					before := readInnoDB(t, admin)
					for i := range 250 {
						if r := grant(t, s, request(reqs[i%50].Name))[0]; r.Granted || r.Holder.Acq != reqs[i%50].Acq {
							t.Fatalf("%+v", r)
						}
					}
					for range 5 {
						for _, r := range grant(t, s, requests(50, "name %02d")...) {
							if r.Granted {
								t.Fatalf("%+v", r)
							}
						}
					}
					after := readInnoDB(t, admin)
					quiet = before == after
					t.Logf("transaction ids: %d, log bytes: %d", after.trx-before.trx, after.lsn-before.lsn)
				}
				if !quiet {
					t.Error("500 losing attempts took transaction ids or wrote to the log, each time")
				}
				if took := time.Since(began); took > 20*time.Second {
					t.Errorf("took %v", took)
				}
				unlock()
			})
		}
		var rows int
		if err := admin.QueryRow("SELECT COUNT(*) FROM `sqllock_lock`").Scan(&rows); err != nil || rows != len(reqs) {
			t.Errorf("%d rows, %v", rows, err)
		}
	})
}

func TestOverlappingBatchesNeverGetTheSameName(t *testing.T) {
	const rounds, callers, names = 30, 6, 40
	eachServer(t, func(t *testing.T, f *fixture) {
		for _, level := range []string{"READ-COMMITTED", "REPEATABLE-READ"} {
			t.Run(level, func(t *testing.T) {
				db := f.Open(t, f.isolation(t, level))
				s := open(t, db)
				var mu sync.Mutex
				holders, tokens, faults := map[string]int{}, map[string]int64{}, 0
				var wg sync.WaitGroup
				for range callers {
					wg.Go(func() {
						for round := range rounds {
							reqs := overlapping(fmt.Sprintf("%s/%d", level, round/10), names)
							res, err := s.Grant(t.Context(), reqs)
							if err != nil {
								if s.Classify(err) != driver.Again {
									t.Error(err)
								}
								mu.Lock()
								faults++
								mu.Unlock()
								continue
							}
							var mine []driver.ReleaseRequest
							mu.Lock()
							for i, r := range res {
								if !r.Granted {
									continue
								}
								name := reqs[i].Name
								if holders[name]++; holders[name] > 1 {
									t.Errorf("%q is held twice", name)
								}
								if r.Version <= tokens[name] {
									t.Errorf("%q: token %d after %d", name, r.Version, tokens[name])
								}
								tokens[name] = r.Version
								mine = append(mine, driver.ReleaseRequest{Name: name, Acq: reqs[i].Acq, Version: r.Version})
							}
							mu.Unlock()
							mu.Lock()
							for _, r := range mine {
								holders[r.Name]--
							}
							mu.Unlock()
							freed, err := s.Release(t.Context(), mine)
							if err != nil || slices.Contains(freed, false) {
								t.Errorf("release: %v %v", freed, err)
							}
						}
					})
				}
				wg.Wait()
				t.Logf("%d of %d batches had to try again", faults, rounds*callers)
			})
		}
	})
}

// overlapping requests some of the names, at random.
func overlapping(prefix string, names int) (reqs []driver.GrantRequest) {
	for i := range names {
		if rand.N(2) == 0 {
			reqs = append(reqs, request(fmt.Sprintf("%s/%02d", prefix, i)))
		}
	}
	return reqs
}

func TestManyCallersOfOneNameExcludeEachOther(t *testing.T) {
	eachServer(t, func(t *testing.T, f *fixture) {
		db := f.Open(t, f.isolation(t, "SERIALIZABLE"))
		s := open(t, db)
		var mu sync.Mutex
		var last int64
		held, won := false, 0
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 100 {
					r := request("hot")
					res, err := s.Grant(t.Context(), []driver.GrantRequest{r})
					if err != nil {
						t.Error(err)
						continue
					}
					if !res[0].Granted {
						continue
					}
					mu.Lock()
					if held || res[0].Version <= last {
						t.Errorf("granted while held (%v), token %d after %d", held, res[0].Version, last)
					}
					held, last, won = true, res[0].Version, won+1
					mu.Unlock()
					mu.Lock()
					held = false
					mu.Unlock()
					freed, err := s.Release(t.Context(), []driver.ReleaseRequest{{Name: r.Name, Acq: r.Acq, Version: res[0].Version}})
					if err != nil || !freed[0] {
						t.Errorf("release: %v %v", freed, err)
					}
				}
			})
		}
		wg.Wait()
		t.Logf("%d of 800 attempts won", won)
	})
}
