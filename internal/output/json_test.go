package output_test

import (
	"encoding/json"
	"testing"

	"github.com/sqllock/sqllock/internal/output"
	"github.com/sqllock/sqllock/internal/output/outputtest"
)

func TestJSONHasTheExactTextInVisibleCharacters(t *testing.T) {
	t.Parallel()
	for _, s := range append(append([]string{"\"\u0301"}, outputtest.Hostile...), outputtest.Harmless...) {
		text := string(output.JSON(s))
		outputtest.CheckHarmless(t, "JSON", text)
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
	for _, c := range []struct {
		v    any
		want string
	}{
		{map[string]any{"name": "\u202e\U000e0001\"", "n": -1}, `{"n":-1,"name":"\u202e\udb40\udc01\""}`},
		{output.NewValue([]byte("<v>")), `{"value":"<v>"}`},
		{output.NewValue([]byte("\xff")), `{"value_hex":"ff"}`},
		{output.NewValue(nil), `{}`},
		{"\u0301", `"\u0301"`},
	} {
		if got := string(output.JSON(c.v)); got != c.want+"\n" {
			t.Errorf("got  %swant %s", got, c.want)
		}
	}
}
