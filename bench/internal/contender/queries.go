package contender

// The statements of the floors. They are constant, and the same on Postgres and MariaDB
// except for the parameters.
const (
	selectOne = `SELECT 1`

	createFloor = `CREATE TABLE IF NOT EXISTS floor (name VARCHAR(255) PRIMARY KEY, owner VARCHAR(40), version BIGINT NOT NULL)`

	insertFloorPostgres = `INSERT INTO floor (name, version) VALUES ($1, 0) ON CONFLICT DO NOTHING`
	grantFloorPostgres  = `UPDATE floor SET owner = 'me', version = version + 1 WHERE name = $1`
	freeFloorPostgres   = `UPDATE floor SET owner = NULL, version = version + 1 WHERE name = $1`

	insertFloorMariaDB = `INSERT IGNORE INTO floor (name, version) VALUES (?, 0)`
	grantFloorMariaDB  = `UPDATE floor SET owner = 'me', version = version + 1 WHERE name = ?`
	freeFloorMariaDB   = `UPDATE floor SET owner = NULL, version = version + 1 WHERE name = ?`
)
