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
	// maxLate is the delay of a probe from which the machine counts as busy. Waiting
	// times then say nothing about the library.
	maxLate = 50 * time.Millisecond
	// Every connecting-th probe uses a new connection. newConnLate is its maxLate: a
	// client that needs a new connection has less than a third of a TTL for it.
	connecting  = 10
	newConnLate = 200 * time.Millisecond
)

// probe sends a statement to the server again and again, until ctx ends. It connects
// directly, not through the proxies of the clients. It notes the times in which an answer
// took long. Now and then it uses a new connection: a server with many new connections
// can answer the old ones at once, and the new ones seconds later. It also notes when a
// processor stood still.
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

// watchProcessors checks until ctx ends whether each processor runs its threads. A host
// can stop one processor of a virtual machine for a long time. Then some threads of the
// server stand still, and others answer at once.
func (s *site) watchProcessors(ctx context.Context) {
	var all unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil {
		return
	}
	var watches sync.WaitGroup
	for cpu := range len(all) * 64 {
		if all.IsSet(cpu) {
			watches.Go(func() {
				onProcessor(cpu, &all, func() { s.watchProcessor(ctx) })
			})
		}
	}
	watches.Wait()
}

// onProcessor calls do on a thread that runs on one processor only. Then it lets the thread run on
// all of them again, and unlocks it: a thread that ends takes the clients of all cells with it that
// were started on it, see Pdeathsig in package syscall.
func onProcessor(cpu int, all *unix.CPUSet, do func()) {
	runtime.LockOSThread()
	var one unix.CPUSet
	one.Set(cpu)
	if unix.SchedSetaffinity(0, &one) != nil {
		runtime.UnlockOSThread()
		return
	}
	do()
	if unix.SchedSetaffinity(0, all) == nil {
		runtime.UnlockOSThread()
	} // else the thread ends with the goroutine
}

// watchProcessor checks until ctx ends whether the processor of this thread runs it in time.
func (s *site) watchProcessor(ctx context.Context) {
	pause := unix.NsecToTimespec(int64(probing))
	for ctx.Err() == nil {
		began := history.Now()
		_ = unix.Nanosleep(&pause, nil)
		if now := history.Now(); now-began > int64(probing+maxLate) {
			s.busy(began, now)
		}
	}
}
