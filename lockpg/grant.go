package lockpg

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/access"
)

// Grant implements driver.LeaseStore.
func (s *store) Grant(ctx context.Context, reqs []driver.GrantRequest) ([]driver.GrantResult, error) {
	return access.Each(reqs, func(r *driver.GrantRequest) bool { return r.Shared },
		func(reqs []driver.GrantRequest) ([]driver.GrantResult, error) { return s.grantAlone(ctx, reqs) },
		func(reqs []driver.GrantRequest) ([]driver.GrantResult, error) { return s.grantShared(ctx, reqs) },
		partly)
}

// grantAlone is Grant for those who do not share.
func (s *store) grantAlone(ctx context.Context, reqs []driver.GrantRequest) ([]driver.GrantResult, error) {
	res, untidy, err := s.grantOnce(ctx, reqs)
	if err != nil || len(untidy) == 0 {
		return res, err
	}
	err = s.mendAndGrant(ctx, reqs, untidy, res)
	switch {
	case err == nil:
		return res, nil
	case len(untidy) < len(reqs): // others may be granted
		return nil, partly(err)
	}
	return nil, err
}

// grantOnce asks for names whose holder was seen to have expired by a second
// statement. It also returns which requests only those keep off who may be gone.
func (s *store) grantOnce(ctx context.Context, reqs []driver.GrantRequest) (res []driver.GrantResult, untidy []int, err error) {
	g := granted{reqs: reqs, res: make([]driver.GrantResult, len(reqs))}
	if err := s.query(ctx, s.queries.grant, s.grantArgs(reqs), g.scan); err != nil {
		return nil, nil, err
	}
	if g.answers != len(reqs) {
		return nil, nil, fmt.Errorf("sqllock: %d answers to %d requests", g.answers, len(reqs))
	}
	res, untidy = g.res, g.untidy
	var expired []driver.GrantRequest
	var index []int
	for i, r := range res {
		if !r.Granted && r.Holder.Acq != (driver.ID{}) && r.Holder.Until <= r.Now {
			expired, index = append(expired, reqs[i]), append(index, i)
		}
	}
	if len(expired) == 0 {
		return res, untidy, nil
	}
	err = s.takeOver(ctx, expired, func(i int, r driver.GrantResult) { res[index[i]] = r })
	switch {
	case err == nil:
		return res, untidy, nil
	case len(expired) < len(reqs): // the first statement may have granted others
		return nil, nil, partly(err)
	}
	return nil, nil, err
}

func (s *store) grantArgs(reqs []driver.GrantRequest) []any {
	n := len(reqs)
	return []any{
		array(n, func(i int) string { return reqs[i].Name }),
		ids(n, func(i int) driver.ID { return reqs[i].Acq }),
		array(n, func(i int) string { return reqs[i].Owner }),
		integers(n, func(i int) int64 { return reqs[i].TTL.Microseconds() }),
		array(n, func(i int) string { return bytea(reqs[i].Value) }),
		s.client.Instance.String(),
		s.client.Label,
	}
}

// bytea writes bytes as the server reads them.
func bytea(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	return `\x` + hex.EncodeToString(b)
}

// granted gathers the answers to requests.
type granted struct {
	reqs    []driver.GrantRequest
	res     []driver.GrantResult
	untidy  []int // whom only those keep off who share the name and are fewer than its row says
	answers int
}

// scan reads a row: that of all who were granted what was free, or one answer: the name
// is new, or was granted before to the same acquisition, or is held by somebody, or kept
// by a gate.
func (g *granted) scan(rows *sql.Rows) error {
	var now int64
	var ords, versions list
	var ord, gate sql.NullInt64
	var fresh, untidy sql.NullBool
	var h nullHolder
	if err := rows.Scan(h.into(&now, &ords, &versions, &ord, &fresh, &untidy).then(&gate)...); err != nil {
		return err
	}
	if ords != nil {
		return g.won(now, ords, versions)
	}
	holder, err := h.holder()
	if err != nil {
		return err
	}
	g.answers++
	i := int(ord.Int64 - 1)
	r := driver.GrantResult{Now: now}
	switch {
	case fresh.Bool:
		r.Granted, r.Version, r.Remaining = true, holder.Version, g.reqs[i].TTL
		r.Now = holder.Since
	case holder.Shared:
		r.Holder = holder
		if untidy.Bool {
			g.untidy = append(g.untidy, i)
		}
	case holder.Acq == (driver.ID{}):
		if gate.Int64 > now {
			r.Holder.Until = gate.Int64
		}
	case holder.Acq == g.reqs[i].Acq && holder.Until > now:
		r.Granted, r.Found, r.Version = true, true, holder.Version
		r.Remaining = time.Duration(holder.Until-now) * time.Microsecond
	case holder.Until <= now && gate.Int64 > now: // who has expired does not keep it
		r.Holder.Until = gate.Int64
	default:
		r.Holder = holder
	}
	g.res[i] = r
	return nil
}

// won notes who was granted what was free.
func (g *granted) won(now int64, ords, versions []int64) error {
	if len(ords) != len(versions) {
		return fmt.Errorf("sqllock: %d versions for %d grants", len(versions), len(ords))
	}
	for k, ord := range ords {
		i := ord - 1
		g.res[i] = driver.GrantResult{Granted: true, Version: versions[k], Remaining: g.reqs[i].TTL, Now: now}
	}
	g.answers += len(ords)
	return nil
}

func (s *store) takeOver(ctx context.Context, reqs []driver.GrantRequest, won func(i int, r driver.GrantResult)) error {
	i := 0
	return s.query(ctx, s.queries.takeOver, s.grantArgs(reqs), func(rows *sql.Rows) error {
		var version sql.NullInt64
		var h nullHolder
		r := driver.GrantResult{Granted: true, Remaining: reqs[i].TTL}
		if err := rows.Scan(h.into(&version).then(&r.Now)...); err != nil {
			return err
		}
		crashed, err := h.holder()
		if err != nil {
			return err
		}
		if version.Valid {
			r.Version = version.Int64
			if crashed.Acq != reqs[i].Acq { // an earlier request of the same acquisition
				r.Crashed = crashed
			}
			won(i, r)
		}
		i++
		return nil
	})
}

// nullHolder is a holder as a row has it: nothing of it if there is no row, and no
// names if nobody holds.
type nullHolder struct {
	acq, owner, label     sql.NullString
	version, since, until sql.NullInt64
	shared                sql.NullBool
}

// targets are what a row is scanned into.
type targets []any

// into are the targets of a holder, after those of before.
func (h *nullHolder) into(before ...any) targets {
	return append(before, &h.acq, &h.owner, &h.label, &h.version, &h.since, &h.until, &h.shared)
}

func (t targets) then(more ...any) targets { return append(t, more...) }

func (h *nullHolder) holder() (driver.Holder, error) {
	r := driver.Holder{Owner: h.owner.String, Label: h.label.String,
		Version: h.version.Int64, Since: h.since.Int64, Until: h.until.Int64, Shared: h.shared.Bool}
	if !h.acq.Valid {
		return r, nil
	}
	var err error
	r.Acq, err = parseID(h.acq.String)
	return r, err
}
