package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
)

// findEngine looks where Testcontainers does for a Docker engine that answers.
// DOCKER_HOST, if it is set, must be one.
func findEngine(ctx context.Context, idleTimeout time.Duration) (*testcontainers.DockerProvider, error) {
	if err := configure(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, idleTimeout)
	defer cancel()
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		if err := ping(ctx); err != nil {
			return nil, fmt.Errorf("no Docker engine answers at DOCKER_HOST=%s: %s", host, oneLine(err))
		}
	}
	type result struct {
		provider *testcontainers.DockerProvider
		err      error
	}
	found := make(chan result, 1)
	go func() { // it takes no context; if it hangs, this process is about to end
		provider, err := testcontainers.NewDockerProvider()
		found <- result{provider, err}
	}()
	select {
	case r := <-found:
		if r.err != nil {
			return nil, fmt.Errorf("no Docker engine answers: %s; start one, or set DOCKER_HOST", oneLine(r.err))
		}
		return r.provider, mustBeHere(r.provider.Client().DaemonHost())
	case <-ctx.Done():
		return nil, fmt.Errorf("no Docker engine answers within %v; start one, or set DOCKER_HOST", idleTimeout)
	}
}

// configure makes Testcontainers say nothing by itself, start no container of its
// own, which would have to be pulled too (we have a watchdog), and expect servers
// where they are.
func configure() error {
	log.SetDefault(log.NewNoopLogger())
	return errors.Join(
		os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true"),
		os.Setenv("TESTCONTAINERS_HOST_OVERRIDE", localhost),
	)
}

func ping(ctx context.Context) error {
	c, err := client.New(client.FromEnv)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Ping(ctx, client.PingOptions{})
	return err
}

// mustBeHere refuses an engine on another machine: servers on its 127.0.0.1 cannot
// be reached.
func mustBeHere(host string) error {
	u, err := url.Parse(host)
	if err != nil || u.Hostname() == "" { // a socket
		return nil
	}
	if addr, err := netip.ParseAddr(u.Hostname()); u.Hostname() == "localhost" || err == nil && addr.IsLoopback() {
		return nil
	}
	return fmt.Errorf("the Docker engine %s is not on this machine: servers on its %s cannot be reached", host, localhost)
}
