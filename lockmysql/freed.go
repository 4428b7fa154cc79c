package lockmysql

import "sync"

// maxFreed bounds how many names a freedNames knows.
const maxFreed = 8192

// freedNames are the names that a Locker has freed since it last asked for them, and for which
// nobody waited then. They are probably free: whoever asks for one again does not look first. A
// name is forgotten when it is asked for, so at most one attempt for each release loses without a
// look, and locks the row for a moment. Safe for concurrent use.
type freedNames struct {
	mu    sync.Mutex
	names map[string]struct{}
}

// add notes that a name was freed.
func (f *freedNames) add(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.names == nil || len(f.names) >= maxFreed {
		f.names = make(map[string]struct{})
	}
	f.names[name] = struct{}{}
}

// take forgets n names, and reports whether all were known.
func (f *freedNames) take(n int, name func(i int) string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := 0
	for i := range n {
		if _, ok := f.names[name(i)]; ok {
			delete(f.names, name(i))
			known++
		}
	}
	return known == n
}
