//go:build linux

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sqllock/sqllock/faults/peers/internal/locks"
)

// A report is the final report.
type report struct {
	settings
	results []result
	without []without
}

// broken returns the results of this project's locks that docs/guarantees.md excludes.
func (r report) broken() []string {
	var found []string
	for _, c := range r.results {
		if !c.system.Ours {
			continue
		}
		if c.fenced > 0 {
			found = append(found, fmt.Sprintf("%s: %d writes were accepted that carried the token of a former holder", c.name(), c.fenced))
		}
		if c.Late > 0 && c.system.Overlap[c.nemesis.Name] == "" {
			found = append(found, fmt.Sprintf("%s: %d holders still believed that they held, for up to %v", c.name(), c.Late, c.Worst))
		}
		if c.Acquisitions == 0 {
			found = append(found, c.name()+": nobody acquired anything")
		}
		if len(c.stuck) > 0 {
			found = append(found, fmt.Sprintf("%s: %s", c.name(), strings.Join(c.stuck, "; ")))
		}
	}
	return found
}

var columns = []string{
	"system", "fault", "faults", "acquisitions", "unprotected violations", "fenced violations", "fenced writes refused", "late notices",
}

// print prints one table, in Markdown, with explanations.
func (r report) print(w io.Writer) {
	rows := [][]string{columns}
	for _, c := range r.results {
		rows = append(rows, c.row())
	}
	for _, n := range r.without {
		row := []string{n.System, n.Fault}
		for range columns[2:] {
			row = append(row, "–")
		}
		rows = append(rows, row)
	}
	fmt.Fprintf(w, "\nSeed %d, %v of faults in each cell.\n\n", r.seed, r.each)
	table(w, rows)
	if len(r.without) > 0 {
		fmt.Fprintln(w)
	}
	for _, n := range r.without {
		fmt.Fprintf(w, "not applicable: %s for %s: %s\n", n.Fault, n.System, n.Why)
	}
	legend := [][]string{{"system", "its token", "how a holder knows", "what its authors promise"}}
	for _, s := range r.systems() {
		legend = append(legend, []string{s.Name, cmp.Or(s.Token, "none"), s.Knows, s.Claims})
	}
	fmt.Fprintln(w)
	table(w, legend)
	fmt.Fprintln(w)
	for _, c := range r.results {
		for _, stuck := range c.stuck {
			fmt.Fprintf(w, "did not end in order: %s: %s\n", c.name(), stuck)
		}
	}
	for _, what := range r.broken() {
		fmt.Fprintln(w, "FAILED:", what)
	}
}

// systems returns those that have results, once each.
func (r report) systems() []locks.System {
	var all []locks.System
	seen := make(map[string]bool)
	for _, c := range r.results {
		if !seen[c.system.Name] {
			seen[c.system.Name] = true
			all = append(all, c.system)
		}
	}
	return all
}

func (c result) row() []string {
	row := []string{c.system.Name, c.nemesis.Name}
	for _, n := range []int{c.Faults, c.Acquisitions, c.unprotected, c.fenced, c.refused, c.Late} {
		row = append(row, strconv.Itoa(n))
	}
	if c.system.Token == "" {
		row[5], row[6] = "no token", "no token"
	}
	if c.Late > 0 {
		row[7] += fmt.Sprintf(", for up to %v", c.Worst.Round(100*time.Microsecond))
	}
	if why := c.system.Overlap[c.nemesis.Name]; why != "" {
		row[7] += " (" + why + ")"
	}
	return row
}

// table prints rows, of which the first is the head.
func table(w io.Writer, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, text := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	for i, row := range rows {
		line := "|"
		for j, text := range row {
			line += " " + text + strings.Repeat(" ", widths[j]-utf8.RuneCountInString(text)) + " |"
		}
		fmt.Fprintln(w, line)
		if i == 0 {
			line := "|"
			for _, width := range widths {
				line += strings.Repeat("-", width+2) + "|"
			}
			fmt.Fprintln(w, line)
		}
	}
}

// row is a cell in the report.
type row struct {
	System       string   `json:"system"`
	Fault        string   `json:"fault"`
	Seconds      float64  `json:"seconds"`
	Faults       int      `json:"faults"`
	Acquisitions int      `json:"acquisitions"`
	Errors       int      `json:"lock_errors"`
	Unprotected  int      `json:"unprotected_violations"`
	Fenced       *int     `json:"fenced_violations"` // null if there is no token
	Refused      *int     `json:"fenced_refused"`
	Late         int      `json:"late_notices"`
	WorstMs      float64  `json:"late_worst_ms"`
	Excluded     string   `json:"overlap_owned_up_to,omitempty"` // the row of the documentation
	Stuck        []string `json:"stuck,omitempty"`
}

// save writes the report as JSON.
func (r report) save(path string) error {
	file := struct {
		Seed         uint64    `json:"seed"`
		FaultSeconds float64   `json:"struck_seconds"`
		Cells        []row     `json:"cells"`
		Without      []without `json:"without"`
		Broken       []string  `json:"broken"`
	}{r.seed, r.each.Seconds(), []row{}, append([]without{}, r.without...), append([]string{}, r.broken()...)}
	for _, c := range r.results {
		cell := row{
			System: c.system.Name, Fault: c.nemesis.Name, Seconds: c.took.Seconds(), Faults: c.Faults,
			Acquisitions: c.Acquisitions, Errors: c.Errors, Unprotected: c.unprotected,
			Late: c.Late, WorstMs: float64(c.Worst.Microseconds()) / 1000,
			Excluded: c.system.Overlap[c.nemesis.Name], Stuck: c.stuck,
		}
		if c.system.Token != "" {
			cell.Fenced, cell.Refused = &c.fenced, &c.refused
		}
		file.Cells = append(file.Cells, cell)
	}
	text, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
