package lockpg

import "github.com/sqllock/sqllock/driver"

// Keys replaces the hash of the mode advisory.
func Keys(hash func(name string) int64) Option { return func(d *Database) { d.hash = hash } }

// Version replaces what the server says of itself.
func Version(version string) Option {
	return func(d *Database) { d.version = func(string) string { return version } }
}

// GuardKey is what a transaction locks that guards a lease in the mode advisory.
func GuardKey(database driver.ID, name string) int64 { return guardKey(database, name) }
