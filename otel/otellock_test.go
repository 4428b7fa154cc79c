package otellock_test

import (
	"errors"
	"fmt"
	"slices"
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
	"github.com/sqllock/sqllock/internal/testdb"
	otellock "github.com/sqllock/sqllock/otel"
)

// measured is what a run has measured.
type measured struct {
	points map[string]string // by metric and attributes: the count, or the sum of a counter
	units  map[string]string
	spans  tracetest.SpanStubs
}

// measure does some work with telemetry.
func measure(t *testing.T, names bool) (m measured, other int) {
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
	d := testdb.New(t, testdb.SQLite)
	locks := newLocks(t, d, telemetry.Hooks(sqllock.Hooks{
		Acquired: func(sqllock.AcquiredEvent) { other++ },
		Lost:     func(sqllock.LostEvent) { other += 100 },
	}))
	work(t, d, locks)
	if err := locks.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := telemetry.Open(); n > 0 {
		t.Errorf("%d leases are remembered", n)
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	m = measured{points: make(map[string]string), units: make(map[string]string), spans: spans.GetSpans()}
	for _, scope := range all.ScopeMetrics {
		for _, metric := range scope.Metrics {
			m.add(metric)
		}
	}
	return m, other
}

func (m *measured) add(metric metricdata.Metrics) {
	m.units[metric.Name] = metric.Unit
	put := func(set attribute.Set, value any) {
		m.points[metric.Name+"{"+set.Encoded(attribute.DefaultEncoder())+"}"] = fmt.Sprint(value)
	}
	switch data := metric.Data.(type) {
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			put(p.Attributes, p.Count)
		}
	case metricdata.Histogram[int64]:
		for _, p := range data.DataPoints {
			put(p.Attributes, p.Count)
		}
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			put(p.Attributes, p.Value)
		}
	}
}

func TestEachEventIsMeasured(t *testing.T) {
	t.Parallel()
	m, other := measure(t, false)
	for key, want := range map[string]string{
		"sqllock.acquire.duration{sqllock.access=exclusive,sqllock.result=granted}": "4",
		"sqllock.acquire.duration{sqllock.access=exclusive,sqllock.result=held}":    "2",
		"sqllock.acquire.duration{sqllock.access=exclusive,sqllock.result=timeout}": "2",
		"sqllock.acquire.duration{sqllock.access=exclusive,sqllock.result=error}":   "1",
		"sqllock.acquire.duration{sqllock.access=shared,sqllock.result=granted}":    "1",
		"sqllock.wait.duration{sqllock.access=exclusive,sqllock.result=granted}":    "1",
		"sqllock.wait.duration{sqllock.access=exclusive,sqllock.result=held}":       "1",
		"sqllock.wait.duration{sqllock.access=exclusive,sqllock.result=timeout}":    "2",
		"sqllock.hold.duration{sqllock.access=exclusive}":                           "4",
		"sqllock.hold.duration{sqllock.access=shared}":                              "1",
		"sqllock.waiters{sqllock.access=exclusive}":                                 "0",
		"sqllock.held{sqllock.access=exclusive}":                                    "0",
		"sqllock.held{sqllock.access=shared}":                                       "0",
		"sqllock.handovers{sqllock.access=exclusive}":                               "1",
		"sqllock.lost{sqllock.access=exclusive,sqllock.reason=revoked by force}":    "1",
		"sqllock.reaped{}": "1",
	} {
		if got := m.points[key]; got != want {
			t.Errorf("%s is %q, want %s", key, got, want)
		}
		delete(m.points, key)
	}
	some := []string{"sqllock.renewal.duration{sqllock.access=exclusive}", "sqllock.statement.duration{sqllock.operation=acquire,sqllock.result=error}"}
	for _, operation := range []string{"acquire", "renew", "release", "read", "revoke", "sweep"} {
		some = append(some, "sqllock.statement.duration{sqllock.operation="+operation+",sqllock.result=ok}", "sqllock.batch.size{sqllock.operation="+operation+"}")
	}
	for _, key := range some { // how many there are is up to the Locker
		if m.points[key] == "" {
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
	if other != 105 {
		t.Errorf("the hooks of the application have counted %d", other)
	}
}

func TestASpanOfALeaseIsLinkedToThatOfItsWait(t *testing.T) {
	t.Parallel()
	m, _ := measure(t, true)
	var names []string
	linked := 0
	for _, s := range m.spans {
		names = append(names, s.Name)
		took := s.EndTime.Sub(s.StartTime)
		if took < 0 || took > testTimeout || s.Parent.IsValid() {
			t.Errorf("%s from %v to %v, parent %v", s.Name, s.StartTime, s.EndTime, s.Parent)
		}
		for _, link := range s.Links {
			i := slices.IndexFunc(m.spans, func(w tracetest.SpanStub) bool { return w.SpanContext.Equal(link.SpanContext) })
			if s.Name != "sqllock.hold" || i < 0 || m.spans[i].Name != "sqllock.wait" || m.spans[i].EndTime.After(s.StartTime.Add(time.Millisecond)) {
				t.Errorf("%s is linked to span %d", s.Name, i)
			}
			linked++
		}
		if name, _ := lookUp(s.Attributes, "sqllock.name"); name == "lost" && s.Status.Code != codes.Error {
			t.Errorf("the span of what was lost: %v", s.Status)
		}
	}
	slices.Sort(names)
	if want := []string{"sqllock.hold", "sqllock.hold", "sqllock.hold", "sqllock.hold", "sqllock.hold", "sqllock.wait", "sqllock.wait", "sqllock.wait", "sqllock.wait"}; !slices.Equal(names, want) || linked != 1 {
		t.Errorf("spans %q, %d links", names, linked)
	}
}

func lookUp(all []attribute.KeyValue, key attribute.Key) (string, bool) {
	for _, a := range all {
		if a.Key == key {
			return a.Value.AsString(), true
		}
	}
	return "", false
}

func TestNamesAreAnAttributeOnlyIfAskedFor(t *testing.T) {
	t.Parallel()
	with, _ := measure(t, true)
	if with.points["sqllock.hold.duration{sqllock.access=shared,sqllock.name=r}"] != "1" || with.points["sqllock.reaped{sqllock.name=crashed}"] != "1" {
		t.Errorf("with names: %v", with.points)
	}
	without, _ := measure(t, false)
	for key := range without.points {
		if strings.Contains(key, "sqllock.name") {
			t.Errorf("without names: %s", key)
		}
	}
	for _, s := range without.spans {
		if _, has := lookUp(s.Attributes, "sqllock.name"); has || s.Status.Description != "" || len(s.Events) > 0 {
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
