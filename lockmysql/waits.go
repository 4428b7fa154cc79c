package lockmysql

import (
	"context"
	"database/sql"

	"github.com/sqllock/sqllock/driver"
)

// Waits implements [driver.LineStore].
func (s *store) Waits(ctx context.Context) (waits []driver.Wait, err error) {
	type place struct {
		name string
		seq  int64
	}
	err = s.do(ctx, func(ctx context.Context, c session) error {
		waits = nil
		at := make(map[place]int)
		return s.read(ctx, c, s.queries.line.waits, nil, func(rows *sql.Rows) error {
			w, holder, err := scanWait(rows)
			if err != nil {
				return err
			}
			i, ok := at[place{w.Name, w.Seq}]
			if !ok {
				i = len(waits)
				at[place{w.Name, w.Seq}] = i
				waits = append(waits, w)
			}
			if holder != (driver.ID{}) {
				waits[i].Holders = append(waits[i].Holders, holder)
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return waits, nil
}

// scanWait reads a ticket, and one of those who hold the name.
func scanWait(rows *sql.Rows) (w driver.Wait, holder driver.ID, err error) {
	var acq, carries, held []byte
	err = rows.Scan(&w.Name, &acq, &w.Label, &w.Seq, &w.Since, &w.Shared, &carries, &held)
	copy(w.Acq[:], acq)
	copy(holder[:], held)
	for ; len(carries) >= len(driver.ID{}); carries = carries[len(driver.ID{}):] {
		w.Carries = append(w.Carries, driver.ID(carries[:len(driver.ID{})]))
	}
	return w, holder, err
}

// bury deletes tickets of names that nobody has kept alive for a while. Until when the
// gate is closed is left as it is: it opens by itself.
func (s *store) bury(ctx context.Context, c session, names []string) error {
	dead := newBatch(1)
	err := s.read(ctx, c, s.queries.line.dead, []any{nameBatch(names).String()}, func(rows *sql.Rows) error {
		var i int
		var seq int64
		err := rows.Scan(&i, &seq)
		if err == nil {
			dead.row(names[i], driver.ID{}).int(seq).end()
		}
		return err
	})
	if err != nil || dead.empty() {
		return err
	}
	_, _, err = c.exec(ctx, s.queries.line.bury, dead.String())
	return err
}
