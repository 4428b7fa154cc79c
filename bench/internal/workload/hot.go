package workload

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sqllock/sqllock/bench/internal/contender"
	"github.com/sqllock/sqllock/bench/internal/platform"
	"github.com/sqllock/sqllock/bench/internal/report"
)

// One hot name is locked by this many processes with this many callers each.
const (
	hotProcesses = 2
	hotCallers   = 8
)

// counted has the statements of these entries counted.
func counted(list []*entry) []*entry {
	for _, e := range list {
		e.site.Count = true
	}
	return list
}

// team is an entry with its processes and the counter of its server.
type team struct {
	*entry
	processes []*process
	counter   *counter
}

// teams starts processes for each entry, with so many clients each. It reports and leaves
// out the entries that do not start.
func (b *Bench) teams(ctx context.Context, list []*entry, n, clients int) ([]*team, error) {
	return b.teamsOf(ctx, list, n, setup{Clients: clients})
}

func (b *Bench) teamsOf(ctx context.Context, list []*entry, n int, o setup) ([]*team, error) {
	var all []*team
	for _, e := range list {
		t := &team{entry: e}
		o.Contender, o.Site = e.Name, e.site
		var err error
		if t.counter, err = newCounter(ctx, e); err != nil {
			return all, err
		}
		if t.processes, err = spawn(n, o); err != nil {
			b.Say("%s: %v", e.label, err)
			continue
		}
		all = append(all, t)
	}
	return all, nil
}

func (b *Bench) endTeams(all []*team) {
	for _, t := range all {
		err := end(t.processes)
		if t.counter != nil {
			err = errors.Join(err, t.counter.close())
		}
		if err != nil {
			b.Say("%s: %v", t.label, err)
		}
	}
}

// hot has callers of two processes lock one name, and measures the hand-overs.
func (b *Bench) hot(ctx context.Context) error { return b.oneNameOfTwo(ctx, report.Hot, hotCallers) }

// handover is hot with one caller in each process: between them is nobody.
func (b *Bench) handover(ctx context.Context) error {
	return b.oneNameOfTwo(ctx, report.Handover, 1)
}

// oneNameOfTwo has callers of two processes lock one name. A durable UPDATE of a row takes
// turns with them.
func (b *Bench) oneNameOfTwo(ctx context.Context, workload string, callers int) error {
	list, err := b.entries(ctx, func(c contender.Contender) bool {
		return c.Waits || strings.HasSuffix(c.Name, "/"+contender.FloorUpdate)
	})
	if err != nil {
		return err
	}
	waiting, floors := split(list)
	floors = b.open(ctx, floors)
	defer b.close(floors)
	all, err := b.teams(ctx, counted(waiting), hotProcesses, 1)
	defer func() { b.endTeams(all) }()
	if err != nil {
		return err
	}
	b.Say("one name, %d processes with %d callers", hotProcesses, callers)
	byEntry := make(map[*entry]*team)
	for _, t := range all {
		byEntry[t.entry] = t
		floors = append(floors, t.entry)
	}
	hot := func(int) []caller { return ofOneName("hot", callers) }
	for _, t := range all {
		b.warmUpTeam(ctx, t, t.key(workload, hotProcesses*callers), hot)
	}
	return eachRound(ctx, b, floors, func(e *entry) {
		if t := byEntry[e]; t != nil {
			s, err := b.teamRound(ctx, t, b.Round/4, hot)
			b.note(e.key(workload, hotProcesses*callers), e.Durable, s, err)
			return
		}
		s, err := newLoop(e, 1, ownNames(1)).run(ctx, b.Round)
		b.note(updateBeside(e, workload, 1), e.Durable, s, err)
	})
}

// warmUpTeam makes a team work before its first round. Only failures are noted.
func (b *Bench) warmUpTeam(ctx context.Context, t *team, k report.Key, callers func(process int) []caller) {
	if ctx.Err() != nil {
		return
	}
	s, err := b.teamRound(ctx, t, b.warmUpTime(), callers)
	if s = b.withFailures(k, s, err); s.Failures > 0 {
		b.Results.AddFailures(k, t.Durable, s.Failures)
	}
}

// updateBeside is the key of durable UPDATEs that were measured between the rounds of a
// workload.
func updateBeside(e *entry, workload string, callers int) report.Key {
	return report.Key{Workload: report.Floor, Contender: e.Server + "/update@" + workload, Callers: callers}
}

func split(list []*entry) (waiting, floors []*entry) {
	for _, e := range list {
		if e.Floor {
			floors = append(floors, e)
		} else {
			waiting = append(waiting, e)
		}
	}
	return waiting, floors
}

// teamRound has each process work for its callers, as many in each. It measures from the end
// of the warm-up on. In the first half of the warm-up callers keep their locks for a while.
func (b *Bench) teamRound(ctx context.Context, t *team, warm time.Duration, callers func(process int) []caller) (report.Sample, error) {
	each := len(callers(0))
	keepUntil := platform.Monotonic() + int64(warm/2)
	if err := tellEach(t.processes, func(p int) order {
		return order{Callers: callers(p), For: warm + b.Round, KeepUntil: keepUntil}
	}); err != nil {
		return dropped, err
	}
	time.Sleep(warm)
	var w window
	err := w.measure(ctx, t, b.Round)
	a, gone := collect(t.processes, each)
	s, overlaps := w.sample(a.Grants, each*len(t.processes))
	s.Failures, s.Dropped = a.Failures+overlaps, gone != nil
	return s, errors.Join(err, gone, failure(a, overlaps))
}

// window is the part of a round that counts.
type window struct {
	from, to       int64 // of the monotonic clock
	did            load
	client, server time.Duration // processor time
}

func (w *window) measure(ctx context.Context, t *team, d time.Duration) error {
	client, server := t.clientTime(), platform.ProcessTime(t.pid)
	var err error
	w.did, err = t.counter.during(ctx, func() {
		w.from = platform.Monotonic()
		time.Sleep(d)
		w.to = platform.Monotonic()
	})
	w.client, w.server = t.clientTime()-client, platform.ProcessTime(t.pid)-server
	return err
}

func (w *window) sample(grants []grant, callers int) (report.Sample, int) {
	s, count, overlaps := handovers(grants, callers, w.from, w.to)
	n := float64(max(1, count))
	s.Statements = w.did.statements / n
	s.CPU, s.ServerCPU = w.client.Seconds()*1e6/n, w.server.Seconds()*1e6/n
	return s, overlaps
}

// clientTime is the processor time of the processes.
func (t *team) clientTime() (sum time.Duration) {
	for _, p := range t.processes {
		sum += platform.ProcessTime(p.cmd.Process.Pid)
	}
	return sum
}

func failure(a answer, overlaps int) error {
	var errs []error
	if a.Err != "" {
		errs = append(errs, errors.New(a.Err))
	}
	if overlaps > 0 {
		errs = append(errs, fmt.Errorf("%d times two had the name at once", overlaps))
	}
	return errors.Join(errs...)
}
