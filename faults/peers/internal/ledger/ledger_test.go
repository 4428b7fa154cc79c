package ledger_test

import (
	"path/filepath"
	"testing"

	"github.com/sqllock/sqllock/faults/peers/internal/ledger"
)

func TestTheFencedRegisterRefusesTokensBelowTheLastOne(t *testing.T) {
	r := ledger.New()
	c := dial(t, r)
	for _, step := range []struct {
		announce bool
		token    int64
		want     bool
	}{
		{true, 5, true}, {false, 5, true}, {true, 7, true}, {false, 5, false}, {true, 6, false}, {false, 7, true}, {true, 7, true},
	} {
		var ok bool
		var err error
		if step.announce {
			ok, err = c.Announce("a", step.token)
		} else {
			ok, err = c.Write(ledger.Write{Register: ledger.Fenced, Name: "a", Token: step.token, N: step.token})
		}
		if err != nil || ok != step.want {
			t.Errorf("%+v: %v, %v", step, ok, err)
		}
	}
	if n := r.Refused(); n != 2 {
		t.Errorf("%d were refused, want 2", n)
	}
	if n, err := c.Read(ledger.Fenced, "a"); err != nil || n != 7 {
		t.Errorf("the register says %d, %v", n, err)
	}
	if n, err := c.Read(ledger.Fenced, "b"); err != nil || n != 0 {
		t.Errorf("the register of another name says %d, %v", n, err)
	}
}

func TestEachWriteIsRecordedWithTheValueBeforeIt(t *testing.T) {
	r := ledger.New()
	c := dial(t, r)
	for _, n := range []int64{1, 1, 2} {
		w := ledger.Write{Register: ledger.Plain, Name: "a", N: n, Term: ledger.Term{ID: "x", Called: 3, Granted: 4}}
		if ok, err := c.Write(w); err != nil || !ok {
			t.Fatalf("write: %v, %v", ok, err)
		}
	}
	for i, w := range r.Writes() {
		if want := int64(i); i < 2 && w.Before != want || i == 2 && w.Before != 1 || w.Term.Granted != 4 {
			t.Errorf("write %d: %+v", i, w)
		}
	}
	if n := len(r.Writes()); n != 3 {
		t.Errorf("%d writes", n)
	}
}

func dial(t *testing.T, r *ledger.Registers) *ledger.Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ledger")
	s, err := ledger.Serve(path, r)
	if err != nil {
		t.Fatal(err)
	}
	c, err := ledger.Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}
