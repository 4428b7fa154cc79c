package claim_test

import (
	"fmt"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/claim"
)

// The world has one name, two Lockers and three clients: clients 0 and 1 belong to
// Locker 0, client 2 to Locker 1. A world is comparable, so that worlds that were seen
// before are known. Its steps are those that a database and a network make atomic:
// sending, locking the row, reading the claims, committing, hearing a reply, a tick.

const (
	clients  = 3
	lockers  = 2
	requests = 2 // per client at most
	acqs     = clients * requests
	packets  = 6
	nobody   = -1
)

// options are those of one exploration.
type options struct {
	name    string
	kinds   [clients]claim.Kind
	permits int
	ttl     [clients]int8
	minHold [clients]int8
	delay   [clients]int8
	detach  bool // client 0 detaches, client 2 adopts
	revokes int8 // how often somebody ends all terms
	again   int8 // requests per client
	renews  int8 // renewals per request
	handed  int8 // how long a hand-over lasts
	beat    int8 // how long a Locker lives after a beat
	faults  int8 // replies that are not heard
	deaths  int8 // of Lockers
	crashes int8 // of the database
	end     int8 // the last tick
}

func lockerOf(acq int8) int8 { return lockerOfClient(acq / requests) }

func lockerOfClient(client int8) int8 {
	if client < 2 {
		return 0
	}
	return 1
}

func (o *options) kind(acq int8) claim.Kind { return o.kinds[acq/requests] }

// key names the detached term.
const key = acqs

func idOf(acq int8) (id driver.ID) {
	if acq != nobody {
		id[0] = byte(acq) + 1
	}
	return id
}

func acqOf(id driver.ID) int8 { return int8(id[0]) - 1 }

func lockerID(locker int8) (id driver.ID) {
	id[0] = 100 + byte(locker)
	return id
}

// tables are what the database keeps.
type tables struct {
	acq, version, since, expires, delay, notBefore int8
	detached                                       bool
	permits, waiting, holding, seq                 int8
	claims                                         [acqs]claimRow
	beats                                          [lockers]int8 // until when each Locker lives
}

type claimRow struct {
	there                            bool
	state                            claim.State
	slot, seq, token, since, expires int8
}

// row and rows are the tables as the package sees them.
func (d *tables) row() claim.Row {
	r := claim.Row{
		Version: int64(d.version), Since: int64(d.since), Expires: int64(d.expires), Delay: int64(d.delay), NotBefore: int64(d.notBefore),
		Permits: int(d.permits), Waiting: int(d.waiting), Holding: int(d.holding), Seq: int64(d.seq),
	}
	r.Acq = idOf(d.acq)
	if d.acq != nobody && !d.detached {
		r.Locker = lockerID(lockerOf(d.acq))
	}
	return r
}

func (d *tables) rows(o *options) (rows []claim.Claim) {
	for acq := range int8(acqs) {
		if c := d.claims[acq]; c.there {
			q := o.request(acq)
			rows = append(rows, claim.Claim{Party: q.Party, Limits: q.Limits, Kind: q.Kind, State: c.state, Slot: int(c.slot),
				Seq: int64(c.seq), Token: int64(c.token), Since: int64(c.since), Expires: int64(c.expires)})
		}
	}
	return rows
}

func (o *options) request(acq int8) claim.Request {
	i := acq / requests
	delay := int64(o.delay[i])
	q := claim.Request{Kind: o.kind(acq), Limits: claim.Limits{TTL: int64(o.ttl[i]) + delay, Handed: int64(min(o.handed, o.ttl[i])) + delay, Delay: delay}}
	q.Acq, q.Locker = idOf(acq), lockerID(lockerOf(acq))
	if q.Kind == claim.Permit {
		q.Permits = o.permits
	}
	return q
}

func (d *tables) setRow(r claim.Row) {
	d.acq, d.version, d.since, d.expires, d.delay = acqOf(r.Acq), int8(r.Version), int8(r.Since), int8(r.Expires), int8(r.Delay)
	d.detached = r.Acq != (driver.ID{}) && r.Locker == (driver.ID{})
	d.notBefore, d.permits = int8(r.NotBefore), int8(r.Permits)
	d.waiting, d.holding, d.seq = int8(r.Waiting), int8(r.Holding), int8(r.Seq)
}

func (d *tables) write(c claim.Changes) {
	d.setRow(c.Row)
	for _, id := range c.Delete {
		d.claims[acqOf(id)] = claimRow{}
	}
	for i := range c.Insert {
		w := &c.Insert[i]
		d.claims[acqOf(w.Acq)] = claimRow{true, w.State, int8(w.Slot), int8(w.Seq), int8(w.Token), int8(w.Since), int8(w.Expires)}
	}
}

// op is what a packet asks for.
type op uint8

const (
	opNone op = iota
	opTry
	opEnter
	opRelease  // with a token
	opWithdraw // by acq alone
	opRenew
	opMove // serve whoever is next
	opSweep
	opRevoke
	opDetach
	opAdopt
)

// reply is what a packet carries on its way back.
type reply uint8

const (
	unsent  reply = iota // on its way to the database
	pending              // in a statement that has not committed
	granted
	queued
	refused
	done
	over // there is no such term
)

// packet is a request and its reply. One that is not heard still arrives.
type packet struct {
	op         op
	acq        int8
	sent       int8
	token      int8
	reply      reply
	remaining  int8
	replyToken int8
	slot       int8
	heard      bool
}

// visit is a transaction that has locked the row.
type visit struct {
	stage uint8 // 0: there is none, 1: the row is locked, 2: the claims were read
	p     packet
	now   int8
	dead  uint8 // acqs that were locked and had expired
	alive uint8 // Lockers
	locks uint8 // claims that are locked
}

