package locktest_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/locktest"
)

// The code below is what docs/testing.md shows.

// biller is the code that is tested.
type biller struct {
	locks *sqllock.Locker
	print func(ctx context.Context) error // the slow part
}

func (b *biller) run(ctx context.Context) error {
	return b.locks.Do(ctx, "billing", func(ctx context.Context, lease *sqllock.Lease) error {
		if err := b.print(ctx); err != nil {
			return err
		}
		return lease.InTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO invoice VALUES ('printed')`)
			return err
		})
	})
}

func newTable(t *testing.T, d *locktest.Database) {
	t.Helper()
	if _, err := d.DB().ExecContext(t.Context(), `CREATE TABLE invoice (state TEXT)`); err != nil {
		t.Fatal(err)
	}
}

func TestBillingStopsWhenItsLeaseIsLost(t *testing.T) {
	d := locktest.NewDatabase(t)
	newTable(t, d)
	b := &biller{d.Locker(nil), func(ctx context.Context) error {
		d.Lose("billing")
		<-ctx.Done() // what the real print must do
		return ctx.Err()
	}}
	if err := b.run(t.Context()); !errors.Is(err, sqllock.ErrLost) {
		t.Errorf("run: %v, want a loss", err)
	}
}

func TestALateInvoiceIsRefused(t *testing.T) {
	d := locktest.NewDatabase(t)
	newTable(t, d)
	b := &biller{d.Locker(nil), func(ctx context.Context) error {
		d.Expire("billing") // as if this process had been paused
		next := &biller{d.Locker(nil), func(context.Context) error { return nil }}
		return next.run(context.WithoutCancel(ctx))
	}}
	if err := b.run(t.Context()); !errors.Is(err, sqllock.ErrFenced) {
		t.Errorf("run: %v, want that it is fenced", err)
	}
}

func TestBillingWaitsForTheDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := locktest.NewDatabase(t)
		newTable(t, d)
		b := &biller{d.Locker(nil), func(context.Context) error { return nil }}
		d.Down()
		time.AfterFunc(time.Minute, d.Up)
		if err := b.run(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestBillingMayTakeAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := locktest.NewDatabase(t)
		newTable(t, d)
		b := &biller{d.Locker(nil), func(context.Context) error {
			time.Sleep(time.Hour) // at once, with some hundred renewals
			return nil
		}}
		if err := b.run(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestTheCodeOfTheDocumentIsTested(t *testing.T) {
	source, err := os.ReadFile("docs_test.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 5 {
		t.Errorf("the document has %d blocks", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(string(source), b[1]) {
			t.Errorf("this is not in docs_test.go:\n%s", b[1])
		}
	}
}
