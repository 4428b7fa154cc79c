package driver

import (
	"fmt"
	"regexp"
)

// DefaultPrefix is the table prefix where none is configured.
const DefaultPrefix = "sqllock_"

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,30}$`)

// CheckIdentifier refuses a table prefix or schema name that is not a letter or
// underscore followed by up to 30 letters, digits and underscores. What names
// the identifier in the error, which wraps ErrInvalidOption.
func CheckIdentifier(what, s string) error {
	if identifier.MatchString(s) {
		return nil
	}
	return fmt.Errorf("%w: %s %q does not match %s", ErrInvalidOption, what, s, identifier)
}
