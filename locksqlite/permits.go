package locksqlite

import (
	"context"
	"database/sql"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
)

// A permit is granted and freed by two statements in a transaction: one changes the row, the other
// one makes the claim, or deletes it.

// GrantPermits implements [rowstore.PermitGranter]. It looks as Grant does.
func (e *engine) GrantPermits(
	ctx context.Context, look func() rowstore.Statement, free func() []driver.AcquireRequest, granted func(i int, g rowstore.Granted),
) error {
	return e.ifFree(ctx, look, free, granted, func(granted func(int, rowstore.Granted)) granter {
		return func(ctx context.Context, conn *sql.Conn, reqs []driver.AcquireRequest) error {
			var p permits
			grant := e.grantPermits(reqs, &p)
			return e.immediate(ctx, conn, func(ctx context.Context) error {
				if err := e.run(ctx, conn, grant); err != nil || len(p.which) == 0 {
					return err
				}
				for k, i := range p.which {
					granted(i, rowstore.Granted{Version: p.tokens[k], Now: p.since[k], Expires: p.since[k] + reqs[i].TTL.Microseconds()})
				}
				return e.run(ctx, conn, e.enterPermits(reqs, &p))
			})
		}
	})
}

// permits are those of the requests at which that were granted.
type permits struct {
	which               []int
	tokens, seqs, since []int64
}

// grantPermits is the statement that changes the rows.
func (e *engine) grantPermits(reqs []driver.AcquireRequest, p *permits) *rowstore.Statement {
	index := indexes(reqs, func(r *driver.AcquireRequest) string { return r.Name })
	return &rowstore.Statement{
		Name: "grant_permits",
		Batch: []rowstore.Column{
			column(reqs, func(r *driver.AcquireRequest) string { return r.Name }),
			column(reqs, func(r *driver.AcquireRequest) int64 { return int64(r.Permits) }),
		},
		Scan: func(scan rowstore.Scanner) error {
			var name string
			var token, seq, since int64
			err := scan(&name, &token, &seq, &since)
			p.which, p.tokens = append(p.which, index[name]), append(p.tokens, token)
			p.seqs, p.since = append(p.seqs, seq), append(p.since, since)
			return err
		},
	}
}

// enterPermits is the statement that makes the claims.
func (e *engine) enterPermits(reqs []driver.AcquireRequest, p *permits) *rowstore.Statement {
	return &rowstore.Statement{
		Name: "enter_permits",
		Batch: []rowstore.Column{
			column(p.which, func(i *int) string { return reqs[*i].Name }),
			column(p.which, func(i *int) driver.ID { return reqs[*i].Acq }),
			column(p.which, func(i *int) string { return reqs[*i].Owner }),
			column(p.which, func(i *int) int64 { return reqs[*i].TTL.Microseconds() }),
			column(p.which, func(i *int) []byte { return reqs[*i].Value }),
			p.tokens, p.seqs, p.since,
		},
		Args: []any{e.client.Instance[:], e.client.Label},
	}
}

// FreeClaims implements [rowstore.PermitGranter].
func (e *engine) FreeClaims(ctx context.Context, reqs []driver.ReleaseRequest, freed func(i int)) error {
	index := indexes(reqs, func(r *driver.ReleaseRequest) string { return r.Name })
	return e.call(ctx, func(ctx context.Context, conn *sql.Conn) error {
		return e.immediate(ctx, conn, func(ctx context.Context) error {
			var names []string
			var acqs []driver.ID
			free := e.freeClaims(reqs)
			free.Scan = func(scan rowstore.Scanner) error {
				var name string
				var others int
				err := scan(&name, &others)
				i := index[name]
				names, acqs = append(names, name), append(acqs, reqs[i].Acq)
				freed(i)
				if others == 0 {
					e.freed.Add(name)
				}
				return err
			}
			if err := e.run(ctx, conn, free); err != nil || len(names) == 0 {
				return err
			}
			return e.run(ctx, conn, &rowstore.Statement{Name: "delete_claims", Batch: []rowstore.Column{names, acqs}})
		})
	})
}

// freeClaims is the statement that changes the rows.
func (e *engine) freeClaims(reqs []driver.ReleaseRequest) *rowstore.Statement {
	return &rowstore.Statement{
		Name: "free_claims",
		Batch: []rowstore.Column{
			column(reqs, func(r *driver.ReleaseRequest) string { return r.Name }),
			column(reqs, func(r *driver.ReleaseRequest) driver.ID { return r.Acq }),
			column(reqs, func(r *driver.ReleaseRequest) int64 { return r.Version }),
		},
	}
}
