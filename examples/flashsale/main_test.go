package main

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/sqllock/sqllock/examples/internal/demo"
	"github.com/sqllock/sqllock/locktest"
)

func TestAFormerHolderCannotSell(t *testing.T) {
	e := demo.Example{Workers: 2, Tables: tables, Run: func(ctx context.Context, d *demo.Demo) (string, error) {
		payment := d.Meeting(2)
		err := demo.Together(ctx, 2, func(ctx context.Context, i int) error {
			s := &shop{d.Workers[i], payment}
			if i == 0 {
				err := s.sell(ctx, "concert", 1, 5)
				if !errors.Is(err, errLate) {
					t.Errorf("sold with a token that is too low: %v, want %v", err, errLate)
				}
				return nil
			}
			for token := int64(0); token != 5; { // until the former holder has read
				if err := d.DB.QueryRowContext(ctx, `SELECT token FROM event`).Scan(&token); err != nil {
					return err
				}
			}
			return s.sell(ctx, "concert", 2, 7)
		})
		if err != nil {
			return "", err
		}
		return count(ctx, d.DB)
	}}
	// Unsafe: a meeting has the patience that this takes.
	if _, err := e.Start(t.Context(), demo.Options{Unsafe: true}, io.Discard); err != nil {
		t.Error(err)
	}
}

// A shop that is paused during the payment believes that it has the lock.
func TestAPausedShopCannotSell(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d := locktest.NewDatabase(t)
	db := demo.OnSQLite(d.DB())
	if err := db.Make(ctx, tables); err != nil {
		t.Fatal(err)
	}
	payment := (&demo.Demo{Unsafe: true}).Meeting(2) // which takes until the test comes, too
	paused := &shop{&demo.Worker{DB: db, Locks: d.Locker(nil)}, payment}
	other := &shop{&demo.Worker{DB: db, Locks: d.Locker(nil)}, new(demo.Demo).Meeting(1)}
	result := make(chan error, 1)
	go func() { result <- paused.buy(ctx, "concert", 1) }()
	for token := int64(0); token == 0; time.Sleep(time.Millisecond) { // until it has the lock
		if err := db.QueryRowContext(ctx, `SELECT token FROM event`).Scan(&token); err != nil {
			t.Fatal(err)
		}
	}
	d.Expire("event/concert")
	if err := other.buy(ctx, "concert", 2); err != nil {
		t.Fatal(err)
	}
	if err := payment.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-result; !errors.Is(err, errLate) {
		t.Errorf("the paused shop: %v, want %v", err, errLate)
	}
	if text, err := count(ctx, db); err != nil || text != "of 10 seats 1 were sold, and 9 are said to be left" {
		t.Errorf("%s, %v", text, err)
	}
}
