// Package sequencer has the text of sequencers and a memory of those that were checked.
package sequencer

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/sqllock/sqllock/driver"
)

// Term is what a sequencer says: a term of a name.
type Term struct {
	Name   string
	Shared bool
	Permit bool
	Slot   int // of the permit
	Token  int64
}

// The parts of a sequencer's text.
const (
	textTag   = "sqllock1"
	shared    = "shared"
	exclusive = "exclusive"
	permit    = "permit-" // and the slot

	// maxToken is the highest possible token.
	maxToken = 1<<53 - 1
	// maxText is the length of the longest text: all 255 bytes of the name are escaped.
	maxText = len(textTag) + 3*255 + len(permit) + len("9999") + len("9007199254740991") + 3
)

// String returns the text of a term. See the String method of sqllock.Sequencer.
func (t Term) String() string {
	var b strings.Builder
	b.WriteString(textTag)
	b.WriteByte(':')
	for i := range len(t.Name) {
		if c := t.Name[i]; isPlain(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	fmt.Fprintf(&b, ":%s:%d", t.access(), t.Token)
	return b.String()
}

func (t Term) access() string {
	switch {
	case t.Shared:
		return shared
	case t.Permit:
		return permit + strconv.Itoa(t.Slot)
	}
	return exclusive
}

// isPlain reports whether a byte of a name stands for itself.
func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~/", c) >= 0
}

// Parse reads what String writes, and no other text.
func Parse(text string) (t Term, err error) {
	if len(text) > maxText {
		return t, fmt.Errorf("%d bytes are too long, %d are allowed", len(text), maxText)
	}
	parts := strings.Split(text, ":")
	if parts[0] != textTag {
		return t, fmt.Errorf("it must begin with %q", textTag+":")
	}
	if len(parts) != 4 {
		return t, fmt.Errorf("it has %d parts with colons between them, and must have 4", len(parts))
	}
	if t.Name, err = unescapeName(parts[1]); err != nil {
		return t, err
	}
	switch slot, ok := strings.CutPrefix(parts[2], permit); {
	case parts[2] == shared:
		t.Shared = true
	case parts[2] == exclusive:
	case ok:
		t.Permit = true
		if t.Slot, err = strconv.Atoi(slot); err != nil || strconv.Itoa(t.Slot) != slot {
			return t, fmt.Errorf("the slot %q must be decimal digits without leading zeros", slot)
		}
	default:
		return t, fmt.Errorf("the third part is %q, and must be %q, %q or %q with a slot", parts[2], exclusive, shared, permit)
	}
	// String never writes a number like "+7", "007" or "7_0".
	if t.Token, err = strconv.ParseInt(parts[3], 10, 64); err != nil || strconv.FormatInt(t.Token, 10) != parts[3] {
		return t, fmt.Errorf("the token %q must be decimal digits without leading zeros", parts[3])
	}
	return t, t.Check()
}

// unescapeName reads a name in which the bytes that need it, and no others, are escaped.
func unescapeName(text string) (string, error) {
	name := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case isPlain(c):
		case c != '%':
			return "", fmt.Errorf("%q in the name must be escaped as %%%02X", c, c)
		default:
			digits := text[i+1 : min(i+3, len(text))]
			n, err := strconv.ParseUint(digits, 16, 8)
			if err != nil || digits != fmt.Sprintf("%02X", n) {
				return "", fmt.Errorf("%q in the name must be a percent sign and two hexadecimal digits in upper case", "%"+digits)
			}
			if c = byte(n); isPlain(c) {
				return "", fmt.Errorf("%q in the name must not be escaped: it stands for %q", "%"+digits, c)
			}
			i += 2
		}
		name = append(name, c)
	}
	return string(name), nil
}

// Check says what is wrong with a term, which may have been made by hand.
func (t Term) Check() error {
	if err := driver.CheckName(t.Name); err != nil {
		return err
	}
	switch {
	case t.Shared && t.Permit:
		return errors.New("a permit is not shared")
	case !t.Permit && t.Slot != 0:
		return fmt.Errorf("slot %d: only a permit has one", t.Slot)
	case t.Slot < 0 || t.Slot >= driver.MaxPermits:
		return fmt.Errorf("the slot %d must be from 0 to %d", t.Slot, driver.MaxPermits-1)
	}
	if t.Token < 1 || t.Token > maxToken {
		return fmt.Errorf("the token %d must be from 1 to %d", t.Token, int64(maxToken))
	}
	return nil
}
