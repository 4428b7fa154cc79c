package sqllocktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock"
)

var electionPromises = []promise{
	{sentence: "candidates lead one after the other, and everybody is told who leads", test: testElection},
	{sentence: "Proclaim changes what the leader says and keeps the term, whatever the bytes", test: testProclaim},
	{sentence: "a first Campaign resumes the term of its identity with a higher token, and the earlier incarnation is fenced", test: testResume},
}

// candidate is one that makes no mistake in its options.
func (e *env) candidate(l *sqllock.Locker, name string, o *sqllock.ElectionOptions) *sqllock.Election {
	e.Helper()
	c, err := l.Election(name, o)
	if err != nil {
		e.Fatalf("Election: %v", err)
	}
	return c
}

// campaigning calls Campaign on a goroutine of its own.
func campaigning(ctx context.Context, c *sqllock.Election, value string) <-chan error {
	ch := make(chan error, 1)
	go func() { ch <- c.Campaign(ctx, []byte(value)) }()
	return ch
}

// campaign has a candidate lead a name that is free, or becomes free soon.
func (e *env) campaign(c *sqllock.Election, value string) *sqllock.Lease {
	e.Helper()
	return e.elected(c, campaigning(e.ctx(), c, value))
}

// elected waits for the term of a call of campaigning.
func (e *env) elected(c *sqllock.Election, ch <-chan error) *sqllock.Lease {
	e.Helper()
	if err := receive(e, ch, "Campaign returns"); err != nil {
		e.Fatalf("Campaign: %v", err)
	}
	lease, err := c.Lease()
	if err != nil || !c.IsLeader() {
		e.Fatalf("Lease() = %v, %v and IsLeader() = %v of a leader", lease, err, c.IsLeader())
	}
	return lease
}

func (e *env) resign(c *sqllock.Election) {
	e.Helper()
	if err := c.Resign(e.ctx()); err != nil {
		e.Fatalf("Resign: %v", err)
	}
	if c.IsLeader() {
		e.Error("a candidate that has resigned leads")
	}
}

// wantLeader checks what the database says of who leads.
func (e *env) wantLeader(c *sqllock.Election, leader *sqllock.Election, lease *sqllock.Lease, value string) {
	e.Helper()
	term, err := c.Leader(e.ctx())
	if err != nil || term.Vacant() || term.Name != c.Name() || term.Identity != leader.Identity() || term.Label == "" ||
		term.Token != lease.Token() || term.Since.IsZero() || string(term.Value) != value {
		e.Fatalf("Leader = %.200s, %v; want %q with token %d", fmt.Sprintf("%+v", term), err, leader.Identity(), lease.Token())
	}
}

func testElection(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long, RetryMax: 50 * time.Millisecond})
	name := e.name("k")
	first := e.candidate(a, name, &sqllock.ElectionOptions{Identity: "ä 1"})
	second := e.candidate(b, name, nil)
	third := e.candidate(b, name, &sqllock.ElectionOptions{Identity: "3"})
	_, err := second.Leader(e.ctx())
	e.wantError("Leader before anybody led", err, sqllock.ErrNoLeader)
	before := e.campaign(first, "") // it is known who leads, even if it says nothing
	e.wantLeader(second, first, before, "")
	waiting := campaigning(e.ctx(), second, "second")
	silent(e, waiting, "Campaign returned while somebody led")
	if e.h.Table != nil {
		e.inLine(name, 1)
	}
	last := campaigning(e.ctx(), third, "third") // in a Locker there is an order in all modes
	silent(e, last, "Campaign returned while somebody led")
	e.resign(first)
	next := e.elected(second, waiting)
	e.wantLeader(first, second, next, "second")
	if first.IsLeader() || second.Identity() == third.Identity() {
		e.Errorf("%q leads beside %q", first.Identity(), second.Identity())
	}
	e.wantError("Resign of somebody who does not lead", first.Resign(e.ctx()), sqllock.ErrNotLeader)
	e.resign(second)
	end := e.elected(third, last)
	if before.Token() >= next.Token() || next.Token() >= end.Token() {
		e.Errorf("the tokens are %d, %d and %d", before.Token(), next.Token(), end.Token())
	}
	e.resign(third)
	_, err = second.Leader(e.ctx())
	e.wantError("Leader when all have resigned", err, sqllock.ErrNoLeader)
}

