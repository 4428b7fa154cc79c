// Command containers runs a command, as a rule the test suite, with database
// servers in containers, which it removes afterwards.
//
//	containers [--] COMMAND [ARGUMENT...]
//
// The command gets the addresses of the servers in the variables that the tests read,
// SQLLOCK_TEST_POSTGRES_DSN and so on, and their names in SQLLOCK_REQUIRE. So tests fail
// if they cannot use a server. The program returns the exit code of the command.
// README.md lists the servers and says how to choose their images.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"
)

// Exit codes of our own, as command sqllock has them. Others are the command's.
const (
	exitUsage       = 64  // EX_USAGE
	exitUnavailable = 69  // EX_UNAVAILABLE: the engine, an image, a server
	exitNotRunnable = 126 // as in a shell
	exitNotFound    = 127 // as in a shell
	exitSignal      = 128 // plus the number of the signal
)

const (
	// engineTimeout is how long the Docker engine may take for an answer.
	engineTimeout = 5 * time.Second
	// pullTimeout is how long a pull may make no progress.
	pullTimeout = 15 * time.Second
	// startTimeout is how long a server may take to make its files and start.
	startTimeout = 2 * time.Minute
)

func main() {
	if isWatchdog() {
		os.Exit(guard())
	}
	os.Exit(run(os.Args[1:]))
}

func run(command []string) int {
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	if len(command) == 0 {
		say("what shall run? Usage: containers [--] COMMAND [ARGUMENT...]")
		return exitUsage
	}
	ctx, stop := interruptible()
	defer stop()
	code, err := runWithServers(ctx, command)
	if by := (*interruption)(nil); errors.As(context.Cause(ctx), &by) {
		say("%v", by)
		return by.code()
	}
	if err != nil {
		say("%v", err)
	}
	return code
}

// runWithServers returns the command's exit code, or a failure's. It returns when
// the containers are gone.
func runWithServers(ctx context.Context, command []string) (code int, err error) {
	servers, err := selectServers(os.Getenv)
	if err != nil {
		return exitUsage, err
	}
	engine, err := findEngine(ctx, engineTimeout)
	if err != nil {
		return exitUnavailable, err
	}
	defer engine.Close()
	for _, s := range servers {
		if err := s.ensureImage(ctx, engine.Client(), pullTimeout); err != nil {
			return exitUnavailable, err
		}
	}
	g, err := startWatchdog()
	if err != nil {
		return exitUnavailable, err
	}
	defer func() {
		if failure := g.close(); failure != nil && err == nil {
			code, err = max(code, 1), failure
		}
	}()
	for i := range servers {
		if err := servers[i].start(ctx, g.label, rand.Text()); err != nil {
			return exitUnavailable, err
		}
	}
	return runCommand(ctx, command, environment(os.Environ(), servers), g)
}

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "containers: "+format+"\n", args...)
}
