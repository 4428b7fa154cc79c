// Schedules runs the tests of package internal/schedule with a Go runtime in which a seed decides
// what the runtime draws: the order of a map, of cases of a select that are ready at once, and of
// timers of one time. Nor does that runtime interrupt a goroutine that has run for long. So each seed is one schedule, which can be repeated.
//
//	go run ./scripts/schedules -count 100000 -first 1
//	go run ./scripts/schedules -seed 4711
//
// The runtime is that of the Go installation, with a few lines changed. It is built apart, which
// takes half a minute for the first time. Schedules exits with 1 if a schedule has failed.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

var (
	seed  = flag.Uint64("seed", 0, "run this schedule alone, and print its trace")
	first = flag.Uint64("first", 1, "the seed of the first schedule")
	count = flag.Uint64("count", 100_000, "how many schedules to run")
	part  = flag.Uint64("part", 5000, "how many of them one process runs")
	atime = flag.Int("p", runtime.NumCPU(), "how many processes run at a time")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "schedules:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "sqllock-schedules-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program, err := build(ctx, dir)
	if err != nil {
		return err
	}
	if *seed != 0 {
		out, err := exec.CommandContext(ctx, program, "-test.v", "-test.run=^TestSchedules$", "-schedule.seed="+strconv.FormatUint(*seed, 10)).CombinedOutput()
		fmt.Printf("%s", out)
		return err
	}
	if out, err := exec.CommandContext(ctx, program, "-test.v", "-test.run=^TestTheSeedDecidesTheSchedule$").CombinedOutput(); err != nil {
		return fmt.Errorf("the seed does not decide the schedule: %w\n%s", err, out)
	}
	return runAll(ctx, program)
}

// A patch replaces a text that occurs once in a file of the runtime, or adds one at its end.
type patch struct{ file, old, new string }

const drawn = `
//go:linkname scheduleSeed
var scheduleSeed uint64

// scheduled draws from scheduleSeed, in a bubble.
//
//go:nosplit
func scheduled() (x uint64, ok bool) {
	if gp := getg(); scheduleSeed == 0 || gp != gp.m.curg || gp.bubble == nil {
		return 0, false
	}
	if scheduleSeed += 0xa0761d6478bd642f; scheduleSeed == 0 {
		scheduleSeed = 1
	}
	hi, lo := math.Mul64(scheduleSeed, scheduleSeed^0xe7037ed1a0b428db)
	return hi ^ lo, true
}

func scheduledn(n uint32) uint32 {
	if x, ok := scheduled(); ok {
		return uint32(x % uint64(n))
	}
	return cheaprandn(n)
}
`

var patches = []patch{
	{"rand.go", "func rand() uint64 {\n", "func rand() uint64 {\n\tif x, ok := scheduled(); ok {\n\t\treturn x\n\t}\n"},
	{"rand.go", "", drawn},
	{"select.go", "j := cheaprandn(uint32(norder + 1))", "j := scheduledn(uint32(norder + 1))"},
	{"proc.go", "func preemptone(pp *p) bool {\n", "func preemptone(pp *p) bool {\n\tif scheduleSeed != 0 {\n\t\treturn false\n\t}\n"},
	{"time.go", "t.rand = cheaprand()", "t.rand = scheduledn(1<<32 - 1)"},
}

// build builds the tests with the changed runtime.
func build(ctx context.Context, dir string) (program string, err error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	replace := make(map[string]string)
	for _, p := range patches {
		file := filepath.Join(strings.TrimSpace(string(root)), "src", "runtime", p.file)
		from := file
		if replace[file] != "" {
			from = replace[file]
		}
		text, err := os.ReadFile(from)
		if err != nil {
			return "", err
		}
		changed := string(text) + p.new
		if p.old != "" {
			if n := strings.Count(string(text), p.old); n != 1 {
				return "", fmt.Errorf("%s of this version of Go has %d times, and not once: %q", file, n, p.old)
			}
			changed = strings.Replace(string(text), p.old, p.new, 1)
		}
		replace[file] = filepath.Join(dir, p.file)
		if err := os.WriteFile(replace[file], []byte(changed), 0o644); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "schedule.test")
	if err := os.WriteFile(overlay, text, 0o644); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, "go", "test", "-c", "-tags", "seeded", "-overlay", overlay, "-o", program, "./internal/schedule").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go test -c: %w\n%s", err, out)
	}
	return program, nil
}

// runAll runs the schedules in parts, and prints what each part says, and the sums.
func runAll(ctx context.Context, program string) error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var sums [len(figures)]int
	failed := 0
	slots := make(chan struct{}, *atime)
	fmt.Printf("%s %s/%s, %d schedules from seed %d\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, *count, *first)
	fmt.Println("from seed  " + strings.Join(figures[:], "  "))
	for from := *first; from < *first+*count && ctx.Err() == nil; from += *part {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			n := min(*part, *first+*count-from)
			out, err := exec.CommandContext(ctx, program, "-test.v", "-test.timeout=6h", "-test.run=^TestSchedules$",
				fmt.Sprintf("-schedule.first=%d", from), fmt.Sprintf("-schedule.count=%d", n)).CombinedOutput()
			mu.Lock()
			defer mu.Unlock()
			found := read(string(out))
			fmt.Println(row(fmt.Sprint(from), found))
			for i := range sums {
				sums[i] += found[i]
			}
			if err != nil {
				failed++
				fmt.Printf("%s\n", out)
			}
		})
	}
	wg.Wait()
	fmt.Println(row("all", sums))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if failed > 0 {
		return fmt.Errorf("%d parts have failed", failed)
	}
	return nil
}

// figures are what the test prints, in this order.
var figures = [...]string{"schedules", "calls", "faults", "leases", "lost", "failures"}

var printed = regexp.MustCompile(`(\d+) (schedules|calls|faults|leases|lost|failures)`)

// read reads the figures that a process has printed.
func read(out string) (found [len(figures)]int) {
	s := bufio.NewScanner(strings.NewReader(out))
	s.Buffer(nil, 1<<24)
	for s.Scan() {
		_, line, ok := strings.Cut(s.Text(), "in all: ")
		if !ok {
			continue
		}
		for _, m := range printed.FindAllStringSubmatch(line, -1) {
			for i, name := range figures {
				if name == m[2] {
					found[i], _ = strconv.Atoi(m[1])
				}
			}
		}
	}
	return found
}

func row(label string, found [len(figures)]int) string {
	text := fmt.Sprintf("%9s", label)
	for i, n := range found {
		text += fmt.Sprintf("  %*d", len(figures[i]), n)
	}
	return text
}
