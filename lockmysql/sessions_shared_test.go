package lockmysql_test

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/netproxy"
)

func sharedRequest(name string) driver.AcquireRequest {
	r := request(name)
	r.Shared = true
	return r
}

func TestWhoSharesALockExcludesWhoDoesNot(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, f *fixture, m sessionMode) {
		a, b := m.client(t, f), m.client(t, f)
		first, second := sharedRequest("k"), sharedRequest("k")
		s1, r1 := a.lock(t, first)
		s2, r2 := b.lock(t, second)
		if r2.Version <= r1.Version {
			t.Errorf("the second reader has token %d after %d", r2.Version, r1.Version)
		}
		denied := b.wantDenied(t, request("k"))
		row := lookSession(t, a, "k")
		if m.name == advisory.name {
			if denied.Holder != (driver.Holder{Shared: true}) {
				t.Errorf("a writer is told %+v", denied)
			}
			want := driver.Holder{Version: r2.Version, Since: r2.Now, Shared: true}
			if row.Readers != 2 || !row.Session || row.Holder != want {
				t.Errorf("a look: %+v", row)
			}
		} else if denied.Holder != (driver.Holder{}) || row.Held() {
			t.Errorf("what cannot be known is told: %+v, %+v", denied, row)
		}
		unlock(t, s1, first, r1)
		b.wantDenied(t, request("k"))
		unlock(t, s2, second, r2)

		writer := request("k")
		s3, r3 := a.lock(t, writer)
		if r3.Version <= r2.Version || r3.Crashed != (driver.Holder{}) {
			t.Errorf("the writer after readers: %+v", r3)
		}
		if denied := b.wantDenied(t, sharedRequest("k")); denied.Holder.Acq != writer.Acq {
			t.Errorf("a reader is told %+v", denied)
		}
		unlock(t, s3, writer, r3)
		third := sharedRequest("k")
		s4, r4 := b.lock(t, third)
		if r4.Version <= r3.Version {
			t.Errorf("a reader after the writer has token %d after %d", r4.Version, r3.Version)
		}
		unlock(t, s4, third, r4)
	})
}

func TestReadersAndWritersNeverOverlap(t *testing.T) {
	t.Parallel()
	const clients, rounds = 6, 25
	eachMode(t, func(t *testing.T, f *fixture, m sessionMode) {
		var mu sync.Mutex
		readers, writers := 0, 0
		var tokens []int64
		var wg sync.WaitGroup
		for n := range clients {
			c := m.client(t, f)
			s := c.session(t)
			wg.Go(func() {
				for i := 0; i < rounds; {
					r := request("k")
					r.Shared = (n+i)%3 != 0
					res, err := s.Grant(t.Context(), []driver.AcquireRequest{r})
					if err != nil {
						t.Errorf("Grant: %v", err)
						return
					}
					if !res[0].Granted {
						time.Sleep(time.Millisecond)
						continue
					}
					i++
					count := func(by int) {
						mu.Lock()
						defer mu.Unlock()
						if r.Shared {
							readers += by
						} else {
							writers += by
						}
						if writers > 1 || writers == 1 && readers > 0 {
							t.Errorf("%d writers and %d readers", writers, readers)
						}
						if by > 0 {
							tokens = append(tokens, res[0].Version)
						}
					}
					count(1)
					time.Sleep(200 * time.Microsecond)
					count(-1)
					if freed, err := s.Release(t.Context(), []driver.ReleaseRequest{{Name: r.Name, Acq: r.Acq, Version: res[0].Version, Shared: r.Shared}}); err != nil || !freed[0] {
						t.Errorf("Release: %v, %v", freed, err)
						return
					}
				}
			})
		}
		wg.Wait()
		slices.Sort(tokens)
		if len(slices.Compact(tokens)) != clients*rounds {
			t.Errorf("%d grants had %d tokens", clients*rounds, len(tokens))
		}
	})
}

func TestAnAdvisorySessionHoldsManyLocks(t *testing.T) {
	const n = 300
	eachServer(t, func(t *testing.T, f *fixture) {
		a, b := advisory.client(t, f), advisory.client(t, f)
		taken := request("name 007")
		s, res := b.lock(t, taken)
		carrier := a.session(t)
		reqs := requests(n, "name %03d")
		for i := range reqs {
			reqs[i].Shared = i%3 == 0
		}
		began := questionsOf(t, f)
		got, err := carrier.Grant(t.Context(), reqs)
		if err != nil {
			t.Fatal(err)
		}
		if asked := questionsOf(t, f) - began; asked > 60 {
			t.Errorf("%d statements for %d locks", asked, n)
		}
		for i, r := range got {
			if r.Granted != (i != 7) {
				t.Fatalf("request %d: %+v", i, r)
			}
		}
		for i := range reqs {
			if i%10 == 0 {
				b.wantDenied(t, request(reqs[i].Name))
			}
		}
		rel := releases(reqs, got)
		for i := range rel {
			rel[i].Shared = reqs[i].Shared
		}
		freed, err := carrier.Release(t.Context(), rel)
		if err != nil {
			t.Fatal(err)
		}
		for i, ok := range freed {
			if ok != (i != 7) {
				t.Errorf("release %d: %v", i, ok)
			}
		}
		unlock(t, s, taken, res)
		other := b.session(t)
		again, err := other.Grant(t.Context(), requests(n, "name %03d"))
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range again {
			if !r.Granted || r.Crashed != (driver.Holder{}) || r.Version <= got[i].Version {
				t.Fatalf("afterwards, request %d: %+v after %+v", i, r, got[i])
			}
		}
	})
}

