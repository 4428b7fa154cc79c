package workload

import (
	"cmp"
	"slices"

	"github.com/sqllock/sqllock/bench/internal/report"
	"github.com/sqllock/sqllock/bench/internal/stat"
)

// handovers summarizes the grants of one name between two times. Overlaps is how often a
// caller got the name before the previous holder had called Unlock, which no lock allows.
func handovers(grants []grant, callers int, from, to int64) (s report.Sample, count, overlaps int) {
	slices.SortFunc(grants, func(a, b grant) int { return cmp.Compare(a.Got, b.Got) })
	shares := make([]float64, callers)
	var took, across []int64
	var longest int64
	for i, g := range grants {
		if i > 0 && g.Got < grants[i-1].Freed {
			overlaps++
		}
		if g.Got < from || g.Got >= to {
			continue
		}
		count++
		shares[g.Caller]++
		longest = max(longest, g.Got-g.Called)
		if i > 0 {
			took = append(took, g.Got-grants[i-1].Freed)
			if g.Process != grants[i-1].Process {
				across = append(across, g.Got-grants[i-1].Freed)
			}
		}
	}
	slices.Sort(took)
	slices.Sort(across)
	return report.Sample{
		Cycles: float64(count) / (float64(to-from) / 1e9),
		P50:    micros(stat.Percentile(took, 50)), P99: micros(stat.Percentile(took, 99)),
		Across: micros(stat.Percentile(across, 50)),
		Jain:   stat.Jain(shares), Longest: micros(longest) / 1000,
	}, count, overlaps
}
