package locksqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

const (
	envContender = "LOCKSQLITE_TEST_CONTENDER" // path of the database
	contenders   = 4
	turns        = 25
)

// contend is the process that the test starts: it counts up a file under the
// lock, as if the file could not be shared otherwise.
func contend(path string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	db, err := sql.Open("sqlite", "file:"+path)
	must(err)
	s, err := locksqlite.DB(db).OpenUnique(ctx, driver.Client{Label: strconv.Itoa(os.Getpid())})
	must(err)
	for range turns {
		acq, version := take(ctx, s, "counter")
		count(path+".count", version)
		for {
			freed, err := s.Release(ctx, []driver.ReleaseRequest{{Name: "counter", Acq: acq, Version: version}})
			if err != nil && classify(err) == driver.Again {
				time.Sleep(time.Millisecond)
				continue
			}
			must(err)
			if !freed[0].Freed {
				must(fmt.Errorf("%d is not ours any more", version))
			}
			break
		}
	}
}

func take(ctx context.Context, s driver.Store, name string) (driver.ID, int64) {
	req := driver.AcquireRequest{Name: name, Acq: id(), TTL: time.Minute}
	for {
		r, err := s.Acquire(ctx, []driver.AcquireRequest{req})
		if err != nil && classify(err) != driver.Again {
			must(err)
		}
		if err == nil && r[0].Granted {
			return req.Acq, r[0].Version
		}
		time.Sleep(time.Millisecond)
	}
}

// count appends a token to the file by reading and writing the whole of it.
func count(path string, token int64) {
	text, err := os.ReadFile(path)
	if !os.IsNotExist(err) {
		must(err)
	}
	time.Sleep(time.Millisecond)
	must(os.WriteFile(path, fmt.Appendf(text, "%d\n", token), 0o600))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func TestProcessesThatContendForOneNameExcludeEachOther(t *testing.T) {
	t.Parallel()
	for _, journal := range []string{"wal", "delete"} {
		t.Run(journal, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "locks.db")
			prepare(t, path, journal)
			var wg sync.WaitGroup
			for range contenders {
				wg.Go(func() {
					cmd := osexec.Command(os.Args[0])
					cmd.Env = append(os.Environ(), envContender+"="+path)
					if out, err := cmd.CombinedOutput(); err != nil {
						t.Errorf("%v: %s", err, out)
					}
				})
			}
			wg.Wait()
			text, err := os.ReadFile(path + ".count")
			if err != nil {
				t.Fatal(err)
			}
			tokens := strings.Fields(string(bytes.TrimSpace(text)))
			if len(tokens) != contenders*turns {
				t.Errorf("%d turns left a trace, not %d", len(tokens), contenders*turns)
			}
			for i := 1; i < len(tokens); i++ {
				if tokens[i] <= tokens[i-1] { // all have 16 digits
					t.Errorf("token %s after %s", tokens[i], tokens[i-1])
				}
			}
		})
	}
}

func TestGoroutinesWithHandlesOfTheirOwnExcludeEachOther(t *testing.T) {
	t.Parallel()
	path := migrated(t)
	var wg sync.WaitGroup
	var held [10]int // each guarded by the lock of its name alone
	for range 6 {
		s := openStore(t, open(t, path, "_pragma=busy_timeout(100)"))
		wg.Go(func() {
			for i := range 60 {
				name := strconv.Itoa(i % len(held))
				acq, _ := take(t.Context(), s, name)
				held[i%len(held)]++
				for {
					if _, err := s.Release(t.Context(), []driver.ReleaseRequest{{Name: name, Acq: acq}}); err == nil {
						break
					}
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
	for i, n := range held {
		if n != 6*60/len(held) {
			t.Errorf("name %d was held %d times", i, n)
		}
	}
}

func TestEachCrashIsReportedOnce(t *testing.T) {
	path := migrated(t)
	db := open(t, path)
	first := openStore(t, db)
	var names []string
	for i := range 300 {
		names = append(names, fmt.Sprintf("name-%03d", i))
	}
	var bySweep, byGrant int
	for range 3 {
		exec(t, db, "DELETE FROM sqllock_lock")
		dead := ask(names...)
		grant(t, first, dead)
		expire(t, db)

		var mu sync.Mutex
		reported := make(map[driver.ID]int)
		var wg sync.WaitGroup
		start := make(chan struct{})
		for i := range 6 {
			s := openStore(t, open(t, path, "_pragma=busy_timeout(100)"))
			wg.Go(func() {
				<-start
				for todo := rand.Perm(len(names) / 10); len(todo) > 0; {
					crashed, err := endSome(t.Context(), s, names[10*todo[0]:10*todo[0]+10], i%2 == 0)
					if err == nil {
						todo = todo[1:]
					} else if classify(err) != driver.Again {
						t.Error(err)
						return
					}
					mu.Lock()
					for _, h := range crashed {
						reported[h.Acq]++
						if i%2 == 0 {
							bySweep++
						} else {
							byGrant++
						}
					}
					mu.Unlock()
				}
			})
		}
		close(start)
		wg.Wait()
		for i, r := range dead {
			if reported[r.Acq] != 1 {
				t.Errorf("%s: reported %d times", names[i], reported[r.Acq])
			}
		}
		if len(reported) != len(names) {
			t.Errorf("%d crashes of %d", len(reported), len(names))
		}
	}
	t.Logf("%d by sweeps, %d by grants", bySweep, byGrant)
}

// endSome sweeps names or asks for them, and returns whose terms that ended.
func endSome(ctx context.Context, s driver.Store, names []string, bySweep bool) (crashed []driver.Holder, err error) {
	if bySweep {
		after := names[0][:len(names[0])-1] // sorts before it
		res, err := s.Sweep(ctx, driver.SweepRequest{After: after, Limit: len(names), Retention: time.Hour})
		for _, c := range res.Crashed {
			crashed = append(crashed, c.Holder)
		}
		return crashed, err
	}
	results, err := s.Acquire(ctx, ask(names...))
	for _, r := range results {
		if r.Crashed != (driver.Holder{}) {
			crashed = append(crashed, r.Crashed)
		}
	}
	return crashed, err
}

func prepare(t *testing.T, path, journal string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode("+journal+")")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := migrations.Up(t.Context(), locksqlite.DB(db)); err != nil {
		t.Fatal(err)
	}
}
