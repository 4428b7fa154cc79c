package web_test

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/output"
	"github.com/sqllock/sqllock/internal/output/outputtest"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/web"
)

func TestOptionsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, testdb.SQLite, web.Options{})
	for _, o := range []*web.Options{{Interval: time.Millisecond}, {Interval: -1}, {PageSize: -1}, {PageSize: 1001}, {Hosts: []string{"a", ""}}} {
		if h, err := web.New(s.locks, o); h != nil || !errors.Is(err, sqllock.ErrInvalidOption) {
			t.Errorf("New(%+v) = %v, %v", o, h, err)
		}
	}
	if _, err := web.New(nil, nil); !errors.Is(err, sqllock.ErrInvalidOption) {
		t.Errorf("New without a Locker: %v", err)
	}
	if h, err := web.New(s.locks, nil); err != nil || h.Close(t.Context()) != nil {
		t.Errorf("New without options: %v", err)
	}
	var nobody context.Context
	for range 2 {
		if err := s.page.Close(nobody); !errors.Is(err, sqllock.ErrInvalidOption) {
			t.Errorf("Close without a context: %v", err)
		}
	}
	s.get("/").wants(t, 503)
}

func TestTheListShowsWhoHoldsAndWhoWaits(t *testing.T) {
	t.Parallel()
	s := newSite(t, testdb.SQLite, web.Options{Title: "Locks of the shop"})
	s.get("/").wants(t, 200, "Locks of the shop", "No name is held.")
	s.lock("invoice/1")
	s.waiters("invoice/1", 3)
	reader, err := s.locks.RLock(t.Context(), "report")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reader.Unlock(context.Background()) })
	free := s.lock("was free")
	if err := free.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the list is brought up to date", func() bool { return strings.Contains(s.get("/").text, "Longest queues") })
	a := s.get("/").wants(t, 200, "invoice/1", "the test", "Longest queues", "1 reader", "<dt>held</dt><dd>2</dd>",
		"<dt>waiting</dt><dd>3</dd>", "<dt>readers</dt><dd>1</dd>")
	a.lacks(t, "was free", "Next page")
	s.get("/name?n=report").wants(t, 200, "<h2>Readers</h2>", "<td><bdi>&#34;the test&#34;</bdi></td>")
	s.get("/?free=1").wants(t, 200, "was free", "released")
	s.get("/?q=inv").wants(t, 200, "invoice/1", "Names that begin with <bdi>inv</bdi>").lacks(t, ">report<")
	s.get("/?q=nothing").wants(t, 200, "No name is held.")
}

func TestTheListShowsPermits(t *testing.T) {
	t.Parallel()
	s := newSite(t, testdb.SQLite, web.Options{})
	sem, err := s.locks.Semaphore("pool", 5, nil)
	if err != nil {
		t.Fatal(err)
	}
	permit, err := sem.TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.get("/").wants(t, 200, "1 of 5 permits")
	s.get("/name?n=pool").wants(t, 200, "1 of 5 held", "<h2>Permits</h2>", "<td><bdi>&#34;the test&#34;</bdi></td>")
	if err := permit.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// crash makes a row of a holder that is dead, whose lease lasts for so long.
func (s *site) crash(name string, lasts time.Duration) {
	s.t.Helper()
	now := time.Now()
	s.exec(fmt.Sprintf(`INSERT INTO sqllock_lock (name, acq, locker, owner, label, version, holds, since, expires_at)
		VALUES ('%s', randomblob(16), randomblob(16), 'o', 'who crashed', 7, 1, %d, %d)`, name, now.UnixMicro(), now.Add(lasts).UnixMicro()))
}

// expire has the lease of a holder that is dead end so long from now.
func (s *site) expire(name string, in time.Duration) {
	s.t.Helper()
	s.exec(fmt.Sprintf(`UPDATE sqllock_lock SET expires_at = %d WHERE name = '%s'`, time.Now().Add(in).UnixMicro(), name))
}

// counted waits until the page has counted so many names that are held, in one reading.
func (s *site) counted(held int) {
	s.t.Helper()
	tile := fmt.Sprintf("<dt>held</dt><dd>%d</dd>", held)
	eventually(s.t, tile, func() bool { return strings.Contains(s.get("/").text, tile) })
}

func TestLossesAreSeenInTheDatabase(t *testing.T) {
	t.Parallel()
	const lost = "Lost lately, as seen in the database"
	s := newSite(t, testdb.SQLite, web.Options{})
	found := ""
	shows := func(parts ...string) func() bool {
		return func() bool {
			_, found, _ = strings.Cut(s.get("/").text, lost)
			found, _, _ = strings.Cut(found, "<h2>Names")
			return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(found, part) }) &&
				strings.Count(found, "&#34;who crashed&#34;") == len(parts) && !strings.Contains(found, "alive")
		}
	}
	defer func() { t.Log(found) }()
	lease := s.lock("alive")
	for _, name := range []string{"expired", "taken over", "cleaned up"} {
		s.crash(name, time.Hour)
	}
	s.counted(4)
	s.get("/").wants(t, 200).lacks(t, lost)
	if err := lease.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.lock("alive")
	s.expire("expired", -time.Second)
	eventually(t, "the first loss is shown", shows(">expired<"))

	// A holder that another caller follows must have been seen silent before.
	s.expire("taken over", 10*time.Second)
	s.expire("cleaned up", 10*time.Second)
	s.lock("seen after that")
	s.counted(4)
	s.waiters("taken over", 1)
	eventually(t, "the lease is over", func() bool {
		info, err := s.locks.Inspect(t.Context(), "cleaned up")
		return err == nil && info.State == sqllock.StateExpired
	})
	if _, err := s.locks.Reaper().Reap(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the losses are shown", shows(">expired<", "taken over", "cleaned up"))
}

