package lockpg

import (
	"context"
	"database/sql"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
)

// Renew implements [driver.Session].
func (s *forUpdateSession) Renew(ctx context.Context, reqs []driver.RenewRequest) (driver.RenewResults, error) {
	asked, err := s.store.revocations(ctx, s.query, s.server)
	if err == nil {
		err = s.exec(ctx, queryRest)
	}
	if err != nil {
		s.End() // the transaction is over
		return driver.RenewResults{}, err
	}
	res := driver.RenewResults{Now: asked.Now, Status: make([]driver.RenewStatus, len(reqs))}
	for i := range reqs {
		res.Status[i] = driver.Ended
		if s.held != nil && s.held.Acq == reqs[i].Acq {
			res.Status[i] = asked.Status(&reqs[i])
			s.count(ctx, &reqs[i])
		}
	}
	return res, nil
}

// count writes how often the lease is held, for people.
func (s *forUpdateSession) count(ctx context.Context, req *driver.RenewRequest) {
	if req.Holds == s.holds || req.Holds < 1 || s.held.Shared {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, longestWait/2) // the lease is renewed, whatever becomes of this
	defer cancel()
	args := texts([]any{[]string{req.Name}, []driver.ID{req.Acq}, []int64{int64(req.Holds)}})
	if s.store.queryKept(ctx, s.store.texts["set_holds"], args, nil) == nil {
		s.holds = req.Holds
	}
}

// Release implements [driver.Session]. The term ends with the transaction, so that
// nobody sees one without the other.
func (s *forUpdateSession) Release(ctx context.Context, reqs []driver.ReleaseRequest) ([]bool, error) {
	res := make([]bool, len(reqs))
	for i := range reqs {
		if s.held == nil || s.held.Acq != reqs[i].Acq {
			continue
		}
		release := s.release
		if reqs[i].Lost {
			release = s.leave
		}
		if err := release(ctx, &reqs[i]); err != nil {
			return nil, err
		}
		res[i] = true
	}
	return res, nil
}

func (s *forUpdateSession) release(ctx context.Context, req *driver.ReleaseRequest) error {
	if !s.held.Shared {
		err := s.store.EndTerms(ctx, s.store.on(s.query), []driver.ReleaseRequest{*req})
		if err == rowstore.ErrLocked {
			return s.keep(ctx)
		}
		if err != nil {
			s.End() // the transaction is over
			return err
		}
	}
	if err := s.exec(ctx, queryCommit); err != nil {
		s.End()
		return err
	}
	s.begun, s.held = false, nil
	return nil
}

// leave lets go of a lock that was lost. The session ends with it, so that others see
// that the term is over, as after a crash.
func (s *forUpdateSession) leave(ctx context.Context, req *driver.ReleaseRequest) error {
	guarded := false
	if req.Guarded {
		err := s.query(ctx, s.store.texts["guarded"], []any{req.Name, req.Acq.String()}, func(rows *sql.Rows) error { return rows.Scan(&guarded) })
		if err == nil && guarded {
			return s.keep(ctx)
		}
	}
	s.End()
	s.held = nil
	return nil
}

// keep goes on with a transaction whose lock cannot be let go now.
func (s *forUpdateSession) keep(ctx context.Context) error {
	if err := s.exec(ctx, queryRest); err != nil {
		s.End()
		return err
	}
	return rowstore.ErrLocked
}
