package rowstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// keyVisit is what a call reads of a term and a key, and what it writes.
type keyVisit struct {
	name, key string
	rows      *views // nil if the call is about no term
	state     driver.KeyState
}

func newKeyVisit(name, key string) *keyVisit {
	return &keyVisit{name: name, key: key, state: driver.KeyState{Key: key}}
}

// columns are the batch of the statements about the key.
func (k *keyVisit) columns() []Column { return []Column{[]string{k.name}, []string{k.key}} }

// addKey notes the row of the key.
func (k *keyVisit) addKey(scan Scanner) error {
	var name, key string
	err := scan(&name, &key, &k.state.Attempt, &k.state.Since, &k.state.At)
	k.state.Complete = k.state.Complete || k.state.At > 0
	return err
}

// addFloor notes the floor of the name.
func (k *keyVisit) addFloor(scan Scanner) error {
	var name, floor string
	err := scan(&name, &floor)
	k.state.Complete = k.state.Complete || k.key <= floor
	return err
}

// reads are the statements that read the key. lock is set in a transaction that may write.
func (s *rows) reads(k *keyVisit, lock bool) []Statement {
	read := "keys"
	if lock && !s.sole {
		read = "lock_keys"
	}
	reads := []Statement{{Name: read, Batch: k.columns(), Scan: k.addKey}}
	if driver.IsTimeKey(k.key) {
		reads = append(reads, Statement{Name: "floors", Batch: []Column{[]string{k.name}}, Scan: k.addFloor})
	}
	return reads
}

// lookKey does the work of [driver.OnceStore.LookKey].
func (s *rows) lookKey(ctx context.Context, name, key string, settle bool) (driver.KeyState, error) {
	k := newKeyVisit(name, key)
	var err error
	if settle {
		err = s.engine.Tx(ctx, func() []Statement {
			k = newKeyVisit(name, key)
			return s.reads(k, true)
		}, func() (Writes, error) { return Writes{}, nil })
	} else {
		err = s.engine.Run(ctx, s.reads(k, false)...)
	}
	return k.state, err
}

// startKey does the work of [driver.OnceStore.StartKey].
func (s *rows) startKey(ctx context.Context, req driver.KeyRequest) (driver.KeyState, error) {
	return s.visitKey(ctx, req, func(state *driver.KeyState, now int64) {
		state.Attempt++
		state.Since = now
	})
}

// completeKey does the work of [driver.OnceStore.CompleteKey].
func (s *rows) completeKey(ctx context.Context, req driver.KeyRequest) (driver.KeyState, error) {
	return s.visitKey(ctx, req, func(state *driver.KeyState, now int64) {
		if state.Attempt == 0 { // it took so long that the row was deleted
			state.Attempt, state.Since = 1, now
		}
		state.At = now
	})
}

// visitKey calls change if the term is the current one and the key is not complete, and
// writes what it has changed.
func (s *rows) visitKey(
	ctx context.Context, req driver.KeyRequest, change func(state *driver.KeyState, now int64),
) (driver.KeyState, error) {
	var k *keyVisit
	read := func() []Statement {
		k = newKeyVisit(req.Name, req.Key)
		k.rows = newViews([]string{req.Name})
		row := k.rows.read()
		if !s.sole {
			row.Name = "lock_rows"
		}
		return append([]Statement{row}, s.reads(k, true)...)
	}
	var after driver.KeyState
	err := s.engine.Tx(ctx, read, func() (Writes, error) {
		w := k.rows.list[0]
		k.state.Current = w.exists && w.row.Acq == req.Acq && w.row.Version == req.Version
		if after = k.state; after.Complete || !after.Current {
			return Writes{}, nil
		}
		change(&after, w.now)
		after.Complete = after.At > 0
		batch := append(k.columns(), []int64{int64(after.Attempt)}, []int64{after.Since}, []int64{after.At})
		return Writes{Statements: []Statement{{Name: "write_keys", Batch: batch}}, Flush: true}, nil
	})
	return after, err
}

