package register_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/sqllock/sqllock/faults/internal/register"
)

func open(t *testing.T) (*register.Registers, *sql.DB) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "r.db")+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	r := register.On(db, "sqlite")
	if err := r.Create(t.Context(), "n", "m"); err != nil {
		t.Fatal(err)
	}
	return r, db
}

func TestTheFencedRegisterAcceptsWritesWithTheLastAnnouncedToken(t *testing.T) {
	r, _ := open(t)
	ctx := t.Context()
	announce := func(token int64, want bool) {
		t.Helper()
		if ok, err := r.Announce(ctx, "n", token); ok != want || err != nil {
			t.Errorf("Announce(%d): %v, %v", token, ok, err)
		}
	}
	write := func(id string, token, n int64, want bool) {
		t.Helper()
		if ok, err := r.Write(ctx, id, "n", token, n); ok != want || err != nil {
			t.Errorf("Write(%s, %d, %d): %v, %v", id, token, n, ok, err)
		}
	}
	announce(5, true)
	announce(5, true)
	announce(4, false)
	write("a", 5, 1, true)
	announce(6, true)
	write("b", 5, 2, false)
	write("c", 6, 2, true)
	if n, err := r.Read(ctx, "n"); n != 2 || err != nil {
		t.Errorf("Read: %d, %v", n, err)
	}
	f, err := r.Final(ctx)
	if err != nil || len(f.Writes) != 2 || f.Writes[0].ID != "a" || f.Writes[1].ID != "c" {
		t.Errorf("Final: %+v, %v", f, err)
	}
	if f.N[register.Fenced]["n"] != 2 || f.N[register.Fenced]["m"] != 0 {
		t.Errorf("Final: %+v", f.N)
	}
}

func TestThePlainRegisterAcceptsEachWriteInOrderOfArrival(t *testing.T) {
	r, _ := open(t)
	for _, w := range []register.Written{{ID: "a", Token: 7}, {ID: "b", Token: 3}} {
		if err := r.Plain(t.Context(), w.ID, "n", w.Token); err != nil {
			t.Fatal(err)
		}
	}
	writes, err := r.Writes(t.Context())
	if err != nil || len(writes) != 2 || writes[0].Token != 7 || writes[1].Token != 3 || writes[1].N != 2 {
		t.Errorf("Writes: %+v, %v", writes, err)
	}
}

func TestTheGuardedRegisterWritesTheSuccessorOfTheValueItRead(t *testing.T) {
	r, db := open(t)
	add := func(ctx context.Context, id string) int64 {
		t.Helper()
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		between := 0
		n, err := r.Add(ctx, tx, id, "n", 1, func() { between++ })
		if err != nil || between != 1 {
			t.Fatalf("Add: %v, called %d times", err, between)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := add(t.Context(), "a"); n != 1 {
		t.Errorf("the first is %d", n)
	}
	if n := add(t.Context(), "b"); n != 2 {
		t.Errorf("the second is %d", n)
	}
}
