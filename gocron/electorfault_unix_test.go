//go:build unix

package gocronlock_test

import (
	"database/sql"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/testdb"
)

// faults are how often what is done to a leader.
type faults struct{ kills, pauses, resigns int }

func TestOfThreeSchedulersNeverTwoLeadAndEachTickRunsOnceHoweverLeadersEnd(t *testing.T) {
	inTurn(t, func(t *testing.T, p pair, d *testdb.Database) {
		n := faults{kills: 2, pauses: 1, resigns: 1}
		if p == thorough {
			n = faults{1, 0, 0} // the rest is another test's
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

func TestAmongThreeSchedulersTheNextOneLeadsWithinATTLOfAKillAndAtOnceAfterAResign(t *testing.T) {
	t.Parallel()
	if !slices.Contains(testdb.Engines(), thorough.engine) {
		return // which the report says
	}
	d := testdb.New(t, thorough.engine)
	f := newFleet(t, thorough, d, replicaConfig{Every: 200 * time.Millisecond})
	f.checkTimes(f.run(faults{kills: 20, pauses: 10, resigns: 10}, d.Open(t)))
}

// run has three schedulers suffer, and checks what must hold whatever happens.
func (f *fleet) run(n faults, db *sql.DB) handovers {
	f.t.Helper()
	f.cfg.TTL, f.cfg.Settle = f.slow(time.Second), f.slow(300*time.Millisecond)
	if f.cfg.Mode != unique { // MySQL needs as much
		f.cfg.TTL = max(f.cfg.TTL, 2*time.Second)
	}
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

// suffer does to each leader what is left to be done, in turns.
func (f *fleet) suffer(n faults) (took handovers) {
	f.t.Helper()
	leader := f.next(0)
	for n.kills+n.pauses+n.resigns > 0 {
		begun := monotonic()
		switch {
		case n.pauses > 0 && n.pauses >= n.kills/2:
			n.pauses--
			f.signal(leader.p, syscall.SIGSTOP)
			next := f.next(leader.token)
			f.signal(leader.p, syscall.SIGCONT)
			woken := monotonic()
			f.await("the one that was paused looks again", func() bool { return leader.p.looked > woken })
			leader = next
		case n.kills > 0 && n.kills >= n.resigns:
			n.kills--
			f.kill(leader.p)
			f.start(0)
			leader = f.next(leader.token)
			took.kills = append(took.kills, leader.from-begun)
		default:
			n.resigns--
			if _, err := leader.p.in.Write([]byte("resign\n")); err != nil {
				f.t.Fatal(err)
			}
			leader = f.next(leader.token)
			took.resigns = append(took.resigns, leader.from-f.lastResign())
		}
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

func (f *fleet) lastResign() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.resigns[len(f.resigns)-1]
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
// something else may be slow now and then.
func (f *fleet) checkTimes(took handovers) {
	f.t.Helper()
	for _, c := range []struct {
		what  string
		times []time.Duration
		limit time.Duration
	}{
		{"kill", took.kills, f.cfg.TTL + f.slow(time.Second)},
		{"Resign", took.resigns, 200*time.Millisecond + 20*f.pace},
	} {
		slices.Sort(c.times)
		f.t.Logf("the next one leads after a %s, in order: %v", c.what, c.times)
		if most := c.times[len(c.times)*8/10]; most > c.limit {
			f.t.Errorf("it took %v after a %s, with a limit of %v: %v", most, c.what, c.limit, c.times)
		}
	}
}
