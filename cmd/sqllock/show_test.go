package main

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sqllock/sqllock"
)

// hostile are names, labels and values that would do something to a terminal, or
// look like something else. What is no UTF-8 can be in a table, but is no name.
var hostile = []string{
	"\x1b[2J\x1b[H", "\x1b]0;title\a", "\x9b2J", "\u009b2J", "\u0085", "a\nb  held  1", "a\r\nb", "tab\there", "\x7f", "bell\a", "back\b\b\b",
	"\u202egnp.exe", "\u202a", "\u202b", "\u202c", "\u202d", "\u2066a\u2069", "\u2067", "\u2068", "\u200e", "\u200f", "\u061c",
	"zero\u200bwidth", "zero\u200cwidth", "zero\u200dwidth", "\u2060", "\ufeff", "\u00ad", "\u034f", "\u115f", "\u3164", "\uffa0", "\u180e", "\u2800",
	"\u2028", "\u2029", "\u00a0", "\u2003", "\u3000", "\U000e0001", "\U000e0041", "\ufe0f", "\U000e0100", "\ue000", "\U0010ffff", "\ufffe",
	"\u0301leading mark", "a" + strings.Repeat("\u0335", 60), " ", "a ", " a", "a b", "a  b", "-", "--", `"`, `\`, `"a"`, `"\u202e"`, `\u202e`, `'`, "`", "$(id)",
	`{"name":"x"}`, "NAME", "prod  held  1  1s ago  in 5s  root",
}

// harmless are texts that everybody can read as they are.
var harmless = []string{"a", "invoice/42", "k", "K", "é", "e\u0301", "日本語", "שלום", "नमस्ते", "🔒", "--force", "'x'", "a,b;c|d&e<f>", "\ufffd"}

// isHarmless makes sure that a text does nothing on a terminal.
func isHarmless(t *testing.T, what, text string) {
	t.Helper()
	marks := 0
	for i, r := range text {
		if marks++; !unicode.Is(unicode.M, r) {
			marks = 0
		}
		switch {
		case marks > 4 || marks > 0 && (i == 0 || text[i-1] == '\n'):
			t.Errorf("%s has a heap of marks, or begins with one: %.99q", what, text[max(0, i-30):])
			return
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], "\ufffd"):
			t.Errorf("%s is no UTF-8: %.99q", what, text[max(0, i-30):])
		case r == '\n' || r >= ' ' && r <= '~':
		case r < 0xa0 || !seen(r):
			t.Errorf("%s has %U: %.99q", what, r, text[max(0, i-30):])
		}
	}
}

func TestHarmfulRunesAreNotSeen(t *testing.T) {
	t.Parallel()
	for _, block := range [][2]rune{
		{0, 0x1f}, {0x7f, 0xa0}, {0xad, 0xad}, {0x61c, 0x61c}, {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfe00, 0xfe0f},
		{0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xd800, 0xdfff}, {0xe000, 0xf8ff}, {0xe0000, 0xe0fff},
	} {
		for r := block[0]; r <= block[1]; r++ {
			if seen(r) {
				t.Errorf("%U is shown as it is", r)
			}
		}
	}
}

// unquote is what a reader makes of a word.
func unquote(t *testing.T, shown string) string {
	t.Helper()
	if !strings.HasPrefix(shown, `"`) {
		return shown
	}
	s, err := strconv.Unquote(shown)
	if err != nil {
		t.Errorf("%s: %v", shown, err)
	}
	return s
}

func TestAWordIsHarmlessAndUnmistakable(t *testing.T) {
	t.Parallel()
	parts := append(append([]string{"", "\xff", "a\xc3", "\xed\xa0\x80"}, hostile...), harmless...)
	all := slices.Clone(parts)
	for range 20_000 {
		var s strings.Builder
		for range rand.IntN(6) {
			s.WriteString(parts[rand.IntN(len(parts))])
		}
		all = append(all, s.String())
	}
	words := make(map[string]string)
	for _, s := range all {
		w := word(s)
		isHarmless(t, "word", w)
		if got := unquote(t, w); got != s {
			t.Errorf("%q is shown as %s, which is %q", s, w, got)
		}
		if other, ok := words[w]; ok && other != s {
			t.Errorf("%q and %q are both shown as %s", s, other, w)
		}
		if words[w] = s; !strings.HasPrefix(w, `"`) && (w == "-" || strings.ContainsAny(w, " \"\n")) {
			t.Errorf("%q is shown as %s, which is no word", s, w)
		}
	}
	for _, s := range harmless {
		if w := word(s); w != s {
			t.Errorf("%q is shown as %s", s, w)
		}
	}
}

