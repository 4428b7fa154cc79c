package main

import (
	"net"
	"strings"
	"testing"
	"time"
)

// wantNoEngine checks that the error names the address that does not answer, and comes
// soon.
func wantNoEngine(t *testing.T, host string, idleTimeout time.Duration) {
	t.Helper()
	t.Setenv("DOCKER_HOST", host)
	began := time.Now()
	_, err := findEngine(t.Context(), idleTimeout)
	if took := time.Since(began); took > soon {
		t.Errorf("it took %v", took)
	}
	if want := "no Docker engine answers at DOCKER_HOST=" + host; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("want %q, got %v", want, err)
	}
}

func TestAMissingEngineIsReportedAtOnce(t *testing.T) {
	wantNoEngine(t, "tcp://127.0.0.1:1", time.Minute)
	wantNoEngine(t, "unix:///does/not/exist", time.Minute)
	wantNoEngine(t, "nonsense", time.Minute)
}

func TestAnEngineWithoutAnAnswerTimesOut(t *testing.T) {
	l, err := net.Listen("tcp", localhost+":0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	wantNoEngine(t, "tcp://"+l.Addr().String(), 300*time.Millisecond)
}

func TestARemoteEngineIsRefused(t *testing.T) {
	for host, here := range map[string]bool{
		"unix:///var/run/docker.sock":    true,
		"npipe:////./pipe/docker_engine": true,
		"tcp://127.0.0.1:2375":           true,
		"tcp://[::1]:2375":               true,
		"tcp://localhost:2375":           true,
		"tcp://10.0.0.1:2375":            false,
		"https://docker.example:2376":    false,
	} {
		if err := mustBeHere(host); (err == nil) != here {
			t.Errorf("%s: %v", host, err)
		}
	}
}
