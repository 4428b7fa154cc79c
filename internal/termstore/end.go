package termstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
)

// shortly is for how long a row may be locked by somebody who changes it.
const shortly = 50 * time.Millisecond

// change runs a statement that changes a term, if it is still as it was seen.
func (s *Store) change(ctx context.Context, run Runner, statement string, t *Term) (changed bool, now int64, err error) {
	n, now, err := run.Write(ctx, Statement{Name: statement, Args: []any{t.Name, t.Holder.Version, t.Holder.Acq}})
	return n == 1, now, err
}

// EndTerm ends a term whose session is gone, and reports whether it did: somebody else may
// have been quicker, or has locked the row. It returns until when the lock delay keeps the
// name.
func (s *Store) EndTerm(ctx context.Context, run Runner, t *Term) (ended bool, now, until int64, err error) {
	ended, now, err = s.change(ctx, run, "end_term", t)
	until = t.NotBefore
	if t.Delay > 0 {
		until = max(until, now+t.Delay)
	}
	return ended, now, until, err
}

// EndTerms writes that terms were ended by their holders: all of those that are still the
// current ones or, if an error is returned, none. [rowstore.ErrLocked] says that a
// transaction guards one.
func (s *Store) EndTerms(ctx context.Context, run Runner, reqs []driver.ReleaseRequest) error {
	wait := rowstore.NewLockWait(shortly)
	for len(reqs) > 0 {
		names, acqs := make([]string, len(reqs)), make([]driver.ID, len(reqs))
		versions, keep := make([]int64, len(reqs)), make([]int64, len(reqs))
		for i := range reqs {
			names[i], acqs[i], versions[i], keep[i] = reqs[i].Name, reqs[i].Acq, reqs[i].Version, reqs[i].MinHold.Microseconds()
		}
		n, _, err := run.Write(ctx, Statement{Name: "release", Batch: []rowstore.Column{names, acqs, versions, keep}, Args: []any{int64(len(reqs))}})
		if err != nil || n == int64(len(reqs)) {
			return err
		}
		terms, err := s.Terms(ctx, run, names...)
		if err != nil {
			return err
		}
		var current []driver.ReleaseRequest
		for i := range terms {
			if terms[i].is(reqs[i].Acq, reqs[i].Version) {
				current = append(current, reqs[i])
			}
		}
		if len(current) == len(reqs) {
			if err := wait.Pause(ctx); err != nil {
				return err
			}
		}
		reqs = current
	}
	return nil
}

// Revocations are what a Locker is asked to give up.
type Revocations struct {
	Now  int64
	acqs map[driver.ID]bool
	upTo map[string]int64 // by name, the highest version that is meant
}

// Revocations asks for them, of a server that takes writes.
func (s *Store) Revocations(ctx context.Context, run Runner) (Revocations, error) {
	r := Revocations{acqs: make(map[driver.ID]bool), upTo: make(map[string]int64)}
	err := run.Read(ctx, Statement{Name: "revocations", Args: []any{s.Instance}}, func(scan rowstore.Scanner) error {
		var writable bool
		var name, acq sql.NullString
		var version sql.NullInt64
		if err := scan(&r.Now, &writable, &name, &acq, &version); err != nil {
			return err
		}
		if !writable {
			return s.ErrReadOnly
		}
		if version.Int64 > 0 {
			r.upTo[name.String] = version.Int64
			return nil
		}
		id, err := parseID(acq)
		r.acqs[id] = true
		return err
	})
	return r, err
}

// Status is what the holder of a term is told.
func (r *Revocations) Status(req *driver.RenewRequest) driver.RenewStatus {
	if r.acqs[req.Acq] || req.Version <= r.upTo[req.Name] {
		return driver.Revoked
	}
	return driver.Renewed
}

// Revoke implements [driver.SessionStore].
func (s *Store) Revoke(ctx context.Context, reqs []driver.RevokeRequest) ([]driver.RevokeResult, error) {
	res := make([]driver.RevokeResult, len(reqs))
	done := false
	for i, req := range reqs {
		var err error
		if res[i], err = s.revoke(ctx, req); err != nil {
			if done {
				err = &rowstore.PartlyError{Err: err}
			}
			return nil, err
		}
		done = done || res[i].Revoked
	}
	return res, nil
}

func (s *Store) revoke(ctx context.Context, req driver.RevokeRequest) (driver.RevokeResult, error) {
	wait := rowstore.NewLockWait(shortly)
	for {
		terms, err := s.look(ctx, s.Pool, "look_values", []string{req.Name})
		if err != nil {
			return driver.RevokeResult{}, err
		}
		t := &terms[0]
		res := driver.RevokeResult{Row: t.row()}
		done := false
		meant := req.Version == 0 || req.Version == t.Holder.Version
		switch {
		case t.Held() && t.Alive:
			if res.Revoked = meant; t.Revoking || !meant {
				return res, nil
			}
			done, _, err = s.change(ctx, s.Pool, "revoke_holder", t)
		case !t.Held() && t.Locked:
			if res.Revoked = req.Version == 0; !res.Revoked {
				return res, nil
			}
			done, err = s.revokeAnybody(ctx, req.Name)
		case t.Held() || t.NotBefore > t.Now:
			if res.Revoked = meant; !meant {
				return res, nil
			}
			done, _, err = s.change(ctx, s.Pool, "revoke", t)
		default:
			return res, nil
		}
		if done || err != nil {
			return res, err
		}
		if err := wait.Pause(ctx); err != nil {
			return driver.RevokeResult{}, err
		}
	}
}

// revokeAnybody asks whoever has the lock of a name, of whom no row tells.
func (s *Store) revokeAnybody(ctx context.Context, name string) (done bool, err error) {
	n, _, err := s.Pool.Write(ctx, Statement{Name: "revoke_anybody", Batch: s.batch([]string{name})})
	return n == 1, err
}
