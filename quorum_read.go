package sqllock

import (
	"context"
	"fmt"
	"slices"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/quorum"
)

// Read reads names, or lists them, on all nodes. A name is held if a quorum of nodes keeps it for
// one acquisition.
func (q *quorumBackend) Read(ctx context.Context, req driver.ReadRequest) (driver.ReadResult, error) {
	switch {
	case req.Waiters:
		return driver.ReadResult{}, nil
	case req.List.Limit > 0:
		return q.list(ctx, req)
	}
	_, rows, err := q.readNames(ctx, req.Names)
	return driver.ReadResult{Page: driver.Page{Rows: rows}}, err
}

// readNames reads names. It returns the rows of each node that has answered, nil for the others,
// and what these rows come to.
func (q *quorumBackend) readNames(ctx context.Context, names []string) (_ [][]driver.Row, rows []driver.Row, err error) {
	call := q.newCall()
	defer call.finish()
	byNode := make([][]driver.Row, len(q.nodes)) // late replies go on to change it
	for i, n := range q.nodes {
		var res driver.ReadResult
		call.send(n, func(ctx context.Context, s driver.NodeStore) (err error) {
			res, err = s.Read(ctx, driver.ReadRequest{Names: names})
			return err
		}, func(err error) {
			if err == nil {
				byNode[i] = res.Rows
			}
		})
	}
	err = call.wait(ctx, func() bool { return q.areDecided(byNode, len(names)) })
	if err != nil {
		return nil, nil, err
	}
	if up := answered(byNode); up < q.need {
		return nil, nil, q.unavailable("read", call.failed)
	}
	rows = make([]driver.Row, len(names))
	for k := range names {
		rows[k] = q.combine(column(byNode, k))
	}
	return slices.Clone(byNode), rows, nil
}

func answered(byNode [][]driver.Row) (n int) {
	for _, rows := range byNode {
		if rows != nil {
			n++
		}
	}
	return n
}

// column returns the rows of name k of the nodes that have answered.
func column(byNode [][]driver.Row, k int) (rows []driver.Row) {
	for _, r := range byNode {
		if r != nil {
			rows = append(rows, r[k])
		}
	}
	return rows
}

// areDecided reports whether the replies that are missing change nothing: each name is held by a
// quorum, with a token that they know, or by nobody even if all that are missing say so, and so for
// a name that is kept.
func (q *quorumBackend) areDecided(byNode [][]driver.Row, names int) bool {
	missing := len(q.nodes) - answered(byNode)
	if len(q.nodes)-missing < q.need {
		return false
	}
	for k := range names {
		rows := column(byNode, k)
		most, acq := mostCommon(rows)
		if most >= q.need {
			if live := countLive(rows, acq); missing > 0 && (live < q.need && live+missing >= q.need || !agree(rows, acq)) {
				return false
			}
			continue
		}
		if n := kept(rows); most+missing >= q.need || n > 0 && n <= len(q.nodes)-q.need {
			return false
		}
	}
	return true
}

// kept returns how many rows keep a name from everybody.
func kept(rows []driver.Row) (n int) {
	for i := range rows {
		if rows[i].Gate > rows[i].Now {
			n++
		}
	}
	return n
}

// countLive returns how many rows keep a name for an acquisition and have not expired.
func countLive(rows []driver.Row, acq driver.ID) (n int) {
	for i := range rows {
		if h := &rows[i].Holder; h.Acq == acq && h.Until > rows[i].Now {
			n++
		}
	}
	return n
}

// agree reports whether the rows of an acquisition tell its token: in a value, or by one version.
// Otherwise one of them was not raised to it yet, or was granted again with a higher one.
func agree(rows []driver.Row, acq driver.ID) bool {
	var version int64
	same := true
	for i := range rows {
		r := &rows[i]
		if r.Holder.Acq != acq {
			continue
		}
		if v, ok := parseQuorumValue(r.Value); ok && v.token != 0 {
			return true
		}
		same = same && (version == 0 || version == r.Holder.Version)
		version = r.Holder.Version
	}
	return same
}

// mostCommon returns how many rows belong to the acquisition that has the most of them.
func mostCommon(rows []driver.Row) (most int, acq driver.ID) {
	for i := range rows {
		n := 0
		for k := range rows {
			if a := rows[k].Holder.Acq; a == rows[i].Holder.Acq && a != (driver.ID{}) {
				n++
			}
		}
		if n > most {
			most, acq = n, rows[i].Holder.Acq
		}
	}
	return most, acq
}

