package lockmysql

import (
	"context"
	"database/sql"

	"github.com/sqllock/sqllock/driver"
)

// mend makes right what the rows of names say of those who hold them together. Rows
// that somebody has locked are passed over. It returns who has expired.
func (s *store) mend(ctx context.Context, c session, names []string) (crashed []driver.Crash, err error) {
	err = s.briefly(ctx, c, func(tx *sql.Tx) error {
		m := mending{rows: make(map[string]*state), dead: newBatch(1)}
		err := s.queryStates(ctx, tx, s.queries.shared.hold, nameBatch(names), func(_ int, st *state) {
			m.add(st)
		})
		if err != nil || len(m.names) == 0 {
			return err
		}
		err = query(ctx, tx, s.queries.shared.held, []any{nameBatch(m.names).String()}, m.scan)
		if err != nil {
			return err
		}
		if m.deaths > 0 {
			if err := change(ctx, tx, s.queries.shared.leave, m.dead, m.deaths); err != nil {
				return err
			}
		}
		crashed = m.crashed
		_, err = tx.ExecContext(ctx, s.queries.shared.count, m.counts().String())
		return err
	})
	if err != nil {
		return nil, err
	}
	return crashed, nil
}

// mending is one call of mend.
type mending struct {
	names   []string
	rows    map[string]*state // counted anew
	was     map[string]state
	dead    *batch
	deaths  int
	crashed []driver.Crash
}

func (m *mending) add(st *state) {
	m.names = append(m.names, st.name)
	if m.was == nil {
		m.was = make(map[string]state)
	}
	m.was[st.name] = *st
	st.others, st.othersUntil = 0, 0
	m.rows[st.name] = st
}

// scan reads one who holds a name.
func (m *mending) scan(rows *sql.Rows) error {
	i, h, err := scanReader(rows)
	if err != nil {
		return err
	}
	name := m.names[i]
	st := m.rows[name]
	expired := h.Until <= st.now
	if !expired && h.Version == st.holder.Version {
		st.others++
		st.othersUntil = max(st.othersUntil, h.Until)
		return nil
	}
	m.dead.row(name, h.Acq).int(h.Version).end()
	m.deaths++
	if expired {
		m.crashed = append(m.crashed, driver.Crash{Name: name, Holder: h})
	}
	return nil
}

// scanReader reads one who holds, or held, a name together with others, and the number
// of the name.
func scanReader(rows *sql.Rows) (i int, h driver.Holder, err error) {
	var acq []byte
	err = rows.Scan(&i, &acq, &h.Owner, &h.Label, &h.Version, &h.Since, &h.Until)
	copy(h.Acq[:], acq)
	h.Shared = true
	return i, h, err
}

// counts are the rows as they are to be written.
func (m *mending) counts() *batch {
	b := newBatch(len(m.names))
	for _, name := range m.names {
		st, was := m.rows[name], m.was[name]
		if was.others > 0 && st.others == 0 && !st.held() {
			st.expiresAt, st.ended = max(st.expiresAt, min(was.othersUntil, st.now)), driver.EndedExpired
		}
		st.count(b)
	}
	return b
}

// mend sees to those names that only readers keep, of whom some may be gone, and
// looks at them once more.
func (g *granting) mend(ctx context.Context) ([]driver.Crash, error) {
	var names []string
	var which []int
	for i := range g.states {
		if st := &g.states[i]; st.readers > 0 && st.untidy && st.gate() <= st.now {
			names, which = append(names, st.name), append(which, i)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	crashed, err := g.s.mend(ctx, g.c, names)
	if err != nil {
		return nil, err
	}
	return crashed, g.see(ctx, which)
}

// tell tells each request of the last one who has crashed of those who shared its
// name.
func tell(crashed []driver.Crash, reqs []driver.GrantRequest, res []driver.GrantResult) {
	for _, c := range crashed {
		for i := range reqs {
			if reqs[i].Name == c.Name {
				res[i].Crashed = c.Holder
			}
		}
	}
}
