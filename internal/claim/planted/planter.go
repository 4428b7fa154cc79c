package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// change is that of one place of a file.
type change struct {
	what     string
	file     string
	old, new string
}

// bug is a change, or a mutant.
type bug struct {
	change
	mutant int // its number, from 1 on; 0: it is a change
}

// planter builds the tests of a package with bugs, and runs them.
type planter struct {
	pkg     string // its directory
	work    string
	program string // with all mutants
	mutants []mutant
}

func newPlanter(pkg string) (*planter, error) {
	work, err := os.MkdirTemp("", "sqllock-planted-")
	if err != nil {
		return nil, err
	}
	p := &planter{pkg: pkg, work: work, program: filepath.Join(work, "mutants.test")}
	var files []string
	for _, name := range mutated {
		files = append(files, filepath.Join(pkg, name))
	}
	texts, mutants, err := mutate(files)
	if err == nil {
		p.mutants = mutants
		err = p.build(p.program, texts)
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// mutated are the files of the package.
var mutated = []string{"claim.go", "fast.go"}

func (p *planter) close() { _ = os.RemoveAll(p.work) }

// build builds the tests with texts in place of files of the package.
func (p *planter) build(program string, texts map[string][]byte) error {
	replace := make(map[string]string)
	dir, err := os.MkdirTemp(p.work, "")
	if err != nil {
		return err
	}
	for name, text := range texts {
		original, err := filepath.Abs(filepath.Join(p.pkg, name))
		if err != nil {
			return err
		}
		replace[original] = filepath.Join(dir, name)
		if err := os.WriteFile(replace[original], text, 0o644); err != nil {
			return err
		}
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o644); err != nil {
		return err
	}
	out, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay", file, "-o", program, "./"+filepath.ToSlash(p.pkg)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// bugs are the mutants and the bugs of the list.
func (p *planter) bugs(matching *regexp.Regexp) (chosen []bug) {
	var all []bug
	for _, c := range changes {
		all = append(all, bug{change: c})
	}
	for i, m := range p.mutants {
		all = append(all, bug{change{what: m.String()}, i + 1})
	}
	for _, b := range all {
		if matching.MatchString(b.what) {
			chosen = append(chosen, b)
		}
	}
	return chosen
}

// choose returns a sample of n bugs, or all if n is 0.
func choose(all []bug, n int, by string) []bug {
	if n == 0 || n >= len(all) {
		return all
	}
	h := fnv.New64a()
	h.Write([]byte(by))
	rng := rand.New(rand.NewPCG(h.Sum64(), 0))
	rng.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	fmt.Printf("a sample of %d of %d bugs, chosen by %q\n", n, len(all), by)
	return all[:n]
}

// verdict is what became of a bug.
type verdict struct {
	why  string // why it was found; empty: it was not
	way  string
	took time.Duration
	err  error
}

// tally counts verdicts.
type tally struct {
	mu            sync.Mutex
	found, missed int
	err           error
}

// plantAll plants bugs and prints what becomes of each. It returns how many should have been
// found, and were not.
func (p *planter) plantAll(ctx context.Context, all []bug) (missed int, err error) {
	var n tally
	slots := make(chan struct{}, *atime)
	var wg sync.WaitGroup
	for _, b := range all {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			n.add(b, p.plant(ctx, b))
		})
	}
	wg.Wait()
	fmt.Printf("%d of %d bugs found, %d missed\n", n.found, len(all), n.missed)
	return n.missed, n.err
}

// add prints and counts a verdict.
func (n *tally) add(b bug, v verdict) {
	n.mu.Lock()
	defer n.mu.Unlock()
	outcome := v.why
	switch {
	case v.err != nil:
		n.err = fmt.Errorf("%s: %w", b.what, v.err)
		outcome = v.err.Error()
	case v.why == "":
		n.missed++
		outcome = "NOT FOUND"
	default:
		n.found++
	}
	fmt.Printf("%5.1f  %s\n       %s\n%s", v.took.Seconds(), b.what, outcome, v.way)
}

// tooLong is for how long a bug is tried that does not come to an end.
const tooLong = 10 * time.Minute

const (
	exploration = "^TestNoInterleavingBreaksAName$"
	slow        = exploration + "|^TestAWithdrawalIsNotAnswered|OfTheProof$" + // which explore, too
		"|^TestWhatTheExplorationLeavesOut|^TestTheDocumentation" // in which no bug can show
)

var (
	broken = regexp.MustCompile(`(?m)^ +explore_test\.go:\d+: (.*)$`)
	failed = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)
)

// plant runs the tests of the package with a bug: first the quick ones, then the exploration.
func (p *planter) plant(ctx context.Context, b bug) (v verdict) {
	began := time.Now()
	defer func() { v.took = time.Since(began) }()
	program, err := p.programOf(b)
	if err != nil {
		return verdict{err: err}
	}
	if b.mutant == 0 {
		defer os.Remove(program)
	}
	ctx, cancel := context.WithTimeout(ctx, tooLong)
	defer cancel()
	if !*explores {
		v = test(ctx, program, b, "-test.skip="+slow, "-test.failfast", "-test.timeout=30s")
	}
	if v.why == "" && v.err == nil {
		v = test(ctx, program, b, "-test.run="+exploration, "-explore.weight="+*weight, "-explore.least=0", "-explore.timeout=20s")
	}
	return v
}

// programOf returns the tests of the package with a bug. They have all mutants.
func (p *planter) programOf(b bug) (program string, err error) {
	if b.mutant != 0 {
		return p.program, nil
	}
	text, err := os.ReadFile(filepath.Join(p.pkg, b.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), b.old); n != 1 {
		return "", fmt.Errorf("%d places look like %q", n, b.old)
	}
	program = filepath.Join(p.work, fmt.Sprintf("bug%d.test", fnvOf(b.what)))
	return program, p.build(program, map[string][]byte{b.file: []byte(strings.Replace(string(text), b.old, b.new, 1))})
}

// test runs some tests with a bug.
func test(ctx context.Context, program string, b bug, flags ...string) (v verdict) {
	cmd := exec.CommandContext(ctx, program, flags...)
	cmd.Env = append(os.Environ(), "SQLLOCK_PLANTED="+strconv.Itoa(b.mutant), "GOMAXPROCS=1")
	out, err := cmd.CombinedOutput()
	explored, other := broken.FindSubmatch(out), failed.FindSubmatch(out)
	switch {
	case err == nil:
	case explored != nil:
		v.why = string(explored[1])
		if *verbose {
			v.way = string(out[bytes.Index(out, explored[0])+len(explored[0]):])
		}
	case bytes.Contains(out, []byte("panic: test timed out")):
		v.why = "a test does not end"
	case bytes.Contains(out, []byte("panic:")):
		v.why = "a panic"
	case other != nil:
		v.why = string(other[1])
	default:
		v.err = fmt.Errorf("%w\n%s", err, out)
	}
	return v
}

func fnvOf(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	return h.Sum64()
}
