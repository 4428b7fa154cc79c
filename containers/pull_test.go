package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// aServer has an image that the environment may choose.
var aServer = server{name: "mysql", image: "docker.io/library/mysql:8.4"}

// soon is how long a failure may take at most: seconds.
const soon = 8 * time.Second

// ensure asks an engine for the image of aServer.
func ensure(t *testing.T, e *fakeEngine, idleTimeout time.Duration) error {
	t.Helper()
	began := time.Now()
	err := aServer.ensureImage(t.Context(), e.client(t), idleTimeout)
	if took := time.Since(began); err != nil && took > soon {
		t.Errorf("the failure took %v", took)
	}
	return err
}

// wantRefusal checks that the error has one line with the image, the cause and the
// remedy.
func wantRefusal(t *testing.T, err error, cause string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"mysql cannot run", aServer.image, cause, "SQLLOCK_MYSQL_IMAGE", none} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in %q", want, err)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than a line: %q", err)
	}
}

func TestALocalImageIsNotPulled(t *testing.T) {
	t.Parallel()
	e := newFakeEngine(t)
	if err := ensure(t, e, time.Minute); err != nil || e.pulledImages() != "" {
		t.Errorf("%v, pulled %q", err, e.pulledImages())
	}
}

func TestAFailedPullReportsTheCauseAndTheRemedy(t *testing.T) {
	const cause = "dial tcp: lookup registry: no such host"
	for name, create := range map[string]http.HandlerFunc{
		"before it begins": func(w http.ResponseWriter, _ *http.Request) {
			writeError(w, http.StatusInternalServerError, "Get \"https://registry/v2/\":\n"+cause)
		},
		"while it runs": func(w http.ResponseWriter, _ *http.Request) {
			reply(w, map[string]string{"status": "Pulling from library/mysql", "id": "8.4"})
			reply(w, map[string]any{"errorDetail": map[string]string{"message": cause}, "error": cause})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newFakeEngine(t)
			e.hasImages, e.create = false, create
			wantRefusal(t, ensure(t, e, time.Minute), cause)
			if got := e.pulledImages(); got != aServer.image {
				t.Errorf("pulled %q", got)
			}
		})
	}
}

func TestAPullWithoutAnImageFails(t *testing.T) {
	t.Parallel()
	e := newFakeEngine(t)
	e.hasImages, e.create = false, func(http.ResponseWriter, *http.Request) {}
	wantRefusal(t, ensure(t, e, time.Minute), "No such image")
}

func TestAPullWithoutProgressTimesOut(t *testing.T) {
	const idleTimeout = 300 * time.Millisecond
	for name, c := range map[string]struct {
		create http.HandlerFunc
		cause  string
	}{
		"silent from the start": {func(_ http.ResponseWriter, r *http.Request) { hang(r) }, "no progress for 300ms;"},
		"silent after a word": {func(w http.ResponseWriter, r *http.Request) {
			stream(w, "8.4", "Pulling from library/mysql", 0)
			hang(r)
		}, `no progress for 300ms after "8.4 Pulling from library/mysql"`},
		"trying again and again": {func(w http.ResponseWriter, r *http.Request) {
			for i := 0; r.Context().Err() == nil; i++ {
				stream(w, "layer", "Downloading", 1)
				stream(w, "layer", "Retrying in "+strings.Repeat("I", i)+" seconds", 0)
				time.Sleep(10 * time.Millisecond)
			}
		}, `no progress for 300ms after "layer `},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newFakeEngine(t)
			e.hasImages, e.create = false, c.create
			wantRefusal(t, ensure(t, e, idleTimeout), c.cause)
		})
	}
}

func TestAPullWithProgressDoesNotTimeOut(t *testing.T) {
	t.Parallel()
	const idleTimeout = time.Second
	e := newFakeEngine(t)
	e.hasImages = false
	e.create = func(w http.ResponseWriter, _ *http.Request) {
		for began, n := time.Now(), int64(0); time.Since(began) < 3*idleTimeout; n++ {
			stream(w, "layer", "Downloading", n)
			time.Sleep(idleTimeout / 20)
		}
		e.arrive()
	}
	if err := ensure(t, e, idleTimeout); err != nil {
		t.Error(err)
	}
}

func TestAPullEndsWithItsContext(t *testing.T) {
	t.Parallel()
	e := newFakeEngine(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	mine := errors.New("this is mine")
	e.hasImages, e.create = false, func(_ http.ResponseWriter, r *http.Request) {
		cancel(mine)
		hang(r)
	}
	wantRefusal(t, aServer.ensureImage(ctx, e.client(t), time.Minute), mine.Error())
}

// hang answers nothing until the client has gone.
func hang(r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// stream sends a message about a layer.
func stream(w http.ResponseWriter, id, status string, bytes int64) {
	reply(w, map[string]any{"id": id, "status": status, "progressDetail": map[string]int64{"current": bytes}})
	w.(http.Flusher).Flush()
}
