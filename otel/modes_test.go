package otellock_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/migrations"
	otellock "github.com/sqllock/sqllock/otel"
)

// The hooks are the same in all modes, which the tests of the core check.
func TestAdvisoryModeOnPostgresIsMeasured(t *testing.T) {
	t.Parallel()
	if !slices.Contains(testdb.Engines(), testdb.Postgres) {
		t.Log("there is no Postgres here")
		return
	}
	reader := sdkmetric.NewManualReader()
	telemetry, err := otellock.New(&otellock.Options{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	if err != nil {
		t.Fatal(err)
	}
	db := testdb.New(t, testdb.Postgres).Open(t)
	if err := migrations.Up(t.Context(), lockpg.DB(db)); err != nil {
		t.Fatal(err)
	}
	waits := make(chan string, 10)
	hooks := telemetry.Hooks(sqllock.Hooks{Waiting: func(ev sqllock.WaitingEvent) { waits <- ev.Name }})
	locks, err := sqllock.NewAdvisory(t.Context(), lockpg.DB(db), &sqllock.AdvisoryOptions{Hooks: &hooks, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	lockTwice(t, locks, waits)

	var m measured
	m.closed(t, locks, telemetry)
	m.collect(t, reader)
	m.wants(t, map[string]string{
		"sqllock.acquire.duration{sqllock.access=exclusive,sqllock.result=granted}": "2",
		"sqllock.acquire.duration{sqllock.access=exclusive,sqllock.result=held}":    "1",
		"sqllock.wait.duration{sqllock.access=exclusive,sqllock.result=granted}":    "1",
		"sqllock.hold.duration{sqllock.access=exclusive}":                           "2",
		"sqllock.waiters{sqllock.access=exclusive}":                                 "0",
		"sqllock.held{sqllock.access=exclusive}":                                    "0",
	})
}

// lockTwice holds a name, tries to lock it, waits for it, and holds it again.
func lockTwice(t *testing.T, locks *sqllock.Locker, waits <-chan string) {
	t.Helper()
	held, err := locks.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locks.TryLock(t.Context(), "k"); err == nil {
		t.Fatal("the name is not held")
	}
	done := make(chan error)
	go func() { done <- locks.Do(t.Context(), "k", func(context.Context, *sqllock.Lease) error { return nil }) }()
	select {
	case <-waits:
	case err := <-done:
		t.Fatalf("Do, while the name was held: %v", err)
	case <-t.Context().Done():
		t.Fatal("nobody waits")
	}
	unlock(t, held)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
