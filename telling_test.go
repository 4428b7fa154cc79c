package sqllock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
)

// telling is a database that tells waiters of their turn, when tell is called.
type telling struct {
	*fake
	tell atomic.Value // func(driver.ID)
}

func (s *telling) Listen(ctx context.Context, heard func(driver.ID)) error {
	s.tell.Store(heard)
	heard(driver.ID{})
	<-ctx.Done()
	return ctx.Err()
}

// newTelling makes a Locker that neither looks nor asks soon by itself, and a plain one.
func newTelling(t *testing.T) (*telling, *bench, *bench) {
	t.Helper()
	db := &telling{fake: newFake()}
	slow := &sqllock.UniqueOptions{RetryMin: time.Second, RetryMax: time.Second}
	return db, newBenchOn(t, db, db.fake, slow), newBench(t, db.fake, nil)
}

func TestAWaiterThatIsToldOfItsTurnDoesNotLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, b, other := newTelling(t)
		defer b.close()
		defer other.close()
		lease := other.lock("a")
		next := standing(t, b, t.Context(), "a")
		time.Sleep(5 * time.Second)
		looks := db.count("look")
		time.Sleep(time.Minute)
		if n := db.count("look") - looks; n != 0 {
			t.Errorf("it looked %d times in a minute", n)
		}
		other.unlock(lease)
		db.tell.Load().(func(driver.ID))(db.row("a").acq)
		b.unlock(<-next)
	})
}

func TestAReaderIsToldOfItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, b, other := newTelling(t)
		defer b.close()
		defer other.close()
		lease := other.lock("a")
		got := make(chan *sqllock.Lease, 1)
		go func() {
			reader, err := b.RLock(t.Context(), "a")
			if err != nil {
				t.Errorf("RLock: %v", err)
			}
			got <- reader
		}()
		time.Sleep(10 * time.Second)
		other.unlock(lease)
		began := time.Now()
		for acq := range db.row("a").readers {
			db.tell.Load().(func(driver.ID))(acq)
		}
		b.unlock(<-got)
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}
