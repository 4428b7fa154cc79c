package lockmysql

import (
	"context"
	"database/sql"

	"github.com/sqllock/sqllock/driver"
)

// Revoke implements [driver.LeaseStore]. It looks first and then ends the terms
// that it saw: so it knows what it has ended.
func (s *store) Revoke(ctx context.Context, reqs []driver.RevokeRequest) ([]driver.RevokeResult, error) {
	res := make([]driver.RevokeResult, len(reqs))
	if len(reqs) == 0 {
		return res, nil
	}
	err := s.do(ctx, func(ctx context.Context, c session) error {
		patience := newPatience(long)
		for {
			done, err := s.revokeOnce(ctx, c, reqs, res)
			if err != nil || done {
				return err
			}
			if err := patience.wait(ctx); err != nil {
				return err
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

// revokeOnce ends everything that is to be ended or, if a row is locked or has
// changed meanwhile, nothing. It reports which.
func (s *store) revokeOnce(ctx context.Context, c session, reqs []driver.RevokeRequest, res []driver.RevokeResult) (bool, error) {
	names := make([]string, len(reqs))
	for i := range reqs {
		names[i] = reqs[i].Name
	}
	states, err := s.lookInside(ctx, c, names)
	if err != nil {
		return false, err
	}
	b, shared := newBatch(1), newBatch(1)
	want, readers, waited := 0, 0, false
	for i := range states {
		st := &states[i]
		meant := reqs[i].Version == 0 || reqs[i].Version == st.holder.Version
		res[i] = driver.RevokeResult{Row: st.row(), Revoked: meant && st.kept()}
		if !meant {
			continue
		}
		if st.kept() {
			b.row(st.name, st.holder.Acq).int(st.holder.Version).end()
			want++
			waited = waited || st.waited()
		}
		if st.readers > 0 {
			shared.row(st.name, driver.ID{}).int(st.holder.Version).end()
			readers++
		}
	}
	if want == 0 {
		return true, nil
	}
	if waited {
		if done, err := s.revokeAwaited(ctx, c, b, want); err != nil || !done {
			return false, err
		}
	} else if n, _, err := c.exec(ctx, s.queries.revoke, b.String(), want); err != nil || n != int64(want) {
		return false, err
	}
	if readers > 0 {
		// Their term is over. If this fails, a sweep will find them.
		_, _, _ = c.exec(ctx, s.queries.shared.drop, shared.String())
	}
	return true, nil
}

// revokeAwaited ends the terms that were seen, of which somebody waits for some: all or
// none, and reports which.
func (s *store) revokeAwaited(ctx context.Context, c session, b *batch, want int) (bool, error) {
	return s.orLocked(ctx, c, func(tx *sql.Tx) error {
		m := moving{s: s, tx: tx}
		err := m.lock(ctx, s.queries.line.revokable, b, func(_ int, p *place) {
			p.entry = true
			p.revoke()
		})
		if err == nil && len(m.places) < want {
			err = errLocked
		}
		if err != nil {
			return err
		}
		return m.handOver(ctx)
	})
}
