package doctor

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

func TestCheckEndsWhenTheServerDoes(t *testing.T) {
	t.Parallel()
	for _, gone := range []error{nil, errors.New("gone")} {
		warned, ran := 0, 0
		c := &checker{report: func(f Finding) {
			if f.Grade == Warn {
				warned++
			}
		}}
		run := func(context.Context) error { ran++; return errors.New("no") }
		err := c.run(t.Context(), []check{{"a", run}, {"b", run}}, func(context.Context) error { return gone })
		all := warned == 2 && ran == 2
		if (err != nil) != (gone != nil) || all == (gone != nil) || c.failed {
			t.Errorf("%v after %d checks and %d warnings", err, ran, warned)
		}
	}
}

func TestClocksMayDifferByTheRoundTrip(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct{ read, want time.Duration }{
		{0, 0}, {50 * time.Millisecond, 0}, {100 * time.Millisecond, 0}, {-time.Second, -time.Second}, {time.Second + 100*time.Millisecond, time.Second},
	} {
		if got := clockOffset(now.Add(c.read), now, now.Add(100*time.Millisecond)); got != c.want {
			t.Errorf("a clock that was %v ahead: %v, want %v", c.read, got, c.want)
		}
	}
}

func TestFindingsAreGraded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		check func(c *checker)
		want  []Finding
	}{
		{func(c *checker) { c.reportOldest(59*time.Second, " (2 unseen)", "harm", "advice") },
			[]Finding{{OK, "transactions", "none is older than 1m0s (2 unseen)", "", false}}},
		{func(c *checker) { c.reportOldest(2*time.Hour, "", "harm", "do") },
			[]Finding{{Warn, "transactions", "one has been open for 2h0m: harm", "do", false}}},
		{func(c *checker) {
			c.reportTimeouts(map[string]time.Duration{"statement_timeout": 0, "max_statement_time": 2 * time.Second, "wait_timeout": time.Hour})
		}, []Finding{{OK, "time-outs", "none that would end statements or connections of ours", "", false}}},
		{func(c *checker) {
			c.reportTimeouts(map[string]time.Duration{"statement_timeout": 500 * time.Millisecond, "idle_session_timeout": 59 * time.Second})
		}, []Finding{
			{Warn, "time-outs", "idle_session_timeout is 59s, which ends what is in order", "set it to 1m0s at least for this account", false},
			{Warn, "time-outs", "statement_timeout is 500ms, which ends what is in order", "set it to 2s at least for this account", false},
		}},
		{func(c *checker) { (&postgresChecker{checker: c}).reportPooler([]uint32{5, 5, 5, 5}) },
			[]Finding{{OK, "pooler", "none: the server itself answers", "", false}}},
		{func(c *checker) { (&postgresChecker{checker: c}).reportPooler([]uint32{5, 5, 6, 5}) },
			[]Finding{{Warn, "pooler", "somebody stands between us and the server, a connection pooler most likely",
				"locks of unique mode work through it; if statements fail, add default_query_exec_mode=exec to the DSN", false}}},
	} {
		var got []Finding
		k := &checker{report: func(f Finding) { got = append(got, f) }}
		if c.check(k); !slices.Equal(got, c.want) || k.failed {
			t.Errorf("got  %+v\nwant %+v", got, c.want)
		}
	}
}
