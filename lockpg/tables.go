package lockpg

import (
	_ "embed"
	"strings"

	"github.com/sqllock/sqllock/internal/sqltext"
)

//go:embed sql/unique.sql
var uniqueFile string

// uniqueTexts are the statements of the unique mode by their names. The names of the tables
// are not filled in.
var uniqueTexts = sqltext.Parse(uniqueFile, strings.NewReplacer())

// tables are the tables of one schema and prefix.
type tables struct {
	schema, prefix string // schema is "" where search_path is to find it
	id             string // of the database, once it was opened
}

// name is the quoted name of a table.
func (t *tables) name(table string) string { return quote(t.schema, t.prefix+table) }

// fill fills the names of the tables in a text.
func (t *tables) fill(text string) string {
	return strings.NewReplacer("{lock}", t.name("lock"), "{claim}", t.name("claim"), "{waiter}", t.name("waiter"),
		"{meta}", t.name("meta"), "{fence}", t.name("fence")).Replace(text)
}

// unique are the statements of the unique mode by their names.
func (t *tables) unique() map[string]string {
	texts := make(map[string]string, len(uniqueTexts))
	for name, text := range uniqueTexts {
		texts[name] = t.fill(text)
	}
	return texts
}

// quote makes a quoted name. The table is checked; the schema may be any that the server
// has.
func quote(schema, table string) string {
	if schema == "" {
		return `"` + table + `"`
	}
	return `"` + strings.ReplaceAll(schema, `"`, `""`) + `"."` + table + `"`
}
