//go:build linux

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/sqllock/sqllock/faults/internal/cell"
	"github.com/sqllock/sqllock/faults/internal/client"
	"github.com/sqllock/sqllock/faults/internal/nemesis"
	"github.com/sqllock/sqllock/faults/internal/server"
	"github.com/sqllock/sqllock/internal/testdb/supervisor"
)

func TestMain(m *testing.M) {
	supervisor.Main()
	client.Main()
	os.Exit(m.Run())
}

// SQLite needs nothing that must be installed.
func TestPausedClientsHarmOnlyTheUnprotectedRegister(t *testing.T) {
	for seed := range 15 {
		c := paused(t, strconv.Itoa(seed))
		if c.Acquisitions == 0 || c.HandOvers == 0 || c.Lost == 0 {
			t.Errorf("nothing happened: %+v", c)
		}
		if c.Unprotected > 0 {
			return
		}
		// On a slow machine it can happen that no client writes while another one is
		// paused.
	}
	t.Error("the pauses did no harm")
}

type counts struct {
	Acquisitions, HandOvers, Lost int
	Unprotected                   int `json:"unprotected_violations"`
}

// paused runs a cell. All of its checks must pass.
func paused(t *testing.T, seed string) counts {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.json")
	ok, err := run([]string{"-nemesis", "client-pause", "-mode", "unique", "-database", "sqlite", "-seconds", "6", "-seed", seed, "-report", file})
	if err != nil || !ok {
		t.Fatalf("run: %v, %v", ok, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Cells   []counts
		Planted []any
	}
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Cells) != 1 || report.Planted == nil {
		t.Fatalf("report: %s", text)
	}
	return report.Cells[0]
}

func TestEachNemesisAppliesToEachPairOrGivesAReason(t *testing.T) {
	p, err := settings{databases: []string{"sqlite", "postgres", "mariadb", "galera"}}.plan()
	if err != nil {
		t.Fatal(err)
	}
	want := len(harms) * (len(uses)*4 + len(paths))
	for _, n := range nemesis.All() {
		if n.Nodes {
			want++
		} else {
			want += len(pairs)
		}
	}
	if got := len(p.specs) + len(p.without); got != want {
		t.Errorf("%d cells, want %d", got, want)
	}
	for _, none := range p.without {
		if none.Why == "" {
			t.Errorf("%+v: nobody knows why not", none)
		}
	}
}

func TestTheShortListHasEachPairAndOnlyExistingCells(t *testing.T) {
	p, err := settings{short: true}.plan()
	if err != nil {
		t.Fatal(err)
	}
	if len(p.specs) != len(shortly) {
		t.Errorf("%d cells of %d exist", len(p.specs), len(shortly))
	}
	for _, pair := range pairs {
		if pair[1] == server.Galera { // which make galera is for
			continue
		}
		if !slices.ContainsFunc(shortly, func(c [3]string) bool { return c[1] == pair[0] && c[2] == pair[1] }) {
			t.Errorf("%v is not on the short list", pair)
		}
	}
}

func TestAnUnknownCellIsAnError(t *testing.T) {
	for _, args := range [][]string{{"-nemesis", "rain"}, {"-mode", "advisory", "-database", "sqlite"}, {"word"}} {
		if ok, err := run(args); ok || err == nil {
			t.Errorf("run(%q): %v, %v", args, ok, err)
		}
	}
}

func TestARunWithoutACellIsAnError(t *testing.T) {
	args := []string{"-nemesis", "none", "-mode", "unique", "-database", "sqlite", "-for", "-1s", "-report", ""}
	if _, err := run(args); err == nil {
		t.Error("no error")
	}
}

func TestAClusterRunsOnlyIfItIsNamed(t *testing.T) {
	p, err := settings{}.plan()
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(p.specs, func(c cell.Spec) bool { return c.Database == server.Galera }) {
		t.Error("a cell of Galera runs though nobody asked for it")
	}
	p, err = settings{databases: []string{server.Galera}, nemeses: []string{"node-kill"}}.plan()
	if err != nil || len(p.specs) != 1 {
		t.Errorf("%d cells, %v", len(p.specs), err)
	}
}
