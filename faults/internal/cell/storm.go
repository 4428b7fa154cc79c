//go:build linux

package cell

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sqllock/sqllock/faults/internal/check"
	"github.com/sqllock/sqllock/faults/internal/client"
	"github.com/sqllock/sqllock/faults/internal/fleet"
	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/faults/internal/nemesis"
	"github.com/sqllock/sqllock/faults/internal/register"
)

// settle is how long the clients work before the first strike.
const settle = 500 * time.Millisecond

// often is after how many strikes there is a pause that shows whether all is well again.
const often = 12

// longest is how much longer than s.For faults may strike, until clients have done enough, and enough
// pairs of options and events have met, on a machine that is slow.
const longest = 5 * time.Minute

// storm injects faults while the clients work, and checks their histories in between. A
// failure ends it.
func (s *site) storm(ctx context.Context) ([]check.Failure, error) {
	storming, stopFaults := context.WithTimeout(ctx, s.For+longest)
	defer stopFaults()
	over := time.After(s.For)
	done := make(chan error, 1)
	go func() { done <- s.injectFaults(storming) }()
	var found []check.Failure
	var failed error
	for every := time.Second; storming.Err() == nil; {
		select {
		case <-storming.Done():
		case <-over:
			if failed = s.read(); failed != nil || len(s.tooLittle()) == 0 {
				stopFaults()
			}
			over = time.After(time.Second)
		case err := <-done:
			done <- err
			stopFaults()
		case <-time.After(every):
			began := time.Now()
			if failed = s.read(); failed == nil {
				found = slices.Concat(check.History(s.complete(), s.rules()), s.written(storming), s.died())
			}
			if failed != nil || len(found) > 0 {
				stopFaults()
			}
			// A history grows, and the machine has something else to do.
			every = max(every, 20*time.Since(began))
		}
	}
	err := <-done
	if errors.Is(err, fleet.ErrEnded) {
		err = nil // died says it
	}
	if len(found) == 0 {
		found = s.died()
	}
	return found, errors.Join(err, failed)
}

// died returns the clients that have ended by themselves.
func (s *site) died() (found []check.Failure) {
	for _, c := range s.fleet {
		if err := c.Died(); err != nil {
			found = append(found, exited(err))
		}
	}
	return found
}

// exited is the failure of a client that has ended by itself.
func exited(err error) check.Failure {
	return check.Failure{Check: check.Exit, T: history.Now(), What: err.Error()}
}

// tooLittle reports that the clients have done too little of what they were to do: acquired too few
// permits, for example.
func (s *site) tooLittle() []check.Failure {
	found := check.TooLittle(s.complete(), s.rules())
	if len(s.semaphores()) > 0 {
		found = append(found, check.Few(s.complete(), s.rules())...)
	}
	return append(found, s.coverage().Few(leastOfCell)...)
}

// leastOfCell is the share of the pairs that can meet in a cell with options, in hundredths, of
// which each cell must show so many.
const leastOfCell = 60

// coverage says which options, kinds and events have met, in a cell with options.
func (s *site) coverage() check.Coverage {
	if s.Use != client.Options {
		return check.Coverage{}
	}
	return check.Cover(s.complete(), s.rules(), client.UserNames())
}

// ttls are those of which an outage takes half.
func (s *site) ttls() []time.Duration {
	if s.Use == client.Options {
		return client.OutageTTLs()
	}
	return []time.Duration{s.ttl()}
}

// written looks at the registers, unless the server is being harmed.
func (s *site) written(ctx context.Context) []check.Failure {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	writes, err := s.work.Writes(ctx)
	if err != nil {
		return nil // in the end all will be read
	}
	return check.Writes(register.Final{Writes: writes}, history.Now())
}

// injectFaults injects faults with pauses in between. Some pauses are long enough to
// check that all waiters are served.
func (s *site) injectFaults(ctx context.Context) error {
	target := &nemesis.Site{
		TTLs: s.ttls(), Mode: s.Mode, Database: s.Database, TTL: s.ttl(), Delay: delay, Clients: s.fleet,
		Server: s.srv, Admin: s.admin, Log: s.log,
	}
	rng := s.rng()
	for i, rest := 0, settle; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rest):
		}
		if err := s.Nemesis.Inject(ctx, target, rng); err != nil {
			return err
		}
		rest = time.Duration(rng.Int64N(int64(cmp.Or(s.Nemesis.Rest, s.ttl()/4))))
		if i%often == often-1 {
			rest = s.grace() + 200*time.Millisecond
		}
	}
}
