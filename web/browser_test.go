//go:build chromium

// Run with make page, which needs Chromium.
package web_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/output"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/web"
)

func (s *site) address(path string) string { return s.server.URL + prefix + path }

func TestAnOpenPageChangesWithoutAReloadInABrowser(t *testing.T) {
	s, c := newSite(t, testdb.SQLite, web.Options{}), startChromium(t)
	last := map[string]string{"/": "No name is held.", "/name?n=a+b": "Nobody waits"}
	for path, end := range last {
		c.open(s.address(path))
		value[bool](c, `window.notReloaded = true`)
		c.untilStatus("live")
		lease := s.lock("a b")
		c.untilShown("the test")
		s.waiters("a b", 2)
		c.untilShown("2 waiting")
		if err := lease.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.untilShown(end)
		if !value[bool](c, `window.notReloaded === true`) {
			t.Errorf("%s was loaded again", path)
		}
		c.foundNothing(path)
	}
}

func TestAPageTellsOfProblemsInABrowser(t *testing.T) {
	s, c := newSite(t, testdb.SQLite, web.Options{}), startChromium(t)
	s.lock("k")
	c.open(s.address("/"))
	c.untilStatus("live")
	s.exec(`ALTER TABLE sqllock_lock RENAME TO elsewhere`)
	c.untilStatus("does not answer")
	c.untilShown("the test")
	if !value[bool](c, `document.getElementById("status").classList.contains("bad")`) {
		t.Error("the problem does not look like one")
	}
	s.exec(`ALTER TABLE elsewhere RENAME TO sqllock_lock`)
	c.untilStatus("live")
	c.foundNothing("a problem")
	if err := s.page.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.untilStatus("not connected")
	c.untilShown("the test")
}

func TestWhatSomebodyReadsIsLeftAloneInABrowser(t *testing.T) {
	s, c := newSite(t, testdb.SQLite, web.Options{}), startChromium(t)
	s.lock("a")
	c.open(s.address("/"))
	c.untilStatus("live")
	value[bool](c, `document.querySelector("td a").focus(), true`)
	s.lock("b")
	c.until(`document.querySelectorAll("td a").length === 2`)
	if got := value[string](c, `document.activeElement.innerText`); got != "a" {
		t.Errorf("the link to %q has the focus, want that to a", got)
	}
	value[bool](c, `window.getSelection().selectAllChildren(document.querySelector("td")), true`)
	s.lock("c")
	value[bool](c, countUpdates)
	c.until(`updates >= 2`)
	if got := value[int](c, `document.querySelectorAll("td a").length`); got != 2 {
		t.Errorf("%d names are listed while text is selected, want the 2 from before", got)
	}
	value[bool](c, `window.getSelection().removeAllRanges(), true`)
	c.until(`document.querySelectorAll("td a").length === 3`)
	c.foundNothing("a selection")
}

// countUpdates counts what a page that has been open for no longer than this one is sent: two
// updates take at least a second, as that is how often the times on a page change.
const countUpdates = `window.updates = 0, new EventSource("events").addEventListener("update", () => { updates++ }), true`

func TestAPageInTheBackgroundReadsNothingInABrowser(t *testing.T) {
	s, c := newSite(t, testdb.SQLite, web.Options{}), startChromium(t)
	c.open(s.address("/"))
	c.untilStatus("live")
	first := c.window
	c.openWindow()
	eventually(t, "the page behind another has no stream", func() bool { return s.page.Streams() == 0 })
	c.show(first)
	eventually(t, "the page has its stream again", func() bool { return s.page.Streams() == 1 })
	s.lock("k")
	c.untilShown("the test")
	c.call("Page.navigate", params{"url": "about:blank"}, nil)
	eventually(t, "a page that was left has no stream", func() bool { return s.page.Streams() == 0 })
}

func TestAPageCanBeReadWithoutJavaScriptInABrowser(t *testing.T) {
	s, c := newSite(t, testdb.SQLite, web.Options{}), startChromium(t)
	s.lock("k")
	c.call("Emulation.setScriptExecutionDisabled", params{"value": true}, nil)
	for _, path := range []string{"/", "/name?n=k"} {
		c.open(s.address(path))
		c.untilShown("the test")
		c.untilStatus("reload to update")
	}
	if n := s.page.Streams(); n != 0 {
		t.Errorf("there are %d streams", n)
	}
	c.foundNothing("without JavaScript")
}

