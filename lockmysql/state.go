package lockmysql

import (
	"context"
	"database/sql"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// state is what a look found.
type state struct {
	now       int64
	exists    bool
	name      string
	grantable bool
	holder    driver.Holder // of the last term, without Acq if it was ended
	holds     int
	notBefore int64
	waitUntil int64 // somebody may stand in line until then
	qseq      int64 // the number of the last ticket
	qhead     int64 // and of the last that was served
	ended     driver.Ending
	revoked   int64
	value     []byte // if it was asked for

	others      int   // who hold it together, as far as the row says
	othersUntil int64 // the last of them
	readers     int   // others, if they keep the name
	untidy      bool  // the row does not say what is
	leftOver    bool  // there is somebody to be told of; only a window looks
	ticketed    bool  // there are tickets, if of nobody who is alive; only a window looks
	expiresAt   int64 // as the row has it
}

// held reports that the row names a holder, who may have expired.
func (st *state) held() bool { return st.holder.Acq != driver.ID{} }

// heldBy reports that the row names this acquisition, expired or not.
func (st *state) heldBy(acq driver.ID) bool { return st.held() && st.holder.Acq == acq }

// expired reports that the row names a holder who has expired.
func (st *state) expired() bool { return st.held() && st.holder.Until <= st.now }

// gate is until when something other than a holder keeps the name from newcomers.
func (st *state) gate() int64 { return max(st.notBefore, st.waitUntil) }

// waited reports that somebody may stand in line.
func (st *state) waited() bool { return st.waitUntil > st.now }

// kept reports that the name is held, if by one who has expired, or kept for its
// minimum hold time.
func (st *state) kept() bool { return st.held() || st.readers > 0 || st.notBefore > st.now }

// idle reports that nothing was done with the row for so long.
func (st *state) idle(retention time.Duration) bool {
	before := st.now - retention.Microseconds()
	return !st.held() && st.readers == 0 && !st.leftOver && !st.ticketed && st.gate() <= st.now && st.holder.Until <= before && st.holder.Version < before
}

// row is the state as others see it.
func (st *state) row() driver.Row {
	return driver.Row{Name: st.name, Holder: st.holder, Holds: st.holds, Readers: st.readers, Gate: st.notBefore, Ended: st.ended, Revoked: st.revoked, Value: st.value, Now: st.now}
}

// look returns the states of names, in their order: those of b, which has as many
// requests.
func (s *store) look(ctx context.Context, c session, b *batch, n int) ([]state, error) {
	return s.states(ctx, c, s.queries.lookMany, b, n)
}

func (s *store) states(ctx context.Context, c session, text string, b *batch, n int) ([]state, error) {
	states := make([]state, n)
	err := s.read(ctx, c, text, []any{b.String()}, func(rows *sql.Rows) error {
		var i int
		var st state
		err := st.scan(rows, &i, &st.value)
		if err == nil {
			states[i] = st
		}
		return err
	})
	return states, err
}

// lookAt returns the state of one name. If there is no row, its now is 0.
func (s *store) lookAt(ctx context.Context, c session, name string) (st state, err error) {
	err = s.read(ctx, c, s.queries.look, []any{digits(name)}, func(rows *sql.Rows) error { return st.scan(rows) })
	return st, err
}

// window returns the states of the next rows after a name.
func (s *store) window(ctx context.Context, c session, after string, limit int) (states []state, err error) {
	err = s.read(ctx, c, s.queries.window, []any{digits(after), limit}, func(rows *sql.Rows) error {
		var st state
		err := st.scan(rows, &st.leftOver, &st.ticketed)
		states = append(states, st)
		return err
	})
	return states, err
}

// scan reads the columns of queryState and what follows.
func (st *state) scan(rows *sql.Rows, more ...any) error {
	var name, owner, label sql.NullString
	var acq []byte
	var version, since, until, holds, notBefore, waitUntil, qseq, qhead, ended, revoked sql.NullInt64
	var grantable, untidy sql.NullBool
	var others, othersUntil sql.NullInt64
	err := rows.Scan(append([]any{&st.now, &name, &acq, &owner, &label, &version, &since, &until,
		&holds, &notBefore, &waitUntil, &qseq, &qhead, &ended, &revoked, &grantable, &others, &othersUntil, &untidy}, more...)...)
	st.exists, st.name = name.Valid, name.String
	st.grantable = grantable.Bool
	st.holder = driver.Holder{Owner: owner.String, Label: label.String,
		Version: version.Int64, Since: since.Int64, Until: until.Int64}
	copy(st.holder.Acq[:], acq)
	st.holds, st.notBefore = int(holds.Int64), notBefore.Int64
	st.waitUntil, st.qseq, st.qhead = waitUntil.Int64, qseq.Int64, qhead.Int64
	st.ended, st.revoked = driver.Ending(ended.Int64), revoked.Int64
	st.others, st.othersUntil, st.untidy = int(others.Int64), othersUntil.Int64, untidy.Bool
	st.expiresAt = until.Int64
	if !st.held() && st.others > 0 && st.othersUntil > st.now {
		st.readers = st.others
		st.holder.Shared, st.holder.Until = true, st.othersUntil
	}
	return err
}
