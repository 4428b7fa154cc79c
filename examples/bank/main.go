// Command bank withdraws from accounts and transfers between them, in several branches
// at the same time. Every posting reads balances, waits for an external check, and writes
// new balances.
//
//	go run ./examples/bank [--unsafe] [--dsn postgres://user@localhost/app]
package main

import (
	"context"
	"database/sql"
	"errors"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/examples/internal/demo"
)

func main() {
	demo.Main(demo.Example{
		About: `Withdraws 80 from an account with 100 at three places at once, then transfers
between two accounts in both directions. With the lock, no account goes below
zero and every balance is the sum of its account's postings.
`,
		Workers: branches,
		Tables:  tables,
		Run:     run,
	})
}

var tables = []string{
	`CREATE TABLE account (name VARCHAR(20) PRIMARY KEY, balance BIGINT NOT NULL, token BIGINT NOT NULL)`,
	`CREATE TABLE posting (account VARCHAR(20) NOT NULL, amount BIGINT NOT NULL)`,
	`INSERT INTO account VALUES ('anna', 100, 0), ('ben', 1000, 0), ('carla', 1000, 0)`,
	`INSERT INTO posting VALUES ('anna', 100), ('ben', 1000), ('carla', 1000)`,
}

const (
	branches = 3 // where the bank works
	rounds   = 3 // of transfers
)

func run(ctx context.Context, d *demo.Demo) (string, error) {
	if err := withdrawals(ctx, d); err != nil {
		return "", err
	}
	if err := transfers(ctx, d); err != nil {
		return "", err
	}
	return audit(ctx, d.DB)
}

// withdrawals takes 80 from Anna's 100 at each place.
func withdrawals(ctx context.Context, d *demo.Demo) error {
	check := d.Meeting(branches)
	return demo.Together(ctx, branches, func(ctx context.Context, i int) error {
		b := &bank{d.Workers[i], check}
		err := b.withdraw(ctx, "anna", 80)
		if errors.Is(err, errTooLittle) {
			return nil // as it should be at all places but one
		}
		return err
	})
}

// transfers moves 10 from Ben to Carla and 20 back, while Carla withdraws 5, all at
// the same time and at each place, several times.
func transfers(ctx context.Context, d *demo.Demo) error {
	check := d.Meeting(3 * branches)
	for range rounds {
		err := demo.Together(ctx, 3*branches, func(ctx context.Context, i int) error {
			b := &bank{d.Workers[i%branches], check}
			switch i / branches {
			case 0:
				return b.transfer(ctx, "ben", "carla", 10)
			case 1:
				return b.transfer(ctx, "carla", "ben", 20)
			}
			return b.withdraw(ctx, "carla", 5)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// bank is one of the places.
type bank struct {
	*demo.Worker
	check *demo.Meeting // of the posting, by the fraud department
}

var (
	errTooLittle = errors.New("there is too little on the account")
	errSame      = errors.New("both are the same account")
	errLate      = errors.New("somebody else has the lock by now")
)

// withdraw takes money from an account if there is enough.
func (b *bank) withdraw(ctx context.Context, account string, amount int) error {
	c := change{account: account, amount: -amount}
	if b.Locks == nil {
		return b.post(ctx, c)
	}
	return b.Locks.Do(ctx, c.lock(), func(ctx context.Context, lease *sqllock.Lease) error {
		c.token = lease.Token()
		return b.post(ctx, c)
	})
}

// transfer moves money from one account to another.
//
// It locks both accounts together. If it locked one after the other, a transfer from Ben to
// Carla could hold Ben and wait for Carla, while another from Carla to Ben holds Carla and
// waits for Ben. Then the later one would get sqllock.ErrDeadlock and have to begin again.
func (b *bank) transfer(ctx context.Context, from, to string, amount int) (err error) {
	if from == to {
		return errSame
	}
	x, y := change{account: from, amount: -amount}, change{account: to, amount: amount}
	if x.account > y.account { // the order in which the transaction writes
		x, y = y, x
	}
	if b.Locks == nil {
		return b.post(ctx, x, y)
	}
	leases, err := b.Locks.LockAll(ctx, []string{x.lock(), y.lock()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leases.Unlock(ctx)) }()
	ctx, cancel := leases.Bind(ctx)
	defer cancel()
	x.token, y.token = leases.Token(x.lock()), leases.Token(y.lock())
	return b.post(ctx, x, y)
}

// A change is a change of the balance of an account.
type change struct {
	account string
	amount  int
	token   int64 // of the lock on the account; 0 without
}

func (c change) lock() string { return "account/" + c.account }

// post makes all of the changes or, with an error, none. The caller holds the locks.
//
// A lock only excludes other holders. The transaction writes all changes or none, even if
// this process dies. The token refuses the writes of a process that was paused until
// another one got the lock. A transaction that stays open during the check would block
// other clients and use a connection.
func (b *bank) post(ctx context.Context, changes ...change) error {
	balances := make([]int, len(changes))
	for i, c := range changes {
		var err error
		if balances[i], err = b.balance(ctx, c); err != nil {
			return err
		}
		if balances[i] += c.amount; balances[i] < 0 {
			return errTooLittle
		}
	}
	if err := b.check.Wait(ctx); err != nil {
		return err
	}
	return b.DB.InTx(ctx, func(tx *demo.Tx) error {
		for i, c := range changes {
			result, err := tx.ExecContext(ctx, `UPDATE account SET balance = ? WHERE name = ? AND token = ?`,
				balances[i], c.account, c.token)
			if err := one(result, err); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, `INSERT INTO posting VALUES (?, ?)`, c.account, c.amount); err != nil {
				return err
			}
		}
		return nil
	})
}

// balance reads the balance of an account. From now on, former holders of its lock cannot
// write to it.
func (b *bank) balance(ctx context.Context, c change) (balance int, err error) {
	result, err := b.DB.ExecContext(ctx, `UPDATE account SET token = ? WHERE name = ? AND token <= ?`,
		c.token, c.account, c.token)
	if err := one(result, err); err != nil {
		return 0, err
	}
	err = b.DB.QueryRowContext(ctx, `SELECT balance FROM account WHERE name = ?`, c.account).Scan(&balance)
	return balance, err
}

// one checks that an UPDATE has found its row.
func one(result sql.Result, err error) error {
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); n != 1 || err != nil {
		return errors.Join(errLate, err)
	}
	return nil
}
