package locksqlite

import (
	"context"
	"database/sql"

	"github.com/sqllock/sqllock/driver"
)

// Resume implements [driver.ElectionStore]. It is one statement.
func (s *store) Resume(ctx context.Context, req driver.ResumeRequest) (driver.GrantResult, error) {
	var res driver.GrantResult
	err := s.call(ctx, func(ctx context.Context, conn *sql.Conn) error {
		res = driver.GrantResult{}
		args := []any{req.Acq[:], s.client.Instance[:], s.client.Label, req.TTL.Microseconds(), blob(req.Value), req.Name, req.Owner, req.Version}
		return query(ctx, conn, s.queries.resume, args, func(scan func(...any) error) error {
			var until int64
			res.Granted = true
			err := scan(&res.Version, &res.Now, &until)
			res.Remaining = micros(until - res.Now)
			return err
		})
	})
	if err != nil {
		return driver.GrantResult{}, err
	}
	return res, nil
}

// Proclaim implements [driver.Proclaimer].
func (s *store) Proclaim(ctx context.Context, req driver.ProclaimRequest) (done bool, err error) {
	err = s.call(ctx, func(ctx context.Context, conn *sql.Conn) error {
		done = false
		args := []any{blob(req.Value), req.Name, req.Acq[:], req.Version}
		return query(ctx, conn, s.queries.proclaim, args, func(scan func(...any) error) error {
			done = true
			return scan(new(int64))
		})
	})
	return done && err == nil, err
}

// blob is a value as a parameter, where nothing is not NULL.
func blob(value []byte) []byte {
	if value == nil {
		return []byte{}
	}
	return value
}
