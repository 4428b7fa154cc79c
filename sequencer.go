package sqllock

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sqllock/sqllock/driver"
)

// Sequencer says of which term of which name a request is made, so that who gets the
// request can check it: with [Locker.CheckSequencer], with a [SequencerChecker], or by
// comparing tokens. It is a claim and not a secret: anybody can make one up, and it
// tells nothing of who sends it.
//
// Whoever checks one has to look at Name and Shared too: that a term is current says
// nothing if it is one of another name, or shared where the resource is to be changed.
// It does not say in which mode the name is locked: that, and the database, is what the
// Locker that checks it was made with, and not for the sender to choose.
type Sequencer struct {
	Name   string
	Shared bool
	Token  int64
}

// Sequencer returns the sequencer of the lease's term. It stays the same for as long as
// the lease lives, and is returned even when the lease is over: whether it is current
// is for the receiver to ask.
func (l *Lease) Sequencer() Sequencer {
	return Sequencer{Name: l.Name(), Shared: l.Shared(), Token: l.Token()}
}

// The parts of a sequencer's text.
const (
	sequencerTag       = "sqllock1"
	sequencerShared    = "shared"
	sequencerExclusive = "exclusive"

	// maxToken is the highest token there can be, see [Lease.Token].
	maxToken = 1<<53 - 1
	// maxSequencer is how long a text can be: of a name of 255 bytes, all of them
	// escaped.
	maxSequencer = len(sequencerTag) + 3*255 + len(sequencerExclusive) + len("9007199254740991") + 3
)

// String returns the sequencer as one line of printable ASCII without spaces, of 801
// bytes at most, fit for an HTTP header: four parts with colons between them, which are
// the tag of the format, the name, "exclusive" or "shared", and the token, as in
//
//	sqllock1:invoice/42:exclusive:1763751135004561
//
// Bytes of the name other than letters and digits of ASCII and - . _ ~ / stand as a
// percent sign and two hexadecimal digits in upper case.
func (s Sequencer) String() string {
	var b strings.Builder
	b.WriteString(sequencerTag)
	b.WriteByte(':')
	for i := range len(s.Name) {
		if c := s.Name[i]; isPlain(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	fmt.Fprintf(&b, ":%s:%d", s.access(), s.Token)
	return b.String()
}

func (s Sequencer) access() string {
	if s.Shared {
		return sequencerShared
	}
	return sequencerExclusive
}

// isPlain says which bytes of a name stand for themselves.
func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~/", c) >= 0
}

// ParseSequencer reads what [Sequencer.String] writes, and nothing else: each sequencer
// has one text. The error is an [ErrInvalidSequencer] that quotes the text, and says
// what is wrong with it; and an [ErrInvalidName] if that is the name.
func ParseSequencer(text string) (Sequencer, error) {
	s, err := parseSequencer(text)
	if err != nil {
		return Sequencer{}, fmt.Errorf("%w: %s: %w", ErrInvalidSequencer, quoteShort(text), err)
	}
	return s, nil
}

func parseSequencer(text string) (s Sequencer, err error) {
	if len(text) > maxSequencer {
		return s, fmt.Errorf("%d bytes are too long, %d are allowed", len(text), maxSequencer)
	}
	parts := strings.Split(text, ":")
	if parts[0] != sequencerTag {
		return s, fmt.Errorf("it must begin with %q", sequencerTag+":")
	}
	if len(parts) != 4 {
		return s, fmt.Errorf("it has %d parts with colons between them, and must have 4", len(parts))
	}
	if s.Name, err = unescapeName(parts[1]); err != nil {
		return s, err
	}
	switch parts[2] {
	case sequencerShared:
		s.Shared = true
	case sequencerExclusive:
	default:
		return s, fmt.Errorf("the third part is %q, and must be %q or %q", parts[2], sequencerExclusive, sequencerShared)
	}
	// What is not written so is not a number as String writes it: "+7", "007", "7_0".
	if s.Token, err = strconv.ParseInt(parts[3], 10, 64); err != nil || strconv.FormatInt(s.Token, 10) != parts[3] {
		return s, fmt.Errorf("the token %q must be decimal digits without leading zeros", parts[3])
	}
	return s, s.check()
}

// unescapeName reads a name in which exactly those bytes are escaped that must be.
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

// check says what is wrong with a sequencer, be it one that was made by hand.
func (s Sequencer) check() error {
	if err := driver.CheckName(s.Name); err != nil {
		return err
	}
	if s.Token < 1 || s.Token > maxToken {
		return fmt.Errorf("the token %d must be from 1 to %d", s.Token, int64(maxToken))
	}
	return nil
}

// invalid wraps the error of check.
func (s Sequencer) invalid() error {
	if err := s.check(); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInvalidSequencer, quoteShort(s.String()), err)
	}
	return nil
}

// quoteShort quotes what may come from strangers.
func quoteShort(s string) string {
	const enough = 96
	if len(s) <= enough {
		return strconv.QuoteToASCII(s)
	}
	return strconv.QuoteToASCII(s[:enough]) + "…"
}
