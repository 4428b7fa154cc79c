package web_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/web"
)

func TestNobodyCanTakeANameAwayUnlessTheApplicationAllowsIt(t *testing.T) {
	t.Parallel()
	s := newSite(t, testdb.SQLite, web.Options{})
	lease := s.lock("k")
	s.get("/name?n=k").wants(t, 200).lacks(t, "unlock")
	s.get("/unlock?n=k").wants(t, 403, "does not allow")
	s.do(s.post("k", &form{})).wants(t, 403)
	if lease.Context().Err() != nil {
		t.Errorf("the lease: %v", lease.Context().Err())
	}
}

var hidden = regexp.MustCompile(`name="(token|form)" value="([^"]*)"`)

// form is what a visitor sends.
type form struct {
	cookie *http.Cookie
	values url.Values
}

// confirm opens the page that asks, and fills in its form.
func (s *site) confirm(name string) *form {
	s.t.Helper()
	a := s.get("/unlock?n="+url.QueryEscape(name)).wants(s.t, 200, "two callers")
	f := &form{values: url.Values{"confirm": {"yes"}}}
	for _, m := range hidden.FindAllStringSubmatch(a.text, -1) {
		f.values.Set(m[1], m[2])
	}
	for _, c := range a.Cookies() {
		f.cookie = c
	}
	if f.cookie == nil || !f.cookie.HttpOnly || f.cookie.SameSite != http.SameSiteStrictMode {
		s.t.Fatalf("the cookie is %v", f.cookie)
	}
	return f
}

func (s *site) post(name string, f *form) *http.Request {
	r := s.request(http.MethodPost, "/unlock?n="+url.QueryEscape(name), strings.NewReader(f.values.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if f.cookie != nil {
		r.AddCookie(f.cookie)
	}
	return r
}

func TestAVisitorTakesANameAway(t *testing.T) {
	t.Parallel()
	s := newSite(t, testdb.SQLite, web.Options{AllowUnlock: func(*http.Request, string) error { return nil }})
	for _, name := range []string{"k", "a b/?&\n\"<x>"} {
		lease := s.lock(name)
		s.get("/name?n="+url.QueryEscape(name)).wants(t, 200, "Take the name away")
		a := s.do(s.post(name, s.confirm(name))).wants(t, 303)
		if to := a.Header.Get("Location"); to != "name?n="+url.QueryEscape(name) {
			t.Errorf("the visitor is sent to %q", to)
		}
		<-lease.Context().Done()
		if lost := (*sqllock.LostError)(nil); !errors.As(context.Cause(lease.Context()), &lost) || lost.Reason != sqllock.LostRevoked {
			t.Errorf("the lease ended with %v", context.Cause(lease.Context()))
		}
	}
	if log := s.log.String(); strings.Count(log, "took a name away") != 2 {
		t.Errorf("the log is %q", log)
	}
	s.get("/").wants(t, 200, "taken away on this page")
}

func TestForgedFormsAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, testdb.SQLite, web.Options{AllowUnlock: func(*http.Request, string) error { return nil }})
	lease, _ := s.lock("k"), s.lock("other")
	for what, forge := range map[string]func(*form, *http.Request){
		"no cookie":                func(_ *form, r *http.Request) { r.Header.Del("Cookie") },
		"another site by origin":   func(_ *form, r *http.Request) { r.Header.Set("Origin", "http://evil.example") },
		"another site by metadata": func(_ *form, r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"another visitor": func(_ *form, r *http.Request) {
			r.Header.Del("Cookie")
			r.AddCookie(s.confirm("k").cookie)
		},
	} {
		f := s.confirm("k")
		r := s.post("k", f)
		forge(f, r)
		s.do(r).wants(t, 403, "did not come from this page")
		t.Log(what)
	}
	for what, change := range map[string]func(url.Values){
		"no token":    func(v url.Values) { v.Del("form") },
		"a random":    func(v url.Values) { v.Set("form", "x") },
		"of another":  func(v url.Values) { v.Set("form", s.confirm("other").values.Get("form")) },
		"two of them": func(v url.Values) { v["form"] = []string{"x", v.Get("form")} },
	} {
		f := s.confirm("k")
		change(f.values)
		s.do(s.post("k", f)).wants(t, 403)
		t.Log(what)
	}
	for _, r := range []*http.Request{s.request(http.MethodGet, "/unlock?n=k&confirm=yes&"+s.confirm("k").values.Encode(), nil)} {
		s.do(r).wants(t, 200)
	}
	if lease.Context().Err() != nil {
		t.Errorf("the lease: %v", lease.Context().Err())
	}
}

func TestWhatWasNotConfirmedOrHasChangedIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t, testdb.SQLite, web.Options{AllowUnlock: func(*http.Request, string) error { return nil }})
	first := s.lock("k")
	f := s.confirm("k")
	for _, key := range []string{"confirm", "token"} {
		changed := s.confirm("k")
		changed.values.Del(key)
		s.do(s.post("k", changed)).wants(t, 400, "nothing has changed")
	}
	free := s.confirm("k")
	free.values.Set("token", "0") // as the page shows of a name that nobody holds
	s.do(s.post("k", free)).wants(t, 409, "nothing has changed")
	large := s.confirm("k")
	large.values.Set("x", strings.Repeat("x", 1<<16))
	s.do(s.post("k", large)).wants(t, 400)
	if err := first.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.do(s.post("k", f)).wants(t, 409, "Nobody holds the name any more")
	second := s.lock("k")
	s.do(s.post("k", f)).wants(t, 409, "Somebody else has got the name meanwhile")
	if second.Context().Err() != nil {
		t.Errorf("the later lease: %v", second.Context().Err())
	}
}

func TestTheApplicationIsAskedAgainWhenTheVisitorHasConfirmed(t *testing.T) {
	t.Parallel()
	calls := 0
	s := newSite(t, testdb.SQLite, web.Options{AllowUnlock: func(r *http.Request, name string) error {
		if calls++; name != "k" || r.Method != http.MethodGet {
			return errors.New("the secret reason")
		}
		return nil
	}})
	lease := s.lock("k")
	s.get("/unlock?n=other").wants(t, 403, "may not").lacks(t, "secret")
	s.do(s.post("k", s.confirm("k"))).wants(t, 403, "may not").lacks(t, "secret")
	if lease.Context().Err() != nil || calls != 3 || !strings.Contains(s.log.String(), "the secret reason") {
		t.Errorf("the lease: %v; called %d times; log %q", lease.Context().Err(), calls, s.log.String())
	}
}
