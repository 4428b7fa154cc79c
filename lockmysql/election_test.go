package lockmysql_test

import (
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/lockmysql"
)

// A row that somebody has locked says nothing of the term.
func TestAResumptionAndAProclamationOfALockedRowAreToBeTriedAgain(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, _ := f.store(t)
		req := request("k")
		version := take(t, s, req)[0].Version
		value := driver.SetValueRequest{Name: req.Name, Acq: req.Acq, Version: version, Value: []byte("x")}
		resume := []driver.AcquireRequest{{Name: req.Name, Acq: newID(), Owner: req.Owner, Resumes: version, TTL: time.Minute}}
		tx, err := f.Open(t).Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if err := tx.QueryRow("SELECT version FROM `sqllock_lock` WHERE name = ? FOR UPDATE", req.Name).Scan(new(int64)); err != nil {
			t.Fatal(err)
		}
		if done, err := s.SetValue(t.Context(), value); done || lockmysql.Classify(err) != driver.Again {
			t.Errorf("SetValue = %v, %v", done, err)
		}
		if res, err := s.Acquire(t.Context(), resume); lockmysql.Classify(err) != driver.Again {
			t.Errorf("Acquire = %+v, %v", res, err)
		}
		_ = tx.Rollback()
		if done, err := s.SetValue(t.Context(), value); !done || err != nil {
			t.Errorf("when the row is free: SetValue = %v, %v", done, err)
		}
		if res, err := s.Acquire(t.Context(), resume); err != nil || !res[0].Granted {
			t.Errorf("when the row is free: Acquire = %+v, %v", res, err)
		}
		if done, err := s.SetValue(t.Context(), value); done || err != nil {
			t.Errorf("of a term that is over: SetValue = %v, %v", done, err)
		}
	})
}
