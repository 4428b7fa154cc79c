package claim_test

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/claim"
)

// The world has one name, two Lockers and three clients: clients 0 and 1 belong to
// Locker 0, client 2 to Locker 1. A client makes one request after the other.
//
// All times in a world are relative: the clock of the database and those of the clients
// always show now, and a tick moves all other times back. What has passed for certain is
// forgotten, and tokens and positions in the queue are renumbered in their order (normalize).
// So there are finitely many worlds although time never ends and requests may go on.

const (
	clients = 3
	lockers = 2
	slots   = 2 // acquisitions of a client that a world remembers
	acqs    = clients * slots
	key     = int8(acqs) // names the detached term
	nobody  = int8(-1)
	packets = 2 // each costs a fault

	now  = int8(64)
	past = now - 8 // no time is earlier
	lag  = 3       // a transaction ends within so many ticks: the server sees to it
	life = 2       // of a Locker after a beat
	gone = 2       // after the end of a Locker's life its claims may be swept away
	step = 2       // by how much the clock of the database steps back
)

// options are those of one exploration.
type options struct {
	kinds    [clients]claim.Kind
	tries    [clients]bool // those who do not wait
	ttl      [clients]int8
	minHold  [clients]int8
	delay    [clients]int8
	maxHold  [clients]int8
	permits  [clients]int8
	handed   int8  // how long a hand-over lasts
	requests int8  // of each client; 0: any number
	guards   uint8 // clients that guard, and may end their terms in the transactions that do
	otherPin bool  // somebody who has nothing to do with the term may pin the row
	detach   bool  // client 0 detaches, client 2 adopts
	resume   bool  // client 0 is restarted, or client 2 follows it, and resumes its term
	forgets  bool  // a Locker may take any of its claims out of the queue, wanted or not
	sweeps   bool  // and the row is deleted when it is idle
	batches  bool  // clients 0 and 1 share visits
	peeks    peeks
	window   int8 // how many waiting claims a visit reads; 0: all

	faults  faults
	revokes int8 // how often somebody ends all terms
	resizes int8 // how often somebody changes the number of permits

	alike   bool // clients 0 and 1 are interchangeable
	longest int8 // MinHold
	reqs    [acqs]claim.Request
	rows    []claim.Claim // of the visit at work
}

// peeks is how the driver first reads without locks: in two statements.
type peeks uint8

const (
	noPeeks peeks = iota
	claimsFirst
	rowFirst       // but for withdrawals
	rowAlwaysFirst // which is wrong
)

// faults are how many of each kind may happen.
type faults struct {
	late    int8 // a request arrives late, or after its client has given it up
	lost    int8 // a reply is late, or lost
	slow    int8 // a transaction takes its time between reading and its commit
	silent  int8 // a beat is left out, or the tick of something that was begun passes
	deaths  int8 // of Lockers
	crashes int8 // of the database
	steps   int8 // of the database's clock, backwards
	counts  int8 // somebody makes a count of the row too high by hand
}

func lockerOf(acq int8) int8 { return lockerOfClient(acq / slots) }

func lockerOfClient(client int8) int8 {
	if client < 2 {
		return 0
	}
	return 1
}

func (o *options) kind(acq int8) claim.Kind { return o.kinds[acq/slots] }

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

func lockerAt(id driver.ID) int8 { return int8(id[0]) - 100 }

// request is what a client asks for with an acquisition.
func (o *options) request(acq int8) *claim.Request { return &o.reqs[acq] }

func (o *options) newRequest(acq int8) claim.Request {
	i := acq / slots
	ttl, delay := int64(o.ttl[i]), int64(o.delay[i])
	q := claim.Request{Kind: o.kinds[i], Limits: claim.Limits{
		TTL: ttl + delay, Handed: min(int64(o.handed), ttl) + delay, MaxHold: int64(o.maxHold[i]), Delay: delay,
	}}
	q.Acq, q.Locker, q.Owner = idOf(acq), lockerID(lockerOf(acq)), o.owner(i)
	if q.Kind == claim.Permit {
		q.Permits = int(o.permits[i])
	}
	return q
}

// owner is the same for clients 0 and 2 if the one may resume a term of the other.
func (o *options) owner(client int8) string {
	if o.resume && client != 1 {
		return "a"
	}
	return "b"
}

// lockRow is the row of the name.
type lockRow struct {
	acq, version, since, expires, limit, delay, notBefore int8
	ended                                                 claim.Ended
	revoked, permits, waiting, holding, seq               int8
	miscounted                                            bool // waiting and holding may be too high
}

type claimState uint8

const (
	none claimState = iota
	waits
	hasTerm
)

type claimRow struct {
	state                                   claimState
	slot, seq, token, since, expires, limit int8
}

