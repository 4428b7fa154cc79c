package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sqllock/sqllock/driver"
)

// tables are the names of the tables.
type tables struct {
	prefix             string
	lock, meta         string     // quoted, as SQL has them
	lockName, metaName string     // as the catalog has them
	others             []relation // which not everybody uses
}

// relation is a table, the sequence, or a function, that only some uses of locks take.
type relation struct {
	name  string // as the catalog has it
	sql   string // quoted, as SQL has it
	kind  string // TABLE, SEQUENCE or FUNCTION
	vital string // privileges on it without which the mode unique does not work
	modes []mode // others that take it; none is the mode unique alone
}

// purpose tells what takes privileges on the relation.
func (r *relation) purpose(names string) string {
	switch {
	case len(r.modes) == 0:
		return "locks that are shared, unlocking by force and reaping take"
	case names == "DELETE":
		return "reaping takes"
	case len(r.modes) == 1:
		return "the mode " + string(r.modes[0]) + " takes"
	}
	return "the modes " + join(r.modes) + " take"
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
	t := tables{prefix: m.Prefix, lockName: m.Prefix + "lock", metaName: m.Prefix + "meta"}
	t.lock, t.meta = quote(t.lockName), quote(t.metaName)
	add := func(name, kind, vital string, modes ...mode) {
		name = m.Prefix + name
		t.others = append(t.others, relation{name, quote(name), kind, vital, modes})
	}
	add("holder", "TABLE", "SELECT") // each asks it whether it is empty
	add("ticket", "TABLE", "SELECT, INSERT, UPDATE, DELETE")
	if m.Dialect != "sqlite" {
		add("term", "TABLE", "", forUpdate, advisory)
		add("pin", "TABLE", "", forUpdate)
	}
	if m.Dialect == "postgres" {
		add("token", "SEQUENCE", "", advisory)
		for _, name := range []string{"grant", "release", "line", "leave", "advance", "tell"} {
			add(name, "FUNCTION", "EXECUTE")
		}
		add("try", "FUNCTION", "", advisory)
	}
	return t
}

// list names all of them but the functions.
func (t *tables) list() string {
	names := []string{t.lock, t.meta}
	for _, r := range t.others {
		if r.kind != "FUNCTION" {
			names = append(names, r.sql)
		}
	}
	return strings.Join(names, ", ")
}

// privilege is one that an account lacks.
type privilege struct{ table, name string }

// lacks judges what an account lacks. What only the reaper needs, or a mode that is
// not used, it can do without.
func (e *exam) lacks(missing []privilege) {
	const account, grantee = "this account", "<this account>" // what a DSN says of its user is not shown
	if len(missing) == 0 {
		e.ok("privileges", account+" has all that it needs")
	}
	for _, table := range []string{e.lock, e.meta} {
		names, grave := lacking(table, missing), false
		for _, p := range missing {
			grave = grave || p.table == table && p.name != "DELETE" && p != privilege{e.meta, "UPDATE"}
		}
		finding, advice := fmt.Sprintf("%s lacks %s on %s", account, names, table), fmt.Sprintf("GRANT %s ON %s TO %s", names, table, grantee)
		switch {
		case grave:
			e.bad("privileges", finding, advice)
		case names != "":
			e.warn("privileges", finding+", which only reaping takes", advice+", or let another account reap")
		}
	}
	for _, r := range e.others {
		names := lacking(r.sql, missing)
		finding := fmt.Sprintf("%s lacks %s on %s", account, names, r.sql)
		advice := fmt.Sprintf("GRANT %s ON %s TO %s", names, strings.TrimPrefix(r.kind+" ", "TABLE ")+r.sql, grantee)
		if names != "DELETE" && names != "" {
			e.without = append(e.without, r.modes...)
		}
		vital := func(p privilege) bool { return p.table == r.sql && strings.Contains(r.vital, p.name) }
		switch {
		case slices.ContainsFunc(missing, vital):
			e.bad("privileges", finding, advice)
		case names != "":
			e.warn("privileges", finding+", which only "+r.purpose(names), advice+", if that is wanted")
		}
	}
}

// lacking lists what is missing on a table.
func lacking(table string, missing []privilege) string {
	var names []string
	for _, p := range missing {
		if p.table == table {
			names = append(names, p.name)
		}
	}
	return strings.Join(names, ", ")
}
