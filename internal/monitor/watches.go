package monitor

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sqllock/sqllock"
)

const (
	maxWatched = 32 // names at a time
	maxChanges = 50 // of a name that are remembered
	watchFor   = time.Minute
)

// Watches follow the names that somebody looks at, and for a minute more.
type Watches struct {
	locks *sqllock.Locker
	keep  time.Duration // after the last visit

	mu      sync.Mutex
	byName  map[string]*watch
	running sync.WaitGroup
}

// watch follows one name. The mutex of the watches guards it.
type watch struct {
	visited time.Time
	idle    *time.Timer
	changes []sqllock.Info // the newest first
	cancel  context.CancelFunc
}

// NewWatches returns Watches for those who look again each interval.
func NewWatches(locks *sqllock.Locker, interval time.Duration) *Watches {
	return &Watches{locks: locks, keep: max(watchFor, 3*interval), byName: make(map[string]*watch)}
}

// Visit returns the changes of a name that were seen, and follows it from now on, unless too
// many names are being followed.
func (w *Watches) Visit(name string) (changes []sqllock.Info, watched bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := w.byName[name]
	if found == nil && len(w.byName) < maxWatched {
		found = w.begin(name)
	}
	if found == nil {
		return nil, false
	}
	found.visited = time.Now()
	return slices.Clone(found.changes), true
}

// begin follows a name. The caller holds mu.
func (w *Watches) begin(name string) *watch {
	ctx, cancel := context.WithCancel(context.Background())
	began := &watch{cancel: cancel}
	w.byName[name] = began
	began.idle = time.AfterFunc(w.keep, func() { w.expire(name, began) })
	w.running.Go(func() {
		defer cancel()
		for info, err := range w.locks.Watch(ctx, name) {
			if err != nil || !w.note(name, began, info) {
				break
			}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.end(name, began)
	})
	return began
}

// expire follows a name no more if nobody has looked for long.
func (w *Watches) expire(name string, found *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if left := w.keep - time.Since(found.visited); left > 0 {
		found.idle.Reset(left)
		return
	}
	w.end(name, found)
}

// note adds a change, unless the name is followed no more.
func (w *Watches) note(name string, to *watch, info sqllock.Info) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	to.changes = slices.Insert(to.changes, 0, info)
	to.changes = to.changes[:min(len(to.changes), maxChanges)]
	return w.byName[name] == to
}

// end follows a name no more. The caller holds mu.
func (w *Watches) end(name string, found *watch) {
	found.cancel()
	found.idle.Stop()
	if w.byName[name] == found {
		delete(w.byName, name)
	}
}

// Close ends all watches and waits for them.
func (w *Watches) Close() {
	w.mu.Lock()
	for name, found := range w.byName {
		w.end(name, found)
	}
	w.mu.Unlock()
	w.running.Wait()
}

// KeepFor sets for how long a name is followed after the last visit.
func (w *Watches) KeepFor(d time.Duration) { w.keep = d }

// Len is how many names are followed.
func (w *Watches) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.byName)
}
