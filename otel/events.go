package otellock

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/sqllock/sqllock"
)

// none is the context of what hooks measure: they have none of a caller.
var none = context.Background()

// attributes are those that all metrics and spans have.
func (t *Telemetry) attributes(name string, shared, permit bool, more ...attribute.KeyValue) []attribute.KeyValue {
	access := "exclusive"
	switch {
	case permit:
		access = "permit"
	case shared:
		access = "shared"
	}
	all := append(make([]attribute.KeyValue, 0, 4), keyAccess.String(access))
	if t.names {
		all = append(all, keyName.String(name))
	}
	return append(all, more...)
}

func (t *Telemetry) ofLease(l *sqllock.LeaseInfo, more ...attribute.KeyValue) []attribute.KeyValue {
	return t.attributes(l.Name, l.Shared, l.Permit, more...)
}

// with makes attributes an option of a measurement.
func with(a []attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(a...))
}

func (t *Telemetry) waiting(ev sqllock.WaitingEvent) {
	t.waiters.Add(none, 1, with(t.attributes(ev.Name, ev.Shared, ev.Permit)))
}

func (t *Telemetry) skipped(ev sqllock.SkippedEvent) {
	t.acquire.Record(none, ev.Waited.Seconds(), with(t.attributes(ev.Name, ev.Shared, ev.Permit, keyResult.String("held"))))
}

// resultOf is how a call without a lease has ended.
func resultOf(err error) string {
	switch {
	case errors.Is(err, sqllock.ErrHeld):
		return "held"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled), errors.Is(err, sqllock.ErrClosed):
		return "canceled"
	}
	return "error"
}

func (t *Telemetry) failed(ev sqllock.FailedEvent) {
	result := keyResult.String(resultOf(ev.Err))
	t.acquire.Record(none, ev.Waited.Seconds(), with(t.attributes(ev.Name, ev.Shared, ev.Permit, result)))
	if ev.Queued > 0 {
		span := t.waited(ev.Queued, t.attributes(ev.Name, ev.Shared, ev.Permit), result)
		if result.Value.AsString() == "error" {
			span.SetStatus(codes.Error, t.text(ev.Err))
		}
		span.End()
	}
}

// text is what a span tells of an error, which names what is locked.
func (t *Telemetry) text(err error) string {
	if !t.names {
		return ""
	}
	return err.Error()
}

// waited measures a wait that is over, and returns its span, which has not ended.
func (t *Telemetry) waited(queued time.Duration, attributes []attribute.KeyValue, result attribute.KeyValue) trace.Span {
	t.waiters.Add(none, -1, with(attributes))
	all := append(attributes, result)
	t.wait.Record(none, queued.Seconds(), with(all))
	_, span := t.tracer.Start(none, "sqllock.wait", trace.WithNewRoot(), trace.WithTimestamp(ago(time.Now(), queued)), trace.WithAttributes(all...))
	return span
}

func (t *Telemetry) acquired(ev sqllock.AcquiredEvent) {
	now, granted := time.Now(), keyResult.String("granted")
	t.acquire.Record(none, ev.Waited.Seconds(), with(t.ofLease(&ev.LeaseInfo, granted)))
	t.held.Add(none, 1, with(t.ofLease(&ev.LeaseInfo)))
	var links []trace.Link
	if ev.Queued > 0 {
		wait := t.waited(ev.Queued, t.ofLease(&ev.LeaseInfo), granted)
		links = []trace.Link{{SpanContext: wait.SpanContext()}}
		defer wait.End(trace.WithTimestamp(now))
	}
	_, lease := t.tracer.Start(none, "sqllock.hold", trace.WithNewRoot(), trace.WithTimestamp(now), trace.WithLinks(links...),
		trace.WithAttributes(t.ofLease(&ev.LeaseInfo, keyToken.Int64(ev.Token))...))
	t.begin(&ev.LeaseInfo, lease)
}

// reentered ends a wait, with the access that the call wanted, as waiting has counted it. What was
// granted is measured by acquired.
func (t *Telemetry) reentered(ev sqllock.ReenteredEvent) {
	if ev.Queued > 0 {
		t.waited(ev.Queued, t.ofLease(&ev.LeaseInfo), keyResult.String("reentered")).End()
	}
}

func (t *Telemetry) renewed(ev sqllock.RenewedEvent) {
	t.renewal.Record(none, ev.Took.Seconds(), with(t.ofLease(&ev.LeaseInfo)))
}

func (t *Telemetry) inJeopardy(ev sqllock.JeopardyEvent) {
	t.jeopardy.Add(none, 1, with(t.ofLease(&ev.LeaseInfo)))
	t.mu.Lock()
	spans := t.spans[keyOf(&ev.LeaseInfo)]
	t.mu.Unlock()
	for _, span := range spans {
		span.AddEvent("jeopardy", trace.WithAttributes(attribute.Float64("sqllock.remaining", ev.Remaining.Seconds())))
	}
}

func (t *Telemetry) lost(ev sqllock.LostEvent) {
	reason := keyReason.String(ev.Err.Reason.String())
	t.losses.Add(none, 1, with(t.ofLease(&ev.LeaseInfo, reason)))
	if span := t.ended(&ev.LeaseInfo, ev.Held); span != nil {
		span.SetAttributes(reason)
		span.SetStatus(codes.Error, t.text(ev.Err))
		span.End()
	}
}

func (t *Telemetry) unlocked(ev sqllock.UnlockedEvent) {
	if span := t.ended(&ev.LeaseInfo, ev.Held); span != nil {
		if ev.Err != nil {
			span.SetStatus(codes.Error, t.text(ev.Err))
		}
		span.End()
	}
}

// ended measures a lease that has ended, and returns its span, or nil if its end was measured
// before: a lease that was lost can be unlocked too.
func (t *Telemetry) ended(l *sqllock.LeaseInfo, held time.Duration) trace.Span {
	span := t.end(l)
	if span != nil {
		t.held.Add(none, -1, with(t.ofLease(l)))
		t.term.Record(none, held.Seconds(), with(t.ofLease(l)))
	}
	return span
}

func (t *Telemetry) handedOver(ev sqllock.HandedOverEvent) {
	t.handOvers.Add(none, int64(ev.Waiters), with(t.ofLease(&ev.LeaseInfo)))
}

func (t *Telemetry) crashed(ev sqllock.CrashedEvent) {
	var a []attribute.KeyValue
	if t.names {
		a = append(a, keyName.String(ev.Name))
	}
	t.reaped.Add(none, 1, with(a))
}

func (t *Telemetry) statement(ev sqllock.StatementEvent) {
	operation, result := keyOperation.String(ev.Operation), keyResult.String("ok")
	if ev.Err != nil {
		result = keyResult.String("error")
	}
	t.statements.Record(none, ev.Took.Seconds(), with([]attribute.KeyValue{operation, result}))
	t.batch.Record(none, int64(ev.Requests), with([]attribute.KeyValue{operation}))
}
