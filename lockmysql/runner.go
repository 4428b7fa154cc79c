package lockmysql

import (
	"context"
	"database/sql"
	"encoding/hex"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
	"github.com/sqllock/sqllock/internal/termstore"
)

// runner runs the statements of the session modes on the connections that do gives.
type runner struct {
	s  *sessions
	do func(ctx context.Context, fn func(context.Context, session) error) error
}

var _ termstore.Runner = runner{}

// on returns a runner on one connection.
func (s *sessions) on(c session) runner {
	return runner{s, func(ctx context.Context, fn func(context.Context, session) error) error { return fn(ctx, c) }}
}

// Read implements [termstore.Runner].
func (r runner) Read(ctx context.Context, s termstore.Statement, scan func(rowstore.Scanner) error) error {
	return r.do(ctx, func(ctx context.Context, c session) error {
		return r.s.base.read(ctx, c, r.s.texts[s.Name], parameters(s), func(rows *sql.Rows) error { return scan(rows.Scan) })
	})
}

// Write implements [termstore.Runner].
func (r runner) Write(ctx context.Context, s termstore.Statement) (changed, now int64, err error) {
	err = r.do(ctx, func(ctx context.Context, c session) (err error) {
		changed, now, err = c.exec(ctx, r.s.texts[s.Name], parameters(s)...)
		return err
	})
	return changed, now, err
}

// parameters are those of a statement, as they travel.
func parameters(s termstore.Statement) []any {
	var all []any
	if s.Batch != nil {
		n := rowstore.Rows(s.Batch)
		b := newBatch(n)
		for i := range n {
			b.add(s.Batch, i)
		}
		all = append(all, b.String())
	}
	for _, arg := range s.Args {
		switch a := arg.(type) {
		case string:
			arg = digits(a)
		case []byte:
			arg = hex.EncodeToString(a)
		case driver.ID:
			arg = idDigits(a)
		}
		all = append(all, arg)
	}
	return all
}
