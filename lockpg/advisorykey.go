package lockpg

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/sqllock/sqllock/driver"
)

// AdvisoryKey returns the number under which advisory mode keeps a lock, so that
// pg_locks tells which session has it: classid has the upper 32 bits of the number,
// objid the lower ones, and objsubid is 1.
//
// database is the id of the database: the column id of the table of metadata. In SQL
// the key is
//
//	SELECT ('x' || left(encode(sha256('sqllock advisory'::bytea || '\x00'::bytea || uuid_send(id) || '\x00'::bytea ||
//	       convert_to('name', 'UTF8')), 'hex'), 16))::bit(64)::bigint
//	FROM sqllock_meta
//
// It has 64 bits of a hash: of a million names that are held at a time, two have the
// same key with a probability of 1 in 37 million. Then one of them waits for the
// other, and nothing else happens. The same is so of a name and of a key that the
// application takes for itself.
func AdvisoryKey(database driver.ID, name string) int64 {
	return hashKey("sqllock advisory", database, name)
}

// guardKey is locked by transactions that guard a lease of the name.
func guardKey(database driver.ID, name string) int64 {
	return hashKey("sqllock guard", database, name)
}

// liftKey is locked by those who draw tokens, together, and by who lifts the
// sequence, alone.
func liftKey(database driver.ID) int64 { return hashKey("sqllock lift", database, "") }

func hashKey(purpose string, database driver.ID, name string) int64 {
	var room [320]byte // for the longest name, without an allocation
	b := room[:0]
	b = append(append(b, purpose...), 0)
	b = append(append(b, database[:]...), 0)
	sum := sha256.Sum256(append(b, name...))
	return int64(binary.BigEndian.Uint64(sum[:]))
}
