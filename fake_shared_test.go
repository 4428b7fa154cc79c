package sqllock_test

import (
	"time"

	"github.com/sqllock/sqllock/driver"
)

// What the fake database has for names that are held together.

// reader is one of those who share a name. Those of one term share its version.
type reader struct {
	version int64
	since   int64
	until   int64
}

// sharing is who shares the name now; the others are forgotten.
func (x *row) sharing(now int64) int {
	for acq, r := range x.readers {
		if r.until <= now || r.version != x.version {
			delete(x.readers, acq)
		}
	}
	return len(x.readers)
}

// together tells of those who share a name. They have no common owner.
func (x *row) together() driver.Holder {
	h := driver.Holder{Version: x.version, Since: x.since, Shared: true}
	for _, r := range x.readers {
		h.Until = max(h.Until, r.until)
	}
	return h
}

// grantShared is grant for those who share; x is not held exclusively.
func (f *fake) grantShared(x *row, r driver.AcquireRequest) driver.AcquireResult {
	now := f.now()
	if x.sharing(now) == 0 { // a new term
		x.version, x.since = max(x.version+1, now), now
		x.readers = make(map[driver.ID]*reader)
	}
	res := driver.AcquireResult{Granted: true, Version: x.version, Now: now, Remaining: r.TTL}
	if old := x.readers[r.Acq]; old != nil {
		res.Found, res.Remaining = true, time.Duration(old.until-now)*time.Microsecond
		return res
	}
	if x.acq != (driver.ID{}) {
		res.Crashed, x.acq = x.holder(), driver.ID{}
	}
	x.readers[r.Acq] = &reader{x.version, now, now + r.TTL.Microseconds()}
	return res
}

func (f *fake) renewShared(r driver.RenewRequest) driver.RenewStatus {
	x, now := f.rows[r.Name], f.now()
	if x == nil {
		return driver.Gone
	}
	x.sharing(now)
	mine := x.readers[r.Acq]
	switch {
	case x.revoked == r.Version:
		return driver.Revoked
	case mine == nil || mine.version != r.Version:
		return driver.Gone
	}
	mine.until = max(mine.until, now+r.TTL.Microseconds())
	return driver.Renewed
}

// leaveShared takes one out of those who share; it reports whether he did.
func (f *fake) leaveShared(name string, acq driver.ID) bool {
	x := f.rows[name]
	if x == nil {
		return false
	}
	x.sharing(f.now())
	_, ok := x.readers[acq]
	if delete(x.readers, acq); ok && len(x.readers) == 0 {
		x.release(f.now(), 0)
	}
	return ok
}

// readers is how many share a name as the database sees it.
func (f *fake) readers(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if x := f.rows[name]; x != nil {
		return x.sharing(f.now())
	}
	return 0
}
