package sqllock_test

import (
	"database/sql"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/testdb"
)

// victim is a name whose rows somebody has written by hand.
const victim = "victim"

// hostile are statements that spoil the rows of the victim, which somebody holds for
// an hour. {end} is the largest number that there is, {y9999} a time in the year 9999,
// {soon} one in an hour, {id} an id and {zero} one that names nothing; {bytes:…} and
// {text:…} are those bytes.
var hostile = map[string]string{
	"all times are negative":                  `UPDATE sqllock_lock SET acquired_at = -1, expires_at = -{end}, not_before = -{end}, others_until = -5, wait_until = -7`,
	"held until the end of time":              `UPDATE sqllock_lock SET expires_at = {end}`,
	"held since the end of time":              `UPDATE sqllock_lock SET acquired_at = {end}, expires_at = 1`,
	"held until the year 9999":                `UPDATE sqllock_lock SET expires_at = {y9999}`,
	"kept until the year 9999":                free + `, not_before = {y9999}`,
	"kept until the end of time":              free + `, not_before = {end}`,
	"a line until the end of time":            free + `, wait_until = {end}`,
	"a holder and a line until the end":       `UPDATE sqllock_lock SET expires_at = {end}, wait_until = {end}, not_before = {end}`,
	"a holder without owner":                  `UPDATE sqllock_lock SET owner = NULL, label = NULL, instance = NULL`,
	"an expired holder without owner":         `UPDATE sqllock_lock SET owner = NULL, label = NULL, instance = NULL, expires_at = 1`,
	"an owner without holder":                 `UPDATE sqllock_lock SET acq = NULL`,
	"held absurdly often":                     `UPDATE sqllock_lock SET holds = 2147483647`,
	"held less than never":                    `UPDATE sqllock_lock SET holds = -2147483648, expires_at = 1`,
	"a negative version":                      `UPDATE sqllock_lock SET version = -{end}`,
	"a negative version, free":                free + `, version = -{end}`,
	"a version of 2^53 - 1, free":             free + `, version = 9007199254740991`,
	"a version of 2^53 - 1, expired":          `UPDATE sqllock_lock SET version = 9007199254740991, expires_at = 1`,
	"the last version, held":                  `UPDATE sqllock_lock SET version = {end}`,
	"the last version, free":                  free + `, version = {end}`,
	"the last version, expired":               `UPDATE sqllock_lock SET version = {end}, expires_at = 1`,
	"the last version but one, expired":       `UPDATE sqllock_lock SET version = {end} - 1, expires_at = 1`,
	"a number of readers below zero":          free + `, others = -1, others_until = {soon}`,
	"readers that there are not":              free + `, others = 1000000, others_until = {soon}`,
	"readers until the end of time":           free + `, others = 5, others_until = {end}`,
	"readers beside a holder":                 `UPDATE sqllock_lock SET others = 3, others_until = {soon}`,
	"an id that names nothing":                `UPDATE sqllock_lock SET acq = {zero}`,
	"an id that names nothing, expired":       `UPDATE sqllock_lock SET acq = {zero}, expires_at = 1`,
	"more served than came":                   `UPDATE sqllock_lock SET qhead = {end}, qseq = -5`,
	"more served than came, expired":          `UPDATE sqllock_lock SET qhead = 1000000, qseq = 0, expires_at = 1`,
	"the last ticket":                         `UPDATE sqllock_lock SET qseq = {end}, qhead = {end}`,
	"the last ticket, free":                   free + `, qseq = {end}`,
	"an unknown end":                          free + `, ended = 77, revoked = {end}`,
	"a ticket from before the first":          ticket(`-{end}`, `{id}`, `{soon}`, `1`),
	"a ticket after the last":                 ticket(`{end}`, `{id}`, `{soon}`, `1`),
	"a ticket that lives for ever":            ticket(`1`, `{id}`, `{end}`, `{end}`) + `; ` + free + `, wait_until = {end}, qseq = 1`,
	"a ticket for a negative time":            ticket(`1`, `{id}`, `{soon}`, `-{end}`) + `; ` + free + `, wait_until = {soon}, qseq = 1`,
	"a ticket of nobody":                      ticket(`1`, `{zero}`, `{soon}`, `1000`) + `; ` + free + `, wait_until = {soon}, qseq = 1`,
	"a ticket of the holder":                  ticket(`1`, `(SELECT acq FROM sqllock_lock WHERE name = 'victim')`, `{soon}`, `1000`),
	"a ticket that carries half an id":        ticket(`1`, `{id}`, `{soon}`, `1000`) + `; UPDATE sqllock_ticket SET carries = {bytes:01}`,
	"a reader of the last version":            member(`{end}`, `{soon}`),
	"a reader until the end of time":          free + `, version = 5, others = 1, others_until = {end}; ` + member(`5`, `{end}`),
	"a reader since before time":              free + `, version = 5, others = 1, others_until = {soon}; ` + member(`5`, `-{end}`),
	"a name that ends in blanks":              named(`'victim  '`),
	"a name without bytes":                    named(`''`),
	"a name of control characters":            named(`{text:1b5b33316d}`),
	"rows of others that are the victim's":    `DELETE FROM sqllock_lock; ` + ticket(`7`, `{id}`, `{soon}`, `1`) + `; ` + member(`1`, `{soon}`),
	"an id that is too short, SQLite":         `UPDATE sqllock_lock SET acq = {bytes:0102}`,
	"an id without bytes, SQLite":             `UPDATE sqllock_lock SET acq = {bytes:}`,
	"an id without bytes, expired, SQLite":    `UPDATE sqllock_lock SET acq = {bytes:}, expires_at = 1`,
	"a name of too many bytes, SQLite":        named(`'` + strings.Repeat("x", 70_000) + `'`),
	"a name that is no UTF-8, SQLite":         named(`{text:ff}`),
	"a name with NUL in it, SQLite":           named(`{text:6100}`),
	"a name of 300 bytes, Postgres":           named(`'` + strings.Repeat("x", 300) + `'`),
	"a name that is no UTF-8, MariaDB, MySQL": named(`{bytes:ff00}`),
}

