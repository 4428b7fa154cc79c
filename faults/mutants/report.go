//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"text/tabwriter"
)

// report is a file of verdicts, one JSON object a line, written as they come.
type report struct {
	path string
	all  []verdict
}

// load reads the verdicts of an earlier run.
func (r *report) load() error {
	f, err := os.Open(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var v verdict
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			return fmt.Errorf("%s: %w", r.path, err)
		}
		r.all = append(r.all, v)
	}
	return lines.Err()
}

// begin loads the verdicts of an earlier run, or removes them.
func (r *report) begin(resume bool) error {
	if resume {
		return r.load()
	}
	if err := os.Remove(r.path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// known returns the last verdict on a mutant, or none.
func (r *report) known(m *mutant) (v verdict) {
	for _, x := range r.all {
		if x.Mutant == m.id() && x.Change == m.change() {
			v = x
		}
	}
	return v
}

// latest returns one verdict on each mutant.
func (r *report) latest() (all []verdict) {
	at := make(map[string]int)
	for _, v := range r.all {
		i, again := at[v.Mutant]
		if !again {
			i, all = len(all), append(all, v)
			at[v.Mutant] = i
		}
		all[i] = v
	}
	return all
}

func (r *report) add(v verdict) error {
	r.all = append(r.all, v)
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(r.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	return errors.Join(err, f.Close())
}

// show prints all mutants that count, the numbers of each target, and the survivors.
func show(w io.Writer, all []verdict) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "mutant\tchange\tkilled by\tseconds")
	for _, v := range all {
		if v.Outcome == invalid {
			continue
		}
		by := v.By
		if v.Outcome != killed {
			by = v.Outcome
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%.0f\n", v.Mutant, v.Change, by, v.Seconds)
	}
	fmt.Fprintln(t, "\ntarget\tmutants\tkilled\tper cent\tunclear\tstillborn")
	names := []string{""}
	for _, x := range targets {
		names = append(names, x.name)
	}
	for _, name := range append(names[1:], "") {
		n := make(map[string]int)
		for _, v := range all {
			if name == "" || v.Target == name {
				n[v.Outcome]++
			}
		}
		counted := n[killed] + n[survived] + n[unproven]
		if name == "" {
			name = "all"
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%.0f\t%d\t%d\n", name, counted, n[killed], 100*float64(n[killed])/float64(max(1, counted)), n[unproven], n[invalid])
	}
	_ = t.Flush()
	for _, v := range all {
		if v.Outcome == survived || v.Outcome == unproven {
			fmt.Fprintf(w, "%s: %s: %s %s\n", v.Outcome, v.Mutant, v.Change, v.By)
		}
	}
}
