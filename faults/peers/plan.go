//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/sqllock/sqllock/faults/internal/nemesis"
	"github.com/sqllock/sqllock/faults/peers/internal/locks"
	"github.com/sqllock/sqllock/internal/testdb/supervisor"
)

// faultNames are the nemeses that are for all systems.
var faultNames = []string{"client-pause", "client-kill", "server-kill", "clock-step"}

// without is a cell that there is not.
type without struct {
	System string `json:"system"`
	Fault  string `json:"fault"`
	Why    string `json:"why"`
}

// plan returns the cells to run, and those that are not possible.
func (s settings) plan() (specs []spec, not []without, err error) {
	systems := locks.All()
	if len(s.systems) > 0 {
		systems = nil
		for _, name := range s.systems {
			system, ok := locks.ByName(name)
			if !ok {
				return nil, nil, fmt.Errorf("no system is named %q", name)
			}
			systems = append(systems, system)
		}
	}
	for _, name := range s.faults {
		if name != noFault && !slices.Contains(faultNames, name) {
			return nil, nil, fmt.Errorf("no fault is named %q", name)
		}
	}
	for _, system := range systems {
		for _, fault := range append([]string{noFault}, faultNames...) {
			switch {
			case len(s.faults) == 0 && fault == noFault,
				len(s.faults) > 0 && !slices.Contains(s.faults, fault),
				system.Only != "" && system.Only != fault:
			case fault == "clock-step" && system.NoClock != "":
				not = append(not, without{system.Name, fault, system.NoClock})
			default:
				specs = append(specs, spec{system, nemesis.ByName(fault), s.each, s.seed, s.keep})
			}
		}
	}
	if len(specs) == 0 {
		return nil, nil, errors.New("there is no such cell")
	}
	return specs, not, nil
}

// noFault is the cell without a fault. It is run only on request.
const noFault = "none"

// runAll runs the cells, some at a time, and reports the end of each. If a cell cannot be
// run, the others still are.
func runAll(ctx context.Context, w *supervisor.Supervisor, specs []spec, parallel int, out io.Writer) ([]result, error) {
	results := make([]*result, len(specs))
	errs := make([]error, len(specs))
	var mu sync.Mutex // of out
	var running sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for i, spec := range specs {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		running.Go(func() {
			defer func() { <-slots }()
			r, err := runCell(ctx, w, spec)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs[i] = fmt.Errorf("%s: %w", spec.name(), err)
				fmt.Fprintf(out, "%-45s %v\n", spec.name(), err)
				return
			}
			results[i] = &r
			fmt.Fprintf(out, "%-45s %d acquisitions, %d faults, %.0f s\n", spec.name(), r.Acquisitions, r.Faults, r.took.Seconds())
		})
	}
	running.Wait()
	var ran []result
	for _, r := range results {
		if r != nil {
			ran = append(ran, *r)
		}
	}
	return ran, errors.Join(append(errs, context.Cause(ctx))...)
}
