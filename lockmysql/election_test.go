package lockmysql_test

import (
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// A row that somebody has locked says nothing of the term.
func TestAResumptionAndAProclamationOfALockedRowAreToBeTriedAgain(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, _ := f.store(t)
		req := request("k")
		version := take(t, s, req)[0].Version
		election := s.(driver.ElectionStore)
		proclaim := driver.SetValueRequest{Name: req.Name, Acq: req.Acq, Version: version, Value: []byte("x")}
		resume := driver.ResumeRequest{Name: req.Name, Acq: newID(), Owner: req.Owner, Version: version, TTL: time.Minute}
		tx, err := f.Open(t).Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if err := tx.QueryRow("SELECT version FROM `sqllock_lock` WHERE name = ? FOR UPDATE", req.Name).Scan(new(int64)); err != nil {
			t.Fatal(err)
		}
		if done, err := election.Proclaim(t.Context(), proclaim); done || s.Classify(err) != driver.Again {
			t.Errorf("Proclaim = %v, %v", done, err)
		}
		if res, err := election.Resume(t.Context(), resume); res.Granted || s.Classify(err) != driver.Again {
			t.Errorf("Resume = %+v, %v", res, err)
		}
		_ = tx.Rollback()
		if done, err := election.Proclaim(t.Context(), proclaim); !done || err != nil {
			t.Errorf("when the row is free: Proclaim = %v, %v", done, err)
		}
		if res, err := election.Resume(t.Context(), resume); !res.Granted || err != nil {
			t.Errorf("when the row is free: Resume = %+v, %v", res, err)
		}
		if done, err := election.Proclaim(t.Context(), proclaim); done || err != nil {
			t.Errorf("of a term that is over: Proclaim = %v, %v", done, err)
		}
	})
}
