package web

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/sqllock/sqllock"
)

// namePage is what the page of one name shows.
type namePage struct {
	Title    string
	Info     sqllock.Info
	More     int            // that wait behind those of the queue
	Changes  []sqllock.Info // the newest first
	Watched  bool
	Unlock   string // where it can be taken away, or ""
	Events   string
	Interval time.Duration
}

// readName reads what the page of a name shows.
func (h *Handler) readName(ctx context.Context, name string) (*namePage, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	info, err := h.locks.Inspect(ctx, name)
	if err != nil {
		return nil, err
	}
	p := &namePage{
		Title: h.opts.Title, Info: info, More: max(0, info.Waiters-len(info.Queue)),
		Events: "events?page=name&n=" + url.QueryEscape(name), Interval: h.opts.Interval,
	}
	p.Changes, p.Watched = h.watches.Visit(name)
	return p, nil
}

func (h *Handler) serveName(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("n")
	p, err := h.readName(r.Context(), name)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	if h.opts.AllowUnlock != nil {
		p.Unlock = "unlock?n=" + url.QueryEscape(name)
	}
	h.render(w, http.StatusOK, "name", p)
}
