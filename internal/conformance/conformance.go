// Package conformance is the body of the conformance suite that package sqllocktest
// exports: what every mode promises on every database, each promise a test that is
// named after it.
//
// A promise is in the file that is named after its subject, in a table at the top of it. The tests reach the database through an env, and start further processes,
// which run the test binary again, through a process; a child is the other end of one.
package conformance

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// promise is something that holds for every pair.
type promise struct {
	sentence string
	test     func(*env)
	needs    need
	quiet    bool // measures what others would disturb, or needs the whole machine
}

// need is what a promise needs of a Harness.
type need uint16

const (
	needTable need = 1 << iota
	needNetwork
	needServer
	needTraces
	needSettings
	needReadOnly
	needSignals
	needRowLocks
	needLeases // what is held outlives the connection that asked for it
	needSessions
	needSilenceEnds
	needTransactions
	needNoTransactions
	needOneDatabase // what it does in a transaction, or for those who wait, several cannot do together
	needOnePool
	needHandle // whose statements and connections are those of the Locker
)

// lacks says what of n the pair lacks.
func (h *Harness) lacks(n need) (missing []string) {
	for _, x := range []struct {
		need need
		has  bool
		what string
	}{
		{needTable, h.Table != nil, "a table of locks"},
		{needNetwork, h.Network != nil, "a network"},
		{needServer, h.Server != nil, "a server"},
		{needTraces, h.Traces != nil, "traces"},
		{needSettings, h.Settings != nil, "session settings"},
		{needReadOnly, h.ReadOnly != nil, "a read-only form"},
		{needRowLocks, h.Table != nil && h.Table.LocksRows, "locks on rows"},
		{needLeases, h.Sessions == nil, "leases that outlive a connection"},
		{needSessions, h.Sessions != nil, "sessions that keep locks"},
		{needSilenceEnds, !h.SilentHolders, "sessions that end when their client is silent"},
		{needTransactions, h.Transactions, "locks in transactions of the caller"},
		{needNoTransactions, !h.Transactions, "locks in leases only"},
		{needOneDatabase, h.Nodes < 2, "one database that keeps the name"},
		{needOnePool, h.Nodes < 2, "one pool of connections"},
		{needHandle, !h.PastHandle, "a handle through which all of a Locker goes"},
		{needSignals, hasSignals, "signals that pause a process"},
	} {
		if n&x.need != 0 && !x.has {
			missing = append(missing, x.what)
		}
	}
	return missing
}

// theme is a number of promises. One that is basic depends on how the database is
// set, and is tested for every setting.
type theme struct {
	promises []promise
	basic    bool
}

func themes() []theme {
	return []theme{
		{lockPromises, true}, {namePromises, true}, {optionPromises, false}, {waitPromises, false}, {cancelPromises, true},
		{leasePromises, true}, {contextPromises, false}, {reentryPromises, false}, {ownerPromises, false},
		{lossPromises, true}, {doPromises, false}, {closePromises, false}, {hookPromises, false},
		{poolPromises, false}, {openPromises, false}, {tracePromises, true},
		{processPromises, false}, {pausePromises, false}, {deadlinePromises, false},
		{replyPromises, false}, {networkPromises, false}, {manyPromises, false}, {contentionPromises, true},
		{termOptionPromises, false}, {inspectPromises, true}, {waiterPromises, true}, {reapPromises, false},
		{txPromises, true}, {txWaitPromises, true}, {txCrashPromises, false},
		{sessionPromises, true}, {sessionFaultPromises, false}, {sessionConnPromises, false},
		{sequencerPromises, false}, {electionPromises, true}, {electionFaultPromises, false},
	}
}

// themesOfOneDatabase are those whose promises all need one database that keeps the name: its
// transactions, its queues, or what it has besides leases that are exclusive.
func themesOfOneDatabase() []theme {
	return []theme{
		{guardPromises, true}, {unlockTxPromises, true}, {unlockTxRefusedPromises, true}, {unlockTxContentionPromises, true},
		{sharedPromises, true}, {upgradePromises, false}, {queuePromises, true}, {lockAllPromises, false}, {leasesGuardPromises, true},
		{resignPromises, true}, {oncePromises, true}, {onceFaultPromises, false}, {semaphorePromises, true},
		{detachPromises, true}, {detachFaultPromises, false},
	}
}

// promises returns those that the pair is asked for, and maybe lacks something for.
func (h *Harness) promises() (all []promise) {
	add := func(th theme, needs need) {
		if !th.basic && h.Brief {
			return
		}
		for _, p := range th.promises {
			p.needs |= needs
			all = append(all, p)
		}
	}
	for _, th := range themes() {
		add(th, 0)
	}
	for _, th := range themesOfOneDatabase() {
		add(th, needOneDatabase)
	}
	return all
}

// Run tests every promise that applies to the pair, each as a subtest. Those that
// need quiet run first and one by one, the others at the same time: between the two Run
// calls t.Parallel, so that they do not run before those of other pairs that need quiet,
// and then at the same time as theirs.
func Run(t *testing.T, h Harness) {
	alone := newPacer(newEnv(t, &h))
	h.pace = alone.measure()
	alone.close() // some of those that need quiet count goroutines
	var quiet, others []promise
	for _, p := range h.promises() {
		switch {
		case h.lacks(p.needs) != nil:
		case p.quiet:
			quiet = append(quiet, p)
		default:
			others = append(others, p)
		}
	}
	for _, p := range quiet {
		t.Run(p.sentence, func(t *testing.T) { p.test(newEnv(t, &h)) })
	}
	t.Parallel()
	testers := 8
	if h.slow() { // what runs at the same time must not starve renewals
		testers = 3
	}
	p := newPacer(newEnv(t, &h))
	atOnce(testers, others, func(promise promise) {
		beside := h
		beside.pace = max(h.pace, p.admit())
		defer p.leave()
		t.Run(promise.sentence, func(t *testing.T) { promise.test(newEnv(t, &beside)) })
	})
}

// atOnce tests several promises of a pair at a time. They are no parallel subtests: of those go
// test would start all of a pair, or as many as it may start of all pairs, and count the time in
// which they wait for each other.
func atOnce(testers int, promises []promise, test func(promise)) {
	next := make(chan promise)
	var wg sync.WaitGroup
	for range testers {
		wg.Go(func() {
			for p := range next {
				test(p)
			}
		})
	}
	for _, p := range promises {
		next <- p
	}
	close(next)
	wg.Wait()
}

// slow reports that a statement costs much computing, as it does if the database
// is compiled into the test with the race detector. In the modes that keep locks in
// sessions a lock takes more statements, which compute little.
func (h *Harness) slow() bool { return h.Sessions == nil && h.pace > 5*time.Millisecond }

// Omitted names the promises that Run does not test, a line for each reason.
func (h *Harness) Omitted() []string {
	promises := make(map[string][]string)
	for _, p := range h.promises() {
		if missing := h.lacks(p.needs); missing != nil {
			reason := "the pair has not " + strings.Join(missing, ", not ")
			promises[reason] = append(promises[reason], p.sentence)
		}
	}
	var omitted []string
	for _, reason := range slices.Sorted(maps.Keys(promises)) {
		omitted = append(omitted, reason+": "+strings.Join(promises[reason], "; "))
	}
	return omitted
}
