package main

import (
	"context"
	"errors"
	"testing"

	"github.com/sqllock/sqllock/examples/internal/demo"
	"github.com/sqllock/sqllock/locktest"
)

// onOutbox returns a database with the outbox, and mailers on it that are as separate as processes.
func onOutbox(t *testing.T) (d *locktest.Database, mailers []*mailer) {
	t.Helper()
	d = locktest.NewDatabase(t)
	db := demo.OnSQLite(d.DB())
	if err := db.Make(t.Context(), tables); err != nil {
		t.Fatal(err)
	}
	for range workers {
		mailers = append(mailers, &mailer{&demo.Worker{DB: db, Locks: d.Locker(nil)}, new(demo.Demo).Meeting(workers)})
	}
	return d, mailers
}

// delivered returns how many mails were delivered, and how often.
func delivered(t *testing.T, m *mailer) (mails, deliveries int) {
	t.Helper()
	row := m.DB.QueryRowContext(t.Context(), `SELECT count(DISTINCT mail), count(*) FROM delivery`)
	if err := row.Scan(&mails, &deliveries); err != nil {
		t.Fatal(err)
	}
	return mails, deliveries
}

func TestEachMailIsDeliveredOnce(t *testing.T) {
	_, all := onOutbox(t)
	err := demo.Together(t.Context(), workers, func(ctx context.Context, i int) error { return all[i].sendAll(ctx) })
	if mails, deliveries := delivered(t, all[0]); err != nil || mails != 5 || deliveries != 5 {
		t.Errorf("%d mails were delivered, %d times: %v", mails, deliveries, err)
	}
}

func TestAMailThatAnotherWorkerIsSendingIsPassedOver(t *testing.T) {
	d, all := onOutbox(t)
	lease, err := d.Locker(nil).TryLock(t.Context(), "mail/3")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{4, 5} {
		if err := all[0].sendAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		if mails, deliveries := delivered(t, all[0]); mails != want || deliveries != want {
			t.Errorf("%d mails were delivered, %d times; want %d", mails, deliveries, want)
		}
		if want == 4 { // the other worker fails
			if err := lease.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestMailsAreSentAfterTheDatabaseWasUnreachable(t *testing.T) {
	d, all := onOutbox(t)
	d.Down()
	if err := all[0].sendAll(t.Context()); !errors.Is(err, locktest.ErrDown) {
		t.Errorf("sendAll: %v", err)
	}
	d.Up()
	if err := all[1].sendAll(t.Context()); err != nil {
		t.Error(err)
	}
	if mails, deliveries := delivered(t, all[0]); mails != 5 || deliveries != 5 {
		t.Errorf("%d mails were delivered, %d times", mails, deliveries)
	}
}
