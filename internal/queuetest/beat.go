package queuetest

import (
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// beatTests are about Lockers that live and die.
var beatTests = map[string]func(*testing.T, *suite, string){
	"claims of dead Lockers are passed over, and keep their place for when a beat comes back": func(t *testing.T, s *suite, name string) {
		first, a, b, c, d := s.take(t, writer(name)), writer(name), writer(name), writer(name), writer(name)
		one, two := s.open(t), s.open(t)
		wait(t, one, a, 0)
		wait(t, two, b, 1)
		wait(t, s.store, c, 1)
		s.die(t, a, b)
		wait(t, s.store, c, 0)
		second := pass(t, s.store, first, c)[0]
		if n := s.claims(t, name); n != 2 {
			t.Errorf("%d claims are left", n)
		}
		wait(t, s.store, d, 0)
		s.revive(t, a)
		wait(t, s.store, d, 1)
		wait(t, one, a, 0)
		end(t, s.store, second) // b is dead as yet
		third := has(t, one, a, handed)
		s.revive(t, b)
		end(t, one, third)
		end(t, two, has(t, two, b, handed))
		has(t, s.store, d, handed)
	},

	"a waiter whose claim was swept goes to the end of the queue": func(t *testing.T, s *suite, name string) {
		first, a, b := s.take(t, writer(name)), writer(name), writer(name)
		wait(t, s.open(t), a, 0)
		s.forget(t, a)
		s.sweep(t)
		wait(t, s.store, b, 0)
		again := s.open(t)
		wait(t, again, a, 1)
		second := pass(t, s.store, first, b)[0]
		end(t, s.store, second)
		has(t, again, a, handed)
	},

	"when all who wait are dead the name is free": func(t *testing.T, s *suite, name string) {
		first, a := s.take(t, writer(name)), writer(name)
		enqueue(t, s.open(t), a, reader(name))
		s.die(t, a)
		end(t, s.store, first)
		if r := s.look(t, name); r.Held() {
			t.Errorf("%+v", r)
		}
		second := s.take(t, writer(name))
		s.lose(t, writer(name))
		end(t, s.store, second)
		s.release(t, true, s.take(t, reader(name)).release())
	},

	"a Locker without a beat dies, and comes back with its next request": func(t *testing.T, s *suite, name string) {
		const life = 400 * time.Millisecond
		first, a, b, third := s.take(t, writer(name)), writer(name), writer(name), s.open(t)
		a.Life = life
		wait(t, third, a, 0)
		for began := time.Now(); ; time.Sleep(life / 20) {
			r := enqueue(t, s.store, b)[0]
			if r.Ahead == 0 && r.Now < first.Now+life.Microseconds() {
				t.Fatalf("the claim was passed over after %v", time.Duration(r.Now-first.Now)*time.Microsecond)
			}
			if r.Ahead == 0 {
				break
			}
			if time.Since(began) > 20*life {
				t.Fatalf("a dead claim is in the way: %+v", r)
			}
		}
		a.Life = minute
		wait(t, third, a, 0)
		wait(t, s.store, b, 1)
	},

	"a beat keeps all claims of its Locker alive, and none shortens its life": func(t *testing.T, s *suite, name string) {
		const life = time.Second
		first, a, third := s.take(t, writer(name)), writer(name), s.open(t)
		second, b := s.take(t, writer(name+"2")), writer(name+"2")
		a.Life, b.Life = minute, life
		enqueue(t, third, a, b)
		wait(t, s.other, writer(name), 1)
		a.Life = life
		wait(t, third, a, 0)
		for s.grant(t, writer(name+" clock")).Now < first.Now+3*life.Microseconds() {
			time.Sleep(life / 10)
		}
		end(t, s.store, first)
		end(t, s.store, second)
		has(t, third, a, handed)
		has(t, third, b, handed)
	},

	"a beat does not shorten the life of a Locker": func(t *testing.T, s *suite, name string) {
		const life = 200 * time.Millisecond
		client := driver.Client{Instance: newID(), Label: "test"}
		one, two := s.openFor(t, client), s.openFor(t, client)
		first, a := s.take(t, writer(name)), writer(name)
		wait(t, one, a, 0)
		a.Life = life
		wait(t, two, a, 0)
		time.Sleep(2 * life)
		end(t, s.store, first)
		has(t, s.other, a, handed)
	},

	"a claim that nobody wants is taken out of the queue, and none that somebody wants": func(t *testing.T, s *suite, name string) {
		const life = 100 * time.Millisecond
		orphan, silent, lively := writer(name), writer(name), writer(name)
		third := s.openFor(t, driver.Client{Instance: newID(), Label: "test", Wants: func(acq driver.ID) bool { return acq != orphan.Acq }})
		s.take(t, writer(name))
		orphan.Life, silent.Life, lively.Life = life, life, life
		for _, r := range enqueue(t, third, orphan, silent, lively) { // together: a later call may end an orphan
			if r.Granted {
				t.Fatalf("%+v", r)
			}
		}
		for began := time.Now(); s.claims(t, name) == 3; time.Sleep(life / 5) {
			if time.Since(began) > minute/4 {
				t.Fatal("it still waits")
			}
			enqueue(t, third, lively)
		}
		for range 40 { // nobody could ask for the silent one meanwhile
			time.Sleep(life / 5)
			enqueue(t, third, lively)
		}
		silent.Life, lively.Life = minute, minute // or they could be dead before the call ends
		wait(t, third, silent, 0)
		wait(t, third, lively, 1)
	},

	"a claim that is handed the name while nobody wants it any more keeps the name": func(t *testing.T, s *suite, name string) {
		const life = 100 * time.Millisecond
		first, orphan, second, lively := s.take(t, writer(name)), writer(name), writer(name), writer(name+" other")
		s.take(t, writer(lively.Name))
		calls := 0
		client := driver.Client{Instance: newID(), Label: "test", Wants: func(acq driver.ID) bool {
			if acq != orphan.Acq {
				return true
			}
			if calls++; calls == 2 { // the first call only drops what the client knows of it
				end(t, s.store, first)
			}
			return false
		}}
		third := s.openFor(t, client)
		wait(t, s.openFor(t, client), writer(lively.Name), 0) // it lives for a minute
		orphan.Life, lively.Life = life, life
		wait(t, third, orphan, 0)
		wait(t, s.other, second, 1)
		for began := time.Now(); calls < 2; time.Sleep(life / 5) {
			if time.Since(began) > minute/4 {
				t.Fatal("nobody was asked whether it is wanted")
			}
			enqueue(t, third, lively)
		}
		has(t, third, orphan, handed)
		wait(t, s.other, second, 0)
	},
}
