// Package sqllocktest is the conformance suite of sqllock. It tests what every mode
// promises on every database. Each promise is a subtest that is named after it.
//
// A [Harness] describes one pair of a mode and a database. [Run] tests every promise
// that applies to the pair. The suite needs further processes, for which it runs the
// test binary again: TestMain must call [Main] first.
//
//	var pairs = []sqllocktest.Harness{…}
//
//	func TestMain(m *testing.M) {
//		sqllocktest.Main(pairs...)
//		os.Exit(m.Run())
//	}
//
//	func TestConformance(t *testing.T) {
//		for _, h := range pairs {
//			t.Run(h.Mode+" on "+h.Database, func(t *testing.T) { sqllocktest.Run(t, h) })
//		}
//	}
//
// The suite skips nothing. It does not run a promise that does not apply to a pair,
// because the Harness lacks a field, and [Harness.Omitted] names that promise.
package sqllocktest

import (
	"testing"

	"github.com/sqllock/sqllock/internal/conformance"
)

type (
	// Harness tells the suite how to reach one pair of a mode and a database.
	Harness = conformance.Harness
	// Options are the options of a Locker that all modes have.
	Options = conformance.Options

	// Table reads and changes the table of locks without the library.
	Table = conformance.Table
	// Schema damages the tables.
	Schema = conformance.Schema
	// Row is the row of a name.
	Row = conformance.Row

	// Sessions tells how to end the sessions that keep locks.
	Sessions = conformance.Sessions
	// Network tells how to put a proxy before a database.
	Network = conformance.Network
	// Server is a database server that the suite may stop.
	Server = conformance.Server
)

// Main must be called first in the TestMain of a package that calls [Run], with the
// pairs that it runs. In the processes that the suite starts Main never returns.
func Main(pairs ...Harness) { conformance.Main(pairs...) }

// Run tests every promise that applies to the pair, each as a subtest of t.
//
// Promises that need quiet run first and one by one. Then Run calls t.Parallel and runs
// the others, several at a time. So the others never run before the quiet promises of
// another pair.
func Run(t *testing.T, h Harness) { conformance.Run(t, h) }

// LeaseTable returns the table of the unique mode as package migrations makes it, with
// the default prefix. The parameter is how the driver writes the first parameter of a
// statement, begin is the statement that begins a transaction, and lockRow is the query
// that locks the row of a name, "" if the database does not lock rows.
func LeaseTable(parameter, begin, lockRow string) *Table {
	return conformance.LeaseTable(parameter, begin, lockRow)
}
