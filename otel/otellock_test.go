package otellock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sqllock/sqllock"
	otellock "github.com/sqllock/sqllock/otel"
)

// measured is what a run has measured.
type measured struct {
	points  map[string]string  // by metric and attributes: the count, or the sum of a counter
	sums    map[string]float64 // of the durations in seconds, of the sizes of batches, of counters
	units   map[string]string
	spans   tracetest.SpanStubs
	took    time.Duration // the run
	worker  *worker
	counted *tally
}

// tally counts what the hooks of the application are told. They run one at a time.
type tally struct {
	acquired, lost int
	sums           map[string]float64 // by metric, for all attributes together
	batches        map[string]float64 // by operation
}

func (c *tally) add(metric string, d time.Duration) {
	c.sums["sqllock."+metric+".duration"] += d.Seconds()
}

func (c *tally) hooks() sqllock.Hooks {
	return sqllock.Hooks{
		Skipped: func(ev sqllock.SkippedEvent) { c.add("acquire", ev.Waited) },
		Failed:  func(ev sqllock.FailedEvent) { c.add("acquire", ev.Waited); c.add("wait", ev.Queued) },
		Acquired: func(ev sqllock.AcquiredEvent) {
			c.acquired++
			c.add("acquire", ev.Waited)
			c.add("wait", ev.Queued)
		},
		Renewed:  func(ev sqllock.RenewedEvent) { c.add("renewal", ev.Took) },
		Jeopardy: func(sqllock.JeopardyEvent) { c.sums["sqllock.jeopardy"]++ },
		Lost:     func(ev sqllock.LostEvent) { c.lost++; c.add("hold", ev.Held) },
		Unlocked: func(ev sqllock.UnlockedEvent) {
			if ev.Name != "lost" {
				c.add("hold", ev.Held)
			}
		},
		Statement: func(ev sqllock.StatementEvent) {
			c.add("statement", ev.Took)
			c.batches[ev.Operation] += float64(ev.Requests)
		},
	}
}

// measure does some work with telemetry.
func measure(t *testing.T, names bool) (m measured) {
	t.Helper()
	reader, spans := sdkmetric.NewManualReader(), tracetest.NewInMemoryExporter()
	telemetry, err := otellock.New(&otellock.Options{
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)),
		Names:          names,
	})
	if err != nil {
		t.Fatal(err)
	}
	m.counted = &tally{sums: make(map[string]float64), batches: make(map[string]float64)}
	began := time.Now()
	m.worker = newWorker(t, telemetry.Hooks(m.counted.hooks()))
	m.worker.work()
	m.closed(t, m.worker.locks, telemetry)
	m.collect(t, reader)
	m.spans, m.took = spans.GetSpans(), time.Since(began)
	return m
}

// closed closes a Locker, so that all its events have been measured.
func (m *measured) closed(t *testing.T, locks *sqllock.Locker, telemetry *otellock.Telemetry) {
	t.Helper()
	if err := locks.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := telemetry.Open(); n > 0 {
		t.Errorf("%d leases are remembered", n)
	}
}

func (m *measured) collect(t *testing.T, reader sdkmetric.Reader) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	m.points, m.sums, m.units = make(map[string]string), make(map[string]float64), make(map[string]string)
	for _, scope := range all.ScopeMetrics {
		for _, metric := range scope.Metrics {
			m.add(metric)
		}
	}
}

// wants checks what was measured, and leaves the rest.
func (m *measured) wants(t *testing.T, points map[string]string) {
	t.Helper()
	for key, want := range points {
		if got := m.points[key]; got != want {
			t.Errorf("%s is %q, want %s", key, got, want)
		}
		delete(m.points, key)
	}
}

func (m *measured) add(metric metricdata.Metrics) {
	m.units[metric.Name] = metric.Unit
	put := func(set attribute.Set, value any, sum float64) {
		key := metric.Name + "{" + set.Encoded(attribute.DefaultEncoder()) + "}"
		m.points[key], m.sums[key] = fmt.Sprint(value), sum
	}
	switch data := metric.Data.(type) {
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			put(p.Attributes, p.Count, p.Sum)
		}
	case metricdata.Histogram[int64]:
		for _, p := range data.DataPoints {
			put(p.Attributes, p.Count, float64(p.Sum))
		}
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			put(p.Attributes, p.Value, float64(p.Value))
		}
	}
}

