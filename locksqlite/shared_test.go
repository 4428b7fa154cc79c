package locksqlite_test

import (
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

func TestWhoLosesToReadersOrAsOneNeedsNoWriteLock(t *testing.T) {
	path := migrated(t)
	s := openStore(t, open(t, path))
	reader := func(name string) driver.AcquireRequest {
		return driver.AcquireRequest{Name: name, Acq: id(), TTL: time.Minute, Shared: true}
	}
	first := reader("read")
	grant(t, s, []driver.AcquireRequest{first})
	grant(t, s, ask("written"))
	defer hog(t, open(t, path))()
	if r := grant(t, s, ask("read"))[0]; r.Granted || !r.Holder.Shared {
		t.Errorf("%+v", r)
	}
	if r := grant(t, s, []driver.AcquireRequest{reader("written")})[0]; r.Granted || r.Holder.Owner != "owner of written" {
		t.Errorf("%+v", r)
	}
	if r := grant(t, s, []driver.AcquireRequest{first})[0]; !r.Found {
		t.Errorf("%+v", r)
	}
	if _, err := s.Acquire(t.Context(), []driver.AcquireRequest{reader("read")}); classify(err) != driver.Again {
		t.Errorf("control: a reader that can have the name got by the lock, %v", err)
	}
}
