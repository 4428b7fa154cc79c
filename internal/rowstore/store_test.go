package rowstore_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
	"github.com/sqllock/sqllock/internal/sqlconn"
)

// connector opens connections on which nothing runs.
type connector struct{}

func (connector) Connect(context.Context) (sqldriver.Conn, error) { return noConn{}, nil }
func (connector) Driver() sqldriver.Driver                        { return nil }

type noConn struct{}

func (noConn) Prepare(string) (sqldriver.Stmt, error) { return nil, errors.ErrUnsupported }
func (noConn) Begin() (sqldriver.Tx, error)           { return nil, errors.ErrUnsupported }
func (noConn) Close() error                           { return nil }

// calls notes on which connections calls run.
type calls struct {
	exhausted bool
	on        []string
	grant     func() // called by grants
}

// noteEngine is an engine that notes where it runs, and does nothing.
type noteEngine struct {
	calls *calls
	where string
}

func (e noteEngine) note() { e.calls.on = append(e.calls.on, e.where) }

func (e noteEngine) Run(context.Context, ...rowstore.Statement) error {
	e.note()
	return nil
}

func (e noteEngine) Tx(context.Context, func() []rowstore.Statement, func() (rowstore.Writes, error)) error {
	e.note()
	return nil
}

func (e noteEngine) Grant(
	_ context.Context, _ func() rowstore.Statement, free func() []driver.AcquireRequest, granted func(int, rowstore.Granted),
) error {
	e.note()
	e.calls.grant()
	for i := range free() {
		granted(i, rowstore.Granted{Version: 1, Now: 1, Expires: 2})
	}
	return nil
}

func (e noteEngine) Free(_ context.Context, reqs []driver.ReleaseRequest, freed func(int)) error {
	e.note()
	for i := range reqs {
		freed(i)
	}
	return nil
}

func (e noteEngine) Renew(_ context.Context, _ bool, reqs []driver.RenewRequest, _ bool, renewed func(int, int64)) error {
	e.note()
	for i := range reqs {
		renewed(i, 1)
	}
	return nil
}

// newStore returns a store that has reserved a connection.
func newStore(t *testing.T) (*rowstore.Store, *calls) {
	t.Helper()
	c := &calls{grant: func() {}}
	db := sql.OpenDB(connector{})
	s := rowstore.New(rowstore.Options{
		Pool:     &sqlconn.Pool{DB: db, Full: func() bool { return c.exhausted }},
		Classify: func(error) driver.Fault { return driver.Unclear },
		Engine: func(source sqlconn.Source) rowstore.Engine {
			if _, reserved := source.(*sqlconn.Reserved); reserved {
				return noteEngine{c, "reserved"}
			}
			return noteEngine{c, "pool"}
		},
		Close: db.Close,
	})
	acquire(t, s)
	return s, c
}

func acquire(t *testing.T, s *rowstore.Store) {
	t.Helper()
	if res, err := s.Acquire(t.Context(), []driver.AcquireRequest{{Name: "a", Acq: driver.ID{1}, TTL: time.Minute}}); err != nil || !res[0].Granted {
		t.Fatalf("Acquire = %+v, %v", res, err)
	}
}

func TestEachCallChoosesItsConnection(t *testing.T) {
	release := func(version int64) func(context.Context, *rowstore.Store) error {
		return func(ctx context.Context, s *rowstore.Store) error {
			_, err := s.Release(ctx, []driver.ReleaseRequest{{Name: "a", Acq: driver.ID{1}, Version: version}})
			return err
		}
	}
	renew := func(wait bool) func(context.Context, *rowstore.Store) error {
		return func(ctx context.Context, s *rowstore.Store) error {
			_, err := s.Renew(ctx, []driver.RenewRequest{{Name: "a", Acq: driver.ID{1}, Version: 1}}, wait)
			return err
		}
	}
	for what, c := range map[string]struct {
		call            func(context.Context, *rowstore.Store) error
		idle, exhausted string // where it runs
	}{
		"a release":                   {release(1), "reserved", "reserved"},
		"a release by acq":            {release(0), "pool", "pool"},
		"a renewal":                   {renew(false), "reserved", "reserved"},
		"a renewal of a locked row":   {renew(true), "pool", "reserved"},
		"a request of the sweep":      {func(ctx context.Context, s *rowstore.Store) error { return sweep(ctx, s) }, "pool", "pool"},
		"a reading of a page":         {func(ctx context.Context, s *rowstore.Store) error { return list(ctx, s) }, "pool", "reserved"},
		"a value":                     {func(ctx context.Context, s *rowstore.Store) error { return setValue(ctx, s) }, "pool", "reserved"},
		"what an operator wants back": {func(ctx context.Context, s *rowstore.Store) error { return revoke(ctx, s) }, "pool", "pool"},
	} {
		for _, exhausted := range []bool{false, true} {
			s, calls := newStore(t)
			calls.on, calls.exhausted = nil, exhausted
			want := c.idle
			if exhausted {
				want = c.exhausted
			}
			if err := c.call(t.Context(), s); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if slices.ContainsFunc(calls.on, func(on string) bool { return on != want }) || len(calls.on) == 0 {
				t.Errorf("%s ran on %v, want %s (the pool is exhausted: %v)", what, calls.on, want, exhausted)
			}
			_ = s.Close()
		}
	}
}

func sweep(ctx context.Context, s *rowstore.Store) error {
	_, err := s.Sweep(ctx, driver.SweepRequest{Every: time.Minute})
	return err
}

func list(ctx context.Context, s *rowstore.Store) error {
	_, err := s.Read(ctx, driver.ReadRequest{List: driver.ListRequest{Limit: 1}})
	return err
}

func setValue(ctx context.Context, s *rowstore.Store) error {
	_, err := s.SetValue(ctx, driver.SetValueRequest{Name: "a"})
	return err
}

func revoke(ctx context.Context, s *rowstore.Store) error {
	_, err := s.Revoke(ctx, []driver.RevokeRequest{{Name: "a"}})
	return err
}

// A renewal waits for the reserved connection for half of its time, and goes before all others
// that wait for it.
func TestARenewalGoesFirst(t *testing.T) {
	for _, exhausted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, calls := newStore(t)
			defer func() { _ = s.Close() }()
			calls.grant = func() { time.Sleep(3 * time.Second) }
			done := make(chan struct{})
			go func() {
				defer close(done)
				acquire(t, s)
			}()
			synctest.Wait()
			if exhausted {
				calls.exhausted = true
				go func() { _ = list(context.Background(), s) }()
				synctest.Wait()
			}
			calls.on = nil
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			began := time.Now()
			if _, err := s.Renew(ctx, []driver.RenewRequest{{Name: "a", Acq: driver.ID{1}, Version: 1}}, false); err != nil {
				t.Error(err)
			}
			want, after := "pool", 2*time.Second
			if exhausted {
				want, after = "reserved", 3*time.Second
			}
			if took := time.Since(began); took != after || calls.on[0] != want {
				t.Errorf("the renewal ran on %v after %v, want %s after %v", calls.on, took, want, after)
			}
			<-done
			time.Sleep(time.Second) // what waits goes on
		})
	}
}

func TestAStoreGivesTheReservedConnectionBackWhenItIsIdle(t *testing.T) {
	s, calls := newStore(t)
	defer func() { _ = s.Close() }()
	if !s.CloseIdle() {
		t.Error("the connection is in use")
	}
	calls.exhausted = true
	acquire(t, s) // reserves another one
	if last := calls.on[len(calls.on)-1]; last != "reserved" {
		t.Errorf("it ran on %s", last)
	}
}
