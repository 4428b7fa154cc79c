package driver

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"
)

// ErrInvalidName says that a name is not 1 to 255 bytes of valid UTF-8 without
// NUL.
var ErrInvalidName = errors.New("sqllock: invalid name")

// maxText is how many bytes a name, an owner or a label may have.
const maxText = 255

// CheckName refuses what cannot be the name of a lock or of a resource. The error
// wraps ErrInvalidName.
func CheckName(name string) error {
	if name == "" {
		return fmt.Errorf("%w: it is empty", ErrInvalidName)
	}
	if err := CheckText(name); err != nil {
		return fmt.Errorf("%w: %q: %w", ErrInvalidName, shorten(name), err)
	}
	return nil
}

// CheckText says what is wrong with a name, an owner or a label.
func CheckText(s string) error {
	if len(s) > maxText {
		return fmt.Errorf("%d bytes are too long, %d are allowed", len(s), maxText)
	}
	if !utf8.ValidString(s) {
		return errors.New("not valid UTF-8")
	}
	for i := range len(s) {
		if s[i] == 0 {
			return fmt.Errorf("contains NUL at byte %d", i)
		}
	}
	return nil
}

// shorten keeps an over-long name out of the error that refuses it.
func shorten(s string) string {
	const enough = 64
	if len(s) <= enough {
		return s
	}
	return s[:enough] + "…"
}

// CheckContext refuses a nil context. The error wraps ErrInvalidOption.
func CheckContext(ctx context.Context) error {
	if ctx == nil {
		return NilError("context")
	}
	return nil
}

// NilError is the error of a call to which something was not given that it needs. It
// wraps ErrInvalidOption.
func NilError(what string) error { return fmt.Errorf("%w: the %s is nil", ErrInvalidOption, what) }

// CheckFence refuses what cannot be fenced, before any SQL.
func CheckFence(resource string, token int64) error {
	if token <= 0 {
		return fmt.Errorf("%w: token %d: must be positive", ErrInvalidOption, token)
	}
	return CheckName(resource)
}
