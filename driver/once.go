package driver

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// OnceStore keeps which keys of a name are complete. A Store implements it if the
// database can.
type OnceStore interface {
	// LookKey reads what is known of a key. With settle it first waits until no transaction is
	// open that completes the key, for a second at most; the error then classifies as
	// [Again]. Without it, it locks nothing.
	LookKey(ctx context.Context, name, key string, settle bool) (KeyState, error)

	// StartKey counts an attempt, if the term is the current one and the key is not
	// complete. Else it writes nothing. It reads both after the grant of the term.
	StartKey(ctx context.Context, req KeyRequest) (KeyState, error)

	// CompleteKey completes a key, if the term is the current one and the key is not
	// complete. Else it writes nothing.
	CompleteKey(ctx context.Context, req KeyRequest) (KeyState, error)

	// CompleteKeyTx completes a key in a transaction of the application that guards the
	// term. It reports false if the key has no row, or is complete.
	CompleteKeyTx(ctx context.Context, tx *sql.Tx, name, key string) (bool, error)

	// IsCompleteTx reports whether a key is complete, as the transaction sees it.
	IsCompleteTx(ctx context.Context, tx *sql.Tx, name, key string) (bool, error)

	// LastKeys returns the keys that were completed last, by name, of names that have one.
	LastKeys(ctx context.Context, names []string) (map[string]KeyState, error)

	// PurgeKeys deletes keys whose last attempt and completion are longer ago than
	// retention, at most limit of them. It keeps the highest of those that are complete
	// and times as a floor: keys of the name that are times, up to the floor, stay complete.
	PurgeKeys(ctx context.Context, retention time.Duration, limit int) (purged int, more bool, err error)
}

// KeyRequest asks to start or to complete a key under a term.
type KeyRequest struct {
	Name    string
	Key     string
	Acq     ID
	Version int64
}

// KeyState is what is known of a key. The zero KeyState is that of a key that was never
// started.
type KeyState struct {
	Key      string
	Attempt  int   // of the last start
	Since    int64 // when that was; 0 of a floor
	At       int64 // when it was completed, or 0
	Complete bool  // it was completed, or a floor says so
	Current  bool  // the term of the request was the current one
}

// timeKey is the form of keys that are times. The order of their bytes is that of the times.
const timeKey = "2006-01-02T15:04:05.000000Z"

// TimeKey returns the key of a time.
func TimeKey(t time.Time) string { return t.UTC().Format(timeKey) }

// IsTimeKey reports whether a key is a time.
func IsTimeKey(key string) bool {
	t, err := time.Parse(timeKey, key)
	return err == nil && TimeKey(t) == key
}

// CheckKey refuses what cannot be a key. The error wraps ErrInvalidName.
func CheckKey(key string) error {
	if err := CheckName(key); err != nil {
		return fmt.Errorf("the key: %w", err)
	}
	return nil
}
