package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/examples/internal/demo"
)

// client writes to the register, under the lock.
type client struct {
	*demo.Worker
	http http.Client
	url  string
}

// under runs fn with the lock, and the sequencer to write with. Without the lock there
// is none.
func (c *client) under(ctx context.Context, fn func(sequencer string) error, opts ...sqllock.LockOption) error {
	if c.Locks == nil {
		return fn("")
	}
	return c.Locks.Do(ctx, lockName, func(_ context.Context, lease *sqllock.Lease) error {
		return fn(lease.Sequencer().String())
	}, opts...)
}

// put writes, and returns the status of the answer.
func (c *client) put(ctx context.Context, value, sequencer string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, c.url, strings.NewReader(value))
	if err != nil {
		return 0, err
	}
	req.Header.Set(header, sequencer)
	status, _, err := c.do(req)
	return status, err
}

// get reads.
func (c *client) get(ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		return "", err
	}
	status, value, err := c.do(req)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("GET: %s", http.StatusText(status))
	}
	return value, err
}

func (c *client) do(req *http.Request) (status int, body string, err error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// slowWay delays a request that has left its client, as a network or a paused machine can
// do.
type slowWay struct {
	http.RoundTripper
	once sync.Once
	left chan struct{} // closed when a request is under way
	open chan struct{} // to be closed for it to arrive
}

func newSlowWay() *slowWay {
	return &slowWay{RoundTripper: http.DefaultTransport.(*http.Transport).Clone(), left: make(chan struct{}), open: make(chan struct{})}
}

// RoundTrip implements [http.RoundTripper].
func (w *slowWay) RoundTrip(req *http.Request) (*http.Response, error) {
	w.once.Do(func() { close(w.left) })
	select {
	case <-w.open:
		return w.RoundTripper.RoundTrip(req)
	case <-req.Context().Done():
		return nil, context.Cause(req.Context())
	}
}
