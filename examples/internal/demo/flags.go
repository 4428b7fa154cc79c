package demo

import (
	"flag"
	"fmt"
	"os"
)

// Exit codes.
const (
	exitRight = 0
	exitWrong = 1
	exitError = 2
)

// dsnForms describes the forms of a DSN for the help text.
const dsnForms = "postgres://user@host:port/database or mysql://user@host:port/database"

// Options are the flags of the command line.
type Options struct {
	DSN    string // "" for an SQLite file
	Unsafe bool   // without the lock
}

func (o Options) mode() string {
	if o.Unsafe {
		return "WITHOUT the lock"
	}
	return "with the lock"
}

func parse(about string) Options {
	var o Options
	flag.StringVar(&o.DSN, "dsn", "", "the `address` of a server, "+dsnForms+" (default: an SQLite file)")
	flag.BoolVar(&o.Unsafe, "unsafe", false, "work without the lock, and see what comes of it")
	flag.Usage = func() {
		out := flag.CommandLine.Output()
		fmt.Fprintln(out, about)
		flag.PrintDefaults()
		fmt.Fprintf(out, `
The tables are in a file of their own or, on a server, in a schema (Postgres) or
a database (MySQL, MariaDB) of their own, for which the user needs the right.
It is removed at the end.

Exit code: %d if the result is right, %d if it is wrong, as it must be with
--unsafe, and %d if the example could not be run to its end.
`, exitRight, exitWrong, exitError)
	}
	flag.Parse() // exits with 2 if it is not understood
	if flag.NArg() > 0 {
		fmt.Fprintf(flag.CommandLine.Output(), "what is %q?\n\n", flag.Arg(0))
		flag.Usage()
		os.Exit(exitError)
	}
	return o
}
