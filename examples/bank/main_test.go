package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/examples/internal/demo"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/locktest"
)

func TestAFormerHolderCannotPost(t *testing.T) {
	e := demo.Example{Workers: 2, Tables: tables, Run: func(ctx context.Context, d *demo.Demo) (string, error) {
		check := d.Meeting(2)
		former, holder := &bank{d.Workers[0], check}, &bank{d.Workers[1], check}
		err := demo.Together(ctx, 2, func(ctx context.Context, i int) error {
			if i == 0 {
				err := former.post(ctx, change{"ben", 10, 5})
				if !errors.Is(err, errLate) {
					t.Errorf("posted with a token that is too low: %v, want %v", err, errLate)
				}
				return nil
			}
			for token := int64(0); token != 5; { // until the former holder has read
				if err := d.DB.QueryRowContext(ctx, `SELECT token FROM account WHERE name = 'ben'`).Scan(&token); err != nil {
					return err
				}
			}
			if _, err := holder.balance(ctx, change{"ben", 20, 7}); err != nil {
				return err
			}
			return check.Wait(ctx)
		})
		if err != nil {
			return "", err
		}
		if _, err := former.balance(ctx, change{"ben", 10, 5}); !errors.Is(err, errLate) {
			t.Errorf("read with a token that is too low: %v, want %v", err, errLate)
		}
		return audit(ctx, d.DB)
	}}
	// Unsafe: a meeting has the patience that this takes.
	if _, err := e.Start(t.Context(), demo.Options{Unsafe: true}, io.Discard); err != nil {
		t.Error(err)
	}
}

func TestATransferToTheSameAccountIsRefused(t *testing.T) {
	if err := new(bank).transfer(t.Context(), "ben", "ben", 10); !errors.Is(err, errSame) {
		t.Errorf("got %v, want %v", err, errSame)
	}
}

func TestATransferLocksBothAccountsByOneStatement(t *testing.T) {
	e := demo.Example{Workers: 1, Tables: tables, Run: func(ctx context.Context, d *demo.Demo) (string, error) {
		var names []int // of each statement that acquires; the hooks run one by one
		w := d.Workers[0]
		locks, err := sqllock.NewUnique(ctx, locksqlite.DB(w.DB.DB), &sqllock.UniqueOptions{Hooks: &sqllock.Hooks{
			Statement: func(ev sqllock.StatementEvent) {
				if ev.Operation == "acquire" {
					names = append(names, ev.Requests)
				}
			},
		}})
		if err != nil {
			return "", err
		}
		b := &bank{&demo.Worker{DB: w.DB, Locks: locks}, d.Meeting(1)}
		err = errors.Join(b.transfer(ctx, "ben", "carla", 10), b.transfer(ctx, "carla", "ben", 10))
		if err := errors.Join(err, locks.Close(ctx)); err != nil { // after it all hooks have been called
			return "", err
		}
		if len(names) < 2 || slices.Min(names) != 2 { // a statement may have been repeated
			t.Errorf("two transfers acquire %v names, statement by statement; want two at a time", names)
		}
		return audit(ctx, d.DB)
	}}
	if _, err := e.Start(t.Context(), demo.Options{}, io.Discard); err != nil {
		t.Error(err)
	}
}

// A branch that is paused during the check believes that it has both locks.
func TestATransferOfAPausedBranchPostsNothing(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d := locktest.NewDatabase(t)
	db := demo.OnSQLite(d.DB())
	if err := db.Make(ctx, tables); err != nil {
		t.Fatal(err)
	}
	check := (&demo.Demo{Unsafe: true}).Meeting(2) // which takes until the test comes, too
	paused := &bank{&demo.Worker{DB: db, Locks: d.Locker(nil)}, check}
	other := &bank{&demo.Worker{DB: db, Locks: d.Locker(nil)}, new(demo.Demo).Meeting(1)}
	result := make(chan error, 1)
	go func() { result <- paused.transfer(ctx, "ben", "carla", 10) }()
	for locked := 0; locked < 2; time.Sleep(time.Millisecond) { // until it has read both accounts
		if err := db.QueryRowContext(ctx, `SELECT count(*) FROM account WHERE token > 0`).Scan(&locked); err != nil {
			t.Fatal(err)
		}
	}
	d.Expire("account/carla")
	if err := other.withdraw(ctx, "carla", 5); err != nil {
		t.Fatal(err)
	}
	if err := check.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-result; !errors.Is(err, errLate) {
		t.Errorf("the paused branch: %v, want %v", err, errLate)
	}
	if text, err := audit(ctx, db); err != nil {
		t.Errorf("%s: %v", text, err)
	}
	var postings int
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM posting WHERE account = 'ben' AND amount = -10`).Scan(&postings); err != nil || postings != 0 {
		t.Errorf("%d postings of the paused branch: %v", postings, err)
	}
}
