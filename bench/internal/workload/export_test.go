package workload

import (
	"io"
	"time"

	"github.com/sqllock/sqllock/bench/internal/report"
)

// Times of a grant: its process, caller and when it was asked for, got and freed.
type Times struct {
	Process, Caller    int
	Called, Got, Freed int64
}

// Handovers is handovers.
func Handovers(times []Times, callers int, from, to int64) (report.Sample, int, int) {
	var grants []grant
	for _, t := range times {
		grants = append(grants, grant(t))
	}
	return handovers(grants, callers, from, to)
}

// SpreadNames is namesAllOver.
var SpreadNames = spreadNames

// Serve is serve.
func Serve(in io.Reader, out io.Writer) error { return serve(in, out) }

// Sample is sample of cycles that are given by their beginnings and ends.
func Sample(cycles [][][2]time.Duration, from, to time.Duration) report.Sample {
	spans := make([][]span, len(cycles))
	for c, list := range cycles {
		for _, s := range list {
			spans[c] = append(spans[c], span{s[0], s[1]})
		}
	}
	return sample(spans, span{from, to})
}
