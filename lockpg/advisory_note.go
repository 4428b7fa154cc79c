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
	var unnoted, counts []*sessionLock
	for i := range reqs {
		l := s.locks[reqs[i].Acq]
		switch {
		case l == nil:
			continue
		case !l.noted:
			unnoted = append(unnoted, l)
		case l.holds != reqs[i].Holds && !l.req.Shared:
			counts = append(counts, l)
		}
		l.holds = max(reqs[i].Holds, 1)
	}
	if err := s.noteAlone(ctx, only(unnoted, false)); err != nil {
		return err
	}
	if err := s.noteShared(ctx, only(unnoted, true)); err != nil {
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

func columnsOf(all []*sessionLock) (c columns) {
	for _, l := range all {
		c.names, c.owners, c.acqs = append(c.names, l.req.Name), append(c.owners, l.req.Owner), append(c.acqs, l.req.Acq)
		c.keys, c.versions = append(c.keys, l.key), append(c.versions, l.version)
		c.holds, c.since = append(c.holds, int64(l.holds)), append(c.since, l.since)
	}
	return c
}

func only(all []*sessionLock, shared bool) (some []*sessionLock) {
	for _, l := range all {
		if l.req.Shared == shared {
			some = append(some, l)
		}
	}
	return some
}

func (s *advisorySession) noteAlone(ctx context.Context, unnoted []*sessionLock) error {
	if len(unnoted) == 0 {
		return nil
	}
	c := columnsOf(unnoted)
	return noted(unnoted, s.query(ctx, s.store.texts["note"], texts([]any{c.names, c.keys, c.acqs, c.owners, c.versions, c.holds, c.since,
		s.store.client.Instance, s.store.client.Label, s.pid, s.started}), nil))
}

// noted notes that locks were written down, unless that has failed.
func noted(unnoted []*sessionLock, err error) error {
	for _, l := range unnoted {
		l.noted = l.noted || err == nil
	}
	return err
}

// noteShared writes which names are shared.
func (s *advisorySession) noteShared(ctx context.Context, unnoted []*sessionLock) error {
	if len(unnoted) == 0 {
		return nil
	}
	latest := make(map[string]*sessionLock)
	for _, l := range unnoted {
		if other := latest[l.req.Name]; other == nil || other.version < l.version {
			latest[l.req.Name] = l
		}
	}
	c := columnsOf(slices.Collect(maps.Values(latest)))
	return noted(unnoted, s.query(ctx, s.store.texts["note_shared"], texts([]any{c.names, c.keys, c.versions, c.since}), nil))
}

// forget ends the terms of locks that the table of terms knows of, before they are let
// go. A lock that was lost is let go without a word.
func (s *advisorySession) forget(ctx context.Context, reqs []driver.ReleaseRequest) error {
	var over []driver.ReleaseRequest
	for i := range reqs {
		if l := s.locks[reqs[i].Acq]; l != nil && l.noted && !l.req.Shared && !reqs[i].Lost {
			over = append(over, reqs[i])
		}
	}
	if over == nil {
		return nil
	}
	return s.store.EndTerms(ctx, s.store.on(s.query), over)
}
