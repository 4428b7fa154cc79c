package report

import (
	"encoding/json"
	"math"
	"os"
)

// row is a series in the JSON, medians over the rounds. A figure that the
// workload does not measure is 0.
type row struct {
	Workload   string  `json:"workload"`
	Contender  string  `json:"contender"`
	Callers    int     `json:"callers"`
	Durable    bool    `json:"durable"`
	Cycles     float64 `json:"cycles_per_s"`
	P50        float64 `json:"p50_us"`
	P99        float64 `json:"p99_us"`
	Jain       float64 `json:"jain"`
	Statements float64 `json:"statements_per_handover"`
	Rate       float64 `json:"statements_per_s"`
	Conns      float64 `json:"connections"`
}

type document struct {
	Machine Machine `json:"machine"`
	Rows    []row   `json:"rows"`
}

// WriteJSON writes the results to a file.
func (r *Results) WriteJSON(path string, m Machine) error {
	d := document{Machine: m, Rows: []row{}}
	for _, s := range r.All() {
		d.Rows = append(d.Rows, row{
			Workload: s.Workload, Contender: s.Contender, Callers: s.Callers, Durable: s.Durable,
			Cycles: round(s.Median(Cycles)), P50: round(s.Median(P50)), P99: round(s.Median(P99)),
			Jain: round(s.Median(Jain)), Statements: round(s.Median(Statements)),
			Rate: round(s.Median(Rate)), Conns: round(s.Median(Conns)),
		})
	}
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// round keeps four decimals, which a Jain index needs.
func round(v float64) float64 { return math.Round(v*1e4) / 1e4 }
