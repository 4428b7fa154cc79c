package lockpg

import (
	"context"
	"database/sql"

	"github.com/sqllock/sqllock/driver"
)

// Resume implements [driver.ElectionStore]. It is one statement.
func (s *store) Resume(ctx context.Context, req driver.ResumeRequest) (driver.GrantResult, error) {
	args := []any{
		req.Name, req.Owner, req.Version, req.Acq.String(), s.client.Instance.String(), s.client.Label,
		req.TTL.Microseconds(), bytea(req.Value),
	}
	var res driver.GrantResult
	err := s.query(ctx, s.queries.resume, args, func(rows *sql.Rows) error {
		res.Granted, res.Remaining = true, req.TTL
		return rows.Scan(&res.Version, &res.Now)
	})
	if err != nil {
		return driver.GrantResult{}, err
	}
	return res, nil
}

// Proclaim implements [driver.Proclaimer].
func (s *store) Proclaim(ctx context.Context, req driver.ProclaimRequest) (bool, error) {
	return proclaim(ctx, s.query, s.queries.proclaim, req)
}

// Proclaim implements [driver.Proclaimer].
func (s *sessions) Proclaim(ctx context.Context, req driver.ProclaimRequest) (bool, error) {
	run := s.query
	if s.pool.Exhausted() {
		run = s.queryKept
	}
	return proclaim(ctx, run, s.q.proclaim, req)
}

func proclaim(ctx context.Context, run runner, query string, req driver.ProclaimRequest) (done bool, err error) {
	args := []any{req.Name, req.Acq.String(), req.Version, bytea(req.Value)}
	err = run(ctx, query, args, func(rows *sql.Rows) error { return rows.Scan(&done) })
	return done && err == nil, err
}
