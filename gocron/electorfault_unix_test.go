//go:build unix

package gocronlock_test

import (
	"database/sql"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	gocronlock "github.com/sqllock/sqllock/gocron"
	"github.com/sqllock/sqllock/internal/testdb"
)

// faults are how often what is done to a leader.
type faults struct{ kills, pauses, resigns int }

// longVar is set in the environment for a long test: leaders end more often in it.
const longVar = "SQLLOCK_TEST_LONG"

func TestThreeSchedulersHaveOneLeaderAndRunEachTickOnce(t *testing.T) {
	eachSerial(t, func(t *testing.T, p pair, d *testdb.Database) {
		n := faults{kills: 1, pauses: 1, resigns: 1}
		switch {
		case p == thorough:
			n = faults{kills: 1} // the rest is another test's
		case os.Getenv(longVar) != "":
			n.kills = 2
		}
		f := newFleet(t, p, d, replicaConfig{Every: 200 * time.Millisecond})
		f.run(n, d.Open(t))
		if !t.Failed() {
			testdb.Cover("gocron "+p.mode, p.engine)
		}
	})
}

// thorough is the pair on which leaders end many times.
var thorough = pair{unique, testdb.Postgres}

func TestAmongThreeSchedulersTheNextLeadsWithinATTLOfAKillAndAtOnceAfterResign(t *testing.T) {
	t.Parallel()
	if !slices.Contains(testdb.Engines(), thorough.engine) {
		return // which the report says
	}
	d := testdb.New(t, thorough.engine)
	n := faults{kills: 6, pauses: 2, resigns: 10}
	if os.Getenv(longVar) != "" {
		n = faults{kills: 20, pauses: 10, resigns: 10}
	}
	f := newFleet(t, thorough, d, replicaConfig{Every: 200 * time.Millisecond})
	f.checkTimes(f.run(n, d.Open(t)))
}

// run has three schedulers suffer, and checks what must hold whatever happens.
func (f *fleet) run(n faults, db *sql.DB) handovers {
	f.t.Helper()
	f.cfg.TTL, f.cfg.Settle = 3*time.Second, min(f.slow(500*time.Millisecond), gocronlock.DefaultSettle)
	for range 3 {
		f.start(0)
	}
	took := f.suffer(n)
	f.stop()
	f.checkBeliefs()
	f.checkTicks(db, n.kills+n.pauses+n.resigns)
	return took
}

// handovers are how long it took until the next one led.
type handovers struct{ kills, resigns []time.Duration }

// suffer does to each leader what is left to be done, in turns. What was done to one that
// led no more is done once more.
func (f *fleet) suffer(n faults) (took handovers) {
	f.t.Helper()
	leader := f.next(0)
	for n.kills+n.pauses+n.resigns > 0 {
		begun := monotonic()
		var next *belief
		switch {
		case n.pauses > 0 && n.pauses >= n.kills/2:
			f.signal(leader.p, syscall.SIGSTOP)
			next = f.next(leader.token)
			f.signal(leader.p, syscall.SIGCONT)
			woken := monotonic()
			f.await("the one that was paused looks again", func() bool { return leader.p.looked > woken })
			if next.from > begun {
				n.pauses--
			}
		case n.kills > 0 && n.kills >= n.resigns:
			f.kill(leader.p)
			f.start(0)
			next = f.next(leader.token)
			if next.from > begun {
				n.kills--
				took.kills = append(took.kills, next.from-begun)
			}
		default:
			if _, err := leader.p.in.Write([]byte("resign\n")); err != nil {
				f.t.Fatal(err)
			}
			f.await("the leader resigns", func() bool { return leader.p.resigned > begun })
			next = f.next(leader.token)
			if next.from > leader.p.resigned {
				n.resigns--
				took.resigns = append(took.resigns, next.from-leader.p.resigned)
			}
		}
		leader = next
	}
	return took
}

// next waits for a term that is later than token, and until a tick was noted in it.
func (f *fleet) next(token int64) (b *belief) {
	f.t.Helper()
	f.await("the next one leads, and runs the job", func() bool {
		i := slices.IndexFunc(f.terms, func(b *belief) bool { return b.token > token && b.p.ticks > b.ticks })
		if i >= 0 {
			b = f.terms[i]
		}
		return i >= 0
	})
	return b
}

func (f *fleet) await(what string, cond func() bool) {
	f.t.Helper()
	eventually(f.t, what, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return cond()
	})
}

// checkBeliefs fails if two believed to lead at one time, or if a token was not higher
// than those before.
func (f *fleet) checkBeliefs() {
	f.t.Helper()
	slices.SortFunc(f.terms, func(a, b *belief) int { return int(a.from - b.from) })
	for i, b := range f.terms[1:] {
		for _, a := range f.terms[:i+1] {
			if a.p != b.p && b.from < a.till {
				f.t.Errorf("two led for %v: tokens %d and %d", min(a.till, b.till)-b.from, a.token, b.token)
			}
			if a.token >= b.token {
				f.t.Errorf("token %d follows token %d", b.token, a.token)
			}
		}
	}
}

// checkTicks fails if a tick was run twice, or less were run than there were leaders.
func (f *fleet) checkTicks(db *sql.DB, least int) {
	f.t.Helper()
	var n, ticks int
	if err := db.QueryRowContext(f.t.Context(), `SELECT count(*), count(DISTINCT tick) FROM ticks`).Scan(&n, &ticks); err != nil {
		f.t.Fatal(err)
	}
	f.t.Logf("%d ticks, %d terms", ticks, len(f.terms))
	if n != ticks || ticks < least {
		f.t.Errorf("the job ran %d times at %d ticks\n%s", n, ticks, testdb.Dump(f.t, db, `SELECT tick, pid, at FROM ticks ORDER BY tick, at`))
	}
}

// checkTimes fails if it took too long until the next one led. A machine that is busy with
// something else may be slow now and then: after a Resign most are to be sooner than an
// expiry could be, and half of them at once.
func (f *fleet) checkTimes(took handovers) {
	f.t.Helper()
	for _, c := range []struct {
		what    string
		times   []time.Duration
		percent int // of the times, that are within the limit
		limit   time.Duration
	}{
		{"kill", took.kills, 80, f.cfg.TTL + f.slow(time.Second)},
		{"Resign", took.resigns, 80, f.cfg.TTL / 2},
		{"Resign", took.resigns, 50, 200*time.Millisecond + 20*f.pace},
	} {
		slices.Sort(c.times)
		f.t.Logf("the next one leads after a %s, in order: %v; %d %% within %v", c.what, c.times, c.percent, c.limit)
		if most := c.times[len(c.times)*c.percent/100]; most > c.limit {
			f.t.Errorf("it took %v after a %s, with a limit of %v: %v", most, c.what, c.limit, c.times)
		}
	}
}