// combine makes one row of those of the nodes. If a quorum has one holder it is the holder, with
// the token that a quorum has stored.
func (q *quorumBackend) combine(rows []driver.Row) driver.Row {
	most, acq := mostCommon(rows)
	if live := countLive(rows, acq); live < q.need && live+len(q.nodes)-len(rows) >= q.need {
		most = min(most, live) // those that have not answered may keep it
	}
	var versions, free, left, blocked []int64
	var newest quorumValue
	row := rows[0]
	for i := range rows {
		r := &rows[i]
		blocked = append(blocked, r.Gate-r.Now)
		if r.Holder.Acq == (driver.ID{}) {
			free = append(free, r.Holder.Version)
		}
		if most >= q.need && r.Holder.Acq != acq {
			continue
		}
		if most >= q.need || endsLater(r, &row) {
			row = *r
		}
		versions, left = append(versions, r.Holder.Version), append(left, r.Holder.Until-r.Now)
		if v, ok := parseQuorumValue(r.Value); ok {
			token := max(v.token, newest.token)
			if v.seq >= newest.seq {
				newest = v
			}
			newest.token = token
		}
	}
	row.Value = newest.text
	row.Holder.Version = q.atLeast(versions, min(q.need, len(versions)))
	// Of a name that nobody can hold, the version of the last term is among those of the free rows.
	switch {
	case len(free) > 0 && most+len(q.nodes)-len(rows) < q.need:
		row.Holder.Version = slices.Max(free)
	case most < q.need: // it may be that of the next term
		row.Holder.Version--
	}
	row.Gate = row.Now + q.atLeast(blocked, len(q.nodes)-q.need+1)
	q.mu.Lock()
	defer q.mu.Unlock()
	if most >= q.need {
		if newest.token != 0 {
			row.Holder.Version = newest.token
		}
		row.Holder.Until = row.Now + quorum.Quorum(left, q.need)
		q.translateLocked(&row.Holder)
	} else {
		if row.Holder.Acq != (driver.ID{}) { // of an acquisition that nobody was granted
			row.Holder = driver.Holder{Version: row.Holder.Version, Since: row.Holder.Since, Until: row.Now}
		}
		row.Holds, row.Value, row.Detached = 0, nil, false
	}
	row.Revoked = q.revokedLocked(rows, row.Revoked)
	return row
}

// endsLater reports which of two rows of a name that nobody has tells how the last term has ended:
// the newer one, unless it belongs to an acquisition that nobody was granted.
func endsLater(a, b *driver.Row) bool {
	if free := a.Holder.Acq == (driver.ID{}); free != (b.Holder.Acq == (driver.ID{})) {
		return free
	}
	return a.Holder.Version > b.Holder.Version
}

// revokedLocked returns the token of the term that was revoked last; the caller holds mu. The
// nodes know it by their own versions.
func (q *quorumBackend) revokedLocked(rows []driver.Row, version int64) int64 {
	for _, t := range q.terms {
		if t.req.Name != rows[0].Name {
			continue
		}
		for i := range rows {
			if v := rows[i].Revoked; v != 0 && v >= t.token && slices.Contains(t.stored, v) {
				return t.token
			}
		}
	}
	return version
}

// list reads a page of names on all nodes, up to where each of them was read.
func (q *quorumBackend) list(ctx context.Context, req driver.ReadRequest) (driver.ReadResult, error) {
	call := q.newCall()
	defer call.finish()
	var pages []driver.Page
	for _, n := range q.nodes {
		var res driver.ReadResult
		call.send(n, func(ctx context.Context, s driver.NodeStore) (err error) {
			res, err = s.Read(ctx, driver.ReadRequest{List: req.List})
			return err
		}, func(err error) {
			if err == nil {
				pages = append(pages, res.Page)
			}
		})
	}
	if err := call.wait(ctx, func() bool { return false }); err != nil {
		return driver.ReadResult{}, err
	}
	if len(pages) < q.need {
		return driver.ReadResult{}, q.unavailable("list", call.failed)
	}
	return driver.ReadResult{Page: q.merge(pages, req.List.Free)}, nil
}

