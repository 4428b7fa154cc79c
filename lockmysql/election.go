package lockmysql

import (
	"bytes"
	"context"
	"encoding/hex"

	"github.com/sqllock/sqllock/driver"
)

// Resume implements [driver.ElectionStore]. If nothing was changed a look tells
// whether that is because the row, or the entry that a guard locks, is locked.
func (s *store) Resume(ctx context.Context, req driver.ResumeRequest) (res driver.GrantResult, err error) {
	if err := s.checkValues([]driver.GrantRequest{{Name: req.Name, Owner: req.Owner, Value: req.Value}}); err != nil {
		return res, err
	}
	err = s.insist(ctx, func(ctx context.Context, c session) (bool, error) {
		n, now, err := c.exec(ctx, s.queries.resume, digits(req.Name), digits(req.Owner), req.Version,
			req.Acq.String(), s.client.Instance.String(), digits(s.client.Label), req.TTL.Microseconds(), hex.EncodeToString(req.Value))
		if err != nil {
			return false, err
		}
		if n > 0 {
			res = driver.GrantResult{Granted: true, Version: max(req.Version+1, now), Remaining: micros(req.TTL.Microseconds()), Now: now}
			return true, nil
		}
		st, err := s.lookAt(ctx, c, req.Name)
		res = driver.GrantResult{Now: st.now}
		return !st.held() || st.expired() || st.holder.Version != req.Version || st.holder.Owner != req.Owner, err
	})
	if err != nil {
		return driver.GrantResult{}, err
	}
	return res, nil
}

// Proclaim implements [driver.Proclaimer].
func (s *store) Proclaim(ctx context.Context, req driver.ProclaimRequest) (done bool, err error) {
	if err := s.checkValues([]driver.GrantRequest{{Name: req.Name, Value: req.Value}}); err != nil {
		return false, err
	}
	err = s.insist(ctx, func(ctx context.Context, c session) (over bool, err error) {
		n, _, err := c.exec(ctx, s.queries.proclaim, digits(req.Name), req.Acq.String(), req.Version, hex.EncodeToString(req.Value))
		if err != nil || n > 0 {
			done = n > 0
			return true, err
		}
		states, err := s.lookInside(ctx, c, []string{req.Name})
		if err != nil {
			return false, err
		}
		row := states[0].row()
		done, over = proclaimed(&row, req, !states[0].expired())
		return over, nil
	})
	return done && err == nil, err
}

// Proclaim implements [driver.Proclaimer].
func (s *sessions) Proclaim(ctx context.Context, req driver.ProclaimRequest) (done bool, err error) {
	if err := s.base.checkValues([]driver.GrantRequest{{Name: req.Name, Value: req.Value}}); err != nil {
		return false, err
	}
	err = s.base.insist(ctx, func(ctx context.Context, c session) (over bool, err error) {
		n, _, err := c.exec(ctx, s.q.proclaim, digits(req.Name), req.Version, idDigits(req.Acq), hex.EncodeToString(req.Value))
		if err != nil || n > 0 {
			done = n > 0
			return true, err
		}
		terms, err := s.lookBy(ctx, c, s.q.lookValues, []string{req.Name})
		if err != nil {
			return false, err
		}
		row := terms[0].row()
		done, over = proclaimed(&row, req, true)
		return over, nil
	})
	return done && err == nil, err
}

// proclaimed tells why a proclamation changed nothing: the term is over, or the value was
// the same, which the server does not count. Else the row is locked: it is not over.
func proclaimed(row *driver.Row, req driver.ProclaimRequest, live bool) (done, over bool) {
	switch {
	case !live || row.Holder.Acq != req.Acq || row.Holder.Version != req.Version:
		return false, true
	case bytes.Equal(row.Value, req.Value):
		return true, true
	}
	return false, false
}

// insist calls fn with one connection until it says that it is over, for as long as
// somebody may have locked a row for a moment. The error is errLocked then.
func (s *store) insist(ctx context.Context, fn func(context.Context, session) (over bool, err error)) error {
	return s.do(ctx, func(ctx context.Context, c session) error {
		patience := newPatience(brief)
		for {
			over, err := fn(ctx, c)
			if err != nil || over {
				return err
			}
			if err := patience.wait(ctx); err != nil {
				return err
			}
		}
	})
}
