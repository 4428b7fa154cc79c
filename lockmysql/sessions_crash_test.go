package lockmysql_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/netproxy"
	"github.com/sqllock/sqllock/internal/testdb"
)

// closed reports that a session is known to be gone.
func closed(s driver.Session) bool {
	select {
	case <-s.Gone():
		return true
	default:
		return false
	}
}

func TestAKilledSessionLetsGoAndTellsSoWhenItIsAsked(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, f *fixture, m sessionMode) {
		a, b := m.client(t, f), m.client(t, f)
		r := request("k")
		s, res := a.lock(t, r)
		killSessions(t, f.Open(t))

		next := request("k")
		_, taken := b.eventuallyGets(t, next, 5*time.Second)
		want := driver.Holder{Acq: r.Acq, Owner: r.Owner, Label: "host/test/1", Version: res.Version, Since: res.Now, Until: taken.Now}
		if taken.Crashed != want || taken.Version <= res.Version {
			t.Errorf("the next got %+v, want to be told of %+v", taken, want)
		}
		_, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: "k", Acq: r.Acq, Version: res.Version}})
		if err == nil || !closed(s) {
			t.Errorf("a renewal of a session that was killed: %v; known to be gone: %v", err, closed(s))
		}
		if _, err := s.Release(t.Context(), []driver.ReleaseRequest{{Name: "k", Acq: r.Acq, Version: res.Version}}); err == nil && m.name == advisory.name {
			t.Error("a session that is gone releases")
		}
		giveBack(t, s)
		if row := lookSession(t, b, "k"); row.Holder.Acq != next.Acq || !row.Session {
			t.Errorf("what a dead session releases is another's: %+v", row)
		}
	})
}

func TestATokenIsNeverHandedOutAgain(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.Startable() {
		if engine == testdb.Postgres {
			continue
		}
		for _, m := range sessionModes {
			t.Run(engine+" "+m.name, func(t *testing.T) {
				server := testdb.StartServer(t, engine)
				f := &fixture{server.Database}
				f.migrate(t)
				c := m.client(t, f)
				var last int64
				for round := range 8 {
					r := request("k")
					r.Shared = round%4 == 2
					_, res := c.eventuallyGets(t, r, 10*time.Second)
					if res.Version <= last {
						t.Fatalf("round %d: token %d after %d", round, res.Version, last)
					}
					last = res.Version
					if round%2 == 0 {
						killSessions(t, f.Open(t))
						continue
					}
					server.Kill()
					server.Restart()
				}
			})
		}
	}
}

// A host that has vanished closes no connection. The server ends its session by
// itself, and not before the TTL is over.
func TestTheServerEndsASilentSession(t *testing.T) {
	t.Parallel()
	const ttl = 4500 * time.Millisecond // five seconds, as the server counts
	eachMode(t, func(t *testing.T, f *fixture, m sessionMode) {
		proxy := netproxy.New(t, f.Addr())
		a := m.on(t, f.OpenVia(t, proxy.Addr()), ttl)
		b := m.client(t, f)
		r, shared := request("k"), sharedRequest("s")
		s, res := a.lock(t, r)
		a.lock(t, shared)
		var silent time.Time
		for range 6 { // a session that is heard of is not ended
			time.Sleep(ttl / 5)
			silent = time.Now()
			if status := pings(t, s, r, res); status != driver.Renewed {
				t.Fatalf("renewal: %v", status)
			}
		}
		proxy.Freeze()
		defer proxy.Thaw()
		for granted := false; !granted && time.Since(silent) < ttl-100*time.Millisecond; time.Sleep(100 * time.Millisecond) {
			other, res := b.ask(t, request("k"))
			if granted = res.Granted; granted && time.Since(silent) < ttl {
				t.Errorf("freed after %v", time.Since(silent))
			}
			giveBack(t, other)
		}
		b.eventuallyGets(t, request("k"), 30*time.Second)
	})
}

func TestACrashBeginsTheLockDelay(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, f *fixture, m sessionMode) {
		const delay = 700 * time.Millisecond
		a, b := m.client(t, f), m.client(t, f)
		r := request("k")
		r.Delay = delay
		s, res := a.lock(t, r)
		unlock(t, s, r, res)
		s, res = b.lock(t, request("k")) // which was released
		giveBack(t, s)

		// This one closed its session without a release, and asked for no delay.
		r.Acq = newID()
		_, res2 := a.eventuallyGets(t, r, 5*time.Second)
		if res2.Crashed.Version != res.Version {
			t.Errorf("%+v", res2)
		}
		killSessions(t, f.Open(t))
		var told []driver.AcquireResult
		began := time.Now()
		eventually(t, "granted after the delay", 5*time.Second, func() bool {
			s, got := b.ask(t, request("k"))
			if !got.Granted {
				giveBack(t, s)
			}
			told = append(told, got)
			return got.Granted
		})
		if took := time.Since(began); took < delay-10*time.Millisecond {
			t.Errorf("granted after %v, before the delay was over", took)
		}
		var crashes []driver.Holder
		for _, got := range told {
			if got.Crashed != (driver.Holder{}) {
				crashes = append(crashes, got.Crashed)
				if got.Granted || got.Holder.Until < got.Now+delay.Microseconds()-1 || got.Holder.Acq != (driver.ID{}) {
					t.Errorf("who finds the crash is told %+v", got)
				}
			}
		}
		if len(crashes) != 1 || crashes[0].Acq != r.Acq || crashes[0].Version != res2.Version {
			t.Errorf("the crash is told %d times: %+v", len(crashes), crashes)
		}
		if got := told[len(told)-1]; got.Version <= res2.Version {
			t.Errorf("token %d after %d", got.Version, res2.Version)
		}
	})
}

