//go:build linux

package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sqllock/sqllock/faults/internal/check"
	"github.com/sqllock/sqllock/faults/internal/server"
)

// servers are the faults of the server, which hit all clients.
var servers = []*Nemesis{
	{
		Name: "server-kill", About: "the server gets SIGKILL, and is started again", NotFor: single,
		Inject: func(_ context.Context, s *Site, rng *rand.Rand) error {
			defer s.fault("server-kill", "", true)()
			return s.Server.Crash(between(rng, 0, s.TTL))
		},
	},
	{
		Name: "server-pause", About: "the server gets SIGSTOP, for longer or shorter than a TTL", NotFor: single,
		Inject: func(_ context.Context, s *Site, rng *rand.Rand) error {
			d := s.within(rng)
			if rng.IntN(2) == 0 {
				d = s.beyond(rng)
			}
			defer s.fault("server-pause", "", false)()
			return s.Server.Pause(d)
		},
	},
	{
		Name: "session-kill", About: "random sessions are ended by the server", NotFor: single,
		Inject: func(ctx context.Context, s *Site, rng *rand.Rand) error {
			for range 1 + rng.IntN(5) {
				healed := s.fault("session-kill", "", true)
				err := s.endSession(ctx, rng)
				sleep(ctx, between(rng, 0, s.TTL/8))
				healed()
				if err != nil {
					return err
				}
			}
			return nil
		},
	},
}

// outage lasts for half a TTL, so that leases of at least that TTL survive it.
var outage = &Nemesis{
	Name: check.Outage, About: "the server, or the network of a client, stands still for half a TTL", NotFor: networked, Rest: 2500 * time.Millisecond,
	Inject: func(ctx context.Context, s *Site, rng *rand.Rand) error {
		ttls := append(slices.Clip(s.TTLs), s.TTL)
		d := ttls[rng.IntN(len(ttls))] / 2
		if rng.IntN(2) == 0 {
			defer s.fault(check.Outage, "", false)()
			return s.Server.Pause(d)
		}
		victim := s.victim(rng)
		defer s.fault(check.Outage, victim.Proc(), false)()
		victim.Net.Freeze()
		sleep(ctx, d)
		victim.Net.Thaw()
		return nil
	},
}

// demotion makes the server refuse writes for a while, as one does that is no primary any more. Each
// session has the new default from its next transaction on.
var demotion = &Nemesis{
	Name: "demotion", About: "the server refuses writes, for longer or shorter than a TTL",
	NotFor: func(mode, database string) string {
		switch {
		case mode != "unique":
			return "in that mode the sessions stay, and so do the locks that nobody may use any more"
		case database != server.Postgres:
			return "only Postgres refuses writes of its superuser"
		}
		return ""
	},
	Inject: func(ctx context.Context, s *Site, rng *rand.Rand) (err error) {
		d := s.within(rng)
		if rng.IntN(2) == 0 {
			d = s.beyond(rng)
		}
		defer s.fault("demotion", "", true)()
		err = s.readOnly("on")
		sleep(ctx, d)
		return errors.Join(err, s.readOnly("off"))
	},
}

// readOnly sets whether the server refuses writes.
func (s *Site) readOnly(value string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, statement := range []string{"ALTER SYSTEM SET default_transaction_read_only = " + value, "SELECT pg_reload_conf()"} {
		if _, err := s.Admin.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// The sessions of clients, and how to end one.
var (
	sessions = map[string]string{
		server.Postgres: `SELECT pid FROM pg_stat_activity WHERE datname = 'faults' AND pid <> pg_backend_pid() ORDER BY pid`,
		server.MariaDB:  `SELECT id FROM information_schema.processlist WHERE db = 'faults' AND id <> connection_id() ORDER BY id`,
	}
	endings = map[string]string{
		server.Postgres: `SELECT pg_terminate_backend(%d)`,
		server.MariaDB:  `KILL %d`,
	}
)

// endSession ends a session of any client.
func (s *Site) endSession(ctx context.Context, rng *rand.Rand) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	rows, err := s.Admin.QueryContext(ctx, sessions[s.Database])
	if err != nil {
		return ended(ctx, err)
	}
	defer func() { _ = rows.Close() }()
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return err
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil || len(ids) == 0 {
		return ended(ctx, err)
	}
	// It may have ended.
	_, _ = s.Admin.ExecContext(ctx, fmt.Sprintf(endings[s.Database], ids[rng.IntN(len(ids))]))
	return nil
}

// ended forgets an error that comes from the end of the cell.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

var clockSteps = &Nemesis{
	Name: "clock-step", About: "the clock of the server is set, forward and back", Unsteady: true, Steps: true,
	NotFor: func(_, database string) string {
		if database == server.SQLite {
			return "the clock of SQLite is that of its clients"
		}
		if database == server.Galera {
			return "the clocks of the nodes must agree"
		}
		return ""
	},
	Inject: func(ctx context.Context, s *Site, rng *rand.Rand) error {
		d := between(rng, s.TTL/4, 4*s.TTL)
		if rng.IntN(2) == 0 {
			d = -d
		}
		// Postgres ends sessions that are not idle at all within a TTL of a step back: its
		// timers compare times of that clock.
		defer s.fault(fmt.Sprintf("clock-step %v", d), "", true)()
		if err := s.Server.Step(d); err != nil {
			return err
		}
		sleep(ctx, between(rng, 0, s.TTL))
		return s.Server.Step(-d)
	},
}
