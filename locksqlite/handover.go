package locksqlite

import (
	"context"
	"database/sql"
	"math"

	"github.com/sqllock/sqllock/driver"
)

// serving says up to which place the lines of names are served: all before it whose
// tickets are alive get the name, at one time on the database's clock.
type serving struct {
	at    int64
	lines []lineEnd
}

// lineEnd is the first place in the line of a name that is not served.
type lineEnd struct {
	name   string
	before int64
	shared bool // those before it share the name; else it is one
}

// turn is a name that was handed over, by whomever to whomever.
type turn struct {
	member
	driver.Turn
	instance driver.ID
}

// advance hands over what may be had of names, in a transaction that has freed them or
// taken somebody out of their lines.
func (s *store) advance(ctx context.Context, conn *sql.Conn, names []string) ([]turn, error) {
	if len(names) == 0 {
		return nil, nil
	}
	next, err := s.next(ctx, conn, names)
	if err != nil {
		return nil, err
	}
	turns, err := s.serve(ctx, conn, next)
	if err != nil {
		return nil, err
	}
	return turns, s.settle(ctx, conn, names)
}

// next finds who may be served. Of an expired holder it finds nobody: whose term that
// was could not be told.
func (s *store) next(ctx context.Context, conn *sql.Conn, names []string) (serving, error) {
	var next serving
	err := query(ctx, conn, s.queries.line.next, []any{toJSON(names)}, func(scan func(...any) error) error {
		var name string
		var accompanied bool
		var head, writer sql.NullInt64
		if err := scan(&name, &next.at, &accompanied, &head, &writer); err != nil {
			return err
		}
		switch {
		case !head.Valid:
		case !writer.Valid:
			next.lines = append(next.lines, lineEnd{name, math.MaxInt64, true})
		case writer != head:
			next.lines = append(next.lines, lineEnd{name, writer.Int64, true})
		case !accompanied:
			next.lines = append(next.lines, lineEnd{name, head.Int64 + 1, false})
		}
		return nil
	})
	return next, err
}

// serve hands names over to those who wait for them. What it reads is what it has seen
// in the same transaction.
func (s *store) serve(ctx context.Context, conn *sql.Conn, next serving) (turns []turn, err error) {
	var alone, shared, all [][]any
	for _, l := range next.lines {
		row := []any{l.name, l.before}
		all = append(all, row)
		if l.shared {
			shared = append(shared, row)
		} else {
			alone = append(alone, row)
		}
	}
	collect := func(scan func(...any) error) error {
		t := turn{Turn: driver.Turn{Now: next.at}}
		var until int64
		err := scan(&t.name, idTarget{&t.acq}, idTarget{&t.instance}, &t.Version, &until)
		t.Acq, t.Remaining = t.acq, micros(until-next.at)
		turns = append(turns, t)
		return err
	}
	args := func(rows [][]any) []any { return []any{toJSON(rows), next.at, s.client.Instance[:]} }
	q := &s.queries.line
	if len(alone) > 0 {
		if err := query(ctx, conn, q.serve, args(alone), collect); err != nil {
			return nil, err
		}
	}
	if len(shared) > 0 {
		if _, err := conn.ExecContext(ctx, q.admit, args(shared)...); err != nil {
			return nil, err
		}
		if err := query(ctx, conn, q.enter, args(shared), collect); err != nil {
			return nil, err
		}
	}
	if len(all) > 0 {
		_, err = conn.ExecContext(ctx, q.pass, toJSON(all))
	}
	return turns, err
}

// settle writes who is first in the lines of names now, if anybody is.
func (s *store) settle(ctx context.Context, conn *sql.Conn, names []string) error {
	_, err := conn.ExecContext(ctx, s.queries.line.settle, toJSON(names))
	return err
}

// mine are the turns of a name that are this client's.
func (s *store) mine(turns []turn, name string) (next []driver.Turn) {
	for _, t := range turns {
		if t.name == name && t.instance == s.client.Instance {
			next = append(next, t.Turn)
		}
	}
	return next
}
