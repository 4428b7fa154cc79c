package rowstore

import (
	"context"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/claim"
)

// renew does the work of [driver.Store.Renew].
func (s *rows) renew(ctx context.Context, reqs []driver.RenewRequest, wait bool) (driver.RenewResults, error) {
	res := driver.RenewResults{Status: make([]driver.RenewStatus, len(reqs))}
	var parts [2][]int // alone, shared
	for i := range reqs {
		kind := 0
		if reqs[i].Shared {
			kind = 1
		}
		parts[kind] = append(parts[kind], i)
	}
	renewed := 0
	for kind, which := range parts {
		if len(which) == 0 {
			continue
		}
		part := make([]driver.RenewRequest, len(which))
		for k, i := range which {
			part[k] = reqs[i]
		}
		n := 0
		err := s.engine.Renew(ctx, kind == 1, part, wait, func(k int, now int64) {
			res.Status[which[k]], res.Now = driver.Renewed, now
			n++
		})
		if err != nil {
			return driver.RenewResults{}, after(renewed > 0, err)
		}
		renewed += n
	}
	return res, after(renewed > 0, s.explain(ctx, reqs, &res))
}

// explain finds out why leases were not renewed.
func (s *rows) explain(ctx context.Context, reqs []driver.RenewRequest, res *driver.RenewResults) error {
	var names, ofNames []string
	var acqs []driver.ID
	for i := range reqs {
		if res.Status[i] == driver.Renewed {
			continue
		}
		if n := len(names); n == 0 || names[n-1] != reqs[i].Name {
			names = append(names, reqs[i].Name)
		}
		if reqs[i].Shared {
			ofNames, acqs = append(ofNames, reqs[i].Name), append(acqs, reqs[i].Acq)
		}
	}
	if len(names) == 0 {
		return nil
	}
	v := newViews(names)
	reads := []Statement{{Name: "rows", Batch: []Column{names}, Scan: v.addRow}}
	if len(acqs) > 0 {
		reads = append(reads, Statement{Name: "claims_of", Batch: []Column{ofNames, acqs}, Scan: v.addClaimOf})
	}
	if err := s.engine.Run(ctx, reads...); err != nil {
		return err
	}
	for i := range reqs {
		if w := v.byName[reqs[i].Name]; w != nil && res.Status[i] != driver.Renewed {
			res.Status[i] = w.whyNot(&reqs[i])
			res.Now = max(res.Now, w.now)
		}
	}
	return nil
}

// whyNot tells why a lease was not renewed.
func (w *view) whyNot(r *driver.RenewRequest) driver.RenewStatus {
	live := !r.Shared && w.row.Acq == r.Acq && w.row.Version == r.Version && w.row.Expires > w.now
	for i := range w.claims {
		c := &w.claims[i]
		live = live || r.Shared && c.Acq == r.Acq && c.State == claim.Holding && c.Token == r.Version && c.Expires > w.now
	}
	switch {
	case live: // it was passed over, or has changed since
		return driver.Busy
	case w.row.Revoked == r.Version, r.Shared && w.row.Revoked > r.Version: // permits have tokens of their own
		return driver.Revoked
	}
	return driver.Gone
}