// lastKeys does the work of [driver.OnceStore.LastKeys].
func (s *rows) lastKeys(ctx context.Context, names []string) (map[string]driver.KeyState, error) {
	last := make(map[string]driver.KeyState)
	if len(names) == 0 {
		return last, nil
	}
	err := s.engine.Run(ctx, Statement{Name: "last_keys", Batch: []Column{names}, Scan: func(scan Scanner) error {
		k := driver.KeyState{Complete: true}
		var name string
		err := scan(&name, &k.Key, &k.Attempt, &k.Since, &k.At)
		if k.Key >= last[name].Key { // of several at the same moment
			last[name] = k
		}
		return err
	}})
	return last, err
}

// purgeKeys does the work of [driver.OnceStore.PurgeKeys]. A floor is raised before the keys
// below it are deleted.
func (s *rows) purgeKeys(ctx context.Context, retention time.Duration, limit int) (purged int, more bool, err error) {
	old, err := s.oldKeys(ctx, retention, limit)
	if err != nil || len(old.keys) == 0 {
		return 0, false, err
	}
	floors, purge := old.sort()
	if len(floors.keys) > 0 {
		err = s.engine.Run(ctx, Statement{Name: "raise_floors", Batch: floors.batch()})
	}
	var changed int64
	if err == nil && len(purge.keys) > 0 {
		err = after(len(floors.keys) > 0, s.engine.Run(ctx, Statement{Name: "purge_keys", Batch: purge.batch(),
			Args: []any{retention.Microseconds()}, Changed: &changed}))
	}
	return int(changed), len(old.keys) == limit && int(changed)+len(floors.keys) > 0, err
}

// keyList is a list of keys, each with its name.
type keyList struct{ names, keys []string }

func (l *keyList) add(name, key string) { l.names, l.keys = append(l.names, name), append(l.keys, key) }

func (l *keyList) batch() []Column { return []Column{l.names, l.keys} }

// oldKeys are keys that nobody needs any more, unless as a floor.
type oldKeys struct {
	keyList
	complete []bool
	floors   map[string]string // by name, as they are
}

// oldKeys reads them.
func (s *rows) oldKeys(ctx context.Context, retention time.Duration, limit int) (*oldKeys, error) {
	old := &oldKeys{floors: make(map[string]string)}
	args := []any{retention.Microseconds(), int64(limit)}
	err := s.engine.Run(ctx, Statement{Name: "old_keys", Args: args, Scan: func(scan Scanner) error {
		var name, key, floor string
		var at int64
		err := scan(&name, &key, &at, &floor)
		old.add(name, key)
		old.complete, old.floors[name] = append(old.complete, at > 0), floor
		return err
	}})
	return old, err
}

// sort returns which of them become floors, and which are to be deleted, former floors
// included.
func (o *oldKeys) sort() (floors, purge keyList) {
	highest := make(map[string]string)
	for i, name := range o.names {
		if o.complete[i] && driver.IsTimeKey(o.keys[i]) && o.keys[i] > max(o.floors[name], highest[name]) {
			highest[name] = o.keys[i]
		}
	}
	for i, name := range o.names {
		if o.keys[i] != highest[name] {
			purge.add(name, o.keys[i])
			continue
		}
		floors.add(name, o.keys[i])
		if was := o.floors[name]; was != "" {
			purge.add(name, was)
		}
	}
	return floors, purge
}

// CompleteKeyTx runs the statement complete in a transaction of the application. It changes the
// row of a key that is not complete, or finds none: so it does not matter whether the connection
// counts the rows that it finds or those that it changes.
func CompleteKeyTx(ctx context.Context, tx *sql.Tx, statement, name, key string) (bool, error) {
	res, err := tx.ExecContext(ctx, statement, name, key)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

// IsCompleteTx runs the statement completed in a transaction of the application.
func IsCompleteTx(ctx context.Context, tx *sql.Tx, statement, name, key string) (bool, error) {
	var at int64
	err := tx.QueryRowContext(ctx, statement, name, key).Scan(&at)
	return at > 0, err
}
