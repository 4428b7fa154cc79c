package doctor

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sqllock/sqllock/driver"
)

// The SQL of doctor on Postgres 12 and newer. $1 is the lock table, $2 the table of
// metadata.
const (
	pgVersion = `SELECT version()`

	pgServer = `SELECT current_setting('server_version_num')::integer, pg_is_in_recovery()`

	pgSettings = `
SELECT name, CASE unit WHEN 'ms' THEN setting || unit ELSE setting END FROM pg_settings
WHERE name IN ('autovacuum', 'default_transaction_isolation', 'fsync', 'full_page_writes', 'idle_session_timeout',
	'statement_timeout', 'synchronous_commit', 'synchronous_standby_names', 'transaction_read_only', 'transaction_timeout')`

	pgStandbys = `SELECT count(*) FROM pg_stat_replication`

	pgBackend = `SELECT pg_backend_pid()`

	pgNow = `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`

	pgTables = `
SELECT coalesce((SELECT relpersistence::text FROM pg_class WHERE oid = to_regclass($1::text)), ''),
       to_regclass($2::text) IS NOT NULL`

	// pgHomes are the schemas of the table of metadata $1, which are those of all tables,
	// and of the lock table $2 that search_path finds.
	pgHomes = `
SELECT coalesce(max(n.nspname::text) FILTER (WHERE c.oid = to_regclass($1::text)), ''),
       coalesce(max(n.nspname::text) FILTER (WHERE c.oid = to_regclass($2::text)), '')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid IN (to_regclass($1::text), to_regclass($2::text))`

	// pgUnbound tells how function $1 is to be bound if it names tables of another schema
	// than its own, or of none. $2 is the prefix.
	pgUnbound = `
SELECT CASE WHEN strpos(replace(p.prosrc, '"' || replace(n.nspname, '"', '""') || '"."' || $2::text, ''), '"' || $2::text) > 0 THEN
       'SELECT "' || replace(n.nspname, '"', '""') || '"."' || $2::text || 'bind_1"(' || quote_literal(n.nspname) || ', ' || quote_literal($2::text) || ')'
       ELSE '' END
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE p.oid = to_regproc($1::text)`

	// pgSchemas looks where the lock table is: in schemas that the account may use, and in
	// others.
	pgSchemas = `
SELECT coalesce(string_agg(quote_ident(n.nspname), ', ') FILTER (WHERE has_schema_privilege(n.oid, 'USAGE')), ''),
       coalesce(string_agg(quote_ident(n.nspname), ', ') FILTER (WHERE NOT has_schema_privilege(n.oid, 'USAGE')), '')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = $1::text AND c.relkind IN ('r', 'p')`

	pgPrivileges = `
SELECT p.name, p.privilege
FROM (VALUES ($1::text, 'SELECT'), ($1, 'INSERT'), ($1, 'UPDATE'), ($1, 'DELETE'), ($2::text, 'SELECT'), ($2, 'UPDATE')) AS p (name, privilege)
WHERE NOT has_table_privilege(p.name, p.privilege)`

	pgRowSecurity = `SELECT row_security_active(to_regclass($1::text))`

	// Those are of a relation that not everybody uses. $2 is a list with commas.
	pgPersistence        = `SELECT coalesce((SELECT relpersistence::text FROM pg_class WHERE oid = to_regclass($1::text)), '')`
	pgTablePrivileges    = `SELECT p FROM unnest(string_to_array($2::text, ',')) p WHERE NOT has_table_privilege($1::text, p)`
	pgSequencePrivileges = `SELECT p FROM unnest(string_to_array($2::text, ',')) p WHERE NOT has_sequence_privilege($1::text, p)`
	pgFunctionPrivileges = `SELECT p FROM unnest(string_to_array($2::text, ',')) p WHERE NOT has_function_privilege(to_regproc($1::text), p)`
	pgFunction           = `SELECT CASE WHEN to_regproc($1::text) IS NULL THEN '' ELSE 'p' END` // it is as permanent as a table

	// pgIndexes finds what ON CONFLICT (name) may use.
	pgIndexes = `
SELECT i.indexrelid::regclass::text, i.indisvalid AND i.indisready
FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attname = 'name'
WHERE i.indrelid = to_regclass($1::text) AND i.indisunique AND i.indimmediate AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum
	AND i.indpred IS NULL
ORDER BY 2 DESC`

	pgOtherIndexes = `
SELECT coalesce(string_agg(i.indexrelid::regclass::text, ', '), '')
FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attname = 'name'
WHERE i.indrelid = to_regclass($1::text) AND NOT (i.indnatts = 1 AND i.indkey[0] = a.attnum)`

	pgDead = `SELECT coalesce(n_live_tup, 0), coalesce(n_dead_tup, 0) FROM pg_stat_all_tables WHERE relid = to_regclass($1::text)`

	// pgOldest looks at what keeps vacuum from removing dead rows. The times of other
	// roles' sessions are not for everybody to see.
	pgOldest = `
SELECT coalesce(max(extract(epoch FROM clock_timestamp() - t.since)), 0)::bigint, count(*) FILTER (WHERE t.since IS NULL)
FROM (SELECT xact_start AS since FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid() AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL)
      UNION ALL
      SELECT prepared FROM pg_prepared_xacts WHERE database = current_database()) t`
)

