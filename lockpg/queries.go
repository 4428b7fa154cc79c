package lockpg

// The SQL of the session modes, and of what is asked before a mode is opened. That of the unique
// mode is in sql/unique.sql. Every value is a parameter; what varies is the name of the
// tables, which is checked and quoted. Requests come as arrays, one per column, so that a
// statement is the same for any number of them.
//
// now is the server's clock at the moment of evaluation, see sql/unique.sql.
const now = `(date_part('epoch', clock_timestamp()) * 1000000)::bigint`

// flushed makes the transaction wait for its flush even where the role or the
// database is set not to; a wait for a row lock ends after a second. Both
// settings end with the transaction.
const flushed = `settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true),
	       CASE current_setting('synchronous_commit')
	       WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
)`

// unflushed is for what may be lost in a crash: a release, after which the name
// is merely free later.
const unflushed = `settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), set_config('synchronous_commit', 'off', true)
)`

const (
	queryVersion = `SELECT version()`

	// queryCheck looks for the tables $2 in the schema of the table of metadata $1.
	queryCheck = `
SELECT current_setting('server_version_num')::integer,
       pg_is_in_recovery(),
       current_setting('transaction_read_only') = 'on',
       current_setting('fsync') = 'on',
       current_setting('full_page_writes') = 'on',
       current_setting('default_transaction_isolation') = 'read committed',
       coalesce(m.home::text, ''),
       (SELECT coalesce(string_agg(t.name, ', '), '') FROM unnest($2::text[]) AS t(name) WHERE NOT EXISTS (
		SELECT FROM pg_class c WHERE c.relnamespace = m.oid AND c.relname = t.name::name)),
       (SELECT coalesce(string_agg(t.name, ', '), '') FROM unnest($2::text[]) AS t(name) JOIN pg_class c ON c.relname = t.name::name
	WHERE c.relnamespace = m.oid AND c.relpersistence <> 'p')
FROM (SELECT to_regclass($1::text) AS meta) r
LEFT JOIN LATERAL (
	SELECT n.oid, n.nspname AS home FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = r.meta
) m ON true`

	// queryUnfit tells which of the functions $3 are not in the schema $1, or name tables
	// of another schema, or of none: then those are meant that a session's search_path
	// finds. $2 is the prefix, $4 is how a name of theirs begins with the schema, and $5
	// without.
	queryUnfit = `
SELECT coalesce(string_agg($4::text || f.name || '"', ', ' ORDER BY f.name), '')
FROM unnest(string_to_array($3::text, ',')) AS f(name)
WHERE NOT EXISTS (
	SELECT FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
	WHERE n.nspname = $1::text AND p.proname = ($2::text || f.name)::name AND strpos(replace(p.prosrc, $4::text, ''), $5::text) = 0
)`

	queryMeta = `SELECT schema_version, compatible_from, id::text FROM {meta}`
)
