package rowstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestVisitsOfOneNameFollowEachOther(t *testing.T) {
	v := newVisitOrder()
	var inside, visits atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				end, err := v.begin(t.Context(), "name")
				if err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) != 1 {
					t.Error("two visits of one name at a time")
				}
				inside.Add(-1)
				visits.Add(1)
				end()
			}
		})
	}
	wg.Wait()
	if visits.Load() != 800 || len(v.names) != 0 {
		t.Errorf("%d visits; %d names are left", visits.Load(), len(v.names))
	}
}

func TestAVisitThatCannotBeginInTimeHasDoneNothing(t *testing.T) {
	v := newVisitOrder()
	end, err := v.begin(t.Context(), "name")
	if err != nil {
		t.Fatal(err)
	}
	other, err := v.begin(t.Context(), "another name")
	if err != nil {
		t.Fatal(err)
	}
	other()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := v.begin(ctx, "name"); !errors.Is(err, ErrLocked) {
		t.Errorf("while another visit goes on: %v", err)
	}
	end()
	if end, err = v.begin(t.Context(), "name"); err != nil {
		t.Fatal(err)
	}
	end()
	if len(v.names) != 0 {
		t.Errorf("%d names are left", len(v.names))
	}
}
