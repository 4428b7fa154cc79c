-- What is asked of a server before a mode is opened.

-- name: version
SELECT version();

-- name: tables
-- It looks for the tables $2 in the schema of the table of metadata $1.
SELECT current_setting('server_version_num')::integer,
       pg_is_in_recovery(),
       current_setting('transaction_read_only') = 'on',
       current_setting('fsync') = 'on',
       current_setting('full_page_writes') = 'on',
       current_setting('default_transaction_isolation') = 'read committed',
       current_setting('array_nulls') = 'on',
       pg_client_encoding()::text,
       getdatabaseencoding()::text,
       coalesce(m.home::text, ''),
       (SELECT coalesce(string_agg(t.name, ', '), '') FROM unnest($2::text[]) AS t(name) WHERE NOT EXISTS (
		SELECT FROM pg_class c WHERE c.relnamespace = m.oid AND c.relname = t.name::name)),
       (SELECT coalesce(string_agg(t.name, ', '), '') FROM unnest($2::text[]) AS t(name) JOIN pg_class c ON c.relname = t.name::name
	WHERE c.relnamespace = m.oid AND c.relpersistence <> 'p')
FROM (SELECT to_regclass($1::text) AS meta) r
LEFT JOIN LATERAL (
	SELECT n.oid, n.nspname AS home FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = r.meta
) m ON true;

-- name: functions
-- Which of the functions $3 are not in the schema $1, or name tables of another schema, or of none:
-- then those are meant that a session's search_path finds. $2 is the prefix, $4 is how a name of
-- theirs begins with the schema, and $5 without.
SELECT coalesce(string_agg($4::text || f.name || '"', ', ' ORDER BY f.name), '')
FROM unnest(string_to_array($3::text, ',')) AS f(name)
WHERE NOT EXISTS (
	SELECT FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
	WHERE n.nspname = $1::text AND p.proname = ($2::text || f.name)::name AND strpos(replace(p.prosrc, $4::text, ''), $5::text) = 0
);

-- name: meta
SELECT schema_version, compatible_from, id::text FROM {meta};

-- name: session_tables
SELECT coalesce((SELECT relpersistence::text FROM pg_class WHERE oid = to_regclass($1::text)), ''),
       coalesce((SELECT relpersistence::text FROM pg_class WHERE oid = to_regclass($2::text)), ''),
       coalesce((SELECT relpersistence::text FROM pg_class WHERE oid = to_regclass($3::text)), ''),
       current_setting('max_locks_per_transaction')::bigint *
       (current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint),
       current_setting('idle_session_timeout', true) IS NOT NULL;

-- name: backend
SELECT pg_backend_pid();
