// Package k8slock elects leaders with the leader election of Kubernetes, in a database. A [Lock]
// is a resourcelock.Interface of client-go on a record in a table of package sqllock. Package
// leaderelection of client-go and the managers of controller-runtime take it, and need no API
// server for it.
//
// Each term of a leader has a fencing token. [Lock.Guard] refuses the writes of a former leader.
package k8slock

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/sqllock/sqllock/driver"
)

// Database is a database that keeps records: what the packages lockpg, lockmysql and locksqlite
// of sqllock return.
type Database interface {
	driver.UniqueDatabase
	driver.Migratable
}

// DefaultTimeout is [Options.Timeout] if that is 0.
const DefaultTimeout = 5 * time.Second

// Options are options of [New].
type Options struct {
	// Timeout bounds each call of Get, Create and Update, so that a call without an answer does
	// not keep a candidate from trying again. The default is [DefaultTimeout]. It should be less
	// than the RenewDeadline of the election, which bounds renewals, too.
	Timeout time.Duration

	// Logger gets the events that client-go reports, such as "became leader" and "stopped
	// leading", at level info. By default they are dropped: client-go logs them itself.
	Logger *slog.Logger
}

// Lock is a candidate for one election. It is made by [New]. Its methods may be called at the
// same time, but each candidate needs a Lock of its own.
type Lock struct {
	table    *table
	name     string
	identity string
	timeout  time.Duration
	logger   *slog.Logger

	mu      sync.Mutex // not held during SQL: Token waits for nothing
	seen    seen
	highest int64     // of all versions that were seen, also of records that were deleted
	until   time.Time // until then the leader that was seen last may believe that it leads
	token   int64     // of the last term of this Lock
}

var _ resourcelock.Interface = (*Lock)(nil)

// seen is what a Lock has seen of the record last. The zero seen is that of a Lock that has seen
// none.
type seen struct {
	version, token int64
	holder         string
}

// New returns a candidate for the election with this name. The name is that of the record. It is
// no name of a lock: both can have the same one. The identity is what the record says while this
// candidate leads. No other candidate may have it, and neither may an earlier process: add
// something random to the name of the host.
//
// New checks that the database can keep what the election promises, as sqllock.NewUnique does.
// The tables must exist: call migrations.Up before. New returns [driver.ErrInvalidName] if the
// name or the identity is no valid name, [driver.ErrInvalidOption] if db is nil or an option is
// bad, [driver.ErrSchema] and [driver.ErrUnsupported]; else the error of the database. opts may
// be nil. A Lock need not be closed.
func New(ctx context.Context, db Database, name, identity string, opts *Options) (*Lock, error) {
	if opts == nil {
		opts = &Options{}
	}
	l := &Lock{name: name, identity: identity, timeout: opts.Timeout, logger: opts.Logger}
	if l.timeout == 0 {
		l.timeout = DefaultTimeout
	}
	err := l.open(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("k8slock: %w", err)
	}
	return l, nil
}

// open checks what New was given.
func (l *Lock) open(ctx context.Context, db Database) (err error) {
	if err := driver.CheckContext(ctx); err != nil {
		return err
	}
	if err := driver.CheckName(l.name); err != nil {
		return err
	}
	if err := driver.CheckName(l.identity); err != nil {
		return fmt.Errorf("the identity: %w", err)
	}
	switch {
	case db == nil:
		return driver.NilError("Database")
	case l.timeout < 0:
		return fmt.Errorf("%w: Timeout is %v, which is negative", driver.ErrInvalidOption, l.timeout)
	}
	if l.table, err = newTable(db); err != nil {
		return err
	}
	store, err := db.OpenUnique(ctx, driver.Client{Label: l.identity})
	if err != nil {
		return err
	}
	return store.Close()
}

