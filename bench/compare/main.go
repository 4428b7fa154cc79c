// Command compare measures this project's locks of another commit and of the working tree, in
// turn, and prints how much faster or slower each workload has become.
//
//	go run ./compare -commit dd7bcee -pairs 7
//
// Both are measured by their own bench, built for the purpose. The workloads and the contenders
// that both have are compared.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	commit := flag.String("commit", "HEAD", "the `commit` to compare with")
	pairs := flag.Int("pairs", 7, "how often each is measured")
	workloads := flag.String("workload", "distinct,hot", "`workloads`, with commas; those with cycles")
	callers := flag.String("callers", "1,64,1024", "`numbers` of callers with distinct names, with commas")
	flag.Parse()
	if *pairs < 1 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	dir, err := os.MkdirTemp("", "sqllock-compare-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	before, after, err := build(ctx, dir, *commit)
	if err != nil {
		return err
	}
	ratios := make(map[key][]float64)
	for i := range *pairs {
		fmt.Fprintf(os.Stderr, "compare: pair %d of %d\n", i+1, *pairs)
		args := []string{"-only", "^sqllock/", "-rounds", "1", "-workload", *workloads, "-callers", *callers}
		var cycles [2]map[key]float64
		for k := range cycles {
			which := (k + i) % 2 // who comes first takes turns
			bench := []string{before, after}[which]
			if cycles[which], err = measure(ctx, bench, filepath.Join(dir, "results"), args); err != nil {
				return err
			}
		}
		for k, old := range cycles[0] {
			if now := cycles[1][k]; old > 0 && now > 0 {
				ratios[k] = append(ratios[k], now/old)
			}
		}
	}
	return write(ratios)
}

// build builds the bench of a commit and of the working tree.
func build(ctx context.Context, dir, commit string) (before, after string, err error) {
	top, err := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return "", "", err
	}
	here, there := strings.TrimSpace(string(top)), filepath.Join(dir, "commit")
	for _, args := range [][]string{{"clone", "--quiet", "--shared", here, there}, {"-C", there, "checkout", "--quiet", commit}} {
		if err := command(ctx, "", "git", args...); err != nil {
			return "", "", err
		}
	}
	before, after = filepath.Join(dir, "before"), filepath.Join(dir, "after")
	err = command(ctx, filepath.Join(there, "bench"), "go", "build", "-o", before, ".")
	if err == nil {
		err = command(ctx, filepath.Join(here, "bench"), "go", "build", "-o", after, ".")
	}
	return before, after, err
}

func command(ctx context.Context, dir, name string, args ...string) error {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Stderr, c.Env = dir, os.Stderr, append(os.Environ(), "GOWORK=off")
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) } // it ends its servers
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return nil
}

// key is what is compared.
type key struct {
	Workload  string
	Contender string
	Callers   int
}

// measure returns the cycles per second.
func measure(ctx context.Context, bench, out string, args []string) (map[key]float64, error) {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, err
	}
	if err := command(ctx, "", bench, append(args, "-out", out)...); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(out, "latest.json"))
	if err != nil {
		return nil, err
	}
	var results struct {
		Rows []struct {
			key
			Cycles float64 `json:"cycles_per_s"`
		}
	}
	if err := json.Unmarshal(text, &results); err != nil {
		return nil, err
	}
	cycles := make(map[key]float64)
	for _, r := range results.Rows {
		cycles[r.key] = r.Cycles
	}
	return cycles, nil
}

// write prints the median and the extremes of the ratios.
func write(ratios map[key][]float64) error {
	keys := make([]key, 0, len(ratios))
	for k := range ratios {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(strings.Compare(a.Workload, b.Workload), strings.Compare(a.Contender, b.Contender), cmp.Compare(a.Callers, b.Callers))
	})
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "workload\tcontender\tcallers\tafter / before\tleast\tmost\tpairs")
	for _, k := range keys {
		all := ratios[k]
		slices.Sort(all)
		_, _ = fmt.Fprintf(w, "%s\t%s\t%d\t%.2f\t%.2f\t%.2f\t%d\n", k.Workload, k.Contender, k.Callers, all[len(all)/2], all[0], all[len(all)-1], len(all))
	}
	return w.Flush()
}