// waiting matches who waits, of the page of a name: the place, since when, and who.
var waiting = regexp.MustCompile(`<td class="place">(\d+)</td><td>exclusive</td><td class="n">([^<]*)</td><td><bdi>([^<]*)</bdi></td>`)

func TestTheQueueIsShownInOrderWithAges(t *testing.T) {
	t.Parallel()
	s := newSite(t, testdb.SQLite, web.Options{})
	s.lock("k")
	labels := []string{"web-c", "web-a", "web-b"} // not in the order of the alphabet
	for i, label := range labels {
		s.waiter(label, "k", i)
		s.exec(fmt.Sprintf(`UPDATE sqllock_claim SET since = since - %d WHERE label = '%s'`, (time.Duration(3-i) * time.Hour).Microseconds(), label))
	}
	shown := waiting.FindAllStringSubmatch(s.get("/name?n=k").wants(t, 200, "3 waiting").text, -1)
	if len(shown) != len(labels) {
		t.Fatalf("shown are %q", shown)
	}
	for i, label := range labels {
		at, waited, who := shown[i][1], shown[i][2], shown[i][3]
		if at != fmt.Sprint(i+1) || who != label || !regexp.MustCompile(fmt.Sprintf(`^%dh\d+m$`, 3-i)).MatchString(waited) {
			t.Errorf("%s is shown as %s, at place %s, waiting for %s", label, who, at, waited)
		}
	}
}

func TestANameHasAPageWithItsQueueAndItsHistory(t *testing.T) {
	t.Parallel()
	s := newSite(t, testdb.SQLite, web.Options{})
	lease := s.lock("k", sqllock.Value([]byte("at 127.0.0.1")))
	s.waiters("k", 12)
	a := s.get("/name?n=k").wants(t, 200, "&#34;at 127.0.0.1&#34;", fmt.Sprint(lease.Token()), lease.Owner(), "12 waiting", "and 2 more behind them", ">exclusive<")
	if n := strings.Count(a.text, "<td>exclusive</td>"); n != 10 {
		t.Errorf("%d waiters are shown", n)
	}
	a.lacks(t, "Take the name away")
	other := s.lock("h")
	s.get("/name?n=h").wants(t, 200)
	eventually(t, "the first state is in the history", func() bool { return strings.Contains(s.get("/name?n=h").text, "<td>") })
	if err := other.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the history has the release", func() bool {
		_, history, _ := strings.Cut(s.get("/name?n=h").text, "History")
		return strings.Contains(history, ">released<") && strings.Contains(history, ">held<")
	})
	s.get("/name?n=never").wants(t, 200, "unknown", "Nobody waits")
}