// postgresChecker is the check of a Postgres database.
type postgresChecker struct {
	*checker
	settings map[string]string
	found    []relation // those of the others that are there
}

func postgresChecks(c *checker) []check {
	p := &postgresChecker{checker: c}
	return []check{
		{"server", p.server}, {"settings", p.readSettings}, {"writes", p.writes}, {"durability", p.durability}, {"replication", p.replication},
		{"isolation", p.isolation}, {"pooler", p.pooler}, {"clock", func(ctx context.Context) error { return p.clock(ctx, pgNow) }},
		{"time-outs", p.timeouts}, {"tables", p.checkTables}, {"migrations", p.withTables(c.version)}, {"privileges", p.withTables(p.privileges)},
		{"index", p.withTables(p.index)}, {"dead rows", p.withTables(p.deadRows)}, {"transactions", p.transactions},
	}
}

func (p *postgresChecker) server(ctx context.Context) error {
	var version string
	var number int
	var standby bool
	if err := p.one(ctx, pgVersion, nil, &version); err != nil {
		return err
	}
	name, _, _ := strings.Cut(version, " on ")
	if !strings.HasPrefix(version, "PostgreSQL ") {
		p.unusable = true
		p.bad("server", "this is "+name, "sqllock works with PostgreSQL 12 or newer")
		return nil
	}
	if err := p.one(ctx, pgServer, nil, &number, &standby); err != nil {
		return err
	}
	switch {
	case number < 120000:
		p.unusable = true
		p.bad("server", name+" is too old", "sqllock works with PostgreSQL 12 or newer")
	case standby:
		p.bad("server", name+", a standby (in recovery), where nothing can be locked", "connect to the primary, with target_session_attrs=read-write in the DSN")
	default:
		p.ok("server", name)
	}
	return nil
}

// read reads the settings as this session has them.
func (p *postgresChecker) readSettings(ctx context.Context) error {
	p.settings = make(map[string]string)
	return p.each(ctx, pgSettings, nil, func(rows *sql.Rows) error {
		var name, value string
		err := rows.Scan(&name, &value)
		p.settings[name] = value
		return err
	})
}

func (p *postgresChecker) writes(context.Context) error {
	if p.settings["transaction_read_only"] != "off" {
		p.bad("writes", "transactions are read-only here (default_transaction_read_only)",
			"see whether this is the primary, and take the setting from the DSN, the role or the database")
		return nil
	}
	p.ok("writes", "transactions may write")
	return nil
}

