package queuetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/driver"
)

// directTests call a store without a retrier.
var directTests = map[string]func(*testing.T, *suite, string){
	// The machine may be late for some of the requests, and then they are to be sent again.
	"a database that nobody else uses answers a first request": func(t *testing.T, s *suite, name string) {
		store := s.store.(*retrier).Store
		acquire := func(reqs ...driver.AcquireRequest) error {
			_, err := store.Acquire(t.Context(), reqs)
			return err
		}
		release := func(h held) error {
			_, err := store.Release(t.Context(), []driver.ReleaseRequest{h.release()})
			return err
		}
		revoke := func(name string) error {
			_, err := store.Revoke(t.Context(), []driver.RevokeRequest{{Name: name}})
			return err
		}
		for what, request := range map[string]func(name string) error{
			"a new name":              func(name string) error { return acquire(atOnce(writer(name))) },
			"a new name shared":       func(name string) error { return acquire(atOnce(reader(name))) },
			"several new names":       func(name string) error { return acquire(atOnce(writer(name)), atOnce(writer(name+"-2"))) },
			"the queue of a new name": func(name string) error { return acquire(writer(name)) },
			"a name that was released": func(name string) error {
				end(t, s.store, s.take(t, writer(name)))
				return acquire(atOnce(writer(name)))
			},
			"a name that is held": func(name string) error {
				s.take(t, writer(name))
				return acquire(atOnce(writer(name)))
			},
			"the queue of a name that is held": func(name string) error {
				s.take(t, writer(name))
				return acquire(writer(name))
			},
			"a release":             func(name string) error { return release(s.take(t, writer(name))) },
			"a release of a reader": func(name string) error { return release(s.take(t, reader(name))) },
			"a hand-over": func(name string) error {
				h := s.take(t, writer(name))
				wait(t, s.other, writer(name), 0)
				return release(h)
			},
			"a revocation": func(name string) error {
				s.take(t, writer(name))
				return revoke(name)
			},
			"a revocation before a waiter": func(name string) error {
				s.take(t, writer(name))
				wait(t, s.other, writer(name), 0)
				return revoke(name)
			},
		} {
			var err error
			for try := range 5 {
				err = request(fmt.Sprintf("%s-%s-%d", name, strings.ReplaceAll(what, " ", "-"), try))
				if err == nil || s.Classify(err) != driver.Again {
					break
				}
			}
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	},
}
