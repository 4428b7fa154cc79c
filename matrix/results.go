//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// result is what a cell came to. Each is a line of the file of results.
type result struct {
	Cell     string   `json:"cell"`
	Version  string   `json:"version"` // of the database, as it tells
	Driver   string   `json:"driver"`
	Short    bool     `json:"brief"`
	Passed   int      `json:"passed"`
	Failed   int      `json:"failed"`
	Failures []string `json:"failures,omitempty"` // names of tests
	Date     string   `json:"date"`
	Seconds  int      `json:"seconds"`
	Commit   string   `json:"commit"`

	Reason string `json:"-"` // why it did not run
}

func (r *result) outcome() string {
	if r.Reason != "" {
		return "NOT covered: " + r.Reason
	}
	return fmt.Sprintf("%s, %s, %s: %d passed, %d failed, in %d s", r.extent(), r.Version, r.Driver, r.Passed, r.Failed, r.Seconds)
}

func (r *result) extent() string {
	if r.Short {
		return "in brief"
	}
	return "whole"
}

type results []result

// readResults reads a file of results, which need not be there.
func readResults(file string) (all results, err error) {
	if file == "" {
		return nil, nil
	}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// appendResult adds a line to a file of results.
func appendResult(file string, r result) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// of returns the result of a cell at a commit; a whole one does for a short one.
func (all results) of(c *cell, short bool, commit string) (result, bool) {
	for i := len(all) - 1; i >= 0; i-- {
		if r := all[i]; r.Cell == c.name && r.Commit == commit && (short || !r.Short) {
			return r, true
		}
	}
	return result{}, false
}

// newest returns the newest whole result of a cell, or its newest one if it never ran whole.
func (all results) newest(c *cell) (r result, found bool) {
	for _, x := range all {
		if x.Cell == c.name && (!found || !x.Short || r.Short) {
			r, found = x, true
		}
	}
	return r, found
}

// tableFile is the name of the file that has the table.
const tableFile = "table.txt"

// heading is that of the table, as in the document.
const heading = "| cell | database | driver | ran | passed | failed | date |"

// shortPath writes the path of a driver as people do.
var shortPath = strings.NewReplacer("github.com/", "", "jackc/pgx/v5", "pgx", "go-sql-driver/mysql", "go-sql-driver", "modernc.org/sqlite", "modernc")

// table returns a row for each cell, in Markdown.
func (all results) table() string {
	var b strings.Builder
	b.WriteString(heading + "\n|---|---|---|---|---|---|---|\n")
	for i := range cells {
		r, found := all.newest(&cells[i])
		if !found {
			fmt.Fprintf(&b, "| %s | – | – | not yet | – | – | – |\n", cells[i].name)
			continue
		}
		version, _, _ := strings.Cut(r.Version, "-")
		version, _, _ = strings.Cut(version, " ")
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %d | %s |\n", r.Cell, version, shortPath.Replace(r.Driver), r.extent(), thousands(r.Passed), r.Failed, r.Date)
	}
	return b.String()
}

// thousands writes a number with commas, as the documents do.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// replaceTable writes the table into a document that has one with the same heading.
func replaceTable(file, table string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), "\n"+heading+"\n")
	if !found {
		return fmt.Errorf("%s has no table %q", file, heading)
	}
	for strings.HasPrefix(rest, "|") {
		_, rest, _ = strings.Cut(rest, "\n")
	}
	return os.WriteFile(file, []byte(before+"\n"+table+rest), 0o644)
}
