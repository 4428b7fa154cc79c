package k8slock

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/sqltext"
)

// files are the statements, one file for each dialect.
//
//go:embed sql/*.sql
var files embed.FS

// table is the table of records in a database. Each call is one statement, which commits by
// itself: a client that is paused in the middle of one keeps nothing locked.
type table struct {
	db    Database
	mysql bool
	texts map[string]string // the statements by their names
}

func newTable(db Database) (*table, error) {
	m, err := db.Migration()
	if err != nil {
		return nil, err
	}
	defer func() { _ = m.Close() }()
	file, err := files.ReadFile("sql/" + m.Dialect + ".sql")
	if err != nil {
		return nil, err
	}
	t := &table{db: db, mysql: m.Dialect == "mysql"}
	mark := `"`
	if t.mysql {
		mark = "`"
	}
	name := mark + m.Prefix + "record" + mark
	if m.Schema != "" {
		name = mark + m.Schema + mark + "." + name
	}
	t.texts = sqltext.Parse(string(file), strings.NewReplacer("{record}", name))
	return t, nil
}

// row is a row of the table.
type row struct {
	record         []byte
	version, token int64
}

// get returns the row of a name, or sql.ErrNoRows.
func (t *table) get(ctx context.Context, name string) (r row, err error) {
	err = t.scan(ctx, "get", []any{t.text(name)}, &r.record, &r.version, &r.token)
	return r, err
}

// clock returns the clock of the database, in microseconds.
func (t *table) clock(ctx context.Context) (now int64, err error) {
	if t.texts["clock"] == "" { // the clock of SQLite is that of this machine, in milliseconds
		return time.Now().UnixMicro(), nil
	}
	err = t.scan(ctx, "clock", nil, &now)
	return now, err
}

// scan reads the row that a statement returns.
func (t *table) scan(ctx context.Context, statement string, args []any, targets ...any) error {
	m, err := t.db.Migration()
	if err != nil {
		return err
	}
	defer func() { _ = m.Close() }()
	return m.DB.QueryRowContext(ctx, t.texts[statement], args...).Scan(targets...)
}

// create makes a row, unless there is one.
func (t *table) create(ctx context.Context, name string, r row) (done bool, err error) {
	return t.change(ctx, "create", t.text(name), t.text(string(r.record)), r.version, r.token)
}

// update changes the row that has a version.
func (t *table) update(ctx context.Context, name string, version int64, r row) (done bool, err error) {
	return t.change(ctx, "update", t.text(string(r.record)), r.version, r.token, t.text(name), version)
}

func (t *table) change(ctx context.Context, statement string, args ...any) (done bool, err error) {
	m, err := t.db.Migration()
	if err != nil {
		return false, err
	}
	defer func() { _ = m.Close() }()
	res, err := m.DB.ExecContext(ctx, t.texts[statement], args...)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

// guard returns sql.ErrNoRows if the row has another token. On a node of a Galera cluster it is
// refused: what the statement locks keeps nobody away who is on another node.
func (t *table) guard(ctx context.Context, tx *sql.Tx, name string, token int64) error {
	if t.mysql {
		var variable, value string
		err := tx.QueryRowContext(ctx, t.texts["galera"]).Scan(&variable, &value)
		switch {
		case errors.Is(err, sql.ErrNoRows): // the product is not for clusters
		case err != nil:
			return err
		case isNode(value):
			return fmt.Errorf("%w: the server is a node of a Galera cluster: what a transaction has locked there is not locked on other nodes; "+
				"fence what you write with lockmysql.Fence and the token", driver.ErrUnsupported)
		}
	}
	return tx.QueryRowContext(ctx, t.texts["guard"], t.text(name), token).Scan(&token)
}

// isNode reports that wsrep_on has a value that makes the server a node of a Galera cluster.
func isNode(value string) bool {
	switch strings.ToUpper(value) {
	case "", "OFF", "0":
		return false
	}
	return true
}

// text is a parameter. Where columns are binary it is bytes, which no character set of a
// connection can bend.
func (t *table) text(s string) any {
	if t.mysql {
		return []byte(s)
	}
	return s
}
