// Package termstore is the part of the session modes that is about the table of terms, and
// the same in each database: who has a name, by which session, and what outlives a crash.
// What locks a name is a session of the database. A row of the table says who that is, for
// people, for who wants the name back, and for the next holder.
//
// The statements are in one .sql file per database, under the same names, with the same
// parameters and the same columns in their results. A term is, in results,
//
//	index, name, now, acq, owner, label, version, acquired_at, ended_at, holds, not_before, delay,
//	ended, revoked, revoking, alive, locked, readers, writable, value
//
// where index is the place in the batch, name is NULL if there is no row, revoking says that
// the holder is asked to give the name up, alive that the session of the holder has the lock,
// locked that some session has it, readers how many share it, and writable that the server
// takes writes. A batch of names may have their keys behind the names. A term in parameters
// is its name, version and acq: a statement changes nothing if the row names another one, or
// if somebody has locked the row.
//
//	look          b(name)                  → terms of the names, without values
//	look_values   b(name)                  → terms of the names
//	page          after, limit             → terms behind a name, in the byte order of the names, without values
//	readers       b(name)                  → index, how many sessions share the name
//	make_rows     b(name)                  makes rows for names that have none
//	end_term      term                     ends a term that crashed, and begins its lock delay
//	release       b(term, min_hold), count ends all of the terms or none; no min_hold takes back what the draw wrote
//	revoke_holder term                     asks the holder to give the name up
//	revoke_anybody b(name, key)            asks whoever has the lock, where no row says who that is
//	revoke        term                     ends what keeps a name that no session has
//	revocations   locker                   → now, writable, name, acq, version: the terms that a Locker is asked to give
//	                                         up, by acq, or if version is not 0 those of the name up to it
//	set_value     term, value              changes what the holder has to say
//	find_sweep    every                    → whether sweep_due would do anything; no row if make_rows must make ''
//	sweep_due     every                    notes that somebody sets out to clean up
//	sweep_pause   pause                    notes for how long nobody does so after that
//	purge_pins    b(name)                  deletes what for-update mode locks, unless it is locked
//	purge         b(name), age             deletes rows of names that have been idle for so long
package termstore

import (
	"bytes"
	"context"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
)

// Statement is a statement of the .sql file and what it is run with.
type Statement struct {
	Name  string
	Batch []rowstore.Column
	Args  []any // string, []byte, int64 or driver.ID, whose zero is NULL
}

// Runner runs statements. Each of them commits by itself, unless the Runner is a transaction.
type Runner interface {
	// Read calls scan for each row of the result.
	Read(ctx context.Context, s Statement, scan func(rowstore.Scanner) error) error
	// Write returns how many rows were changed and, if the statement tells it, the clock.
	Write(ctx context.Context, s Statement) (changed, now int64, err error)
}

// Store implements the methods of [driver.SessionStore] that are about the table of terms.
// It is safe for concurrent use.
type Store struct {
	Pool      Runner      // on connections of the pool
	Kept      Runner      // on the connection that the store keeps
	Exhausted func() bool // the pool has no connection to give

	Instance driver.ID // of the Locker
	// Keys are the keys of names, as they stand behind the names. It may be nil.
	Keys    func(names []string) rowstore.Column
	Readers bool // a statement counts who share a name; else the term tells
	Pins    bool // names have rows that are locked

	// ErrReadOnly says that the server takes no writes.
	ErrReadOnly error
}

// aside is for what soon needs a connection: callers may have the whole pool.
func (s *Store) aside() Runner {
	if s.Exhausted() {
		return s.Kept
	}
	return s.Pool
}

func (s *Store) batch(names []string) []rowstore.Column {
	if s.Keys == nil {
		return []rowstore.Column{names}
	}
	return []rowstore.Column{names, s.Keys(names)}
}

// Terms returns the terms of names, in their order, of a server that takes writes.
func (s *Store) Terms(ctx context.Context, run Runner, names ...string) ([]Term, error) {
	return s.look(ctx, run, "look", names)
}

func (s *Store) look(ctx context.Context, run Runner, statement string, names []string) ([]Term, error) {
	terms := make([]Term, len(names))
	err := run.Read(ctx, Statement{Name: statement, Batch: s.batch(names)}, func(scan rowstore.Scanner) error {
		i, t, err := ScanTerm(scan)
		switch {
		case err != nil:
			return err
		case statement == "look" && !t.Writable:
			return s.ErrReadOnly
		}
		t.Name = names[i]
		terms[i] = t
		return nil
	})
	return terms, err
}

// page returns the next terms behind a name.
func (s *Store) page(ctx context.Context, after string, limit int) (terms []Term, err error) {
	err = s.Pool.Read(ctx, Statement{Name: "page", Args: []any{after, int64(limit)}}, func(scan rowstore.Scanner) error {
		_, t, err := ScanTerm(scan)
		terms = append(terms, t)
		return err
	})
	return terms, err
}

// count notes how many share the names that nobody has alone.
func (s *Store) count(ctx context.Context, run Runner, terms []Term) error {
	if !s.Readers {
		return nil
	}
	var names []string
	var which []int
	for i := range terms {
		if t := &terms[i]; !t.Held() || !t.Alive {
			names, which = append(names, t.Name), append(which, i)
		}
	}
	if names == nil {
		return nil
	}
	return run.Read(ctx, Statement{Name: "readers", Batch: s.batch(names)}, func(scan rowstore.Scanner) error {
		var i, readers int
		err := scan(&i, &readers)
		if err == nil {
			terms[which[i]].Readers = readers
		}
		return err
	})
}

// Look implements [driver.SessionStore].
func (s *Store) Look(ctx context.Context, names []string) ([]driver.Row, error) {
	if len(names) == 0 {
		return nil, nil
	}
	run := s.aside()
	terms, err := s.look(ctx, run, "look_values", names)
	if err == nil {
		err = s.count(ctx, run, terms)
	}
	if err != nil {
		return nil, err
	}
	return rows(terms), nil
}

// List implements [driver.SessionStore].
func (s *Store) List(ctx context.Context, req driver.ListRequest) (driver.Page, error) {
	terms, err := s.page(ctx, req.After, req.Limit)
	if err == nil {
		err = s.count(ctx, s.Pool, terms)
	}
	if err != nil {
		return driver.Page{}, err
	}
	page := driver.Page{More: len(terms) == req.Limit}
	for _, r := range rows(terms) {
		if req.Free || r.Held() || r.Session || r.Gate > r.Now {
			page.Rows = append(page.Rows, r)
		}
		page.Last = r.Name
	}
	return page, nil
}

// SetValue implements [driver.SessionStore].
func (s *Store) SetValue(ctx context.Context, req driver.SetValueRequest) (done bool, err error) {
	run := s.aside()
	for wait := rowstore.NewLockWait(time.Second); ; {
		changed, _, err := run.Write(ctx, Statement{Name: "set_value", Args: []any{req.Name, req.Version, req.Acq, req.Value}})
		if err != nil || changed > 0 {
			return changed > 0, err
		}
		terms, err := s.look(ctx, run, "look_values", []string{req.Name})
		switch {
		case err != nil:
			return false, err
		case !terms[0].is(req.Acq, req.Version):
			return false, nil
		case bytes.Equal(terms[0].Value, req.Value): // which a server may not count as a change
			return true, nil
		}
		if err := wait.Pause(ctx); err != nil {
			return false, err
		}
	}
}