// notOfThePage finds what does not belong to a page of web, and what has run.
const notOfThePage = `(() => {
  const found = [];
  const say = (what, is) => { if (!is) found.push(what) };
  say("alerts: " + window.alerts, window.alerts === 0);
  say("title: " + document.title, document.title === "sqllock");
  const tags = new Set("a b bdi body button dd div dl dt form h1 h2 head header html input label li link main meta nav p script span table tbody td th thead title tr ul noscript".split(" "));
  const base = location.origin + "/admin/locks/";
  for (const e of document.querySelectorAll("*")) {
    say("<" + e.localName + ">", tags.has(e.localName));
    for (const a of e.attributes) {
      say(a.name + "=" + a.value, !a.name.startsWith("on") && a.name !== "style");
      if (["src", "href", "action", "formaction"].includes(a.name)) say(a.name + "=" + a.value, new URL(a.value, location).href.startsWith(base));
    }
  }
  say("scripts: " + document.scripts.length, document.scripts.length === 1);
  return found;
})()`

// isHarmless fails the test if something is on the page that does not belong there.
func (c *chromium) isHarmless(what string) {
	c.t.Helper()
	value[bool](c, `fetch("style.css").then(r => r.text()).then(() => new Promise(f => setTimeout(() => f(true))))`) // what is loaded has been
	if found := value[[]string](c, notOfThePage); len(found) > 0 {
		c.t.Errorf("%s: the page has %q", what, found)
	}
	c.foundNothing(what)
}

// What escapes the texts must do without the policy too: then each page is opened.
func TestHostileTextsDoNothingInABrowser(t *testing.T) {
	s, c := newSite(t, testdb.SQLite, web.Options{PageSize: 200, AllowUnlock: allowAll}), startChromium(t)
	c.openList(s)
	c.call("Page.setBypassCSP", params{"enabled": true}, nil)
	for i, text := range hostileTexts {
		if !strings.Contains(text, "alert(1)") {
			continue
		}
		for state := range hostileStates {
			c.openName(s, hostileName(state, i), text)
		}
		c.openName(s, text, text)
		for _, path := range []string{"/unlock?n=", "/?q="} {
			c.open(s.address(path + url.QueryEscape(text)))
			c.isHarmless(path + text)
		}
	}
}

// openList has the hostile names come while the list is open, and opens it again.
func (c *chromium) openList(s *site) {
	c.t.Helper()
	c.open(s.address("/?free=1"))
	c.untilStatus("live")
	s.fillWithHostile()
	s.fillWithNames(testdb.SQLite, hostileTexts)
	last := slices.Max(hostileTexts)
	c.untilShown(output.Word(last))
	c.isHarmless("an update of the list")
	c.open(s.address("/?free=1"))
	c.untilShown(output.Word(last))
	c.isHarmless("the list")
	c.untilStatus("live")
}

// updateAnew empties a page, and has it ask for all that it shows.
const updateAnew = `dispatchEvent(new Event("pagehide")), document.getElementById("live").replaceChildren(), dispatchEvent(new Event("pageshow")), true`

// openName opens the page of a name that shows a text, as it is at first and after an update.
func (c *chromium) openName(s *site, name, text string) {
	c.t.Helper()
	c.open(s.address("/name?n=" + url.QueryEscape(name)))
	c.isHarmless(name)
	value[bool](c, updateAnew)
	c.untilShown(output.Word(text))
	c.isHarmless("an update of " + name)
}

