package report

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// goal is a figure that the project wants to reach. Must and aim are 0 where
// there is none.
type goal struct {
	text      string
	atLeast   bool // or at most
	must, aim float64
	value     func(*Results) (float64, bool)
}

// ratio is a goal for the ratio of a to b in one figure.
func ratio(text string, atLeast bool, must, aim float64, a, b Key, figure func(Sample) float64) goal {
	return goal{text, atLeast, must, aim, func(r *Results) (float64, bool) { return r.Ratio(a, b, figure) }}
}

// figure is a goal for a figure itself.
func figure(text string, atLeast bool, must, aim float64, k Key, f func(Sample) float64) goal {
	return goal{text, atLeast, must, aim, func(r *Results) (float64, bool) {
		s := r.Get(k)
		if s == nil {
			return 0, false
		}
		return s.Median(f), true
	}}
}

func distinct(contender string, callers int) Key { return Key{Distinct, contender, callers} }

// goals are those of the project.
func goals() []goal {
	list := throughputGoals()
	list = append(list, handoverGoals()...)
	return append(list, idleGoals()...)
}

func throughputGoals() []goal {
	times := func(ours, theirs string, callers int, must, aim float64) goal {
		return ratio(fmt.Sprintf("%s × %s, %d callers", ours, theirs, callers), true, must, aim,
			distinct(ours, callers), distinct(theirs, callers), Cycles)
	}
	list := []goal{
		times("sqllock/postgres/advisory", "rueidis", 1024, 1, 1.3),
		times("sqllock/postgres/advisory", "redislock", 1024, 0, 8),
		times("sqllock/postgres/advisory", "redislock", 1, 0, 1),
		times("sqllock/mariadb/advisory", "redislock", 1024, 1.5, 0),
	}
	for _, engine := range []string{"postgres", "mariadb"} {
		lease := "sqllock/" + engine + "/unique"
		list = append(list,
			times(lease, "rueidis", 1024, 0.6, 1),
			times(lease, "rueidis/always", 1024, 2, 0),
			times(lease, "redislock", 1024, 3, 4),
			times(lease, "etcd", 1, 2, 0),
			times(lease, "etcd", 256, 4, 0),
			ratio("time of "+lease+" by its two raw statements, 1 caller", false, 1.3, 0,
				distinct(lease, 1), Key{Floor, engine + "/cycle", 1}, P50),
		)
	}
	return append(list, times("sqllock/sqlite/unique", "redislock", 1024, 1, 0))
}

func handoverGoals() []goal {
	const postgres, mariadb = "sqllock/postgres/unique", "sqllock/mariadb/unique"
	return []goal{
		{"hand-over between processes by a durable UPDATE, p50, " + postgres, false, 3, 2, handoverRatio},
		figure("hand-over between processes in µs, p50, "+mariadb, false, 10_000, 0, Key{Hot, mariadb, 16}, Across),
		figure("Jain index, "+postgres, true, 0.99, 0, Key{Hot, postgres, 16}, Jain),
		figure("Jain index, "+mariadb, true, 0.99, 0, Key{Hot, mariadb, 16}, Jain),
		ratio("statements per hand-over, 500 waiters by 5, "+postgres, false, 1.1, 0,
			Key{Herd, postgres, 500}, Key{Herd, postgres, 5}, Statements),
		figure("statements per hand-over, 500 waiters, "+postgres, false, 4, 0, Key{Herd, postgres, 500}, Statements),
	}
}

// handoverRatio compares different figures of its two sides, round by round.
func handoverRatio(r *Results) (float64, bool) {
	both := NewResults()
	a, b := Key{Contender: "a"}, Key{Contender: "b"}
	for _, side := range []struct {
		from, to Key
		figure   func(Sample) float64
	}{
		{Key{Hot, "sqllock/postgres/unique", 16}, a, Across},
		{Key{Floor, "postgres/update@hot", 1}, b, P50},
	} {
		if s := r.Get(side.from); s != nil {
			for _, sample := range s.Samples {
				both.Add(side.to, true, Sample{P50: side.figure(sample)})
			}
		}
	}
	return both.Ratio(a, b, P50)
}

func idleGoals() []goal {
	var list []goal
	for _, c := range []string{"sqllock/postgres/unique", "sqllock/postgres/advisory", "sqllock/mariadb/unique", "sqllock/mariadb/advisory"} {
		held, waiting := Key{Idle, c, 10_000}, Key{Idle, c + "@waiting", 1000}
		list = append(list,
			figure("statements/s of 10,000 held locks, "+c, false, 0.2, 0, held, Rate),
			figure("connections of 10,000 held locks, "+c, false, 1, 0, held, Conns),
			figure("more connections for 1,000 waiting goroutines, "+c, false, 1, 0, waiting, Conns),
		)
	}
	for _, c := range []string{"sqllock/postgres/unique", "sqllock/mariadb/unique", "sqllock/sqlite/unique"} {
		for _, callers := range []int{1, 64} {
			list = append(list, ratio(fmt.Sprintf("time with 10⁶ rows by that with 10³, %d callers, %s", callers, c), false, 1.2, 0,
				Key{Rows, c + "@1000rows", callers}, Key{Rows, c + "@1000000rows", callers}, Cycles))
		}
	}
	return list
}

// verdict returns which bound a value reaches.
func (g goal) verdict(v float64) string {
	reaches := func(bound float64) bool {
		if g.atLeast {
			return v >= bound
		}
		return v <= bound
	}
	switch {
	case g.must != 0 && !reaches(g.must):
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

// WriteGoals writes the measured goals and their values.
func (r *Results) WriteGoals(w io.Writer) {
	_, _ = fmt.Fprintln(w, "\ngoals (medians of ratios, round by round)")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, g := range goals() {
		v, measured := g.value(r)
		if !measured {
			continue
		}
		_, _ = fmt.Fprintf(t, "%.2f\t%s\t%s\t%s\n", v, g.bounds(), g.verdict(v), g.text)
	}
	_ = t.Flush()
}

func (g goal) bounds() string {
	sign := "≤"
	if g.atLeast {
		sign = "≥"
	}
	switch {
	case g.must == 0:
		return fmt.Sprintf("aim %s %g", sign, g.aim)
	case g.aim == 0:
		return fmt.Sprintf("must %s %g", sign, g.must)
	}
	return fmt.Sprintf("must %s %g, aim %s %g", sign, g.must, sign, g.aim)
}
