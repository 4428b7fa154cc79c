package web

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/monitor"
	"github.com/sqllock/sqllock/internal/output"
)

// listQuery is which names a visitor wants to see.
type listQuery struct {
	prefix string
	after  string
	free   bool
}

func newListQuery(r *http.Request) listQuery {
	q := r.URL.Query()
	return listQuery{prefix: q.Get("q"), after: q.Get("after"), free: q.Get("free") != ""}
}

// address is where the list is, relative to all pages.
func (q listQuery) address(page string) string {
	v := url.Values{}
	if q.prefix != "" {
		v.Set("q", q.prefix)
	}
	if q.after != "" {
		v.Set("after", q.after)
	}
	if q.free {
		v.Set("free", "1")
	}
	if len(v) == 0 {
		return page
	}
	return page + "?" + v.Encode()
}

// listPage is what the list shows.
type listPage struct {
	Title    string
	Prefix   string
	Free     bool
	Paged    bool // it begins behind a name
	First    string
	Next     string // "" at the end
	Events   string
	Interval time.Duration
	Now      time.Time // by the clock of the database
	Rows     []sqllock.Info
	Overview *monitor.Overview
	Losses   []monitor.Loss
	Process  *processActivity // nil if there is none
}

// readList reads what the list shows.
func (h *Handler) readList(ctx context.Context, q listQuery) (*listPage, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	first := q
	first.after = ""
	p := &listPage{
		Title: h.opts.Title, Prefix: q.prefix, Free: q.free, Paged: q.after != "", First: first.address("./"),
		Events: q.address("events"), Interval: h.opts.Interval,
	}
	var last string
	var err error
	p.Rows, last, err = monitor.Page(ctx, h.locks, monitor.Query{Prefix: q.prefix, After: q.after, Free: q.free, Limit: h.opts.PageSize})
	if err != nil {
		return nil, err
	}
	if last != "" {
		next := q
		next.after = last
		p.Next = next.address("./")
	}
	if p.Overview, p.Losses, err = h.sampler.Sample(ctx); err != nil {
		return nil, err
	}
	if h.opts.Activity != nil {
		p.Process = h.opts.Activity.read(time.Now())
	}
	return p, nil
}

func (h *Handler) serveList(w http.ResponseWriter, r *http.Request) {
	p, err := h.readList(r.Context(), newListQuery(r))
	if err != nil {
		h.fail(w, r, err)
		return
	}
	h.render(w, http.StatusOK, "list", p)
}

// shown are the functions of the templates. What strangers have chosen passes through word,
// which makes invisible characters visible; the templates escape it besides.
var shown = map[string]any{
	"word":     output.Word,
	"value":    shownValue,
	"ago":      output.Relative,
	"age":      func(since, now time.Time) string { return output.Duration(now.Sub(since)) },
	"time":     output.Time,
	"state":    func(i sqllock.Info) string { return monitor.State(&i) },
	"held":     func(i sqllock.Info) bool { return monitor.IsHeld(&i) },
	"holder":   shownHolder,
	"until":    shownUntil,
	"nameLink": func(name string) string { return "name?n=" + url.QueryEscape(name) },
	"plus":     func(a, b int) int { return a + b },
}
