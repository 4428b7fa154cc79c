package lockpg

import (
	_ "embed"
	"strings"

	"github.com/sqllock/sqllock/internal/sqltext"
)

// The SQL of this package, but for the ends of transactions. Every value is a parameter.
// Requests come as arrays, one per column, so that a statement is the same for any number
// of them.
var (
	//go:embed sql/open.sql
	openFile string
	//go:embed sql/unique.sql
	uniqueFile string
	//go:embed sql/once.sql
	onceFile string
	//go:embed sql/sessions.sql
	sessionsFile string

	openTexts   = sqltext.Parse(openFile, strings.NewReplacer())
	uniqueTexts = sqltext.Parse(uniqueFile+onceFile, strings.NewReplacer())
)

const (
	// queryBegin chooses what the default may not be. Between statements such a
	// transaction holds no snapshot.
	queryBegin    = `BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE`
	queryCommit   = `COMMIT`
	queryRollback = `ROLLBACK`

	// queryRest has the server forget the statement before it, whose snapshot it would
	// keep for as long as the transaction goes on: drivers do not close their portals.
	// It has no snapshot itself, even as a prepared statement.
	queryRest = `SET LOCAL lock_timeout = '1s'`
)

// tables are the tables of one schema and prefix.
type tables struct {
	schema, prefix string // schema is "" where search_path is to find it
	id             string // of the database, once it was opened
}

// name is the quoted name of a table.
func (t *tables) name(table string) string { return quote(t.schema, t.prefix+table) }

// words are what is filled into a statement: the names of the tables, the clock and the number
// of a mode.
func (t *tables) words(mode string) *strings.Replacer {
	words := []string{"{mode}", mode, "{now}", `(date_part('epoch', clock_timestamp()) * 1000000)::bigint`, "{try}", t.name("try_1"),
		"{token}", strings.ReplaceAll(t.name("token"), "'", "''")} // it is within a string
	for _, table := range []string{"lock", "claim", "waiter", "meta", "fence", "done", "term", "pin"} {
		words = append(words, "{"+table+"}", t.name(table))
	}
	return strings.NewReplacer(words...)
}

// fill fills the names of the tables in a text.
func (t *tables) fill(text string) string { return t.words("").Replace(text) }

// unique are the statements of the unique mode by their names.
func (t *tables) unique() map[string]string { return sqltext.Parse(uniqueFile+onceFile, t.words("")) }

// sessions are the statements of a mode that keeps locks in sessions. To read a value costs
// nothing more.
func (t *tables) sessions(mode string) map[string]string {
	texts := sqltext.Parse(sessionsFile, t.words(mode))
	texts["look"] = texts["look_values"]
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