// tables are what the database keeps.
type tables struct {
	lockRow
	claims [acqs]claimRow
	beats  [lockers]int8 // until when each Locker lives
}

// party is who an acquisition is.
func (o *options) party(acq int8) (p claim.Party) {
	switch acq {
	case nobody:
		return p
	case key:
		return claim.Party{Acq: idOf(key)}
	}
	return o.request(acq).Party
}

// row is a lock row as the package sees it.
func (r *lockRow) row(o *options) claim.Row {
	leases := 0
	if r.acq != nobody {
		leases = 1
	}
	return claim.Row{
		Party: o.party(r.acq), Holds: leases, Version: int64(r.version), Since: int64(r.since), Expires: int64(r.expires), Limit: int64(r.limit),
		Delay: int64(r.delay), NotBefore: int64(r.notBefore), Permits: int(r.permits), Waiting: int(r.waiting), Holding: int(r.holding),
		Seq: int64(r.seq), Ended: r.ended, Revoked: int64(r.revoked),
	}
}

// rows are the claims of those acquisitions that mask has, until it is called again.
func (d *tables) rows(o *options, mask uint8) []claim.Claim {
	rows := o.rows[:0]
	for acq := range int8(acqs) {
		c := &d.claims[acq]
		if c.state == none || mask>>acq&1 == 0 {
			continue
		}
		q := o.request(acq)
		state, held := claim.Waiting, 0
		if c.state == hasTerm {
			state, held = claim.Holding, 1
		}
		rows = append(rows, claim.Claim{Party: q.Party, Limits: q.Limits, Kind: q.Kind, State: state, Holds: held, Slot: int(c.slot),
			Seq: int64(c.seq), Token: int64(c.token), Since: int64(c.since), Expires: int64(c.expires), Limit: int64(c.limit)})
	}
	o.rows = rows
	return rows
}

// has are those acquisitions of a set that have a claim.
func (d *tables) has(set uint8) (these uint8) {
	for acq := range int8(acqs) {
		if d.claims[acq].state != none {
			these |= set & (1 << acq)
		}
	}
	return these
}

func (r *lockRow) set(s *claim.Row) {
	*r = lockRow{
		miscounted: r.miscounted,
		acq:        acqOf(s.Acq), version: int8(s.Version), since: int8(s.Since), expires: int8(s.Expires), limit: int8(s.Limit), delay: int8(s.Delay),
		notBefore: int8(s.NotBefore), ended: s.Ended, revoked: int8(s.Revoked),
		permits: int8(s.Permits), waiting: int8(s.Waiting), holding: int8(s.Holding), seq: int8(s.Seq),
	}
}

// write does to the tables what a visit says. It returns what is wrong with that.
func (d *tables) write(o *options, c *claim.Changes) wrong {
	d.set(&c.Row)
	if r := d.row(o); r.Party.Locker != c.Row.Locker || r.Owner != c.Row.Owner || r.Holds != c.Row.Holds {
		return mixedUp
	}
	for _, id := range c.Delete {
		row := &d.claims[acqOf(id)]
		if row.state == none {
			return badWrite
		}
		*row = claimRow{}
	}
	for i := range c.Insert {
		n := &c.Insert[i]
		acq := acqOf(n.Acq)
		if acq < 0 || acq >= acqs || d.claims[acq].state != none {
			return badWrite
		}
		state := waits
		if n.State == claim.Holding {
			state = hasTerm
		}
		d.claims[acq] = claimRow{state, int8(n.Slot), int8(n.Seq), int8(n.Token), int8(n.Since), int8(n.Expires), int8(n.Limit)}
		q := o.request(acq)
		if n.Limits != q.Limits || n.Locker != q.Locker || n.Owner != q.Owner || n.Kind != q.Kind || (n.Holds == 1) != (state == hasTerm) {
			return mixedUp
		}
	}
	return right
}

// op is what a packet asks for.
type op uint8

const (
	opNone op = iota
	opTry
	opEnter
	opRelease  // with a token
	opWithdraw // by acq alone
	opForget   // by acq alone, if it waits
	opRenew
	opMove // serve whoever is next
	opSweep
	opRevoke
	opDetach
	opAdopt
	opResume // with a token
	opResize
)

func (o op) String() string {
	return [...]string{"nothing", "try", "entry", "release", "withdrawal", "forgetting", "renewal", "move", "sweep", "revocation", "detachment", "adoption", "resumption", "change of permits"}[o]
}

// peeksFor reports that the driver first reads without locks.
func (o *options) peeksFor(p op) bool {
	switch {
	case o.peeks == noPeeks || p == opRelease || p == opRenew || p == opMove || p == opSweep:
		return false
	case p == opWithdraw: // its claim may have become the row's term between the two
		return o.peeks != rowFirst
	}
	return true
}

