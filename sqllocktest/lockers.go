package sqllocktest

import (
	"log/slog"
	"time"

	"github.com/sqllock/sqllock"
)

// Options are the options of a Locker that all modes have. They mean what the
// fields of [sqllock.UniqueOptions] mean.
type Options struct {
	TTL, RetryMin, RetryMax, StatementTimeout time.Duration

	Label  string
	Logger *slog.Logger
	Hooks  *sqllock.Hooks

	Reaper *sqllock.ReaperOptions // nil: off, so that it disturbs no test
}

// ForUpdate returns the options for sqllock.NewForUpdate.
func (o *Options) ForUpdate() *sqllock.ForUpdateOptions {
	u := o.Unique()
	if u == nil {
		return nil
	}
	return &sqllock.ForUpdateOptions{
		TTL: u.TTL, RetryMin: u.RetryMin, RetryMax: u.RetryMax, StatementTimeout: u.StatementTimeout,
		Label: u.Label, Logger: u.Logger, Hooks: u.Hooks, Reaper: u.Reaper, MaxConns: poolSize - 2,
	}
}

// Advisory returns the options for sqllock.NewAdvisory.
func (o *Options) Advisory() *sqllock.AdvisoryOptions {
	u := o.Unique()
	if u == nil {
		return nil
	}
	return &sqllock.AdvisoryOptions{
		TTL: u.TTL, RetryMin: u.RetryMin, RetryMax: u.RetryMax, StatementTimeout: u.StatementTimeout,
		Label: u.Label, Logger: u.Logger, Hooks: u.Hooks, Reaper: u.Reaper,
	}
}

// Unique returns the options for sqllock.NewUnique.
func (o *Options) Unique() *sqllock.UniqueOptions {
	if o == nil {
		return nil
	}
	reaper := o.Reaper
	if reaper == nil {
		reaper = &sqllock.ReaperOptions{Off: true}
	}
	return &sqllock.UniqueOptions{
		TTL: o.TTL, RetryMin: o.RetryMin, RetryMax: o.RetryMax, StatementTimeout: o.StatementTimeout,
		Label: o.Label, Logger: o.Logger, Hooks: o.Hooks, Reaper: reaper,
	}
}
