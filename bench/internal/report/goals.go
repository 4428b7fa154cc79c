package report

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// goal is a figure that the project wants to reach. Must, aim and least are 0 where
// there is none.
type goal struct {
	text      string
	atLeast   bool // or at most
	must, aim float64
	least     float64 // below it the goal is missed, also where must is the most
	keys      []Key   // of the series that the figure is made of
	value     func(*Results) (float64, bool)
}

// ratio is a goal for the ratio of a to b in one figure.
func ratio(text string, atLeast bool, must, aim float64, a, b Key, figure func(Sample) float64) goal {
	return quotient(text, atLeast, must, aim, a, figure, b, figure)
}

// figure is a goal for a figure itself.
func figure(text string, atLeast bool, must, aim float64, k Key, f func(Sample) float64) goal {
	return goal{text, atLeast, must, aim, 0, []Key{k}, func(r *Results) (float64, bool) {
		s := r.Get(k)
		if s == nil {
			return 0, false
		}
		return s.Median(f), true
	}}
}

// quotient is a goal for the ratio of two different figures.
func quotient(text string, atLeast bool, must, aim float64, a Key, fa func(Sample) float64, b Key, fb func(Sample) float64) goal {
	return goal{text, atLeast, must, aim, 0, []Key{a, b}, func(r *Results) (float64, bool) { return r.Quotient(a, fa, b, fb) }}
}

const (
	postgres         = "sqllock/postgres/unique"
	postgresAdvisory = "sqllock/postgres/advisory"
	mariadb          = "sqllock/mariadb/unique"
	mariadbAdvisory  = "sqllock/mariadb/advisory"
	sqlite           = "sqllock/sqlite/unique"
)

func distinct(contender string, callers int) Key { return Key{Distinct, contender, callers} }

func floor(statements string, callers int) Key { return Key{Floor, statements, callers} }

// goals are those of the project.
func goals() []goal {
	return slices.Concat(oneCallerGoals(), handoverGoals(), namesGoals(), throughputGoals(), hooksGoals(), idleGoals(), growthGoals())
}

func oneCallerGoals() []goal {
	return []goal{
		ratio("time of a cycle by that of a durable and an unflushed UPDATE, 1 caller, "+postgres, false, 1.3, 1.15,
			distinct(postgres, 1), floor("postgres/cycle", 1), P50),
		ratio("time of a cycle by that of its two UPDATEs, 1 caller, "+mariadb, false, 1.5, 1.3,
			distinct(mariadb, 1), floor("mariadb/cycle", 1), P50),
		figure("allocations per cycle, 1 caller, "+postgres, false, 60, 0, distinct(postgres, 1), Allocs),
		figure("allocations per cycle, 1 caller, "+mariadb, false, 60, 0, distinct(mariadb, 1), Allocs),
	}
}

func handoverGoals() []goal {
	hot := func(contender string) Key { return Key{Hot, contender, 16} }
	return []goal{
		quotient("hand-over between two processes by a durable UPDATE, p50, "+postgres, false, 3, 2.2,
			Key{Handover, postgres, 2}, Across, floor("postgres/update@handover", 1), P50),
		ratio("hand-overs of a hot name, "+postgres+" × redislock/always", true, 1.2, 1.4,
			hot(postgres), hot("redislock/always"), Cycles),
		ratio("hand-overs of a hot name, "+postgres+" × zookeeper", true, 2, 0,
			hot(postgres), hot("zookeeper"), Cycles),
		ratio("hand-overs of a hot name × durable UPDATEs by one caller, "+mariadb, true, 0.15, 0,
			hot(mariadb), floor("mariadb/update@hot", 1), Cycles),
		figure("Jain index of a hot name, "+mariadb, true, 0.99, 0, hot(mariadb), Jain),
	}
}

