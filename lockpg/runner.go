package lockpg

import (
	"context"
	"database/sql"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
	"github.com/sqllock/sqllock/internal/termstore"
)

// runner runs a statement on one connection, or on any of them.
type runner func(ctx context.Context, query string, args []any, scan func(*sql.Rows) error) error

// ignore is for a result that tells nothing.
func ignore(*sql.Rows) error { return nil }

// terms runs statements of package termstore.
type terms struct {
	s   *sessions
	run runner
}

var _ termstore.Runner = terms{}

func (s *sessions) on(run runner) terms { return terms{s, run} }

// Read implements [termstore.Runner].
func (t terms) Read(ctx context.Context, s termstore.Statement, scan func(rowstore.Scanner) error) error {
	return t.run(ctx, t.s.texts[s.Name], parameters(s), func(rows *sql.Rows) error { return scan(rows.Scan) })
}

// Write implements [termstore.Runner]. A statement returns the clock for each row.
func (t terms) Write(ctx context.Context, s termstore.Statement) (changed, now int64, err error) {
	err = t.run(ctx, t.s.texts[s.Name], parameters(s), func(rows *sql.Rows) error {
		changed++
		return rows.Scan(&now)
	})
	return changed, now, err
}

// parameters are those of a statement, as they travel.
func parameters(s termstore.Statement) []any {
	all := make([]any, 0, len(s.Batch)+len(s.Args))
	for _, c := range s.Batch {
		all = append(all, textOf(c))
	}
	for _, arg := range s.Args {
		switch a := arg.(type) {
		case []byte:
			arg = bytea(a)
		case driver.ID:
			arg = nil
			if a != (driver.ID{}) {
				arg = a.String()
			}
		}
		all = append(all, arg)
	}
	return all
}
