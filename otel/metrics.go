package otellock

import (
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Attributes of metrics and spans.
//
// The result of a call is granted, held, timeout, canceled or error. That of a wait may also be
// reentered. That of a statement is ok or error.
const (
	keyName      = attribute.Key("sqllock.name")
	keyAccess    = attribute.Key("sqllock.access")    // exclusive, shared or permit
	keyResult    = attribute.Key("sqllock.result")    // see above
	keyReason    = attribute.Key("sqllock.reason")    // of a loss
	keyOperation = attribute.Key("sqllock.operation") // of a statement
	keyToken     = attribute.Key("sqllock.token")     // of spans only
)

// instruments are the metrics.
type instruments struct {
	acquire, wait, term, renewal metric.Float64Histogram
	statements                   metric.Float64Histogram
	batch                        metric.Int64Histogram
	waiters, held                metric.Int64UpDownCounter
	jeopardy, losses, reaped     metric.Int64Counter
	handOvers                    metric.Int64Counter
}

// seconds are the bounds of the histograms: from a statement on a fast disk to a day.
var seconds = metric.WithExplicitBucketBoundaries(
	.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400)

// sizes are the bounds of the histogram of batches, up to the largest.
var sizes = metric.WithExplicitBucketBoundaries(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

func (i *instruments) make(m metric.Meter) error {
	var errs []error
	duration := func(name, description string) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description), seconds)
		errs = append(errs, err)
		return h
	}
	level := func(name, unit, description string) metric.Int64UpDownCounter {
		c, err := m.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)
		return c
	}
	count := func(name, unit, description string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)
		return c
	}
	i.acquire = duration("sqllock.acquire.duration", "From a call that wants a name to its result.")
	i.wait = duration("sqllock.wait.duration", "How long calls waited for a name that others held.")
	i.term = duration("sqllock.hold.duration", "From the grant of a lease to its end.")
	i.renewal = duration("sqllock.renewal.duration", "From the request of a renewal to its reply.")
	i.statements = duration("sqllock.statement.duration", "From a statement of a Locker to the reply of the database.")
	var err error
	i.batch, err = m.Int64Histogram("sqllock.batch.size", metric.WithUnit("{request}"), metric.WithDescription("Requests that share a statement."), sizes)
	errs = append(errs, err)
	i.waiters = level("sqllock.waiters", "{call}", "Calls of this process that wait.")
	i.held = level("sqllock.held", "{lease}", "Leases that this process holds.")
	i.jeopardy = count("sqllock.jeopardy", "{lease}", "Leases of which a renewal failed.")
	i.losses = count("sqllock.lost", "{lease}", "Leases that were lost.")
	i.handOvers = count("sqllock.handovers", "{waiter}", "Waiters that got a name from the Unlock of this process.")
	i.reaped = count("sqllock.reaped", "{lease}", "Leases of crashed holders, of any process, that this one has ended.")
	return errors.Join(errs...)
}
