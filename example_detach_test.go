package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/sqllock/sqllock"
)

// A request takes the lock and refuses a second one for the same order. A worker, which may
// be another process, does the work and gives the lock back.
func ExampleLease_Detach() {
	ctx := context.Background()
	_, locks, closeAll := stock(ctx)
	defer closeAll()
	jobs := make(chan string, 1) // in production a queue of jobs; the texts in it are secrets

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease, err := locks.TryLock(r.Context(), "ship/order-7")
		if errors.Is(err, sqllock.ErrHeld) {
			http.Error(w, "the order is being shipped already", http.StatusConflict)
			return
		}
		if err != nil {
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		defer func() { _ = lease.Unlock(r.Context()) }() // it does nothing after Detach
		handover, err := lease.Detach(r.Context())
		if err != nil {
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		jobs <- handover
		w.WriteHeader(http.StatusAccepted)
	}))
	defer server.Close()
	ship := func() {
		res, err := http.Post(server.URL, "", http.NoBody)
		if err != nil {
			log.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		fmt.Println(res.StatusCode)
	}

	ship()
	ship()                                  // nobody has adopted the first one yet
	lease, err := locks.Adopt(ctx, <-jobs)  // the worker, within the TTL
	if errors.Is(err, sqllock.ErrNotHeld) { // it came too late, or another worker has it
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("shipped under", lease.Name())
	fmt.Println(lease.Unlock(ctx))
	ship()
	// Output:
	// 202
	// 409
	// shipped under ship/order-7
	// <nil>
	// 202
}
