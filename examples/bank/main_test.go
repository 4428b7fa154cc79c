package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/examples/internal/demo"
	"github.com/sqllock/sqllock/locksqlite"
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
