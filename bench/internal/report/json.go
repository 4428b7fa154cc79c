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
	Across     float64 `json:"across_us"`
	Jain       float64 `json:"jain"`
	Statements float64 `json:"statements_per_handover"`
	Rate       float64 `json:"statements_per_s"`
	RowRate    float64 `json:"rows_per_s"`
	LogRate    float64 `json:"log_bytes_per_s"`
	Conns      float64 `json:"connections"`
	Allocs     float64 `json:"allocs"`
	CPU        float64 `json:"client_cpu_us"`
	ServerCPU  float64 `json:"server_cpu_us"`
	Failures   int     `json:"failed"` // in all rounds
}

type document struct {
	Machine Machine `json:"machine"`
	Rows    []row   `json:"rows"`
}

// WriteJSON writes the results to a file.
func (r *Results) WriteJSON(path string, m Machine) error {
	d := document{Machine: m, Rows: []row{}}
	for _, s := range r.All() {
		m := func(figure func(Sample) float64) float64 { return round(s.Median(figure)) }
		d.Rows = append(d.Rows, row{
			Workload: s.Workload, Contender: s.Contender, Callers: s.Callers, Durable: s.Durable,
			Cycles: m(Cycles), P50: m(P50), P99: m(P99), Across: m(Across), Jain: m(Jain),
			Statements: m(Statements), Rate: m(Rate), RowRate: m(RowRate), LogRate: m(LogRate),
			Conns: m(Conns), Allocs: m(Allocs), CPU: m(CPU), ServerCPU: m(ServerCPU),
			Failures: s.Failures(),
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
