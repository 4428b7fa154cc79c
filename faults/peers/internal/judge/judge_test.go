package judge_test

import (
	"testing"
	"time"

	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/faults/peers/internal/judge"
	"github.com/sqllock/sqllock/faults/peers/internal/ledger"
)

// write is one of a term that was asked for and granted then.
func write(register string, called, granted, before, n int64) ledger.Accepted {
	return ledger.Accepted{
		Write:  ledger.Write{Register: register, Name: "a", N: n, Term: ledger.Term{Called: called, Granted: granted}},
		Before: before,
	}
}

func TestAWriteIsStaleAfterALaterTermOrOverAnUnreadValue(t *testing.T) {
	other := write(ledger.Plain, 1, 2, 0, 1)
	other.Name = "b"
	for name, c := range map[string]struct {
		writes []ledger.Accepted
		want   int
	}{
		"one after the other":   {[]ledger.Accepted{write(ledger.Plain, 1, 2, 0, 1), write(ledger.Plain, 3, 4, 1, 2)}, 0},
		"waited for each other": {[]ledger.Accepted{write(ledger.Plain, 1, 2, 0, 1), write(ledger.Plain, 1, 4, 1, 2)}, 0},
		"twice in one term":     {[]ledger.Accepted{write(ledger.Plain, 1, 2, 0, 1), write(ledger.Plain, 1, 2, 1, 2)}, 0},
		"a lost update":         {[]ledger.Accepted{write(ledger.Plain, 1, 2, 0, 1), write(ledger.Plain, 1, 4, 1, 1)}, 1},
		"after a later term":    {[]ledger.Accepted{write(ledger.Plain, 3, 4, 0, 1), write(ledger.Plain, 1, 2, 1, 2)}, 1},
		"another name":          {[]ledger.Accepted{write(ledger.Plain, 3, 4, 0, 1), other}, 0},
		"another register":      {[]ledger.Accepted{write(ledger.Fenced, 3, 4, 0, 1), write(ledger.Fenced, 1, 2, 1, 2)}, 0},
	} {
		if got := judge.Stale(c.writes, ledger.Plain); got != c.want {
			t.Errorf("%s: %d stale, want %d", name, got, c.want)
		}
	}
}

func lock(id, name string, t int64) history.Event {
	return history.Event{Op: history.Lock, Ret: true, Lease: id, Name: name, T: t}
}

func look(id string, t int64, ok bool) history.Event {
	return history.Event{Op: history.Look, Lease: id, T: t, OK: ok}
}

func unlock(id string, t int64) history.Event {
	return history.Event{Op: history.Unlock, Ret: true, Lease: id, T: t}
}

func TestAHolderIsLateIfItBelievesToHoldDuringALaterTerm(t *testing.T) {
	for name, c := range map[string]struct {
		events []history.Event
		late   int
		worst  time.Duration
	}{
		"told in time":          {[]history.Event{lock("x", "a", 1), look("x", 5, true), lock("y", "a", 6), look("y", 7, true), look("x", 8, false)}, 0, 0},
		"told late":             {[]history.Event{lock("x", "a", 1), look("x", 9, true), lock("y", "a", 6), look("y", 7, true)}, 1, 0},
		"told at last":          {[]history.Event{lock("x", "a", 1), look("x", 9, true), look("x", 13, false), look("x", 20, false), lock("y", "a", 6), look("y", 7, true)}, 1, 4},
		"told by Unlock":        {[]history.Event{lock("x", "a", 1), look("x", 9, true), unlock("x", 14), lock("y", "a", 6), look("y", 7, true)}, 1, 5},
		"paused once more":      {[]history.Event{lock("x", "a", 1), look("x", 9, true), look("x", 11, true), look("x", 11+2e9, true), look("x", 14+2e9, false), lock("y", "a", 6), look("y", 7, true)}, 1, 5},
		"late for two":          {[]history.Event{lock("x", "a", 1), look("x", 9, true), lock("y", "a", 6), look("y", 7, true), lock("z", "a", 8), look("z", 10, true)}, 1, 0},
		"another name":          {[]history.Event{lock("x", "a", 1), look("x", 9, true), lock("y", "b", 6), look("y", 7, true)}, 0, 0},
		"the other never held":  {[]history.Event{lock("x", "a", 1), look("x", 9, true), lock("y", "a", 6), look("y", 7, false)}, 0, 0},
		"both believe for long": {[]history.Event{lock("y", "a", 6), lock("x", "a", 1), look("y", 20, true), look("x", 9, true), look("x", 12, true)}, 1, 3},
	} {
		if got := judge.Count(c.events); got.Late != c.late || got.Worst != c.worst {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestLocksErrorsAndFaultsAreCounted(t *testing.T) {
	failed := lock("y", "a", 2)
	failed.Err = "the server is away"
	got := judge.Count([]history.Event{
		lock("x", "a", 1), failed, {Op: history.Fault, ID: "f"}, {Op: history.Fault, ID: "f", Ret: true},
	})
	if got.Acquisitions != 1 || got.Errors != 1 || got.Faults != 1 {
		t.Errorf("%+v", got)
	}
}
