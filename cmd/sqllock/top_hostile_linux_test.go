package main

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/output"
	"github.com/sqllock/sqllock/internal/output/outputtest"
	"github.com/sqllock/sqllock/internal/testdb"
)

// hostileToTop are texts that a terminal would obey, or that need another space than their runes.
// They fit on a page of 80 columns and 24 rows, each with a name.
var hostileToTop = []string{
	"\x1b[31;5mred", "\x1b[?1049l\x1b[3;3Hout", "\x1b]0;title\a", "\x1b]52;c;cHduZWQ=\a", "\x1bP+q544e\x1b\\", "\u009b7mcsi", "\u009d0;osc\u009c",
	"two\nlines", "back\b\b\b\rhome", "\u202egnp.exe", "\u2066iso\u2069late", "e" + strings.Repeat("\u0301", 9), "\u0301mark",
	strings.Repeat("日本語", 25), strings.Repeat("wide ", 40), "👩\u200d👩\u200d👧 family",
	strings.Repeat("xe\u0301", 30),
}

// putHostile makes a name of each text, which is also what all say who have to do with it.
func (s *clientDB) putHostile(t *testing.T) {
	t.Helper()
	for i, text := range hostileToTop {
		s.put(t, text, text, time.Now().Add(time.Hour))
		s.exec(t, `UPDATE sqllock_lock SET value = CAST(name AS BLOB), waiting = 1, seq = 1 WHERE name = ?`, text)
		s.exec(t, `INSERT INTO sqllock_claim (acq, locker, label, holds, ttl, handed, max_hold, since, expires_at, limit_at, delay, owner, name, state, seq, kind, slot, token)
			SELECT randomblob(16), ?1, ?2, 1, 1000000, 1000000, 0, 1700000000000000, 9000000000000000, 0, 0, 'o', ?2, 0, 1, 0, 0, 0`, name16(strconv.Itoa(i)), text)
		s.exec(t, `INSERT INTO sqllock_waiter (locker, expires_at) VALUES (?, 9000000000000000)`, name16(strconv.Itoa(i)))
		s.exec(t, `INSERT INTO sqllock_done (name, key, attempt, since, at) VALUES (?1, ?1, 1, 1700000000000000, 1700000001000000)`, text)
	}
	s.exec(t, `INSERT INTO sqllock_lock (name, version, holding, seq) VALUES ('zz-read', 7, 1, 1)`)
	s.exec(t, `INSERT INTO sqllock_claim (acq, locker, label, holds, ttl, handed, max_hold, since, expires_at, limit_at, delay, owner, name, state, seq, kind, slot, token)
		SELECT randomblob(16), randomblob(16), CAST(x'1b5b326aff' AS TEXT), 1, 1000000, 1000000, 0, 1700000000000000, 9000000000000000, 0, 0, 'o', 'zz-read', 1, 1, 1, 0, 7`)
}

// harmless waits until all parts are shown, and checks that nothing else than text is.
func (p *topCall) harmless(what string, parts ...string) string {
	p.t.Helper()
	shown := p.shows(parts...)
	outputtest.CheckHarmless(p.t, what, shown)
	return shown
}

func TestTopShowsHostileTextsOnEachScreenOfEightyColumns(t *testing.T) {
	t.Parallel()
	s := newClientDB(t, testdb.New(t, testdb.SQLite))
	s.putHostile(t)
	p := s.top(t, 24, 80)
	p.shows("zz-read", "waiting 17 for 17 names")
	for _, order := range []string{"name", "waiters", "age", "time left"} {
		shown := p.harmless("sorted by "+order, "\n names, sorted by "+order+"\n")
		for _, text := range hostileToTop {
			if word := output.Cut(output.Word(text), 12); !strings.Contains(shown, "\n "+word) {
				t.Errorf("%s is not in the list\n%s", word, shown)
			}
		}
		p.press("s")
	}
	p.harmless("the list", "\n names, sorted by name\n")
	p.showEachName(s)
	p.showLosses(s)
	p.showErrors(s)
	p.press("q")
	p.left(0)
	p.onlyItsOwn()
	for _, text := range []string{"\u202egnp", "\u0301m", "two\nlin", strings.Repeat("日本語", 24)} {
		p := s.top(t, 24, 80, text)
		p.harmless("a prefix", ", that begin with "+output.Cut(output.Word(text), 40), "q quit")
		p.press("q")
		p.left(0)
		p.onlyItsOwn()
	}
}