func TestTheMinimumHoldOfASessionKeepsTheName(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, f *fixture, m sessionMode) {
		a, b := m.client(t, f), m.client(t, f)
		r := request("k")
		r.MinHold = 6 * time.Second // the requests come sooner, also on a busy machine
		s, res := a.lock(t, r)
		if again, err := s.Grant(t.Context(), []driver.AcquireRequest{r}); err != nil || !again[0].Granted {
			t.Errorf("its own gate keeps the holder: %+v, %v", again, err)
		}
		unlock(t, s, r, res)
		want := driver.Holder{Until: res.Now + r.MinHold.Microseconds()}
		for _, q := range []driver.AcquireRequest{request("k"), sharedRequest("k")} {
			if got := b.wantDenied(t, q); got.Holder != want || got.Now == 0 {
				t.Errorf("told %+v, want %+v", got, want)
			}
		}
		if row := lookSession(t, b, "k"); row.Gate != want.Until {
			t.Errorf("a look: %+v", row)
		}
		b.eventuallyGets(t, request("k"), 30*time.Second)
		if left := time.Until(time.UnixMicro(want.Until)); left > 0 {
			t.Errorf("granted %v too early", left)
		}
	})
}

// A holder whose row was never cleared has crashed, also if its session lives on.
func TestWhatWasLostIsLeftLikeACrash(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, f *fixture, m sessionMode) {
		a, b := m.client(t, f), m.client(t, f)
		r := request("k")
		s, res := a.lock(t, r)
		freed, err := s.Release(t.Context(), []driver.ReleaseRequest{{Name: "k", Acq: r.Acq, Version: res.Version, Lost: true}})
		if err != nil || !freed[0] {
			t.Fatalf("%v, %v", freed, err)
		}
		if m.name == forUpdate.name {
			giveBack(t, s)
		}
		if row := lookSession(t, b, "k"); row.Session || row.Holder.Acq != r.Acq || row.Holder.Until < res.Now {
			t.Errorf("a look: %+v", row)
		}
		// Who has the server's lock next, and has no token yet, is not the one before.
		conn, err := f.Open(t).Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.QueryRowContext(t.Context(), "SELECT GET_LOCK(?, 0)", b.Key("k")).Scan(new(int)); err != nil {
			t.Fatal(err)
		}
		if row := lookSession(t, b, "k"); row.Session {
			t.Errorf("a look while another has the lock: %+v", row)
		}
		if err := conn.QueryRowContext(t.Context(), "SELECT RELEASE_LOCK(?)", b.Key("k")).Scan(new(int)); err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		if _, got := b.lock(t, request("k")); got.Crashed.Acq != r.Acq {
			t.Errorf("%+v", got)
		}
	})
}

// The token of the mode for update is drawn on another connection than the one that
// has the lock. If the lock is gone by then, nobody may believe in it.
func TestATokenDrawnForALostLockIsNotBelieved(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		a, b := forUpdate.client(t, f), forUpdate.client(t, f)
		_, first := a.lock(t, request("k"))
		_ = first
		// The row names somebody whose session lives: whoever draws now has lost the
		// lock, or is too early.
		res, err := b.Draw(t.Context(), request("k"))
		if err != nil || res.Granted || res.Crashed != (driver.Holder{}) {
			t.Errorf("drawn for a name that another holds: %+v, %v", res, err)
		}
		if row := lookSession(t, b, "k"); row.Holder.Version != first.Version || !row.Session {
			t.Errorf("%+v", row)
		}
	})
}

func TestABrokenControlConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, f *fixture, m sessionMode) {
		c := m.client(t, f)
		killSessions(t, f.Open(t))
		r := request("k")
		s, res := c.eventuallyGets(t, r, 5*time.Second)
		unlock(t, s, r, res)
		ctx := t.Context()
		if err := c.PrepareTx(ctx, driver.TxRequest{Name: "x"}); err != nil && !errors.Is(err, driver.ErrUnsupported) {
			t.Error(err)
		}
	})
}
