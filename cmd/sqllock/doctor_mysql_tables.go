package main

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/go-sql-driver/mysql"
)

func (m *mysqlExam) tablesThere(ctx context.Context) error {
	names := []any{m.lockName, m.metaName}
	for _, r := range m.others {
		names = append(names, r.name)
	}
	engines := make(map[string]string)
	err := m.each(ctx, myTables, names, func(rows *sql.Rows) error {
		var name, engine string
		err := rows.Scan(&name, &engine)
		engines[strings.ToLower(name)] = engine
		return err
	})
	if err != nil {
		return err
	}
	_, hasLock := engines[strings.ToLower(m.lockName)]
	_, hasMeta := engines[strings.ToLower(m.metaName)]
	if m.there = hasLock && hasMeta; !m.there {
		return m.unseen(ctx)
	}
	m.judgeEngines(engines)
	return nil
}

// unseen tells of the lock table and the table of metadata, of which one is not to be seen:
// it does not exist, or the account has no privilege on it.
func (m *mysqlExam) unseen(ctx context.Context) error {
	hidden := false
	for _, table := range []string{m.lock, m.meta} {
		err := m.each(ctx, "SELECT 1 FROM "+table+" WHERE 1 = 0", nil, func(*sql.Rows) error { return nil })
		switch {
		case isDenied(err):
			hidden = true
		case isNoTable(err):
			m.bad("tables", "table "+table+" does not exist", "run \"sqllock migrate up\"")
		case err != nil:
			return err
		}
	}
	if !hidden {
		return nil
	}
	m.warn("tables", "the server tells this account nothing of them", "if a GRANT fails as there is no such table, make the tables first")
	return m.privileges(ctx)
}

func isNoTable(err error) bool {
	e := (*mysql.MySQLError)(nil)
	return errors.As(err, &e) && e.Number == 1146 // ER_NO_SUCH_TABLE, which is not told to everybody
}

// judgeEngines judges the engines of the tables that this account may see.
func (m *mysqlExam) judgeEngines(engines map[string]string) {
	sound, seen := true, []string{m.lock, m.meta}
	judge := func(name, sql string) {
		if engine := engines[strings.ToLower(name)]; !strings.EqualFold(engine, "InnoDB") {
			sound = false
			m.bad("tables", "the engine of "+sql+" is "+engine+", which keeps no lock through a crash", "ALTER TABLE "+sql+" ENGINE = InnoDB")
		}
	}
	judge(m.lockName, m.lock)
	for _, r := range m.others {
		if _, visible := engines[strings.ToLower(r.name)]; visible {
			seen = append(seen, r.sql)
			judge(r.name, r.sql)
		}
	}
	if sound {
		m.ok("tables", strings.Join(seen, ", "))
	}
}

// need is a privilege, and a statement that takes it.
type need struct{ table, privilege, statement string }

// needs are the privileges of an account that does everything.
func (m *mysqlExam) needs() []need {
	list := []need{
		{m.lock, "SELECT", "SELECT name FROM " + m.lock + " WHERE 1 = 0"},
		{m.lock, "INSERT", "INSERT INTO " + m.lock + " (name, version) VALUES ('', 0)"},
		{m.lock, "UPDATE", "UPDATE " + m.lock + " SET holds = 0 WHERE 1 = 0"},
		{m.lock, "DELETE", "DELETE FROM " + m.lock + " WHERE 1 = 0"},
		{m.meta, "SELECT", "SELECT one FROM " + m.meta + " WHERE 1 = 0"},
		{m.meta, "UPDATE", "UPDATE " + m.meta + " SET one = 1 WHERE 1 = 0"},
	}
	rows := map[string]string{
		m.prefix + "holder": " (name, acq, owner, instance, label, version, holds, acquired_at, expires_at) VALUES ('', '', '', '', '', 0, 0, 0, 0)",
		m.prefix + "ticket": " (name, seq, acq, owner, instance, label, shared, ttl, handed, entered_at, expires_at) VALUES ('', 0, '', '', '', '', 0, 0, 0, 0, 0)",
		m.prefix + "term":   " (mode, name) VALUES (0, '')",
		m.prefix + "pin":    " (name) VALUES ('')",
	}
	for _, r := range m.others {
		list = append(list,
			need{r.sql, "SELECT", "SELECT name FROM " + r.sql + " WHERE 1 = 0"},
			need{r.sql, "INSERT", "INSERT INTO " + r.sql + rows[r.name]},
			need{r.sql, "UPDATE", "UPDATE " + r.sql + " SET name = '' WHERE 1 = 0"},
			need{r.sql, "DELETE", "DELETE FROM " + r.sql + " WHERE 1 = 0"})
	}
	return list
}

// privileges has statements explained that change nothing: the server refuses that
// as it would refuse to run them, whatever it is that grants: a table, a role.
func (m *mysqlExam) privileges(ctx context.Context) error {
	var missing []privilege
	absent := make(map[string]bool)
	for _, n := range m.needs() {
		err := m.each(ctx, "EXPLAIN "+n.statement, nil, func(*sql.Rows) error { return nil })
		switch e := (*mysql.MySQLError)(nil); {
		case errors.As(err, &e) && (e.Number == 1142 || e.Number == 1143): // ER_TABLEACCESS_DENIED_ERROR, ER_COLUMNACCESS_DENIED_ERROR
			missing = append(missing, privilege{n.table, n.privilege})
		case isNoTable(err):
			if !absent[n.table] {
				m.bad("tables", "table "+n.table+" does not exist", "run \"sqllock migrate up\"")
			}
			absent[n.table] = true
		case err != nil:
			return err
		}
	}
	m.lacks(missing)
	return nil
}
