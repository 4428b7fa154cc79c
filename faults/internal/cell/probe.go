//go:build linux

package cell

import (
	"context"
	"database/sql"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sqllock/sqllock/faults/internal/history"
)

const (
	// probing is how often the server is asked whether it keeps up.
	probing = 50 * time.Millisecond
	// maxLate is what a machine does that takes so much longer for that: how long a
	// waiter takes says nothing about the library then.
	maxLate = 50 * time.Millisecond
	// connecting is every how many times it is asked over new connections, and crowded how
	// much longer it takes then: who needs one has less than a third of a TTL for it.
	connecting  = 10
	newConnLate = 200 * time.Millisecond
)

// probe asks the server for nothing, straight and not through the networks of the
// clients, until ctx ends, and writes down when that took long. Now and then it connects
// anew: a server that many want at once may answer at once those whom it has, and nobody
// else for seconds. That a processor stood still it writes down, too.
func (s *site) probe(ctx context.Context) error {
	db, err := sql.Open(s.srv.Driver(), s.srv.DSN(""))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	var processors sync.WaitGroup
	processors.Go(func() { s.watchProcessors(ctx) })
	defer processors.Wait()
	for n := 1; ctx.Err() == nil; n++ {
		began := history.Now()
		time.Sleep(probing)
		db.SetMaxIdleConns(min(1, n%connecting)) // 0 ends the one that there is
		late := maxLate
		if n%connecting < 2 {
			late = newConnLate
		}
		probeCtx, cancel := context.WithTimeout(ctx, time.Second)
		_, _ = db.ExecContext(probeCtx, "SELECT 1") // that it is down is the fault of a nemesis
		cancel()
		if now := history.Now(); now-began > int64(probing+late) {
			s.busy(began, now)
		}
	}
	return nil
}

func (s *site) busy(from, to int64) {
	s.slow.Store(to)
	s.log.Write(history.Event{Op: history.Busy, T: from, Until: to})
}

// watchProcessors looks, until ctx ends, whether each processor runs what is ready to
// run. A host may stop one of a virtual machine for long: then some threads of the
// server stand still, and others answer at once.
func (s *site) watchProcessors(ctx context.Context) {
	var all unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil {
		return
	}
	var watches sync.WaitGroup
	for cpu := range len(all) * 64 {
		if all.IsSet(cpu) {
			watches.Go(func() { s.watchProcessor(ctx, cpu) })
		}
	}
	watches.Wait()
}

func (s *site) watchProcessor(ctx context.Context, cpu int) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	var one unix.CPUSet
	one.Set(cpu)
	if unix.SchedSetaffinity(0, &one) != nil {
		return
	}
	pause := unix.NsecToTimespec(int64(probing))
	for ctx.Err() == nil {
		began := history.Now()
		_ = unix.Nanosleep(&pause, nil)
		if now := history.Now(); now-began > int64(probing+maxLate) {
			s.busy(began, now)
		}
	}
}