func TestTheEndOfACutTextIsHarmlessToo(t *testing.T) {
	t.Parallel()
	for _, s := range hostile {
		for width := range 40 {
			text := cut(word(s)+"  held", width)
			isHarmless(t, "cut", text)
			if columns(text) > width {
				t.Errorf("%q takes more than %d columns", text, width)
			}
		}
	}
}

func TestAMessageIsOneHarmlessLine(t *testing.T) {
	t.Parallel()
	for _, s := range append([]string{"\xff"}, hostile...) {
		text := line("the server said: " + s + "\nand more")
		isHarmless(t, "message", text)
		if strings.Contains(text, "\n") {
			t.Errorf("%q has more than one line", text)
		}
	}
}

func TestJSONHasTheExactTextInVisibleCharacters(t *testing.T) {
	t.Parallel()
	for _, s := range append(append([]string{}, hostile...), harmless...) {
		text := string(appendJSON(nil, s))
		isHarmless(t, "JSON", text)
		var got, want string
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		for _, r := range s { // JSON has no way to write what is no UTF-8
			want += string(r)
		}
		if got != want {
			t.Errorf("%q became %q by way of %s", s, got, text)
		}
	}
	var o object
	o.text("none", "")
	o.text("name", "\u202e\U000e0001\"")
	o.number("n", -1)
	o.time("never", time.Time{})
	o.time("t", time.Date(2026, 5, 4, 3, 2, 1, 5000, time.FixedZone("", 3600)))
	o.list("l", []object{{b: []byte(`{"a":1`)}, {b: []byte(`{"a":2`)}})
	if got, want := string(o.line()), `{"name":"\u202e\udb40\udc01\"","n":-1,"t":"2026-05-04T02:02:01.000005Z","l":[{"a":1},{"a":2}]}`+"\n"; got != want {
		t.Errorf("got  %swant %s", got, want)
	}
}

func TestDurationsAreShort(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0.0s", 0: "0.0s", 1234 * time.Millisecond: "1.2s", 9999 * time.Millisecond: "9.9s", 10 * time.Second: "10s",
		192*time.Second + 700*time.Millisecond: "3m12s", 59*time.Minute + 59*time.Second: "59m59s", time.Hour: "1h0m", 47 * time.Hour: "47h0m",
		51*time.Hour + 10*time.Minute: "2d3h", 1000 * 24 * time.Hour: "1000d0h",
	} {
		if got := span(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
	now := time.Now()
	for want, at := range map[string]time.Time{"in 20s": now.Add(20 * time.Second), "20s ago": now.Add(-20 * time.Second), "0.0s ago": now, "-": {}} {
		if got := relative(at, now); got != want {
			t.Errorf("%v is %s, want %s", at, got, want)
		}
	}
}

func TestATableIsAlignedAThousandRowsAtATime(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	table := newTable(&text)
	for i := range 3000 {
		name := "n" + strconv.Itoa(i)
		switch {
		case i == 1:
			name = "日本語"
		case i == 2:
			name = strings.Repeat("x", 255)
		case i > 2500:
			name += strings.Repeat("y", 20)
		}
		table.add(newRow(&item{unique, sqllock.Info{Name: name, State: sqllock.StateHeld, Token: int64(i), Label: "l"}}))
	}
	if err := table.flush(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	if len(lines) != 3001 || !strings.HasPrefix(lines[0], "NAME ") {
		t.Fatalf("%d lines, the first is %q", len(lines), lines[0])
	}
	places := make(map[int]int) // the column where the second column begins
	for i, l := range lines[1:] {
		if i != 2 {
			before, _, _ := strings.Cut(l, "unique")
			places[columns(before)]++
		}
	}
	if len(places) != 1 { // the long name has widened the first thousand to the bound; later ones are not narrower
		t.Errorf("the second column begins at %v", places)
	}
	if at := columns(strings.SplitN(lines[1], "unique", 2)[0]); at != widestColumn+2 {
		t.Errorf("one long name has moved the others to column %d", at)
	}
}
