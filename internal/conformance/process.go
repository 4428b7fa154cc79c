package conformance

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/sqllock/sqllock/internal/testlog"
)

// process is a child as its parent sees it.
type process struct {
	e      *env
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    <-chan string // lines; closed at the end of the child
	stderr *testlog.Text
}

// start starts a process that locks on the test's database, and waits until it
// is ready for orders.
func (e *env) start(ttl time.Duration, label string) *process {
	e.Helper()
	cfg, err := json.Marshal(childConfig{Mode: e.h.Mode, Database: e.h.Database, DSN: e.source(), Label: label, TTL: ttl})
	if err != nil {
		e.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		e.Fatal(err)
	}
	p := &process{e: e, cmd: exec.Command(exe), stderr: new(testlog.Text)}
	// One processor, so that nothing of the child runs beside what it watches.
	p.cmd.Env = append(os.Environ(), childVar+"="+string(cfg), "GOMAXPROCS=1")
	p.cmd.Stderr = p.stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		e.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		e.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		e.Fatal(err)
	}
	p.out = scan(out)
	e.Cleanup(p.end)
	p.read()
	return p
}

func scan(r io.Reader) <-chan string {
	ch := make(chan string, 16)
	go func() {
		defer close(ch)
		for s := bufio.NewScanner(r); s.Scan(); {
			ch <- s.Text()
		}
	}()
	return ch
}

// end ends the child whatever state it is in.
func (p *process) end() {
	_ = p.in.Close()
	_ = p.cmd.Process.Kill() // also works on one that is stopped
	for range p.out {
	}
	_ = p.cmd.Wait()
	if text := p.stderr.String(); text != "" && p.e.Failed() {
		p.e.Logf("a child wrote:\n%s", text)
	}
}

// send gives an order without waiting for the answer.
func (p *process) send(o order) {
	p.e.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		p.e.Fatal(err)
	}
	if _, err := fmt.Fprintf(p.in, "%s\n", text); err != nil {
		p.e.Fatalf("order %s: %v", text, err)
	}
}

// read waits for the next answer.
func (p *process) read() answer {
	p.e.Helper()
	return p.readWithin(timeLimit)
}

func (p *process) readWithin(d time.Duration) answer {
	p.e.Helper()
	select {
	case text, ok := <-p.out:
		if !ok {
			p.e.Fatalf("a child ended:\n%s", p.stderr)
		}
		var a answer
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			p.e.Fatalf("a child wrote %q: %v", text, err)
		}
		return a
	case <-time.After(d):
		p.e.Fatalf("a child did not answer within %v", d)
	}
	panic("unreachable")
}

// do gives an order and waits for the answer.
func (p *process) do(o order) answer {
	p.e.Helper()
	p.send(o)
	return p.read()
}

// lock makes the child lock a name that is free.
func (p *process) lock(name string) answer {
	p.e.Helper()
	a := p.do(order{Do: "lock", Name: name})
	if a.Err != "" {
		p.e.Fatalf("Lock in a child: %s", a.Err)
	}
	return a
}
