package locksqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"sync"

	"github.com/sqllock/sqllock/driver"
)

// file is the file of the database and its write-ahead log, as the connections of a
// store found them. When another file is in the place of one of them, other processes
// use that one while these connections go on with theirs: two could hold one name.
//
// It asks for the files by name and never opens them. To close one of them again would
// drop the locks that SQLite has on it in this process.
type file struct {
	path string      // "" for a database that is no file
	db   os.FileInfo // nil if there is none: the driver has a file system of its own

	mu   sync.Mutex
	logs map[any]os.FileInfo // the log of each connection of the driver, nil if it has none
	lost error               // what check found once; it stays
}

// movedError says that the database is not the one any more that was opened.
type movedError struct{ what string }

func (e *movedError) Error() string {
	return "sqllock: " + e.what + " while it was open: close the handles of this process on it, and open it anew"
}

// maxLogs is how many connections are remembered. Those that were closed are among them.
const maxLogs = 128

// openFile remembers the file at path, and refuses one of which other processes may see
// another journal.
func openFile(path string) (*file, error) {
	f := &file{path: path, logs: make(map[any]os.FileInfo)}
	if path == "" {
		return f, nil
	}
	var err error
	if f.db, err = stat(path); err != nil || f.db == nil {
		return f, err
	}
	if n := number(reflect.Indirect(reflect.ValueOf(f.db.Sys())).FieldByName("Nlink")); n > 1 {
		return nil, fmt.Errorf("%w: the database file %q has %d hard links, and a journal under each of its names: keep one of them",
			driver.ErrUnsupported, path, n)
	}
	if isMounted(path) {
		return nil, fmt.Errorf("%w: the database file %q is mounted without its journal: mount its directory", driver.ErrUnsupported, path)
	}
	return f, nil
}

// check looks whether the files are still those of conn, which has run a statement.
//
// While a connection is open its log stays, unless it leaves that journal mode itself.
// When none is open, SQLite removes the log, and the next connection makes another.
func (f *file) check(ctx context.Context, conn *sql.Conn) error {
	if err := f.checkPath(); err != nil || f.db == nil {
		return err
	}
	log, err := stat(f.path + "-wal")
	if err != nil {
		return err
	}
	var key any
	if err := conn.Raw(func(c any) error { key = c; return nil }); err != nil {
		return err
	}
	if !reflect.ValueOf(key).Comparable() {
		key = nil // of a driver that hides its connections: what is said of one is said of all
	}
	f.mu.Lock()
	was, known := f.logs[key]
	f.mu.Unlock()
	if known && sameFile(was, log) {
		return nil
	}
	var journal string
	if err := conn.QueryRowContext(ctx, queryJournal).Scan(&journal); err != nil {
		return err
	}
	if strings.EqualFold(journal, "wal") && (was != nil || log == nil || !hasOpen(f.db, log)) {
		return f.lose("the write-ahead log of the database file %q was removed or replaced")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.logs) >= maxLogs {
		clear(f.logs)
	}
	f.logs[key] = log
	return nil
}

// checkPath looks whether the database is still the file that was opened.
func (f *file) checkPath() error {
	if f.path == "" {
		return nil
	}
	f.mu.Lock()
	lost := f.lost
	f.mu.Unlock()
	if lost != nil {
		return lost
	}
	db, err := stat(f.path)
	if err == nil && !sameFile(f.db, db) {
		err = f.lose("the database file %q was removed or replaced")
	}
	return err
}

func (f *file) lose(what string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lost == nil {
		f.lost = &movedError{fmt.Sprintf(what, f.path)}
	}
	return f.lost
}

// stat returns nil for a file that does not exist.
func stat(path string) (os.FileInfo, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return info, err
}

func sameFile(a, b os.FileInfo) bool {
	return a == nil && b == nil || a != nil && b != nil && os.SameFile(a, b)
}
