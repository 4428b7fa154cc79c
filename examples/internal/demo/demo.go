// Package demo has what the examples share: the flags, tables on the user's database,
// workers that are as separate as services, and a clean end. You need none of it to use
// locks.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// longest bounds a run: a deadlock is an error, not a program that hangs.
const longest = time.Minute

// Example is a program that goes wrong without a lock.
type Example struct {
	// About describes the program in a few lines.
	About string
	// Workers is how many services work at once.
	Workers int
	// Tables are the statements that make the tables and fill them.
	Tables []string
	// Run does the work and checks the result. It returns the text to print if the result
	// is right, or the error of Wrong.
	Run func(ctx context.Context, d *Demo) (string, error)
}

// Demo is one run of an Example.
type Demo struct {
	// Unsafe makes the program work without the lock.
	Unsafe bool
	// DB looks at the tables from outside.
	DB *DB
	// Workers do the work.
	Workers []*Worker
}

// Wrong returns the error of a Run that came to a wrong result.
func Wrong(format string, args ...any) error { return &wrong{fmt.Sprintf(format, args...)} }

type wrong struct{ text string }

func (w *wrong) Error() string { return w.text }

// Main runs an example with the flags of the command line, and ends the process.
func Main(e Example) {
	o := parse(e.About)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	result, err := e.Start(ctx, o, os.Stdout)
	os.Exit(tell(result, err))
}

// tell prints the result and returns the exit code.
func tell(result string, err error) int {
	if err == nil {
		fmt.Println("ok:", result)
		return exitRight
	}
	if _, ok := err.(*wrong); ok { // and nothing else happened
		fmt.Println("wrong:", err)
		return exitWrong
	}
	fmt.Fprintln(os.Stderr, "error:", err)
	return exitError
}

// Start creates what the example needs, runs it, and removes everything, also if ctx has
// ended. It returns the result of Run, or why the example could not be completed.
func (e Example) Start(ctx context.Context, o Options, out io.Writer) (result string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("it took more than %v", longest))
	defer cancel()
	home, err := newHome(o.DSN)
	if err != nil {
		return "", err
	}
	if err := home.create(ctx); err != nil {
		_ = home.remove() // it may be there all the same
		return "", fmt.Errorf("make %s: %w", home.where, err)
	}
	defer func() {
		if e := home.remove(); e != nil {
			err = errors.Join(err, fmt.Errorf("remove %s: %w", home.where, e))
		}
	}()
	fmt.Fprintf(out, "%d workers on %s, %s\n", e.Workers, home.where, o.mode())
	d := &Demo{Unsafe: o.Unsafe}
	defer func() {
		if e := d.close(); e != nil {
			err = errors.Join(err, e)
		}
	}()
	if err := d.open(ctx, home, e); err != nil {
		return "", fmt.Errorf("prepare: %w", err)
	}
	return e.Run(ctx, d)
}
