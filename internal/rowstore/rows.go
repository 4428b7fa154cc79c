package rowstore

import (
	"context"
	"errors"
	"slices"

	"github.com/sqllock/sqllock/driver"
)

// rows does the work of a [Store] on one engine. It is safe for concurrent use.
type rows struct {
	engine Engine
	sole   bool // the engine is a Sole
	client driver.Client
	beat   *beat

	visitOrder *visitOrder // nil unless the engine is a Retrier
}

func newRows(engine Engine, client driver.Client) *rows {
	_, sole := engine.(Sole)
	r := &rows{engine: engine, sole: sole, client: client, beat: newBeat()}
	if _, ok := engine.(Retrier); ok {
		r.visitOrder = newVisitOrder()
	}
	return r
}

// on returns the same rows on another engine, which runs its statements elsewhere.
func (s *rows) on(engine Engine) *rows {
	return &rows{engine: engine, sole: s.sole, client: s.client, beat: s.beat, visitOrder: s.visitOrder}
}

// has reports that the engine has a statement in the place of a visit, for a batch of so many rows.
func (s *rows) has(statement string, rows int) bool {
	quick, ok := s.engine.(Quick)
	return ok && rows > 0 && quick.Quick(statement, rows)
}

// ErrLocked says that a guard, or another transaction, keeps what a call would change.
// Drivers classify it as [driver.Again].
var ErrLocked = errors.New("sqllock: another transaction has locked the row")

// ErrRolledBack says that the connection broke before a transaction of the library could commit.
// Drivers classify it as [driver.Again].
var ErrRolledBack = errors.New("sqllock: the transaction was undone")

// ErrOvertaken says that a statement was undone because another connection has just entered or
// ended the same claim.
var ErrOvertaken = errors.New("sqllock: the same request is under way twice, or the term has just ended")

// PartlyError is the error of a call of which a part may have been done. Drivers classify it
// as [driver.Unclear], whatever it wraps.
type PartlyError struct{ Err error }

func (e *PartlyError) Error() string { return e.Err.Error() }
func (e *PartlyError) Unwrap() error { return e.Err }

// after returns the error of a statement before which others may have changed something.
func after(changed bool, err error) error {
	if changed && err != nil {
		return &PartlyError{err}
	}
	return err
}

// inParts does requests in parts, so that no transaction is held open for long while the
// client decides. changed says that something was changed before.
func inParts(which []int, changed bool, do func(part []int) error) error {
	for part := range slices.Chunk(which, largestPart) {
		if err := do(part); err != nil {
			return after(changed, err)
		}
		changed = true
	}
	return nil
}

// largestPart is how many requests one transaction does at most.
const largestPart = 500

// A visit reads few of the waiting claims of a name. If it has admitted all of them, as
// it does with readers, it reads many.
const (
	smallWindow = 4
	largeWindow = 1000
)

// clock reads the clock of the database.
func (s *rows) clock(ctx context.Context) (now int64, err error) {
	err = s.engine.Run(ctx, Statement{Name: "clock", Scan: func(scan Scanner) error { return scan(&now) }})
	return now, err
}