// Get implements resourcelock.Interface. It returns the record, and bytes that differ after each
// Update. The error satisfies apierrors.IsNotFound if there is no record.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	var r row
	err := l.do(ctx, func(ctx context.Context) (err error) {
		r, err = l.table.get(ctx, l.name)
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		l.sawNone()
		return nil, nil, apierrors.NewNotFound(records, l.name)
	}
	if err != nil {
		return nil, nil, l.wrap("get", err)
	}
	record := &resourcelock.LeaderElectionRecord{}
	if err := json.Unmarshal(r.record, record); err != nil {
		return nil, nil, l.wrap("get", err)
	}
	l.saw(seen{version: r.version, token: r.token, holder: record.HolderIdentity}, record)
	// The times of a record are whole seconds. With the version no renewal goes unseen.
	return record, fmt.Appendf(r.record, " %d", r.version), nil
}

// Create implements resourcelock.Interface. The error satisfies apierrors.IsAlreadyExists if
// there is a record.
//
// If this Lock has seen a record with a leader, and somebody has deleted that, Create waits for
// the end of that leader's lease: until then the error satisfies apierrors.IsConflict. So the
// former leader notices that it does not lead any more, before another one leads, or itself with
// another token.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if left := l.leftOfLease(); left > 0 {
		return l.conflict(fmt.Sprintf("it was deleted, and its leader may believe for %v that it leads", left))
	}
	var now seen
	created := false
	err := l.do(ctx, func(ctx context.Context) (err error) {
		var r row
		if now, r, err = l.next(ctx, seen{}, &record); err == nil {
			created, err = l.table.create(ctx, l.name, r)
		}
		return err
	})
	switch {
	case err != nil:
		return l.wrap("create", err)
	case !created:
		return apierrors.NewAlreadyExists(records, l.name)
	}
	l.wrote(now, &record)
	return nil
}

// Update implements resourcelock.Interface. It changes the record if nobody else has changed it
// since the last Get, Create or Update of this Lock. Otherwise the error satisfies
// apierrors.IsConflict, and the record is as it was. That is also the error where the database
// asks to try again. It satisfies apierrors.IsNotFound if the record was deleted.
//
// An Update that makes somebody else the leader, or nobody, waits for transactions that guard the
// term of the leader, see [Lock.Guard].
//
// An Update without a holder gives up the term of this Lock. If the record has another holder, it
// is a conflict: client-go v0.35 releases a record without a look at whose it is.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	last := l.lastSeen()
	switch {
	case last.version == 0:
		return l.wrap("update", errors.New("call Get or Create first"))
	case record.HolderIdentity == "" && last.holder != l.identity:
		return l.conflict(fmt.Sprintf("%q does not lead", l.identity))
	}
	var now seen
	updated := false
	err := l.do(ctx, func(ctx context.Context) (err error) {
		var r row
		if now, r, err = l.next(ctx, last, &record); err != nil {
			return err
		}
		if updated, err = l.table.update(ctx, l.name, last.version, r); err == nil && !updated {
			_, err = l.table.get(ctx, l.name)
		}
		return err
	})
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return apierrors.NewNotFound(records, l.name)
	case err != nil && l.table.db.Classify(err) == driver.Again:
		return l.conflict(err.Error())
	case err != nil:
		return l.wrap("update", err)
	case !updated:
		return l.conflict("somebody else has changed it")
	}
	l.wrote(now, &record)
	return nil
}

// RecordEvent implements resourcelock.Interface. See [Options.Logger].
func (l *Lock) RecordEvent(event string) {
	if l.logger != nil {
		l.logger.Info("k8slock: "+event, "name", l.name, "identity", l.identity, "token", l.Token())
	}
}

// Identity implements resourcelock.Interface.
func (l *Lock) Identity() string { return l.identity }

// Describe implements resourcelock.Interface. It returns the name of the record.
func (l *Lock) Describe() string { return l.name }

// Token returns the fencing token of the last term of this Lock, or 0 if it has never led. Call
// it when leading starts. The token is positive. Each new leader has a higher one; renewals do
// not change it. The same Lock gets its token again if it leads again, and nobody has led or
// released the record in between. Token runs no SQL.
//
// A token is the clock of the database when the term begins, or one more than the highest version
// of the record that this Lock has seen, if that is higher. So tokens also rise if the record is
// deleted, unless the clock of the database was set back, or a Create was under way from before the
// term that ended so, and the next leader has not seen the record.
//
// For writes in the database of the record, see [Lock.Guard]. For others, give the token to the
// Fence of lockpg, lockmysql or locksqlite, or compare it yourself.
func (l *Lock) Token() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}