// questionsOf is how many statements the server has run, for whomever.
func questionsOf(t *testing.T, f *fixture) (n int) {
	t.Helper()
	db := f.Open(t)
	defer func() { _ = db.Close() }()
	if err := db.QueryRow(`SHOW GLOBAL STATUS LIKE 'Questions'`).Scan(new(string), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestReadersOfOneSessionShareASlot(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		a, b := advisory.client(t, f), advisory.client(t, f)
		s := a.session(t)
		var reqs []driver.AcquireRequest
		var got []driver.AcquireResult
		for range 3 {
			r := sharedRequest("k")
			res, err := s.Grant(t.Context(), []driver.AcquireRequest{r})
			if err != nil || !res[0].Granted {
				t.Fatalf("%+v, %v", res, err)
			}
			if len(got) > 0 && res[0].Version <= got[len(got)-1].Version {
				t.Errorf("token %d after %d", res[0].Version, got[len(got)-1].Version)
			}
			reqs, got = append(reqs, r), append(got, res[0])
		}
		// A session is not given again what it has, though the server would.
		if res, err := s.Grant(t.Context(), []driver.AcquireRequest{request("k")}); err != nil || res[0].Granted {
			t.Errorf("a writer beside readers of its session: %+v, %v", res, err)
		}
		if row := lookSession(t, b, "k"); row.Readers != 1 {
			t.Errorf("%d sessions share it", row.Readers)
		}
		for i := range reqs {
			b.wantDenied(t, request("k"))
			unlock(t, s, reqs[i], got[i])
		}
		r := request("k")
		writing, _ := b.lock(t, r)
		for _, again := range []driver.AcquireRequest{request("k"), sharedRequest("k")} {
			if res, err := writing.Grant(t.Context(), []driver.AcquireRequest{again}); err != nil || res[0].Granted {
				t.Errorf("what the session has alone: %+v, %v", res, err)
			}
		}
	})
}

func TestThirtyTwoSessionsShareALockAndNoMore(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		c := advisory.client(t, f)
		var last driver.Session
		var r driver.AcquireRequest
		var res driver.AcquireResult
		for range 32 {
			r = sharedRequest("k")
			last, res = c.lock(t, r)
		}
		if row := lookSession(t, c, "k"); row.Readers != 32 {
			t.Errorf("%d sessions share it", row.Readers)
		}
		if denied := c.wantDenied(t, sharedRequest("k")); !denied.Holder.Shared {
			t.Errorf("one more is told %+v", denied)
		}
		unlock(t, last, r, res)
		c.lock(t, sharedRequest("k"))
		c.wantDenied(t, request("k"))
	})
}

// A reader asks again for a lock that another one has for a moment only: here until it does.
func TestAReaderDoesNotMindThatAnotherIsBeingServed(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		proxy := netproxy.New(t, f.Addr())
		c := advisory.on(t, f.OpenVia(t, proxy.Addr()), sessionTTL)
		conn, err := f.Open(t).Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		key := c.Key("k")
		s := c.session(t)
		if err := conn.QueryRowContext(t.Context(), "SELECT GET_LOCK(?, 0)", key).Scan(new(int)); err != nil {
			t.Fatal(err)
		}
		var sent atomic.Int64
		released := make(chan error, 1)
		proxy.OnUp(func(_ int, b []byte) netproxy.Action {
			if bytes.Contains(b, []byte("CASE GET_LOCK(")) && sent.Add(1) == 2 { // the second request has not arrived
				released <- conn.QueryRowContext(t.Context(), "SELECT RELEASE_LOCK(?)", key).Scan(new(int))
			}
			return netproxy.Pass
		})
		res, err := s.Grant(t.Context(), []driver.AcquireRequest{sharedRequest("k")})
		if err != nil || !res[0].Granted {
			t.Fatalf("%+v, %v; it sent %d requests", res, err, sent.Load())
		}
		select {
		case err := <-released:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("the lock was granted while another one had it")
		}
	})
}
