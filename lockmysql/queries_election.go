package lockmysql

// The SQL for elections, see queries.go.

const (
	// queryResume makes the next term of one that another acquisition of the same owner
	// has. It asks for the version that is to end, so the new one is known too.
	queryResume = doUpdate + `(
	SELECT l.name FROM ` + termTable + `
	WHERE l.name = UNHEX(?) AND l.owner = UNHEX(?) AND l.version = ? AND l.acq IS NOT NULL AND l.expires_at > ` + now + lockedTerm + mine + `
SET l.acq = UNHEX(?), ` + setWon + `, l.expires_at = ` + now + ` + ?, l.value = UNHEX(NULLIF(?, x''))`

	// queryProclaim changes the row only, not the entry that a guard locks.
	queryProclaim = doUpdate + `(
	SELECT l.name FROM ` + lockTable + `
	WHERE l.name = UNHEX(?) AND l.acq = UNHEX(?) AND l.version = ? AND l.expires_at > ` + now + locked + mine + `
SET l.value = UNHEX(NULLIF(?, x''))`

	// queryProclaimTerm is queryProclaim for the modes that keep locks in sessions.
	queryProclaimTerm = doUpdate + `(
	SELECT l.name FROM ` + terms + ` WHERE ` + seen + locked + mineOfMode + `
SET l.value = UNHEX(NULLIF(?, x''))`
)
