package monitor

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sqllock/sqllock"
)

const (
	maxSampled  = 20_000 // names that are counted
	maxQueues   = 5      // that are shown
	maxRateSpan = time.Minute
)

// MaxLosses is how many losses are remembered.
const MaxLosses = 8

// Overview counts over all names that are not free.
type Overview struct {
	Names, Held, Expired, Kept, Detached int
	Waiting, Awaited                     int // callers that wait, and names that they wait for
	Readers, Permits, PermitsHeld        int
	More                                 bool           // there are more names than were counted
	Queues                               []sqllock.Info // the longest

	// Rates are of what was seen since the overview before. What happens twice between two
	// readings is seen once, so there may have been more.
	Rates             bool
	Grants, HandOvers float64 // per second

	at   time.Time
	took time.Duration
}

// Loss is a term that its holder did not end.
type Loss struct {
	At     time.Time
	Name   string
	Holder string
	Token  int64
	What   string
}

// Sampler reads all names for all pages together, and compares what it reads with what it read
// before.
type Sampler struct {
	locks *sqllock.Locker
	every time.Duration // a reading
	many  time.Duration // the same, if there are more than a few names

	busy   chan struct{} // has something in it while somebody uses what follows
	last   *Overview
	names  map[string]sampled
	losses []Loss // the newest first
}

// sampled is what is remembered of a name.
type sampled struct {
	token   int64
	state   sqllock.State
	label   string
	awaited bool
	until   time.Time
	most    time.Duration // that the lease was seen to last from a reading on
	silent  bool          // the holder has missed renewals
}

// remember compares a name with what was remembered of it. A holder renews its lease when a
// third of it is over.
func (before sampled) remember(i *sqllock.Info) sampled {
	now := sampled{token: i.Token, state: i.State, label: i.Label, awaited: i.Waiters > 0, until: i.Until}
	if i.State != sqllock.StateHeld || i.Until.IsZero() {
		return now
	}
	left := i.Until.Sub(i.Now)
	now.most = left
	if before.token == now.token {
		now.most = max(left, before.most)
	}
	now.silent = left < now.most/2
	return now
}

// loss returns the loss of what was remembered, if the name as it is now shows one. A term that
// another caller has taken over is lost if its holder was silent and its lease was over.
func (before sampled) loss(i *sqllock.Info) (l Loss, ok bool) {
	l = Loss{At: before.until, Name: i.Name, Holder: before.label, Token: before.token}
	switch {
	case i.Token == before.token && i.State == sqllock.StateExpired && before.state != i.State:
		l.What = "its lease expired"
	case i.Token != before.token && before.silent && i.State != sqllock.StateForced && !i.Since.Before(before.until):
		l.What = "its lease expired, and another caller got the name"
	default:
		return l, false
	}
	return l, true
}

// fewNames are read as often as anybody looks.
const fewNames = 1000

// NewSampler returns a Sampler. A reading lasts for interval, or for many if there are more than
// a thousand names, and longer if it took more than a tenth of that.
func NewSampler(locks *sqllock.Locker, interval, many time.Duration) *Sampler {
	return &Sampler{locks: locks, every: interval, many: max(interval, many), busy: make(chan struct{}, 1)}
}

// Sample returns the last overview and the losses, the newest first, or new ones if those are
// old. It is safe for concurrent use.
func (s *Sampler) Sample(ctx context.Context) (*Overview, []Loss, error) {
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	if s.last == nil || time.Since(s.last.at) >= max(s.lasts()*9/10, 10*s.last.took) {
		if err := s.read(ctx); err != nil {
			return nil, nil, err
		}
	}
	return s.last, slices.Clone(s.losses), nil
}

// lasts is for how long the last reading is good.
func (s *Sampler) lasts() time.Duration {
	if s.last.Names > fewNames {
		return s.many
	}
	return s.every
}

// read makes a new overview.
func (s *Sampler) read(ctx context.Context) error {
	o := &Overview{at: time.Now()}
	before, names := s.names, make(map[string]sampled, len(s.names))
	var grants, handOvers int
	var losses []Loss
	for info, err := range s.locks.List(ctx, sqllock.Limit(maxSampled+1)) {
		if err != nil {
			return err
		}
		if o.Names == maxSampled {
			o.More = true
			break
		}
		o.add(&info)
		was, known := before[info.Name]
		names[info.Name] = was.remember(&info)
		if l, ok := was.loss(&info); ok && known {
			losses = append(losses, l)
		}
		if IsHeld(&info) && was.token != info.Token {
			grants++
			if was.awaited {
				handOvers++
			}
		}
	}
	ended, err := s.ended(ctx, before, names)
	if err != nil {
		return err
	}
	for _, l := range append(losses, ended...) {
		s.lost(l)
	}
	o.took = time.Since(o.at)
	if s.last != nil {
		o.rate(grants, handOvers, o.at.Sub(s.last.at))
	}
	s.last, s.names = o, names
	return nil
}

// ended finds the losses of names that are free now, because a reaper has found them first. After an
// outage there may be thousands: it looks at some.
func (s *Sampler) ended(ctx context.Context, before, now map[string]sampled) (losses []Loss, err error) {
	looks := 0
	for name, was := range before {
		if _, still := now[name]; still || !was.silent || looks == 2*MaxLosses || len(losses) == MaxLosses {
			continue
		}
		looks++
		info, err := s.locks.Inspect(ctx, name)
		if err != nil {
			return nil, err
		}
		if l, ok := was.loss(&info); ok {
			losses = append(losses, l)
		}
	}
	return losses, nil
}

// add counts a name.
func (o *Overview) add(i *sqllock.Info) {
	o.Names++
	switch State(i) {
	case "held":
		o.Held++
	case "expired":
		o.Expired++
	case "kept":
		o.Kept++
	case "detached":
		o.Detached++
	}
	o.Readers += i.Readers
	o.Permits += i.Permits
	o.PermitsHeld += i.PermitsHeld
	if i.Waiters == 0 {
		return
	}
	o.Waiting += i.Waiters
	o.Awaited++
	at, _ := slices.BinarySearchFunc(o.Queues, i.Waiters, func(q sqllock.Info, n int) int { return cmp.Compare(n, q.Waiters) })
	if at < maxQueues {
		o.Queues = slices.Insert(o.Queues, at, *i)
		o.Queues = o.Queues[:min(len(o.Queues), maxQueues)]
	}
}

// rate sets the rates, unless too long a time has passed for them to say something about now.
func (o *Overview) rate(grants, handOvers int, since time.Duration) {
	if since <= 0 || since > maxRateSpan {
		return
	}
	o.Rates = true
	o.Grants = float64(grants) / since.Seconds()
	o.HandOvers = float64(handOvers) / since.Seconds()
}

// lost remembers a loss.
func (s *Sampler) lost(l Loss) {
	s.losses = slices.Insert(s.losses, 0, l)
	s.losses = s.losses[:min(len(s.losses), MaxLosses)]
}

// Forced remembers that somebody took a name away from its holder, and where.
func (s *Sampler) Forced(i *sqllock.Info, where string) {
	s.busy <- struct{}{}
	defer func() { <-s.busy }()
	s.lost(Loss{At: i.Now, Name: i.Name, Holder: i.Label, Token: i.Token, What: "it was taken away " + where})
}
