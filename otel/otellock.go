// Package otellock measures the locks of sqllock with OpenTelemetry: metrics, and a span for
// each wait and for each lease, through the hooks of a Locker.
//
//	telemetry, err := otellock.New(nil)
//	hooks := telemetry.Hooks(sqllock.Hooks{})
//	locks, err := sqllock.NewUnique(ctx, db, &sqllock.UniqueOptions{Hooks: &hooks})
//
// Hooks run after the fact, on a goroutine of the Locker: whatever an exporter does, it delays
// no lock and no renewal. A Locker without them pays nothing.
package otellock

import (
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/sqllock/sqllock"
)

// scope is the name of the instrumentation.
const scope = "github.com/sqllock/sqllock/otel"

// Options are the options of [New]. The zero value has the defaults.
type Options struct {
	// MeterProvider makes the instruments. The default is that of the process,
	// [otel.GetMeterProvider].
	MeterProvider metric.MeterProvider

	// TracerProvider makes the spans. The default is that of the process,
	// [otel.GetTracerProvider].
	TracerProvider trace.TracerProvider

	// Names adds the attribute sqllock.name, the name that is locked, to metrics and spans.
	// Each name makes a time series of its own in each metric, for ever: set it only if you
	// have few names. The default is false.
	Names bool
}

// Telemetry measures Lockers. It is safe for concurrent use, and for any number of Lockers.
type Telemetry struct {
	names  bool
	tracer trace.Tracer
	instruments

	mu    sync.Mutex
	spans map[leaseKey][]trace.Span // that have not ended
}

// New returns a Telemetry. opts may be nil. It returns the error of the MeterProvider, if that
// refuses an instrument.
func New(opts *Options) (*Telemetry, error) {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	t := &Telemetry{names: o.Names, tracer: o.TracerProvider.Tracer(scope), spans: make(map[leaseKey][]trace.Span)}
	if err := t.instruments.make(o.MeterProvider.Meter(scope)); err != nil {
		return nil, fmt.Errorf("sqllock/otel: %w", err)
	}
	return t, nil
}

// Hooks returns hooks for a Locker. They call those of others too, which may be the zero value.
func (t *Telemetry) Hooks(others sqllock.Hooks) sqllock.Hooks {
	h := others
	h.Waiting = both(t.waiting, others.Waiting)
	h.Skipped = both(t.skipped, others.Skipped)
	h.Failed = both(t.failed, others.Failed)
	h.Acquired = both(t.acquired, others.Acquired)
	h.Reentered = both(t.reentered, others.Reentered)
	h.Renewed = both(t.renewed, others.Renewed)
	h.Jeopardy = both(t.inJeopardy, others.Jeopardy)
	h.Lost = both(t.lost, others.Lost)
	h.Unlocked = both(t.unlocked, others.Unlocked)
	h.HandedOver = both(t.handedOver, others.HandedOver)
	h.Crashed = both(t.crashed, others.Crashed)
	h.Statement = both(t.statement, others.Statement)
	return h
}

func both[E any](first, second func(E)) func(E) {
	if second == nil {
		return first
	}
	return func(ev E) {
		first(ev)
		second(ev)
	}
}

// leaseKey tells leases apart.
type leaseKey struct {
	name, owner string
	token       int64
	slot        int
}

func keyOf(l *sqllock.LeaseInfo) leaseKey { return leaseKey{l.Name, l.Owner, l.Token, l.Slot} }

// begin remembers the span of a lease.
func (t *Telemetry) begin(l *sqllock.LeaseInfo, span trace.Span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := keyOf(l)
	t.spans[key] = append(t.spans[key], span)
}

// end returns the span of a lease, or nil if the lease has none that has not ended.
func (t *Telemetry) end(l *sqllock.LeaseInfo) trace.Span {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := keyOf(l)
	spans := t.spans[key]
	if len(spans) == 0 {
		return nil
	}
	if t.spans[key] = spans[1:]; len(spans) == 1 {
		delete(t.spans, key)
	}
	return spans[0]
}

// ago is when something began that has lasted for so long.
func ago(now time.Time, d time.Duration) time.Time { return now.Add(-d) }
