// Package stat has the few statistics that the benchmarks report.
package stat

import (
	"math"
	"slices"
)

// Median returns the middle of the values, the mean of the two middle ones if
// their number is even, and 0 if there are none.
func Median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// MedianOf returns the median of the figures of all items.
func MedianOf[T any](items []T, figure func(T) float64) float64 {
	values := make([]float64, len(items))
	for i, item := range items {
		values[i] = figure(item)
	}
	return Median(values)
}

// Percentile returns the smallest value that at least p percent of the sorted
// values do not exceed, and 0 if there are none.
func Percentile(sorted []int64, p float64) int64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Jain returns Jain's index of fairness. It is 1 if all shares are equal, 1/n if one of n
// has everything, and 0 if all shares are 0.
func Jain(shares []float64) float64 {
	var sum, squares float64
	for _, s := range shares {
		sum += s
		squares += s * s
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(shares)) * squares)
}
