// Command flashsale sells ten tickets to thirty buyers. They come to three shops at the
// same time.
//
//	go run ./examples/flashsale [--unsafe] [--dsn postgres://user@localhost/app]
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/examples/internal/demo"
)

const (
	shops  = 3
	buyers = 30
)

func main() {
	demo.Main(demo.Example{
		About: `Sells ten tickets to thirty buyers, who all come at once to three shops. With
the lock, ten are sold.
`,
		Workers: shops,
		Tables:  tables,
		Run:     run,
	})
}

var tables = []string{
	`CREATE TABLE event (name VARCHAR(20) PRIMARY KEY, seats BIGINT NOT NULL, unsold BIGINT NOT NULL, token BIGINT NOT NULL)`,
	`CREATE TABLE ticket (event VARCHAR(20) NOT NULL, buyer BIGINT NOT NULL)`,
	`INSERT INTO event VALUES ('concert', 10, 10, 0)`,
}

func run(ctx context.Context, d *demo.Demo) (string, error) {
	payment := d.Meeting(buyers)
	err := demo.Together(ctx, buyers, func(ctx context.Context, buyer int) error {
		s := &shop{d.Workers[buyer%shops], payment}
		err := s.buy(ctx, "concert", buyer)
		if errors.Is(err, errSoldOut) {
			return nil // expected for the last buyers
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return count(ctx, d.DB)
}

// shop is one of those that sell.
type shop struct {
	*demo.Worker
	payment *demo.Meeting // with the buyer's bank
}

var (
	errSoldOut = errors.New("sold out")
	errLate    = errors.New("somebody else has the lock by now")
)

// buy sells a ticket if there is one left.
func (s *shop) buy(ctx context.Context, event string, buyer int) error {
	if s.Locks == nil {
		return s.sell(ctx, event, buyer, 0)
	}
	return s.Locks.Do(ctx, "event/"+event, func(ctx context.Context, lease *sqllock.Lease) error {
		return s.sell(ctx, event, buyer, lease.Token())
	})
}

// sell takes the payment and issues the ticket. The caller holds the lock, with the
// token.
//
// Without the payment no lock would be needed: UPDATE … SET unsold = unsold - 1 WHERE
// unsold > 0 sells in one statement. But a buyer who has paid must get a ticket, and a
// transaction that is open while the bank works would hold a row and a connection for
// that time.
func (s *shop) sell(ctx context.Context, event string, buyer int, token int64) error {
	// From now on, former holders of the lock cannot sell, even a process that was paused
	// and has not noticed its loss.
	if err := one(s.DB.ExecContext(ctx, `UPDATE event SET token = ? WHERE name = ? AND token <= ?`,
		token, event, token)); err != nil {
		return err
	}
	var unsold int
	if err := s.DB.QueryRowContext(ctx, `SELECT unsold FROM event WHERE name = ?`, event).Scan(&unsold); err != nil {
		return err
	}
	if unsold == 0 {
		return errSoldOut
	}
	if err := s.payment.Wait(ctx); err != nil {
		return err
	}
	return s.DB.InTx(ctx, func(tx *demo.Tx) error {
		if err := one(tx.ExecContext(ctx, `UPDATE event SET unsold = ? WHERE name = ? AND token = ?`,
			unsold-1, event, token)); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO ticket VALUES (?, ?)`, event, buyer)
		return err
	})
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

// count looks whether no more was sold than there was, and nothing is missing.
func count(ctx context.Context, db *demo.DB) (string, error) {
	var seats, unsold, sold int
	err := db.QueryRowContext(ctx, `
SELECT seats, unsold, (SELECT count(*) FROM ticket) FROM event`).Scan(&seats, &unsold, &sold)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("of %d seats %d were sold, and %d are said to be left", seats, sold, unsold)
	if sold > seats || sold+unsold != seats {
		return "", demo.Wrong("%s", text)
	}
	return text, nil
}
