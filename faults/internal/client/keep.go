//go:build linux

package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/faults/internal/history"
)

// keep holds leases of a long TTL until the client is stopped, and writes down if one is lost. They
// are of a Locker of its own, on the handle of the others: what it asks is not in the history.
func (c *client) keep() {
	locks := c.openKept()
	if locks == nil {
		return
	}
	var leases []*sqllock.Lease
	for i := range c.cfg.Kept {
		lease, err := locks.Lock(c.ctx, fmt.Sprintf("%s%s/%d", KeptPrefix, c.cfg.Proc, i))
		if err != nil {
			break // the client is stopped
		}
		leases = append(leases, lease)
		c.sayKept(lease, nil)
		// Renewals of leases that were granted together come together, and these not.
		time.Sleep(c.cfg.KeptTTL / 3 / time.Duration(c.cfg.Kept))
	}
	c.await(leases)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, lease := range leases {
		_ = lease.Unlock(ctx)
	}
	if err := locks.Close(ctx); err != nil {
		c.say(history.Event{T: history.Now(), Op: history.Left, Reason: "kept leases", Err: err.Error()})
	}
}

// openKept makes the Locker, trying again while the database cannot be reached. It returns nil if
// the client was stopped before. The Locker reaps nothing, because that would be in no history.
func (c *client) openKept() *sqllock.Locker {
	for c.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(c.ctx, 3*time.Second)
		locks, err := sqllock.NewUnique(ctx, Database(c.cfg.Database, c.locksDB).(driver.UniqueDatabase), &sqllock.UniqueOptions{
			TTL: c.cfg.KeptTTL, Label: c.cfg.Proc, Reaper: &sqllock.ReaperOptions{Off: true}, Logger: slog.New(slog.DiscardHandler),
		})
		cancel()
		if err == nil {
			return locks
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

// KeptPrefix begins the names of leases that are kept.
const KeptPrefix = "kept/"

// await waits until the client is stopped, and writes down the leases that are lost before.
func (c *client) await(leases []*sqllock.Lease) {
	written := make(map[*sqllock.Lease]bool)
	for tick := time.NewTicker(every); ; {
		select {
		case <-c.ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		for _, lease := range leases {
			if err := context.Cause(lease.Context()); err != nil && !written[lease] {
				written[lease] = true
				c.sayKept(lease, err)
			}
		}
	}
}

func (c *client) sayKept(lease *sqllock.Lease, lost error) {
	e := history.Event{T: history.Now(), Op: history.Kept, Name: lease.Name(), N: int64(c.cfg.KeptTTL), Lost: lost != nil}
	var why *sqllock.LostError
	if errors.As(lost, &why) {
		e.Reason = why.Reason.String()
	}
	c.say(e)
}

// How long the calls of an application take, and how long it waits for them.
const (
	busyFor  = "0.2"
	busyWait = 10 * time.Second
)

// keepBusy makes calls on the pool of the locks until the client is stopped.
func (c *client) keepBusy() {
	for c.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(c.ctx, busyWait)
		_, err := c.locksDB.ExecContext(ctx, `SELECT pg_sleep(`+busyFor+`)`)
		cancel()
		if err != nil {
			time.Sleep(50 * time.Millisecond)
		}
	}
}
