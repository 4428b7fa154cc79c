package rowstore

import (
	"context"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/claim"
)

// detach gives terms to whoever adopts them.
func (s *rows) detach(ctx context.Context, reqs []driver.ReleaseRequest) ([]driver.ReleaseResult, error) {
	res := make([]driver.ReleaseResult, len(reqs))
	for i := range reqs {
		freed, err := s.detachOne(ctx, &reqs[i])
		if err != nil {
			return nil, after(i > 0, err)
		}
		res[i].Freed = freed
	}
	return res, nil
}

func (s *rows) detachOne(ctx context.Context, r *driver.ReleaseRequest) (detached bool, err error) {
	e := &plan{names: []string{r.Name}, window: smallWindow, ends: r.Guarded}
	e.decide = func(_ *view, visit *claim.Visit) error {
		var guarded bool
		detached, guarded = visit.Detach(r.Acq, r.Version, r.To, r.TTL.Microseconds())
		if guarded {
			return ErrLocked
		}
		return nil
	}
	return detached, s.visit(ctx, e)
}
