package conformance

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/sqllock/sqllock"
)

var openPromises = []promise{
	{sentence: "a nil handle is refused", test: testNilHandle},
	{sentence: "a closed handle is refused", test: testClosedHandle},
	{sentence: "missing tables are refused, and the error names the migration", test: testMissingTables},
	{sentence: "tables of a newer library are refused", test: testNewerTables},
	{sentence: "tables of an older library are refused, and the error names the migration", test: testOlderTables},
	{sentence: "a database that cannot be written is refused", test: testReadOnly, needs: needReadOnly},
	{sentence: "a constructor stops when its context ends", test: testConstructorContext},
	{sentence: "tables that vanish while a Locker works make errors and no grant", test: testTablesVanish},
}

// wantNoLocker checks that a constructor fails with target.
func (e *env) wantNoLocker(db *sql.DB, target error) error {
	e.Helper()
	l, err := e.h.New(e.ctx(), db, &Options{TTL: long})
	if l != nil || !errors.Is(err, target) {
		e.Fatalf("want %v and no Locker, got %v, %v", target, l, err)
	}
	return err
}

func testNilHandle(e *env) { e.wantNoLocker(nil, sqllock.ErrInvalidOption) }

func testClosedHandle(e *env) {
	db, _ := e.open(e.source(), poolSize)
	_ = db.Close()
	e.wantNoLocker(db, sqllock.ErrInvalidOption)
}

// damaged returns a handle on tables that were changed.
func (e *env) damaged(change func(context.Context, *sql.DB) error) *sql.DB {
	e.Helper()
	e.fresh()
	if err := change(e.ctx(), e.handle()); err != nil {
		e.Fatalf("to change the tables: %v", err)
	}
	return e.handle()
}

func (e *env) wantMigrationNamed(err error) {
	e.Helper()
	if !strings.Contains(err.Error(), "migrate up") {
		e.Errorf("the error does not name the command: %v", err)
	}
}

func testMissingTables(e *env) {
	e.wantMigrationNamed(e.wantNoLocker(e.damaged(e.tables().DropTables), sqllock.ErrSchema))
}

func testNewerTables(e *env) {
	e.wantNoLocker(e.damaged(e.tables().NewerSchema), sqllock.ErrSchema)
}

func testOlderTables(e *env) {
	e.wantMigrationNamed(e.wantNoLocker(e.damaged(e.tables().OlderSchema), sqllock.ErrSchema))
}

func testReadOnly(e *env) {
	e.fresh()
	db, _ := e.open(e.h.ReadOnly(e.source()), poolSize)
	e.wantNoLocker(db, sqllock.ErrUnsupported)
}

func testConstructorContext(e *env) {
	db, _ := e.open(e.source(), poolSize)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	l, err := e.h.New(ctx, db, &Options{TTL: long})
	if l != nil || !errors.Is(err, context.Canceled) {
		e.Errorf("want Canceled and no Locker, got %v, %v", l, err)
	}
	// What the context bounds is the constructor, not the Locker.
	ctx, cancel = context.WithCancel(context.Background())
	l, err = e.h.New(ctx, db, &Options{TTL: long})
	if err != nil {
		e.Fatal(err)
	}
	cancel()
	e.unlock(e.lock(l, e.name("k")))
	if err := l.Close(e.ctx()); err != nil {
		e.Errorf("Close: %v", err)
	}
	if n := db.Stats().InUse; n != 0 {
		e.Errorf("%d connections are in use", n)
	}
}

func testTablesVanish(e *env) {
	e.fresh()
	l := e.locker(&Options{TTL: long})
	e.unlock(e.lock(l, e.name("k")))
	if err := e.tables().DropTables(e.ctx(), e.handle()); err != nil {
		e.Fatal(err)
	}
	for call, f := range calls {
		if err := f(e.ctx(), l, e.name("k")); err == nil || errors.Is(err, sqllock.ErrHeld) || errors.Is(err, context.DeadlineExceeded) {
			e.Errorf("%s: want the database's error, got %v", call, err)
		}
	}
}