func (p *postgresChecker) durability(context.Context) error {
	const advice = "set it to on in postgresql.conf: after a crash the server may have forgotten who holds what"
	sound := true
	for _, name := range []string{"fsync", "full_page_writes"} {
		if p.settings[name] != "on" {
			sound = false
			p.bad("durability", name+" is "+p.settings[name], advice)
		}
	}
	switch commit := p.settings["synchronous_commit"]; {
	case !sound:
	case commit == "off":
		p.ok("durability", "what is committed is flushed; synchronous_commit is off here, and switched on for each grant and renewal")
	default:
		p.ok("durability", "what is committed is flushed (synchronous_commit is "+commit+")")
	}
	return nil
}

func (p *postgresChecker) replication(ctx context.Context) error {
	var standbys int
	if err := p.one(ctx, pgStandbys, nil, &standbys); err != nil {
		return err
	}
	synchronous, commit := p.settings["synchronous_standby_names"] != "", p.settings["synchronous_commit"]
	const harm = "a fail-over may lose grants that were given last"
	switch {
	case standbys == 0 && !synchronous:
		p.ok("replication", "no standby")
	case !synchronous:
		p.warn("replication", "the standby is asynchronous: "+harm, "set synchronous_standby_names, or let whatever the locks protect check the fencing tokens")
	case commit == "local" || commit == "remote_write": // off is switched on for grants
		p.warn("replication", "synchronous_commit is "+commit+": "+harm, "set it to on for this role")
	case standbys == 0:
		p.bad("replication", "synchronous_standby_names is set, and no standby is connected: each commit waits for one",
			"start the standby, or take it out of synchronous_standby_names")
	default:
		p.ok("replication", "the standby is synchronous")
	}
	return nil
}

func (p *postgresChecker) isolation(context.Context) error {
	if level := p.settings["default_transaction_isolation"]; level != "read committed" {
		p.warn("isolation", "the default is "+level+": sqllock sets read committed for each of its transactions, which costs two round trips more",
			"where that matters, set default_transaction_isolation for this role or in the DSN")
		return nil
	}
	p.ok("isolation", "read committed")
	return nil
}

// pooler compares who answers with whom we have connected to.
func (p *postgresChecker) pooler(ctx context.Context) error {
	var pids []uint32
	err := p.conn.Raw(func(c any) error {
		pids = append(pids, c.(*stdlib.Conn).Conn().PgConn().PID())
		return nil
	})
	for range 3 {
		var pid uint32
		if err == nil {
			err = p.one(ctx, pgBackend, nil, &pid)
		}
		pids = append(pids, pid)
	}
	if err == nil {
		p.reportPooler(pids)
	}
	return err
}

func (p *postgresChecker) reportPooler(pids []uint32) {
	for _, pid := range pids[1:] {
		if pid != pids[0] {
			p.warn("pooler", "somebody stands between us and the server, a connection pooler most likely",
				"locks of unique mode work through it; if statements fail, add default_query_exec_mode=exec to the DSN")
			return
		}
	}
	p.ok("pooler", "none: the server itself answers")
}

func (p *postgresChecker) timeouts(context.Context) error {
	limits := map[string]time.Duration{}
	for _, name := range []string{"statement_timeout", "transaction_timeout", "idle_session_timeout"} {
		limits[name], _ = time.ParseDuration(p.settings[name]) // 0 where there is none
	}
	p.reportTimeouts(limits)
	return nil
}

// fewDead is how many dead rows are nothing to speak of.
const fewDead = 10_000

// checkTables looks for the tables. Without them there is nothing to look at in them.
func (p *postgresChecker) checkTables(ctx context.Context) error {
	var persistence, schemas, closed string
	var hasMeta bool
	if err := p.one(ctx, pgSchemas, []any{p.lockName}, &schemas, &closed); err != nil {
		return err
	}
	if err := p.checkSchema(ctx); err != nil && !IsDenied(err) {
		return err
	}
	err := p.one(ctx, pgTables, []any{p.lock, p.meta}, &persistence, &hasMeta)
	if err != nil && !IsDenied(err) {
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
		p.unmigrated("tables", "table "+p.lock+" or "+p.meta+" does not exist", "")
	case persistence == "u":
		p.hasTables = true
		p.bad("tables", "table "+p.lock+" is unlogged: "+unsafe, "ALTER TABLE "+p.lock+" SET LOGGED")
	case persistence != "p":
		p.bad("tables", "table "+p.lock+" is temporary: "+unsafe, "drop it and run \"sqllock migrate up\"")
	default:
		p.hasTables = true
		return p.checkOptional(ctx)
	}
	return nil
}

