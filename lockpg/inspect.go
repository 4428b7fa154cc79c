package lockpg

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/sqllock/sqllock/driver"
)

// oldest is the oldest server that is tested, as server_version_num has it.
const oldest = 120000

// server is what a server says of itself.
type server struct {
	version        string
	number         int
	recovery       bool
	readOnly       bool
	fsync          bool
	fullPageWrites bool
	readCommitted  bool   // by default
	arrayNulls     bool   // the word NULL in an array is no text
	encoding       string // in which it speaks with this client
	stored         string // the encoding of the database
	home           string // the schema of the tables, "" that there are none
	missing        string // tables that there are not
	unlogged       string // tables that a crash would empty
}

// inspect refuses a server that cannot keep the promises, or whose tables or functions,
// of which a list with commas is given, are not those of one schema. It notes that schema:
// from then on no search_path matters. It also reports whether statements must choose
// their isolation level themselves.
func (d *Database) inspect(ctx context.Context, conn *sql.Conn, t *tables, functions string) (info driver.Info, isolate bool, err error) {
	var s server
	if err := conn.QueryRowContext(ctx, openTexts["version"]).Scan(&s.version); err != nil {
		if strings.Contains(err.Error(), "no such function") { // so says SQLite
			err = fmt.Errorf("%w: the handle is not of Postgres: %w", driver.ErrInvalidOption, err)
		}
		return info, false, err
	}
	if !strings.HasPrefix(s.version, "PostgreSQL ") {
		return info, false, fmt.Errorf("%w: the handle is not of Postgres but of %q", driver.ErrInvalidOption, s.version)
	}
	names := []string{t.prefix + "lock", t.prefix + "claim", t.prefix + "waiter", t.prefix + "done"}
	err = conn.QueryRowContext(ctx, openTexts["tables"], t.name("meta"), textOf(names)).Scan(&s.number, &s.recovery, &s.readOnly,
		&s.fsync, &s.fullPageWrites, &s.readCommitted, &s.arrayNulls, &s.encoding, &s.stored, &s.home, &s.missing, &s.unlogged)
	if err != nil {
		return info, false, err
	}
	info.Server, _, _ = strings.Cut(s.version, " on ")
	if err := d.refuse(&s, &info); err != nil {
		return info, false, err
	}
	if s.home == "" {
		return info, false, missing(t.name("meta"))
	}
	t.schema = s.home
	if t.id, err = checkMeta(ctx, conn, t); err != nil {
		return info, false, err
	}
	info.Database = t.id
	if s.missing != "" {
		return info, false, missing(s.missing)
	}
	return info, !s.readCommitted, checkFunctions(ctx, conn, t, functions)
}

func missing(table string) error {
	return fmt.Errorf("%w: table %s does not exist; create it with migrations.Up or \"sqllock migrate up\"", driver.ErrSchema, table)
}

// converts reports that the server converts the bytes of a name to others than it would those of a
// client with UTF8, in which all names are sent. It converts nothing from or to SQL_ASCII.
func (s *server) converts() bool {
	return s.encoding != utf8 && s.stored != noEncoding && (s.encoding != noEncoding || s.stored != utf8)
}

const utf8, noEncoding = "UTF8", "SQL_ASCII"

func (d *Database) refuse(s *server, info *driver.Info) error {
	switch {
	case s.number < oldest:
		return fmt.Errorf("%w: %s is older than PostgreSQL 12", driver.ErrUnsupported, info.Server)
	case s.recovery:
		return fmt.Errorf("%w: the server is a hot standby (in recovery); locks need the primary", driver.ErrUnsupported)
	case s.readOnly:
		return fmt.Errorf("%w: transactions are read-only here (default_transaction_read_only)", driver.ErrUnsupported)
	case s.converts():
		return fmt.Errorf("%w: the client_encoding is %s: one name would be another one for clients with UTF8; set client_encoding=UTF8 in the DSN, or for the role",
			driver.ErrUnsupported, s.encoding)
	case !s.arrayNulls:
		return fmt.Errorf("%w: array_nulls is off: the word NULL in an array would be a text; set array_nulls=on in the DSN, or for the role", driver.ErrUnsupported)
	case s.unlogged != "":
		return fmt.Errorf("%w: table %s is unlogged or temporary, a crash would empty it; ALTER TABLE … SET LOGGED", driver.ErrUnsupported, s.unlogged)
	case s.fsync && s.fullPageWrites:
		return nil
	}
	const what = "fsync or full_page_writes is off: after a crash the server may have forgotten who holds what"
	if d.unsafe {
		info.Warnings = append(info.Warnings, what)
		return nil
	}
	return fmt.Errorf("%w: %s; lockpg.AllowUnsafeDurability accepts that in tests", driver.ErrUnsupported, what)
}

// checkMeta returns the id of the database.
func checkMeta(ctx context.Context, conn *sql.Conn, t *tables) (id string, err error) {
	var version, compatible int64
	if err := conn.QueryRowContext(ctx, t.fill(openTexts["meta"])).Scan(&version, &compatible, &id); err != nil {
		return "", fmt.Errorf("%w: table %s cannot be read: %w", driver.ErrSchema, t.name("meta"), err)
	}
	return id, driver.CheckSchema(version, compatible, SchemaVersion)
}

// checkFunctions refuses functions that are not there, or that mean tables of another
// schema: those were made before their schema was renamed, or by hand.
func checkFunctions(ctx context.Context, conn *sql.Conn, t *tables, functions string) error {
	var unfit string
	mark := `"` + t.prefix
	there := strings.TrimSuffix(quote(t.schema, t.prefix), `"`)
	if err := conn.QueryRowContext(ctx, openTexts["functions"], t.schema, t.prefix, functions, there, mark).Scan(&unfit); err != nil {
		return err
	}
	if unfit == "" {
		return nil
	}
	return fmt.Errorf("%w: the functions %s do not exist or name tables of another schema; call SELECT %s(%s, %s) as their owner, once, after ALTER SCHEMA … RENAME",
		driver.ErrSchema, unfit, t.name("bind_1"), literal(t.schema), literal(t.prefix))
}

// literal makes a string of SQL, for people.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
