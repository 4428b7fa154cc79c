// Package outputtest has texts that do harm on a terminal, and checks output for harm.
package outputtest

import (
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/sqllock/sqllock/internal/output"
)

// Hostile are names, labels and values that would do something to a terminal, or look like
// something else.
var Hostile = []string{
	"\x1b[2J\x1b[H", "\x1b]0;title\a", "\x9b2J", "\u009b2J", "\u0085", "a\nb  held  1", "a\r\nb", "tab\there", "\x7f", "bell\a", "back\b\b\b",
	"\u202egnp.exe", "\u202a", "\u202b", "\u202c", "\u202d", "\u2066a\u2069", "\u2067", "\u2068", "\u200e", "\u200f", "\u061c",
	"zero\u200bwidth", "zero\u200cwidth", "zero\u200dwidth", "\u2060", "\ufeff", "\u00ad", "\u034f", "\u115f", "\u3164", "\uffa0", "\u180e", "\u2800",
	"\u2028", "\u2029", "\u00a0", "\u2003", "\u3000", "\U000e0001", "\U000e0041", "\ufe0f", "\U000e0100", "\ue000", "\U0010ffff", "\ufffe",
	"\u0301leading mark", "a" + strings.Repeat("\u0335", 60), " ", "a ", " a", "a b", "a  b", "-", "--", `"`, `\`, `"a"`, `"\u202e"`, `\u202e`, `'`, "`", "$(id)",
	`{"name":"x"}`, "NAME", "prod  held  1  1s ago  in 5s  root",
}

// Markup are names, labels and values that would do something on a page in a browser.
var Markup = []string{
	"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, `'><svg/onload=alert(1)>`, "javascript:alert(1)",
	"</td></table></div><iframe src=//evil.example>", "&lt;script&gt;", "{{.}}", "<!--", "]]>", "</title><base href=//evil.example>", "?a=1&b=2#c",
	"data: x\n\nevent: update\ndata: <script>alert(1)</script>",
}

// Harmless are texts that everybody can read as they are.
var Harmless = []string{"a", "invoice/42", "k", "K", "é", "e\u0301", "日本語", "שלום", "नमस्ते", "🔒", "--force", "'x'", "a,b;c|d&e<f>", "\ufffd"}

// CheckHarmless fails the test if a text would do something on a terminal.
func CheckHarmless(t *testing.T, what, text string) {
	t.Helper()
	marks := 0
	for i, r := range text {
		if marks++; !unicode.Is(unicode.M, r) {
			marks = 0
		}
		switch {
		case marks > 4 || marks > 0 && (i == 0 || text[i-1] == '\n'):
			t.Errorf("%s has a pile of marks, or begins with one: %.99q", what, text[max(0, i-30):])
			return
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], "\ufffd"):
			t.Errorf("%s is no UTF-8: %.99q", what, text[max(0, i-30):])
		case r == '\n' || r >= ' ' && r <= '~':
		case r < 0xa0 || !output.IsVisible(r):
			t.Errorf("%s has %U: %.99q", what, r, text[max(0, i-30):])
		}
	}
}

// Unquote returns the text of an [output.Word].
func Unquote(t *testing.T, word string) string {
	t.Helper()
	if !strings.HasPrefix(word, `"`) {
		return word
	}
	s, err := strconv.Unquote(word)
	if err != nil {
		t.Errorf("%s: %v", word, err)
	}
	return s
}
