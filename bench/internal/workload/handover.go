package workload

import (
	"cmp"
	"slices"

	"github.com/sqllock/sqllock/bench/internal/report"
	"github.com/sqllock/sqllock/bench/internal/stat"
)

// handovers summarizes the grants of names between two times. Overlaps is how often a
// caller got the name before all holders before it had called Unlock, which no lock allows.
// Overlaps outside the two times count, too.
func handovers(grants []grant, callers int, from, to int64) (s report.Sample, count, overlaps int) {
	slices.SortFunc(grants, func(a, b grant) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Got, b.Got))
	})
	shares := make([]float64, callers)
	var took, across []int64
	var longest int64
	var freed int64 // when the last of the holders so far called Unlock
	for i, g := range grants {
		before := grants[max(0, i-1)]
		handedOver := i > 0 && before.Name == g.Name
		if !handedOver {
			freed = 0 // of another name
		}
		if g.Got < freed {
			overlaps++
		}
		freed = max(freed, g.Freed)
		if g.Got < from || g.Got >= to {
			continue
		}
		count++
		shares[g.Caller]++
		longest = max(longest, g.Got-g.Called)
		if handedOver {
			took = append(took, g.Got-before.Freed)
			if g.Process != before.Process {
				across = append(across, g.Got-before.Freed)
			}
		}
	}
	slices.Sort(took)
	slices.Sort(across)
	return report.Sample{
		Cycles: float64(count) / max(1e-9, float64(to-from)/1e9),
		P50:    micros(stat.Percentile(took, 50)), P99: micros(stat.Percentile(took, 99)),
		Across: micros(stat.Percentile(across, 50)),
		Jain:   stat.Jain(shares), Longest: micros(longest) / 1000,
	}, count, overlaps
}
