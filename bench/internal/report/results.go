// Package report collects the measurements and writes them: as a table, as ratios beside
// the goals, and as JSON.
package report

import (
	"cmp"
	"slices"

	"github.com/sqllock/sqllock/bench/internal/stat"
)

// The workloads, as the JSON names them.
const (
	Distinct = "distinct" // a different name for each caller
	Hot      = "hot"      // one name, several processes with several callers
	Handover = "handover" // one name, two processes with a caller each
	Names    = "names"    // some or many names, many Lockers
	Waiters  = "waiters"  // one name, few or very many waiters; Lockers that wait in vain
	Herd     = "herd"     // many waiters on one name
	Idle     = "idle"     // many locks that are held, and nothing else
	Tx       = "tx"       // a write under a lock
	Hooks    = "hooks"    // distinct names, with and without hooks
	Rows     = "rows"     // a large table, an old transaction, an old snapshot
	Floor    = "floor"    // bare statements
)

// Sample has the measurements of one round. A figure is 0 if the workload does not
// measure it.
type Sample struct {
	Cycles     float64 // of Lock and Unlock per second; hand-overs, where one name is locked
	P50, P99   float64 // of a cycle, or of a hand-over, in µs
	Across     float64 // median hand-over from one process to another, in µs
	Jain       float64 // over the callers
	Longest    float64 // wait for a lock, in ms
	Statements float64 // of the server per hand-over
	Rate       float64 // statements per second
	RowRate    float64 // rows that the server writes per second
	LogRate    float64 // bytes of the server's log per second
	Conns      float64 // connections to the server
	Noticed    float64 // how long the loss of a session was not noticed, in ms
	Allocs     float64 // of memory in the client, per cycle
	Bytes      float64 // of them
	CPU        float64 // time of the clients' processes per cycle, in µs
	ServerCPU  float64 // time of the server's processes per cycle, in µs
	Heap       float64 // bytes of the client's memory per lock that is held
	Failures   int     // calls that returned an error, and callers that had a name too early
	Dropped    bool    // the figures do not count: the round failed
}

// Key names a series of samples.
type Key struct {
	Workload, Contender string
	Callers             int
}

// Series has the measurements of one contender in all rounds.
type Series struct {
	Key
	Durable bool
	Samples []Sample // by round, those that were dropped included

	failures int // outside of rounds
}

// Results are all series. They are not safe for concurrent use.
type Results struct {
	series map[Key]*Series
	order  []Key
}

// NewResults returns empty Results.
func NewResults() *Results { return &Results{series: make(map[Key]*Series)} }

// Add adds the sample of a round. A round that failed has one, too: else the rounds of two
// series would not be those of the same time.
func (r *Results) Add(k Key, durable bool, s Sample) {
	series := r.at(k, durable)
	series.Samples = append(series.Samples, s)
}

// AddFailures adds what failed outside of the rounds.
func (r *Results) AddFailures(k Key, durable bool, n int) { r.at(k, durable).failures += n }

// at returns a series, a new one if nothing was measured.
func (r *Results) at(k Key, durable bool) *Series {
	if r.series[k] == nil {
		r.series[k] = &Series{Key: k, Durable: durable}
		r.order = append(r.order, k)
	}
	return r.series[k]
}

// Get returns a series, nil if nothing was measured.
func (r *Results) Get(k Key) *Series { return r.series[k] }

// All returns the series by workload, in the order in which they began, and by
// callers.
func (r *Results) All() []*Series {
	var workloads []string
	var all []*Series
	for _, k := range r.order {
		if !slices.Contains(workloads, k.Workload) {
			workloads = append(workloads, k.Workload)
		}
		all = append(all, r.series[k])
	}
	slices.SortStableFunc(all, func(a, b *Series) int {
		return cmp.Or(
			cmp.Compare(slices.Index(workloads, a.Workload), slices.Index(workloads, b.Workload)),
			cmp.Compare(a.Callers, b.Callers))
	})
	return all
}

// Median returns the median of one figure over the rounds that count.
func (s *Series) Median(figure func(Sample) float64) float64 {
	complete := slices.DeleteFunc(slices.Clone(s.Samples), func(sample Sample) bool { return sample.Dropped })
	return stat.MedianOf(complete, figure)
}

// Failures returns how much failed in all rounds and outside of them.
func (s *Series) Failures() int {
	n := s.failures
	for _, sample := range s.Samples {
		n += sample.Failures
	}
	return n
}

// Failures returns how much failed in all series.
func (r *Results) Failures() int {
	n := 0
	for _, s := range r.series {
		n += s.Failures()
	}
	return n
}

// Ratio returns the median of the ratios of two series, round by round, because a
// disturbance of the machine affects both sides of a ratio. It returns false if either
// was not measured.
func (r *Results) Ratio(a, b Key, figure func(Sample) float64) (float64, bool) {
	return r.Quotient(a, figure, b, figure)
}

// Quotient is Ratio of different figures.
func (r *Results) Quotient(a Key, figureA func(Sample) float64, b Key, figureB func(Sample) float64) (float64, bool) {
	sa, sb := r.series[a], r.series[b]
	if sa == nil || sb == nil {
		return 0, false
	}
	var ratios []float64
	for i := range min(len(sa.Samples), len(sb.Samples)) {
		if sa.Samples[i].Dropped || sb.Samples[i].Dropped {
			continue
		}
		if x, y := figureA(sa.Samples[i]), figureB(sb.Samples[i]); x > 0 && y > 0 {
			ratios = append(ratios, x/y)
		}
	}
	return stat.Median(ratios), len(ratios) > 0
}

// Figures of a sample.
func Cycles(s Sample) float64     { return s.Cycles }
func P50(s Sample) float64        { return s.P50 }
func P99(s Sample) float64        { return s.P99 }
func Across(s Sample) float64     { return s.Across }
func Jain(s Sample) float64       { return s.Jain }
func Longest(s Sample) float64    { return s.Longest }
func Statements(s Sample) float64 { return s.Statements }
func Rate(s Sample) float64       { return s.Rate }
func RowRate(s Sample) float64    { return s.RowRate }
func LogRate(s Sample) float64    { return s.LogRate }
func Conns(s Sample) float64      { return s.Conns }
func Noticed(s Sample) float64    { return s.Noticed }
func Allocs(s Sample) float64     { return s.Allocs }
func Bytes(s Sample) float64      { return s.Bytes }
func CPU(s Sample) float64        { return s.CPU }
func ServerCPU(s Sample) float64  { return s.ServerCPU }
func Heap(s Sample) float64       { return s.Heap }
