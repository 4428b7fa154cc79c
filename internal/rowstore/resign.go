package rowstore

import (
	"context"

	"github.com/sqllock/sqllock/driver"
)

// requestEnd asks holders to end their terms. It writes nothing if they were asked before.
func (s *rows) requestEnd(ctx context.Context, reqs []driver.RevokeRequest) ([]driver.RevokeResult, error) {
	names, of := distinct(len(reqs), func(i int) string { return reqs[i].Name })
	rows, err := s.look(ctx, &driver.ReadRequest{Names: names, Asked: true})
	if err != nil {
		return nil, err
	}
	res := make([]driver.RevokeResult, len(reqs))
	var which []string
	var versions []int64
	for n := range rows {
		r := &rows[n]
		for _, i := range of[r.Name] {
			res[i].Row = *r
			if r.Together() == 0 && r.Held() && r.Holder.Until > r.Now && r.Holder.Version == reqs[i].Version && r.Asked != reqs[i].Version {
				which, versions = append(which, r.Name), append(versions, reqs[i].Version)
			}
		}
	}
	if len(which) == 0 {
		return res, nil
	}
	return res, s.engine.Run(ctx, Statement{Name: "ask_to_resign", Batch: []Column{which, versions}})
}

// readRequested is the statement that reads whose holder was asked to end its term.
func (v *views) readRequested(names []string) Statement {
	return Statement{Name: "asked", Batch: []Column{names}, Scan: func(scan Scanner) error {
		var name string
		var version int64
		if err := scan(&name, &version); err != nil {
			return err
		}
		v.byName[name].requested = version
		return nil
	}}
}
