package termstore

import (
	"database/sql"
	"strings"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
)

// Term is what is known of a name.
type Term struct {
	Name      string
	Exists    bool // there is a row
	Now       int64
	Holder    driver.Holder // of the last term, without Acq if it was ended; Until is when
	Holds     int
	NotBefore int64
	Delay     int64 // the lock delay of the holder
	Ended     driver.Ending
	Revoked   int64
	Revoking  bool // the holder is asked to give the name up
	Alive     bool // the session of the holder has the lock
	Locked    bool // some session has it
	Readers   int  // how many sessions share it
	Writable  bool // the server takes writes
	Value     []byte
}

// ScanTerm reads a term, and what stands behind it.
func ScanTerm(scan rowstore.Scanner, behind ...any) (index int, t Term, err error) {
	var name, acq, owner, label sql.NullString
	var version, since, until, holds, notBefore, delay, ended, revoked sql.NullInt64
	err = scan(append([]any{&index, &name, &t.Now, &acq, &owner, &label, &version, &since, &until, &holds, &notBefore, &delay,
		&ended, &revoked, &t.Revoking, &t.Alive, &t.Locked, &t.Readers, &t.Writable, &t.Value}, behind...)...)
	t.Exists, t.Name = name.Valid, name.String
	t.Holder = driver.Holder{Owner: owner.String, Label: label.String, Version: version.Int64, Since: since.Int64, Until: until.Int64}
	t.Holds, t.NotBefore, t.Delay = int(holds.Int64), notBefore.Int64, delay.Int64
	t.Ended, t.Revoked = driver.Ending(ended.Int64), revoked.Int64
	if err == nil {
		t.Holder.Acq, err = parseID(acq)
	}
	return index, t, err
}

// parseID reads an ID with or without dashes.
func parseID(text sql.NullString) (id driver.ID, err error) {
	if text.Valid {
		err = id.UnmarshalText([]byte(strings.ReplaceAll(text.String, "-", "")))
	}
	return id, err
}

// Held reports that the row names a holder, whose session may be gone.
func (t *Term) Held() bool { return t.Holder.Acq != driver.ID{} }

// Other reports that the row names a holder other than acq.
func (t *Term) Other(acq driver.ID) bool { return t.Held() && t.Holder.Acq != acq }

// KeptFrom reports that something other than a holder keeps the name from acq.
func (t *Term) KeptFrom(acq driver.ID) bool { return t.NotBefore > t.Now && t.Holder.Acq != acq }

// Crashed is the holder, whose term is over now.
func (t *Term) Crashed(now int64) driver.Holder {
	h := t.Holder
	h.Until = now
	return h
}

// Known is who holds the name, for somebody who lost against it.
func (t *Term) Known() driver.Holder {
	switch {
	case t.Held() && t.Alive:
		return t.Holder
	case t.Readers > 0:
		return driver.Holder{Shared: true}
	}
	return driver.Holder{}
}

func (t *Term) is(acq driver.ID, version int64) bool {
	return t.Holder.Acq == acq && t.Holder.Version == version
}

// idle reports that nothing was done with the row for so long.
func (t *Term) idle(retention time.Duration) bool {
	before := t.Now - retention.Microseconds()
	return !t.Held() && !t.Locked && t.NotBefore <= t.Now && t.Holder.Until <= before && t.Holder.Version < before
}

// row is the term as others see it.
func (t *Term) row() driver.Row {
	r := driver.Row{Name: t.Name, Holder: t.Holder, Holds: t.Holds, Gate: t.NotBefore, Ended: t.Ended, Revoked: t.Revoked,
		Value: t.Value, Now: t.Now, Session: t.Locked}
	switch {
	case t.Held() && t.Alive:
		r.Session, r.Holder.Until = true, 0
	case t.Readers > 0:
		r.Session, r.Readers = true, t.Readers
		r.Holder = driver.Holder{Version: t.Holder.Version, Since: t.Holder.Since, Shared: true}
	case t.Held() && t.Revoking: // it has let the name go, as it was asked to
		r.Session, r.Holder.Acq, r.Holder.Until, r.Ended = false, driver.ID{}, t.Now, driver.EndedRevoked
	case t.Held(): // nobody knows since when its session is gone
		r.Session, r.Holder.Until = false, t.Now
	}
	return r
}

func rows(terms []Term) []driver.Row {
	rows := make([]driver.Row, len(terms))
	for i := range terms {
		rows[i] = terms[i].row()
	}
	return rows
}
