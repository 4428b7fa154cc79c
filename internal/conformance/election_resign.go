package conformance

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sqllock/sqllock"
)

var resignPromises = []promise{
	{sentence: "a leader that listens is asked to resign, and the next candidate leads", test: testRequestResign, needs: needLeases},
	{sentence: "a leader that does not listen leads on, and the request is refused with its name", test: testResignRefused, needs: needLeases},
	{sentence: "a request to resign is one to a term, and not to the next", test: testResignOneTerm, needs: needLeases},
	{sentence: "Run whose function ends on a request to resign lets another lead, and campaigns again", test: testResignRun, needs: needLeases},
	{sentence: "a request to resign passes a transaction that guards the term", test: testResignGuarded, needs: needRowLocks},
	{sentence: "a leader that was asked to resign can detach its term instead, and whoever adopts it was not asked", test: testResignDetached, needs: needLeases},
	{sentence: "requests to resign are not supported where sessions keep the locks", test: testResignUnsupported, needs: needSessions},
}

// listener is a candidate that listens for requests to resign.
func (e *env) listener(l *sqllock.Locker, name, identity string) *sqllock.Election {
	e.Helper()
	return e.candidate(l, name, &sqllock.ElectionOptions{Identity: identity, ResignOnRequest: true})
}

// requesting calls RequestResign on a goroutine of its own.
func (e *env) requesting(c *sqllock.Election) <-chan error {
	ctx := e.ctx()
	ch := make(chan error, 1)
	go func() { ch <- c.RequestResign(ctx) }()
	return ch
}

func testRequestResign(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	first, second := e.listener(l, name, "first"), e.listener(other, name, "second")
	e.wantError("RequestResign of nobody", second.RequestResign(e.ctx()), sqllock.ErrNoLeader)
	for round, requester := range []*sqllock.Election{second, first, e.candidate(other, name, nil)} {
		lease := e.campaign(first, "")
		waiting := campaigning(e.ctx(), second, "")
		if e.h.Table != nil {
			e.waitForQueue(name, 1)
		}
		requested := e.requesting(requester)
		receive(e, lease.Context().Done(), "the leader is asked")
		if cause := context.Cause(lease.Context()); cause != sqllock.ErrResignRequested || lease.Context().Err() == nil {
			e.Errorf("round %d: the context ended because of %v", round, cause)
		}
		if !first.IsLeader() || lease.Remaining() <= 0 {
			e.Error("the leader that was asked leads no more")
		}
		silent(e, waiting, "somebody else leads before the leader has resigned")
		silent(e, requested, "RequestResign returned before the leader has resigned")
		e.resign(first)
		if err := receive(e, requested, "RequestResign returns"); err != nil {
			e.Errorf("round %d: RequestResign: %v", round, err)
		}
		next := e.elected(second, waiting)
		if next.Token() <= lease.Token() {
			e.Errorf("token %d follows token %d", next.Token(), lease.Token())
		}
		e.resign(second)
	}
}

func testResignRefused(e *env) {
	l, other := e.locker(&Options{TTL: long, Label: "the host"}), e.locker(&Options{TTL: long})
	name := e.name("k")
	stubborn := e.candidate(l, name, &sqllock.ElectionOptions{Identity: "obstinate"})
	lease := e.campaign(stubborn, "")
	for range 2 {
		ctx, cancel := context.WithTimeout(e.ctx(), 3*time.Second)
		err := e.candidate(other, name, nil).RequestResign(ctx)
		cancel()
		e.wantError("RequestResign", err, sqllock.ErrResignRefused)
		e.wantError("RequestResign", err, context.DeadlineExceeded)
		if err == nil || !strings.Contains(err.Error(), "obstinate") || !strings.Contains(err.Error(), "the host") {
			e.Errorf("the error does not name the leader: %v", err)
		}
	}
	e.live(lease)
	e.resign(stubborn)
	plain := e.lock(l, name) // no leader, but it holds the name
	ctx, cancel := context.WithTimeout(e.ctx(), 3*time.Second)
	defer cancel()
	e.wantError("RequestResign of a lock", e.candidate(other, name, nil).RequestResign(ctx), sqllock.ErrResignRefused)
	e.live(plain)
	e.unlock(plain)
}

