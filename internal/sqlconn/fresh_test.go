package sqlconn_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/sqllock/sqllock/internal/sqlconn"
)

// where is a database of which one can tell the connections.
type where struct {
	broken
	name string
	err  error
}

type whereConn struct {
	broken
	name string
}

func (d *where) Connect(context.Context) (driver.Conn, error) {
	return whereConn{name: d.name}, d.err
}

func of(t *testing.T, r *sqlconn.Reserved) (name string) {
	t.Helper()
	if err := r.Do(t.Context(), func(_ context.Context, conn *sql.Conn) error {
		return conn.Raw(func(c any) error {
			name = c.(whereConn).name
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestAFreshConnectionNeedsNoRoomInThePool(t *testing.T) {
	db, other := sql.OpenDB(&where{name: "pool"}), &where{name: "beside"}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(2)
	beside := sql.OpenDB(other)
	defer func() { _ = beside.Close() }()
	beside.SetMaxIdleConns(0)
	p := &sqlconn.Pool{DB: db, Beside: &sqlconn.Pool{DB: beside}}
	var all []*sqlconn.Reserved
	for range 2 {
		r, err := p.Reserve(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	fresh, err := p.ReserveFresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := of(t, fresh); got != "beside" {
		t.Errorf("it is one of %q", got)
	}
	for _, r := range append(all, fresh) {
		_ = r.Close()
	}
	if n := beside.Stats().OpenConnections; n > 0 {
		t.Errorf("%d connections are left beside the pool", n)
	}

	other.err = errors.New("another password by now")
	if fresh, err = p.ReserveFresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := of(t, fresh); got != "pool" {
		t.Errorf("it is one of %q", got)
	}
	_ = fresh.Close()
	if s := db.Stats(); s.InUse > 0 || s.Idle == 0 {
		t.Errorf("the pool has %d connections in use, %d idle", s.InUse, s.Idle)
	}
}
