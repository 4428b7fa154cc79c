package workload

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"strings"
	"time"

	"github.com/sqllock/sqllock/bench/internal/contender"
	"github.com/sqllock/sqllock/bench/internal/report"
)

// Times of a grant: its name, process and caller, and when it was asked for, got and freed.
type Times struct {
	Name               string
	Process, Caller    int
	Called, Got, Freed int64
}

// Handovers is handovers.
func Handovers(times []Times, callers int, from, to int64) (report.Sample, int, int) {
	var grants []grant
	for _, t := range times {
		grants = append(grants, grant(t))
	}
	return handovers(grants, callers, from, to)
}

// SpreadNames is namesAllOver.
var SpreadNames = spreadNames

// Serve is serve.
func Serve(in io.Reader, out io.Writer) error { return serve(in, out) }

// Sample is sample of cycles that are given by their beginnings and ends.
func Sample(cycles [][][2]time.Duration, from, to time.Duration) report.Sample {
	spans := make([][]span, len(cycles))
	for c, list := range cycles {
		for _, s := range list {
			spans[c] = append(spans[c], span{s[0], s[1]})
		}
	}
	return sample(spans, span{from, to})
}

// NameCells are the cells of the workload names.
var NameCells = namesCells

// Callers returns the Locker, by its number in the process, and the name of each caller of a
// process.
func (c namesCell) Callers(process int) (lockers []int, names []string) {
	for _, one := range c.callers(process) {
		lockers, names = append(lockers, one.Client), append(names, one.Name)
	}
	return lockers, names
}

// Size is how many names and Lockers there are.
func (c namesCell) Size() (names, lockers int) { return c.names, c.lockers }

// RunUntil has callers wait through a client until a line comes from in. It returns how many
// failed.
func RunUntil(client contender.Client, callers int, in io.Reader) int {
	o := order{Callers: ofOneName("a", callers), Until: true}
	return newCallGroup([]contender.Client{client}, o).run(json.NewDecoder(in)).Failures
}

// RunKeeping has callers lock one name through a client for a time, and keep it for a while each
// time. It returns how often they had it, and how often two had it at once.
func RunKeeping(client contender.Client, callers int, d time.Duration) (count, overlaps int) {
	o := order{Callers: ofOneName("a", callers), For: d, KeepUntil: math.MaxInt64}
	a := newCallGroup([]contender.Client{client}, o).run(json.NewDecoder(strings.NewReader("")))
	_, count, overlaps = handovers(a.Grants, callers, 0, math.MaxInt64)
	return count, overlaps
}

// RunKeepingLater has callers lock one name through a client, and keep it after a line that
// comes later says so, for a time. It returns how often two had the name at once.
func RunKeepingLater(client contender.Client, callers int, d time.Duration) (overlaps int) {
	in, out := io.Pipe()
	go func() {
		lines := json.NewEncoder(out)
		_ = lines.Encode(order{KeepUntil: math.MaxInt64})
		time.Sleep(d)
		_ = lines.Encode(order{})
	}()
	a := newCallGroup([]contender.Client{client}, order{Callers: ofOneName("a", callers), Until: true}).run(json.NewDecoder(in))
	_, _, overlaps = handovers(a.Grants, callers, 0, math.MaxInt64)
	return overlaps
}

// UpdateNames are the rows that a process updates beside the workload names.
func UpdateNames(process int) (names []string) {
	for _, one := range updateCallers(process) {
		names = append(names, one.Name)
	}
	return names
}

// Updates is how many rows all processes update.
const Updates = namesUpdates

// Watch watches a server that only answers. An answer costs it so many statements, and the next
// one finds the next number of connections.
func Watch(d time.Duration, own float64, conns []float64) (statements, most float64, err error) {
	var answers int
	c := &counter{
		own:  own,
		load: func(context.Context) (load, error) { answers++; return load{statements: own * float64(answers)}, nil },
		conns: func(context.Context) (float64, error) {
			answers++
			n := conns[0]
			if len(conns) > 1 {
				conns = conns[1:]
			}
			return n, nil
		},
	}
	did, most, err := c.watch(context.Background(), d)
	return did.statements, most, err
}

// Processes is how many processes share the Lockers of the workload names.
const Processes = namesProcesses
