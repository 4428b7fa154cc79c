package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// A command is a program to run in dir. It inherits the environment of this process
// and has the variables in env besides.
type command struct {
	dir  string
	env  []string
	args []string
}

// output runs a program and returns what it prints, without the last line break.
func output(ctx context.Context, c command) (string, error) {
	cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), c.env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", strings.Join(c.args, " "), err, out, stderr.Bytes())
	}
	return strings.TrimRight(string(out), "\n"), nil
}
