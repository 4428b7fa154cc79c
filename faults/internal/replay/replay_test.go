package replay_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/faults/internal/replay"
	"github.com/sqllock/sqllock/internal/claim"
)

// Requests of the story. They are of three names: a lock, one that is shared, and a semaphore.
var (
	first   = history.Request{Name: "lock", Acq: acq(1), Waits: true}
	follows = history.Request{Name: "lock", Acq: acq(2), Waits: true}
	third   = history.Request{Name: "lock", Acq: acq(3), Waits: true}
	tries   = history.Request{Name: "lock", Acq: acq(4)}
	reads   = history.Request{Name: "shared", Acq: acq(5), Shared: true}
	joins   = history.Request{Name: "shared", Acq: acq(6), Shared: true}
	writes  = history.Request{Name: "shared", Acq: acq(7), Waits: true}
	permit  = history.Request{Name: "permits", Acq: acq(8), Permits: 2}
	other   = history.Request{Name: "permits", Acq: acq(9), Permits: 2}
	full    = history.Request{Name: "permits", Acq: acq(10), Permits: 2}
	dies    = history.Request{Name: "lock", Acq: acq(11)}
	next    = history.Request{Name: "lock", Acq: acq(12)}
)

// term is a request about the term of another.
func term(a history.Request, token int64) history.Request {
	return history.Request{Name: a.Name, Acq: a.Acq, Token: token, Shared: a.Shared || a.Permits > 0}
}

// good is a history in which each rule of a name matters.
func good() *story {
	s := newStory()
	locks(s)
	shares(s)
	permits(s)
	expires(s)
	s.rows()
	return s
}

func locks(s *story) {
	a := s.acquire(one, first, false)
	s.granted(first, a.Got, 0)
	s.acquire(two, tries, false)
	s.acquire(two, follows, false)
	s.acquire(one, third, false)
	s.rows()
	s.now += second / 2
	s.renew(one, term(first, a.Got), false)
	s.look(first)
	s.rows()
	s.release(one, term(first, a.Got), false)
	b := s.acquire(two, follows, false)
	s.granted(follows, b.Got, 0)
	s.rows()
	s.release(two, term(follows, b.Got), true)
	s.now += 1000
	c := s.acquire(one, third, false)
	s.granted(third, c.Got, 0)
	s.withdraw(one, term(third, 0), false)
	s.rows()
}

func shares(s *story) {
	a := s.acquire(one, reads, false)
	s.granted(reads, a.Got, 0)
	b := s.acquire(two, joins, false)
	s.granted(joins, b.Got, 0)
	s.acquire(one, writes, false)
	s.rows()
	s.renew(two, term(joins, b.Got), false)
	s.rows()
	s.release(one, term(reads, a.Got), false)
	s.release(two, term(joins, b.Got), false)
	w := s.acquire(one, writes, false)
	s.granted(writes, w.Got, 0)
	s.rows()
	s.release(one, term(writes, w.Got), false)
	s.rows()
}

func permits(s *story) {
	a := s.acquire(one, permit, false)
	s.granted(permit, a.Got, a.Slot)
	b := s.acquire(two, other, false)
	s.granted(other, b.Got, b.Slot)
	s.acquire(two, full, false)
	s.look(permit)
	s.rows()
	s.release(one, term(permit, a.Got), false)
	s.release(two, term(other, b.Got), false)
	s.rows()
}

func expires(s *story) {
	a := s.acquire(one, dies, false)
	s.granted(dies, a.Got, 0)
	s.rows()
	s.now += 2 * second
	s.renew(one, term(dies, a.Got), false) // comes too late
	b := s.acquire(two, next, false)
	s.granted(next, b.Got, 0)
	s.rows()
}

func check(events []history.Event) replay.Report { return replay.Check(events) }

func TestAHistoryOfTheRulesIsExplained(t *testing.T) {
	r := check(good().end())
	if len(r.Findings)+len(r.Hard) > 0 || r.Operations() < 70 || r.Changes < 20 {
		t.Errorf("%+v, %d operations", r, r.Operations())
	}
}

// events of a history, to be changed.
type events []history.Event