// Guard makes sure, inside a transaction of the application on the database of the record, that
// the term with the token is the current one until the transaction ends. When Guard has returned
// nil, nobody else can become the leader before tx is committed or rolled back. So what the
// transaction writes is written by the leader, even if the process was paused and another one has
// noticed that. Guard is one statement in tx, two on MySQL and MariaDB.
//
// Renewals go on. On SQLite, which has one writer, they wait: keep the transaction shorter than
// the RenewDeadline. Call Guard first, outside of a savepoint.
//
// Guard returns [driver.ErrFenced] if the term is over, [driver.ErrInvalidOption] if tx is nil or
// the token is not positive, [driver.ErrUnsupported] on a node of a Galera cluster, where you can
// use the Fence of lockmysql, and else the error of the database. After any error you must roll
// back the transaction.
func (l *Lock) Guard(ctx context.Context, tx *sql.Tx, token int64) error {
	if err := driver.CheckContext(ctx); err != nil {
		return err
	}
	switch {
	case tx == nil:
		return driver.NilError("*sql.Tx")
	case token <= 0:
		return fmt.Errorf("%w: token %d is not positive: take it from Token while you lead", driver.ErrInvalidOption, token)
	}
	err := l.table.guard(ctx, tx, l.name, token)
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("%w: k8slock: %q has another leader than that with token %d, or none", driver.ErrFenced, l.name, token)
	}
	if err != nil {
		return l.wrap("guard", err)
	}
	return nil
}

// next returns what follows the record that was seen, as this Lock and as the table know it. A
// token is the version with which a term began: it changes unless this Lock goes on to lead. That
// version is the clock of the database at least, so that tokens rise even if a record is deleted
// and another process, whose own clock can be behind, creates it anew.
func (l *Lock) next(ctx context.Context, last seen, record *resourcelock.LeaderElectionRecord) (seen, row, error) {
	text, err := json.Marshal(record)
	if err != nil {
		return seen{}, row{}, err
	}
	highest, token := l.known()
	now := seen{version: highest + 1, token: last.token, holder: record.HolderIdentity}
	if now.holder != l.identity || last.token != token || last.token <= 0 {
		clock, err := l.table.clock(ctx)
		if err != nil {
			return seen{}, row{}, err
		}
		now.version = max(now.version, clock)
		now.token = now.version
	}
	return now, row{text, now.version, now.token}, nil
}

// known returns the highest version that was seen, and the token of the last term of this Lock.
func (l *Lock) known() (highest, token int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.highest, l.token
}

func (l *Lock) lastSeen() seen {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen
}

// sawNone notes that there is no record. What was seen of an earlier one still counts.
func (l *Lock) sawNone() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = seen{}
}

func (l *Lock) saw(s seen, record *resourcelock.LeaderElectionRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note(s, record)
}

// wrote is saw of what this Lock has written.
func (l *Lock) wrote(s seen, record *resourcelock.LeaderElectionRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note(s, record)
	if s.holder == l.identity {
		l.token = s.token
	}
}

// note remembers what the record says, and since when. Caller holds mu.
func (l *Lock) note(s seen, record *resourcelock.LeaderElectionRecord) {
	switch lasts := time.Duration(record.LeaseDurationSeconds+1) * time.Second; { // it is rounded down
	case s.holder == "":
		l.until = time.Time{}
	case s.version != l.seen.version:
		l.until = time.Now().Add(lasts)
	}
	l.seen, l.highest = s, max(l.highest, s.version)
}

// leftOfLease is how long the leader that was seen last may believe that it leads.
func (l *Lock) leftOfLease() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Until(l.until)
}

// do runs fn within the timeout.
func (l *Lock) do(ctx context.Context, fn func(ctx context.Context) error) error {
	if err := driver.CheckContext(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	return fn(ctx)
}

// records is how errors of package apierrors name the table.
var records = schema.GroupResource{Group: "sqllock", Resource: "records"}

func (l *Lock) conflict(why string) error {
	return apierrors.NewConflict(records, l.name, errors.New(why))
}

func (l *Lock) wrap(what string, err error) error {
	return fmt.Errorf("k8slock: %s %q: %w", what, l.name, err)
}
