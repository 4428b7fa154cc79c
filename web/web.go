// Package web shows the locks of a database on a page for operators: who holds which name, who
// waits for it and since when, readers, permits, what was lost lately, and what happens to one
// name while somebody looks.
//
//	page, err := web.New(locks, nil)
//	mux.Handle("/locks/", http.StripPrefix("/locks", page))
//
// Anybody who can send a request can read: put a handler in front that asks who it is. The page
// needs nothing but this package. It can be read without JavaScript; with it, it updates itself.
// Taking a name away from its holder is off unless [Options.AllowUnlock] is set.
package web

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/monitor"
)

// Options are the options of a [Handler]. The zero value has the defaults.
type Options struct {
	// Title is the heading of the pages. The default is "sqllock".
	Title string

	// Interval is how often an open page is brought up to date. Each open page reads the names
	// that it lists so often; what is counted over all names is read for all pages together,
	// and less often if that takes longer than a tenth of the Interval. The default is 2
	// seconds, the least is 100 milliseconds.
	Interval time.Duration

	// PageSize is how many names a page lists. The default is 100, the most is 1,000.
	PageSize int

	// Hosts are the hosts, with or without a port, that requests may be addressed to. Others
	// are refused, so that a page from elsewhere cannot read this one through a host name that
	// its author points to this server. The default is all hosts.
	Hosts []string

	// AllowUnlock lets visitors take names away from their holders, as
	// [sqllock.Locker.ForceUnlock] does. It is called when a visitor asks for that, and again
	// when the visitor has confirmed it. An error refuses it; the error is logged and not
	// shown. The default is nil: nobody can. It is called concurrently.
	AllowUnlock func(r *http.Request, name string) error

	// Activity, whose hooks the Lockers of this process have, is shown too. The default is
	// nil: only what can be seen in the database is shown.
	Activity *Activity

	// Logger gets errors of the database and each name that was taken away. The default is
	// [slog.Default].
	Logger *slog.Logger
}

const (
	defaultInterval = 2 * time.Second
	minInterval     = 100 * time.Millisecond
	defaultPageSize = 100
	maxPageSize     = 1000
)

func (o *Options) complete() (c Options, err error) {
	if o != nil {
		c = *o
	}
	if c.Title == "" {
		c.Title = "sqllock"
	}
	if c.Interval == 0 {
		c.Interval = defaultInterval
	}
	if c.PageSize == 0 {
		c.PageSize = defaultPageSize
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	switch {
	case c.Interval < minInterval:
		err = fmt.Errorf("%w: Interval %v: must be at least %v", sqllock.ErrInvalidOption, c.Interval, minInterval)
	case c.PageSize < 0 || c.PageSize > maxPageSize:
		err = fmt.Errorf("%w: PageSize %d: must be 1 to %d", sqllock.ErrInvalidOption, c.PageSize, maxPageSize)
	case slices.Contains(c.Hosts, ""):
		err = fmt.Errorf("%w: Hosts %q: a host must not be empty", sqllock.ErrInvalidOption, c.Hosts)
	}
	return c, err
}

// Handler serves the pages. It is safe for concurrent use. Its pages link to each other with
// relative addresses: with [http.StripPrefix] it can be anywhere, at a path that ends with "/".
type Handler struct {
	opts    Options
	locks   *sqllock.Locker
	mux     *http.ServeMux
	sampler *monitor.Sampler
	watches *monitor.Watches
	forms   *forms
	streams chan struct{} // a place for each stream

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup // requests that are being served

	open  context.Context // ends when the Handler is closed
	close context.CancelFunc
}

var _ http.Handler = (*Handler)(nil)

// New returns a Handler that shows the names of a Locker. Close it before the Locker. opts may
// be nil. New sends nothing to the database. It returns [sqllock.ErrInvalidOption] for options
// that cannot be.
func New(locks *sqllock.Locker, opts *Options) (*Handler, error) {
	if locks == nil {
		return nil, fmt.Errorf("%w: the Locker is nil", sqllock.ErrInvalidOption)
	}
	o, err := opts.complete()
	if err != nil {
		return nil, err
	}
	h := &Handler{
		opts: o, locks: locks, mux: http.NewServeMux(),
		sampler: monitor.NewSampler(locks, o.Interval, 0), watches: monitor.NewWatches(locks, o.Interval), forms: newForms(),
		streams: make(chan struct{}, maxStreams),
	}
	h.open, h.close = context.WithCancel(context.Background())
	h.mux.HandleFunc("GET /{$}", h.serveList)
	h.mux.HandleFunc("GET /name", h.serveName)
	h.mux.HandleFunc("GET /events", h.serveEvents)
	h.mux.HandleFunc("GET /unlock", h.serveConfirm)
	h.mux.HandleFunc("POST /unlock", h.serveUnlock)
	for _, file := range []string{"style.css", "live.js"} {
		h.mux.HandleFunc("GET /"+file, serveStatic(file))
	}
	return h, nil
}

// Close ends the streams of open pages and all reading for them, and waits until the requests
// that are being served have ended, or ctx. Later requests get the status 503. It is safe to
// call again. A nil ctx counts as one that has ended, and adds [sqllock.ErrInvalidOption].
func (h *Handler) Close(ctx context.Context) error {
	invalid := driver.CheckContext(ctx)
	if invalid != nil {
		ended, end := context.WithCancel(context.Background())
		end()
		ctx = ended
	}
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.close()
	done := make(chan struct{})
	go func() {
		h.running.Wait()
		h.watches.Close()
		close(done)
	}()
	select {
	case <-done:
		return invalid
	case <-ctx.Done():
		return errors.Join(invalid, fmt.Errorf("sqllock/web: close: requests are still being served: %w", context.Cause(ctx)))
	}
}

// enter notes that a request is served, unless the Handler is closed.
func (h *Handler) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.running.Add(1)
	}
	return !h.closed
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	if !h.enter() {
		http.Error(w, "closed", http.StatusServiceUnavailable)
		return
	}
	defer h.running.Done()
	if !h.isOurs(r.Host) {
		http.Error(w, "this server does not answer for that host", http.StatusMisdirectedRequest)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(h.open, cancel)()
	h.mux.ServeHTTP(w, r.WithContext(ctx))
}