// merge makes one page of those of the nodes.
func (q *quorumBackend) merge(pages []driver.Page, free bool) (all driver.Page) {
	for _, p := range pages {
		if p.More && (!all.More || p.Last < all.Last) {
			all.More, all.Last = true, p.Last
		}
	}
	byName := make(map[string][]driver.Row)
	var names []string
	for _, p := range pages {
		for _, r := range p.Rows {
			if all.More && r.Name > all.Last {
				continue
			}
			if byName[r.Name] == nil {
				names = append(names, r.Name)
			}
			byName[r.Name] = append(byName[r.Name], r)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		rows := byName[name]
		row := q.combine(rows)
		if free || row.Held() || row.Gate > row.Now {
			all.Rows = append(all.Rows, row)
		}
	}
	return all
}

// Revoke ends the terms of names on all nodes. A term is ended when fewer nodes keep it than a
// quorum.
func (q *quorumBackend) Revoke(ctx context.Context, reqs []driver.RevokeRequest) ([]driver.RevokeResult, error) {
	res := make([]driver.RevokeResult, len(reqs))
	for k := range reqs {
		if reqs[k].Politely {
			return nil, fmt.Errorf("%w: a quorum does not ask holders to end their terms", ErrUnsupported)
		}
		r, err := q.revokeOne(ctx, &reqs[k])
		if err != nil {
			return nil, err
		}
		res[k] = r
	}
	return res, nil
}

func (q *quorumBackend) revokeOne(ctx context.Context, req *driver.RevokeRequest) (res driver.RevokeResult, err error) {
	byNode, rows, err := q.readNames(ctx, []string{req.Name})
	if err != nil {
		return res, err
	}
	res.Row = rows[0]
	held := res.Row.Held()
	switch {
	case held && req.Version != 0 && res.Row.Holder.Version != req.Version:
		return res, nil
	case !held && res.Row.Gate <= res.Row.Now:
		return res, nil
	} // else a term has that version; or the name is only kept, and its version depends on who answers first
	r := &quorumRevocation{q: q, call: q.newCall(), name: req.Name}
	defer r.call.finish()
	var cancel context.CancelFunc // a caller that gave up must not end a term later
	r.call.ctx, cancel = context.WithCancel(q.ctx)
	defer cancel()
	// So many nodes keep a term from its holder, or let others have a name that is kept from them.
	enough := q.need
	if held {
		_, r.acq = mostCommon(column(byNode, 0))
		enough = len(q.nodes) - q.need + 1
	}
	for i := range q.nodes {
		r.send(i, byNode[i])
	}
	if err := r.call.wait(ctx, func() bool { return false }); err != nil {
		return res, err
	}
	switch {
	case r.free >= enough: // without this request
		_, rows, err = q.readNames(ctx, []string{req.Name})
		if err == nil {
			res.Row = rows[0]
		}
		return res, err
	case r.free+r.revoked < enough:
		return res, q.unavailable("revoke", r.call.failed)
	}
	res.Revoked = true
	return res, nil
}

// quorumRevocation ends one term, or a time for which a name is kept from everybody.
type quorumRevocation struct {
	q       *quorumBackend
	call    *quorumCall
	name    string
	acq     driver.ID // of the term on the nodes; zero: nobody has the name
	revoked int       // nodes that have ended it
	free    int       // nodes that did not keep it any more
}

// send revokes on one node what it keeps for the term, and nothing that it keeps for another. rows
// is what the node has answered, nil if it has not answered yet.
func (r *quorumRevocation) send(i int, rows []driver.Row) {
	revoked := false
	r.call.send(r.q.nodes[i], func(ctx context.Context, s driver.NodeStore) error {
		if rows == nil {
			read, err := s.Read(ctx, driver.ReadRequest{Names: []string{r.name}})
			if err != nil {
				return err
			}
			rows = read.Rows
		}
		row := rows[0]
		for row.Holder.Acq == r.acq {
			res, err := s.Revoke(ctx, []driver.RevokeRequest{{Name: r.name, Version: row.Holder.Version}})
			if err != nil || res[0].Revoked || res[0].Row.Holder.Version == row.Holder.Version {
				revoked = err == nil && res[0].Revoked
				return err
			}
			row = res[0].Row // a raise was faster
		}
		return nil
	}, func(err error) {
		switch {
		case revoked:
			r.revoked++
		case err == nil:
			r.free++
		}
	})
}
