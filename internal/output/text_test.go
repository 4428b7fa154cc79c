package output_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/internal/output"
	"github.com/sqllock/sqllock/internal/output/outputtest"
)

func TestInvisibleRunesAreNotShown(t *testing.T) {
	t.Parallel()
	for _, block := range [][2]rune{
		{0, 0x1f}, {0x7f, 0xa0}, {0xad, 0xad}, {0x61c, 0x61c}, {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfe00, 0xfe0f},
		{0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xd800, 0xdfff}, {0xe000, 0xf8ff}, {0xe0000, 0xe0fff},
	} {
		for r := block[0]; r <= block[1]; r++ {
			if output.IsVisible(r) {
				t.Errorf("%U is shown as it is", r)
			}
		}
	}
}

func TestWordIsHarmlessAndUnmistakable(t *testing.T) {
	t.Parallel()
	parts := append(append([]string{"", "\xff", "a\xc3", "\xed\xa0\x80"}, outputtest.Hostile...), outputtest.Harmless...)
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
		w := output.Word(s)
		outputtest.CheckHarmless(t, "word", w)
		if got := outputtest.Unquote(t, w); got != s {
			t.Errorf("%q is shown as %s, which is %q", s, w, got)
		}
		if other, ok := words[w]; ok && other != s {
			t.Errorf("%q and %q are both shown as %s", s, other, w)
		}
		if words[w] = s; !strings.HasPrefix(w, `"`) && (w == "-" || strings.ContainsAny(w, " \"\n")) {
			t.Errorf("%q is shown as %s, which is no word", s, w)
		}
	}
	for _, s := range outputtest.Harmless {
		if w := output.Word(s); w != s {
			t.Errorf("%q is shown as %s", s, w)
		}
	}
}

func TestTheEndOfACutTextIsHarmless(t *testing.T) {
	t.Parallel()
	for _, s := range outputtest.Hostile {
		for width := range 40 {
			text := output.Cut(output.Word(s)+"  held", width)
			outputtest.CheckHarmless(t, "cut", text)
			if output.Columns(text) > width {
				t.Errorf("%q takes more than %d columns", text, width)
			}
		}
	}
}

func TestAMessageIsOneHarmlessLine(t *testing.T) {
	t.Parallel()
	for _, s := range append([]string{"\xff"}, outputtest.Hostile...) {
		text := output.Line("the server said: " + s + "\nand more")
		outputtest.CheckHarmless(t, "message", text)
		if strings.Contains(text, "\n") {
			t.Errorf("%q has more than one line", text)
		}
	}
}
