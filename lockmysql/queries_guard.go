package lockmysql

// The SQL that runs in transactions of the application.

const (
	// queryGuard locks the entry of the term in an index that has nothing else: who
	// renews the lease changes the row only, and passes; who makes somebody else the
	// holder, or nobody, has to change or lock the entry.
	queryGuard = `SELECT HEX((SELECT m.id FROM {meta} m)) FROM {lock} l FORCE INDEX (sqllock_guard)
WHERE l.name = UNHEX(?) AND l.version = ? LOCK IN SHARE MODE`
	queryID = `SELECT HEX(id) FROM {meta}`

	// queryFence locks the row of the resource, whether it raises its token or not.
	queryFence = `INSERT INTO {fence} (resource, token) VALUES (UNHEX(?), ?)
ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token))`
	queryFenceToken = `SELECT token FROM {fence} WHERE resource = UNHEX(?) FOR UPDATE`
)
