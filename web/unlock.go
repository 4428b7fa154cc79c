package web

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/sqllock/sqllock"
)

// unlockTimeout is for how long a visitor waits for a transaction that keeps the row locked, or
// for a holder to let go.
const unlockTimeout = 10 * time.Second

// confirmPage asks whether a name is to be taken away.
type confirmPage struct {
	Title string
	Info  sqllock.Info
	Back  string
	Post  string
	Form  string // the token of the form
}

// mayUnlock asks the application, and refuses the request if it does not allow it.
func (h *Handler) mayUnlock(w http.ResponseWriter, r *http.Request, name string) bool {
	if h.opts.AllowUnlock == nil {
		h.refuse(w, http.StatusForbidden, "Names cannot be taken away on this page: the server does not allow it.")
		return false
	}
	if err := h.opts.AllowUnlock(r, name); err != nil {
		h.opts.Logger.Warn("sqllock/web: a visitor may not take a name away", "name", name, "remote", r.RemoteAddr, "error", err)
		h.refuse(w, http.StatusForbidden, "You may not take this name away.")
		return false
	}
	return true
}

// serveConfirm shows who holds the name, and a form that takes it away.
func (h *Handler) serveConfirm(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("n")
	if !h.mayUnlock(w, r, name) {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	info, err := h.locks.Inspect(ctx, name)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	h.render(w, http.StatusOK, "confirm", confirmPage{
		Title: h.opts.Title, Info: info, Back: "name?n=" + url.QueryEscape(name), Post: "unlock?n=" + url.QueryEscape(name), Form: h.forms.begin(w, r, name),
	})
}

// maxForm is how many bytes a form has at most.
const maxForm = 4096

// serveUnlock takes a name away from the holder that the visitor has seen.
func (h *Handler) serveUnlock(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		h.refuse(w, http.StatusBadRequest, "That is not the form of this page.")
		return
	}
	name := r.URL.Query().Get("n") // a browser changes newlines in the fields of a form
	if err := h.forms.check(r, name); err != nil {
		h.opts.Logger.Warn("sqllock/web: a form was refused", "name", name, "remote", r.RemoteAddr, "error", err)
		h.refuse(w, http.StatusForbidden, "The form did not come from this page, or is too old. Go back to the name and try again.")
		return
	}
	if !h.mayUnlock(w, r, name) {
		return
	}
	token, err := strconv.ParseInt(r.PostForm.Get("token"), 10, 64)
	if err != nil || r.PostForm.Get("confirm") != "yes" {
		h.refuse(w, http.StatusBadRequest, "You have not confirmed it: nothing has changed.")
		return
	}
	h.unlock(w, r, name, token)
}

func (h *Handler) unlock(w http.ResponseWriter, r *http.Request, name string, token int64) {
	ctx, cancel := context.WithTimeout(r.Context(), unlockTimeout)
	defer cancel()
	if token < 1 { // the visitor has seen a name that nobody held
		h.refuse(w, http.StatusConflict, "Nobody held the name: nothing has changed. Go back and look again.")
		return
	}
	info, err := h.locks.ForceUnlockTerm(ctx, name, token)
	switch {
	case errors.Is(err, sqllock.ErrNotHeld) && info.Token != token:
		h.refuse(w, http.StatusConflict, "Somebody else has got the name meanwhile: nothing has changed. Go back and look again.")
	case errors.Is(err, sqllock.ErrNotHeld):
		h.refuse(w, http.StatusConflict, "Nobody holds the name any more: nothing has changed.")
	case err != nil:
		h.fail(w, r, err)
	default:
		h.opts.Logger.Warn("sqllock/web: a visitor took a name away from its holder",
			"name", name, "label", info.Label, "token", info.Token, "remote", r.RemoteAddr)
		h.sampler.Forced(&info, "on this page")
		w.Header().Set("Location", "name?n="+url.QueryEscape(name)) // relative: our own path is not known
		w.WriteHeader(http.StatusSeeOther)
	}
}

// forms tells forms of this page from forged ones. A token belongs to a visitor, who has a
// random cookie, and to a name.
type forms struct {
	key    []byte
	origin *http.CrossOriginProtection
}

// visitorCookie keeps the random text of a visitor. It says nothing about who that is.
const visitorCookie = "sqllock_form"

func newForms() *forms {
	return &forms{key: []byte(rand.Text()), origin: http.NewCrossOriginProtection()}
}

// begin returns the token of a form, and sets the cookie that goes with it.
func (f *forms) begin(w http.ResponseWriter, r *http.Request, name string) string {
	visitor := rand.Text()
	if c, err := r.Cookie(visitorCookie); err == nil && c.Value != "" {
		visitor = c.Value
	}
	http.SetCookie(w, &http.Cookie{
		Name: visitorCookie, Value: visitor, HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode,
	})
	return f.token(visitor, name)
}

func (f *forms) token(visitor, name string) string {
	mac := hmac.New(sha256.New, f.key)
	_, _ = mac.Write([]byte(visitor + "\x00" + name))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// check returns an error unless the form is one that begin made for this visitor and name.
func (f *forms) check(r *http.Request, name string) error {
	if err := f.origin.Check(r); err != nil {
		return err
	}
	c, err := r.Cookie(visitorCookie)
	switch {
	case err != nil || c.Value == "":
		return errors.New("the visitor has no cookie")
	case !hmac.Equal([]byte(r.PostForm.Get("form")), []byte(f.token(c.Value, name))):
		return errors.New("the token of the form is not that of this visitor and name")
	}
	return nil
}
