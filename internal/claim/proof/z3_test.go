package proof

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// timeout is how long z3 may work on one goal. It needs a small part of that.
const timeout = 60 * time.Second

// run has z3 run a script, and returns the lines that it prints.
func run(ctx context.Context, script string) ([]string, error) {
	c := exec.CommandContext(ctx, "z3", "-in", "-smt2")
	c.Stdin = strings.NewReader(script)
	var out, problems bytes.Buffer
	c.Stdout, c.Stderr = &out, &problems
	if err := c.Run(); err != nil && out.Len() == 0 {
		return nil, fmt.Errorf("z3: %w: %s", err, problems.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for _, l := range lines {
		if strings.HasPrefix(l, "(error") {
			return lines, fmt.Errorf("z3: %s", l)
		}
	}
	return lines, nil
}

// isInstalled reports that there is a z3 to run.
func isInstalled() bool {
	_, err := exec.LookPath("z3")
	return err == nil
}
