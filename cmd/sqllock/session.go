package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/migrations"
)

const (
	// openPatience bounds opening the database, its migrations included.
	openPatience = 15 * time.Second
	// unlockPatience and closePatience bound what is left to do when CMD has
	// ended: a server that hears nothing must not keep us. The lock expires.
	unlockPatience = 5 * time.Second
	closePatience  = time.Second
	// waitMargin is what --wait may take longer, if the database answers late or not
	// at all.
	waitMargin = 100 * time.Millisecond
)

// session is the use of a database for one lock.
type session struct {
	*runner
	db    *database
	locks *sqllock.Locker
	take  func(context.Context) (*sqllock.Lease, error)

	over    time.Time // when --wait is, if it is set
	granted bool
}

// lockUnless takes the lock unless a signal comes first.
func (s *session) lockUnless(ctx context.Context, sigs *signals) (*sqllock.Lease, error) {
	ctx, release := sigs.interrupt(ctx)
	lease, err := s.lock(ctx)
	release()
	sig, came := context.Cause(ctx).(signalled)
	if !came {
		return lease, err
	}
	if lease != nil {
		s.free(lease)
	}
	return nil, exit(sig.code())
}

func (s *session) lock(ctx context.Context) (*sqllock.Lease, error) {
	if s.wait == 0 {
		return s.openAndTake(ctx)
	}
	s.over = time.Now().Add(s.wait)
	ctx, cancel := context.WithDeadline(ctx, s.over.Add(waitMargin))
	defer cancel()
	lease, err := s.openAndTake(ctx)
	if f := (*failure)(nil); errors.Is(err, context.DeadlineExceeded) && errors.As(err, &f) && f.code == exitUnavailable {
		err = fail(exitUnavailable, "the database did not answer within %v", min(s.wait, openPatience))
	}
	return lease, err
}

// openAndTake opens the database, if that was not done yet, and takes the lock.
func (s *session) openAndTake(ctx context.Context) (*sqllock.Lease, error) {
	if s.locks == nil {
		if err := slow(s.open(ctx)); err != nil {
			return nil, s.db.failure(err)
		}
	}
	lease, err := s.take(ctx)
	s.granted = err == nil
	switch {
	case errors.Is(err, sqllock.ErrHeld) && s.quiet:
		return nil, &failure{code: s.heldCode}
	case errors.Is(err, sqllock.ErrHeld):
		return nil, &failure{code: s.heldCode, err: err}
	case errors.Is(err, sqllock.ErrLost):
		return nil, &failure{code: exitLost, err: err}
	}
	return lease, s.db.failure(err)
}

// acquire takes the lock as the flags say. One that was granted while we were
// stopped, and came too late to be used, is waited for anew.
func (s *session) acquire(ctx context.Context) (*sqllock.Lease, error) {
	lock, try := s.locks.Lock, s.locks.TryLock
	if s.shared {
		lock, try = s.locks.RLock, s.locks.TryRLock
	}
	if s.try {
		return try(ctx, s.name, s.options...)
	}
	for {
		opts := s.options
		if s.wait > 0 {
			opts = append(slices.Clip(opts), sqllock.Wait(max(time.Until(s.over), time.Millisecond)))
		}
		lease, err := lock(ctx, s.name, opts...)
		if late := (*sqllock.LostError)(nil); errors.As(err, &late) && late.Reason == sqllock.LostLate {
			if s.wait == 0 || time.Now().Before(s.over) {
				continue
			}
		}
		return lease, err
	}
}

// lockerOptions are those of the Locker. Reaping is for those who share the table to
// agree on: the retention is theirs.
func (s *session) lockerOptions() *sqllock.UniqueOptions {
	return &sqllock.UniqueOptions{TTL: s.ttl, Label: s.label, Logger: slog.New(warnings{s.app}),
		Reaper: &sqllock.ReaperOptions{Off: true}}
}

// open opens the database. An SQLite file gets its tables now, and a server that
// is full or still starting gets some time.
func (s *session) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	if err := s.db.prepare(ctx); err != nil {
		return err
	}
	opts, m := s.lockerOptions(), s.db.modes[0]
	locks, err := s.db.locker(ctx, m, opts, openPatience)
	if s.db.file != "" && errors.Is(err, sqllock.ErrSchema) {
		if err := migrations.Up(ctx, s.db); err != nil {
			return err
		}
		locks, err = s.db.locker(ctx, m, opts, openPatience)
	}
	s.locks = locks
	return err
}

// crowded reports that the server has no connection to give just now, as when
// all jobs of an hour start in the same second.
func crowded(err error) bool {
	if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) {
		return pg.Code == "53300" || pg.Code == "57P03" // too_many_connections, cannot_connect_now
	}
	if my := (*mysql.MySQLError)(nil); errors.As(err, &my) {
		return my.Number == 1040 || my.Number == 1203 // ER_CON_COUNT_ERROR, ER_TOO_MANY_USER_CONNECTIONS
	}
	return false
}

// free gives the lease back and reports whether it was lost before.
func (s *session) free(lease *sqllock.Lease) (lost bool) {
	var held *sqllock.LostError
	lost = errors.As(context.Cause(lease.Context()), &held) // then it was said when it happened
	ctx, cancel := context.WithTimeout(context.Background(), unlockPatience)
	defer cancel()
	err := lease.Unlock(ctx)
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, sqllock.ErrLost) {
		err = fmt.Errorf("the database did not answer; %q becomes free when its time is over", s.name)
	}
	if err != nil && !lost {
		s.say("%v", err)
	}
	return lost || errors.Is(err, sqllock.ErrLost)
}

// close waits for what is under way, unless --wait is over: a server that is still asked for
// the lock finds that nobody is there any more.
func (s *session) close() {
	limit := time.Now().Add(closePatience)
	if over := s.over.Add(waitMargin / 2); !s.granted && s.wait > 0 && over.Before(limit) {
		limit = over
	}
	ctx, cancel := context.WithDeadline(context.Background(), limit)
	defer cancel()
	if s.locks != nil {
		within(ctx, func() { _ = s.locks.Close(ctx) })
	}
	s.db.close(ctx)
}

// warnings is a slog.Handler that tells people what is neither routine nor told
// by us anyway: doubts about the server, renewals that fail.
type warnings struct{ app *app }

var _ slog.Handler = warnings{}

func (warnings) Enabled(_ context.Context, level slog.Level) bool { return level == slog.LevelWarn }

func (w warnings) Handle(_ context.Context, r slog.Record) error {
	var text strings.Builder
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&text, ", %s %v", a.Key, a.Value)
		return true
	})
	w.app.say("warning: %s%s", strings.TrimPrefix(r.Message, "sqllock: "), text.String())
	return nil
}

func (w warnings) WithAttrs([]slog.Attr) slog.Handler { return w }
func (w warnings) WithGroup(string) slog.Handler      { return w }
