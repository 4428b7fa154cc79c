//go:build linux

package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/faults/peers/internal/judge"
	"github.com/sqllock/sqllock/faults/peers/internal/locks"
	"github.com/sqllock/sqllock/faults/peers/internal/worker"
	"github.com/sqllock/sqllock/internal/testdb/supervisor"
)

func TestMain(m *testing.M) {
	supervisor.Main()
	worker.Main()
	os.Exit(m.Run())
}

// A column that is empty for a lock that does not lock would be empty for every lock.
func TestABrokenLockShowsInEachColumn(t *testing.T) {
	r := shortRun(t, "nothing")
	if r.Unprotected == 0 || r.Fenced == nil || *r.Fenced == 0 || r.Late == 0 {
		t.Errorf("not all was noticed: %+v", r)
	}
}

// SQLite needs nothing that must be installed.
func TestNoColumnShowsALockWithoutFaults(t *testing.T) {
	r := shortRun(t, "sqllock-unique/sqlite")
	if r.Acquisitions == 0 || r.Unprotected != 0 || r.Fenced == nil || *r.Fenced != 0 || r.Late != 0 || len(r.Stuck) > 0 {
		t.Errorf("%+v", r)
	}
}

// shortRun runs the cell of a system without faults.
func shortRun(t *testing.T, system string) row {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.json")
	ok, err := run(io.Discard, []string{"-system", system, "-fault", noFault, "-seconds", "1.5", "-report", path})
	if err != nil || !ok {
		t.Fatalf("run: %v, %v", ok, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cells []row }
	if err := json.Unmarshal(text, &file); err != nil || len(file.Cells) != 1 {
		t.Fatalf("%v: %s", err, text)
	}
	return file.Cells[0]
}

func TestOnlyBrokenPromisesOfSqllockFailTheRun(t *testing.T) {
	specs, _, err := settings{}.plan()
	if err != nil {
		t.Fatal(err)
	}
	worked := judge.Counts{Acquisitions: 1}
	for _, s := range specs {
		excluded := s.system.Overlap[s.nemesis.Name] != ""
		for name, c := range map[string]struct {
			result
			fails bool
		}{
			"fine":          {result{spec: s, Counts: worked, unprotected: 3, refused: 2}, false},
			"fenced":        {result{spec: s, Counts: worked, fenced: 1}, s.system.Ours},
			"late":          {result{spec: s, Counts: judge.Counts{Acquisitions: 1, Late: 1, Worst: time.Millisecond}}, s.system.Ours && !excluded},
			"does not end":  {result{spec: s, Counts: worked, stuck: []string{"c1"}}, s.system.Ours},
			"has errors":    {result{spec: s, Counts: judge.Counts{Acquisitions: 1, Errors: 5}}, false},
			"has no holder": {result{spec: s, Counts: judge.Counts{Errors: 5}}, s.system.Ours},
		} {
			r := report{results: []result{c.result}}
			if got := len(r.broken()) > 0; got != c.fails {
				t.Errorf("%s: %s: fails is %v", s.name(), name, got)
			}
			var out strings.Builder
			r.print(&out)
			if strings.Contains(out.String(), "FAILED") != c.fails {
				t.Errorf("%s: %s: the output is\n%s", s.name(), name, out.String())
			}
		}
	}
}

func TestEachFaultAppliesToEachSystemOrGivesAReason(t *testing.T) {
	specs, not, err := settings{}.plan()
	if err != nil {
		t.Fatal(err)
	}
	for _, system := range locks.All() {
		for _, fault := range faultNames {
			if system.Only != "" && system.Only != fault {
				continue
			}
			there := slices.ContainsFunc(specs, func(s spec) bool { return s.system.Name == system.Name && s.nemesis.Name == fault })
			excused := slices.ContainsFunc(not, func(n without) bool { return n.System == system.Name && n.Fault == fault && n.Why != "" })
			if there == excused {
				t.Errorf("%s of %s: there is %v, told why not is %v", fault, system.Name, there, excused)
			}
		}
	}
}

func TestAnUnknownCellIsAnError(t *testing.T) {
	for _, args := range [][]string{{"-fault", "rain"}, {"-system", "luck"}, {"word"}, {"-seconds", "0"}, {"-parallel", "0"}} {
		if ok, err := run(io.Discard, args); ok || err == nil {
			t.Errorf("run(%q): %v, %v", args, ok, err)
		}
	}
}

// The faults, their times and their targets must be the same for all systems.
func TestTheFaultsAreTheSameForAllSystems(t *testing.T) {
	specs, _, err := settings{seed: 7}.plan()
	if err != nil {
		t.Fatal(err)
	}
	seeds := make(map[string]uint64)
	for _, s := range specs {
		mix := (&cell{spec: s}).mix()
		if seen, ok := seeds[s.nemesis.Name]; ok && seen != mix {
			t.Errorf("%s: another seed", s.name())
		}
		seeds[s.nemesis.Name] = mix
	}
	s := specs[0]
	s.seed++
	if (&cell{spec: s}).mix() == seeds[s.nemesis.Name] {
		t.Error("the seed does not matter")
	}
}
