package lockpg_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/lockpg"
)

// frozen is a driver that does not return while it connects, whatever its context is.
type frozen struct{ network chan struct{} }

func (d frozen) Driver() sqldriver.Driver { return nil }

func (d frozen) Connect(context.Context) (sqldriver.Conn, error) {
	<-d.network
	return nil, errors.New("the network was frozen")
}

func TestNothingWasSentWhenAContextEndsBeforeThereIsAConnection(t *testing.T) {
	t.Parallel()
	d := frozen{make(chan struct{})}
	defer close(d.network)
	db := sql.OpenDB(d)
	defer func() { _ = db.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := lockpg.DB(db).OpenUnique(ctx, driver.Client{Label: "test"})
	if fault := lockpg.DB(db).Classify(err); fault != driver.Unreachable || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v is %d, want Unreachable", err, fault)
	}
}

func TestTheErrorOfAClosedPoolIsKnown(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	pool.Close()
	closed := pool.Ping(t.Context())
	for _, c := range []struct {
		err  error
		want driver.Fault
	}{
		{closed, driver.Refused},
		{errors.New("cannot swim in a closed pool"), driver.Unclear},
		{nil, driver.Unclear},
	} {
		if got := lockpg.Pool(pool).Classify(c.err); got != c.want {
			t.Errorf("%v is %d, want %d", c.err, got, c.want)
		}
	}
}
