package migrations

import (
	"context"
	"strings"

	"github.com/sqllock/sqllock/driver"
)

// unreleased are the kinds and names of what libraries before [driver.FirstSchema] have made,
// in the order in which it goes. The table of metadata goes last: until then the tables
// tell that they are old.
var unreleased = map[string][]string{
	"postgres": {
		"VIEW locks", "TABLE ticket", "TABLE holder", "TABLE term", "TABLE pin", "TABLE fence", "TABLE lock", "SEQUENCE token",
		"FUNCTION advance", "FUNCTION bind", "FUNCTION gate", "FUNCTION grant", "FUNCTION leave", "FUNCTION line",
		"FUNCTION release", "FUNCTION tell", "FUNCTION try", "TABLE meta",
	},
	"mysql":  {"VIEW locks", "TABLE ticket", "TABLE holder", "TABLE term", "TABLE pin", "TABLE fence", "TABLE lock", "TABLE meta"},
	"sqlite": {"VIEW locks", "TABLE ticket", "TABLE holder", "TABLE fence", "TABLE lock", "TABLE meta"},
}

// unreleasedVersion returns the version of tables that are older than any that was
// released, or 0.
func (m *migrator) unreleasedVersion(ctx context.Context, db querier) (int64, error) {
	meta, err := m.readMeta(ctx, db)
	if err != nil {
		return 0, err
	}
	list := []applied{{version: meta.version}}
	found, err := m.exists(ctx, db, m.existsVersions)
	if err != nil {
		return 0, err
	}
	if found {
		rows, err := m.readVersions(ctx, db)
		if err != nil {
			return 0, err
		}
		list = append(list, rows...)
	}
	for _, row := range list {
		if row.version > 0 && row.version < driver.FirstSchema {
			return row.version, nil
		}
	}
	return 0, nil
}

// dropUnreleased returns what drops them, and the version table.
func (m *migrator) dropUnreleased() (statements []string) {
	for _, what := range unreleased[m.Dialect] {
		kind, name, _ := strings.Cut(what, " ")
		statements = append(statements, "DROP "+kind+" IF EXISTS "+m.quote(name))
	}
	return append(statements, m.drop)
}
