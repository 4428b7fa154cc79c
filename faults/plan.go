//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sqllock/sqllock/faults/internal/cell"
	"github.com/sqllock/sqllock/faults/internal/client"
	"github.com/sqllock/sqllock/faults/internal/nemesis"
	"github.com/sqllock/sqllock/faults/internal/report"
	"github.com/sqllock/sqllock/faults/internal/server"
	"github.com/sqllock/sqllock/internal/testdb/supervisor"
)

// pairs are the modes with the databases that have them.
var pairs = [][2]string{
	{"unique", "postgres"}, {"unique", "mariadb"}, {"unique", "sqlite"},
	{"forupdate", "postgres"}, {"forupdate", "mariadb"},
	{"advisory", "postgres"}, {"advisory", "mariadb"},
	{"unique", server.Galera},
}

// uses are, beside those modes, what else of unique mode clients use.
var uses = []string{client.Permits, client.LockAll, client.Options}

// paths are other ways to Postgres.
var paths = []string{client.Pgbouncer, client.LibPQ}

// harms are the nemeses of these cells: those that end holders, or that leave doubt. The others
// harm what is below, and that is the same.
var harms = []string{"none", "client-kill", "client-pause", "net-lost-reply", "server-kill", "outage", "mixed"}

// shortly are the cells of -short: the most important ones.
var shortly = [][3]string{
	{"none", "unique", "postgres"}, {"client-kill", "unique", "mariadb"}, {"client-kill", "unique", "sqlite"},
	{"client-kill", "forupdate", "postgres"}, {"client-kill", "advisory", "mariadb"},
	{"client-pause", "unique", "postgres"}, {"client-pause", "unique", "mariadb"}, {"client-pause", "unique", "sqlite"},
	{"client-pause", "forupdate", "mariadb"}, {"client-pause", "advisory", "postgres"},
	{"net-freeze", "unique", "postgres"}, {"net-freeze", "forupdate", "mariadb"},
	{"net-freeze-one-way", "unique", "mariadb"}, {"net-freeze-one-way", "advisory", "postgres"},
	{"net-lost-reply", "unique", "postgres"}, {"net-lost-reply", "unique", "mariadb"},
	{"net-half-open", "forupdate", "postgres"}, {"net-latency", "unique", "postgres"},
	{"server-kill", "unique", "postgres"}, {"server-kill", "unique", "mariadb"}, {"server-pause", "unique", "postgres"},
	{"session-kill", "forupdate", "mariadb"}, {"session-kill", "advisory", "postgres"},
	{"pool-of-one", "unique", "postgres"}, {"clock-step", "unique", "postgres"}, {"promotion", "unique", "postgres"},
	{"promotion-frozen", "unique", "postgres"},
	{"mixed", "unique", "mariadb"},
	{"client-kill", "permits", "mariadb"}, {"client-pause", "permits", "postgres"}, {"client-kill", "lockall", "postgres"},
	{"client-pause", "options", "postgres"}, {"net-lost-reply", "options", "mariadb"},
}

// A plan has the cells to run, and those that are not possible.
type plan struct {
	specs   []cell.Spec
	without []report.Without
}

func (s settings) plan() (p plan, err error) {
	for _, name := range s.nemeses {
		if nemesis.ByName(name) == nil {
			return p, fmt.Errorf("no nemesis is named %q; -list names them", name)
		}
	}
	for _, n := range nemesis.All() {
		for _, spec := range cells(n) {
			if !s.wants(n.Name, spec.Kind(), spec.Database) {
				continue
			}
			if why := n.Applies(spec.Mode, spec.Database); why != "" {
				p.without = append(p.without, report.Without{Nemesis: n.Name, Mode: spec.Kind(), Database: spec.Database, Why: why})
				continue
			}
			spec.For, spec.Seed, spec.Binary, spec.Keep, spec.Strict = s.each, s.seed, s.binary, s.keep, s.replay
			p.specs = append(p.specs, spec)
		}
	}
	round := p.specs
	for i := range max(0, s.rounds-1) {
		for _, spec := range round {
			spec.Seed += uint64(i) + 1
			p.specs = append(p.specs, spec)
		}
	}
	if len(p.specs) == 0 {
		return p, errors.New("there is no such cell; -list names them")
	}
	return p, nil
}

// cells are all cells of a nemesis, whether it applies to them or not.
func cells(n *nemesis.Nemesis) (all []cell.Spec) {
	for _, pair := range pairs {
		if !n.Nodes || pair[1] == server.Galera {
			all = append(all, cell.Spec{Nemesis: n, Mode: pair[0], Use: client.Locks, Database: pair[1]})
		}
	}
	if !slices.Contains(harms, n.Name) {
		return all
	}
	for _, use := range uses {
		for _, pair := range pairs {
			if pair[0] == client.Unique {
				all = append(all, cell.Spec{Nemesis: n, Mode: pair[0], Use: use, Database: pair[1]})
			}
		}
	}
	for _, path := range paths {
		all = append(all, cell.Spec{Nemesis: n, Mode: client.Unique, Use: client.Locks, Path: path, Database: "postgres"})
	}
	return all
}

func (s settings) wants(nemesis, mode, database string) bool {
	// A cluster needs what the others do not: it runs if it is named.
	if database == server.Galera && !slices.Contains(s.databases, database) {
		return false
	}
	among := func(list []string, name string) bool { return len(list) == 0 || slices.Contains(list, name) }
	return among(s.nemeses, nemesis) && among(s.modes, mode) && among(s.databases, database) &&
		(!s.short || slices.Contains(shortly, [3]string{nemesis, mode, database}))
}

func (p plan) print(w io.Writer) {
	for _, spec := range p.specs {
		fmt.Fprintf(w, "%-40s %s\n", spec.Name(), spec.Nemesis.About)
	}
	for _, none := range p.without {
		fmt.Fprintf(w, "%-40s not applicable: %s\n", none.Nemesis+"/"+none.Mode+"/"+none.Database, none.Why)
	}
}

// run runs the cells, some at a time, and reports the result of each. It begins no cell
// after until, unless until is zero. Among the results is one of a cell that could not be run to its
// end if a check has failed before.
func (p plan) run(ctx context.Context, w *supervisor.Supervisor, parallel int, until time.Time) (results []cell.Result, err error) {
	results = make([]cell.Result, len(p.specs))
	errs := make([]error, len(p.specs))
	var mu sync.Mutex // of the output
	var running sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for i, spec := range p.specs {
		slots <- struct{}{}
		if ctx.Err() != nil || !until.IsZero() && time.Now().After(until) {
			break
		}
		running.Go(func() {
			defer func() { <-slots }()
			results[i], errs[i] = cell.Run(ctx, w, spec)
			mu.Lock()
			defer mu.Unlock()
			report.Line(os.Stdout, results[i], errs[i])
		})
	}
	running.Wait()
	ran := results[:0]
	for i, r := range results {
		if errs[i] != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", p.specs[i].Name(), errs[i]))
		}
		if r.Took > 0 && (errs[i] == nil || len(r.Failures) > 0) {
			ran = append(ran, r)
		}
	}
	return ran, err
}
