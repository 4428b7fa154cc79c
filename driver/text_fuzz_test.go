package driver_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sqllock/sqllock/driver"
)

// names are what is tried first, valid and not.
var names = []string{
	"", "k", "K", "k ", "invoice/42", "'; DROP TABLE sqllock_lock; --", `\`, `"`, "%_", "{lock}", "$1", "?",
	"\x00", "a\x00", "\xff", "a\xe2\x82", "\xed\xa0\x80", "\xc0\x80", "\xf4\x90\x80\x80", "é", "e\u0301", "\u202ek", "\ufffd", "🔒",
	strings.Repeat("x", 255), strings.Repeat("x", 256), strings.Repeat("é", 127) + "x", strings.Repeat("é", 128),
	strings.Repeat("x", 254) + "\x00", strings.Repeat("x", 62) + "日本", strings.Repeat("\xff", 300),
}

func FuzzANameIsTakenOrRefusedWithAShortReason(f *testing.F) {
	for _, name := range names {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		valid := 1 <= len(name) && len(name) <= 255 && strings.ToValidUTF8(name, "") == name && !strings.ContainsRune(name, 0)
		err := driver.CheckName(name)
		if (err == nil) != valid || err != nil && !errors.Is(err, driver.ErrInvalidName) {
			t.Fatalf("CheckName(%q) = %v", name, err)
		}
		if err != nil && (len(err.Error()) > 500 || !utf8.ValidString(err.Error()) || strings.ContainsRune(err.Error(), 0)) {
			t.Errorf("this is said of a name: %q", err.Error())
		}
		if text := driver.CheckText(name); (text == nil) != (valid || name == "") {
			t.Errorf("CheckText(%q) = %v", name, text)
		}
		if fence := driver.CheckFence(name, 1); (fence == nil) != valid {
			t.Errorf("CheckFence(%q, 1) = %v", name, fence)
		}
	})
}

func FuzzAnIDIsReadAsItWasWritten(f *testing.F) {
	for _, text := range append(names, strings.Repeat("0", 32), strings.Repeat("f", 32), strings.Repeat("g", 32), strings.Repeat("F", 32)) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var id driver.ID
		if err := id.UnmarshalText([]byte(text)); err == nil && id.String() != strings.ToLower(text) {
			t.Errorf("%q is read as %s", text, id)
		}
	})
}
