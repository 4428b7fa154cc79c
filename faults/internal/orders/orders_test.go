//go:build linux

package orders_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sqllock/sqllock/faults/internal/orders"
)

const variable = "SQLLOCK_ORDERS_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(variable) != "" {
		obey()
	}
	os.Exit(m.Run())
}

// obey is a process that alternates between two operations until it gets the order to
// end. It prints when it was stopped in one.
func obey() {
	var o orders.Orders
	ended := make(chan struct{})
	go o.Obey(func() { close(ended) })
	for {
		select {
		case <-ended:
			fmt.Println("ended")
			os.Exit(0)
		default:
		}
		o.Reach("other")
		aimed := o.Aimed()
		before := time.Now()
		o.Reach("write")
		if aimed != "" && o.Aimed() == "" {
			fmt.Println("continued after", time.Since(before).Milliseconds())
		}
		time.Sleep(time.Millisecond)
	}
}

// startChild starts this program as a child, which the test ends. It returns the
// child's input and the lines of its output.
func startChild(t *testing.T) (cmd *exec.Cmd, in io.Writer, out *bufio.Scanner) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(self)
	cmd.Env = append(os.Environ(), variable+"=1")
	if in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, in, bufio.NewScanner(stdout)
}

func TestProcessStopsInTheOrderedOperationAndContinuesThere(t *testing.T) {
	cmd, in, out := startChild(t)
	send := func(order string) {
		if _, err := io.WriteString(in, order+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	send(orders.Aim("write", 10*time.Second))
	for deadline := time.Now().Add(10 * time.Second); !stopped(t, cmd.Process.Pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not stop")
		}
	}
	const pause = 200 * time.Millisecond
	time.Sleep(pause)
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	var ms int64
	if !out.Scan() {
		t.Fatal("it printed nothing")
	}
	if _, err := fmt.Sscanf(out.Text(), "continued after %d", &ms); err != nil || ms < pause.Milliseconds() {
		t.Errorf("it printed %q: it was not stopped in the operation", out.Text())
	}
	send(orders.Stop())
	if !out.Scan() || out.Text() != "ended" {
		t.Errorf("after the order to end it printed %q", out.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// stopped asks the kernel.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, state, _ := strings.Cut(string(text), ") ")
	return strings.HasPrefix(state, "T")
}