// home looks where a Locker does: all tables are those of the schema of the table of
// metadata, whatever else search_path finds.
func (p *postgresChecker) checkSchema(ctx context.Context) error {
	var meta, lock string
	if err := p.one(ctx, pgHomes, []any{p.meta, p.lock}, &meta, &lock); err != nil || meta == "" || lock == "" || meta == lock {
		return err
	}
	p.warn("tables", "search_path finds a table "+p.lock+" in schema "+lock+" that is not used: the tables of sqllock are in schema "+meta,
		"drop or rename it, or say --schema and lockpg.Schema")
	p.tables = tableNames(driver.Migration{Dialect: "postgres", Schema: meta, Prefix: p.prefix, Version: p.needed})
	return nil
}

func (p *postgresChecker) checkOptional(ctx context.Context) error {
	sound, unbound := true, ""
	for _, r := range p.optional {
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
			bind, err := p.bindStatement(ctx, r)
			if err != nil {
				return err
			}
			if bind == "" || bind == unbound { // once is enough: it is for all of them
				continue
			}
			unbound = bind
			p.bad("tables", what+" names tables of another schema: its schema was renamed, or it was made by hand", bind)
		case "":
			p.unmigrated("tables", what+" does not exist", "")
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
func (p *postgresChecker) bindStatement(ctx context.Context, r relation) (bind string, err error) {
	if r.kind != "FUNCTION" {
		return "", nil
	}
	return bind, p.one(ctx, pgUnbound, []any{r.sql, p.prefix}, &bind)
}

func (p *postgresChecker) privileges(ctx context.Context) error {
	missing, err := p.missing(ctx)
	if err != nil {
		return err
	}
	hidden, err := p.rowSecurity(ctx)
	if err != nil {
		return err
	}
	if len(hidden) > 0 {
		p.bad("privileges", "row-level security hides rows of "+strings.Join(hidden, ", ")+" from this account", "ALTER TABLE … DISABLE ROW LEVEL SECURITY")
		return nil
	}
	p.reportMissing(missing)
	return nil
}

// missing returns the privileges that the role lacks.
func (p *postgresChecker) missing(ctx context.Context) (missing []privilege, err error) {
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
			query, needed = pgSequencePrivileges, "SELECT,UPDATE"
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
func (p *postgresChecker) rowSecurity(ctx context.Context) (hidden []string, err error) {
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

func (p *postgresChecker) index(ctx context.Context) error {
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
		p.warn("index", "there are indexes that sqllock does not need, which make renewals slower: "+others, "drop them")
	}
	return nil
}

func (p *postgresChecker) deadRows(ctx context.Context) error {
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

func (p *postgresChecker) transactions(ctx context.Context) error {
	oldest, hidden, err := p.oldestTransaction(ctx)
	if err != nil {
		return err
	}
	unseen := ""
	if hidden > 0 {
		unseen = fmt.Sprintf(" (%d could not be looked at, which takes the role pg_monitor)", hidden)
	}
	p.reportOldest(oldest, unseen, "vacuum cannot remove dead rows, and names that are locked often get slow", "look in pg_stat_activity and pg_prepared_xacts who it is")
	return nil
}

func (p *postgresChecker) oldestTransaction(ctx context.Context) (age time.Duration, hidden int, err error) {
	var seconds int64
	err = p.one(ctx, pgOldest, nil, &seconds, &hidden)
	return time.Duration(seconds) * time.Second, hidden, err
}
