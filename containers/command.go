package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// grace is how long the command may take to end when it is asked to.
const grace = 10 * time.Second

// runCommand runs a command without standard input and returns its exit code. When ctx
// ends, it asks the command to end, and later kills it with its children. If this process
// is killed, the watchdog kills the command.
func runCommand(ctx context.Context, argv, env []string, g *watchdog) (code int, err error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return terminate(cmd.Process) }
	cmd.WaitDelay = grace
	apart(cmd)
	err = cmd.Start()
	switch {
	case errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist):
		return exitNotFound, fmt.Errorf("cannot run the command: %w", err)
	case err != nil:
		return exitNotRunnable, fmt.Errorf("cannot run the command: %w", err)
	}
	g.watch(cmd.Process.Pid)
	_ = cmd.Wait() // the exit code says it
	if ctx.Err() != nil {
		kill(cmd.Process)
	}
	g.watch(0)
	return exitCode(cmd.ProcessState), context.Cause(ctx)
}
