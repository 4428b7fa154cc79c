package workload

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"time"

	"github.com/sqllock/sqllock/bench/internal/contender"
	"github.com/sqllock/sqllock/bench/internal/report"
	"github.com/sqllock/sqllock/bench/internal/server"
)

// Config is the extent of a run.
type Config struct {
	Only    *regexp.Regexp // contenders
	Rounds  int
	Round   time.Duration
	Callers []int // of the workloads with distinct names
	Quick   bool  // smaller numbers in workloads with slow preparations
}

// Bench measures. It is not safe for concurrent use.
type Bench struct {
	Config
	Fleet   *server.Fleet
	Machine *report.Machine
	Results *report.Results
	Say     func(format string, args ...any) // progress

	prepared map[string]bool
}

// Workloads are all workloads by name, in their order.
var Workloads = []struct {
	Name string
	Run  func(*Bench, context.Context) error
}{
	{"distinct", (*Bench).distinct},
	{"hot", (*Bench).hot},
	{"handover", (*Bench).handover},
	{"names", (*Bench).names},
	{"waiters", (*Bench).waiters},
	{"herd", (*Bench).herd},
	{"idle", (*Bench).idle},
	{"tx", (*Bench).tx},
	{"rows", (*Bench).rows},
	{"rtt", (*Bench).rtt},
	{"hooks", (*Bench).hooks},
}

// entry is a contender that takes part in a workload.
type entry struct {
	contender.Contender
	label  string // of its results
	site   contender.Site
	client contender.Client // nil where other processes have theirs
	pid    int              // of the server, 0 if there is none
}

// key names the entry's results. Bare statements have a workload of their own.
func (e *entry) key(workload string, callers int) report.Key {
	if e.Floor {
		return report.Key{Workload: report.Floor, Contender: strings.TrimPrefix(e.label, "floor/"), Callers: callers}
	}
	return report.Key{Workload: workload, Contender: e.label, Callers: callers}
}

// entries returns the contenders that the flags and want select. They are prepared, and
// their servers run. If a server is not available, entries notes that and leaves its
// contenders out.
func (b *Bench) entries(ctx context.Context, want func(contender.Contender) bool) ([]*entry, error) {
	var list []*entry
	for _, c := range contender.All() {
		if !want(c) || b.Only != nil && !b.Only.MatchString(c.Name) {
			continue
		}
		if _, out := b.Machine.LeftOut[c.Server]; out {
			continue
		}
		s, err := b.Fleet.Start(c.Server)
		if err != nil {
			b.Machine.LeftOut[c.Server] = err.Error()
			b.Say("left out: %v", err)
			continue
		}
		b.Machine.Servers[c.Server], b.Machine.Settings[c.Server] = s.Version, s.Settings
		e := &entry{Contender: c, label: c.Name, pid: s.PID, site: contender.Site{
			Addrs:    map[string]string{c.Server: s.Addr},
			Database: "bench_" + strings.NewReplacer("/", "_", "-", "_").Replace(c.Name),
		}}
		if err := b.prepare(ctx, e); err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

// prepare makes an entry's tables, once for each prefix.
func (b *Bench) prepare(ctx context.Context, e *entry) error {
	what := e.site.Database + " " + e.site.Prefix
	if e.Prepare == nil || b.prepared[what] {
		return nil
	}
	if err := e.Prepare(ctx, e.site); err != nil {
		return fmt.Errorf("prepare %s: %w", e.label, err)
	}
	if b.prepared == nil {
		b.prepared = make(map[string]bool)
	}
	b.prepared[what] = true
	return nil
}

// variant returns an entry of the same contender with a label and a site of its
// own.
func (e *entry) variant(label string, change func(*contender.Site)) *entry {
	v := *e
	v.label, v.site.Addrs = label, maps.Clone(e.site.Addrs)
	change(&v.site)
	return &v
}

// open opens the clients of this process. It reports and leaves out the clients that it
// cannot open.
func (b *Bench) open(ctx context.Context, list []*entry) []*entry {
	var opened []*entry
	for _, e := range list {
		var err error
		if e.client, err = e.Open(ctx, e.site); err != nil {
			b.Say("%s does not open: %v", e.label, err)
			continue
		}
		opened = append(opened, e)
	}
	return opened
}

func (b *Bench) close(list []*entry) {
	for _, e := range list {
		if err := e.client.Close(); err != nil {
			b.Say("%s: close: %v", e.label, err)
		}
	}
}

// eachRound calls measure for each item of the list in each round. Every round begins with
// another item, so that the neighbours in time change.
func eachRound[T any](ctx context.Context, b *Bench, list []T, measure func(T)) error {
	for round := range b.Rounds {
		for i := range list {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			measure(list[(i+round)%len(list)])
		}
		b.Say("round %d of %d", round+1, b.Rounds)
	}
	return nil
}

// note adds a sample and reports failures.
func (b *Bench) note(k report.Key, durable bool, s report.Sample, err error) {
	b.Results.Add(k, durable, b.withFailures(k, s, err))
}

// dropped is the sample of a round without figures.
var dropped = report.Sample{Dropped: true, Failures: 1}

// withFailures reports an error, and returns a sample that has one failure at least.
func (b *Bench) withFailures(k report.Key, s report.Sample, err error) report.Sample {
	if err != nil {
		s.Failures = max(1, s.Failures)
		b.Say("%s %s with %d callers: %d failures, the first: %v", k.Workload, k.Contender, k.Callers, s.Failures, err)
	}
	return s
}
