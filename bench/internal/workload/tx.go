package workload

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/bench/internal/contender"
	"github.com/sqllock/sqllock/bench/internal/report"
)

// Labels of how a cycle ends that writes under its lock.
const (
	inTx       = "@intx"       // InTx and then Unlock
	unlockInTx = "@unlockintx" // UnlockInTx
)

// What the holder writes.
var (
	createWritten = []string{
		`CREATE TABLE written (name VARCHAR(9) PRIMARY KEY, n BIGINT NOT NULL)`,
		`INSERT INTO written (name, n) VALUES ('it', 0)`,
	}
	write = `UPDATE written SET n = n + 1 WHERE name = 'it'`
)

// isOurUnique chooses this project's unique mode on each database.
func isOurUnique(c contender.Contender) bool {
	return strings.HasPrefix(c.Name, "sqllock/") && strings.HasSuffix(c.Name, "/unique")
}

// tx has one caller lock a name, write a row in a transaction that its lease guards, and
// unlock: after the transaction, or in it.
func (b *Bench) tx(ctx context.Context) error {
	list, err := b.entries(ctx, isOurUnique)
	if err != nil {
		return err
	}
	list = b.open(ctx, list)
	defer b.close(list)
	var all []*entry
	for _, e := range list {
		if err := create(ctx, e, createWritten); err != nil {
			return err
		}
		for _, label := range []string{inTx, unlockInTx} {
			v := e.variant(e.label+label, func(*contender.Site) {})
			v.client = writingClient{e.client, label}
			all = append(all, v)
		}
	}
	b.Say("writes under a lock")
	b.warmUp(ctx, all, 1)
	return eachRound(ctx, b, all, func(e *entry) {
		s, err := newLoop(e, 1, ownNames(1)).run(ctx, b.Round)
		b.note(e.key(report.Tx, 1), e.Durable, s, err)
	})
}

func create(ctx context.Context, e *entry, statements []string) error {
	db, err := contender.SQL(ctx, e.Server, e.site)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// writingClient writes before it unlocks.
type writingClient struct {
	contender.Client
	label string
}

func (c writingClient) Lock(ctx context.Context, caller int, name string) (contender.Lock, error) {
	lock, err := c.Client.Lock(ctx, caller, name)
	if err != nil {
		return nil, err
	}
	return writingLock{lock.(*sqllock.Lease), c.label}, nil
}

type writingLock struct {
	lease *sqllock.Lease
	label string
}

func (l writingLock) Unlock(ctx context.Context) error {
	if l.label == unlockInTx {
		return l.lease.UnlockInTx(ctx, nil, writeIt)
	}
	if err := l.lease.InTx(ctx, nil, writeIt); err != nil {
		return err
	}
	return l.lease.Unlock(ctx)
}

func writeIt(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, write)
	return err
}
