package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sqllock/sqllock/driver"
)

// tables are the names of the tables.
type tables struct {
	prefix             string
	needed             int64  // version of the tables
	lock, meta         string // quoted, as in SQL
	lockName, metaName string // as in the catalog
	optional           []relation
}

// relation is a table, a sequence or a function that only some uses of locks need.
type relation struct {
	name     string   // as in the catalog
	sql      string   // quoted, as in SQL
	kind     string   // TABLE, SEQUENCE or FUNCTION
	required string   // privileges on it that unique mode needs
	modes    []string // other modes that need it
}

// purpose tells what needs privileges on the relation.
func (r *relation) purpose(names string) string {
	switch {
	case names == "DELETE":
		return "reaping takes"
	case len(r.modes) == 0:
		return "Once takes"
	case len(r.modes) == 1:
		return "the mode " + r.modes[0] + " takes"
	}
	return "the modes " + strings.Join(r.modes, ", ") + " take"
}

func tableNames(m driver.Migration) tables {
	quote := func(name string) string {
		switch {
		case m.Dialect == "mysql":
			return "`" + name + "`"
		case m.Schema != "":
			return `"` + strings.ReplaceAll(m.Schema, `"`, `""`) + `"."` + name + `"`
		}
		return `"` + name + `"`
	}
	t := tables{prefix: m.Prefix, needed: m.Version, lockName: m.Prefix + "lock", metaName: m.Prefix + "meta"}
	t.lock, t.meta = quote(t.lockName), quote(t.metaName)
	add := func(name, kind, required string, modes ...string) {
		name = m.Prefix + name
		t.optional = append(t.optional, relation{name, quote(name), kind, required, modes})
	}
	add("claim", "TABLE", "SELECT, INSERT, UPDATE, DELETE")
	add("waiter", "TABLE", "SELECT, INSERT, UPDATE")
	add("done", "TABLE", "SELECT")
	if m.Dialect != "sqlite" {
		add("term", "TABLE", "", forUpdate, advisory)
		add("pin", "TABLE", "", forUpdate)
	}
	if m.Dialect == "postgres" {
		add("token", "SEQUENCE", "", advisory)
		add("try_1", "FUNCTION", "", advisory)
	}
	return t
}

// list names all of them except the functions.
func (t *tables) list() string {
	names := []string{t.lock, t.meta}
	for _, r := range t.optional {
		if r.kind != "FUNCTION" {
			names = append(names, r.sql)
		}
	}
	return strings.Join(names, ", ")
}

// privilege is a privilege that an account lacks.
type privilege struct{ table, name string }

// They stand for the account in findings, because parts of a DSN are never shown.
const thisAccount, thisGrantee = "this account", "<this account>"

// reportMissing reports the privileges that an account lacks. Those that only the reaper needs,
// or another mode, are a warning.
func (c *checker) reportMissing(missing []privilege) {
	if len(missing) == 0 {
		c.ok("privileges", thisAccount+" has all that it needs")
	}
	for _, table := range []string{c.lock, c.meta} {
		names, isError := missingOn(table, missing), false
		for _, p := range missing {
			isError = isError || p.table == table && p.name != "DELETE" && p != privilege{c.meta, "UPDATE"}
		}
		text, advice := fmt.Sprintf("%s lacks %s on %s", thisAccount, names, table), fmt.Sprintf("GRANT %s ON %s TO %s", names, table, thisGrantee)
		switch {
		case isError:
			c.bad("privileges", text, advice)
		case names != "":
			c.warn("privileges", text+", which only reaping takes", advice+", or let another account reap")
		}
	}
	for _, r := range c.optional {
		c.reportMissingOn(&r, missing)
	}
}

// reportMissingOn reports the privileges that an account lacks on a relation that only some
// uses need.
func (c *checker) reportMissingOn(r *relation, missing []privilege) {
	names := missingOn(r.sql, missing)
	text := fmt.Sprintf("%s lacks %s on %s", thisAccount, names, r.sql)
	advice := fmt.Sprintf("GRANT %s ON %s TO %s", names, strings.TrimPrefix(r.kind+" ", "TABLE ")+r.sql, thisGrantee)
	if names != "DELETE" && names != "" {
		c.lackingModes = append(c.lackingModes, r.modes...)
	}
	required := func(p privilege) bool { return p.table == r.sql && strings.Contains(r.required, p.name) }
	switch {
	case slices.ContainsFunc(missing, required):
		c.bad("privileges", text, advice)
	case names != "":
		c.warn("privileges", text+", which only "+r.purpose(names), advice+", if that is wanted")
	}
}

// missingOn lists the privileges that are missing on a table.
func missingOn(table string, missing []privilege) string {
	var names []string
	for _, p := range missing {
		if p.table == table {
			names = append(names, p.name)
		}
	}
	return strings.Join(names, ", ")
}
