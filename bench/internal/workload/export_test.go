package workload

import (
	"encoding/json"
	"io"
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

// Processes is how many processes share the Lockers of the workload names.
const Processes = namesProcesses
