package locksqlite_test

import (
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/sharetest"
)

func TestNamesAreHeldTogether(t *testing.T) {
	path := migrated(t)
	sharetest.Run(t, sharetest.Fixture{
		DB: open(t, path),
		Open: func(tb testing.TB) driver.LeaseStore {
			return openStore(tb, open(tb, path, "_pragma=busy_timeout(5000)"))
		},
		Clock: `(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)`,
	})
}

func TestWhoLosesToReadersOrAsOneNeedsNoWriteLock(t *testing.T) {
	path := migrated(t)
	s := openStore(t, open(t, path))
	reader := func(name string) driver.GrantRequest {
		return driver.GrantRequest{Name: name, Acq: id(), TTL: time.Minute, Shared: true}
	}
	first := reader("read")
	grant(t, s, []driver.GrantRequest{first})
	grant(t, s, ask("written"))
	defer hog(t, open(t, path))()
	if r := grant(t, s, ask("read"))[0]; r.Granted || !r.Holder.Shared {
		t.Errorf("%+v", r)
	}
	if r := grant(t, s, []driver.GrantRequest{reader("written")})[0]; r.Granted || r.Holder.Owner != "owner of written" {
		t.Errorf("%+v", r)
	}
	if r := grant(t, s, []driver.GrantRequest{first})[0]; !r.Found {
		t.Errorf("%+v", r)
	}
	if _, err := s.Grant(t.Context(), []driver.GrantRequest{reader("read")}); s.Classify(err) != driver.Again {
		t.Errorf("control: a reader that can have the name got by the lock, %v", err)
	}
}
