package main

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/sqllock/sqllock/examples/internal/demo"
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
