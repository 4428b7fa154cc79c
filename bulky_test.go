package sqllock_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
)

// Values may be large: a statement with as many of them as there are names in others
// would be larger than servers take.
func TestFewRequestsWithAValueShareAStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const few = 16
		db := newFake()
		db.before = after("grant", 10*time.Millisecond)
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: time.Hour, MaxInFlight: 1})
		defer b.close()
		var wg sync.WaitGroup
		for i := range 5 * few {
			wg.Go(func() {
				lease, err := b.Lock(t.Context(), fmt.Sprint("name ", i), sqllock.Value([]byte("v")))
				if err != nil {
					t.Error(err)
					return
				}
				b.unlock(lease)
			})
		}
		wg.Wait()
		if n := db.largest["grant"]; n != few {
			t.Errorf("%d of them came in one statement, want %d", n, few)
		}
	})
}
