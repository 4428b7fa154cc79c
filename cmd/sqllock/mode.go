package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/locksqlite"
)

// mode is a kind of lock. The same name in two modes is two locks.
type mode string

const (
	unique    mode = "unique"
	forUpdate mode = "forupdate"
	advisory  mode = "advisory"
)

// modes are all modes, in the order in which ls lists the locks of one name.
var modes = []mode{unique, forUpdate, advisory}

// kinds are the database types of the products. Their methods tell which modes a product offers.
var kinds = map[string]any{
	"postgres": (*lockpg.Database)(nil),
	"mysql":    (*lockmysql.Database)(nil),
	"sqlite":   (*locksqlite.Database)(nil),
}

func parseMode(word string) (mode, error) {
	if word == "for-update" {
		return forUpdate, nil
	}
	if m := mode(word); slices.Contains(modes, m) {
		return m, nil
	}
	return "", errors.New("there is no such mode, but unique, forupdate and advisory")
}

// modeFlag is the flag --mode. Without a default, it means all modes.
func modeFlag(usage string, byDefault mode) cli.Flag {
	return &cli.StringFlag{Name: "mode", Usage: usage, Value: string(byDefault), Validator: func(word string) error {
		_, err := parseMode(word)
		return err
	}}
}

// sessions reports that a session of the database keeps the locks of the mode.
func (m mode) sessions() bool { return m == forUpdate || m == advisory }

// offeredBy reports whether a kind of database has the mode. A server can still refuse it.
func (m mode) offeredBy(kind any) (ok bool) {
	switch m {
	case unique:
		_, ok = kind.(driver.UniqueDatabase)
	case forUpdate:
		_, ok = kind.(driver.ForUpdateDatabase)
	case advisory:
		_, ok = kind.(driver.AdvisoryDatabase)
	}
	return ok
}

// modesFor returns the modes that a command applies to: the mode of its flag, or all modes
// that the product offers.
func modesFor(cmd *cli.Command, product string) (offered []mode, err error) {
	kind := kinds[product]
	for _, m := range modes {
		if m.offeredBy(kind) {
			offered = append(offered, m)
		}
	}
	word := cmd.String("mode")
	if word == "" {
		return offered, nil
	}
	m, err := parseMode(word)
	if err != nil {
		return nil, fail(exitUsage, "%w", err)
	}
	if !m.offeredBy(kind) {
		return nil, fail(exitUsage, "a database of %s does not offer the mode %s, but %s", products[product], m, join(offered))
	}
	return []mode{m}, nil
}

// products are the names of databases as people write them.
var products = map[string]string{"postgres": "Postgres", "mysql": "MySQL", "sqlite": "SQLite"}

func join(list []mode) string {
	words := make([]string, len(list))
	for i, m := range list {
		words[i] = string(m)
	}
	return strings.Join(words, ", ")
}

// open makes a Locker of the mode, which the database offers.
func (m mode) open(ctx context.Context, db locks, o *sqllock.UniqueOptions, silentHolders bool) (*sqllock.Locker, error) {
	switch m {
	case forUpdate:
		return sqllock.NewForUpdate(ctx, db.(driver.ForUpdateDatabase),
			&sqllock.ForUpdateOptions{TTL: o.TTL, Label: o.Label, Logger: o.Logger, Reaper: o.Reaper})
	case advisory:
		return sqllock.NewAdvisory(ctx, db.(driver.AdvisoryDatabase),
			&sqllock.AdvisoryOptions{TTL: o.TTL, Label: o.Label, Logger: o.Logger, Reaper: o.Reaper, AllowSilentHolders: silentHolders})
	}
	return sqllock.NewUnique(ctx, db, o)
}

// modeLocker is the Locker of one mode.
type modeLocker struct {
	mode mode
	*sqllock.Locker
}

// completeMode returns what a shell may complete the value of --mode to, if that is
// what it asks for.
func completeMode(args []string) string {
	n := len(args)
	if n < 2 || args[n-1] != completionRequest || args[n-2] != "--mode" {
		return ""
	}
	return strings.ReplaceAll(join(modes), ", ", "\n") + "\n"
}
