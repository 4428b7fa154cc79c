package report

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/sqllock/sqllock/bench/internal/plot"
)

// WritePlots draws throughput against callers, near and a millisecond away, and
// the latencies of cycles and hand-overs.
func (r *Results) WritePlots(dir string) error {
	far := func(s *Series) bool { return strings.HasSuffix(s.Contender, "@1ms") }
	near := func(s *Series) bool { return !far(s) }
	errs := []error{
		r.throughput(filepath.Join(dir, "throughput.svg"), "Lock and Unlock of distinct names", near),
		r.throughput(filepath.Join(dir, "throughput-1ms.svg"), "Lock and Unlock of distinct names, 1 ms away", far),
		r.latency(filepath.Join(dir, "handover.svg"), "Hand-over of one name, 2 processes × 8 callers", Key{Workload: Hot, Callers: 16}, near),
	}
	for _, callers := range []int{1, 1024} {
		path := filepath.Join(dir, fmt.Sprintf("latency-%d.svg", callers))
		title := fmt.Sprintf("Lock and Unlock of distinct names, %d at a time", callers)
		errs = append(errs, r.latency(path, title, Key{Workload: Distinct, Callers: callers}, near))
	}
	return errors.Join(errs...)
}

func (r *Results) throughput(path, title string, which func(*Series) bool) error {
	var lines []plot.Line
	index := make(map[string]int)
	for _, s := range r.All() {
		if s.Workload != Distinct || !which(s) || s.Median(Cycles) <= 0 {
			continue
		}
		i, there := index[s.Contender]
		if !there {
			i = len(lines)
			index[s.Contender] = i
			lines = append(lines, plot.Line{Label: s.Contender + durability(s), Dashed: !strings.HasPrefix(s.Contender, "sqllock/")})
		}
		lines[i].Points = append(lines[i].Points, plot.Point{X: float64(s.Callers), Y: s.Median(Cycles)})
	}
	return plot.Lines(path, title+" (* durable)", "callers", "cycles per second", lines)
}

func (r *Results) latency(path, title string, of Key, which func(*Series) bool) error {
	var ranges []plot.Range
	for _, s := range r.All() {
		if s.Workload == of.Workload && s.Callers == of.Callers && which(s) && s.Median(P50) > 0 && s.Median(P99) > 0 {
			ranges = append(ranges, plot.Range{Label: s.Contender + durability(s), P50: s.Median(P50), P99: s.Median(P99)})
		}
	}
	return plot.Ranges(path, title+" (* durable)", "µs, median and 99th percentile", ranges)
}

func durability(s *Series) string {
	if s.Durable {
		return " *"
	}
	return ""
}
