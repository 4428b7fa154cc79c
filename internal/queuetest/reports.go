package queuetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// reportTests are about what clients hear beside the results of their calls.
var reportTests = map[string]func(*testing.T, *suite, string){
	"each of several readers that have crashed is reported": func(t *testing.T, s *suite, name string) {
		c := s.client(t)
		a, b, d := s.take(t, reader(name)), s.take(t, reader(name)), s.take(t, reader(name))
		for _, h := range []held{a, b, d} {
			s.expire(t, h)
		}
		w := enter(t, c.store, writer(name))
		c.heard(t, name, w.Crashed, a, b, d)
		end(t, c.store, w)
	},

	"a release reports readers that have crashed": func(t *testing.T, s *suite, name string) {
		c := s.client(t)
		dead, a, w := s.take(t, reader(name)), enter(t, c.store, reader(name)), writer(name)
		wait(t, s.store, w, 0)
		s.expire(t, dead)
		end(t, c.store, a)
		c.heard(t, name, driver.Holder{}, dead)
		if h := has(t, s.store, w, handed); h.Crashed != (driver.Holder{}) {
			t.Errorf("the crash was reported again: %+v", h.Crashed)
		}
	},

	"a request that is withdrawn reports readers that have crashed": func(t *testing.T, s *suite, name string) {
		c := s.client(t)
		dead, w, b := s.take(t, reader(name)), writer(name), reader(name)
		s.take(t, reader(name))
		wait(t, c.store, w, 0)
		wait(t, s.store, b, 1)
		s.expire(t, dead)
		abandon(t, c.store, w)
		c.heard(t, name, driver.Holder{}, dead)
		has(t, s.store, b, handed)
	},

	"what a sweep returns is not reported beside": func(t *testing.T, s *suite, name string) {
		c := s.client(t)
		a := s.take(t, reader(name))
		s.expire(t, a)
		res, err := c.store.Sweep(t.Context(), driver.SweepRequest{Limit: 10_000, Retention: hour})
		if err != nil || !slices.ContainsFunc(res.Crashed, func(c driver.Crash) bool { return c.Holder.Acq == a.Acq }) {
			t.Errorf("%+v, %v", res, err)
		}
		c.heard(t, name, driver.Holder{})
	},
}

// pushTests are for databases that tell waiters of their turn.
var pushTests = map[string]func(*testing.T, *suite, string){
	"a waiter that is served by another call of its own client hears of it": func(t *testing.T, s *suite, name string) {
		hears := listen(t, s.store)
		first, a, b := s.take(t, writer(name)), writer(name), writer(name)
		wait(t, s.store, a, 0)
		wait(t, s.store, b, 1)
		s.expire(t, first)
		s.lose(t, writer(name)) // serves a
		hears(a.Acq)
		abandon(t, s.store, a)
		hears(b.Acq)
	},
}

// listen makes a store listen until the test ends. hears waits until it is told of an
// acquisition.
func listen(t *testing.T, store driver.Store) (hears func(driver.ID)) {
	t.Helper()
	listener, ok := store.(*retrier).Store.(driver.Listener)
	if !ok {
		t.Fatal("the database does not push")
	}
	ctx, stop := context.WithCancel(t.Context())
	heard, done := make(chan driver.ID, 100), make(chan error, 1)
	go func() {
		done <- listener.Listen(ctx, func(acq driver.ID) { heard <- acq })
		close(done)
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	hears = func(want driver.ID) {
		t.Helper()
		late := time.After(10 * time.Second)
		for {
			select {
			case acq := <-heard:
				if acq == want {
					return
				}
			case err := <-done:
				t.Fatal(err)
			case <-late:
				t.Fatalf("it was not told of %v", want)
			}
		}
	}
	hears(driver.ID{}) // from now on
	return hears
}

// client is a client of its own, and what it was told.
type client struct {
	store   driver.Store
	crashes []driver.Crash
}

func (s *suite) client(t *testing.T) *client {
	c := new(client)
	c.store = s.openFor(t, driver.Client{Instance: newID(), Label: "test", Crashed: func(crash driver.Crash) {
		c.crashes = append(c.crashes, crash)
	}})
	return c
}

// heard checks which holders of a name have crashed, as the client was told by a result or
// apart from it: each once.
func (c *client) heard(t *testing.T, name string, result driver.Holder, want ...held) {
	t.Helper()
	var got []driver.Holder
	if result != (driver.Holder{}) {
		got = append(got, result)
	}
	for _, crash := range c.crashes {
		if crash.Name == name {
			got = append(got, crash.Holder)
		}
	}
	wrong := len(got) != len(want)
	for _, h := range want {
		wrong = wrong || !slices.ContainsFunc(got, func(g driver.Holder) bool {
			return g.Acq == h.Acq && g.Owner == h.Owner && g.Version == h.Version && g.Shared == h.Shared && g.Label != ""
		})
	}
	if wrong {
		t.Errorf("crashed are %+v, want %+v", got, want)
	}
}