// answer changes the answer of the n'th call of a kind by an acquisition.
func (es events) answer(what string, a history.Request, n int, change func(*history.Request)) {
	for i := range es {
		if e := &es[i]; e.Op == history.Requested && !e.Ret && e.Reason == what && e.Requests[0].Acq == a.Acq {
			if n--; n < 0 {
				for k := range es {
					if es[k].ID == e.ID && es[k].Ret {
						es[k].Requests = slices.Clone(es[k].Requests)
						change(&es[k].Requests[0])
						return
					}
				}
			}
		}
	}
	panic("no such call")
}

// without leaves out calls.
func without(es events, what string, a history.Request) events {
	gone := map[string]bool{}
	for _, e := range es {
		if e.Op == history.Requested && !e.Ret && e.Reason == what && e.Requests[0].Acq == a.Acq {
			gone[e.ID] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(es), func(e history.Event) bool { return gone[e.ID] })
}

// row changes the row of a name in the n'th snapshot that shows it in such a state.
func (es events) row(name string, in func(*history.Row) bool, change func(*history.Row)) {
	for i := range es {
		if es[i].Op != history.Rows {
			continue
		}
		for k := range es[i].Names {
			if r := es[i].Names[k]; r.Name == name && in(&r) {
				es[i].Names = slices.Clone(es[i].Names)
				r.Claims = slices.Clone(r.Claims)
				change(&r)
				es[i].Names[k] = r
				return
			}
		}
	}
	panic("no such snapshot")
}

func held(r *history.Row) bool     { return r.Acq != "" }
func waiting(r *history.Row) bool  { return r.Waiting > 1 }
func together(r *history.Row) bool { return r.Holding > 1 }

// shift moves the time of the events of a call.
func (es events) shift(what string, a history.Request, by int64) {
	ids := map[string]bool{}
	for i := range es {
		e := &es[i]
		if e.Op == history.Requested && !e.Ret && e.Reason == what && e.Requests[0].Acq == a.Acq {
			ids[e.ID] = true
		}
		if ids[e.ID] {
			e.T, e.Wall = e.T+by*1000, e.Wall+by
		}
	}
}

// lease changes what a client was told of its lease.
func (es events) lease(a history.Request, change func(*history.Event)) {
	for i := range es {
		if e := &es[i]; e.Op == history.Lock && e.Lease == a.Acq {
			change(e)
		}
	}
}

// changes changes what the database has written down.
func (es events) changes(change func([]history.Change) []history.Change) {
	for i := range es {
		if e := &es[i]; e.Op == history.Changed {
			e.Changes = change(slices.Clone(e.Changes))
		}
	}
}

// token is the token that an acquisition was granted.
func (es events) token(a history.Request) int64 {
	for i := range es {
		if e := &es[i]; e.Op == history.Lock && e.Lease == a.Acq {
			return e.Token
		}
	}
	panic("no such lease")
}

// everywhere changes a number wherever a history has it, but not when the term with it began.
func (es events) everywhere(from, to int64) (changed events) {
	text, err := json.Marshal(es)
	if err != nil {
		panic(err)
	}
	for _, field := range []string{"token", "got", "version", "expires", "expires_at"} {
		text = regexp.MustCompile(fmt.Sprintf(`"%s":%d\b`, field, from)).ReplaceAll(text, fmt.Appendf(nil, `"%s":%d`, field, to))
	}
	if err := json.Unmarshal(text, &changed); err != nil {
		panic(err)
	}
	return changed
}

var mutations = map[string]func(es events) events{
	"a grant has a lower token": func(es events) events {
		es.answer(history.Acquire, follows, 1, func(a *history.Request) { a.Got -= 700_000 })
		return es
	},
	"a grant has a higher token": func(es events) events {
		es.answer(history.Acquire, follows, 1, func(a *history.Request) { a.Got += 700_000 })
		return es
	},
	"a grant is moved to another": func(es events) events {
		es.answer(history.Acquire, tries, 0, func(a *history.Request) {
			*a = history.Request{Answer: history.Answer{Granted: true, Got: a.Now, Now: a.Now, Expires: a.Now + second}}
		})
		return es
	},
	"a permit is granted beyond their number": func(es events) events {
		es.answer(history.Acquire, full, 0, func(a *history.Request) {
			*a = history.Request{Answer: history.Answer{Granted: true, Got: a.Now, Slot: 2, Now: a.Now, Expires: a.Now + second}}
		})
		return es
	},
	"a slot is held twice": func(es events) events {
		es.answer(history.Acquire, other, 0, func(a *history.Request) { a.Slot = 0 })
		return es
	},
	"a client has another slot": func(es events) events {
		es.lease(other, func(e *history.Event) { e.Slot = 0 })
		return es
	},
	"a client has another token": func(es events) events {
		es.lease(first, func(e *history.Event) { e.Token++ })
		return es
	},
	"a client has the lease of another": func(es events) events {
		es.lease(first, func(e *history.Event) { e.Owner = acq(2) })
		return es
	},
	"a release is dropped":             func(es events) events { return without(es, history.Release, first) },
	"the release of a reader":          func(es events) events { return without(es, history.Release, joins) },
	"a lost release never happened":    func(es events) events { return without(es, history.Release, follows) },
	"a withdrawal is dropped":          func(es events) events { return without(es, history.Withdraw, third) },
	"a renewal is dropped":             func(es events) events { return without(es, history.Renew, first) },
	"the renewal of a reader":          func(es events) events { return without(es, history.Renew, joins) },
	"an entry to the queue is dropped": func(es events) events { return without(es, history.Acquire, third) },
	"a renewal after the expiry": func(es events) events {
		es.answer(history.Renew, dies, 0, func(a *history.Request) { a.Status = "renewed" })
		return es
	},
	"a renewal that is refused": func(es events) events {
		es.answer(history.Renew, first, 0, func(a *history.Request) { a.Status = "gone" })
		return es
	},
	"a renewal of another length": func(es events) events {
		es.answer(history.Renew, first, 0, func(a *history.Request) { a.Now += 100_000 })
		return es
	},
	"a waiter passes the one before it": func(es events) events {
		es.answer(history.Release, first, 0, func(a *history.Request) {
			a.Next = []history.Next{{Acq: third.Acq, Token: 1, Expires: 1 + second, Now: 1}}
		})
		return es
	},
	"a release hands over to nobody": func(es events) events {
		es.answer(history.Release, first, 0, func(a *history.Request) { a.Answer.Handed = 0 })
		return es
	},
	"a release frees nothing": func(es events) events {
		es.answer(history.Release, first, 0, func(a *history.Request) { a.Freed = false })
		return es
	},
	"a writer beside readers": func(es events) events {
		es.answer(history.Acquire, writes, 0, func(a *history.Request) {
			*a = history.Request{Answer: history.Answer{Granted: true, Got: a.Now, Now: a.Now, Expires: a.Now + second}}
		})
		return es
	},
	"a reader has a token of its own": func(es events) events {
		es.answer(history.Acquire, joins, 0, func(a *history.Request) { a.Got = a.Now })
		return es
	},
	"a try is refused although the name is free": func(es events) events {
		es.answer(history.Acquire, next, 0, func(a *history.Request) { *a = history.Request{Answer: history.Answer{Now: a.Now}} })
		return es
	},
	"a term lasts longer than was asked for": func(es events) events {
		es.answer(history.Acquire, dies, 0, func(a *history.Request) { a.Expires += second / 2 })
		return es
	},
	"the next is granted before the expiry": func(es events) events {
		es.shift(history.Acquire, dies, 1_500_000)
		es.answer(history.Acquire, dies, 0, func(a *history.Request) { a.Got += 1_500_000; a.Now += 1_500_000; a.Expires += 1_500_000 })
		es.lease(dies, func(e *history.Event) { e.Token += 1_500_000 })
		return es
	},
	"a holder trusts its lease after the expiry": func(es events) events {
		last := es[len(es)-1].T
		return append(es, history.Event{Op: history.Look, T: last - 2_000_000, Until: last - 2_000_000, Lease: dies.Acq, Name: dies.Name, OK: true, Left: 1000})
	},
	"a row has another version":  func(es events) events { es.row("lock", held, func(r *history.Row) { r.Version-- }); return es },
	"a row has another holder":   func(es events) events { es.row("lock", held, func(r *history.Row) { r.Acq = acq(99) }); return es },
	"a row expires later":        func(es events) events { es.row("lock", held, func(r *history.Row) { r.Expires++ }); return es },
	"a row counts a waiter less": func(es events) events { es.row("lock", waiting, func(r *history.Row) { r.Waiting-- }); return es },
	"a row counts a holder more": func(es events) events { es.row("shared", together, func(r *history.Row) { r.Holding++ }); return es },
	"a claim is missing": func(es events) events {
		es.row("lock", waiting, func(r *history.Row) { r.Claims = r.Claims[1:] })
		return es
	},
	"somebody is said to be ahead, and nobody was": func(es events) events {
		es.answer(history.Acquire, follows, 0, func(a *history.Request) { a.Ahead = true })
		return es
	},
	"a change is missing": func(es events) events {
		es.changes(func(all []history.Change) []history.Change { return slices.Delete(all, 6, 7) })
		return es
	},
	"a change is written twice": func(es events) events {
		es.changes(func(all []history.Change) []history.Change { return slices.Insert(all, 6, all[6]) })
		return es
	},
	"two changes change places": func(es events) events {
		es.changes(func(all []history.Change) []history.Change { all[4], all[5] = all[5], all[4]; return all })
		return es
	},
	"all that is written down is missing": func(es events) events {
		return slices.DeleteFunc(es, func(e history.Event) bool { return e.Op == history.Changed })
	},
	"a change is made before its call": func(es events) events {
		es.changes(func(all []history.Change) []history.Change { all[2].At -= 100_000; return all })
		return es
	},
	"a change is made after its answer": func(es events) events {
		es.changes(func(all []history.Change) []history.Change { all[2].At += 100_000; return all })
		return es
	},
	"a token is lower wherever it is told": func(es events) events {
		token := es.token(follows)
		return es.everywhere(token, token-1)
	},
	"a token is higher wherever it is told": func(es events) events {
		token := es.token(follows)
		return es.everywhere(token, token+1)
	},
	"a term ends later wherever that is told": func(es events) events {
		end := es.token(dies) + second
		return es.everywhere(end, end+1)
	},
	"two claims change places": func(es events) events {
		es.row("lock", waiting, func(r *history.Row) { r.Claims[0], r.Claims[1] = r.Claims[1], r.Claims[0] })
		return es
	},
	"a claim has another slot": func(es events) events {
		es.row("permits", together, func(r *history.Row) { r.Claims[0].Slot = 1 })
		return es
	},
}

func TestAHistoryWithOneMistakeIsNotExplained(t *testing.T) {
	if len(mutations) < 20 {
		t.Fatalf("%d kinds", len(mutations))
	}
	for what, mutate := range mutations {
		t.Run(what, func(t *testing.T) {
			if r := check(mutate(good().end())); len(r.Findings) == 0 {
				t.Errorf("it was explained: %+v", r)
			}
		})
	}
}

func TestTheDocumentationSaysHowManyWrongHistoriesThereAre(t *testing.T) {
	page, err := os.ReadFile("../../../docs/correctness.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(page)), " ")
	for _, says := range []string{fmt.Sprintf("in %d ways", len(mutations)), fmt.Sprintf("write %d more histories", len(bugs))} {
		if !strings.Contains(text, says) {
			t.Errorf("docs/correctness.md does not say %q", says)
		}
	}
}

// Databases and libraries with a bug write histories that agree with themselves.
var bugs = map[string]func(s *story){
	"a live waiter is passed over": func(s *story) {
		a := s.acquire(one, first, false)
		s.acquire(two, follows, false)
		third := third
		s.acquire(one, third, false)
		s.sees = func(v *claim.Visit) *claim.Visit {
			v.Alive = func(locker driver.ID) bool { return locker == id(one) }
			return v
		}
		s.release(one, term(first, a.Got), false)
	},
	"a term is taken over before it expires": func(s *story) {
		s.acquire(one, first, false)
		s.sees = s.otherRow("lock", func(r *claim.Row) { r.Expires = s.now - 1 })
		s.acquire(two, tries, false)
	},
	"a release ends the term of another": func(s *story) {
		a := s.acquire(one, first, false)
		s.sees = s.otherRow("lock", func(r *claim.Row) { r.Acq = id(tries.Acq) })
		s.release(two, term(tries, a.Got), false)
	},
	"a permit more than there are": func(s *story) {
		s.acquire(one, permit, false)
		s.acquire(two, other, false)
		s.sees = s.otherRow("permits", func(r *claim.Row) { r.Permits = 0 })
		more := full
		more.Permits = 3
		s.acquire(one, more, false)
	},
	"a writer beside a reader": func(s *story) {
		s.acquire(one, reads, false)
		s.sees = func(v *claim.Visit) *claim.Visit {
			w := claim.NewVisit(*v.Row(), nil)
			w.Now, w.By, w.Alive, w.Locked = v.Now, v.By, v.Alive, v.Locked
			return w
		}
		s.acquire(two, writes, false)
	},
	"a term begins with the token of the last": func(s *story) {
		a := s.acquire(one, tries, false)
		s.release(one, term(tries, a.Got), false)
		s.writes = func(c *claim.Changes) { c.Row.Version = a.Got }
		s.acquire(two, next, true)
	},
	"a term is longer than was asked for": func(s *story) {
		s.writes = func(c *claim.Changes) { c.Row.Expires++ }
		s.acquire(one, tries, true)
	},
	"a permit has a slot that another has": func(s *story) {
		s.acquire(one, permit, false)
		s.writes = func(c *claim.Changes) { c.Insert[0].Slot = 0 }
		s.acquire(two, other, true)
	},
	"a reader has a token of its own, unseen": func(s *story) {
		s.acquire(one, reads, false)
		s.writes = func(c *claim.Changes) { c.Insert[0].Token++ }
		s.acquire(two, joins, true)
	},
	"a waiter is not counted": func(s *story) {
		s.acquire(one, first, false)
		s.writes = func(c *claim.Changes) { c.Row.Waiting = 0 }
		s.acquire(two, follows, false)
	},
	"a waiter is entered before the others": func(s *story) {
		s.acquire(one, first, false)
		s.acquire(two, follows, false)
		s.writes = func(c *claim.Changes) { c.Insert[0].Seq -= second; c.Row.Seq = s.now - second }
		s.acquire(one, third, false)
	},
	"a minimum hold time is forgotten": func(s *story) {
		a := s.acquire(one, tries, false)
		q := term(tries, a.Got)
		q.MinHold = second
		s.writes = func(c *claim.Changes) { c.Row.NotBefore = 0 }
		s.release(one, q, false)
	},
	"a call has an effect whose error says that it has none": func(s *story) {
		s.vain = true
		s.acquire(one, tries, false)
	},
	"a term is swept without a reaper": func(s *story) {
		s.acquire(one, dies, false)
		s.now += 2 * second
		s.sweep("", "lock")
	},
	"a reader that has expired keeps a writer waiting": func(s *story) {
		s.acquire(one, reads, false)
		s.now += 2 * second
		s.sees = func(v *claim.Visit) *claim.Visit {
			v.Locked = func(driver.ID) bool { return false }
			return v
		}
		s.acquire(two, writes, false)
	},
	"a reaper deletes the claim of a Locker that lives": func(s *story) {
		a := s.acquire(one, first, false)
		s.acquire(two, follows, false)
		s.now += 2 * second
		s.gone = true
		s.sweep(one, "lock")
		s.renew(one, term(first, a.Got), false)
	},
	"a call makes its change twice": func(s *story) {
		s.acquire(one, tries, true)
		s.withdraw(one, term(tries, 0), false)
		calls := len(s.events)
		s.acquire(one, tries, true)
		s.events = s.events[:calls]
	},
	"a call makes its change long after its answer was lost": func(s *story) {
		s.acquire(one, tries, true)
		s.changes[len(s.changes)-1].At += 11 * second
	},
	"a name is handed over, and nobody calls": func(s *story) {
		s.acquire(one, first, false)
		s.acquire(two, follows, false)
		s.now += 2 * second
		s.sweep("", "lock")
	},
	"a renewal revives a term": func(s *story) {
		a := s.acquire(one, dies, false)
		s.now += 2 * second
		s.revives = true
		s.renew(one, term(dies, a.Got), false)
	},
	"a claim is forgotten that is young": func(s *story) {
		s.acquire(one, first, false)
		s.acquire(two, follows, false)
		s.now += second
		s.forget(two, follows, history.Request{Name: "other", Acq: acq(50), Waits: true})
	},
	"a claim of another Locker is forgotten": func(s *story) {
		s.acquire(one, first, false)
		s.acquire(two, follows, false)
		s.now += 4 * second
		s.forget(one, follows, history.Request{Name: "other", Acq: acq(50), Waits: true})
	},
}

// otherRow shows visits a row as it is not. What they do not change of it is written as it was.
func (s *story) otherRow(name string, change func(*claim.Row)) func(*claim.Visit) *claim.Visit {
	return func(v *claim.Visit) *claim.Visit {
		row := *v.Row()
		change(&row)
		w := claim.NewVisit(row, s.table(name).claims)
		w.Now, w.By, w.Alive, w.Locked = v.Now, v.By, v.Alive, v.Locked
		return w
	}
}

func TestTheHistoryOfABugIsNotExplained(t *testing.T) {
	for what, write := range bugs {
		t.Run(what, func(t *testing.T) {
			s := newStory()
			write(s)
			if r := check(s.end()); len(r.Findings) == 0 {
				t.Errorf("it was explained: %+v", r)
			}
		})
	}
}

// What the library does besides is explained, too.
var unusual = map[string]func(s *story){
	"a reaper ends a term": func(s *story) {
		s.acquire(one, dies, false)
		s.now += 2 * second
		s.sweep(two, "lock")
		s.rows()
	},
	"an old claim is forgotten": func(s *story) {
		s.acquire(one, first, false)
		s.acquire(two, follows, true)
		s.now += 4 * second
		s.forget(two, follows, history.Request{Name: "other", Acq: acq(50), Waits: true})
		s.rows()
	},
	"a dead waiter is passed over": func(s *story) {
		three := acq(103)
		s.beat(three, s.now+second/4)
		a := s.acquire(one, first, false)
		s.acquire(three, follows, false)
		s.acquire(two, third, false)
		s.now += second / 2
		s.sees = func(v *claim.Visit) *claim.Visit {
			v.Alive = func(locker driver.ID) bool { return locker != id(three) }
			return v
		}
		s.release(one, term(first, a.Got), false)
		s.rows()
	},
	"a renewal is written down before a hand-over that came before it": func(s *story) {
		a := s.acquire(one, permit, false)
		b := s.acquire(two, other, false)
		waits := full
		waits.Waits = true
		s.acquire(two, waits, false)
		written := len(s.changes)
		s.release(one, term(permit, a.Got), false)
		handed := s.acquire(two, waits, false)
		s.granted(waits, handed.Got, handed.Slot)
		s.now += 10_000
		s.renew(two, term(other, b.Got), false)
		last := len(s.changes) - 1
		s.changes = slices.Insert(s.changes[:last], written, s.changes[last])
		s.release(two, term(waits, handed.Got), false)
		s.rows()
	},
	"a call has no effect, and its error says so": func(s *story) {
		a := s.acquire(one, first, false)
		s.vain = true
		s.acquire(two, tries, false)
		s.vain = false
		s.release(one, term(first, a.Got), false)
	},
	"a crash undoes a release": func(s *story) {
		a := s.acquire(one, first, false)
		s.crashes = true
		s.release(one, term(first, a.Got), false)
		s.crashes = false
		s.say(history.Event{Op: history.Fault, Reason: "server-kill"})
		s.now += second / 2
		s.say(history.Event{Op: history.Fault, Reason: "server-kill", Ret: true})
		s.release(one, term(first, a.Got), false)
		s.rows()
	},
}

func TestWhatIsUnusualIsExplained(t *testing.T) {
	for what, write := range unusual {
		t.Run(what, func(t *testing.T) {
			s := newStory()
			write(s)
			if r := check(s.end()); len(r.Findings) > 0 || r.Operations() == 0 {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestOnlyWhatWasJudgedCountsAsExplained(t *testing.T) {
	count := func(write func(s *story)) replay.Report {
		s := newStory()
		write(s)
		r := check(s.end())
		if len(r.Findings)+len(r.Hard) > 0 {
			t.Errorf("%+v", r)
		}
		return r
	}
	for _, c := range []struct {
		what                      string
		write                     func(s *story)
		calls, snapshots, excused int
	}{
		{"answers", func(s *story) {
			a := s.acquire(one, first, false)
			s.rows()
			s.acquire(two, tries, false)
			s.release(one, term(first, a.Got), false)
		}, 3, 1, 0},
		{"an answer was lost, and its change is there", func(s *story) {
			a := s.acquire(one, first, false)
			s.release(one, term(first, a.Got), true)
		}, 2, 0, 0},
		{"an answer was lost, and nothing was changed", func(s *story) {
			s.acquire(one, first, false)
			s.acquire(two, tries, true)
		}, 1, 0, 1},
		{"an error says that nothing was done", func(s *story) {
			s.acquire(one, first, false)
			s.vain = true
			s.acquire(two, tries, false)
		}, 1, 0, 1},
		{"a crash has undone a release", func(s *story) { unusual["a crash undoes a release"](s) }, 2, 1, 1},
	} {
		if r := count(c.write); r.Calls != c.calls || r.Snapshots != c.snapshots || r.Excused != c.excused {
			t.Errorf("%s: %d calls, %d snapshots, %d excused", c.what, r.Calls, r.Snapshots, r.Excused)
		}
	}
}

func TestWhatIsOfANameWithAMistakeCountsAsUnjudged(t *testing.T) {
	right := check(good().end())
	wrong := check(mutations["a release frees nothing"](good().end()))
	judged := right.Operations() + right.Excused
	if right.Unjudged != 0 || wrong.Unjudged == 0 || wrong.Operations() == 0 || wrong.Changes >= right.Changes {
		t.Errorf("%+v, and without a mistake %+v", wrong, right)
	}
	if got := wrong.Operations() + wrong.Excused + wrong.Unjudged; got != judged {
		t.Errorf("%d operations, and without a mistake %d", got, judged)
	}
}

// Random clients, of whose answers some are lost. SQLLOCK_REPLAY_CALLS makes more of them.
func TestGeneratedHistoriesAreExplained(t *testing.T) {
	calls := 4000
	if n, err := strconv.Atoi(os.Getenv("SQLLOCK_REPLAY_CALLS")); err == nil {
		calls = n
	}
	operations := 0
	const each = 2000
	for seed := range uint64(calls / each) {
		r := check(generated(seed, each))
		operations += r.Operations()
		if len(r.Findings)+len(r.Hard) > 0 {
			t.Fatalf("seed %d: %+v", seed, r)
		}
	}
	t.Logf("%d operations", operations)
}

// generated is a history of so many calls about a few names.
func generated(seed uint64, calls int) []history.Event {
	s := newStory()
	rnd := rand.New(rand.NewPCG(seed, 7))
	type held struct {
		history.Request
		locker string
		token  int64
	}
	var open []*held
	for n := range calls {
		lost := rnd.IntN(20) == 0
		if len(open) < 8 && rnd.IntN(3) > 0 {
			h := &held{Request: history.Request{Name: strconv.Itoa(rnd.IntN(5)), Acq: acq(uint64(n + 1000)), Waits: rnd.IntN(3) > 0}, locker: []string{one, two}[rnd.IntN(2)]}
			switch h.Name {
			case "0", "1":
				h.Shared = rnd.IntN(2) == 0
			case "2":
				h.Permits = 2
			}
			open = append(open, h)
		} else if len(open) > 0 {
			i := rnd.IntN(len(open))
			h := open[i]
			switch {
			case h.token == 0 && rnd.IntN(5) > 0:
				if a := s.acquire(h.locker, h.Request, lost); a.Granted && !lost {
					h.token = a.Got
					s.granted(h.Request, a.Got, a.Slot)
				}
			case h.token == 0:
				s.withdraw(h.locker, term(h.Request, 0), lost)
				open = slices.Delete(open, i, i+1)
			case rnd.IntN(3) == 0:
				s.renew(h.locker, term(h.Request, h.token), lost)
			default:
				s.release(h.locker, term(h.Request, h.token), lost)
				open = slices.Delete(open, i, i+1)
			}
		}
		if n%10 == 0 {
			s.rows()
		}
		s.now += rnd.Int64N(10_000)
	}
	return s.end()
}
