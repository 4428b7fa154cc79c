package web

import (
	"bytes"
	"context"
	"net/http"
	"time"
)

const (
	maxStreams = 64 // open pages that update themselves
	keepAlive  = 15 * time.Second
)

// writeTimeout bounds one write to an open page.
var writeTimeout = 10 * time.Second

// serveEvents sends what a page shows, each time that it has changed, until the visitor leaves
// or the Handler is closed.
func (h *Handler) serveEvents(w http.ResponseWriter, r *http.Request) {
	select {
	case h.streams <- struct{}{}:
		defer func() { <-h.streams }()
	default:
		w.Header().Set("Retry-After", "30")
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	query, name := newListQuery(r), r.URL.Query().Get("n")
	read := func(ctx context.Context) ([]byte, error) {
		if r.URL.Query().Get("page") == "name" {
			p, err := h.readName(ctx, name)
			return live("live-name", p, err)
		}
		p, err := h.readList(ctx, query)
		return live("live-list", p, err)
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // for a proxy before us
	w.WriteHeader(http.StatusOK)
	h.stream(r.Context(), &eventWriter{w: w, c: http.NewResponseController(w)}, read)
}

func live[P any](template string, page *P, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return execute(template, page)
}

// stream sends what read returns, again and again.
func (h *Handler) stream(ctx context.Context, to *eventWriter, read func(context.Context) ([]byte, error)) {
	tick := time.NewTicker(h.opts.Interval)
	defer tick.Stop()
	var last []byte
	for {
		event := "update"
		text, err := read(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			_, message := h.explain(ctx, err)
			event, text = "problem", []byte(message)
		}
		if !bytes.Equal(text, last) {
			err = to.event(event, text)
		} else {
			err = to.alive()
		}
		if last = text; err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// eventWriter writes server-sent events. A visitor that takes none for long is left.
type eventWriter struct {
	w    http.ResponseWriter
	c    *http.ResponseController
	sent time.Time
}

func (e *eventWriter) event(name string, data []byte) error {
	var b bytes.Buffer
	b.WriteString("event: " + name + "\n")
	for line := range bytes.Lines(data) {
		b.WriteString("data: ")
		b.Write(bytes.TrimRight(line, "\r\n"))
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	return e.write(b.Bytes())
}

// alive notices that the visitor is gone, and keeps proxies from thinking so.
func (e *eventWriter) alive() error {
	if time.Since(e.sent) < keepAlive {
		return nil
	}
	return e.write([]byte(":\n\n"))
}

func (e *eventWriter) write(text []byte) error {
	e.sent = time.Now()
	_ = e.c.SetWriteDeadline(e.sent.Add(writeTimeout)) // where the server can
	if _, err := e.w.Write(text); err != nil {
		return err
	}
	err := e.c.Flush()
	_ = e.c.SetWriteDeadline(time.Time{}) // with HTTP/2 it ends a stream on which nobody writes, too
	return err
}
