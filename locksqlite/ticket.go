package locksqlite

import (
	"context"

	"github.com/sqllock/sqllock/driver"
)

// ticketing is what Line writes before anybody is served.
type ticketing struct {
	rows   [][]any // names whose rows change
	longer [][]any // tickets that are extended
	made   *batch
	values []byte // what the new tickets carry, and what their holders will have to say
}

// write makes the tickets that are missing and extends others, in a transaction.
func (l *lining) write(ctx context.Context) error {
	t := ticketing{made: newBatch(0)}
	for _, n := range l.names {
		t.add(n, l.reqs)
	}
	q, client := &l.store.queries.line, &l.store.client
	if len(t.rows) > 0 {
		if _, err := l.conn.ExecContext(ctx, q.await, toJSON(t.rows)); err != nil {
			return err
		}
	}
	if len(t.longer) > 0 {
		if _, err := l.conn.ExecContext(ctx, q.extend, toJSON(t.longer)); err != nil {
			return err
		}
	}
	if len(t.made.rows) == 0 {
		return nil
	}
	_, err := l.conn.ExecContext(ctx, q.ticket, t.made.args(client.Instance[:], client.Label, t.values, l.names[0].now)...)
	return err
}

// add adds what changes in the line of n. The row of the name changes only if it does
// not say already that the line lives for so long.
func (t *ticketing) add(n *awaited, reqs []driver.TicketRequest) {
	var until int64
	numbered := false
	for _, p := range n.line {
		switch {
		case p.made:
			numbered = true
			t.make(n.name, p, &reqs[p.req])
		case p.longer:
			t.longer = append(t.longer, []any{n.name, p.seq, p.until})
		default:
			continue
		}
		until = max(until, p.until)
	}
	if numbered || until > n.waitUntil {
		t.rows = append(t.rows, []any{n.name, n.seq, until})
	}
}

func (t *ticketing) make(name string, p place, r *driver.TicketRequest) {
	carries := len(t.values)
	for _, id := range r.Carries {
		t.values = append(t.values, id[:]...)
	}
	value := len(t.values)
	t.values = append(t.values, r.Value...)
	t.made.add(p.req, name, r.Acq, p.seq, r.Owner, bit(r.Shared), r.TTL.Microseconds(), r.Handed.Microseconds(), p.until,
		carries, value-carries, value, len(r.Value))
}
