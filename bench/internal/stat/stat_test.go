package stat_test

import (
	"math"
	"testing"

	"github.com/sqllock/sqllock/bench/internal/stat"
)

func TestTheMedianIsTheMiddleInAnyOrder(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0}, {[]float64{7}, 7}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 100}, 3.5},
	} {
		if got := stat.Median(c.values); got != c.want {
			t.Errorf("Median(%v) = %v, want %v", c.values, got, c.want)
		}
	}
}

func TestPercentileIsTheSmallestValueThatEnoughDoNotExceed(t *testing.T) {
	hundred := make([]int64, 100)
	for i := range hundred {
		hundred[i] = int64(i + 1)
	}
	for _, c := range []struct {
		sorted []int64
		p      float64
		want   int64
	}{
		{nil, 50, 0}, {[]int64{3}, 99, 3}, {hundred, 50, 50}, {hundred, 99, 99}, {hundred, 100, 100}, {hundred, 0, 1},
		{[]int64{1, 2, 3}, 50, 2},
	} {
		if got := stat.Percentile(c.sorted, c.p); got != c.want {
			t.Errorf("Percentile(%v values, %v) = %d, want %d", len(c.sorted), c.p, got, c.want)
		}
	}
}

func TestJainIndexIsOneForEqualSharesAndOneOverNForASingleShare(t *testing.T) {
	for _, c := range []struct {
		shares []float64
		want   float64
	}{
		{nil, 0}, {[]float64{0, 0}, 0}, {[]float64{5, 5, 5}, 1}, {[]float64{8, 0, 0, 0}, 0.25}, {[]float64{1, 3}, 0.8},
	} {
		if got := stat.Jain(c.shares); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("Jain(%v) = %v, want %v", c.shares, got, c.want)
		}
	}
}
