package lockmysql

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/sqllock/sqllock/driver"
)

// keyPrefix begins the names that advisory mode gives to GET_LOCK.
const keyPrefix = "sqllock:"

// slots is how many sessions can share a lock of advisory mode. GET_LOCK knows
// no shared locks. Who shares has one of the locks that are named after the lock,
// a colon and a number, and takes it while it has the lock itself, for a moment. Who
// wants the lock alone takes it and looks whether all slots are free.
const slots = 32

// AdvisoryKey returns the name under which advisory mode asks GET_LOCK for a
// lock, whose own names are shorter than those of sqllock and the same for all
// databases of a server. So IS_USED_LOCK tells which connection has the lock. Those
// who share it have one of 32 locks instead, named after it: the key, a colon, and a
// number from 0 to 31.
//
// database is the id of the database: the column id of the table of metadata. In SQL
// the key is
//
//	SELECT CONCAT('sqllock:', LEFT(SHA2(CONCAT('sqllock advisory', x'00', id, x'00', 'name'), 256), 32))
//	FROM sqllock_meta
//
// It has 128 bits of a hash: of a billion names two have the same key with a
// probability of less than 1 in 10^20. They would wait for each other, and nothing
// else would happen.
func AdvisoryKey(database driver.ID, name string) string {
	return keyText(hashName(database, name))
}

func hashName(database driver.ID, name string) (hash [16]byte) {
	h := sha256.New()
	h.Write([]byte("sqllock advisory\x00"))
	h.Write(database[:])
	h.Write([]byte{0})
	h.Write([]byte(name))
	copy(hash[:], h.Sum(nil))
	return hash
}

func keyText(hash [16]byte) string { return keyPrefix + hex.EncodeToString(hash[:]) }
