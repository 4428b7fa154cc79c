package locksqlite

import (
	"context"
	"database/sql"
	"slices"

	"github.com/sqllock/sqllock/driver"
)

// member is one of those who hold a name together.
type member struct {
	name string
	acq  driver.ID
}

// term is one of those in which a name is held together.
type term struct {
	name    string
	version int64
}

// renewShared is Renew for those who share. Of one name there may be several.
func (s *store) renewShared(ctx context.Context, reqs []driver.RenewRequest) (driver.RenewResults, error) {
	b := newBatch(len(reqs))
	index := make(map[member]int, len(reqs))
	for i := range reqs {
		r := &reqs[i]
		b.add(i, r.Name, r.Acq, r.Version, r.TTL.Microseconds(), r.Holds)
		index[member{r.Name, r.Acq}] = i
	}
	res := driver.RenewResults{Status: make([]driver.RenewStatus, len(reqs))}
	err := s.do(ctx, len(reqs), func(ctx context.Context, conn *sql.Conn) error {
		clear(res.Status)
		err := s.immediate(ctx, conn, func(ctx context.Context) error {
			reach := make(map[string]int64)
			err := query(ctx, conn, s.queries.shared.renew, b.args(), func(scan func(...any) error) error {
				var m member
				var until int64
				if err := scan(&m.name, idTarget{&m.acq}, &until, &res.Now); err != nil {
					return err
				}
				res.Status[index[m]] = driver.Renewed
				reach[m.name] = max(reach[m.name], until)
				return nil
			})
			if err != nil || len(reach) == 0 {
				return err
			}
			rows := make([][]any, 0, len(reach))
			for name, until := range reach {
				rows = append(rows, []any{name, until})
			}
			_, err = conn.ExecContext(ctx, s.queries.shared.reach, toJSON(rows))
			return err
		})
		if err != nil || !slices.Contains(res.Status, driver.Gone) {
			return err
		}
		return s.revoked(ctx, conn, b, &res)
	})
	if err != nil {
		return driver.RenewResults{}, err
	}
	return res, nil
}

// leaving is what leaves a term.
type leaving struct {
	held      []member // of those who leave, who held it until now
	count     int
	notBefore int64
}

// leave deletes, in a transaction, what text finds of those who share and counts it
// out. It returns who held until then, and the names for which somebody waits.
func (s *store) leave(
	ctx context.Context, conn *sql.Conn, text string, b *batch, minHold map[member]int64,
) (freed map[member]bool, awaited []string, err error) {
	if len(b.rows) == 0 {
		return nil, nil, nil
	}
	terms := make(map[term]*leaving)
	err = query(ctx, conn, text, b.args(), func(scan func(...any) error) error {
		var m member
		var version, since int64
		var live bool
		if err := scan(&m.name, idTarget{&m.acq}, &version, &since, &live); err != nil {
			return err
		}
		t := term{m.name, version}
		if terms[t] == nil {
			terms[t] = &leaving{}
		}
		terms[t].add(m, live, since, minHold[m])
		return nil
	})
	if err != nil || len(terms) == 0 {
		return nil, nil, err
	}
	return s.countOut(ctx, conn, terms)
}

func (l *leaving) add(m member, live bool, since, minHold int64) {
	l.count++
	if live {
		l.held = append(l.held, m)
	}
	if minHold > 0 {
		l.notBefore = max(l.notBefore, since+minHold)
	}
}

// countOut changes the rows of those terms that are current. Who left another was
// not counted any more.
func (s *store) countOut(ctx context.Context, conn *sql.Conn, terms map[term]*leaving) (freed map[member]bool, awaited []string, err error) {
	rows := make([][]any, 0, len(terms))
	for t, l := range terms {
		rows = append(rows, []any{t.name, t.version, l.count, l.notBefore})
	}
	freed = make(map[member]bool)
	err = query(ctx, conn, s.queries.shared.countOut, []any{toJSON(rows)}, func(scan func(...any) error) error {
		var t term
		var waits bool
		if err := scan(&t.name, &t.version, &waits); err != nil {
			return err
		}
		for _, m := range terms[t].held {
			freed[m] = true
		}
		if waits {
			awaited = append(awaited, t.name)
		}
		return nil
	})
	return freed, awaited, err
}
