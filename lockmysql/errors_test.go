package lockmysql_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/queuetest"
	"github.com/sqllock/sqllock/internal/rowstore"
	"github.com/sqllock/sqllock/lockmysql"
)

func TestAKilledConnectionIsUnclearAndNotGivenBack(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		db := f.Open(t)
		db.SetMaxOpenConns(1)
		admin := f.Open(t)
		var id int
		if err := db.QueryRow(`SELECT CONNECTION_ID()`).Scan(&id); err != nil {
			t.Fatal(err)
		}
		db.SetMaxOpenConns(2) // or none is reserved
		s := open(t, db)
		reqs := requests(1, "%d")
		take(t, s, reqs...)
		exec(t, admin, fmt.Sprintf("KILL %d", id))
		time.Sleep(100 * time.Millisecond)
		_, err := s.Acquire(t.Context(), reqs)
		if fault := lockmysql.Classify(err); err != nil && fault != driver.Unclear && fault != driver.Unreachable {
			t.Errorf("%v is %v", err, fault)
		}
		take(t, s, reqs...)
		if n := db.Stats().OpenConnections; n != 1 {
			t.Errorf("%+v", db.Stats())
		}
	})
}

func TestCancellingEndsACallSoon(t *testing.T) {
	eachServer(t, func(t *testing.T, f *fixture) {
		s, _ := f.store(t)
		reqs := requests(1, "%d")
		res := take(t, s, reqs...)
		lockRow(t, f.Open(t), reqs[0].Name)
		queuetest.Within(t, 500*time.Millisecond, func() { // a wait for the row takes a second
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, err := s.Renew(ctx, renewals(reqs, res, minute), true); err == nil {
				t.Error("a row that is locked was renewed")
			}
		})
	})
}

func TestErrorsAreClassified(t *testing.T) {
	t.Parallel()
	number := func(n uint16) error { return fmt.Errorf("wrapped: %w", &mysql.MySQLError{Number: n}) }
	dial := &net.OpError{Op: "dial", Err: errors.New("refused")}
	for _, c := range []struct {
		err  error
		want driver.Fault
	}{
		{number(1213), driver.Again},
		{number(1205), driver.Again},
		{number(1020), driver.Again},
		{number(1290), driver.Unreachable},
		{number(1792), driver.Unreachable},
		{number(1836), driver.Unreachable},
		{number(1047), driver.Again},
		{number(3024), driver.Again}, // it ends statements that only read
		{lockmysql.ErrLocked, driver.Again},
		{number(1040), driver.Unreachable},
		{number(1203), driver.Unreachable},
		{number(4031), driver.Unreachable}, // a session that was silent was ended before the statement came
		{dial, driver.Unreachable},
		{fmt.Errorf("%w: %w", driver.ErrNoConnection, context.DeadlineExceeded), driver.Unreachable},
		{sqldriver.ErrBadConn, driver.Unreachable},
		{number(1146), driver.Refused},
		{number(1142), driver.Refused},
		{number(1064), driver.Refused},
		{number(1045), driver.Refused},
		{mysql.ErrPktTooLarge, driver.Refused},
		{number(1180), driver.Unclear},
		{number(1317), driver.Unclear},
		{number(1969), driver.Unclear}, // the statement may be a block that has committed
		{number(1053), driver.Unclear},
		{mysql.ErrInvalidConn, driver.Unclear},
		{io.ErrUnexpectedEOF, driver.Unclear},
		{context.Canceled, driver.Unclear},
		{context.DeadlineExceeded, driver.Unclear},
		{&net.OpError{Op: "read", Err: errors.New("reset")}, driver.Unclear},
		{errors.New("anything"), driver.Unclear},
		{nil, driver.Unclear},
		{&rowstore.PartlyError{Err: number(1213)}, driver.Unclear},
		{&rowstore.PartlyError{Err: sqldriver.ErrBadConn}, driver.Unclear},
	} {
		if got := lockmysql.Classify(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

// After an answer the connection is kept on which a Locker draws its tokens. A server that takes no
// writes any more answers each statement, too. Then another connection has to be opened, which may
// reach the new primary.
func TestAnErrorOfAServerThatIsReadOnlyIsNoAnswer(t *testing.T) {
	t.Parallel()
	for number, want := range map[uint16]bool{
		1205: true, 1213: true, 1142: true, 1317: true, 1969: true,
		1290: false, 1792: false, 1836: false, // it is read-only
		1053: false, 1927: false, 4031: false, // it closes the connection
	} {
		if got := lockmysql.IsAnswer(fmt.Errorf("wrapped: %w", &mysql.MySQLError{Number: number})); got != want {
			t.Errorf("error %d: %v", number, got)
		}
	}
	if !lockmysql.IsAnswer(lockmysql.ErrLocked) {
		t.Error("a row that is locked")
	}
	for _, err := range []error{nil, sqldriver.ErrBadConn, io.ErrUnexpectedEOF, context.DeadlineExceeded} {
		if lockmysql.IsAnswer(err) {
			t.Errorf("%v", err)
		}
	}
}

// frozen is a driver that does not return while it connects, whatever its context is.
type frozen struct{ network chan struct{} }

func (d frozen) Driver() sqldriver.Driver { return nil }

func (d frozen) Connect(context.Context) (sqldriver.Conn, error) {
	<-d.network
	return nil, errors.New("the network was frozen")
}

// What is sent as a text, after a server would not prepare it, runs by itself if the transaction is
// undone: on Galera, another node undoes one between two statements, and the answer to the next
// command tells it.
func TestOnlyAStatementThatIsNotPreparedIsSentAsAText(t *testing.T) {
	t.Parallel()
	for number, want := range map[uint16]bool{
		1461: true, 1295: true, 1064: true, 1146: true,
		1213: false, 1205: false, 1020: false, 1047: false, 1180: false, 1317: false, 1927: false, 1053: false,
	} {
		if got := lockmysql.IsUnprepared(fmt.Errorf("wrapped: %w", &mysql.MySQLError{Number: number})); got != want {
			t.Errorf("error %d: %v", number, got)
		}
	}
	if lockmysql.IsUnprepared(nil) || lockmysql.IsUnprepared(sqldriver.ErrBadConn) {
		t.Error("without an answer of the server")
	}
}

// On Galera the server may undo a transaction and go on as if nothing had been: then what follows
// commits neither by itself nor with the transaction, and the session is as it was.
func TestATransactionThatIsUndoneUnnoticedCommitsNothing(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, db := f.store(t)
		err := lockmysql.Undo(t.Context(), s, "INSERT INTO sqllock_fence (resource, token) VALUES ('undone', 1)")
		if !errors.Is(err, rowstore.ErrRolledBack) || lockmysql.Classify(err) != driver.Again {
			t.Errorf("%v", err)
		}
		var rows, autocommit int
		if err := db.QueryRow("SELECT (SELECT COUNT(*) FROM sqllock_fence), @@SESSION.autocommit").Scan(&rows, &autocommit); err != nil {
			t.Fatal(err)
		}
		if rows != 0 || autocommit != 1 {
			t.Errorf("%d rows were committed; autocommit is %d", rows, autocommit)
		}
	})
}

func TestNothingWasSentWhenAContextEndsBeforeThereIsAConnection(t *testing.T) {
	t.Parallel()
	d := frozen{make(chan struct{})}
	defer close(d.network)
	db := sql.OpenDB(d)
	defer func() { _ = db.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := lockmysql.DB(db).OpenUnique(ctx, driver.Client{Label: "test"})
	if fault := lockmysql.Classify(err); fault != driver.Unreachable || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v is %d, want Unreachable", err, fault)
	}
}
