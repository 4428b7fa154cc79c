package rowstore

import (
	"sync"

	"github.com/sqllock/sqllock/driver"
)

// maxFreed bounds how many names a FreedNames knows.
const maxFreed = 8192

// FreedNames are the names that a Locker has freed since it last asked for them, and for which
// nobody waited then. They are probably free: whoever asks for one again does not look first. A
// name is forgotten when it is asked for, so at most one attempt for each release loses without a
// look, and locks the row, or on SQLite the file, for a moment. Safe for concurrent use.
type FreedNames struct {
	mu    sync.Mutex
	names map[string]struct{}
}

// Add notes that a name was freed.
func (f *FreedNames) Add(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.names == nil || len(f.names) >= maxFreed {
		f.names = make(map[string]struct{})
	}
	f.names[name] = struct{}{}
}

// Take forgets the names of requests, and reports whether all were known.
func (f *FreedNames) Take(reqs []driver.AcquireRequest) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := 0
	for i := range reqs {
		if _, ok := f.names[reqs[i].Name]; ok {
			delete(f.names, reqs[i].Name)
			known++
		}
	}
	return known == len(reqs)
}
