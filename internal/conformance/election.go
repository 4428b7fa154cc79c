package conformance

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock"
)

var electionPromises = []promise{
	{sentence: "candidates lead one after the other, and everybody is told who leads", test: testElection, needs: needOneDatabase},
	{sentence: "Proclaim changes what the leader says and keeps the term, whatever the bytes", test: testProclaim},
	{sentence: "a first Campaign resumes the term of its identity with a higher token, and the earlier incarnation is fenced", test: testResume, needs: needOneDatabase},
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
		e.waitForQueue(name, 1)
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
		waiting := e.waitBehind(old, name, 0)
		defer func() { e.unlock(e.granted(waiting)) }()
		other := e.candidate(l, name, &sqllock.ElectionOptions{Identity: "another"})
		refused := campaigning(ctx, other, "") // who is no incarnation passes nobody
		e.waitForQueue(name, 2)
		cancel()
		e.wantError("Campaign of another identity", receive(e, refused, "Campaign returns"), context.Canceled)
	}
	c := e.candidate(l, name, me)
	start := time.Now()
	lease := e.campaign(c, "after")
	if took := time.Since(start); took > lossReportedWithin+slack() {
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

// electionFaultPromises are about leaders that end as they should not.
var electionFaultPromises = []promise{
	{sentence: "what an election refuses it refuses before any SQL", test: testInvalidElection},
	{sentence: "Observe yields every term that is longer than its pauses, in their order, and the last, while leaders are killed", test: testObserveKilled, needs: needOneDatabase},
	{sentence: "a leader that is paused is resumed by its next incarnation, and finds that it leads no more", test: testResumePaused, needs: needSignals | needOneDatabase},
	{sentence: "of two that live with one identity the second ends the term of the first, and then both go on", test: testOneIdentity, needs: needOneDatabase},
	{sentence: "after a leader's crash nobody leads before its LockDelay is over", test: testElectionDelay},
	{sentence: "a term is not resumed while a transaction guards it", test: testResumeGuarded, needs: needTable | needOneDatabase},
	{sentence: "a transaction that guards a term does not keep its leader from proclaiming", test: testProclaimGuarded, needs: needRowLocks | needOneDatabase},
}

func testInvalidElection(e *env) {
	l, _, recorder := e.unused()
	before := recorder.statements.Load()
	for what, o := range map[string]sqllock.ElectionOptions{
		"an identity of 256 bytes": {Identity: strings.Repeat("x", 256)},
		"an identity with NUL":     {Identity: "a\x00b"},
		"a value over 64 KiB":      {Value: make([]byte, 64<<10+1)},
		"a TTL below 0":            {TTL: -1},
		"a LockDelay below 0":      {LockDelay: -1},
	} {
		c, err := l.Election("k", &o)
		if e.wantError(what, err, sqllock.ErrInvalidOption); c != nil {
			e.Errorf("%s: there is an Election", what)
		}
	}
	_, err := l.Election("", nil)
	e.wantError("no name", err, sqllock.ErrInvalidName)
	c := e.candidate(l, "k", nil)
	e.wantError("Campaign with more than 64 KiB", c.Campaign(e.ctx(), make([]byte, 64<<10+1)), sqllock.ErrInvalidOption)
	e.wantError("Resign", c.Resign(e.ctx()), sqllock.ErrNotLeader)
	e.wantError("Proclaim", c.Proclaim(e.ctx(), nil), sqllock.ErrNotLeader)
	if n := recorder.statements.Load() - before; n != 0 {
		e.Errorf("%d statements were sent", n)
	}
}

// elect makes the child lead.
func (p *process) elect(o order) answer {
	p.e.Helper()
	o.Do = "campaign"
	a := p.do(o)
	if a.Err != "" {
		p.e.Fatalf("Campaign in a child: %s", a.Err)
	}
	return a
}

// campaign waits until the child leads; its lease is then like others.
func (c *child) campaign(o order) answer {
	candidate, err := c.locks.Election(o.Name, &sqllock.ElectionOptions{Identity: o.What})
	if err == nil {
		err = candidate.Campaign(context.Background(), []byte(o.What))
	}
	if err != nil {
		return failure(err)
	}
	return c.keep(candidate.Lease())
}

func testObserveKilled(e *env) {
	const pause = 50 * time.Millisecond
	ttl := e.ttl(2 * time.Second)
	l := e.locker(&Options{TTL: long, RetryMax: pause})
	c := e.candidate(l, e.name("k"), nil)
	ctx, cancel := context.WithCancel(e.ctx())
	defer cancel()
	seen := e.observe(ctx, c)
	e.wantTerm(seen, 0, "")
	p := e.start(ttl, "")
	token := p.elect(order{Name: c.Name(), What: "leader 0"}).Token
	for i := range 4 {
		leader := fmt.Sprint("leader ", i)
		next := e.start(ttl, "")
		next.send(order{Do: "campaign", Name: c.Name(), What: fmt.Sprint("leader ", i+1)})
		time.Sleep(4*pause + 10*e.h.pace)
		e.wantTerm(seen, token, leader)
		if err := p.cmd.Process.Kill(); err != nil {
			e.Fatal(err)
		}
		a := next.read()
		if a.Err != "" || a.Token <= token {
			e.Fatalf("the term after that with token %d: %+v", token, a)
		}
		p, token = next, a.Token
	}
	e.wantTerm(seen, token, "leader 4")
	if a := p.do(order{Do: "unlock", Name: c.Name()}); a.Err != "" {
		e.Errorf("Unlock: %s", a.Err)
	}
	lease := e.campaign(c, "")
	e.resign(c)
	e.wantVacant(seen, lease.Token())
	cancel()
	for range seen {
	}
}

// observe collects the terms that Observe yields until ctx ends.
func (e *env) observe(ctx context.Context, c *sqllock.Election) <-chan sqllock.Term {
	seen := make(chan sqllock.Term, 100)
	go func() {
		defer close(seen)
		for term, err := range c.Observe(ctx) {
			if err == nil {
				seen <- term
			} else if !errors.Is(err, context.Canceled) {
				e.Errorf("Observe: %v", err)
			}
		}
	}()
	return seen
}

// wantTerm waits for the next term that is seen. Observe may yield, or not, that nobody
// led in between. The leader has its identity as its value.
func (e *env) wantTerm(seen <-chan sqllock.Term, token int64, leader string) {
	e.Helper()
	term := receive(e, seen, "Observe yields "+leader)
	for term.Vacant() && token > 0 {
		term = receive(e, seen, "Observe yields "+leader)
	}
	if term.Token != token || term.Identity != leader || string(term.Value) != leader {
		e.Fatalf("Observe yields %+v, want %q with token %d", term, leader, token)
	}
}

// wantVacant waits for the last state: that nobody leads. It is never missed. The last
// term, with token, may be seen before it.
func (e *env) wantVacant(seen <-chan sqllock.Term, token int64) {
	e.Helper()
	for last := (sqllock.Term{Token: 1}); !last.Vacant() || len(seen) > 0; {
		if last = receive(e, seen, "Observe yields that nobody leads"); !last.Vacant() && last.Token != token {
			e.Errorf("Observe yields %+v", last)
		}
	}
}

func testResumePaused(e *env) {
	ttl := e.ttl(10 * time.Second)
	l := e.locker(&Options{TTL: long, RetryMax: 50 * time.Millisecond})
	p := e.start(ttl, "the child")
	name := e.name("k")
	before := p.elect(order{Name: name, What: "me"})
	p.pause()
	c := e.candidate(l, name, &sqllock.ElectionOptions{Identity: "me"})
	start := time.Now()
	lease := e.campaign(c, "")
	took, most := time.Since(start), ttl/2
	if e.inSessions() { // the server has to find out that it is silent
		most = ttl + 2*time.Second + slack()
	}
	if took > most {
		e.Errorf("it took %v to resume the term, with a TTL of %v", took, ttl)
	}
	if lease.Token() <= before.Token {
		e.Errorf("token %d follows token %d", lease.Token(), before.Token)
	}
	p.resume()
	if a := p.do(order{Do: "unlock", Name: name}); !a.Lost {
		e.Errorf("Unlock of the earlier incarnation: %+v", a)
	}
	time.Sleep(200 * time.Millisecond) // what it does in the background
	e.live(lease)
	e.wantHeld(l, name)
	e.resign(c)
}

// testOneIdentity has two candidates campaign again and again. Only the first Campaign
// of each resumes: so they do not throw each other out.
func testOneIdentity(e *env) {
	ttl := e.ttl(2 * time.Second)
	name := e.name("k")
	ctx, cancel := context.WithCancel(e.ctx())
	defer cancel()
	var led, leading atomic.Int32
	done := make(chan error, 2)
	for i := range 2 {
		l := e.locker(&Options{TTL: ttl, RetryMax: 50 * time.Millisecond})
		c := e.candidate(l, name, &sqllock.ElectionOptions{Identity: "me"})
		go func() {
			done <- c.Run(ctx, func(ctx context.Context, _ *sqllock.Lease) error {
				led.Add(1)
				leading.Store(int32(i))
				<-ctx.Done()
				return nil
			})
		}()
		e.eventually(timeLimit, "another term begins", func() bool { return led.Load() > int32(i) })
	}
	time.Sleep(2 * ttl)
	terms := led.Load()
	// Where sessions keep locks the first may be quicker than the second that has asked
	// it to let go.
	if terms != 2 || leading.Load() != 1 && !e.inSessions() {
		e.Errorf("there were %d terms, and candidate %d leads", terms, leading.Load())
	}
	cancel()
	for range 2 {
		e.wantError("Run", receive(e, done, "Run returns"), context.Canceled)
	}
}

func testElectionDelay(e *env) {
	e.losable()
	ttl, delay := e.ttl(2*time.Second), e.ttl(2*time.Second)
	l := e.locker(&Options{TTL: long, RetryMax: 50 * time.Millisecond})
	crashing := e.looseLocker(e.handle(), &Options{TTL: ttl})
	name := e.name("k")
	lease := e.campaign(e.candidate(crashing, name, &sqllock.ElectionOptions{LockDelay: delay}), "")
	crashed, least := time.Now(), delay
	if e.inSessions() {
		e.crash(crashing, lease)
	} else {
		least += lease.Remaining()
		e.abandon(crashing)
	}
	c := e.candidate(l, name, nil)
	next := e.campaign(c, "")
	if took := time.Since(crashed); took < least-50*time.Millisecond || took > ttl+delay+3*time.Second+slack() {
		e.Errorf("somebody led %v after the crash, with a TTL of %v and a LockDelay of %v", took, ttl, delay)
	}
	if next.Token() <= lease.Token() {
		e.Errorf("token %d follows token %d", next.Token(), lease.Token())
	}
	e.resign(c)
}

func testResumeGuarded(e *env) {
	old, l := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	me := &sqllock.ElectionOptions{Identity: "me"}
	before := e.campaign(e.candidate(old, name, me), "")
	tx := e.begin(0)
	e.guard(before, tx)
	c := e.candidate(l, name, me)
	waiting := campaigning(e.ctx(), c, "")
	silent(e, waiting, "a term was resumed that a transaction guards")
	e.live(before)
	e.commit(tx)
	lease := e.elected(c, waiting)
	if lease.Token() <= before.Token() {
		e.Errorf("token %d follows token %d", lease.Token(), before.Token())
	}
	e.wantLost("Unlock of the earlier incarnation", before.Unlock(e.ctx()))
	e.resign(c)
}

func testProclaimGuarded(e *env) {
	l := e.locker(&Options{TTL: long})
	c := e.candidate(l, e.name("k"), nil)
	lease := e.campaign(c, "")
	err := lease.InTx(e.ctx(), nil, func(ctx context.Context, _ *sql.Tx) error {
		ctx, cancel := context.WithTimeout(ctx, long/3)
		defer cancel()
		start := time.Now()
		err := c.Proclaim(ctx, []byte("guarded"))
		if took := time.Since(start); took > lossReportedWithin+slack() {
			e.Errorf("Proclaim took %v", took)
		}
		return err
	})
	if err != nil {
		e.Errorf("InTx: %v", err)
	}
	e.wantLeader(c, c, lease, "guarded")
	e.resign(c)
}
