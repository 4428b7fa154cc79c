package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// fewDead is how many dead rows are nothing to speak of.
const fewDead = 10_000

// tablesThere looks for the tables. Without them there is nothing to look at in them.
func (p *postgresExam) tablesThere(ctx context.Context) error {
	var persistence, schemas, closed string
	var hasMeta bool
	if err := p.one(ctx, pgSchemas, []any{p.lockName}, &schemas, &closed); err != nil {
		return err
	}
	if err := p.home(ctx); err != nil && !isDenied(err) {
		return err
	}
	err := p.one(ctx, pgTables, []any{p.lock, p.meta}, &persistence, &hasMeta)
	if err != nil && !isDenied(err) {
		return err
	}
	const unsafe = "a crash would empty it"
	switch {
	case closed != "" && (err != nil || persistence == "" && schemas == ""):
		p.bad("privileges", "table "+p.lock+" is in schema "+closed+", which this account may not use", "GRANT USAGE ON SCHEMA "+closed+" TO <this account>")
	case err != nil:
		return err
	case persistence == "" && schemas != "":
		p.bad("tables", "table "+p.lock+" is not where we look for it; there is one in schema "+schemas, "use --schema, or set search_path in the DSN")
	case persistence == "" || !hasMeta:
		p.bad("tables", "table "+p.lock+" or "+p.meta+" does not exist", "run \"sqllock migrate up\"")
	case persistence == "u":
		p.there = true
		p.bad("tables", "table "+p.lock+" is unlogged: "+unsafe, "ALTER TABLE "+p.lock+" SET LOGGED")
	case persistence != "p":
		p.bad("tables", "table "+p.lock+" is temporary: "+unsafe, "drop it and run \"sqllock migrate up\"")
	default:
		p.there = true
		return p.othersThere(ctx)
	}
	return nil
}

// home looks where a Locker does: all tables are those of the schema of the table of
// metadata, whatever else search_path finds.
func (p *postgresExam) home(ctx context.Context) error {
	var meta, lock string
	if err := p.one(ctx, pgHomes, []any{p.meta, p.lock}, &meta, &lock); err != nil || meta == "" || lock == "" || meta == lock {
		return err
	}
	p.warn("tables", "search_path finds a table "+p.lock+" in schema "+lock+" that is not used: the tables of sqllock are in schema "+meta,
		"drop or rename it, or say --schema and lockpg.Schema")
	p.tables = tableNames(driver.Migration{Dialect: "postgres", Schema: meta, Prefix: p.prefix})
	return nil
}

func (p *postgresExam) othersThere(ctx context.Context) error {
	sound, unbound := true, ""
	for _, r := range p.others {
		var persistence string
		query := pgPersistence
		if r.kind == "FUNCTION" {
			query = pgFunction
		}
		if err := p.one(ctx, query, []any{r.sql}, &persistence); err != nil {
			return err
		}
		switch what := strings.ToLower(r.kind) + " " + r.sql; persistence {
		case "p":
			p.found = append(p.found, r)
			bind, err := p.unbound(ctx, r)
			if err != nil {
				return err
			}
			if bind == "" || bind == unbound { // once is enough: it is for all of them
				continue
			}
			unbound = bind
			p.bad("tables", what+" names tables of another schema: its schema was renamed, or it was made by hand", bind)
		case "":
			p.bad("tables", what+" does not exist", "run \"sqllock migrate up\"")
		case "u":
			p.bad("tables", what+" is unlogged: a crash would empty it", "ALTER "+r.kind+" "+r.sql+" SET LOGGED")
		default:
			p.bad("tables", what+" is temporary: a crash would empty it", "drop it and run \"sqllock migrate up\"")
		}
		sound = false
	}
	if sound {
		p.ok("tables", p.list())
	}
	return nil
}

// unbound returns what binds a function to the tables of its schema, if that is to be done.
func (p *postgresExam) unbound(ctx context.Context, r relation) (bind string, err error) {
	if r.kind != "FUNCTION" {
		return "", nil
	}
	return bind, p.one(ctx, pgUnbound, []any{r.sql, p.prefix}, &bind)
}