// total is the sum of a metric for all attributes together.
func (m *measured) total(metric string) (sum float64) {
	for key, s := range m.sums {
		if strings.HasPrefix(key, metric+"{") {
			sum += s
		}
	}
	return sum
}

func TestEachEventIsMeasured(t *testing.T) {
	t.Parallel()
	m := measure(t, false)
	m.wants(t, map[string]string{
		"sqllock.acquire.duration{sqllock.access=exclusive,sqllock.result=granted}":  "5",
		"sqllock.acquire.duration{sqllock.access=exclusive,sqllock.result=held}":     "2",
		"sqllock.acquire.duration{sqllock.access=exclusive,sqllock.result=timeout}":  "2",
		"sqllock.acquire.duration{sqllock.access=exclusive,sqllock.result=canceled}": "1",
		"sqllock.acquire.duration{sqllock.access=exclusive,sqllock.result=error}":    "1",
		"sqllock.acquire.duration{sqllock.access=shared,sqllock.result=granted}":     "1",
		"sqllock.acquire.duration{sqllock.access=permit,sqllock.result=granted}":     "1",
		"sqllock.wait.duration{sqllock.access=exclusive,sqllock.result=granted}":     "1",
		"sqllock.wait.duration{sqllock.access=exclusive,sqllock.result=held}":        "1",
		"sqllock.wait.duration{sqllock.access=exclusive,sqllock.result=timeout}":     "2",
		"sqllock.wait.duration{sqllock.access=exclusive,sqllock.result=canceled}":    "1",
		"sqllock.hold.duration{sqllock.access=exclusive}":                            "5",
		"sqllock.hold.duration{sqllock.access=shared}":                               "1",
		"sqllock.hold.duration{sqllock.access=permit}":                               "1",
		"sqllock.waiters{sqllock.access=exclusive}":                                  "0",
		"sqllock.held{sqllock.access=exclusive}":                                     "0",
		"sqllock.held{sqllock.access=shared}":                                        "0",
		"sqllock.held{sqllock.access=permit}":                                        "0",
		"sqllock.handovers{sqllock.access=exclusive}":                                "1",
		"sqllock.lost{sqllock.access=exclusive,sqllock.reason=revoked by force}":     "1",
		"sqllock.reaped{}": "1",
	})
	some := []string{
		"sqllock.jeopardy{sqllock.access=exclusive}", "sqllock.renewal.duration{sqllock.access=exclusive}",
		"sqllock.statement.duration{sqllock.operation=acquire,sqllock.result=error}", "sqllock.statement.duration{sqllock.operation=renew,sqllock.result=error}",
	}
	for _, operation := range []string{"acquire", "renew", "release", "read", "revoke", "sweep"} {
		some = append(some, "sqllock.statement.duration{sqllock.operation="+operation+",sqllock.result=ok}", "sqllock.batch.size{sqllock.operation="+operation+"}")
	}
	for _, key := range some { // how many there are is up to the Locker
		if n := m.points[key]; n == "" || n == "0" {
			t.Errorf("%s was not measured", key)
		}
		delete(m.points, key)
	}
	// What the statement that failed may have done is undone, perhaps while the table is still away.
	delete(m.points, "sqllock.statement.duration{sqllock.operation=release,sqllock.result=error}")
	if len(m.points) > 0 {
		t.Errorf("also measured: %v", m.points)
	}
	for name, unit := range m.units {
		if duration := strings.HasSuffix(name, ".duration"); duration != (unit == "s") || !duration && !strings.HasPrefix(unit, "{") {
			t.Errorf("%s has the unit %q", name, unit)
		}
	}
	if m.counted.acquired != 7 || m.counted.lost != 1 {
		t.Errorf("the hooks of the application have counted %d grants and %d losses", m.counted.acquired, m.counted.lost)
	}
}

