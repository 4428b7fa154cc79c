package locksqlite

// The SQL for elections, see queries.go.

const (
	// queryResume makes the next term of one that another acquisition of the same owner
	// has. Whoever guards that has the write lock, and is waited for.
	queryResume = `
UPDATE {lock} AS l
SET acq = ?1, instance = ?2, label = ?3, version = max(l.version + 1, ` + now + `), holds = 1,
    acquired_at = ` + now + `, expires_at = ` + now + ` + ?4, value = nullif(?5, x'')
WHERE l.name = ?6 AND l.owner = ?7 AND l.version = ?8 AND l.acq IS NOT NULL AND l.expires_at > ` + now + `
RETURNING version, acquired_at, expires_at`

	queryProclaim = `
UPDATE {lock} AS l
SET value = nullif(?1, x'')
WHERE l.name = ?2 AND l.acq = ?3 AND l.version = ?4 AND l.expires_at > ` + now + `
RETURNING version`
)