// reply is what a packet carries on its way back.
type reply uint8

const (
	unsent  reply = iota // on its way to the database
	pending              // in a transaction that has not committed
	granted
	queued
	refused
	done
	over // there is no such term
	mismatch
	busy // a transaction guards it
)

// packet is a request, or its reply, that is late. One that is not heard still arrives.
type packet struct {
	op               op
	acq              int8 // nobody: of nobody in particular
	by               int8 // the Locker that sends it
	sent, token      int8
	guarded          bool // the lease may be guarded
	heard            bool
	reply            reply
	remaining, limit int8 // of a term that was granted
	replyToken, slot int8
}

// visit is a transaction that has locked the row and read, and takes its time to commit.
type visit struct {
	open   bool
	now    int8
	alive  uint8 // Lockers
	locks  uint8 // claims that it has locked
	pinned bool
	p      packet
}

func (p *packet) bytes() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(p)), unsafe.Sizeof(*p)) }

// peek has read a part of the tables without a lock. Next it reads the others.
type peek struct {
	open bool
	now  int8
	slow bool
	had  bool // the acquisition had a term, or waited
	seen tables
	p    packet
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
	resuming
)

func (p phase) String() string {
	return [...]string{"idle", "trying", "wanting", "entering", "waiting", "HOLDS", "releasing", "cleaning", "detaching", "adopting", "resuming"}[p]
}

type client struct {
	phase   phase
	slot    int8 // of its current acquisition
	used    int8 // requests so far, if they are counted
	trust   int8 // until when it believes that it holds
	limit   int8 // until when it may renew, 0: no limit
	token   int8 // of what it holds, or is to resume
	permit  int8
	until   int8 // when the last request of unknown outcome has expired
	unknown bool
	guarded bool // it has guarded its lease
}

// beat is one refresh of a Locker's waiter row, whose reply is late, with the claims read.
type beat struct {
	open   bool
	sent   int8
	waited uint8 // acqs that waited when it was sent
	read   [acqs]found
}

// found is what a Locker reads of one of its acquisitions.
type found struct {
	state                           claimState
	remaining, limit, token, permit int8
}

type world struct {
	left        faults // that may happen still
	revokes     int8
	resizes     int8
	db, durable tables
	renewing    [acqs]int8 // expiry that an uncommitted renewal of a claim writes, or 0
	guards      uint8      // acquisitions that an open transaction guards
	otherPin    bool       // so does one that has nothing to do with it
	visit       visit
	peek        peek
	clients     [clients]client
	packets     [packets]packet
	beats       [lockers]beat
	lives       [lockers]int8 // until when a Locker knows that it lives
	beaten      [lockers]bool // since the last tick
	moves       [lockers]bool // its last visit has used its window up
	dead        [lockers]bool
	top         int8 // the highest token of any term
	revoked     int8 // the highest token when terms were revoked last
	keyUsed     bool
	wrong       wrong
}

// worldSize is also that of the fields: all of them have one byte, so that worlds are
// compared by their bytes.
const worldSize = unsafe.Sizeof(world{})

func (w *world) bytes() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(w)), worldSize) }

func start(o *options) world {
	w := world{left: o.faults, revokes: o.revokes, resizes: o.resizes}
	w.db.acq, w.durable.acq, w.peek.seen.acq = nobody, nobody, nobody
	w.normalize(o)
	return w
}

// acq is the one of a client's current request.
func (w *world) acq(client int8) int8 { return client*slots + w.clients[client].slot }

func (w *world) String() string {
	d := &w.db
	var b strings.Builder
	fmt.Fprintf(&b, "row{acq %d version %d until %+d waiting %d holding %d", d.acq, d.version-now, d.expires-now, d.waiting, d.holding)
	if d.notBefore > now {
		fmt.Fprintf(&b, " not before %+d", d.notBefore-now)
	}
	b.WriteString("}")
	for acq, c := range d.claims {
		switch c.state {
		case waits:
			fmt.Fprintf(&b, " claim %d{waits at %+d}", acq, c.seq-now)
		case hasTerm:
			fmt.Fprintf(&b, " claim %d{holds until %+d token %d}", acq, c.expires-now, c.token-now)
		}
	}
	fmt.Fprintf(&b, " beats %+d %+d", d.beats[0]-now, d.beats[1]-now)
	if w.guards != 0 || w.otherPin {
		fmt.Fprintf(&b, " guards %b %v", w.guards, w.otherPin)
	}
	for i, c := range w.clients {
		fmt.Fprintf(&b, " | %d %v", w.acq(int8(i)), c.phase)
		if c.phase == holding {
			fmt.Fprintf(&b, " until %+d", c.trust-now)
		}
	}
	return b.String()
}
