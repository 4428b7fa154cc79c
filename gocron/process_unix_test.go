//go:build unix

package gocronlock_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
)

// fleet are the replicas of a test, and what they have said.
type fleet struct {
	t    *testing.T
	cfg  replicaConfig
	pace time.Duration // what a Lock with its Unlock takes here

	mu    sync.Mutex
	all   []*process
	terms []*belief // by token, if all is well
}

// process is a replica as its parent sees it.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	errors bytes.Buffer
	read   chan struct{} // closed when all it has said was read

	// Of the fleet, guarded by its mu.
	ticks    int           // that it has noted
	looked   time.Duration // the time before its last look
	resigned time.Duration // the time before it last resigned
}

// belief is a term that a process believes in: for certain from the end of its first look
// that said so to the beginning of the last one.
type belief struct {
	p          *process
	token      int64
	from, till time.Duration
	ticks      int
}

// fleets are those that run beside each other: more would take the machine from each other.
var fleets = make(chan struct{}, 4)

// newFleet prepares the database. The replicas end with the test.
func newFleet(t *testing.T, p pair, d *testdb.Database, cfg replicaConfig) *fleet {
	t.Helper()
	fleets <- struct{}{}
	t.Cleanup(func() { <-fleets })
	cfg.Mode, cfg.Engine, cfg.DSN = p.mode, p.engine, d.DSN()
	f := &fleet{t: t, cfg: cfg}
	locks := newLocks(t, p, d, sqllock.UniqueOptions{TTL: long})
	if _, err := d.Open(t).ExecContext(t.Context(), ticksTable); err != nil {
		t.Fatal(err)
	}
	times := make([]time.Duration, 11)
	for i := range times {
		begun := time.Now()
		lease, err := locks.Lock(t.Context(), "pace")
		if err == nil {
			err = lease.Unlock(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		times[i] = time.Since(begun)
	}
	slices.Sort(times)
	f.pace = times[len(times)/2] // whatever one of them was kept up by
	t.Logf("Lock and Unlock take %v here", f.pace)
	return f
}

// slow is d, or more on a machine that is slow.
func (f *fleet) slow(d time.Duration) time.Duration {
	return max(d, min(100*f.pace, 3*time.Second).Round(100*time.Millisecond))
}

// start starts a replica.
func (f *fleet) start(skew time.Duration) *process {
	f.t.Helper()
	cfg := f.cfg
	cfg.Skew = skew
	text, err := json.Marshal(cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	p := &process{cmd: exec.Command(os.Args[0]), read: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), envChild+"="+string(text))
	p.cmd.Stderr = &p.errors
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		f.t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.mu.Lock()
	f.all = append(f.all, p)
	f.mu.Unlock()
	go func() {
		defer close(p.read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			f.hear(p, lines.Text())
		}
	}()
	f.t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			f.kill(p)
		}
		if f.t.Failed() {
			f.t.Logf("process %d noted %d ticks, and wrote: %s", p.cmd.Process.Pid, p.ticks, p.errors.String())
		}
	})
	return p
}

// hear notes a line that a replica has printed.
func (f *fleet) hear(p *process, line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var leads bool
	var token int64
	var before, after time.Duration
	switch word, rest, _ := strings.Cut(line, " "); word {
	case "leads":
		if _, err := fmt.Sscan(rest, &leads, &token, (*int64)(&before), (*int64)(&after)); err != nil {
			panic(err)
		}
		p.looked = before
		if leads {
			f.believe(p, token, before, after)
		}
	case "tick":
		p.ticks++
	case "resigning":
		if _, err := fmt.Sscan(rest, (*int64)(&before)); err != nil {
			panic(err)
		}
		p.resigned = before
	default:
		panic("bug: a replica prints " + line)
	}
}

// believe notes a look that said that the process leads. The caller holds mu.
func (f *fleet) believe(p *process, token int64, before, after time.Duration) {
	for _, b := range f.terms {
		if b.p == p && b.token == token {
			b.till = before
			return
		}
	}
	f.terms = append(f.terms, &belief{p: p, token: token, from: after, till: before, ticks: p.ticks})
}

// kill ends a process as a crash does, also one that is paused.
func (f *fleet) kill(p *process) {
	_ = p.cmd.Process.Kill()
	<-p.read
	_ = p.cmd.Wait()
}

func (f *fleet) signal(p *process, s syscall.Signal) {
	f.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		f.t.Fatal(err)
	}
}

// stop has all that are left end as services do.
func (f *fleet) stop() {
	f.t.Helper()
	for _, p := range f.all {
		if p.cmd.ProcessState != nil {
			continue
		}
		_ = p.in.Close()
		<-p.read
		if err := p.cmd.Wait(); err != nil {
			f.t.Errorf("a replica ended with %v: %s", err, p.errors.String())
		}
	}
}