func TestDurationsAndSizesAreThoseThatTheHooksTell(t *testing.T) {
	t.Parallel()
	m := measure(t, false)
	for metric, want := range m.counted.sums {
		if got := m.total(metric); math.Abs(got-want) > 1e-6 || want == 0 {
			t.Errorf("%s is %v in all, and the hooks were told %v", metric, got, want)
		}
	}
	for operation, want := range m.counted.batches {
		if got := m.sums["sqllock.batch.size{sqllock.operation="+operation+"}"]; got != want || want == 0 {
			t.Errorf("statements to %s had %v requests, and the hooks were told %v", operation, got, want)
		}
	}
	if len(m.counted.sums) != 6 || len(m.counted.batches) != 6 {
		t.Errorf("the hooks were told of %v and %v", m.counted.sums, m.counted.batches)
	}
	for key, least := range m.worker.least {
		const clocks = time.Millisecond // that are not the same
		if got := m.sums[key]; got < (least - clocks).Seconds() {
			t.Errorf("%s is %vs, less than the %v that the test has seen", key, got, least)
		}
	}
	for key, sum := range m.sums {
		if n, err := strconv.Atoi(m.points[key]); strings.Contains(key, ".duration{") && (err != nil || sum > float64(n)*m.took.Seconds()) {
			t.Errorf("%s is %vs for %s in a run of %v", key, sum, m.points[key], m.took)
		}
	}
}

func TestASpanOfALeaseIsLinkedToThatOfItsWait(t *testing.T) {
	t.Parallel()
	m := measure(t, true)
	var names, tokens []string
	linked, jeopardy := 0, 0
	for _, s := range m.spans {
		names = append(names, s.Name)
		took := s.EndTime.Sub(s.StartTime)
		if took < 0 || took > m.took || s.Parent.IsValid() {
			t.Errorf("%s from %v to %v, parent %v", s.Name, s.StartTime, s.EndTime, s.Parent)
		}
		for _, link := range s.Links {
			i := slices.IndexFunc(m.spans, func(w tracetest.SpanStub) bool { return w.SpanContext.Equal(link.SpanContext) })
			if s.Name != "sqllock.hold" || i < 0 || m.spans[i].Name != "sqllock.wait" || m.spans[i].EndTime.After(s.StartTime.Add(time.Millisecond)) {
				t.Errorf("%s is linked to span %d", s.Name, i)
			}
			linked++
		}
		name := lookUp(s.Attributes, "sqllock.name").AsString()
		if name == "lost" && s.Status.Code != codes.Error {
			t.Errorf("the span of what was lost: %v", s.Status)
		}
		if s.Name == "sqllock.hold" && name != "a" { // which LockAll has held while it waited
			tokens = append(tokens, fmt.Sprint(name, " ", lookUp(s.Attributes, "sqllock.token").AsInt64()))
		}
		if name == "in jeopardy" {
			jeopardy = eventsOfJeopardy(t, s)
		}
	}
	slices.Sort(names)
	if want := slices.Concat(slices.Repeat([]string{"sqllock.hold"}, 7), slices.Repeat([]string{"sqllock.wait"}, 5)); !slices.Equal(names, want) || linked != 1 {
		t.Errorf("spans %q, %d links", names, linked)
	}
	slices.Sort(tokens)
	slices.Sort(m.worker.tokens)
	if !slices.Equal(tokens, m.worker.tokens) {
		t.Errorf("spans have the tokens %q, the leases %q", tokens, m.worker.tokens)
	}
	if jeopardy == 0 {
		t.Error("no span tells of the jeopardy")
	}
}

// eventsOfJeopardy checks the events of a span, and returns how many there are.
func eventsOfJeopardy(t *testing.T, s tracetest.SpanStub) int {
	t.Helper()
	for _, ev := range s.Events {
		left := lookUp(ev.Attributes, "sqllock.remaining").AsFloat64()
		if ev.Name != "jeopardy" || left <= 0 || left > ttl.Seconds() || ev.Time.Before(s.StartTime) || ev.Time.After(s.EndTime) {
			t.Errorf("%s at %v, %v s before the end", ev.Name, ev.Time, left)
		}
	}
	return len(s.Events)
}

