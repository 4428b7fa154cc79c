package queuetest

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// settleTests are about acquisitions of which a request may still be under way.
var settleTests = map[string]func(*testing.T, *suite, string){
	"a withdrawal that settles does not overlook a grant that is being committed": func(t *testing.T, s *suite, name string) {
		for _, beside := range []string{"", name + "-z"} {
			w := writer(name + "-held" + beside)
			// The grant takes the place of another, whose Locker has the id that w asks with.
			keeper := s.openFor(t, driver.Client{Instance: w.Acq, Label: "test"})
			enter(t, keeper, writer(w.Name))
			s.settles(t, w, beside, `UPDATE {lock} SET acq = locker WHERE name = '`+w.Name+`'`)
		}
	},

	"a withdrawal that settles does not overlook a new name": func(t *testing.T, s *suite, name string) {
		for _, beside := range []string{"", name + "-z"} {
			w := writer(name + "-new" + beside)
			from := w
			from.Name += "-from"
			s.take(t, from)
			s.settles(t, w, beside, `UPDATE {lock} SET name = '`+w.Name+`' WHERE name = '`+from.Name+`'`)
		}
	},

	"a withdrawal that settles makes no row": func(t *testing.T, s *suite, name string) {
		w := writer(name)
		s.leavesNoTrace(t, name, func() { s.withdraw(t, w, "", true) })
	},
}

// settles withdraws w while a transaction of one statement, which grants it the name, is being
// committed. Another name may be withdrawn beside it.
func (s *suite) settles(t *testing.T, w driver.AcquireRequest, beside, statement string) {
	t.Helper()
	tx, err := s.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), s.text(statement)); err != nil {
		t.Fatal(err)
	}
	s.soon(t, func() { s.withdraw(t, w, beside, false) })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.store.Release(ctx, withdrawal(w, beside, true)); err == nil {
		t.Error("it was settled while the grant could still be committed")
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	s.withdraw(t, w, beside, true)
	if r := s.look(t, w.Name); r.Held() {
		t.Errorf("the name was granted by what was withdrawn: %+v", r)
	}
}

// withdraw withdraws w until the database does not say that it is busy.
func (s *suite) withdraw(t *testing.T, w driver.AcquireRequest, beside string, settle bool) {
	t.Helper()
	s.retry(t, rand.New(rand.NewPCG(1, 1)), func(ctx context.Context) error {
		_, err := s.store.Release(ctx, withdrawal(w, beside, settle))
		return err
	})
}

func withdrawal(w driver.AcquireRequest, beside string, settle bool) []driver.ReleaseRequest {
	reqs := []driver.ReleaseRequest{{Name: w.Name, Acq: w.Acq, Settle: settle}}
	if beside != "" {
		reqs = append(reqs, driver.ReleaseRequest{Name: w.Name + beside, Acq: newID(), Settle: settle})
	}
	return reqs
}