func namesGoals() []goal {
	names := func(n, lockers int, flush string) Key {
		return Key{Names, fmt.Sprintf("%s@%dnames%s", postgres, n, flush), lockers}
	}
	const slow = "@slowflush"
	notify := func(beside string) Key { return floor("postgres/notify"+beside, 1) }
	return []goal{
		ratio("hand-overs, 16 names × 1 name, 32 Lockers, "+postgres, true, 2.5, 0, names(16, 32, ""), names(1, 32, ""), Cycles),
		ratio("hand-overs, 64 names × 1 name, 64 Lockers, "+postgres, true, 2.5, 0, names(64, 64, ""), names(1, 64, ""), Cycles),
		ratio("hand-overs, 64 names × 1 name, 64 Lockers, flush 1 ms slower, "+postgres, true, 4, 0,
			names(64, 64, slow), names(1, 64, slow), Cycles),
		ratio("hand-overs of 64 names × UPDATEs of 64 rows, "+postgres, true, 0.2, 0.35,
			names(64, 64, ""), floor("postgres/update@names", 64), Cycles),
		ratio("hand-overs of 64 names × UPDATEs of 64 rows, flush 1 ms slower, "+postgres, true, 0.5, 0,
			names(64, 64, slow), floor("postgres/update@names"+slow, 64), Cycles),
		ratio("a neighbour's NOTIFY beside 64 names by that without, p99, "+postgres, false, 1.5, 0, notify("@names"), notify(""), P99),
		ratio("a neighbour's NOTIFY beside 64 names by that beside UPDATEs, p99, "+postgres, false, 1.5, 0,
			notify("@names"), notify("@update"), P99),
	}
}

func throughputGoals() []goal {
	times := func(ours, theirs string, callers int, must, aim float64) goal {
		return ratio(fmt.Sprintf("%s × %s, %d callers", ours, theirs, callers), true, must, aim,
			distinct(ours, callers), distinct(theirs, callers), Cycles)
	}
	return []goal{
		times(postgres, "rueidis", 1024, 0.5, 0.6),
		times(postgres, "redislock", 1024, 2.5, 0),
		times(postgresAdvisory, "rueidis", 1024, 0.6, 0.8),
		times(mariadb, "rueidis", 1024, 0.3, 0.4),
		times(sqlite, "redislock", 1024, 1.2, 0),
		times(postgres, "redislock", 16, 0.35, 0.45),
		times(postgres, "redislock", 64, 1, 0),
	}
}

func hooksGoals() []goal {
	var list []goal
	for _, c := range []string{postgres, mariadb, sqlite} {
		list = append(list, ratio("throughput with hooks × without, 1,024 callers, "+c, true, 0.97, 0,
			Key{Hooks, c + "@hooks", 1024}, Key{Hooks, c, 1024}, Cycles))
	}
	return list
}

// beatInterval is how often a Locker that waits renews that, in s: a third of the shorter
// of the TTL and 5 s.
const beatInterval = 5.0 / 3

func idleGoals() []goal {
	var list []goal
	for _, c := range []struct {
		name        string
		rate, conns float64
	}{{postgres, 0.2, 1}, {mariadb, 0.2, 1}, {postgresAdvisory, 1.5, 2}, {mariadbAdvisory, 1.5, 2}} {
		held := Key{Idle, c.name, 10_000}
		list = append(list,
			figure("statements/s of 10,000 held locks, "+c.name, false, c.rate, 0, held, Rate),
			figure("connections of 10,000 held locks, "+c.name, false, c.conns, 0, held, Conns),
		)
	}
	for _, c := range []string{postgresAdvisory, mariadbAdvisory} {
		list = append(list, figure("ms until the loss of a session is noticed, "+c, false, 1000, 0, Key{Idle, c, 10_000}, Noticed))
	}
	for _, c := range []string{postgres, mariadb} {
		list = append(list, rowsPerBeat(c))
	}
	return list
}

// rowsPerBeat is a goal for the rows that are written per beat. A Locker that waits for a
// connection misses beats, so there must not be too few either. There may be a little more than
// one: the holder of what Lockers wait for renews its leases, and reapers look after the tables.
func rowsPerBeat(contender string) goal {
	var keys []Key
	for _, lockers := range []int{400, 200} { // quick runs have fewer
		keys = append(keys, Key{Waiters, contender + "@lockers", lockers})
	}
	return goal{"rows written per beat of each Locker that waits, " + contender, false, 1.05, 0, 0.8, keys, func(r *Results) (float64, bool) {
		for _, k := range keys {
			if s := r.Get(k); s != nil {
				return s.Median(RowRate) / float64(k.Callers) * beatInterval, true
			}
		}
		return 0, false
	}}
}

