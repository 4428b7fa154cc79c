package plot_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/bench/internal/plot"
)

func TestPlotsDrawValuesWithoutALogarithm(t *testing.T) {
	dir := t.TempDir()
	lines, ranges := filepath.Join(dir, "lines.svg"), filepath.Join(dir, "ranges.svg")
	if err := plot.Lines(lines, "t", "x", "y", []plot.Line{{Label: "a", Points: []plot.Point{{1, 0}, {2, math.Pi}}}}); err != nil {
		t.Fatal(err)
	}
	if err := plot.Ranges(ranges, "t", "x", []plot.Range{{Label: "<a>", P50: 0, P99: 1}}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{lines, ranges} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > 10_000 || strings.Contains(string(text), "NaN") || strings.Contains(string(text), "Inf") || strings.Contains(string(text), "<a>") {
			t.Errorf("%s is\n%.2000s", path, text)
		}
	}
}
