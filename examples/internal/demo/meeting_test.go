package demo_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/examples/internal/demo"
)

func TestWithoutTheLockAllWorkersMeet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := demo.Demo{Unsafe: true}
		m := d.Meeting(3)
		for range 2 { // it may be used again
			began := time.Now()
			err := demo.Together(t.Context(), 3, func(ctx context.Context, i int) error {
				time.Sleep(time.Duration(i) * time.Second)
				err := m.Wait(ctx)
				if took := time.Since(began); took != 2*time.Second {
					t.Errorf("number %d went on after %v, want 2s", i, took)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
}

func TestWithTheLockWorkersDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d demo.Demo
		m := d.Meeting(2)
		for range 3 {
			began := time.Now()
			if err := m.Wait(t.Context()); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took == 0 || took > time.Second {
				t.Errorf("waited %v alone", took)
			}
		}
	})
}

func TestAMeetingEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := demo.Demo{Unsafe: true}
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(enough) })
		if err := d.Meeting(2).Wait(ctx); !errors.Is(err, enough) {
			t.Errorf("got %v, want %v", err, enough)
		}
	})
}
