package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/moby/moby/client"
)

// A fakeEngine answers as a Docker engine does. Its containers are one Postgres server.
type fakeEngine struct {
	*httptest.Server

	// Each is set before the first call. create answers to a request for a pull.
	hasImages bool
	create    http.HandlerFunc

	mu         sync.Mutex
	port       int // of the server in the containers; at first it does not listen
	pulled     []string
	containers map[string]*fakeContainer
	removed    int
	late       *fakeContainer // appears when one is removed
}

// A fakeContainer is the request that created it.
type fakeContainer struct {
	ID, Image  string
	Env, Cmd   []string
	Labels     map[string]string
	HostConfig struct {
		PortBindings map[string][]map[string]string
	}
}

// newFakeEngine starts an engine that has all images.
func newFakeEngine(t *testing.T) *fakeEngine {
	t.Helper()
	e := &fakeEngine{hasImages: true, port: 1, containers: make(map[string]*fakeContainer)}
	mux := http.NewServeMux()
	for pattern, handler := range map[string]http.HandlerFunc{
		"/_ping":                            func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Api-Version", "1.41") },
		"GET /v1.41/info":                   func(w http.ResponseWriter, _ *http.Request) { reply(w, map[string]string{"OSType": "linux"}) },
		"GET /v1.41/networks":               func(w http.ResponseWriter, _ *http.Request) { reply(w, []map[string]string{{"Name": "bridge"}}) },
		"POST /v1.41/images/create":         e.pull,
		"GET /v1.41/images/{name...}":       e.inspectImage,
		"GET /v1.41/containers/json":        e.list,
		"POST /v1.41/containers/create":     e.createContainer,
		"POST /v1.41/containers/{id}/start": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"GET /v1.41/containers/{id}/json":   e.inspect,
		"GET /v1.41/containers/{id}/logs":   func(http.ResponseWriter, *http.Request) {},
		"DELETE /v1.41/containers/{id}":     e.remove,
	} {
		mux.HandleFunc(pattern, handler)
	}
	e.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		e.CloseClientConnections()
		e.Close()
	})
	return e
}

// host returns the engine's address as DOCKER_HOST has it.
func (e *fakeEngine) host() string { return "tcp://" + e.Listener.Addr().String() }

func (e *fakeEngine) client(t *testing.T) client.APIClient {
	t.Helper()
	c, err := client.New(client.WithHost(e.host()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (e *fakeEngine) pull(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	e.pulled = append(e.pulled, r.FormValue("fromImage")+":"+r.FormValue("tag"))
	e.mu.Unlock()
	e.create(w, r)
}

// pulled returns the images that were asked for.
func (e *fakeEngine) pulledImages() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.pulled, " ")
}

// arrive marks the images as pulled.
func (e *fakeEngine) arrive() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hasImages = true
}

func (e *fakeEngine) inspectImage(w http.ResponseWriter, _ *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.hasImages {
		writeError(w, http.StatusNotFound, "No such image")
		return
	}
	reply(w, map[string]string{"Id": "sha256:0"})
}

func (e *fakeEngine) createContainer(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := &fakeContainer{ID: fmt.Sprintf("%064d", len(e.containers)+e.removed+1)}
	if err := json.NewDecoder(r.Body).Decode(c); err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	e.containers[c.ID] = c
	w.WriteHeader(http.StatusCreated)
	reply(w, map[string]string{"Id": c.ID})
}

func (e *fakeEngine) inspect(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	reply(w, map[string]any{
		"Id": r.PathValue("id"), "State": map[string]any{"Running": true, "Status": "running"},
		"HostConfig": map[string]any{"NetworkMode": "bridge"}, "Config": map[string]any{},
		"NetworkSettings": map[string]any{"Ports": map[string]any{
			"5432/tcp": []map[string]string{{"HostIp": localhost, "HostPort": fmt.Sprint(e.port)}},
		}},
	})
}

// list returns the containers with the label that is asked for.
func (e *fakeEngine) list(w http.ResponseWriter, r *http.Request) {
	var filters struct{ Label map[string]bool }
	_ = json.Unmarshal([]byte(r.FormValue("filters")), &filters)
	e.mu.Lock()
	defer e.mu.Unlock()
	found := []map[string]string{}
	for id, c := range e.containers {
		for key, value := range c.Labels {
			if filters.Label[key+"="+value] && r.FormValue("all") == "1" {
				found = append(found, map[string]string{"Id": id})
			}
		}
	}
	reply(w, found)
}

func (e *fakeEngine) remove(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.FormValue("force") != "1" || r.FormValue("v") != "1" {
		writeError(w, http.StatusConflict, "it runs, or leaves a volume")
		return
	}
	delete(e.containers, r.PathValue("id"))
	e.removed++
	if e.late != nil {
		e.containers[e.late.ID], e.late = e.late, nil
	}
	w.WriteHeader(http.StatusNoContent)
}

// running returns the containers that are there, and how many are not any more.
func (e *fakeEngine) running() (there []*fakeContainer, removed int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.containers {
		there = append(there, c)
	}
	slices.SortFunc(there, func(a, b *fakeContainer) int { return strings.Compare(a.ID, b.ID) })
	return there, e.removed
}

func reply(w http.ResponseWriter, body any) { _ = json.NewEncoder(w).Encode(body) }

func writeError(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	reply(w, map[string]string{"message": message})
}

// serve makes the containers' server one that answers queries.
func (e *fakeEngine) serve(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", localhost+":0")
	if err != nil {
		t.Fatal(err)
	}
	e.mu.Lock()
	e.port = l.Addr().(*net.TCPAddr).Port
	e.mu.Unlock()
	var clients sync.WaitGroup
	clients.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			clients.Go(func() { answer(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		clients.Wait() // they leave, being of a program that has ended
	})
}

// answer is a Postgres server that reports success for every query.
func answer(conn net.Conn) {
	defer conn.Close()
	b := pgproto3.NewBackend(conn, conn)
	if _, err := b.ReceiveStartupMessage(); err != nil {
		return
	}
	b.Send(&pgproto3.AuthenticationOk{})
	for {
		b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		if b.Flush() != nil {
			return
		}
		if _, err := b.Receive(); err != nil {
			return
		}
		b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
	}
}
