package sqllock

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sqllock/sqllock/driver"
)

// Sharded spreads names over several databases: for each name it says which of its Lockers
// owns the name. Everything else is done with that Locker, and works as on one database.
//
// The owner is found by rendezvous hashing, without asking anybody. So processes agree if they
// have the same shards with the same names: the order, the DSNs and the options of the Lockers
// do not matter. Of n shards each owns about one nth of the names. If a shard is added, the
// names that it then owns change their owner, and no others do. The same holds for those of a
// shard that is removed.
//
// Two processes with different sets of shards may both hold the same name, as each asks
// another database. Nothing detects this. To change the set, end all processes with the old one
// and wait for one TTL, and for the longest lock delay, before you start the first with the new
// one. To change it while the work goes on, see docs/scaling.md. Tokens of a name come from one
// database after the other then: they rise if the clock of the new database is not behind.
//
// A Sharded does not change and is safe for concurrent use. Close the Lockers yourself.
// [NewSharded] makes one: For of the zero Sharded returns nil.
type Sharded struct {
	shards []shard // in the order of their names
}

// shard is one of the databases.
type shard struct {
	hash   uint64 // of its name
	locker *Locker
}

// NewSharded returns a Sharded over Lockers by the names of their shards. The names are for all
// processes the same, also when a database moves to another host: "db-1", not a DSN. Each is
// 1 to 255 bytes of UTF-8 without NUL. It returns [ErrInvalidOption] if there is no Locker, if one
// is nil or is there twice, or if a name is none of a shard.
func NewSharded(lockers map[string]*Locker) (*Sharded, error) {
	if len(lockers) == 0 {
		return nil, fmt.Errorf("%w: NewSharded: no Lockers: there must be at least one shard", ErrInvalidOption)
	}
	s := &Sharded{}
	owners := make(map[*Locker]string, len(lockers))
	for _, name := range slices.Sorted(maps.Keys(lockers)) {
		l := lockers[name]
		if err := driver.CheckName(name); err != nil {
			return nil, fmt.Errorf("%w: NewSharded: shard %q: %w", ErrInvalidOption, name, err)
		}
		if l == nil {
			return nil, fmt.Errorf("%w: NewSharded: shard %q: the Locker must not be nil", ErrInvalidOption, name)
		}
		if other, ok := owners[l]; ok {
			return nil, fmt.Errorf("%w: NewSharded: shards %q and %q: each must have a Locker of its own", ErrInvalidOption, other, name)
		}
		owners[l] = name
		s.shards = append(s.shards, shard{hash: fnv1a(fnvOffset, name+"\x00"), locker: l})
	}
	return s, nil
}

// For returns the Locker that owns key, which is most often the name of a lock:
//
//	lease, err := sharded.For(name).Lock(ctx, name)
//
// Names that are locked together, with LockAll, or guarded in one transaction, must have the same
// owner: use what they have in common as the key of them all, such as the customer. All callers of
// a name must use the same key. For does not check the key; the Locker checks the name.
//
// The owner is the shard with the highest score. The score is FNV-1a (64 bits) of the shard's name,
// a NUL and the key, and of that the 64-bit finalizer of MurmurHash3. Among equal scores the first
// shard in the order of the bytes of the names is the owner. No version of the library changes this.
func (s *Sharded) For(key string) *Locker {
	var owner *Locker
	var highest uint64
	for i := range s.shards {
		if score := mix(fnv1a(s.shards[i].hash, key)); owner == nil || score > highest {
			owner, highest = s.shards[i].locker, score
		}
	}
	return owner
}

// The parameters of FNV-1a for 64 bits.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// fnv1a goes on with a hash. It is not hash/fnv, which cannot go on from the hash of a shard
// without an allocation.
func fnv1a(hash uint64, text string) uint64 {
	for i := range len(text) {
		hash = (hash ^ uint64(text[i])) * fnvPrime
	}
	return hash
}

// mix spreads each bit over all. FNV-1a alone hardly changes the high bits at the last letter, so
// that names that count up would go to one shard.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
