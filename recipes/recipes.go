// Package recipes has examples of leases beside frameworks for SQL: how to guard a lease in a
// transaction of the framework, and how to use the framework in a transaction of the lease. The
// document docs/recipes.md shows them. It is not for import.
//
// The code in ent and sqlc is that of their generators. To make it anew, run in this directory
//
//	go run -mod=mod entgo.io/ent/cmd/ent@v0.14.5 generate ./ent/schema
//	go run github.com/sqlc-dev/sqlc/cmd/sqlc@latest generate -f sqlc/sqlc.yaml
package recipes
