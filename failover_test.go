package sqllock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/migrations"
)

// What follows is what the operations guide shows.

// primary connects to the first of its hosts that takes writes.
type primary []driver.Connector

func (hosts primary) Driver() driver.Driver { return hosts[0].Driver() }

func (hosts primary) Connect(ctx context.Context) (driver.Conn, error) {
	var errs []error
	for _, host := range hosts {
		conn, err := connectTo(ctx, host)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// connectTo gives a host a second: one that is frozen accepts connections and then is silent.
func connectTo(ctx context.Context, host driver.Connector) (driver.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := host.Connect(ctx)
	if err != nil {
		return nil, err
	}
	const takesWrites = "SELECT 1 FROM dual WHERE @@global.read_only = 0"
	rows, err := conn.(driver.QueryerContext).QueryContext(ctx, takesWrites, nil)
	if err == nil {
		err = rows.Next(make([]driver.Value, 1)) // io.EOF: it is read-only
		_ = rows.Close()
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("the host takes no writes: %w", err)
	}
	return conn, nil
}

// openPrimary returns a handle of the database that dsn means, on several hosts.
func openPrimary(dsn string, addrs ...string) (*sql.DB, error) {
	var hosts primary
	for _, addr := range addrs {
		cfg, err := mysql.ParseDSN(dsn)
		if err != nil {
			return nil, err
		}
		cfg.Net, cfg.Addr = "tcp", addr
		host, err := mysql.NewConnector(cfg)
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, host)
	}
	return sql.OpenDB(hosts), nil
}

// The rest is no part of it.

func TestTheGoOfTheOperationsGuideIsTested(t *testing.T) {
	source := readDoc(t, "failover_test.go")
	for _, b := range docBlocks(t, operations, "go") {
		if !strings.Contains(source, b.text) {
			t.Errorf("this is not in failover_test.go:\n%s", b.text)
		}
	}
}

// outageFor returns the outage that a test is for, and the TTL with which no lease is lost in it: one
// and a half times the outage, and 5 s. On a machine that is slow a promotion takes longer, too.
func outageFor(setUp time.Duration) (longest, ttl time.Duration) {
	longest = setUp + 3*time.Second
	return longest, longest*3/2 + 5*time.Second
}

const failOverWait = 2 * time.Minute

// mariadbPair is a primary with a replica that commits wait for, and Lockers that know both.
type mariadbPair struct {
	primary, replica *testdb.Server
	longest, ttl     time.Duration // see outageFor

	lockers []*sqllock.Locker
	leases  []*sqllock.Lease
	losses  atomic.Int64
}

func (p *mariadbPair) open(t *testing.T) *sql.DB {
	t.Helper()
	db, err := openPrimary(p.primary.DSN(), p.primary.Addr(), p.replica.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// startPair has 60 leases held while the application makes calls on the same pools. Three Lockers
// renew at different times, so that one of them is about to when the primary goes.
func startPair(t *testing.T) *mariadbPair {
	t.Helper()
	const lockers, leases, calls = 3, 20, 5
	p := &mariadbPair{primary: testdb.StartServer(t, testdb.MariaDB)}
	began := time.Now()
	p.replica = p.primary.Standby()
	p.longest, p.ttl = outageFor(time.Since(began))
	if err := migrations.Up(t.Context(), lockmysql.DB(p.open(t))); err != nil {
		t.Fatal(err)
	}
	mustExec(t, p.open(t), `CREATE TABLE work (name varchar(50) PRIMARY KEY, token bigint)`)
	began = time.Now()
	for i := range lockers {
		time.Sleep(time.Until(began.Add(time.Duration(i) * p.ttl / 3 / lockers)))
		db := p.open(t)
		for range calls {
			keepCalling(t, db, `SELECT sleep(600)`)
		}
		l := newLocks(t, lockmysql.DB(db), sqllock.UniqueOptions{
			TTL: p.ttl, Hooks: &sqllock.Hooks{Lost: func(e sqllock.LostEvent) { p.losses.Add(1) }},
		})
		p.lockers = append(p.lockers, l)
		for k := range leases {
			p.leases = append(p.leases, lockSoon(t, l, fmt.Sprintf("held/%d/%d", i, k)))
		}
	}
	return p
}

// keepCalling makes calls on a handle until the test has ended.
func keepCalling(t *testing.T, db *sql.DB, query string) {
	ctx, cancel := context.WithCancel(context.Background())
	var calls sync.WaitGroup
	calls.Go(func() {
		for ctx.Err() == nil {
			if _, err := db.ExecContext(ctx, query); err != nil {
				time.Sleep(10 * time.Millisecond)
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		calls.Wait()
	})
}

func lockSoon(t *testing.T, l *sqllock.Locker, name string, opts ...sqllock.LockOption) *sqllock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), failOverWait)
	defer cancel()
	lease, err := l.Lock(ctx, name, opts...)
	if err != nil {
		t.Fatalf("Lock of %q: %v", name, err)
	}
	return lease
}

// renewed waits until the replica has seen a renewal of each lease, and checks that none is lost.
func (p *mariadbPair) renewed(t *testing.T, db *sql.DB) {
	t.Helper()
	from := time.Now().Add(p.ttl).UnixMicro() // the databases have this machine's clock
	for end := time.Now().Add(failOverWait); ; time.Sleep(20 * time.Millisecond) {
		renewed := firstColumn(t, db, fmt.Sprintf(`SELECT name FROM sqllock_lock WHERE name LIKE 'held/%%' AND expires_at > %d`, from))
		switch {
		case p.losses.Load() > 0:
			for _, lease := range p.leases {
				if err := context.Cause(lease.Context()); err != nil {
					t.Error(err)
				}
			}
			t.FailNow()
		case len(renewed) == len(p.leases):
			return
		case time.Now().After(end):
			t.Fatalf("%d leases of %d are renewed", len(renewed), len(p.leases))
		}
	}
}

func TestAFailOverOfMariaDBThatLosesNothingCostsNoLease(t *testing.T) {
	t.Parallel()
	if !slices.Contains(testdb.Startable(), testdb.MariaDB) {
		return // which Startable has noted
	}
	for how, end := range map[string]func(*testdb.Server){"killed": (*testdb.Server).Kill, "frozen": (*testdb.Server).Pause} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p := startPair(t)
			holder := lockSoon(t, p.lockers[0], "queue")
			served := make(chan *sqllock.Lease, 1)
			go func() {
				lease, _ := p.lockers[1].Lock(t.Context(), "queue")
				served <- lease
			}()
			hung := p.hang(t)

			began := time.Now()
			end(p.primary)
			time.Sleep(time.Second)
			p.replica.Promote()
			if outage := time.Since(began); outage > p.longest {
				t.Fatalf("the outage was %v, and the test is for %v", outage, p.longest)
			}
			there := p.replica.Open(t)
			p.renewed(t, there)
			if err := holder.Unlock(t.Context()); err != nil {
				t.Errorf("Unlock: %v", err)
			}
			select {
			case next := <-served:
				if next == nil || next.Token() <= holder.Token() {
					t.Errorf("the waiter has %+v, after token %d", next, holder.Token())
				}
			case <-time.After(failOverWait):
				t.Error("the waiter is not served")
			}
			p.writes(t, p.leases[0], there)
			if how == "frozen" {
				hung(there)
				p.primary.Resume()
				grantsNothing(t, lockmysql.DB(p.primary.Open(t)))
				p.renewed(t, there)
			}
		})
	}
}

