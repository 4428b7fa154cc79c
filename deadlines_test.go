package sqllock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
)

func TestCallsThatComeSoonAfterEachOtherShareADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base, end := context.WithCancel(t.Context())
		defer end()
		const left, early = time.Second, 100 * time.Millisecond
		var d sqllock.Deadlines
		borrow := func() (context.Context, func()) { return d.Borrow(base, time.Now().Add(left), early) }
		a, giveBackA := borrow()
		time.Sleep(early)
		b, giveBackB := borrow()
		if a != b {
			t.Error("two calls have contexts of their own")
		}
		time.Sleep(time.Millisecond)
		c, giveBackC := borrow()
		if c == a {
			t.Errorf("a call has a context that ends more than %v early", early)
		}
		giveBackA()
		if b.Err() != nil {
			t.Error("a context ends although a call uses it")
		}
		giveBackB()
		if b.Err() == nil {
			t.Error("a context goes on although no call uses it")
		}
		giveBackC()
		e, giveBackE := borrow()
		if e != c {
			t.Error("a context is not used again")
		}
		time.Sleep(left + time.Millisecond)
		if e.Err() != context.DeadlineExceeded {
			t.Errorf("after its deadline the error of a context is %v", e.Err())
		}
		giveBackE()
		f, giveBackF := d.Borrow(base, time.Now().Add(left), 0)
		g, giveBackG := d.Borrow(context.Background(), time.Now().Add(left), early)
		if f == g {
			t.Error("calls with different bases share a context")
		}
		giveBackG()
		end()
		if f.Err() == nil {
			t.Error("a context goes on after its base")
		}
		giveBackF()
	})
}
