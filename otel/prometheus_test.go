//go:build prometheus

// Run with make telemetry, which installs Prometheus.
package otellock_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/sqllock/sqllock"
	otellock "github.com/sqllock/sqllock/otel"
)

func TestPromtoolAcceptsTheAlerts(t *testing.T) {
	if out, err := exec.Command("promtool", "check", "rules", "prometheus/alerts.yml").CombinedOutput(); err != nil || !strings.Contains(string(out), "5 rules found") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestEachQueryReturnsDataOfARealRun(t *testing.T) {
	server := startPrometheus(t, serveMetrics(t))
	queries := map[string]string{
		"the alert for losses": `sum by (job, sqllock_reason) (increase(sqllock_lost_total[1m]))`,
	}
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			queries[p.Title+" "+target.RefID] = strings.NewReplacer("$__rate_interval", "1m", "$job", ".*").Replace(target.Expr)
		}
	}
	for end := time.Now().Add(testTimeout); len(queries) > 0; time.Sleep(500 * time.Millisecond) {
		for title, expr := range queries {
			value, isLevel := query(t, server, expr), strings.Contains(expr, "sqllock_held") || strings.Contains(expr, "sqllock_waiters")
			if value != "" && value != "NaN" && (value != "0" || isLevel) {
				t.Logf("%s: %s", title, value)
				delete(queries, title)
			}
		}
		if time.Now().After(end) {
			t.Fatalf("no data for %q", queries)
		}
	}
}

// serveMetrics has a Locker work, and serves what is measured.
func serveMetrics(t *testing.T) (address string) {
	t.Helper()
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		t.Fatal(err)
	}
	telemetry, err := otellock.New(&otellock.Options{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorker(t, telemetry.Hooks(sqllock.Hooks{}))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			w.work()
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-stopped })
	metrics := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(metrics.Close)
	return metrics.Listener.Addr().String()
}

// startPrometheus starts a server that scrapes an address each second, with the alerts.
func startPrometheus(t *testing.T, scraped string) (address string) {
	t.Helper()
	dir := t.TempDir()
	rules, err := filepath.Abs("prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("global: {scrape_interval: 1s}\nrule_files: [%q]\nscrape_configs: [{job_name: test, static_configs: [{targets: [%q]}]}]\n", rules, scraped)
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = free.Addr().String()
	_ = free.Close()
	cmd := exec.Command("prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	cmd.Stderr = &strings.Builder{}
	if err := cmd.Start(); err != nil {
		t.Fatalf("run otel/setup.sh: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(cmd.Stderr)
		}
	})
	return address
}

// query returns the first value that a query returns, or "".
func query(t *testing.T, address, expr string) string {
	t.Helper()
	res, err := http.Get("http://" + address + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return "" // it has not started yet
	}
	defer func() { _ = res.Body.Close() }()
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct{ Value [2]any }
		}
	}
	if json.NewDecoder(res.Body).Decode(&answer) != nil || res.StatusCode == http.StatusServiceUnavailable {
		return ""
	}
	if answer.Status != "success" {
		t.Fatalf("%s: %s", expr, answer.Error)
	}
	if len(answer.Data.Result) == 0 {
		return ""
	}
	return fmt.Sprint(answer.Data.Result[0].Value[1])
}