type phase uint8

const (
	idle phase = iota
	trying
	wanting // not entered yet, or no more
	entering
	waiting
	holding
	releasing
	cleaning // an outcome is unknown
	detaching
	adopting
)

type client struct {
	phase   phase
	n       int8 // requests so far
	trust   int8 // until when it believes that it holds
	token   int8
	slot    int8
	renews  int8
	until   int8 // when the last request of unknown outcome has expired
	unknown bool
}

// beat is one refresh of a Locker's waiter row, with the claims that it has read.
type beat struct {
	stage     uint8 // 0: there is none, 1: sent, 2: answered
	sent      int8
	requested uint8 // clients that waited when it was sent
	found     [acqs]int8
	tokens    [acqs]int8
	slots     [acqs]int8
	stalled   bool // nobody seems to serve the queue
}

const (
	foundNothing = 0
	foundWaiting = 1
	foundHeld    = 2 // plus what remains
)

type world struct {
	now                              int8
	faults, deaths, crashes, revokes int8
	db, durable                      tables
	renewing                         [acqs]int8 // expiry that an uncommitted renewal of a claim writes
	visit                            visit
	clients                          [clients]client
	packets                          [packets]packet
	beats                            [lockers]beat
	lives                            [lockers]int8 // when the last beat that was answered was sent, from 1 on; 0: none
	dead                             [lockers]bool
	top                              int8 // the highest token of any term
	revoked                          int8 // the highest token when terms were revoked last
	kept                             int8 // until when a MinHold keeps the name
	keyKnown                         bool
	wrong                            wrong
}

// wrong is an invariant that a step has broken.
type wrong uint8

const (
	right wrong = iota
	tokenDoesNotRise
	passedOver
	keptNameGranted
	twoInOneSlot
	revived
	leftIdle
	leftBehind
	tooShort
	grantedToDead
	forgotten
	notDurable
	adoptedWrongly
)

func (w wrong) String() string {
	return [...]string{"right", "a token does not rise", "a waiter was passed over", "a name that is kept was granted", "two permits share a slot",
		"an expired term was revived", "a name that somebody waits for was left to nobody", "a withdrawal has left something", "a term ends before it is told",
		"a name was handed to a Locker that is not heard of", "a request that holds was told otherwise", "what was told was not flushed",
		"a term was adopted that was not detached, or was over"}[w]
}

func start(o *options) world {
	w := world{faults: o.faults, deaths: o.deaths, crashes: o.crashes, revokes: o.revokes}
	w.db.acq, w.durable.acq = nobody, nobody
	return w
}

// acq is the one of a client's current request.
func (w *world) acq(client int8) int8 { return client*requests + max(w.clients[client].n-1, 0) }

// broken returns the invariant that a world breaks, or "".
func (w *world) broken(o *options) string {
	for i := range int8(clients) {
		for j := i + 1; j < clients; j++ {
			if w.trusts(i) && w.trusts(j) && w.excludes(o, i, j) {
				return fmt.Sprintf("clients %d and %d both hold", i, j)
			}
		}
	}
	waits, holds := int8(0), int8(0)
	for _, c := range w.db.claims {
		switch {
		case c.there && c.state == claim.Waiting:
			waits++
		case c.there:
			holds++
		}
	}
	if waits != w.db.waiting || holds != w.db.holding {
		return fmt.Sprintf("the row counts %d waiting and %d holding claims, there are %d and %d", w.db.waiting, w.db.holding, waits, holds)
	}
	if w.sharesSlot(o) {
		return twoInOneSlot.String()
	}
	if w.wrong != right {
		return w.wrong.String()
	}
	return ""
}

// sharesSlot reports that two claims hold one permit.
func (w *world) sharesSlot(o *options) bool {
	var taken uint8
	for acq, c := range w.db.claims {
		if !c.there || c.state != claim.Holding || o.kind(int8(acq)) != claim.Permit {
			continue
		}
		if taken>>c.slot&1 == 1 {
			return true
		}
		taken |= 1 << c.slot
	}
	return false
}

// trusts reports that a client believes that it holds, and is not one whose term somebody
// has ended by force: that one is not asked.
func (w *world) trusts(i int8) bool {
	c := &w.clients[i]
	return c.phase == holding && w.now < c.trust && c.token > w.revoked
}

func (w *world) excludes(o *options, i, j int8) bool {
	a, b := o.kinds[i], o.kinds[j]
	switch {
	case a == claim.Shared && b == claim.Shared:
		return false
	case a == claim.Permit && b == claim.Permit:
		return o.permits == 1 || w.clients[i].slot == w.clients[j].slot || w.permitted(o) > o.permits
	}
	return true
}

func (w *world) permitted(o *options) (n int) {
	for i := range int8(clients) {
		if o.kinds[i] == claim.Permit && w.trusts(i) {
			n++
		}
	}
	return n
}

func (w *world) String() string {
	d := &w.db
	s := fmt.Sprintf("at %d: row{acq %d version %d until %d waiting %d holding %d not before %d}", w.now, d.acq, d.version, d.expires, d.waiting, d.holding, d.notBefore)
	for acq, c := range d.claims {
		if c.there {
			s += fmt.Sprintf(" claim %d{%s seq %d until %d token %d}", acq, [...]string{"waits", "holds"}[c.state], c.seq, c.expires, c.token)
		}
	}
	s += fmt.Sprintf(" beats %v |", d.beats)
	for i, c := range w.clients {
		s += fmt.Sprintf(" %d %s", i, [...]string{"idle", "trying", "wanting", "entering", "waiting", "HOLDS", "releasing", "cleaning", "detaching", "adopting"}[c.phase])
		if c.phase == holding {
			s += fmt.Sprintf(" until %d", c.trust)
		}
	}
	return s
}
