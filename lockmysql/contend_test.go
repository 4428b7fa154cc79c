package lockmysql_test

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/lockmysql"
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

// monitor checks from outside that a name has one holder at a time, whose token is
// higher than the last.
type monitor struct {
	mu     sync.Mutex
	held   map[string]bool
	tokens map[string]int64
	terms  int
}

func newMonitor() *monitor {
	return &monitor{held: make(map[string]bool), tokens: make(map[string]int64)}
}

func (m *monitor) enter(t *testing.T, name string, token int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held[name] || token <= m.tokens[name] {
		t.Errorf("%q is granted while held (%v), with token %d after %d", name, m.held[name], token, m.tokens[name])
	}
	m.held[name], m.tokens[name] = true, token
	m.terms++
}

func (m *monitor) leave(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held[name] = false
}

// abandon gives back what a failed call may have got.
func (m *monitor) abandon(t *testing.T, s driver.Store, reqs []driver.AcquireRequest) {
	all := make([]driver.ReleaseRequest, len(reqs))
	for i, r := range reqs {
		all[i] = driver.ReleaseRequest{Name: r.Name, Acq: r.Acq}
	}
	_, err := s.Release(t.Context(), all)
	for try := 0; err != nil && lockmysql.Classify(err) == driver.Again && try < 20; try++ {
		_, err = s.Release(t.Context(), all)
	}
	if err != nil {
		t.Error(err)
	}
}

// contend asks once, holds for a moment what it gets, and gives it back. It reports
// false if rows were locked for too long, and it is not known what it got.
func (m *monitor) contend(t *testing.T, s driver.Store, reqs []driver.AcquireRequest) bool {
	res, err := s.Acquire(t.Context(), reqs)
	if err != nil {
		m.abandon(t, s, reqs)
		return false
	}
	var mine []driver.ReleaseRequest
	for i, r := range releases(reqs, res) {
		if res[i].Granted {
			m.enter(t, r.Name, r.Version)
			mine = append(mine, r)
		}
	}
	runtime.Gosched()
	for _, r := range mine {
		m.leave(r.Name)
	}
	if freed := release(t, s, mine...); slices.Contains(freed, false) {
		t.Errorf("release: %v", freed)
	}
	return true
}

func TestOverlappingBatchesNeverGetTheSameName(t *testing.T) {
	t.Parallel()
	const rounds, callers, names = 30, 6, 40
	eachServer(t, func(t *testing.T, f *fixture) {
		for _, level := range []string{"READ-COMMITTED", "REPEATABLE-READ"} {
			t.Run(level, func(t *testing.T) {
				s := open(t, f.Open(t, f.isolation(t, level)))
				m := newMonitor()
				var again atomic.Int64
				var wg sync.WaitGroup
				for range callers {
					wg.Go(func() {
						for round := range rounds { // with new names now and then
							if !m.contend(t, s, overlapping(fmt.Sprintf("%s/%d", level, round/10), names)) {
								again.Add(1)
							}
						}
					})
				}
				wg.Wait()
				t.Logf("%d terms; %d of %d batches had to try again", m.terms, again.Load(), rounds*callers)
			})
		}
	})
}

// overlapping requests some of the names, at random.
func overlapping(prefix string, names int) (reqs []driver.AcquireRequest) {
	for i := range names {
		if rand.N(2) == 0 {
			reqs = append(reqs, request(fmt.Sprintf("%s/%02d", prefix, i)))
		}
	}
	return reqs
}

func TestManyCallersOfOneNameExcludeEachOther(t *testing.T) {
	t.Parallel()
	const rounds, callers = 100, 8
	eachServer(t, func(t *testing.T, f *fixture) {
		s := open(t, f.Open(t, f.isolation(t, "SERIALIZABLE")))
		m := newMonitor()
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range rounds {
					for try := 1; !m.contend(t, s, requests(1, "hot %d")); try++ { // the machine may be too slow for one
						if try == 3 {
							t.Error("an attempt at one name failed")
							break
						}
					}
				}
			})
		}
		wg.Wait()
		t.Logf("%d of %d attempts won", m.terms, rounds*callers)
	})
}
