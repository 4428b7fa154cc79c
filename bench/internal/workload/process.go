package workload

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// process is another process of this program that takes locks. It ends when its
// input does, also if this process is killed.
type process struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	orders  *json.Encoder
	answers *json.Decoder
}

// spawn starts processes.
func spawn(n int, o setup) ([]*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var list []*process
	for range n {
		p, err := start(self, o)
		if err != nil {
			return nil, errors.Join(err, end(list))
		}
		list = append(list, p)
	}
	return list, nil
}

func start(self string, o setup) (*process, error) {
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childVariable+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, in: in, orders: json.NewEncoder(in), answers: json.NewDecoder(out)}
	if err := p.orders.Encode(o); err != nil {
		return nil, errors.Join(err, p.end())
	}
	if a, err := p.answer(); err != nil || a.Err != "" {
		return nil, errors.Join(fmt.Errorf("a client does not open: %s", a.Err), err, p.end())
	}
	return p, nil
}

func (p *process) answer() (answer, error) {
	var a answer
	err := p.answers.Decode(&a)
	return a, err
}

func (p *process) end() error {
	_ = p.in.Close()
	return p.cmd.Wait()
}

// end ends processes and waits for them.
func end(list []*process) error {
	var errs []error
	for _, p := range list {
		errs = append(errs, p.end())
	}
	return errors.Join(errs...)
}

// tell sends an order to all processes.
func tell(list []*process, o order) error {
	return tellEach(list, func(int) order { return o })
}

// tellEach sends each process an order of its own.
func tellEach(list []*process, of func(process int) order) error {
	var errs []error
	for i, p := range list {
		errs = append(errs, p.orders.Encode(of(i)))
	}
	return errors.Join(errs...)
}

// collect waits for the answers. Callers are numbered on, process by process: each has as
// many.
func collect(list []*process, callers int) (answer, error) {
	var all answer
	for i, p := range list {
		a, err := p.answer()
		if err != nil {
			return all, fmt.Errorf("a client is gone: %w", err)
		}
		for _, g := range a.Grants {
			g.Process = i
			g.Caller += i * callers
			all.Grants = append(all.Grants, g)
		}
		all.Failures += a.Failures
		if all.Err == "" {
			all.Err = a.Err
		}
	}
	return all, nil
}
