package lockmysql_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
)

// long is a value of 64 KiB with every byte in it.
func long() []byte {
	value := make([]byte, 64<<10)
	for i := range value {
		value[i] = byte(i + i/256)
	}
	return value
}

func TestAValueIsKeptByteForByteWhileTheNameIsHeld(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		for name, params := range sessions(t, f) {
			t.Run(name, func(t *testing.T) {
				s, db := f.store(t, params...)
				for _, n := range []int{1, 3} {
					reqs := requests(n, fmt.Sprintf("%s of %d, %%d", name, n))
					var names []string
					for i := range reqs {
						names = append(names, reqs[i].Name)
						if i != 1 { // that one has none
							reqs[i].Value = long()
						}
					}
					check := func(when string) {
						t.Helper()
						for i, r := range look(t, s, names...) {
							if !r.Held() || !bytes.Equal(r.Value, reqs[i].Value) || (r.Value == nil) != (reqs[i].Value == nil) {
								t.Errorf("%s: %q has %d bytes, want %d", when, r.Name, len(r.Value), len(reqs[i].Value))
							}
						}
					}
					none := func(when string) {
						t.Helper()
						for _, r := range look(t, s, names...) {
							if r.Value != nil {
								t.Errorf("%s: %q has %d bytes", when, r.Name, len(r.Value))
							}
						}
					}
					res := take(t, s, reqs...)
					check("new")
					renew(t, s, false, renewals(reqs, res, 2*minute)...)
					check("renewed")
					release(t, s, releases(reqs, res)...)
					none("released")
					take(t, s, reqs...)
					check("known")
					expire(t, db, names...)
					for i := range reqs {
						reqs[i].Acq, reqs[i].Value = newID(), nil
					}
					take(t, s, reqs...)
					none("taken over by somebody without a value")
				}
			})
		}
	})
}

func TestAHundredLongValuesGoTogether(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		for _, params := range []string{"interpolateParams=false", "interpolateParams=true"} {
			longValues(t, f, params)
		}
	})
}

// longValues takes a hundred names with a value of 64 KiB each, when they are new
// and when they are known, and returns how many statements each took.
func longValues(t *testing.T, f *fixture, params string) (counts []int) {
	t.Helper()
	s, db := f.store(t, params)
	reqs := requests(100, params+" %02d")
	var names []string
	for i := range reqs {
		reqs[i].Value = long()
		reqs[i].Value[0] = byte(i)
		names = append(names, reqs[i].Name)
	}
	for range 2 {
		before, began := questions(t, db), time.Now()
		res := take(t, s, reqs...)
		counts = append(counts, questions(t, db)-before-1)
		t.Logf("%s: %d statements, %v", params, counts[len(counts)-1], time.Since(began))
		for i, r := range look(t, s, names...) {
			if !bytes.Equal(r.Value, reqs[i].Value) {
				t.Errorf("%s: %q has %d bytes", params, r.Name, len(r.Value))
			}
		}
		release(t, s, releases(reqs, res)...)
	}
	return counts
}

func TestValuesFitIntoWhatTheServerTakesAtOnce(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.Startable() {
		if engine == testdb.Postgres {
			continue
		}
		t.Run(engine, func(t *testing.T) {
			f := &fixture{testdb.StartServer(t, engine, "--max-allowed-packet=1048576").Database}
			f.migrate(t)
			for _, params := range []string{"interpolateParams=false", "interpolateParams=true"} {
				for _, n := range longValues(t, f, params) {
					if n < 14 || n > 18 { // a look, and seven at a time
						t.Errorf("%s: %d statements", params, n)
					}
				}
				s, _ := f.store(t, params)
				req := request(params)
				req.Value = make([]byte, 600<<10)
				if _, err := s.Acquire(t.Context(), []driver.AcquireRequest{req}); lockmysql.Classify(err) != driver.Refused {
					t.Errorf("%s: a value that is too long: %v", params, err)
				}
				take(t, s, request(params))
			}
		})
	}
}
