package lockpg

import "strings"

// The SQL for the line of those who wait, see queries.go. What is done there under the
// lock of a row is done by functions in the database, which the migrations make: they
// lock the row in one statement and see in the next what was committed until then.

// waited is flushed for statements that call these functions, which look for few rows
// of tables that may have grown since their plans were made, and whose plans must not
// depend on how many requests there are.
const waited = `settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), set_config('enable_seqscan', 'off', true),
	       set_config('plan_cache_mode', 'force_generic_plan', true),
	       CASE current_setting('synchronous_commit')
	       WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
)`

// queued is waited for a statement that is flushed if somebody gets a name, as durable
// says, and otherwise not.
const queued = `settings AS MATERIALIZED (
	SELECT s.durable, set_config('lock_timeout', '1s', true), set_config('enable_seqscan', 'off', true),
	       set_config('plan_cache_mode', 'force_generic_plan', true), set_config('synchronous_commit', 'off', true)
	FROM (SELECT coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on') AS durable OFFSET 0) s
)`

const (
	// queryHandOver is queryRelease for names that somebody may wait for. A function is
	// called once for each request, in the order of the names.
	queryHandOver = `
WITH ` + waited + `
SELECT r.ord, f.freed, f.term, f.clock, array_to_string(f.entered, ','), array_to_string(f.until, ',')
FROM (
	SELECT r.* FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::bigint[], $5::boolean[], $6::boolean[])
		WITH ORDINALITY AS r(name, acq, version, min_hold, shared, guarded, ord) CROSS JOIN settings
	ORDER BY r.name COLLATE "C", r.ord
) r, LATERAL {leave}(r.name, r.acq, r.version, r.min_hold, r.shared, r.guarded, $7::uuid) f`

	// queryAbandon is queryHandOver for acquisitions of which it is not known what they
	// have: most have nothing.
	queryAbandon = `
WITH ` + waited + `
SELECT f.freed
FROM (
	SELECT r.* FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::boolean[], $5::boolean[])
		WITH ORDINALITY AS r(name, acq, min_hold, shared, guarded, ord) CROSS JOIN settings
	WHERE EXISTS (SELECT FROM {lock} l WHERE l.name = r.name AND l.acq = r.acq)
	   OR EXISTS (SELECT FROM {ticket} t WHERE t.acq = r.acq)
	   OR r.shared AND EXISTS (SELECT FROM {holder} h WHERE h.name = r.name AND h.acq = r.acq)
	ORDER BY r.name COLLATE "C", r.ord
) r, LATERAL {leave}(r.name, r.acq, NULL, r.min_hold, r.shared, r.guarded, $6::uuid) f`

	// queryLine calls a function once for each name, in the order of the names, with all
	// requests for it.
	queryLine = `
WITH ` + queued + `
SELECT f.version, coalesce(f.found, false), f.until, f.ahead, f.clock, r.ords[f.ord],
       f.holder::text, f.owner, f.label, f.held, f.since, f.lasts, f.shared, f.crashed
FROM (
	SELECT r.name, array_agg(r.acq ORDER BY r.ord) AS acqs, array_agg(r.owner ORDER BY r.ord) AS owners,
	       array_agg(r.ttl ORDER BY r.ord) AS ttls, array_agg(r.value ORDER BY r.ord) AS vals,
	       array_agg(r.shared ORDER BY r.ord) AS shared, array_agg(r.life ORDER BY r.ord) AS lives,
	       array_agg(r.handed ORDER BY r.ord) AS handed, array_agg(r.carries ORDER BY r.ord) AS carried,
	       array_agg(r.ord ORDER BY r.ord) AS ords, min(settings.durable) AS durable
	FROM unnest($1::text[], $2::uuid[], $3::text[], $4::bigint[], $5::bytea[], $6::boolean[], $7::bigint[], $8::bigint[], $9::bytea[])
		WITH ORDINALITY AS r(name, acq, owner, ttl, value, shared, life, handed, carries, ord) CROSS JOIN settings
	GROUP BY r.name
	ORDER BY r.name COLLATE "C"
) r, LATERAL {line}(r.name, r.acqs, r.owners, r.ttls, r.vals, r.shared, r.lives, r.handed, r.carried, $10::uuid, $11::text, r.durable) f`

	queryWaits = `
SELECT t.name, t.acq::text, t.label, t.seq, t.entered_at, t.shared, encode(t.carries, 'hex'),
       CASE WHEN l.acq IS NOT NULL THEN CASE WHEN l.expires_at > ` + now + ` THEN l.acq::text END
       ELSE (SELECT string_agg(h.acq::text, ',') FROM {holder} h
             WHERE h.name = t.name AND h.version = l.version AND h.expires_at > ` + now + ` AND l.others > 0) END
FROM {ticket} t LEFT JOIN {lock} l ON l.name = t.name
WHERE t.carries IS NOT NULL AND t.expires_at > ` + now + `
ORDER BY t.entered_at`

	queryNotify = `SELECT pg_notify($1::text, '')`
)

// lineQueries are the texts for the line.
type lineQueries struct {
	handOver, abandon, line, waits string
}

func newLineQueries(text func(string, ...string) string, function func(string) string) lineQueries {
	return lineQueries{
		handOver: text(queryHandOver, "{leave}", function("leave")),
		abandon:  text(queryAbandon, "{leave}", function("leave")),
		line:     text(queryLine, "{line}", function("line")),
		waits:    text(queryWaits),
	}
}

// channel is what a client listens to.
func channel(instance string) string { return "sqllock_" + strings.ReplaceAll(instance, "-", "") }
