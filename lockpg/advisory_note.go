package lockpg

import (
	"context"
	"maps"
	"slices"

	"github.com/sqllock/sqllock/driver"
)

// note writes who holds what, for people: of each lock once, when it has been held for
// long enough to be renewed, and again when it is held more or less often.
func (s *advisorySession) note(ctx context.Context, reqs []driver.RenewRequest) error {
	var news, counts []*grip
	for i := range reqs {
		g := s.grips[reqs[i].Acq]
		switch {
		case g == nil:
			continue
		case !g.noted:
			news = append(news, g)
		case g.holds != reqs[i].Holds && !g.req.Shared:
			counts = append(counts, g)
		}
		g.holds = max(reqs[i].Holds, 1)
	}
	if err := s.noteAlone(ctx, only(news, false)); err != nil {
		return err
	}
	if err := s.noteShared(ctx, only(news, true)); err != nil {
		return err
	}
	if len(counts) == 0 {
		return nil
	}
	return s.query(ctx, s.store.texts["set_holds"], []any{
		array(len(counts), func(i int) string { return counts[i].req.Name }),
		array(len(counts), func(i int) string { return counts[i].req.Acq.String() }),
		integers(len(counts), func(i int) int64 { return int64(counts[i].holds) }),
	}, nil)
}

func only(all []*grip, shared bool) (some []*grip) {
	for _, g := range all {
		if g.req.Shared == shared {
			some = append(some, g)
		}
	}
	return some
}

func (s *advisorySession) noteAlone(ctx context.Context, news []*grip) error {
	n := len(news)
	if n == 0 {
		return nil
	}
	err := s.query(ctx, s.store.texts["note"], []any{
		array(n, func(i int) string { return news[i].req.Name }),
		integers(n, func(i int) int64 { return news[i].key }),
		array(n, func(i int) string { return news[i].req.Acq.String() }),
		array(n, func(i int) string { return news[i].req.Owner }),
		integers(n, func(i int) int64 { return news[i].version }),
		integers(n, func(i int) int64 { return int64(news[i].holds) }),
		integers(n, func(i int) int64 { return news[i].since }),
		s.store.client.Instance.String(), s.store.client.Label, s.pid, s.started,
	}, nil)
	if err == nil {
		for _, g := range news {
			g.noted = true
		}
	}
	return err
}

// noteShared writes which names are shared.
func (s *advisorySession) noteShared(ctx context.Context, news []*grip) error {
	if len(news) == 0 {
		return nil
	}
	latest := make(map[string]*grip)
	for _, g := range news {
		if other := latest[g.req.Name]; other == nil || other.version < g.version {
			latest[g.req.Name] = g
		}
	}
	all := slices.Collect(maps.Values(latest))
	n := len(all)
	err := s.query(ctx, s.store.texts["note_shared"], []any{
		array(n, func(i int) string { return all[i].req.Name }),
		integers(n, func(i int) int64 { return all[i].key }),
		integers(n, func(i int) int64 { return all[i].version }),
		integers(n, func(i int) int64 { return all[i].since }),
	}, nil)
	if err == nil {
		for _, g := range news {
			g.noted = true
		}
	}
	return err
}

// forget ends the terms of locks that the table of terms knows of, before they are let
// go. A lock that was lost is let go without a word.
func (s *advisorySession) forget(ctx context.Context, reqs []driver.ReleaseRequest) error {
	var over []driver.ReleaseRequest
	for i := range reqs {
		if g := s.grips[reqs[i].Acq]; g != nil && g.noted && !g.req.Shared && !reqs[i].Lost {
			over = append(over, reqs[i])
		}
	}
	if over == nil {
		return nil
	}
	return s.store.EndTerms(ctx, s.store.on(s.query), over)
}
