//go:build linux

package main

import (
	"context"
	"fmt"
	"time"
)

// The outcomes of a mutant.
const (
	killed   = "killed"
	survived = "survived"
	unproven = "unclear"   // a test failed that fails without the mutant too, or not again with it
	invalid  = "stillborn" // it is no program, or no SQL; it does not count
)

// A verdict is the result for one mutant.
type verdict struct {
	Mutant  string  `json:"mutant"`
	Target  string  `json:"target"`
	Change  string  `json:"change"`
	Outcome string  `json:"fate"`
	By      string  `json:"killed_by,omitempty"`
	Stages  int     `json:"stages"` // how many were run
	Seconds float64 `json:"seconds"`
}

// runner is one run of the command.
type runner struct {
	root, dir string
	suites    *suites
	healthy   *binaries // without a mutant
	depth     int       // how many stages to run at most
}

// fit returns an error if the tests that take no time fail without any mutant: then
// there is nothing to be learned.
func (j *runner) fit(ctx context.Context) error {
	s := j.suites.inNoTime()
	f, err := runStage(ctx, j.healthy, &s)
	if err == nil && f.by != "" {
		err = fmt.Errorf("without a mutant: %s", f.by)
	}
	return err
}

// judge runs the stages until one notices the mutant. It leaves out the stages that the
// mutant has survived before.
func (j *runner) judge(ctx context.Context, m *mutant, before verdict) (verdict, error) {
	v := verdict{Mutant: m.id(), Target: m.group, Change: m.change(), Outcome: survived, Stages: before.Stages}
	start := time.Now()
	b, err := plant(j.root, j.dir, m)
	if err != nil {
		return v, err
	}
	stages := j.suites.stages(m)
	for v.Stages < min(len(stages), j.depth) {
		s := &stages[v.Stages]
		for _, pkg := range s.packages() {
			if _, err := b.of(ctx, pkg); err != nil {
				v.Outcome, v.By = invalid, shorten(err.Error())
				return v, ctx.Err()
			}
		}
		v.Stages++
		if v.Outcome, v.By, err = j.try(ctx, b, s); v.Outcome != survived || err != nil {
			break
		}
	}
	v.Seconds = before.Seconds + time.Since(start).Seconds()
	return v, err
}

// maxTries is how often a stage is run if its failures prove nothing.
const maxTries = 2

// try runs a stage. A failure counts if the same tests pass without the mutant right
// after it, and fail with the mutant again. Otherwise a busy machine may be the cause.
func (j *runner) try(ctx context.Context, b *binaries, s *stage) (outcome, by string, err error) {
	for range maxTries {
		f, err := runStage(ctx, b, s)
		if err != nil || ctx.Err() != nil {
			return "", "", cause(ctx, err)
		}
		if f.by == "" {
			return survived, "", nil
		}
		if by = f.by; f.refused {
			return invalid, by, nil
		}
		sure, err := j.confirm(ctx, b, f, s.again)
		if err != nil || ctx.Err() != nil {
			return "", "", cause(ctx, err)
		}
		if sure {
			return killed, by, nil
		}
	}
	return unproven, by, nil
}

func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// confirm reports whether tests pass without the mutant and fail with it again, within
// three runs. A crash of the process needs no second run, because a busy machine does not
// cause it.
func (j *runner) confirm(ctx context.Context, b *binaries, seen failure, timeout time.Duration) (bool, error) {
	s := &stage{jobs: []job{seen.job}, timeout: timeout}
	f, err := runStage(ctx, j.healthy, s)
	if err != nil || f.by != "" {
		return false, err
	}
	for range 3 {
		if seen.died {
			return true, nil
		}
		if seen, err = runStage(ctx, b, s); err != nil || seen.by != "" {
			return seen.by != "", err
		}
	}
	return false, nil
}