// lookUp returns the value of an attribute, or one of the type INVALID.
func lookUp(all []attribute.KeyValue, key attribute.Key) attribute.Value {
	for _, a := range all {
		if a.Key == key {
			return a.Value
		}
	}
	return attribute.Value{}
}

// Two calls of one owner wait for a stranger. One of them is granted the name exclusively. The
// other one, which wants to share the name, re-enters that lease.
func TestAWaitThatEndsInAReentryIsMeasuredWithTheAccessOfTheCall(t *testing.T) {
	t.Parallel()
	reader := sdkmetric.NewManualReader()
	telemetry, err := otellock.New(&otellock.Options{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorker(t, telemetry.Hooks(sqllock.Hooks{}))
	held := w.lock("k")
	ctx := sqllock.WithOwner(t.Context(), "x")
	leases := make(chan *sqllock.Lease, 2)
	for i, lock := range []func(context.Context, string, ...sqllock.LockOption) (*sqllock.Lease, error){w.locks.Lock, w.locks.RLock} {
		go func() {
			lease, err := lock(ctx, "k")
			if err != nil {
				t.Error(err)
			}
			leases <- lease
		}()
		w.hear("waits for k", 1)
		awaitWaiters(t, w.locks, "k", i+1)
	}
	unlock(t, held)
	both := []*sqllock.Lease{<-leases, <-leases}
	awaitWaiters(t, w.locks, "k", 0) // the call that has re-entered does not wait in the database
	for _, lease := range both {
		unlock(t, lease)
	}
	var m measured
	m.closed(t, w.locks, telemetry)
	m.collect(t, reader)
	m.wants(t, map[string]string{
		"sqllock.acquire.duration{sqllock.access=exclusive,sqllock.result=granted}": "2",
		"sqllock.wait.duration{sqllock.access=exclusive,sqllock.result=granted}":    "1",
		"sqllock.wait.duration{sqllock.access=shared,sqllock.result=reentered}":     "1",
		"sqllock.waiters{sqllock.access=exclusive}":                                 "0",
		"sqllock.waiters{sqllock.access=shared}":                                    "0",
		"sqllock.held{sqllock.access=exclusive}":                                    "0",
		"sqllock.held{sqllock.access=shared}":                                       "",
	})
}

func TestNamesAreAnAttributeOnlyIfAskedFor(t *testing.T) {
	t.Parallel()
	with := measure(t, true)
	if with.points["sqllock.hold.duration{sqllock.access=shared,sqllock.name=r}"] != "1" || with.points["sqllock.reaped{sqllock.name=crashed}"] != "1" {
		t.Errorf("with names: %v", with.points)
	}
	without := measure(t, false)
	for key := range without.points {
		if strings.Contains(key, "sqllock.name") {
			t.Errorf("without names: %s", key)
		}
	}
	for _, s := range without.spans {
		if has := lookUp(s.Attributes, "sqllock.name").Type() != attribute.EMPTY; has || s.Status.Description != "" {
			t.Errorf("without names: %+v", s)
		}
	}
}

var errRefused = errors.New("refused")

// provider makes meters that refuse counters.
type provider struct{ noop.MeterProvider }

func (provider) Meter(string, ...metric.MeterOption) metric.Meter { return refusingMeter{} }

type refusingMeter struct{ noop.Meter }

func (refusingMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return nil, errRefused
}

func TestAnInstrumentThatIsRefusedIsAnError(t *testing.T) {
	t.Parallel()
	if got, err := otellock.New(&otellock.Options{MeterProvider: provider{}}); got != nil || !errors.Is(err, errRefused) {
		t.Errorf("New = %v, %v", got, err)
	}
	if _, err := otellock.New(nil); err != nil {
		t.Errorf("New without options: %v", err)
	}
}
