package lockpg

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// Line implements driver.LineStore. It is one statement.
func (s *store) Line(ctx context.Context, reqs []driver.TicketRequest) ([]driver.TicketResult, error) {
	n := len(reqs)
	args := []any{
		array(n, func(i int) string { return reqs[i].Name }),
		ids(n, func(i int) driver.ID { return reqs[i].Acq }),
		array(n, func(i int) string { return reqs[i].Owner }),
		integers(n, func(i int) int64 { return reqs[i].TTL.Microseconds() }),
		array(n, func(i int) string { return bytea(reqs[i].Value) }),
		booleans(n, func(i int) bool { return reqs[i].Shared }),
		integers(n, func(i int) int64 { return reqs[i].Life.Microseconds() }),
		integers(n, func(i int) int64 { return reqs[i].Handed.Microseconds() }),
		array(n, func(i int) string { return bytea(joinIDs(reqs[i].Carries)) }),
		s.client.Instance.String(),
		s.client.Label,
	}
	res := make([]driver.TicketResult, n)
	answers := 0
	err := s.query(ctx, s.queries.line.line, args, func(rows *sql.Rows) error {
		answered, err := scanTicket(rows, res)
		if answered {
			answers++
		}
		return err
	})
	if err == nil && answers != n {
		err = fmt.Errorf("sqllock: %d answers to %d requests", answers, n)
	}
	if err != nil {
		return nil, err
	}
	return res, nil
}

// scanTicket reads one answer, which says whose it is, or who has crashed.
func scanTicket(rows *sql.Rows, res []driver.TicketResult) (answered bool, err error) {
	var version, until, ahead sql.NullInt64
	var h nullHolder
	var found, crashed bool
	var now int64
	var ord int
	if err := rows.Scan(h.into(&version, &found, &until, &ahead, &now, &ord).then(&crashed)...); err != nil {
		return false, err
	}
	holder, err := h.holder()
	r := &res[ord-1]
	if crashed {
		r.Crashed = holder
		return false, err
	}
	r.Now, r.Found = now, found
	if version.Valid {
		r.Granted, r.Version = true, version.Int64
		r.Remaining = time.Duration(until.Int64-now) * time.Microsecond
	} else {
		r.Holder, r.Ahead = holder, int(ahead.Int64)
	}
	return true, err
}

// Waits implements driver.LineStore.
func (s *store) Waits(ctx context.Context) (waits []driver.Wait, err error) {
	err = s.query(ctx, s.queries.line.waits, nil, func(rows *sql.Rows) error {
		var w driver.Wait
		var acq, carries string
		var holders sql.NullString
		if err := rows.Scan(&w.Name, &acq, &w.Label, &w.Seq, &w.Since, &w.Shared, &carries, &holders); err != nil {
			return err
		}
		if w.Acq, err = parseID(acq); err != nil {
			return err
		}
		if w.Carries, err = splitIDs(carries); err != nil {
			return err
		}
		if holders.Valid {
			for text := range strings.SplitSeq(holders.String, ",") {
				id, err := parseID(text)
				if err != nil {
					return err
				}
				w.Holders = append(w.Holders, id)
			}
		}
		waits = append(waits, w)
		return nil
	})
	return waits, err
}

// joinIDs writes IDs one behind the other.
func joinIDs(ids []driver.ID) []byte {
	b := make([]byte, 0, len(ids)*len(driver.ID{}))
	for _, id := range ids {
		b = append(b, id[:]...)
	}
	return b
}

// splitIDs reads what joinIDs writes, in hexadecimal digits.
func splitIDs(text string) ([]driver.ID, error) {
	b, err := hex.DecodeString(text)
	ids := make([]driver.ID, len(b)/len(driver.ID{}))
	for i := range ids {
		copy(ids[i][:], b[i*len(driver.ID{}):])
	}
	return ids, err
}
