package lockmysql

import (
	"context"
	"database/sql"
	"encoding/hex"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
)

// run runs statements, one after the other, and together as many as may be. It goes on where
// it has ended if it is called once more because the connection was dead.
type run struct {
	e     *engine
	c     session
	tx    bool   // in a transaction; else what is read must be committed, see engine.read
	waits bool   // for a row that somebody else has locked, see engine.waitsOnServer
	begin []step // to be sent before all
	at    int    // the statement that comes next
	row   int    // and the row of its batch

	made      bool                // rows were made
	locking   *rowstore.Statement // lock_rows, until its result was looked at
	locked    int                 // how many rows it has locked
	valueless bool                // none of which has a value
}

// all runs statements. A statement that may be needless, because of what those before it have
// read, is not sent together with them.
func (r *run) all(ctx context.Context, statements []rowstore.Statement) error {
	for r.at < len(statements) {
		steps, n, err := r.together(statements[r.at:])
		if err == nil && len(steps) > 0 {
			err = r.c.send(ctx, steps...)
			r.begin = nil
		}
		if err == nil && n == 0 {
			n, err = 1, r.one(ctx, &statements[r.at])
		}
		if err == nil {
			err = r.checkLocked(ctx)
		}
		if err != nil {
			return err
		}
		r.at, r.row = r.at+n, 0
	}
	return nil
}

// writes runs the last statements of a transaction, but for those that it returns.
func (r *run) writes(ctx context.Context, statements []rowstore.Statement) (last []step, err error) {
	for i := range statements {
		next, ok, err := r.step(&statements[i])
		if ok {
			last = append(last, next)
			continue
		}
		if err == nil {
			err = r.c.send(ctx, last...)
		}
		if err == nil {
			r.row, last = 0, nil
			err = r.one(ctx, &statements[i])
		}
		if err != nil {
			return nil, err
		}
	}
	return last, nil
}

// together returns the first of some statements as steps, as many as can be sent together, and
// how many that are. Needless ones count.
func (r *run) together(statements []rowstore.Statement) (steps []step, n int, err error) {
	steps = r.begin
	for ; n < len(statements); n++ {
		s := &statements[n]
		sent := len(steps) > len(r.begin)
		if s.Needless != nil && (sent && statements[n-1].Needless == nil) || sent && !r.c.blocks {
			break
		}
		if s.Needless != nil && s.Needless() {
			continue
		}
		next, ok, err := r.step(s)
		if err != nil || !ok {
			return steps, n, err
		}
		steps = append(steps, next)
	}
	return steps, n, nil
}

// largestStep is how many bytes of a batch are sent together with other statements. What is
// larger costs more than a round trip.
const largestStep = 8 << 10

// step returns a statement that can be sent together with others, or false.
func (r *run) step(s *rowstore.Statement) (next step, ok bool, err error) {
	if s.Changed != nil || finds[s.Name] != "" || s.Name == "lock_keys" || r.e.isolate && !r.tx { // a block has no NOWAIT
		return step{}, false, nil
	}
	text, args := r.e.queries.one(s)
	if text != "" && r.waits && s.Name == "lock_rows" {
		text = r.e.queries.texts["lock_rows_one_patiently"]
	}
	if text == "" {
		text, args = r.text(s), arguments(s)
		if s.Batch != nil {
			b, next, err := r.e.encode(s.Batch, 0)
			if err != nil || next < rowstore.Rows(s.Batch) || len(b.text) > largestStep || r.e.maxPacket > 0 && 4*largestStep > r.e.maxPacket {
				return step{}, false, err
			}
			args = append([]any{b.String()}, args...)
		}
	}
	r.note(s)
	return step{text, args, r.scan(s)}, true, nil
}

// note notes what a statement does that is sent.
func (r *run) note(s *rowstore.Statement) {
	switch s.Name {
	case "make_rows":
		r.made = true
	case "lock_rows":
		r.locking, r.locked, r.valueless = s, 0, true
	}
}

// scan returns what takes the rows of a result.
func (r *run) scan(s *rowstore.Statement) func(*sql.Rows) error {
	switch {
	case s.Scan == nil:
		return nil
	case s.Name != "lock_rows":
		return func(rows *sql.Rows) error { return s.Scan(rows.Scan) }
	}
	return func(rows *sql.Rows) error {
		r.locked++
		return s.Scan(func(targets ...any) error {
			err := rows.Scan(targets...)
			value, ok := targets[valueColumn].(*[]byte)
			r.valueless = r.valueless && ok && *value == nil
			return err
		})
	}
}

// valueColumn is that of a lock row.
const valueColumn = 7