func TestANameIsWatchedNoLongerThanSomebodyLooks(t *testing.T) {
	t.Parallel()
	s := newSite(t, testdb.SQLite, web.Options{})
	s.page.KeepWatching(200 * time.Millisecond)
	for i := range 40 {
		a := s.get(fmt.Sprintf("/name?n=%d", i))
		if i == 39 && !strings.Contains(a.text, "Too many names are being watched") && s.page.Watched() >= 32 {
			t.Error("the page does not say that it has no history")
		}
	}
	if n := s.page.Watched(); n > 32 {
		t.Errorf("%d names are watched", n)
	}
	eventually(t, "no name is watched any more", func() bool { return s.page.Watched() == 0 })
}

func TestRequestsThatMakeNoSenseGetClearAnswers(t *testing.T) {
	t.Parallel()
	s := newSite(t, testdb.SQLite, web.Options{Hosts: []string{"localhost", "127.0.0.1"}})
	for path, status := range map[string]int{
		"/bogus": 404, "/name": 400, "/name?n=": 400, "/name?n=%ff": 400, "/name?n=a%00": 400, "/name?n=" + strings.Repeat("x", 256): 400,
		"/?q=%ff": 400, "/?after=%00": 400, "/templates/list.html": 404, "/static/live.js": 404,
	} {
		s.get(path).wants(t, status)
	}
	s.do(s.request(http.MethodPost, "/", nil)).wants(t, 405)
	s.do(s.request(http.MethodDelete, "/name?n=a", nil)).wants(t, 405)
	for host, status := range map[string]int{"evil.example": 421, "evil.example:80": 421, "LOCALHOST": 200, "localhost:99": 200, "127.0.0.1": 200} {
		r := s.request(http.MethodGet, "/", nil)
		r.Host = host
		s.do(r).wants(t, status)
	}
}

// tag matches a tag, with attributes whose values are in double quotes.
var (
	tag       = regexp.MustCompile(`<[!/a-zA-Z][^<>]*>`)
	quoted    = regexp.MustCompile(`"[^"]*"`)
	address   = regexp.MustCompile(`(?:href|src|action|data-events)="([^"]*)"`)
	inline    = regexp.MustCompile(`(?i)<style|\sstyle=|\son[a-z]+=|<script(?: defer)?>|javascript:`)
	nameLinks = regexp.MustCompile(`<td><a href="name\?n=([^"]*)"><bdi>([^<]*)</bdi>`)
)

// structure is a page without its texts and the values of its attributes.
func structure(text string) string {
	text, _, _ = strings.Cut(text, "<h2>History") // which depends on when it is read
	return strings.Join(tag.FindAllString(quoted.ReplaceAllString(text, `""`), -1), "\n")
}

func TestEveryAnswerForbidsWhatThePageDoesNotNeed(t *testing.T) {
	t.Parallel()
	s := newSite(t, testdb.SQLite, web.Options{AllowUnlock: func(*http.Request, string) error { return nil }})
	s.lock("k")
	for _, path := range []string{"/", "/name?n=k", "/unlock?n=k", "/style.css", "/live.js", "/bogus", "/name?n="} {
		a := s.get(path)
		for key, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
			"X-Content-Type-Options":  "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "same-origin",
		} {
			if got := a.Header.Get(key); got != want {
				t.Errorf("%s: %s is %q", path, key, got)
			}
		}
		if strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") {
			if found := inline.FindString(a.text); found != "" {
				t.Errorf("%s has %q, which the policy forbids", path, found)
			}
			if a.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s can be kept", path)
			}
		}
		for _, m := range address.FindAllStringSubmatch(a.text, -1) {
			if strings.HasPrefix(m[1], "/") || strings.Contains(m[1], "://") {
				t.Errorf("%s: %s works at one path only", path, m[0])
			}
		}
	}
}

