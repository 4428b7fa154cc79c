// Planted puts one bug at a time into package claim and shows whether its exploration
// finds it. It exits with 1 if one is not found.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// bug is a change of one place of a file.
type bug struct {
	what     string
	file     string
	old, new string
}

var (
	only  = flag.String("only", "", "plant the bugs whose description matches this regular expression")
	walks = flag.String("walks", "4000", "random walks of each configuration")
	atime = flag.Int("p", 2, "how many bugs to try at a time")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	missed, err := plantAll(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "planted:", err)
		os.Exit(2)
	}
	if missed > 0 {
		os.Exit(1)
	}
}

func plantAll(ctx context.Context) (missed int, err error) {
	matching, err := regexp.Compile(*only)
	if err != nil {
		return 0, err
	}
	work, err := os.MkdirTemp("", "sqllock-planted-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(work)
	var chosen []bug
	for _, b := range bugs {
		if matching.MatchString(b.what) {
			chosen = append(chosen, b)
		}
	}
	results := make([]string, len(chosen))
	errs := make([]error, len(chosen))
	slots := make(chan struct{}, *atime)
	var wg sync.WaitGroup
	for i, b := range chosen {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			results[i], errs[i] = plant(ctx, filepath.Join(work, fmt.Sprint(i)), b)
		})
	}
	wg.Wait()
	fmt.Println("bug  found by  seconds")
	for i, b := range chosen {
		if errs[i] != nil {
			return 0, fmt.Errorf("%s: %w", b.what, errs[i])
		}
		if strings.HasPrefix(results[i], "NOTHING") {
			missed++
		}
		fmt.Printf("%s  %s\n", b.what, results[i])
	}
	fmt.Printf("%d of %d bugs found\n", len(chosen)-missed, len(chosen))
	return missed, nil
}

var found = regexp.MustCompile(`(?m)^ +explore_test\.go:\d+: (.*)$`)

// plant builds the package with a bug and explores it.
func plant(ctx context.Context, dir string, b bug) (string, error) {
	overlay, err := overlayOf(dir, b)
	if err != nil {
		return "", err
	}
	began := time.Now()
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-failfast", "-overlay", overlay, "-run", "TestNoInterleavingBreaksAName",
		"./internal/claim", "-args", "-explore.walks", *walks)
	out, err := cmd.CombinedOutput()
	took := fmt.Sprintf("  %.0f", time.Since(began).Seconds())
	switch m := found.FindSubmatch(out); {
	case err == nil:
		return "NOTHING" + took, nil
	case m != nil:
		why, _, _ := strings.Cut(string(m[1]), ": at ")
		return why + took, nil
	case strings.Contains(string(out), "panic:"):
		return "a panic" + took, nil
	}
	return "", fmt.Errorf("%w\n%s", err, out)
}

// overlayOf writes a file with the bug and the description by which the Go command uses it
// instead of the package's.
func overlayOf(dir string, b bug) (string, error) {
	original, err := filepath.Abs(filepath.Join("internal", "claim", b.file))
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), b.old); n != 1 {
		return "", fmt.Errorf("%d places look like %q", n, b.old)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	planted := filepath.Join(dir, b.file)
	if err := os.WriteFile(planted, []byte(strings.Replace(string(text), b.old, b.new, 1)), 0o644); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {original: planted}})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, overlay, 0o644)
}
