package lockmysql

import (
	"context"

	"github.com/sqllock/sqllock/driver"
)

// Look implements [driver.LeaseStore].
func (s *store) Look(ctx context.Context, names []string) ([]driver.Row, error) {
	rows := make([]driver.Row, len(names))
	if len(names) == 0 {
		return rows, nil
	}
	err := s.do(ctx, func(ctx context.Context, c session) error {
		states, err := s.lookInside(ctx, c, names)
		for i := range states {
			rows[i] = states[i].row()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// lookInside is look with the values and the names, also of what has no row.
func (s *store) lookInside(ctx context.Context, c session, names []string) ([]state, error) {
	states, err := s.states(ctx, c, s.queries.lookValues, nameBatch(names), len(names))
	if err != nil {
		return nil, err
	}
	for i := range states {
		states[i].name = names[i]
	}
	return states, nil
}

// List implements [driver.LeaseStore].
func (s *store) List(ctx context.Context, req driver.ListRequest) (page driver.Page, err error) {
	err = s.do(ctx, func(ctx context.Context, c session) error {
		states, err := s.window(ctx, c, req.After, req.Limit)
		if err != nil {
			return err
		}
		page = driver.Page{More: len(states) == req.Limit}
		for i := range states {
			st := &states[i]
			if req.Free || st.held() || st.readers > 0 || st.notBefore > st.now {
				page.Rows = append(page.Rows, st.row())
			}
			page.Last = st.name
		}
		return nil
	})
	return page, err
}
