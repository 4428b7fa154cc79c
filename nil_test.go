package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

var nobody context.Context // nil

// releases are the methods that do their work with a nil context all the same, and tell
// of the mistake: to refuse would keep a name for ever.
var releases = map[string]bool{"Unlock": true, "Resign": true, "Close": true}

// TestNothingIsRefusedBeforeAnySQL calls every method with each argument in turn that
// may be nil but must not.
func TestNothingIsRefusedBeforeAnySQL(t *testing.T) {
	db := newFake()
	b := newBenchOn(t, fakeKeys{fake: db}, db, &sqllock.UniqueOptions{Reaper: &sqllock.ReaperOptions{Off: true}})
	checker, err := sqllock.NewSequencerChecker(b.Locker, nil)
	if err != nil {
		t.Fatal(err)
	}
	semaphore, err := b.Semaphore("semaphore", 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	tested := make(map[string]bool)
	for _, c := range []struct {
		what any
		make func() any
	}{
		{(*sqllock.Lease)(nil), func() any { return b.lock("lease") }},
		{(*sqllock.Leases)(nil), func() any {
			leases, err := b.LockAll(t.Context(), []string{"leases", "more"})
			if err != nil {
				t.Fatal(err)
			}
			return leases
		}},
		{(*sqllock.Election)(nil), func() any {
			e := b.candidate("election", nil)
			if err := e.Campaign(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			return e
		}},
		{(*sqllock.Run)(nil), func() any {
			var run *sqllock.Run
			_, err := b.Once(t.Context(), "once", "key", func(_ context.Context, r *sqllock.Run) error {
				run = r
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return run
		}},
		{semaphore, func() any { return semaphore }},
		{checker, func() any { return checker }},
		{b.Reaper(), func() any { return b.Reaper() }},
		{b.Locker, func() any { return b.Locker }}, // the last, because it is closed
	} {
		methods := reflect.TypeOf(c.what)
		tested[methods.Elem().Name()] = true
		for i := range methods.NumMethod() {
			m := methods.Method(i)
			for arg := 1; arg < m.Type.NumIn(); arg++ {
				if !mustBeGiven(m.Type.In(arg)) || m.Name == "Close" {
					continue
				}
				owner := c.make()
				sent := db.all()
				err := callWithout(t.Context(), m, owner, arg)
				if !errors.Is(err, sqllock.ErrInvalidOption) {
					t.Errorf("%v.%s without its %v: %v, want ErrInvalidOption", methods, m.Name, m.Type.In(arg), err)
				}
				if n := db.all() - sent; n != 0 && !releases[m.Name] {
					t.Errorf("%v.%s without its %v: %d statements were sent", methods, m.Name, m.Type.In(arg), n)
				}
				switch owner := owner.(type) {
				case *sqllock.Lease:
					if err := owner.Unlock(t.Context()); m.Name == "Unlock" != errors.Is(err, sqllock.ErrNotHeld) {
						t.Errorf("Unlock after Lease.%s: %v", m.Name, err)
					}
				case *sqllock.Leases:
					if err := owner.Unlock(t.Context()); m.Name == "Unlock" != errors.Is(err, sqllock.ErrNotHeld) {
						t.Errorf("Unlock after Leases.%s: %v", m.Name, err)
					}
				case *sqllock.Election:
					if err := owner.Resign(t.Context()); m.Name == "Resign" != errors.Is(err, sqllock.ErrNotLeader) {
						t.Errorf("Resign after Election.%s: %v", m.Name, err)
					}
				}
			}
		}
	}
	for _, name := range []string{"lease", "leases", "more", "election", "once", "semaphore"} {
		if db.held(name) {
			t.Errorf("%q is still held", name)
		}
	}
	for _, name := range typesWithContext(t) {
		if !tested[name] {
			t.Errorf("%s has a method that takes a context and is not tested here", name)
		}
	}
	if err := b.Close(nobody); !errors.Is(err, sqllock.ErrInvalidOption) {
		t.Errorf("Close: %v", err)
	}
	if _, err := b.TryLock(t.Context(), "a"); !errors.Is(err, sqllock.ErrClosed) {
		t.Errorf("TryLock after Close without a context: %v", err)
	}
}

// fakeKeys is a fake database in which names have permits, and each key can be completed.
type fakeKeys struct {
	*fake
	driver.OnceStore // for the methods that nobody calls here
	driver.PermitStore
}

func (fakeKeys) LookKey(context.Context, string, string, bool) (driver.KeyState, error) {
	return driver.KeyState{}, nil
}

func (fakeKeys) StartKey(context.Context, driver.KeyRequest) (driver.KeyState, error) {
	return driver.KeyState{Attempt: 1, Current: true}, nil
}

func (fakeKeys) CompleteKey(context.Context, driver.KeyRequest) (driver.KeyState, error) {
	return driver.KeyState{Complete: true}, nil
}

var (
	contextType = reflect.TypeFor[context.Context]()
	errorType   = reflect.TypeFor[error]()
	txType      = reflect.TypeFor[*sql.Tx]()
)

// mustBeGiven tells which arguments are needed. Values may be nil, and options.
func mustBeGiven(p reflect.Type) bool {
	list := p.Kind() == reflect.Slice && p.Elem().Kind() == reflect.Func // nil among options
	return p == contextType || p == txType || p.Kind() == reflect.Func || list
}

// callWithout calls a method with one argument nil and the others as they should be, and
// returns the error: the last result, what an iterator yields, or the cause of a context.
func callWithout(ctx context.Context, m reflect.Method, owner any, without int) error {
	in := []reflect.Value{reflect.ValueOf(owner)}
	for i := 1; i < m.Type.NumIn(); i++ {
		p := m.Type.In(i)
		v := reflect.Zero(p)
		switch {
		case m.Type.IsVariadic() && i == m.Type.NumIn()-1:
			if i == without {
				v = reflect.MakeSlice(p, 1, 1)
			}
		case i == without:
		case p == contextType:
			v = reflect.ValueOf(ctx)
		case p == txType:
			v = reflect.ValueOf(new(sql.Tx))
		case p == reflect.TypeFor[sqllock.Sequencer]():
			v = reflect.ValueOf(sqllock.Sequencer{Name: "a", Token: 1})
		case p.Kind() == reflect.String:
			v = reflect.ValueOf("a").Convert(p)
		case p.Kind() == reflect.Func:
			v = reflect.MakeFunc(p, func([]reflect.Value) (out []reflect.Value) {
				for i := range p.NumOut() {
					out = append(out, reflect.Zero(p.Out(i)))
				}
				return out
			})
		}
		in = append(in, v)
	}
	call := m.Func.Call
	if m.Type.IsVariadic() {
		call = m.Func.CallSlice
	}
	out := call(in)
	last := out[len(out)-1]
	switch {
	case last.Type() == errorType:
		err, _ := last.Interface().(error)
		return err
	case out[0].Type() == contextType:
		return context.Cause(out[0].Interface().(context.Context))
	case last.Kind() == reflect.Func:
		for _, err := range last.Seq2() {
			err, _ := err.Interface().(error)
			return err
		}
	}
	return nil
}

// TestNothingIsRefusedByFunctions is the same of functions, all that take a context.
func TestNothingIsRefusedByFunctions(t *testing.T) {
	unreachable := func(driverName, dsn string) *sql.DB {
		db, err := sql.Open(driverName, dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	pg := unreachable("pgx", "postgres://127.0.0.1:1/x")
	my := unreachable("mysql", "root@tcp(127.0.0.1:1)/x")
	lite := unreachable("sqlite", "file:/nowhere/at/all.db")
	ctx, tx := t.Context(), new(sql.Tx)
	b := newBench(t, newFake(), nil)
	defer b.close()
	lease := b.lock("a")
	defer b.unlock(lease)
	fn := func(context.Context, pgx.Tx) error { return nil }
	var conn *pgx.Conn
	ptx := pgxTx{}

	tested := make(map[string]bool)
	refused := func(function string, errs ...error) {
		t.Helper()
		tested[function] = true
		for i, err := range errs {
			if !errors.Is(err, sqllock.ErrInvalidOption) {
				t.Errorf("%s, case %d: %v, want ErrInvalidOption", function, i, err)
			}
		}
	}
	unique := func(ctx context.Context, db driver.UniqueDatabase) error {
		_, err := sqllock.NewUnique(ctx, db, nil)
		return err
	}
	refused("sqllock.NewUnique", unique(nobody, lockpg.DB(pg)), unique(nobody, lockmysql.DB(my)), unique(nobody, locksqlite.DB(lite)), unique(ctx, nil),
		unique(ctx, (*lockpg.Database)(nil)), unique(ctx, (*lockmysql.Database)(nil)), unique(ctx, (*locksqlite.Database)(nil)),
		unique(ctx, &lockpg.Database{}), unique(ctx, &lockmysql.Database{}), unique(ctx, &locksqlite.Database{}),
		unique(ctx, lockpg.DB(nil)), unique(ctx, lockpg.Pool(nil)), unique(ctx, lockmysql.DB(nil)), unique(ctx, locksqlite.DB(nil)),
		unique(ctx, lockpg.DB(pg, nil)), unique(ctx, lockmysql.DB(my, nil)), unique(ctx, locksqlite.DB(lite, nil)))
	node := lockpg.DB(pg, lockpg.TablePrefix("quorum_"))
	quorum := func(ctx context.Context, dbs ...driver.UniqueDatabase) error {
		_, err := sqllock.NewQuorum(ctx, dbs, nil)
		return err
	}
	refused("sqllock.NewQuorum", quorum(nobody, node, node), quorum(ctx), quorum(ctx, node, nil), quorum(ctx, nil, node),
		quorum(ctx, node, (*lockpg.Database)(nil)), quorum(ctx, node, (*lockmysql.Database)(nil)), quorum(ctx, node, lockpg.DB(nil)))
	forUpdate := func(ctx context.Context, db driver.ForUpdateDatabase) error {
		_, err := sqllock.NewForUpdate(ctx, db, nil)
		return err
	}
	refused("sqllock.NewForUpdate", forUpdate(nobody, lockpg.DB(pg)), forUpdate(ctx, nil),
		forUpdate(ctx, (*lockpg.Database)(nil)), forUpdate(ctx, (*lockmysql.Database)(nil)), forUpdate(ctx, lockmysql.DB(nil)))
	advisory := func(ctx context.Context, db driver.AdvisoryDatabase) error {
		_, err := sqllock.NewAdvisory(ctx, db, nil)
		return err
	}
	refused("sqllock.NewAdvisory", advisory(nobody, lockpg.DB(pg)), advisory(ctx, nil),
		advisory(ctx, (*lockpg.Database)(nil)), advisory(ctx, (*lockmysql.Database)(nil)), advisory(ctx, lockpg.DB(nil)))
	lock := func(ctx context.Context) error {
		_, err := b.Lock(ctx, "b")
		return err
	}
	refused("sqllock.WithOwner", lock(sqllock.WithOwner(nobody, "me")))
	refused("sqllock.WithoutOwner", lock(sqllock.WithoutOwner(nobody)))
	for name, migrate := range map[string]func(context.Context, driver.Migratable) error{
		"migrations.Up": migrations.Up, "migrations.Down": migrations.Down,
		"migrations.Status": func(ctx context.Context, db driver.Migratable) error {
			_, err := migrations.Status(ctx, db)
			return err
		},
	} {
		refused(name, migrate(nobody, lockpg.DB(pg)), migrate(ctx, nil), migrate(ctx, (*lockpg.Database)(nil)), migrate(ctx, (*lockmysql.Database)(nil)),
			migrate(ctx, (*locksqlite.Database)(nil)), migrate(ctx, lockmysql.DB(nil)))
	}
	_, err := migrations.FS(nil)
	refused("migrations.FS", err)
	refused("lockpg.Guard", lockpg.Guard(nobody, ptx, lease), lockpg.Guard(ctx, nil, lease), lockpg.Guard(ctx, ptx, nil))
	refused("lockpg.UnlockTx", lockpg.UnlockTx(nobody, ptx, lease), lockpg.UnlockTx(ctx, nil, lease), lockpg.UnlockTx(ctx, ptx, nil))
	refused("lockpg.UnlockInTx", lockpg.UnlockInTx(nobody, conn, lease, pgx.TxOptions{}, fn), lockpg.UnlockInTx(ctx, nil, lease, pgx.TxOptions{}, fn),
		lockpg.UnlockInTx(ctx, (*pgxpool.Pool)(nil), lease, pgx.TxOptions{}, fn), lockpg.UnlockInTx(ctx, conn, lease, pgx.TxOptions{}, fn),
		lockpg.UnlockInTx(ctx, new(pgx.Conn), nil, pgx.TxOptions{}, fn), lockpg.UnlockInTx(ctx, new(pgx.Conn), lease, pgx.TxOptions{}, nil))
	refused("lockpg.InTx", lockpg.InTx(nobody, conn, lease, pgx.TxOptions{}, fn), lockpg.InTx(ctx, nil, lease, pgx.TxOptions{}, fn),
		lockpg.InTx(ctx, (*pgxpool.Pool)(nil), lease, pgx.TxOptions{}, fn), lockpg.InTx(ctx, conn, lease, pgx.TxOptions{}, fn),
		lockpg.InTx(ctx, new(pgx.Conn), nil, pgx.TxOptions{}, fn), lockpg.InTx(ctx, new(pgx.Conn), lease, pgx.TxOptions{}, nil))
	for name, lock := range map[string]func(context.Context, pgx.Tx, driver.TxLocker, string) (int64, error){
		"lockpg.LockTx": lockpg.LockTx, "lockpg.TryLockTx": lockpg.TryLockTx, "lockpg.RLockTx": lockpg.RLockTx, "lockpg.TryRLockTx": lockpg.TryRLockTx,
	} {
		_, err1 := lock(nobody, ptx, b.Locker, "a")
		_, err2 := lock(ctx, nil, b.Locker, "a")
		_, err3 := lock(ctx, ptx, nil, "a")
		_, err4 := lock(ctx, ptx, (*sqllock.Locker)(nil), "a")
		refused(name, err1, err2, err3, err4)
	}
	refused("lockpg.Fence", lockpg.Fence(nobody, ptx, "a", 1), lockpg.Fence(ctx, nil, "a", 1), lockpg.Fence(ctx, ptx, "a", 1, nil))
	refused("lockpg.FenceSQL", lockpg.FenceSQL(nobody, tx, "a", 1), lockpg.FenceSQL(ctx, nil, "a", 1), lockpg.FenceSQL(ctx, tx, "a", 1, nil))
	refused("lockmysql.Fence", lockmysql.Fence(nobody, tx, "a", 1), lockmysql.Fence(ctx, nil, "a", 1), lockmysql.Fence(ctx, tx, "a", 1, nil))
	refused("locksqlite.Fence", locksqlite.Fence(nobody, tx, "a", 1), locksqlite.Fence(ctx, nil, "a", 1), locksqlite.Fence(ctx, tx, "a", 1, nil))

	for _, name := range functionsWithContext(t, ".", "lockpg", "lockmysql", "locksqlite", "migrations") {
		if !tested[name] {
			t.Errorf("%s takes a context and is not tested here", name)
		}
	}
}

// pgxTx is a transaction that nobody may use.
type pgxTx struct{ pgx.Tx }

// functionsWithContext returns the exported functions of packages whose first parameter is
// a context.
func functionsWithContext(t *testing.T, dirs ...string) (names []string) {
	t.Helper()
	for _, dir := range dirs {
		withContext(t, dir, func(pkg string, f *ast.FuncDecl) {
			if f.Recv == nil {
				names = append(names, pkg+"."+f.Name.Name)
			}
		})
	}
	if len(names) < 15 {
		t.Fatalf("only %d functions were found", len(names))
	}
	return names
}

// typesWithContext returns the exported types of the root package that have an exported method
// whose first parameter is a context.
func typesWithContext(t *testing.T) (names []string) {
	t.Helper()
	withContext(t, ".", func(_ string, f *ast.FuncDecl) {
		if f.Recv == nil {
			return
		}
		of := f.Recv.List[0].Type
		if pointer, ok := of.(*ast.StarExpr); ok {
			of = pointer.X
		}
		if id, ok := of.(*ast.Ident); ok && id.IsExported() && !slices.Contains(names, id.Name) {
			names = append(names, id.Name)
		}
	})
	if len(names) < 5 {
		t.Fatalf("only %d types were found", len(names))
	}
	return names
}

// withContext calls found for each exported function and method of a directory whose first
// parameter is a context.
func withContext(t *testing.T, dir string, found func(pkg string, f *ast.FuncDecl)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() || f.Type.Params.NumFields() == 0 {
				continue
			}
			first := f.Type.Params.List[0].Type
			if sel, ok := first.(*ast.SelectorExpr); ok && sel.Sel.Name == "Context" {
				found(parsed.Name.Name, f)
			}
		}
	}
}

func guardNothing(context.Context, driver.GuardStore, driver.GuardRequest) (driver.GuardStatus, error) {
	return 0, nil
}

func TestALeaseThatNoLockerMadeIsNotHeld(t *testing.T) {
	ctx := t.Context()
	for what, l := range map[string]*sqllock.Lease{"the zero lease": {}, "nil": nil} {
		for method, err := range map[string]error{
			"Unlock":       l.Unlock(ctx),
			"Guard":        l.Guard(ctx, new(sql.Tx)),
			"GuardBy":      l.GuardBy(ctx, guardNothing),
			"UnlockTx":     l.UnlockTx(ctx, new(sql.Tx)),
			"UnlockTxBy":   l.UnlockTxBy(ctx, guardNothing),
			"UnlockInTx":   l.UnlockInTx(ctx, nil, func(context.Context, *sql.Tx) error { return nil }),
			"UnlockInTxBy": l.UnlockInTxBy(ctx, guardNothing, func(context.Context) error { return nil }),
			"InTx":         l.InTx(ctx, nil, func(context.Context, *sql.Tx) error { return nil }),
			"Context":      context.Cause(l.Context()),
			"Detach":       func() error { _, err := l.Detach(ctx); return err }(),
		} {
			if !errors.Is(err, sqllock.ErrNotHeld) {
				t.Errorf("%s of %s: %v, want ErrNotHeld", method, what, err)
			}
		}
		bound, cancel := l.Bind(ctx)
		if err := context.Cause(bound); !errors.Is(err, sqllock.ErrNotHeld) {
			t.Errorf("Bind of %s: %v", what, err)
		}
		cancel()
		if l.Name() != "" || l.Token() != 0 || l.Owner() != "" || l.Shared() || l.Remaining() != 0 || l.Sequencer() != (sqllock.Sequencer{}) {
			t.Errorf("%s is not empty: %v", what, l.Sequencer())
		}
	}
}

func TestLeasesThatNoLockerMadeAreNotHeld(t *testing.T) {
	ctx := t.Context()
	for what, l := range map[string]*sqllock.Leases{"the zero leases": {}, "nil": nil} {
		for method, err := range map[string]error{
			"Unlock":  l.Unlock(ctx),
			"Guard":   l.Guard(ctx, new(sql.Tx)),
			"GuardBy": l.GuardBy(ctx, guardNothing),
			"InTx":    l.InTx(ctx, nil, func(context.Context, *sql.Tx) error { return nil }),
			"Context": context.Cause(l.Context()),
		} {
			if !errors.Is(err, sqllock.ErrNotHeld) {
				t.Errorf("%s of %s: %v, want ErrNotHeld", method, what, err)
			}
		}
		bound, cancel := l.Bind(ctx)
		if err := context.Cause(bound); !errors.Is(err, sqllock.ErrNotHeld) {
			t.Errorf("Bind of %s: %v", what, err)
		}
		cancel()
		if len(l.Names()) != 0 || l.Token("a") != 0 || l.Remaining() != 0 {
			t.Errorf("%s are not empty", what)
		}
	}
}
