package quorumtest

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/internal/testlog"
)

// logs keeps what a Locker logs. It is safe for concurrent use.
type logs struct{ testlog.Text }

// count returns how many lines have all of the parts.
func (l *logs) count(parts ...string) (n int) {
	for line := range strings.Lines(l.String()) {
		all := true
		for _, p := range parts {
			all = all && strings.Contains(line, p)
		}
		if all {
			n++
		}
	}
	return n
}

func (l *logs) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func threeFiles(t *testing.T) []*node {
	t.Parallel()
	return newNodes(t, testdb.SQLite, testdb.SQLite, testdb.SQLite)
}

func TestClocksThatAreTooFarApartAreRefused(t *testing.T) {
	nodes := threeFiles(t)
	for _, ahead := range []time.Duration{70 * time.Second, -70 * time.Second} {
		nodes[1].ahead.Store(ahead.Microseconds())
		l, err := sqllock.NewQuorum(t.Context(), databases(nodes), nil)
		if !errors.Is(err, sqllock.ErrUnsupported) || !strings.Contains(err.Error(), "the clocks of databases") ||
			!strings.Contains(err.Error(), "1m10s apart, more than 1m0s") {
			t.Errorf("a clock that is %v ahead: %v", ahead, err)
		}
		if l != nil {
			_ = l.Close(t.Context())
		}
	}
	nodes[1].ahead.Store((50 * time.Second).Microseconds())
	cycle(t, newLocker(t, nodes, nil), "a")
}

func TestTooFewDatabasesAtTheStart(t *testing.T) {
	nodes := threeFiles(t)
	nodes[0].down.Store(true)
	nodes[2].down.Store(true)
	_, err := sqllock.NewQuorum(t.Context(), databases(nodes), nil)
	if !errors.Is(err, errDown) || !strings.Contains(err.Error(), "1 of 3 databases are up, 2 are needed") {
		t.Errorf("with one of three: %v", err)
	}
	nodes[2].down.Store(false)
	_, err = sqllock.NewQuorum(t.Context(), databases(nodes), &sqllock.QuorumOptions{FaultyNodes: 1})
	if err == nil || !strings.Contains(err.Error(), "2 of 3 databases are up, 3 are needed") {
		t.Errorf("with two of three, all of which are needed: %v", err)
	}
	cycle(t, newLocker(t, nodes, nil), "a")
}

// A database that is down when the Locker is constructed is checked when it comes. One that is
// refused is never asked for a name.
func TestADatabaseThatComesLaterIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(nodes []*node)
		says  string
	}{
		"it has the tables of another": {func(nodes []*node) { nodes[2].UniqueDatabase = nodes[0].UniqueDatabase }, "the same tables"},
		"its clock is far away":        {func(nodes []*node) { nodes[2].ahead.Store((2 * time.Minute).Microseconds()) }, "2m0s apart"},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := threeFiles(t)
			c.spoil(nodes)
			nodes[2].down.Store(true)
			var log logs
			l := newLocker(t, nodes, &sqllock.QuorumOptions{Logger: log.logger()})
			eventually(t, "it is logged that the third database is down", func() bool {
				return log.count("a database of the quorum is down", "database 2") == 1
			})
			cycle(t, l, "a")
			nodes[2].down.Store(false)
			eventually(t, "the third database is refused", func() bool {
				cycle(t, l, "a")
				return log.count("a database of the quorum is refused", c.says) > 0
			})
			for range 3 { // it is opened again, and refused again
				time.Sleep(600 * time.Millisecond)
				cycle(t, l, "a")
			}
			if n := log.count("a database of the quorum is refused"); n != 1 {
				t.Errorf("it was logged %d times that the database is refused", n)
			}
			if n := nodes[2].acquires.Load(); n != 0 {
				t.Errorf("the database that was refused was asked for names %d times", n)
			}
		})
	}
}

func TestClockJumpTellsOfAnyDatabase(t *testing.T) {
	nodes := threeFiles(t)
	jumps := make(chan sqllock.ClockJumpEvent, 100)
	l := newLocker(t, nodes, &sqllock.QuorumOptions{Hooks: &sqllock.Hooks{ClockJump: func(e sqllock.ClockJumpEvent) { jumps <- e }}})
	cycle(t, l, "a")
	for i, n := range nodes {
		n.ahead.Store((10 * time.Second).Microseconds())
		var e sqllock.ClockJumpEvent
		eventually(t, "the jump is told", func() bool {
			cycle(t, l, "a")
			select {
			case e = <-jumps:
				return true
			default:
				return false
			}
		})
		if e.Database != i || e.Jump < 5*time.Second || e.Jump > 11*time.Second {
			t.Errorf("the clock of database %d has jumped by 10 s: %+v", i, e)
		}
	}
	if len(jumps) != 0 {
		t.Errorf("there are %d more events", len(jumps))
	}
}

func TestTheReaperReportsCrashedHolders(t *testing.T) {
	nodes := threeFiles(t)
	holder := newLocker(t, nodes, &sqllock.QuorumOptions{Label: "crashed", TTL: time.Hour})
	lease, err := holder.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "all keep the name", func() bool { return nodes[0].rows(t)+nodes[1].rows(t)+nodes[2].rows(t) == 3 })
	l := newLocker(t, nodes, nil)
	for i, want := range []int{0, 1, 0} { // a quorum is two of three
		if _, err := nodes[i].direct.ExecContext(t.Context(), `UPDATE quorum_lock SET expires_at = since + 1`); err != nil {
			t.Fatal(err)
		}
		rep, err := l.Reaper().Reap(t.Context())
		if err != nil || len(rep.Crashed) != want {
			t.Fatalf("with %d of three expired: %+v, %v", i+1, rep, err)
		}
		if want == 0 {
			continue
		}
		if c := rep.Crashed[0]; c.Name != "a" || c.Label != "crashed" || c.Token != lease.Token() {
			t.Errorf("the crash: %+v, the token was %d", c, lease.Token())
		}
	}
	_ = lease.Unlock(t.Context())
}