func growthGoals() []goal {
	var list []goal
	for _, c := range []string{postgres, mariadb, sqlite} {
		for _, callers := range []int{1, 64} {
			list = append(list, ratio(fmt.Sprintf("time with 10⁶ rows by that with 10³, %d callers, %s", callers, c), false, 1.2, 0,
				Key{Rows, c + "@1000rows", callers}, Key{Rows, c + "@1000000rows", callers}, Cycles))
		}
	}
	for _, c := range []string{postgres, mariadb} {
		list = append(list,
			ratio("cycles of 10⁶ names beside a snapshot of 10 minutes × those before it, "+c, true, 0.8, 0,
				Key{Rows, c + "@snapshot-10m0s", 64}, Key{Rows, c + "@nosnapshot", 64}, Cycles),
			figure("hand-overs/s of a name with 10,000 waiters, "+c, true, 500, 0, Key{Waiters, c, 10_000}, Cycles),
			ratio("hand-overs of a name with 10,000 waiters × with 100, "+c, true, 0.8, 0,
				Key{Waiters, c, 10_000}, Key{Waiters, c, 100}, Cycles),
		)
	}
	return list
}

// failures returns how much failed in the series that the goal's figure is made of.
func (g goal) failures(r *Results) int {
	n := 0
	for _, k := range g.keys {
		if s := r.Get(k); s != nil {
			n += s.Failures()
		}
	}
	return n
}

// isComplete reports whether there are all series that the goal's figure is made of.
func (g goal) isComplete(r *Results) bool {
	return !slices.ContainsFunc(g.keys, func(k Key) bool { return r.Get(k) == nil })
}

// verdict returns which bound a value reaches. None is reached with failures.
func (g goal) verdict(v float64, failures int) string {
	reaches := func(bound float64) bool {
		if g.atLeast {
			return v >= bound
		}
		return v <= bound
	}
	switch {
	case failures > 0:
		return fmt.Sprintf("FAILED %d", failures)
	case v < g.least, g.must != 0 && !reaches(g.must):
		return "MISSED"
	case g.aim != 0 && reaches(g.aim):
		return "aim reached"
	case g.aim != 0 && g.must == 0:
		return "aim missed"
	case g.aim != 0:
		return "must reached, aim missed"
	}
	return "reached"
}

// WriteGoals writes the measured goals and their values, and how many others there are. A goal
// without a value is among the first if that is because all rounds failed.
func (r *Results) WriteGoals(w io.Writer) {
	_, _ = fmt.Fprintln(w, "\ngoals (medians of ratios, round by round)")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	unmeasured := 0
	for _, g := range goals() {
		v, measured := g.value(r)
		failures := g.failures(r)
		if !measured && (failures == 0 || !g.isComplete(r)) {
			unmeasured++
			continue
		}
		_, _ = fmt.Fprintf(t, "%.2f\t%s\t%s\t%s\n", v, g.bounds(), g.verdict(v, failures), g.text)
	}
	_ = t.Flush()
	if unmeasured > 0 {
		_, _ = fmt.Fprintf(w, "%d goals were not measured\n", unmeasured)
	}
}

func (g goal) bounds() string {
	sign := "≤"
	if g.atLeast {
		sign = "≥"
	}
	switch {
	case g.least != 0:
		return fmt.Sprintf("must ≥ %g, ≤ %g", g.least, g.must)
	case g.must == 0:
		return fmt.Sprintf("aim %s %g", sign, g.aim)
	case g.aim == 0:
		return fmt.Sprintf("must %s %g", sign, g.must)
	}
	return fmt.Sprintf("must %s %g, aim %s %g", sign, g.must, sign, g.aim)
}
