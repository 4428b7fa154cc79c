package rowstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// Engine runs the statements of one database, on connections of its own choice. It returns
// raw errors. It is safe for concurrent use.
type Engine interface {
	// Run runs statements one after the other. Each of them commits by itself.
	Run(ctx context.Context, statements ...Statement) error

	// Tx runs the statements that read returns in a transaction of its own, at READ COMMITTED,
	// and then those that decide returns; then it commits. It rolls back if decide returns an
	// error, or nothing to write.
	//
	// The transaction waits for rows that others have locked for about a second at most; the
	// error then classifies as [driver.Again]. The server ends a transaction whose client is
	// silent.
	//
	// An engine may send the statements of each part together. It may repeat the whole
	// transaction, if it is certain that it was undone: then it calls read again.
	Tx(ctx context.Context, read func() []Statement, decide func() (Writes, error)) error

	// Grant grants names that are free, or new: nobody holds them, waits for them, guards them,
	// or is kept from them. If an attempt that loses would lock anything, the engine calls look
	// and runs the statement that it returns before, unless the names are most probably free. It
	// calls free, which returns the requests: those that look free, or all if look was not
	// called. They are distinct by name and sorted by name. A request that is not granted leaves
	// no trace. Grant calls granted with the index of each that is, as free returned it last.
	Grant(ctx context.Context, look func() Statement, free func() []driver.AcquireRequest, granted func(i int, g Granted)) error

	// Free ends exclusive terms that nobody waits for: name, acq and version match, and a request
	// that is Guarded is guarded by no transaction now. Requests are distinct by name and
	// sorted by name. It calls freed with the index of each whose term it has ended. It need
	// not be flushed.
	Free(ctx context.Context, reqs []driver.ReleaseRequest, freed func(i int)) error

	// Renew extends terms, see [claim.Row.Renew] and [claim.Claim.Renew]; shared says which. It is
	// flushed. Requests are distinct by name, and by acq if shared, and sorted by name. It calls
	// renewed with the index of each and the clock. Rows that others have locked are passed over,
	// unless wait is set: then it waits for them as Tx does.
	Renew(ctx context.Context, shared bool, reqs []driver.RenewRequest, wait bool, renewed func(i int, now int64)) error
}

// Sole is an [Engine] whose transactions keep everybody else from writing, guards included.
// A visit reads rows instead of locking them, and does not ask what could be locked.
type Sole interface {
	Engine
	Sole()
}

// Restorer is an [Engine] that changes a reserved connection.
type Restorer interface {
	Engine
	// Restore makes the connection what it was, before it is given back, unless it is in doubt.
	Restore(conn *sql.Conn) error
}

// Retrier is an [Engine] whose transactions do not wait on the server for a row that somebody
// has locked, but begin again after a pause. So visits of one name by one Locker follow each
// other.
type Retrier interface {
	Engine
	Retrier()
}

// Quick is an [Engine] that may have statements in the place of visits, for what is not unusual:
// queue_quickly and queue_for_permits enter claims, grant_permits grants permits, free_claims ends
// terms of claims, and hand_over_quickly and hand_over_permits hand names and permits over.
// queue_quickly may grant a name that is free, and hand_over_quickly frees one that nobody waits for.
// A statement has no result for what it leaves to a visit.
// Run returns [ErrOvertaken] if the same request is under way twice, or if the term of a claim has
// ended meanwhile.
type Quick interface {
	Engine
	// Quick reports that the engine has a statement for a batch of so many rows.
	Quick(statement string, rows int) bool
	// RunThen runs a statement as Run does. After its commit it runs another one, whose
	// error does not count.
	RunThen(ctx context.Context, s, then Statement) error
}

// Granted is a grant by [Engine.Grant].
type Granted struct {
	Version, Now, Expires int64
}

// Writes is what a transaction does after it has decided.
type Writes struct {
	Statements []Statement
	Flush      bool        // the commit waits for its flush, whatever the database's default
	After      []Statement // run after the commit, apart from it; their errors do not count
}

// Statement is a statement of the .sql file of a database and what it is run with.
type Statement struct {
	Name string
	// Batch are the rows that the statement is about: a column each. They are the first
	// parameters, or the first parameter.
	Batch []Column
	Args  []any // int64 or string; they follow
	// Scan is called for each row of the result. It is nil for a statement without one.
	Scan func(scan Scanner) error
	// Needless reports that what was read before makes the statement superfluous. It is nil for
	// a statement that is always run. An engine that sends several statements together
	// ignores it.
	Needless func() bool
	// Changed is set to how many rows a statement without a result has changed, unless nil.
	Changed *int64
}

// Scanner copies the columns of a row, as [sql.Rows.Scan] does.
type Scanner func(targets ...any) error

// Column is a column of a batch: []string, []int64, []driver.ID or [][]byte. A zero ID and
// an empty value stand for NULL.
type Column any

// Rows returns how many rows a batch has.
func Rows(batch []Column) int {
	if len(batch) == 0 {
		return 0
	}
	switch c := batch[0].(type) {
	case []string:
		return len(c)
	case []int64:
		return len(c)
	case []driver.ID:
		return len(c)
	case [][]byte:
		return len(c)
	}
	panic(fmt.Sprintf("bug: a column of %T", batch[0]))
}

// column makes a column of n rows.
func column[T any](n int, at func(i int) T) []T {
	c := make([]T, n)
	for i := range c {
		c[i] = at(i)
	}
	return c
}

// id is an ID as a target: hexadecimal digits, nothing or NULL for the zero ID.
type id struct{ *driver.ID }

// Scan implements sql.Scanner.
func (t id) Scan(value any) error {
	*t.ID = driver.ID{}
	switch v := value.(type) {
	case nil:
		return nil
	case string:
		return t.read(v)
	case []byte:
		return t.read(string(v))
	}
	return fmt.Errorf("sqllock: the id in a row is a %T", value)
}

func (t id) read(digits string) error {
	if digits == "" {
		return nil
	}
	return t.UnmarshalText([]byte(digits))
}

// micros returns a duration of so many microseconds.
func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