// checkLocked fails if somebody else has locked one of the rows that lock_rows was to lock. A row
// that was made may have been locked, but not deleted.
func (r *run) checkLocked(ctx context.Context) error {
	s := r.locking
	r.locking = nil
	if s == nil || r.locked == rowstore.Rows(s.Batch) {
		return nil
	}
	if rowstore.Rows(s.Batch) == 1 { // it would have failed if the row were locked
		if r.made {
			return errLocked
		}
		return nil
	}
	r.row = 0
	exist := 0
	err := r.one(ctx, &rowstore.Statement{Name: "count_rows", Batch: s.Batch, Scan: func(scan rowstore.Scanner) error {
		n := 0
		err := scan(&n)
		exist += n
		return err
	}})
	if err == nil && (r.made || exist > r.locked) {
		return errLocked
	}
	return err
}

// one runs a statement by itself. What the server does not take at once is sent in parts.
func (r *run) one(ctx context.Context, s *rowstore.Statement) error {
	text, args := r.text(s), arguments(s)
	r.note(s)
	if s.Batch == nil {
		if find := finds[s.Name]; find != "" {
			found := false
			err := r.e.read(ctx, r.c, r.e.queries.texts[find], args, func(rows *sql.Rows) error { return rows.Scan(&found) })
			if err != nil || !found {
				return err
			}
		}
		return r.send(ctx, s, text, args)
	}
	if text, args := r.e.queries.one(s); text != "" {
		return r.send(ctx, s, text, args)
	}
	for r.row < rowstore.Rows(s.Batch) {
		b, next, err := r.e.encode(s.Batch, r.row)
		if err == nil {
			err = r.send(ctx, s, text, append([]any{b.String()}, args...))
		}
		if err != nil {
			return err
		}
		r.row = next
	}
	return nil
}

func (r *run) send(ctx context.Context, s *rowstore.Statement, text string, args []any) error {
	if scan := r.scan(s); scan != nil && r.tx {
		return query(ctx, r.c, text, args, scan)
	} else if scan != nil {
		return r.e.read(ctx, r.c, text, args, scan)
	}
	n, _, err := r.c.exec(ctx, text, args...)
	if s.Changed != nil {
		*s.Changed += n
	}
	return err
}

// text is that of a statement over a batch.
func (r *run) text(s *rowstore.Statement) string {
	if s.Name == "write_rows" && !r.valueless {
		return r.e.queries.texts[s.Name]
	}
	return r.e.queries.text(s)
}

// finds are the statements that tell whether another one would change anything: one that does
// not leaves a trace all the same.
var finds = map[string]string{"sweep_due": "find_sweep", "purge_waiters": "find_waiters"}

// behind are the statements whose first parameter is a name.
var behind = map[string]bool{"page": true, "page_end": true, "sweep_window": true}

// arguments are the parameters behind the batch. Names travel as digits.
func arguments(s *rowstore.Statement) []any {
	if !behind[s.Name] {
		return s.Args
	}
	after, others := any(digits(s.Args[0].(string))), s.Args[1:]
	if s.Name == "sweep_window" { // it says twice which rows it reads
		limit, ages := others[0], others[1:]
		return []any{ages[0], ages[1], after, limit, after, limit}
	}
	return append([]any{after}, others...)
}

// ones are the statements that have a form for one row, and the order of the parameters of that
// one: the columns of the row, and those behind it.
var ones = map[string][]int{
	"rows":          {0},
	"lock_rows":     {0},
	"claims":        {0, 0, 2, 1},
	"claims_of":     {1, 0},
	"write_rows":    {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 0},
	"delete_claims": {1, 0},
	"insert_claims": {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19},
}

// one returns the form of a statement for one row, or "".
func (q *queries) one(s *rowstore.Statement) (text string, args []any) {
	order := ones[s.Name]
	if order == nil || rowstore.Rows(s.Batch) != 1 {
		return "", nil
	}
	args = make([]any, len(order))
	for i, at := range order {
		if at < len(s.Batch) {
			args[i] = parameter(s.Batch[at])
		} else {
			args[i] = s.Args[at-len(s.Batch)]
		}
	}
	return q.texts[s.Name+"_one"], args
}

// parameter is the first row of a column as a parameter.
func parameter(column rowstore.Column) any {
	switch c := column.(type) {
	case []string:
		return digits(c[0])
	case []int64:
		return c[0]
	case []driver.ID:
		return idDigits(c[0])
	case [][]byte:
		return hex.EncodeToString(c[0])
	}
	panic("bug: a column of an unknown type")
}
