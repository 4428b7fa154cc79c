package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

const (
	// labelKey is the label of the containers of a run, with the run's name.
	labelKey = "com.github.sqllock.containers"
	// watchdogVariable is set in the environment of a watchdog, to the run's name,
	// and only there.
	watchdogVariable = "SQLLOCK_CONTAINERS_WATCHDOG"
	// removeTimeout bounds the removal of all containers.
	removeTimeout = time.Minute
	// secondLook is when a container that was being created at the first look has
	// appeared.
	secondLook = 500 * time.Millisecond
)

// watchdog is a second process of this program. It ends the command and removes the
// containers of a run when this process closes its end of a pipe, or the kernel does
// because this process has ended, however it did.
type watchdog struct {
	label string
	cmd   *exec.Cmd
	pipe  io.WriteCloser
}

// startWatchdog starts a watchdog. It comes before the first container.
func startWatchdog() (*watchdog, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot start the watchdog: %w", err)
	}
	g := &watchdog{label: strings.ToLower(rand.Text()), cmd: exec.Command(self)}
	g.cmd.Env = append(os.Environ(), watchdogVariable+"="+g.label)
	g.cmd.Stderr = os.Stderr
	detach(g.cmd)
	if g.pipe, err = g.cmd.StdinPipe(); err == nil {
		err = g.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("cannot start the watchdog: %w", err)
	}
	return g, nil
}

// watch makes the watchdog kill a process group at the end; 0 means no group.
func (g *watchdog) watch(pid int) { _, _ = fmt.Fprintln(g.pipe, pid) }

// close returns when the containers are gone.
func (g *watchdog) close() error {
	_ = g.pipe.Close()
	if err := g.cmd.Wait(); err != nil {
		return fmt.Errorf("containers may be left, with the label %s=%s: %w", labelKey, g.label, err)
	}
	return nil
}

func isWatchdog() bool { return os.Getenv(watchdogVariable) != "" }

// guard is all that a watchdog does. It returns its exit code.
func guard() int {
	signal.Ignore(stops...) // they reach it where there are no sessions to leave
	endCommand(os.Stdin)
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	err := configure()
	if err == nil {
		err = removeAll(ctx, os.Getenv(watchdogVariable))
	}
	if err != nil {
		say("removing the containers: %s", oneLine(err))
		return 1
	}
	return 0
}

// endCommand waits for the end of the input, and kills the process group that was named
// last.
func endCommand(r io.Reader) {
	pid := 0
	for lines := bufio.NewScanner(r); lines.Scan(); {
		pid, _ = strconv.Atoi(lines.Text())
	}
	if pid == 0 {
		return
	}
	if p, err := os.FindProcess(pid); err == nil {
		kill(p)
	}
}

// removeAll removes the containers of a run, until a second look finds none.
func removeAll(ctx context.Context, label string) error {
	c, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	for first := true; ; first = false {
		n, err := removeThere(ctx, c, label)
		if err != nil || n == 0 && !first {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(secondLook):
		}
	}
}

// removeThere removes the containers that there are, with their volumes, and returns
// how many there were.
func removeThere(ctx context.Context, c client.APIClient, label string) (int, error) {
	there, err := c.ContainerList(ctx, client.ContainerListOptions{
		All: true, Filters: make(client.Filters).Add("label", labelKey+"="+label),
	})
	if err != nil {
		return 0, err
	}
	for _, one := range there.Items {
		_, err := c.ContainerRemove(ctx, one.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		// A conflict means that the removal is in progress.
		if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) {
			return 0, err
		}
	}
	return len(there.Items), nil
}
