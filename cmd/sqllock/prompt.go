package main

import (
	"bufio"
	"context"
	"fmt"
	"os"

	tty "golang.org/x/term"
)

func isTerminal(f *os.File) bool { return tty.IsTerminal(int(f.Fd())) }

// prompt asks a question on stderr and returns the line that is typed on the terminal of stdin.
func (a *app) prompt(ctx context.Context, question string) (string, error) {
	return a.typed(ctx, question, func() (string, error) { return bufio.NewReader(a.stdin).ReadString('\n') })
}

// promptSecret is prompt for what nobody may read over a shoulder: the terminal does not show it.
func (a *app) promptSecret(ctx context.Context, question string) (string, error) {
	terminal := int(a.stdin.Fd())
	before, err := tty.GetState(terminal)
	if err != nil {
		return "", fail(exitSystem, "cannot use the terminal: %w", err)
	}
	line, err := a.typed(ctx, question, func() (string, error) {
		line, err := tty.ReadPassword(terminal)
		return string(line), err
	})
	_ = tty.Restore(terminal, before) // if a signal came first
	_, _ = fmt.Fprintln(a.stderr)     // the end of the line was not shown either
	return line, err
}

// typed returns what read returns, unless a signal comes first: then this process ends, and with
// it what still reads.
func (a *app) typed(ctx context.Context, question string, read func() (string, error)) (string, error) {
	type answer struct {
		line string
		err  error
	}
	_, _ = fmt.Fprint(a.stderr, question)
	came := make(chan answer, 1)
	go func() {
		line, err := read()
		came <- answer{line, err}
	}()
	select {
	case x := <-came:
		if x.err != nil {
			return "", fail(exitUsage, "there was no answer")
		}
		return x.line, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