func testProclaim(e *env) {
	l := e.locker(&Options{TTL: long})
	c, other := e.candidate(l, e.name("k"), nil), e.candidate(l, e.name("other"), nil)
	lease := e.campaign(c, "first")
	beside := e.campaign(other, "beside")
	every := make([]byte, 64<<10)
	for i := range every {
		every[i] = byte(i + i>>8)
	}
	for _, value := range [][]byte{[]byte("second"), []byte("second"), {0}, nil, {}, []byte(`\x00'"\`), every} {
		if err := c.Proclaim(e.ctx(), value); err != nil {
			e.Fatalf("Proclaim of %.20q: %v", value, err)
		}
		e.wantLeader(c, c, lease, string(value))
	}
	e.wantError("Proclaim of more than 64 KiB", c.Proclaim(e.ctx(), append(every, 0)), sqllock.ErrInvalidOption)
	e.wantLeader(c, c, lease, string(every))
	e.wantLeader(other, other, beside, "beside")
	if info := e.inspect(l, c.Name()); info.Owner != c.Identity() || !bytes.Equal(info.Value, every) {
		e.Errorf("Inspect tells of %q and %d bytes", info.Owner, len(info.Value))
	}
	e.resign(other)
	e.wantError("Proclaim of a former leader", other.Proclaim(e.ctx(), nil), sqllock.ErrNotLeader)
	if _, err := l.ForceUnlock(e.ctx(), c.Name()); err != nil {
		e.Fatalf("ForceUnlock: %v", err)
	}
	e.wantLost("Proclaim after ForceUnlock", c.Proclaim(e.ctx(), []byte("late")))
	e.wantLost("Resign after ForceUnlock", c.Resign(e.ctx()))
}

func testResume(e *env) {
	old, l := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long, RetryMax: 50 * time.Millisecond})
	name := e.name("k")
	me := &sqllock.ElectionOptions{Identity: "me"}
	was := e.candidate(old, name, me)
	before := e.campaign(was, "before")
	if !e.inSessions() {
		ctx, cancel := context.WithCancel(e.ctx())
		defer cancel()
		waiting := e.standing(old, name, 0)
		defer func() { e.unlock(e.granted(waiting)) }()
		other := e.candidate(l, name, &sqllock.ElectionOptions{Identity: "another"})
		stranger := campaigning(ctx, other, "") // who is no incarnation passes nobody
		e.inLine(name, 2)
		cancel()
		e.wantError("Campaign of another identity", receive(e, stranger, "Campaign returns"), context.Canceled)
	}
	c := e.candidate(l, name, me)
	start := time.Now()
	lease := e.campaign(c, "after")
	if took := time.Since(start); took > toldWithin {
		e.Errorf("it took %v to resume the term", took)
	}
	if lease.Token() <= before.Token() {
		e.Errorf("token %d follows token %d", lease.Token(), before.Token())
	}
	tx := e.begin(0)
	err := before.Guard(e.ctx(), tx)
	if !errors.Is(err, sqllock.ErrFenced) && !(e.inSessions() && errors.Is(err, sqllock.ErrLost)) {
		e.Errorf("Guard of the earlier incarnation: %v", err)
	}
	_ = tx.Rollback()
	tx = e.begin(0)
	e.guard(lease, tx)
	_ = tx.Rollback()
	e.wantLost("Resign of the earlier incarnation", was.Resign(e.ctx()))
	e.live(lease)
	e.wantLeader(was, c, lease, "after")
	e.resign(c)
}