func TestTextsOfStrangersDoNothingOnThePage(t *testing.T) {
	t.Parallel()
	for _, engine := range engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			hostile := slices.Concat(outputtest.Markup, outputtest.Hostile)
			hostile = slices.DeleteFunc(hostile, func(s string) bool { return strings.ToValidUTF8(s, "") != s })
			s, plain := hostileSite(t, engine, hostile), hostileSite(t, engine, []string{"plain"})

			list := s.get("/").wants(t, 200)
			outputtest.CheckHarmless(t, "the list", list.text)
			var linked []string
			for _, m := range nameLinks.FindAllStringSubmatch(list.text, -1) {
				name, err := url.QueryUnescape(html.UnescapeString(m[1]))
				if err != nil {
					t.Error(err)
				}
				linked = append(linked, name)
			}
			slices.Sort(hostile)
			if !slices.Equal(linked, hostile) {
				t.Errorf("there are links to\n%q, want\n%q", linked, hostile)
			}
			for _, path := range []string{"/?q=", "/name?n=", "/unlock?n="} {
				want := structure(plain.get(path+"plain").wants(t, 200).text)
				for _, name := range hostile {
					page := s.get(path+url.QueryEscape(name)).wants(t, 200)
					outputtest.CheckHarmless(t, path, quoted.ReplaceAllString(page.text, ""))
					if structure(page.text) != want && path != "/?q=" {
						t.Errorf("%s%q has another structure:\n%s", path, name, page.text)
					}
					page.wants(t, 200, "<bdi>"+escaped(output.Word(name))+"</bdi>").lacks(t, "<script>", "<img", "<svg", "<iframe")
				}
			}
		})
	}
}

// hostileSite has names, each of which is also the label, the owner and the value of its
// holder.
func hostileSite(t *testing.T, engine string, names []string) *site {
	s := newSite(t, engine, web.Options{AllowUnlock: allowAll})
	s.fillWithNames(engine, names)
	return s
}

// allowAll lets every visitor take names away.
func allowAll(*http.Request, string) error { return nil }

// fillWithNames makes names, each of which is also the label, the owner and the value of its holder.
func (s *site) fillWithNames(engine string, names []string) {
	s.t.Helper()
	for i, name := range names {
		query := `INSERT INTO sqllock_lock (name, acq, locker, owner, label, version, holds, value, since, expires_at) VALUES (?, ?, ?, ?, ?, 7, 1, ?, 1700000000000000, 9000000000000000)`
		acq := any([]byte(fmt.Sprintf("%16d", i+1)))
		if engine == testdb.Postgres {
			acq = fmt.Sprintf("%032d", i+1)
			for p := 1; strings.Contains(query, "?"); p++ {
				query = strings.Replace(query, "?", fmt.Sprintf("$%d", p), 1)
			}
		}
		if _, err := s.db.ExecContext(s.t.Context(), query, name, acq, acq, name, name, []byte(name)); err != nil {
			s.t.Fatalf("%q: %v", name, err)
		}
	}
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;", "+", "&#43;")

func escaped(s string) string { return escaper.Replace(s) }

func TestErrorsOfTheDatabaseAreLoggedAndNotShown(t *testing.T) {
	t.Parallel()
	s := newSite(t, testdb.SQLite, web.Options{})
	s.exec(`ALTER TABLE sqllock_lock RENAME TO elsewhere`)
	for _, path := range []string{"/", "/name?n=k"} {
		s.get(path).wants(t, 503, "does not answer").lacks(t, "sqllock_lock", "no such table")
	}
	if log := s.log.String(); !strings.Contains(log, "no such table") {
		t.Errorf("the log has only %q", log)
	}
	s.exec(`ALTER TABLE elsewhere RENAME TO sqllock_lock`)
}

func TestAClosedLockerIsSaid(t *testing.T) {
	t.Parallel()
	s := newSite(t, testdb.SQLite, web.Options{})
	if err := s.locks.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.get("/").wants(t, 503, "closed")
}

func TestWhatThisProcessDoesIsShown(t *testing.T) {
	t.Parallel()
	activity := web.NewActivity()
	passed := make(chan string, 10)
	hooks := activity.Hooks(sqllock.Hooks{
		Acquired: func(ev sqllock.AcquiredEvent) { passed <- ev.Name },
		Lost:     func(ev sqllock.LostEvent) { passed <- "lost " + ev.Name },
	})
	s := newSite(t, testdb.SQLite, web.Options{Activity: activity}, hooks)
	s.lock("k")
	if got := <-passed; got != "k" {
		t.Errorf("the hook of the application got %q", got)
	}
	if _, err := s.locks.ForceUnlock(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if got := <-passed; got != "lost k" {
		t.Errorf("the hook of the application got %q", got)
	}
	s.get("/").wants(t, 200, "This process", "<dt>lost</dt><dd>1</dd>", "as this process reports it", "revoked")
}
