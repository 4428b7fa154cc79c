package web_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/web"
)

const heldNames = 10_000

// fill makes rows that are held.
func (s *site) fill(engine string) {
	s.t.Helper()
	const columns = `INSERT INTO sqllock_lock (name, acq, locker, owner, label, version, holds, since, expires_at) `
	if engine == testdb.Postgres {
		s.exec(columns + fmt.Sprintf(`SELECT 'invoice/' || to_char(i, 'FM000000'), md5(i::text)::uuid, md5(i::text)::uuid, md5(i::text), 'host/program/123', i, 1, 1700000000000000, 9000000000000000 FROM generate_series(1, %d) i`, heldNames))
		return
	}
	s.exec(fmt.Sprintf(`WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < %d) `, heldNames) + columns +
		`SELECT printf('invoice/%06d', i), randomblob(16), randomblob(16), lower(hex(randomblob(16))), 'host/program/123', i, 1, 1700000000000000, 9000000000000000 FROM n`)
}

const queues, each = 4, 250 // of waiters

// fillWithWaiters is fill, and makes queues for other names.
func (s *site) fillWithWaiters(engine string) {
	s.fill(engine)
	for i := range queues {
		name := fmt.Sprintf("busy/%d", i)
		s.lock(name)
		s.waiters(name, each)
	}
}

// The promise is a second on a machine that does nothing else. What is asked here holds on a
// loaded machine too.
func TestTenThousandNamesAndAThousandWaitersAreListedInPages(t *testing.T) {
	t.Parallel()
	for _, engine := range engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, engine, web.Options{Interval: 2 * time.Second})
			s.fillWithWaiters(engine)
			began := time.Now()
			first := s.get("/").wants(t, 200, "<dt>held</dt><dd>10004</dd>", "<dt>waiting</dt><dd>1000</dd>", "Next page")
			t.Logf("%d bytes after %v", len(first.text), time.Since(began))
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("the first page took %v", took)
			}
			if rows := strings.Count(first.text, "<td><a href=\"name?n="); rows != 100 || len(first.text) > 100_000 {
				t.Errorf("the first page has %d rows and %d bytes", rows, len(first.text))
			}
			if name := s.get("/name?n=busy%2F0").wants(t, 200, "250 waiting", "and 240 more"); len(name.text) > 20_000 {
				t.Errorf("the page of a name has %d bytes", len(name.text))
			}
			s.followPages()
		})
	}
}

// followPages follows the links from page to page.
func (s *site) followPages() {
	s.t.Helper()
	large, err := web.New(s.locks, &web.Options{PageSize: 1000})
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = large.Close(s.t.Context()) }()
	s.server.Config.Handler = http.StripPrefix(prefix, large)
	seen := make(map[string]bool)
	for path := "/"; path != ""; {
		a := s.get(path).wants(s.t, 200)
		for _, m := range nameLinks.FindAllStringSubmatch(a.text, -1) {
			if seen[m[1]] {
				s.t.Errorf("%s is listed twice", m[1])
			}
			seen[m[1]] = true
		}
		path = ""
		if _, next, ok := strings.Cut(a.text, `rel="next"`); ok && next != "" {
			before := a.text[:strings.Index(a.text, `rel="next"`)]
			at := strings.LastIndex(before, `href="./`) + len(`href="./`)
			path = "/" + strings.ReplaceAll(before[at:strings.LastIndex(before, `"`)], "&amp;", "&")
		}
	}
	if len(seen) != heldNames+4 {
		s.t.Errorf("%d names are on all pages", len(seen))
	}
}
