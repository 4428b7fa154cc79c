// Command resource keeps a register behind HTTP, and refuses a write that comes late by
// the sequencer in its header.
//
//	go run ./examples/resource [--unsafe] [--dsn postgres://user@localhost/app]
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/examples/internal/demo"
)

// maxHold is after which time anna's lease ends.
const maxHold = 500 * time.Millisecond

func main() {
	demo.Main(demo.Example{
		About: `Keeps a register behind HTTP, for two clients. What anna writes is under way for
longer than her lease lasts, and arrives when ben has written. With the lock, the
server refuses it by its sequencer.
`,
		Workers: 3, // the server, anna and ben
		Run:     run,
	})
}

func run(ctx context.Context, d *demo.Demo) (result string, err error) {
	s := &server{}
	if !d.Unsafe {
		if s.checker, err = sqllock.NewSequencerChecker(d.Workers[0].Locks, nil); err != nil {
			return "", err
		}
	}
	url, stop, err := s.serve()
	if err != nil {
		return "", err
	}
	defer stop()
	p := &play{way: newSlowWay(), answered: make(chan struct{})}
	p.anna = &client{Worker: d.Workers[1], url: url, http: http.Client{Transport: p.way}}
	p.ben = &client{Worker: d.Workers[2], url: url}
	err = demo.Together(ctx, 2, func(ctx context.Context, i int) error {
		if i == 0 {
			return p.late(ctx)
		}
		return p.next(ctx)
	})
	if err != nil {
		return "", err
	}
	return p.judge()
}

// serve serves on a free port of this machine until stop.
func (s *server) serve() (url string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	h := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = h.Serve(l) // until Close
	}()
	return "http://" + l.Addr().String() + "/register", func() {
		_ = h.Close()
		<-done
	}, nil
}

// play runs the events of the example.
type play struct {
	anna, ben *client
	way       *slowWay      // of anna's write
	answered  chan struct{} // closed when anna has the answer

	status      int    // the status of the late write
	wrote, read string // by ben, before and after that
	again       int    // the status of his next write
}

// late is anna. Her request is on its way when her lease ends, and she cannot call it
// back. MaxHold simulates a paused process that renews nothing.
func (p *play) late(ctx context.Context) error {
	defer close(p.answered)
	err := p.anna.under(ctx, func(sequencer string) (err error) {
		p.status, err = p.anna.put(ctx, "anna", sequencer)
		return err
	}, sqllock.MaxHold(maxHold))
	if p.anna.Locks != nil && !errors.Is(err, sqllock.ErrLost) {
		return fmt.Errorf("anna has not lost her lease: %w", err)
	}
	if errors.Is(err, sqllock.ErrLost) && p.status != 0 {
		return nil
	}
	return err
}

// next is ben, who gets the lock when anna's lease has ended.
func (p *play) next(ctx context.Context) error {
	select {
	case <-p.way.left:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return p.ben.under(ctx, func(sequencer string) error {
		p.wrote = "ben"
		if status, err := p.ben.put(ctx, p.wrote, sequencer); err != nil || status != http.StatusNoContent {
			return errors.Join(fmt.Errorf("what ben writes is refused: %s", http.StatusText(status)), err)
		}
		close(p.way.open)
		<-p.answered
		var err error
		if p.read, err = p.ben.get(ctx); err != nil {
			return err
		}
		p.again, err = p.ben.put(ctx, "ben again", sequencer)
		return err
	})
}

// judge checks whether ben, under the lock, has found his own write.
func (p *play) judge() (string, error) {
	if p.read != p.wrote {
		return "", demo.Wrong("ben wrote %q, and then read %q", p.wrote, p.read)
	}
	if p.status != http.StatusPreconditionFailed || p.again != http.StatusNoContent {
		return "", demo.Wrong("what came late was answered by %q, and what ben wrote by %q", http.StatusText(p.status), http.StatusText(p.again))
	}
	return fmt.Sprintf("what came late was refused (%d %s), and what ben wrote was not", p.status, http.StatusText(p.status)), nil
}
