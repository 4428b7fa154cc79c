// Command sqllock runs commands under a lock of the SQL database that is there
// anyway: Postgres, MySQL or MariaDB, or an SQLite file that it makes itself.
//
//	sqllock run nightly -- ./backup.sh
//
// "sqllock help" and "sqllock help run" tell the rest.
package main

import (
	"os"

	"github.com/sqllock/sqllock/internal/supervise"
)

func main() {
	if supervise.IsWatchdog() {
		os.Exit(supervise.WatchdogMain())
	}
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ()}
	os.Exit(a.main(os.Args))
}
