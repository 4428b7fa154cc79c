package lockmysql

import (
	"bytes"
	"context"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
)

// Proclaim implements [driver.Proclaimer].
func (s *store) Proclaim(ctx context.Context, req driver.SetValueRequest) (done bool, err error) {
	if err := s.engine.checkValues([]driver.AcquireRequest{{Name: req.Name, Value: req.Value}}); err != nil {
		return false, err
	}
	patience := rowstore.NewPatience(longWait)
	for {
		if done, err = s.Store.Proclaim(ctx, req); err != nil || done {
			return done, err
		}
		rows, err := s.Look(ctx, []string{req.Name})
		if err != nil {
			return false, err
		}
		if done, over := proclaimed(&rows[0], req, rows[0].Holder.Until > rows[0].Now); over {
			return done, nil
		}
		if err := patience.Wait(ctx); err != nil {
			return false, err
		}
	}
}

// Proclaim implements [driver.Proclaimer].
func (s *sessions) Proclaim(ctx context.Context, req driver.SetValueRequest) (done bool, err error) {
	if err := s.base.checkValues([]driver.AcquireRequest{{Name: req.Name, Value: req.Value}}); err != nil {
		return false, err
	}
	return s.Store.Proclaim(ctx, req)
}

// proclaimed tells why a proclamation changed nothing: the term is over, or the value was
// the same, which the server does not count. Else the row is locked: it is not over.
func proclaimed(row *driver.Row, req driver.SetValueRequest, live bool) (done, over bool) {
	switch {
	case !live || row.Holder.Acq != req.Acq || row.Holder.Version != req.Version:
		return false, true
	case bytes.Equal(row.Value, req.Value):
		return true, true
	}
	return false, false
}
