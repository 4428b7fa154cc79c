package rowstore

import (
	"context"

	"github.com/sqllock/sqllock/driver"
)

// raise does the work of [driver.NodeStore.Raise]. What was not raised may have the version
// already: then the rows are read.
func (s *rows) raise(ctx context.Context, reqs []driver.RaiseRequest) ([]bool, error) {
	n := len(reqs)
	names := column(n, func(i int) string { return reqs[i].Name })
	var changed int64
	err := s.engine.Run(ctx, Statement{Name: "raise", Changed: &changed, Batch: []Column{
		names,
		column(n, func(i int) driver.ID { return reqs[i].Acq }),
		column(n, func(i int) int64 { return reqs[i].Version }),
	}})
	if err != nil {
		return nil, err
	}
	if changed == int64(n) {
		return column(n, func(int) bool { return true }), nil
	}
	v := newViews(names)
	if err := s.engine.Run(ctx, v.read()); err != nil {
		return nil, err
	}
	return column(n, func(i int) bool {
		w, r := v.byName[names[i]], &reqs[i]
		return w.row.Acq == r.Acq && w.row.Version >= r.Version && w.row.Expires > w.now
	}), nil
}