var (
	bytesIn = regexp.MustCompile(`\{bytes:([0-9a-f]*)\}`)
	textIn  = regexp.MustCompile(`\{text:([0-9a-f]*)\}`)
)

const free = `UPDATE sqllock_lock SET acq = NULL, owner = NULL, instance = NULL, label = NULL, holds = 0, expires_at = 1`

func ticket(seq, acq, until, ttl string) string {
	return fmt.Sprintf(`INSERT INTO sqllock_ticket (name, seq, acq, owner, instance, label, shared, ttl, handed, entered_at, expires_at)
		VALUES ('victim', %s, %s, '', {zero}, '', {false}, %s, %s, -1, %s)`, seq, acq, ttl, ttl, until)
}

func member(version, until string) string {
	return fmt.Sprintf(`INSERT INTO sqllock_holder (name, acq, owner, instance, label, version, holds, acquired_at, expires_at)
		VALUES ('victim', {id}, '', {zero}, '', %s, -1, -1, %s)`, version, until)
}

func named(name string) string {
	return fmt.Sprintf(`INSERT INTO sqllock_lock (name, acq, owner, version, holds, expires_at) VALUES (%s, {id}, 'x', 1, 1, 1)`, name)
}

// isFor reports whether a case is one for the database. Some are for those that they
// name.
func isFor(e *engine, what string) bool {
	products := strings.ToLower(what)
	for _, product := range []string{testdb.SQLite, testdb.Postgres, testdb.MariaDB} {
		if strings.Contains(products, product) && !strings.Contains(products, e.name) {
			return false
		}
	}
	return true
}

// spoil runs the statements of a case.
func spoil(t *testing.T, e *engine, db *sql.DB, statements string) {
	t.Helper()
	id, boolean, start, end := "X'", "0", "X'", "'"
	text := "CAST(X'${1}' AS CHAR)"
	switch e.name {
	case testdb.SQLite:
		text = "CAST(X'${1}' AS TEXT)"
	case testdb.Postgres:
		id, boolean, start, end = "'", "false", `'\x`, "'::bytea"
		text = `convert_from('\x${1}', 'UTF8')`
	}
	statements = strings.NewReplacer("{end}", "9223372036854775807", "{y9999}", "253402300799000000",
		"{soon}", fmt.Sprint(time.Now().Add(time.Hour).UnixMicro()), "{id}", id+strings.Repeat("ab", 16)+"'",
		"{zero}", id+strings.Repeat("00", 16)+"'", "{false}", boolean).Replace(statements)
	statements = bytesIn.ReplaceAllString(statements, start+"${1}"+end)
	statements = textIn.ReplaceAllString(statements, text)
	for s := range strings.SplitSeq(statements, "; ") {
		if !strings.HasPrefix(s, "INSERT") {
			s += ` WHERE name = 'victim'`
		}
		mustExec(t, db, s)
	}
}
