// Package drivers has tests only: the conformance suite through drivers and poolers that the root
// module does not depend on. Without a build tag there is nothing to run. With the tags matrix and
// one of mattn, ncruces, libpq, pgxpool and pgbouncer it runs the suite through that.
package drivers
