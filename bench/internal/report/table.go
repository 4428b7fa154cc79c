package report

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// column is one of the table. It is left out where all of its figures are 0.
type column struct {
	title  string
	value  func(*Series) float64
	format string
}

func median(figure func(Sample) float64) func(*Series) float64 {
	return func(s *Series) float64 { return s.Median(figure) }
}

var columns = []column{
	{"cycles/s", median(Cycles), "%.0f"},
	{"p50 µs", median(P50), "%.0f"},
	{"p99 µs", median(P99), "%.0f"},
	{"across µs", median(Across), "%.0f"},
	{"Jain", median(Jain), "%.4f"},
	{"longest ms", median(Longest), "%.1f"},
	{"stmts/hand-over", median(Statements), "%.2f"},
	{"stmts/s", median(Rate), "%.2f"},
	{"rows/s", median(RowRate), "%.1f"},
	{"log B/s", median(LogRate), "%.0f"},
	{"conns", median(Conns), "%.0f"},
	{"noticed ms", median(Noticed), "%.0f"},
	{"allocs", median(Allocs), "%.1f"},
	{"bytes", median(Bytes), "%.0f"},
	{"CPU µs", median(CPU), "%.1f"},
	{"server µs", median(ServerCPU), "%.1f"},
	{"heap B/lock", median(Heap), "%.0f"},
	{"failed in all", func(s *Series) float64 { return float64(s.Failures()) }, "%.0f"},
}

// WriteTable writes a table for each workload and number of callers.
func (r *Results) WriteTable(w io.Writer) {
	all := r.All()
	for len(all) > 0 {
		n := slices.IndexFunc(all, func(s *Series) bool { return s.Workload != all[0].Workload })
		if n < 0 {
			n = len(all)
		}
		writeWorkload(w, all[:n])
		all = all[n:]
	}
}

func writeWorkload(w io.Writer, list []*Series) {
	var used []column
	for _, c := range columns {
		if slices.ContainsFunc(list, func(s *Series) bool { return c.value(s) != 0 }) {
			used = append(used, c)
		}
	}
	_, _ = fmt.Fprintf(w, "\n%s (medians of the rounds)\n", list[0].Workload)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprint(t, "callers\tdurable\t")
	for _, c := range used {
		_, _ = fmt.Fprint(t, c.title, "\t")
	}
	_, _ = fmt.Fprintln(t, "  contender")
	for _, s := range list {
		_, _ = fmt.Fprintf(t, "%d\t%s\t", s.Callers, yes(s.Durable))
		for _, c := range used {
			_, _ = fmt.Fprintf(t, c.format+"\t", c.value(s))
		}
		_, _ = fmt.Fprintln(t, " ", s.Contender)
	}
	_ = t.Flush()
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// WriteMachine writes the machine's facts.
func (m Machine) WriteMachine(w io.Writer) {
	_, _ = fmt.Fprintf(w, "%s\n%s, %d cores, %s, files on %s, %s\n%d rounds of %d ms\n",
		m.Time, m.CPU, m.Cores, m.Kernel, m.Filesystem, m.Go, m.Rounds, m.RoundMS)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, name := range sortedKeys(m.Servers) {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\n", name, m.Servers[name], m.Settings[name])
	}
	_ = t.Flush()
	for _, name := range sortedKeys(m.LeftOut) {
		_, _ = fmt.Fprintf(w, "left out: %s\n", m.LeftOut[name])
	}
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