// showEachName opens each name of the list, and looks at the ends of its lines.
func (p *topCall) showEachName(s *clientDB) {
	p.t.Helper()
	names, err := s.d.Open(p.t).QueryContext(p.t.Context(), `SELECT name FROM sqllock_lock ORDER BY name`)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = names.Close() }()
	for names.Next() {
		var name string
		if err := names.Scan(&name); err != nil {
			p.t.Fatal(err)
		}
		word := output.Cut(output.Word(name), 60)
		p.press("\r")
		if name == "zz-read" {
			p.harmless(word, `"\x1b[2j\xff"`, "history, while it is shown")
		} else {
			p.showsName(word)
		}
		for _, left := range []string{"\n  shown\n", "", ""} { // of a line, which moves to the left
			p.press("\x1b[C")
			p.harmless(word+", moved", left)
		}
		p.press("\x1b")
		p.harmless("the list", "\n names, sorted by name\n")
		p.press("j")
	}
	if err := names.Err(); err != nil {
		p.t.Error(err)
	}
	p.press("\x1b")
	p.harmless("the list", "\n names, sorted by name\n")
}

// showsName waits until all that is known of a name is shown, which is the same text.
func (p *topCall) showsName(word string) {
	p.t.Helper()
	parts := []string{"history, while it is shown", "ago  " + output.Cut(word, 9)}
	for _, field := range []string{"name    ", "holder  ", "done key", "value   "} {
		parts = append(parts, "\n "+field+"  "+word)
	}
	p.harmless(word, parts...)
}

// showLosses has the leases expire, as many at a time as are listed, and looks at the queues and at
// the losses.
func (p *topCall) showLosses(s *clientDB) {
	p.t.Helper()
	p.press("l")
	p.harmless("the queues", "longest queues", "1  "+output.Word("\u202egnp.exe"), "nothing since this began")
	for lost := range slices.Chunk(hostileToTop, 8) {
		for _, text := range lost {
			s.exec(p.t, `UPDATE sqllock_lock SET expires_at = ? WHERE name = ?`, time.Now().Add(-time.Second).UnixMicro(), text)
		}
		seen, keys := "", []string{"g", "n"}
		eventually(p.t, "each loss is listed", func() bool {
			p.press(keys[0])
			slices.Reverse(keys)
			seen += p.harmless("the losses")
			return !slices.ContainsFunc(lost, func(text string) bool {
				return !strings.Contains(seen, "\n     "+output.Cut(output.Word(text), 30))
			})
		})
	}
	p.press("\x1b[C")
	p.harmless("the losses, moved", "\n  in the database\n")
	p.press("\x1b")
	p.harmless("the list", "\n names, sorted by name\n")
}

// showErrors has the database fail with a text of somebody else.
func (p *topCall) showErrors(s *clientDB) {
	p.t.Helper()
	s.exec(p.t, `ALTER TABLE sqllock_lock RENAME TO elsewhere`)
	s.exec(p.t, "CREATE VIEW sqllock_lock AS SELECT `\x1b]0;title\a\n\u202e` FROM elsewhere")
	p.harmless("an error", `\x1b]0;title\a`, `\u202e`)
	s.exec(p.t, `DROP VIEW sqllock_lock`)
	s.exec(p.t, `ALTER TABLE elsewhere RENAME TO sqllock_lock`)
	p.harmless("the list", "q quit")
}

var position = regexp.MustCompile("\x1b\\[([0-9]+);([0-9]+)H")

// onlyItsOwn checks what top has sent to a terminal of 80 columns and 24 rows.
func (p *topCall) onlyItsOwn() {
	p.t.Helper()
	sent := p.text()
	for _, text := range append([]string{"\x1b[2j", "\xff"}, hostileToTop[:11]...) {
		if strings.Contains(sent, text) {
			p.t.Errorf("the terminal got %q", text)
		}
	}
	for _, m := range position.FindAllStringSubmatch(sent, -1) {
		y, _ := strconv.Atoi(m[1])
		x, _ := strconv.Atoi(m[2])
		if y > 24 || x > 80 {
			p.t.Errorf("the cursor goes to line %d, column %d", y, x)
		}
	}
}
