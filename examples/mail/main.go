// Command mail sends the mails of an outbox, which three workers look at.
//
//	go run ./examples/mail [--unsafe] [--dsn postgres://user@localhost/app]
package main

import (
	"context"
	"fmt"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/examples/internal/demo"
)

const workers = 3

func main() {
	demo.Main(demo.Example{
		About: `Sends the five mails of an outbox, which three workers look at. With the lock,
each is sent once.
`,
		Workers: workers,
		Tables:  tables,
		Run:     run,
	})
}

var tables = []string{
	`CREATE TABLE outbox (id BIGINT PRIMARY KEY, sent BIGINT NOT NULL)`,
	`INSERT INTO outbox VALUES (1, 0), (2, 0), (3, 0), (4, 0), (5, 0)`,
	`CREATE TABLE delivery (mail BIGINT NOT NULL)`, // the work of the mail server
}

func run(ctx context.Context, d *demo.Demo) (string, error) {
	server := d.Meeting(workers)
	err := demo.Together(ctx, workers, func(ctx context.Context, i int) error {
		m := &mailer{d.Workers[i], server}
		return m.sendAll(ctx)
	})
	if err != nil {
		return "", err
	}
	return count(ctx, d.DB)
}

// mailer is one of the workers.
type mailer struct {
	*demo.Worker
	server *demo.Meeting // the time that the mail server takes
}

// sendAll sends the mails that have not been sent. It skips mails that another worker is
// sending: if that worker fails, the next call finds them again.
func (m *mailer) sendAll(ctx context.Context) error {
	ids, err := m.unsent(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if m.Locks == nil {
			err = m.send(ctx, id)
		} else {
			_, err = m.Locks.TryDo(ctx, fmt.Sprint("mail/", id), func(ctx context.Context, _ *sqllock.Lease) error {
				return m.send(ctx, id)
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// send sends a mail unless that has been done. The caller holds the lock.
//
// It reads the row again, because since the list was read another worker may have sent
// the mail and released the lock.
//
// Sending and marking are two steps. If a worker crashes in between, or is paused there
// for longer than its lease lasts, the mail will be sent again. Marking it before would
// turn "perhaps twice" into "perhaps never". A server that drops duplicates makes it
// exactly once: give it the id of the mail as the Message-ID, not a new id for each try.
func (m *mailer) send(ctx context.Context, id int) error {
	var sent int
	if err := m.DB.QueryRowContext(ctx, `SELECT sent FROM outbox WHERE id = ?`, id).Scan(&sent); err != nil {
		return err
	}
	if sent != 0 {
		return nil
	}
	if err := m.deliver(ctx, id); err != nil {
		return err
	}
	_, err := m.DB.ExecContext(ctx, `UPDATE outbox SET sent = 1 WHERE id = ?`, id)
	return err
}

// deliver is the mail server.
func (m *mailer) deliver(ctx context.Context, id int) error {
	if err := m.server.Wait(ctx); err != nil {
		return err
	}
	_, err := m.DB.ExecContext(ctx, `INSERT INTO delivery VALUES (?)`, id)
	return err
}

func (m *mailer) unsent(ctx context.Context) (ids []int, err error) {
	rows, err := m.DB.QueryContext(ctx, `SELECT id FROM outbox WHERE sent = 0 ORDER BY id`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id int
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// count looks whether each mail was delivered once.
func count(ctx context.Context, db *demo.DB) (string, error) {
	var mails, once, deliveries int
	err := db.QueryRowContext(ctx, `
SELECT count(*),
       sum(CASE WHEN times = 1 THEN 1 ELSE 0 END),
       sum(times)
FROM (SELECT (SELECT count(*) FROM delivery AS d WHERE d.mail = o.id) AS times FROM outbox AS o) AS t`).
		Scan(&mails, &once, &deliveries)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("%d mails, %d deliveries, %d mails were delivered once", mails, deliveries, once)
	if once != mails {
		return "", demo.Wrong("%s", text)
	}
	return text, nil
}
