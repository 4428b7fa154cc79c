package locktest_test

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sqllock/sqllock/internal/leak"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := leak.Check(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// recorder is the test of somebody else, whose errors are recorded.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	errors   []string
	cleanups []func()
}

// record calls fn with a recorder, and ends that test. It returns its errors.
func record(t *testing.T, fn func(tb testing.TB)) []string {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer r.clean()
		fn(r)
	}()
	<-done
	return r.errors
}

// clean runs the cleanups, the latest first.
func (r *recorder) clean() {
	for _, fn := range slices.Backward(r.cleanups) {
		fn()
	}
}

func (r *recorder) Cleanup(fn func()) { r.cleanups = append(r.cleanups, fn) }

func (r *recorder) Output() io.Writer { return io.Discard }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// checkOnly checks that there is one error, with all of the texts.
func checkOnly(t *testing.T, errors []string, texts ...string) {
	t.Helper()
	if len(errors) != 1 {
		t.Errorf("the errors of the test are %q", errors)
		return
	}
	for _, text := range texts {
		if !strings.Contains(errors[0], text) {
			t.Errorf("the error %q does not say %q", errors[0], text)
		}
	}
}