// The checks above would find a text that is not escaped, and the policy would stop it.
func TestThePolicyStopsWhatIsNotEscapedInABrowser(t *testing.T) {
	const planted = `<script>alert(1)</script><img src=x onerror=alert(1)>`
	s, c := newSite(t, testdb.SQLite, web.Options{}), startChromium(t)
	page := s.server.Config.Handler
	s.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/events") {
			page.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		page.ServeHTTP(answer, r)
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		_, _ = w.Write(bytes.Replace(answer.Body.Bytes(), []byte("</main>"), []byte(planted+"</main>"), 1))
	})
	c.open(s.address("/"))
	c.untilStatus("live")
	if found := value[[]string](c, notOfThePage); !slices.Contains(found, "<img>") || !slices.Contains(found, "scripts: 2") {
		t.Errorf("only %q was found", found)
	}
	if n := value[int](c, `alerts`); n != 0 {
		t.Errorf("%d scripts ran in spite of the policy", n)
	}
	refused := slices.DeleteFunc(slices.Clone(c.found), func(text string) bool { return !strings.Contains(text, "Content Security Policy") })
	if len(refused) < 2 {
		t.Errorf("Chromium reports only %q", c.found)
	}
	c.call("Page.setBypassCSP", params{"enabled": true}, nil)
	c.open(s.address("/"))
	c.until(`alerts === 2`)
}

func TestAVisitorTakesANameAwayInABrowser(t *testing.T) {
	s, c := newSite(t, testdb.SQLite, web.Options{AllowUnlock: allowAll}), startChromium(t)
	s.lock("a b")
	c.open(s.address("/name?n=a+b"))
	c.follow(`document.querySelector(".danger a").click()`, "/unlock")
	value[bool](c, `document.querySelector("button").click(), true`)
	if value[bool](c, `document.querySelector("form").checkValidity()`) {
		t.Error("the form can be sent without being confirmed")
	}
	c.foundNothing("the form")
	value[bool](c, `document.querySelector("[name=confirm]").click(), true`)
	c.follow(`document.querySelector("button").click()`, "/name")
	c.untilShown("forced")
	if info, err := s.locks.Inspect(t.Context(), "a b"); err != nil || info.State != sqllock.StateForced {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
	c.isHarmless("the name that was taken away")
}

// follow does something that leads to another page, and waits for that.
func (c *chromium) follow(action, path string) {
	c.t.Helper()
	value[bool](c, `window.left = true, setTimeout(() => `+action+`), true`)
	c.until(fmt.Sprintf(`window.left !== true && document.readyState === "complete" && location.pathname === %s`, quote(prefix+path)))
}

// A page from elsewhere, to which the browser is sent, can neither show a page nor send its form.
func TestAPageFromElsewhereCanDoNothingInABrowser(t *testing.T) {
	s, c := newSite(t, testdb.SQLite, web.Options{AllowUnlock: allowAll}), startChromium(t)
	lease := s.lock("k")
	c.open(s.address("/unlock?n=k")) // the visitor has the cookie
	form := value[map[string]string](c, `Object.fromEntries(new FormData(document.querySelector("form")))`)
	for _, host := range []string{"127.0.0.1", "localhost"} {
		elsewhere := s.elsewhere(form["form"], form["token"])
		c.open(strings.Replace(elsewhere, "127.0.0.1", host, 1))
		c.until(`document.querySelector("iframe").contentDocument === null`) // it is not blank any more
		refused := slices.ContainsFunc(c.found, func(text string) bool { return strings.Contains(text, "frame-ancestors") })
		if !refused {
			t.Errorf("from %s: the page is shown in a frame: %q", host, c.found)
		}
		c.found = nil
		c.follow(`document.querySelector("form").submit()`, "/unlock")
		if got := value[string](c, `document.querySelector(".problem").innerText`); !strings.Contains(got, "did not come from this page") {
			t.Errorf("from %s: %q", host, got)
		}
	}
	if info, err := s.locks.Inspect(t.Context(), "k"); err != nil || info.State != sqllock.StateHeld || info.Token != lease.Token() {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
}

// elsewhere is the address of a page of somebody else with a frame and with the form.
func (s *site) elsewhere(form, token string) string {
	page := fmt.Sprintf(`<!doctype html><iframe src="%s"></iframe><form method="post" action="%s">
		<input name="form" value="%s"><input name="token" value="%s"><input name="confirm" value="yes"></form>`,
		s.address("/"), s.address("/unlock?n=k"), form, token)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(page))
	}))
	s.t.Cleanup(other.Close)
	return other.URL
}