func (p *postgresExam) privileges(ctx context.Context) error {
	missing, err := p.missing(ctx)
	if err != nil {
		return err
	}
	hidden, err := p.hidden(ctx)
	if err != nil {
		return err
	}
	if len(hidden) > 0 {
		p.bad("privileges", "row-level security hides rows of "+strings.Join(hidden, ", ")+" from this account", "ALTER TABLE … DISABLE ROW LEVEL SECURITY")
		return nil
	}
	p.lacks(missing)
	return nil
}

// missing returns the privileges that the role lacks.
func (p *postgresExam) missing(ctx context.Context) (missing []privilege, err error) {
	err = p.each(ctx, pgPrivileges, []any{p.lock, p.meta}, func(rows *sql.Rows) error {
		var m privilege
		err := rows.Scan(&m.table, &m.name)
		missing = append(missing, m)
		return err
	})
	for _, r := range p.found {
		query, needed := pgTablePrivileges, "SELECT,INSERT,UPDATE,DELETE"
		switch r.kind {
		case "SEQUENCE":
			query, needed = pgSequencePrivileges, "USAGE,SELECT,UPDATE"
		case "FUNCTION":
			query, needed = pgFunctionPrivileges, "EXECUTE"
		}
		if err != nil {
			return nil, err
		}
		err = p.each(ctx, query, []any{r.sql, needed}, func(rows *sql.Rows) error {
			m := privilege{table: r.sql}
			err := rows.Scan(&m.name)
			missing = append(missing, m)
			return err
		})
	}
	return missing, err
}

// hidden returns the tables of which the role may not see all rows.
func (p *postgresExam) hidden(ctx context.Context) (hidden []string, err error) {
	tables := []string{p.lock, p.meta}
	for _, r := range p.found {
		if r.kind == "TABLE" {
			tables = append(tables, r.sql)
		}
	}
	for _, table := range tables {
		var active bool
		if err := p.one(ctx, pgRowSecurity, []any{table}, &active); err != nil {
			return nil, err
		}
		if active {
			hidden = append(hidden, table)
		}
	}
	return hidden, nil
}

func (p *postgresExam) index(ctx context.Context) error {
	var name string
	var valid bool
	switch err := p.one(ctx, pgIndexes, []any{p.lock}, &name, &valid); {
	case err == sql.ErrNoRows:
		p.bad("index", "no unique index over the names: nobody can lock anything", "ALTER TABLE "+p.lock+" ADD PRIMARY KEY (name)")
	case err != nil:
		return err
	case !valid:
		p.bad("index", "index "+name+" is not valid", "REINDEX INDEX "+name)
	default:
		p.ok("index", name+" is unique and valid")
	}
	var others string
	if err := p.one(ctx, pgOtherIndexes, []any{p.lock}, &others); err != nil {
		return err
	}
	if others != "" {
		p.warn("index", "there are indexes that nobody needs, which make renewals dear: "+others, "drop them")
	}
	return nil
}

func (p *postgresExam) dead(ctx context.Context) error {
	var live, dead int64
	if err := p.one(ctx, pgDead, []any{p.lock}, &live, &dead); err != nil {
		return err
	}
	vacuum := "VACUUM " + p.lock
	switch {
	case dead > fewDead && dead > live:
		p.warn("dead rows", fmt.Sprintf("%d rows are alive and %d are dead, which makes each look slower", live, dead),
			vacuum+", and see below whether an old transaction keeps autovacuum from it")
	case p.settings["autovacuum"] != "on":
		p.warn("dead rows", "autovacuum is off: each renewal leaves a dead row", "switch it on, or "+vacuum+" every few minutes")
	default:
		p.ok("dead rows", fmt.Sprintf("%d rows are alive and %d are dead", live, dead))
	}
	return nil
}

func (p *postgresExam) transactions(ctx context.Context) error {
	oldest, hidden, err := p.oldest(ctx)
	if err != nil {
		return err
	}
	unseen := ""
	if hidden > 0 {
		unseen = fmt.Sprintf(" (%d could not be looked at, which takes the role pg_monitor)", hidden)
	}
	p.age(oldest, unseen, "vacuum cannot remove dead rows, and names that are locked often get slow", "look in pg_stat_activity and pg_prepared_xacts who it is")
	return nil
}

func (p *postgresExam) oldest(ctx context.Context) (age time.Duration, hidden int, err error) {
	var seconds int64
	err = p.one(ctx, pgOldest, nil, &seconds, &hidden)
	return time.Duration(seconds) * time.Second, hidden, err
}
