package lockmysql

import (
	"bytes"
	"context"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
)

// SetValue implements [driver.Store].
func (s *store) SetValue(ctx context.Context, req driver.SetValueRequest) (done bool, err error) {
	if err := s.engine.checkValues([]driver.AcquireRequest{{Name: req.Name, Value: req.Value}}); err != nil {
		return false, err
	}
	wait := rowstore.NewLockWait(longWait)
	for {
		if done, err = s.Store.SetValue(ctx, req); err != nil || done {
			return done, err
		}
		read, err := s.Read(ctx, driver.ReadRequest{Names: []string{req.Name}})
		if err != nil {
			return false, err
		}
		row := &read.Rows[0]
		if done, over := notSet(row, req, row.Holder.Until > row.Now); over {
			return done, nil
		}
		if err := wait.Pause(ctx); err != nil {
			return false, err
		}
	}
}

// SetValue implements [driver.SessionStore].
func (s *sessions) SetValue(ctx context.Context, req driver.SetValueRequest) (done bool, err error) {
	if err := s.base.checkValues([]driver.AcquireRequest{{Name: req.Name, Value: req.Value}}); err != nil {
		return false, err
	}
	return s.Store.SetValue(ctx, req)
}

// notSet tells why SetValue changed nothing: the term is over, the value was the same, which the
// server does not count, or it is not to go back. Else the row is locked: it is not over.
func notSet(row *driver.Row, req driver.SetValueRequest, live bool) (done, over bool) {
	switch {
	case !live || row.Holder.Acq != req.Acq || row.Holder.Version != req.Version:
		return false, true
	case bytes.Equal(row.Value, req.Value):
		return true, true
	case req.Rising && bytes.Compare(row.Value, req.Value) > 0:
		return false, true
	}
	return false, false
}
