package main

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
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
       'SELECT "' || replace(n.nspname, '"', '""') || '"."' || $2::text || 'bind"(' || quote_literal(n.nspname) || ', ' || quote_literal($2::text) || ')'
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

// postgresExam is the exam of a Postgres database.
type postgresExam struct {
	*exam
	settings map[string]string
	found    []relation // those of the others that are there
}

func examinePostgres(e *exam, _ *database) []check {
	p := &postgresExam{exam: e}
	return []check{
		{"server", p.server}, {"settings", p.read}, {"writes", p.writes}, {"durability", p.durability}, {"replication", p.replication},
		{"isolation", p.isolation}, {"pooler", p.pooler}, {"clock", func(ctx context.Context) error { return p.clock(ctx, pgNow) }},
		{"time-outs", p.timeouts}, {"tables", p.tablesThere}, {"migrations", p.ifThere(e.version)}, {"privileges", p.ifThere(p.privileges)},
		{"index", p.ifThere(p.index)}, {"dead rows", p.ifThere(p.dead)}, {"transactions", p.transactions},
	}
}

func (p *postgresExam) server(ctx context.Context) error {
	var version string
	var number int
	var standby bool
	if err := p.one(ctx, pgVersion, nil, &version); err != nil {
		return err
	}
	name, _, _ := strings.Cut(version, " on ")
	if !strings.HasPrefix(version, "PostgreSQL ") {
		p.hopeless = true
		p.bad("server", "this is "+name, "sqllock works with PostgreSQL 12 or newer")
		return nil
	}
	if err := p.one(ctx, pgServer, nil, &number, &standby); err != nil {
		return err
	}
	switch {
	case number < 120000:
		p.hopeless = true
		p.bad("server", name+" is too old", "sqllock works with PostgreSQL 12 or newer")
	case standby:
		p.bad("server", name+", a standby (in recovery), where nothing can be locked", "connect to the primary, with target_session_attrs=read-write in the DSN")
	default:
		p.ok("server", name)
	}
	return nil
}

// read reads the settings as this session has them.
func (p *postgresExam) read(ctx context.Context) error {
	p.settings = make(map[string]string)
	return p.each(ctx, pgSettings, nil, func(rows *sql.Rows) error {
		var name, value string
		err := rows.Scan(&name, &value)
		p.settings[name] = value
		return err
	})
}

func (p *postgresExam) writes(context.Context) error {
	if p.settings["transaction_read_only"] != "off" {
		p.bad("writes", "transactions are read-only here (default_transaction_read_only)",
			"see whether this is the primary, and take the setting from the DSN, the role or the database")
		return nil
	}
	p.ok("writes", "transactions may write")
	return nil
}

func (p *postgresExam) durability(context.Context) error {
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

func (p *postgresExam) replication(ctx context.Context) error {
	var standbys int
	if err := p.one(ctx, pgStandbys, nil, &standbys); err != nil {
		return err
	}
	synchronous := p.settings["synchronous_standby_names"] != ""
	const harm = "a fail-over may lose grants that were given last"
	switch {
	case standbys == 0 && !synchronous:
		p.ok("replication", "no standby")
	case !synchronous:
		p.warn("replication", "the standby is asynchronous: "+harm, "set synchronous_standby_names, or let whatever the locks protect check the fencing tokens")
	case p.settings["synchronous_commit"] == "local":
		p.warn("replication", "synchronous_commit is local: "+harm, "set it to on for this role")
	default:
		p.ok("replication", "the standby is synchronous")
	}
	return nil
}

func (p *postgresExam) isolation(context.Context) error {
	if level := p.settings["default_transaction_isolation"]; level != "read committed" {
		p.warn("isolation", "the default is "+level+": sqllock sets read committed for each of its transactions, which costs two round trips more",
			"where that matters, set default_transaction_isolation for this role or in the DSN")
		return nil
	}
	p.ok("isolation", "read committed")
	return nil
}

// pooler compares who answers with whom we have connected to.
func (p *postgresExam) pooler(ctx context.Context) error {
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
		p.judgePooler(pids)
	}
	return err
}

func (p *postgresExam) judgePooler(pids []uint32) {
	for _, pid := range pids[1:] {
		if pid != pids[0] {
			p.warn("pooler", "somebody stands between us and the server, a connection pooler most likely",
				"locks of the mode unique work through it; if statements fail, add default_query_exec_mode=exec to the DSN")
			return
		}
	}
	p.ok("pooler", "none: the server itself answers")
}

func (p *postgresExam) timeouts(context.Context) error {
	limits := map[string]time.Duration{}
	for _, name := range []string{"statement_timeout", "transaction_timeout", "idle_session_timeout"} {
		limits[name], _ = time.ParseDuration(p.settings[name]) // 0 where there is none
	}
	p.limits(limits)
	return nil
}