// isOurs reports that requests may be addressed to a host.
func (h *Handler) isOurs(host string) bool {
	if len(h.opts.Hosts) == 0 {
		return true
	}
	bare, _, err := net.SplitHostPort(host)
	if err != nil {
		bare = strings.Trim(host, "[]")
	}
	return slices.ContainsFunc(h.opts.Hosts, func(ours string) bool {
		return strings.EqualFold(ours, host) || strings.EqualFold(strings.Trim(ours, "[]"), bare)
	})
}

// setHeaders forbids everything that the pages do not need. They have no inline script or style.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin") // without a referrer a form would have no origin either
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

var (
	//go:embed templates/*.html
	templateFiles embed.FS
	//go:embed static
	staticFiles embed.FS

	templates = template.Must(template.New("").Funcs(shown).ParseFS(templateFiles, "templates/*.html"))
)

// serveStatic returns a handler for a file that is the same for everybody.
func serveStatic(file string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache")
		http.ServeFileFS(w, r, staticFiles, "static/"+file)
	}
}

// render writes a page. Nothing is sent of a page that fails.
func (h *Handler) render(w http.ResponseWriter, status int, page string, data any) {
	text, err := execute(page, data)
	if err != nil {
		h.opts.Logger.Error("sqllock/web: a page failed", "page", page, "error", err)
		http.Error(w, "the page failed", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

func execute(page string, data any) ([]byte, error) {
	var text bytes.Buffer
	err := templates.ExecuteTemplate(&text, page, data)
	return text.Bytes(), err
}

// refuse shows a page that says why there is no other.
func (h *Handler) refuse(w http.ResponseWriter, status int, message string) {
	h.render(w, status, "problem", problemPage{Title: h.opts.Title, Message: message})
}

type problemPage struct{ Title, Message string }

// fail shows what an error means to a visitor, and logs what it says: that may name servers
// and accounts.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, message := h.explain(r.Context(), err)
	h.refuse(w, status, message)
}

func (h *Handler) explain(ctx context.Context, err error) (status int, message string) {
	switch {
	case errors.Is(err, sqllock.ErrInvalidName):
		return http.StatusBadRequest, "That cannot be a name: names are 1 to 255 bytes of UTF-8 without NUL."
	case errors.Is(err, sqllock.ErrClosed):
		return http.StatusServiceUnavailable, "The Locker of this page is closed."
	case ctx.Err() == nil:
		h.opts.Logger.Warn("sqllock/web: the database cannot be read", "error", err)
	}
	return http.StatusServiceUnavailable, "The database does not answer as it should. The log of this server says more."
}

// readTimeout bounds what one request reads from the database.
const readTimeout = 15 * time.Second
