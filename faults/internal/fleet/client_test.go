//go:build linux

package fleet_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/faults/internal/fleet"
)

// variable makes this program a client, and says what that does.
const variable = "SQLLOCK_FLEET_TEST"

const (
	fails = "fails"
	waits = "waits"
	what  = "it has failed by itself"
)

func TestMain(m *testing.M) {
	switch os.Getenv(variable) {
	case fails:
		fmt.Fprintln(os.Stderr, what)
		os.Exit(2)
	case waits:
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// launch starts a client. The test ends it.
func launch(t *testing.T, dir, kind string) *fleet.Client {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c, err := fleet.Launch(fleet.Config{
		Binary: binary, Dir: dir,
		Variable: func(_, _ string, times int) (string, error) {
			if times > 1 {
				return variable + "=" + waits, nil
			}
			return variable + "=" + kind, nil
		},
	}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func awaitEnd(t *testing.T, c *fleet.Client) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !c.HasEnded(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it has not ended")
		}
	}
}

// wantsEnded fails if an error does not say that the client has ended by itself, or if the standard
// error of the client is not kept.
func wantsEnded(t *testing.T, call string, err error, dir string) {
	t.Helper()
	if !errors.Is(err, fleet.ErrEnded) || !strings.Contains(err.Error(), "exit status 2") {
		t.Errorf("%s: %v", call, err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "c1.1.stderr")); err != nil || !strings.Contains(string(text), what) {
		t.Errorf("%s: the standard error is %q, %v", call, text, err)
	}
}

func TestAClientThatEndsByItselfIsReported(t *testing.T) {
	for call, do := range map[string]func(*fleet.Client) error{
		"Kill":     (*fleet.Client).Kill,
		"Died":     (*fleet.Client).Died,
		"Continue": (*fleet.Client).Continue,
		"Drain":    (*fleet.Client).Drain,
		"Stop":     func(c *fleet.Client) error { return c.Stop("", 0) },
		"Ended":    func(c *fleet.Client) error { return c.Ended(30 * time.Second) },
	} {
		dir := t.TempDir()
		c := launch(t, dir, fails)
		awaitEnd(t, c)
		wantsEnded(t, call, do(c), dir)
	}
}

func TestAClientThatKillEndsIsNotReported(t *testing.T) {
	c := launch(t, t.TempDir(), waits)
	for _, call := range []func() error{c.Died, c.Kill, c.Died, c.Kill, c.Start, c.Died, c.Kill} {
		if err := call(); err != nil {
			t.Error(err)
		}
	}
	if !c.HasEnded() {
		t.Error("it has not ended")
	}
}

func TestAClientThatGetsAnotherSignalIsReported(t *testing.T) {
	c := launch(t, t.TempDir(), waits)
	if err := c.Ended(10 * time.Millisecond); err == nil { // it gets SIGQUIT
		t.Fatal("it has ended")
	}
	if err := c.Kill(); !errors.Is(err, fleet.ErrEnded) {
		t.Errorf("Kill: %v", err)
	}
}

func TestCloseEndsAClientHoweverItHasEnded(t *testing.T) {
	for _, kind := range []string{fails, waits} {
		c := launch(t, t.TempDir(), kind)
		if kind == fails {
			awaitEnd(t, c)
		}
		c.Close()
		if !c.HasEnded() {
			t.Errorf("%s: it has not ended", kind)
		}
	}
}
