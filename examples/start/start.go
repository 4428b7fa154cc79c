// Package start has the programs of its directories as texts. "sqllock init" prints the one for
// a database.
package start

import "embed"

// Programs are the programs: postgres/main.go, mysql/main.go and sqlite/main.go.
//
//go:embed mysql/main.go postgres/main.go sqlite/main.go
var Programs embed.FS
