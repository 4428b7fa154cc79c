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
	c := columnsOf(counts)
	return s.query(ctx, s.store.texts["set_holds"], texts([]any{c.names, c.acqs, c.holds}), nil)
}

// columns are the columns of some locks.
type columns struct {
	names, owners                []string
	acqs                         []driver.ID
	keys, versions, holds, since []int64
}

func columnsOf(all []*grip) (c columns) {
	for _, g := range all {
		c.names, c.owners, c.acqs = append(c.names, g.req.Name), append(c.owners, g.req.Owner), append(c.acqs, g.req.Acq)
		c.keys, c.versions = append(c.keys, g.key), append(c.versions, g.version)
		c.holds, c.since = append(c.holds, int64(g.holds)), append(c.since, g.since)
	}
	return c
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
	if len(news) == 0 {
		return nil
	}
	c := columnsOf(news)
	return noted(news, s.query(ctx, s.store.texts["note"], texts([]any{c.names, c.keys, c.acqs, c.owners, c.versions, c.holds, c.since,
		s.store.client.Instance, s.store.client.Label, s.pid, s.started}), nil))
}

// noted notes that locks were written down, unless that has failed.
func noted(news []*grip, err error) error {
	for _, g := range news {
		g.noted = g.noted || err == nil
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
	c := columnsOf(slices.Collect(maps.Values(latest)))
	return noted(news, s.query(ctx, s.store.texts["note_shared"], texts([]any{c.names, c.keys, c.versions, c.since}), nil))
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
