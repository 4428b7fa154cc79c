package lockpg

import (
	"context"
	"database/sql"

	"github.com/sqllock/sqllock/driver"
)

// mend makes right what the rows of names say of those who hold them together. Rows
// that somebody has locked are passed over. It returns who has expired.
func (s *store) mend(ctx context.Context, names []string) (crashed []driver.Crash, err error) {
	err = s.source.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
		crashed = nil
		return inOwnTx(ctx, conn, readCommitted, func(tx *sql.Tx) error {
			var mine []string
			err := queryOn(ctx, tx, s.queries.shared.hold, nameArgs(names), func(rows *sql.Rows) error {
				var name string
				err := rows.Scan(&name)
				mine = append(mine, name)
				return err
			})
			if err != nil || len(mine) == 0 {
				return err
			}
			return queryOn(ctx, tx, s.queries.shared.mend, nameArgs(mine), func(rows *sql.Rows) error {
				var c driver.Crash
				var h nullHolder
				if err := rows.Scan(h.into(&c.Name)...); err != nil {
					return err
				}
				var err error
				c.Holder, err = h.holder()
				crashed = append(crashed, c)
				return err
			})
		})
	})
	if err != nil {
		return nil, err
	}
	return crashed, nil
}

func nameArgs(names []string) []any {
	return []any{array(len(names), func(i int) string { return names[i] })}
}

// mendAndGrant asks once more for the requests at which, that only those keep off
// who may be gone: some of them have expired, and are no longer counted then.
func (s *store) mendAndGrant(ctx context.Context, reqs []driver.GrantRequest, which []int, res []driver.GrantResult) error {
	names := make([]string, len(which))
	again := make([]driver.GrantRequest, len(which))
	for i, at := range which {
		names[i], again[i] = reqs[at].Name, reqs[at]
	}
	crashed, err := s.mend(ctx, names)
	if err != nil {
		return err
	}
	won, _, err := s.grantOnce(ctx, again)
	if err != nil {
		return err
	}
	for i, at := range which {
		res[at] = won[i]
		for _, c := range crashed { // of several the last is told
			if c.Name == names[i] {
				res[at].Crashed = c.Holder
			}
		}
	}
	return nil
}

// drop takes away those who shared a name until it was revoked. Their term is over
// in any case: if this fails, a sweep will find them.
func (s *store) drop(ctx context.Context, res []driver.RevokeResult) {
	var over []driver.Row
	for _, r := range res {
		if r.Revoked && r.Row.Readers > 0 {
			over = append(over, r.Row)
		}
	}
	if len(over) == 0 {
		return
	}
	_ = s.query(ctx, s.queries.shared.drop, []any{
		array(len(over), func(i int) string { return over[i].Name }),
		integers(len(over), func(i int) int64 { return over[i].Holder.Version }),
	}, nil)
}
