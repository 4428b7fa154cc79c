package web_test

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/sqllock/sqllock/internal/output"
	"github.com/sqllock/sqllock/internal/output/outputtest"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/web"
)

// Statements that make a name ?1 of the number ?2, in which a text ?3 stands.
var hostileStates = map[string][]string{
	"waits": {
		`INSERT INTO sqllock_lock (name, acq, locker, owner, label, version, holds, since, expires_at, waiting, seq)
			VALUES (?1, randomblob(16), randomblob(16), 'o', 'l', 7, 1, 1700000000000000, 9000000000000000, 1, 1)`,
		insertClaim + `?1, 0, 1, 0, 0, 0`, insertWaiter,
	},
	"reads": {
		`INSERT INTO sqllock_lock (name, version, holding, seq) VALUES (?1, 7, 1, 1)`,
		insertClaim + `?1, 1, 1, 1, 0, 7`,
	},
	"has a permit": {
		`INSERT INTO sqllock_lock (name, version, permits, holding, waiting, seq) VALUES (?1, 7, 1, 1, 1, 2)`,
		insertClaim + `?1, 1, 1, 2, 0, 7`, insertClaim + `?1, 0, 2, 2, 0, 0`, insertWaiter,
	},
	"has expired": {
		`INSERT INTO sqllock_lock (name, acq, locker, owner, label, version, holds, since, expires_at)
			VALUES (?1, randomblob(16), randomblob(16), 'o', ?3, 7, 1, 1700000000000000, 1700000001000000)`,
	},
	"is complete": {
		`INSERT INTO sqllock_lock (name, version) VALUES (?1, 7)`,
		`INSERT INTO sqllock_done (name, key, attempt, since, at) VALUES (?1, ?3, 1, 1700000000000000, 1700000001000000)`,
	},
}

const (
	// insertClaim goes on with name, state, seq, kind, slot and token.
	insertClaim = `INSERT INTO sqllock_claim (acq, locker, label, holds, ttl, handed, max_hold, since, expires_at, limit_at, delay, owner, name, state, seq, kind, slot, token)
		SELECT randomblob(16), CAST(printf('%016d', ?2) AS BLOB), ?3, 1, 1000000, 1000000, 0, 1700000000000000, 9000000000000000, 0, 0, 'o', `
	insertWaiter = `INSERT INTO sqllock_waiter (locker, expires_at) VALUES (CAST(printf('%016d', ?2) AS BLOB), 9000000000000000)`
)

// hostileTexts are a plain one, and some of those that would do something.
var hostileTexts = append([]string{"plain", "\x1b[2J\x1b[H", "\u202egnp.exe", "a\nb  held  1"}, outputtest.Markup...)

// hostileName is the name in the state, in which the text with that index stands.
func hostileName(state string, i int) string { return fmt.Sprintf("%s %d", state, i) }

// fillWithHostile makes the names of all hostileStates and hostileTexts.
func (s *site) fillWithHostile() {
	s.t.Helper()
	number := 0
	for state, statements := range hostileStates {
		for i, text := range hostileTexts {
			number++
			for _, statement := range statements {
				if _, err := s.db.ExecContext(s.t.Context(), statement, hostileName(state, i), number, text); err != nil {
					s.t.Fatalf("%s: %v", state, err)
				}
			}
		}
	}
}

func TestTextsOfAllWhoHaveSomethingToDoWithANameDoNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, testdb.SQLite, web.Options{PageSize: 200})
	s.fillWithHostile()
	outputtest.CheckHarmless(t, "the list", s.get("/?free=1").wants(t, 200).text)
	_, data := s.open("").next()
	outputtest.CheckHarmless(t, "the events of the list", data)
	for what := range hostileStates {
		plain := structure(s.get("/name?n="+url.QueryEscape(hostileName(what, 0))).wants(t, 200).text)
		for i, text := range hostileTexts {
			name := url.QueryEscape(hostileName(what, i))
			page := s.get("/name?n="+name).wants(t, 200, "<bdi>"+escaped(output.Word(text))+"</bdi>")
			page.lacks(t, "<script>", "<img", "<svg", "<iframe")
			outputtest.CheckHarmless(t, what, page.text)
			if got := structure(page.text); got != plain {
				t.Errorf("who %s as %q: another structure:\n%s", what, text, page.text)
			}
		}
		_, data := s.open("?page=name&n=" + url.QueryEscape(hostileName(what, 1))).next()
		outputtest.CheckHarmless(t, what, data)
	}
}
