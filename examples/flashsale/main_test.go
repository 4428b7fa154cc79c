package main

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/sqllock/sqllock/examples/internal/demo"
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