// writes checks that a lease from before the fail-over guards a write on the new primary.
func (p *mariadbPair) writes(t *testing.T, lease *sqllock.Lease, there *sql.DB) {
	t.Helper()
	var err error
	for end := time.Now().Add(failOverWait); time.Now().Before(end); {
		if err = lease.InTx(t.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO work VALUES (?, ?)`, lease.Name(), lease.Token())
			return err
		}); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatalf("InTx: %v", err)
	}
	if got := firstColumn(t, there, `SELECT token FROM work`); !slices.Equal(got, []string{fmt.Sprint(lease.Token())}) {
		t.Errorf("%q was written, want %d", got, lease.Token())
	}
}

// hang begins a guarded transaction that waits for an answer when the primary is frozen. The
// function that it returns checks that its term ends with MaxHold, and that it has written nothing.
func (p *mariadbPair) hang(t *testing.T) (ended func(there *sql.DB)) {
	t.Helper()
	lease := lockSoon(t, newLocks(t, lockmysql.DB(p.open(t)), sqllock.UniqueOptions{TTL: p.ttl}), "hung", sqllock.MaxHold(p.longest+5*time.Second))
	wrote, result := make(chan struct{}), make(chan error, 1)
	go func() {
		result <- lease.InTx(context.Background(), nil, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, `INSERT INTO work VALUES ('hung', 1)`); err != nil {
				return err
			}
			close(wrote)
			_, err := tx.ExecContext(ctx, `SELECT sleep(600)`)
			return err
		})
	}()
	select {
	case <-wrote:
	case err := <-result:
		t.Fatalf("InTx before the primary is frozen: %v", err)
	}
	return func(there *sql.DB) {
		t.Helper()
		next := lockSoon(t, p.lockers[1], "hung")
		if next.Token() <= lease.Token() {
			t.Errorf("token %d after %d", next.Token(), lease.Token())
		}
		select {
		case err := <-result:
			wantMaxHold(t, err)
		case <-time.After(failOverWait):
			t.Error("InTx does not return")
		}
		if got := firstColumn(t, there, `SELECT name FROM work WHERE name = 'hung'`); len(got) > 0 {
			t.Error("the transaction that hung was committed")
		}
	}
}

func wantMaxHold(t *testing.T, err error) {
	t.Helper()
	var lost *sqllock.LostError
	if !errors.As(err, &lost) || lost.Reason != sqllock.LostMaxHold {
		t.Errorf("want the loss by MaxHold, got %v", err)
	}
}

// grantsNothing checks that a former primary, which has no standby any more, acknowledges no commit.
func grantsNothing(t *testing.T, former database) {
	t.Helper()
	l := newLocks(t, former, sqllock.UniqueOptions{TTL: 3 * time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if lease, err := l.Lock(ctx, "split"); err == nil {
		t.Errorf("the former primary has granted %q with token %d", lease.Name(), lease.Token())
	}
}

// A function of InTx that does not look at its context cannot keep the name, and cannot write.
func TestATransactionThatHangsLosesItsTermAtMaxHold(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, e *engine, d *testdb.Database) {
		t.Parallel()
		db := d.Open(t)
		mustExec(t, db, `CREATE TABLE work (name VARCHAR(50) PRIMARY KEY, state VARCHAR(20))`)
		mustExec(t, db, `INSERT INTO work VALUES ('a', 'new')`)
		write := func(tx *sql.Tx, state string) error {
			_, err := tx.ExecContext(context.Background(), `UPDATE work SET state = '`+state+`'`)
			return err
		}
		lease := mustTry(t, newLocks(t, e.open(db), sqllock.UniqueOptions{TTL: time.Minute}), "k", sqllock.MaxHold(time.Second))
		wrote, goOn, result := make(chan error), make(chan struct{}), make(chan error, 1)
		var late error
		go func() {
			result <- lease.InTx(context.Background(), nil, func(_ context.Context, tx *sql.Tx) error {
				wrote <- write(tx, "early")
				<-goOn
				late = write(tx, "late")
				return nil
			})
		}()
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
		next := lockSoon(t, newLocks(t, e.open(db), sqllock.UniqueOptions{TTL: time.Minute}), "k")
		if next.Token() <= lease.Token() {
			t.Errorf("token %d after %d", next.Token(), lease.Token())
		}
		wantMaxHold(t, context.Cause(lease.Context()))
		close(goOn)
		wantMaxHold(t, <-result)
		if late == nil {
			t.Error("the transaction writes after its term")
		}
		if got := firstColumn(t, db, `SELECT state FROM work`); !slices.Equal(got, []string{"new"}) {
			t.Errorf("the state is %q", got)
		}
	})
}
