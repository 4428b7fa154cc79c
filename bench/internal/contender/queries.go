package contender

// The statements of the floors. They are constant, and the same on Postgres and MariaDB
// except for the parameters and for what frees: on Postgres it does not wait for its flush,
// as no plain release of a lock has to.
const (
	selectOne = `SELECT 1`
	notify    = `SELECT pg_notify('neighbour', '')`

	createFloor = `CREATE TABLE IF NOT EXISTS floor (name VARCHAR(255) PRIMARY KEY, owner VARCHAR(40), version BIGINT NOT NULL)`

	insertFloorPostgres = `INSERT INTO floor (name, version) VALUES ($1, 0) ON CONFLICT DO NOTHING`
	grantFloorPostgres  = `UPDATE floor SET owner = 'me', version = version + 1 WHERE name = $1`
	freeFloorPostgres   = `UPDATE floor SET owner = NULL, version = version + 1 WHERE name = $1 AND set_config('synchronous_commit', 'off', true) = 'off'`

	insertFloorMariaDB = `INSERT IGNORE INTO floor (name, version) VALUES (?, 0)`
	grantFloorMariaDB  = `UPDATE floor SET owner = 'me', version = version + 1 WHERE name = ?`
	freeFloorMariaDB   = `UPDATE floor SET owner = NULL, version = version + 1 WHERE name = ?`
)
