package otellock_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

// dashboard is what a test reads of grafana/sqllock.json.
type dashboard struct {
	Title, UID string
	Panels     []struct {
		ID      int
		Title   string
		Type    string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ Expr, RefID string }
	}
	Templating struct {
		List []struct{ Name, Query string }
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	text, err := os.ReadFile("grafana/sqllock.json")
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func readAlerts(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	series   = regexp.MustCompile(`\bsqllock_\w+\b`)
	variable = regexp.MustCompile(`\$\{?(\w+)`)
)

// exported are the names that the metrics have in Prometheus, and their labels.
func exported() map[string]bool {
	names := map[string]bool{
		"sqllock_waiters": true, "sqllock_held": true, "sqllock_result": true, "sqllock_access": true, "sqllock_reason": true, "sqllock_operation": true,
		"sqllock_batch_size_sum": true, "sqllock_batch_size_count": true, "sqllock_batch_size_bucket": true,
	}
	for _, name := range []string{"acquire", "wait", "hold", "renewal", "statement"} {
		names["sqllock_"+name+"_duration_seconds_count"] = true
		names["sqllock_"+name+"_duration_seconds_bucket"] = true
	}
	for _, name := range []string{"jeopardy", "lost", "handovers", "reaped"} {
		names["sqllock_"+name+"_total"] = true
	}
	return names
}

func TestTheDashboardAndTheAlertsAskForMetricsThatExist(t *testing.T) {
	t.Parallel()
	known, used := exported(), make(map[string]bool)
	look := func(where, query string) {
		for _, name := range series.FindAllString(query, -1) {
			if used[name] = true; !known[name] {
				t.Errorf("%s asks for %s", where, name)
			}
		}
	}
	look("an alert", readAlerts(t))
	clear(used) // each is asked for by a panel too
	d := readDashboard(t)
	at := make(map[[2]int]string)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			look(p.Title, target.Expr)
			for _, m := range variable.FindAllStringSubmatch(target.Expr, -1) {
				if !strings.HasPrefix(m[1], "__") && m[1] != "job" && m[1] != "datasource" {
					t.Errorf("%s has the variable %s, which the dashboard has not", p.Title, m[1])
				}
			}
		}
		cell := [2]int{p.GridPos.X, p.GridPos.Y}
		if p.Title == "" || p.Type != "timeseries" || len(p.Targets) == 0 || at[cell] != "" || p.GridPos.W != 12 {
			t.Errorf("panel %d %q of type %q has %d queries, beside %q", p.ID, p.Title, p.Type, len(p.Targets), at[cell])
		}
		at[cell] = p.Title
	}
	for _, v := range d.Templating.List {
		look(v.Name, v.Query)
	}
	if d.UID == "" || len(d.Panels) < 10 || len(d.Templating.List) != 2 {
		t.Errorf("%q has %d panels, %d variables", d.Title, len(d.Panels), len(d.Templating.List))
	}
	for name := range known {
		if !used[name] && !strings.HasSuffix(name, "_count") {
			t.Errorf("no panel asks for %s", name)
		}
	}
}
