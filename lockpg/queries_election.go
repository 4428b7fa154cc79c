package lockpg

// The SQL for elections, see queries.go.

const (
	// queryResume makes the next term of one that another acquisition of the same owner
	// has. It waits for whoever has locked the row, be it to guard that term.
	queryResume = `
WITH ` + flushed + `, mine AS MATERIALIZED (
	SELECT l.name FROM {lock} l CROSS JOIN settings
	WHERE l.name = $1::text AND l.owner = $2::text AND l.version = $3::bigint AND l.acq IS NOT NULL AND l.expires_at > ` + now + `
	FOR UPDATE OF l
)
UPDATE {lock} l SET
	acq = $4::uuid, instance = $5::uuid, label = $6::text, version = greatest(l.version + 1, ` + now + `), holds = 1,
	acquired_at = ` + now + `, expires_at = ` + now + ` + $7::bigint, value = nullif($8::text::bytea, '')
FROM mine m
WHERE l.name = m.name AND l.owner = $2::text AND l.version = $3::bigint AND l.acq IS NOT NULL AND l.expires_at > ` + now + `
RETURNING l.version, l.acquired_at`

	// queryProclaim changes no key of the row, so that it passes those who guard the term.
	queryProclaim = `
WITH ` + flushed + `, mine AS MATERIALIZED (
	SELECT l.name FROM {lock} l CROSS JOIN settings
	WHERE l.name = $1::text AND l.acq = $2::uuid AND l.version = $3::bigint AND l.expires_at > ` + now + `
	FOR NO KEY UPDATE OF l
)
UPDATE {lock} l SET value = nullif($4::text::bytea, '')
FROM mine m
WHERE l.name = m.name AND l.acq = $2::uuid AND l.version = $3::bigint AND l.expires_at > ` + now + `
RETURNING true`

	// queryProclaimTerm is queryProclaim for the modes that keep locks in sessions.
	queryProclaimTerm = `
WITH ` + flushed + `, mine AS MATERIALIZED (
	SELECT t.name FROM {term} t CROSS JOIN settings
	WHERE t.mode = {mode} AND t.name = $1::text AND t.acq = $2::uuid AND t.version = $3::bigint
	FOR NO KEY UPDATE OF t
)
UPDATE {term} t SET value = nullif($4::text::bytea, '')
FROM mine m
WHERE t.mode = {mode} AND t.name = m.name AND t.acq = $2::uuid AND t.version = $3::bigint
RETURNING true`
)