func testResignOneTerm(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	stubborn, first, second := e.candidate(l, name, nil), e.listener(l, name, ""), e.listener(l, name, "")
	e.campaign(stubborn, "")
	ctx, cancel := context.WithTimeout(e.ctx(), 3*time.Second)
	defer cancel()
	e.wantError("RequestResign", e.candidate(other, name, nil).RequestResign(ctx), sqllock.ErrResignRefused)
	e.resign(stubborn)
	lease := e.campaign(first, "")
	time.Sleep(2500 * time.Millisecond) // it looks more than once
	e.live(lease)
	requested := e.requesting(second)
	receive(e, lease.Context().Done(), "the leader is asked")
	e.resign(first)
	if err := receive(e, requested, "RequestResign returns"); err != nil {
		e.Errorf("RequestResign: %v", err)
	}
}

func testResignRun(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	ctx, cancel := context.WithCancel(e.ctx())
	terms := make(chan string, 16)
	ended := make(chan error, 2)
	for identity, l := range map[string]*sqllock.Locker{"first": l, "second": other} {
		c := e.listener(l, name, identity)
		go func() {
			ended <- c.Run(ctx, func(ctx context.Context, _ *sqllock.Lease) error {
				terms <- identity
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
	}
	leader := receive(e, terms, "somebody leads")
	for range 3 {
		if e.h.Table != nil {
			e.waitForQueue(name, 1)
		}
		if err := receive(e, e.requesting(e.candidate(l, name, nil)), "RequestResign returns"); err != nil {
			e.Errorf("RequestResign: %v", err)
		}
		next := receive(e, terms, "the next one leads")
		if next == leader {
			e.Errorf("%q was asked to resign and leads again before the other", leader)
		}
		leader = next
	}
	cancel()
	for range 2 {
		if err := receive(e, ended, "Run returns"); !errors.Is(err, context.Canceled) || errors.Is(err, sqllock.ErrResignRequested) {
			e.Errorf("Run: %v", err)
		}
	}
}

func testResignGuarded(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	first := e.listener(l, name, "")
	lease := e.campaign(first, "")
	tx := e.begin(e.readCommitted())
	e.guard(lease, tx)
	requested := e.requesting(e.candidate(other, name, nil))
	receive(e, lease.Context().Done(), "the leader is asked while its transaction is open")
	e.commit(tx)
	e.resign(first)
	if err := receive(e, requested, "RequestResign returns"); err != nil {
		e.Errorf("RequestResign: %v", err)
	}
}

func testResignDetached(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	first, requester := e.listener(l, name, "first"), e.candidate(other, name, nil)
	lease := e.campaign(first, "")
	requested := e.requesting(requester)
	receive(e, lease.Context().Done(), "the leader is asked")
	handover, err := lease.Detach(e.ctx())
	if err != nil {
		e.Fatalf("Detach: %v", err)
	}
	if err := receive(e, requested, "RequestResign returns"); err != nil {
		e.Errorf("RequestResign: %v", err)
	}
	if first.IsLeader() {
		e.Error("the leader leads a term that is detached")
	}
	e.wantError("RequestResign while nobody leads", requester.RequestResign(e.ctx()), sqllock.ErrNoLeader)
	e.resign(first) // as Unlock after Detach: it does nothing
	adopted := e.adopt(other, handover)
	ctx, cancel := context.WithTimeout(e.ctx(), 2*time.Second)
	defer cancel()
	e.wantError("RequestResign of the lease that was adopted", requester.RequestResign(ctx), sqllock.ErrResignRefused)
	e.live(adopted)
	e.unlock(adopted)
	e.resignedLeads(first)
}

// resignedLeads has a candidate whose predecessors were asked to resign lead, without being asked.
func (e *env) resignedLeads(c *sqllock.Election) {
	e.Helper()
	lease := e.campaign(c, "")
	time.Sleep(1500 * time.Millisecond) // it looks at least once
	e.live(lease)
	e.resign(c)
}

func testResignUnsupported(e *env) {
	db, sent := e.open(e.source(), poolSize)
	l := e.lockerOn(db, &Options{TTL: sqllock.MaxTTL})
	c := e.candidate(l, e.name("k"), nil)
	e.wantError("RequestResign", c.RequestResign(e.ctx()), sqllock.ErrUnsupported)
	_, err := l.Election(e.name("k"), &sqllock.ElectionOptions{ResignOnRequest: true})
	e.wantError("Election", err, sqllock.ErrUnsupported)
	e.sendsNothing(sent, func() { _ = c.RequestResign(e.ctx()) })
}
