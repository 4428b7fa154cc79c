package rowstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/claim"
)

// plan is what a call wants to do with names.
type plan struct {
	names   []string // distinct and sorted
	ofNames []string // and acqs: claims that it is about and that may wait, a name and an acq each
	acqs    []driver.ID
	window  int
	seen    *views // rows that were just read, or nil

	tries   bool // its requests do not wait
	make    bool // names without a row get one
	pass    bool // rows that others have locked are passed over
	all     bool // it is about all claims
	ends    bool // it may end exclusive terms that have not expired and that transactions guard
	lockAll bool // it may end terms of claims that have not expired, or needs to know if they are guarded

	tellsHandOvers bool // the result says what was handed over to this Locker
	tellsCrashes   bool // the result says whose terms had expired

	// agreed reports, when each name was decided on, whether to write what was decided. It is nil
	// if each name stands for itself.
	agreed func() bool

	// decide does the work with the view of a name. It may be called several times; the last
	// call counts. Nothing is written if it returns an error.
	decide func(v *view, visit *claim.Visit) error
}

// distinct returns the names of sorted requests, and which requests are of each.
func distinct(n int, name func(i int) string) (names []string, of map[string][]int) {
	of = make(map[string][]int, n)
	for i := range n {
		key := name(i)
		if of[key] == nil {
			names = append(names, key)
		}
		of[key] = append(of[key], i)
	}
	return names, of
}

// tryPlan does a plan on what it reads without locks, and returns the names on which it
// would change something. It has written nothing.
func (s *rows) tryPlan(ctx context.Context, e *plan) ([]string, error) {
	if len(e.names) == 0 {
		return nil, nil
	}
	v := newViews(e.names)
	if err := s.readViews(ctx, e, v); err != nil {
		return nil, err
	}
	var names []string
	for _, w := range v.list {
		visit := s.newVisit(w, e)
		visit.Locked = func(driver.ID) bool { return true }
		if err := e.decide(w, visit); err != nil {
			return nil, err
		}
		if visit.Changes().Changed {
			names = append(names, w.name)
			e.make = e.make || !w.exists
		}
	}
	if e.agreed != nil && !e.agreed() {
		return nil, nil
	}
	return names, nil
}

// readViews reads what a plan is about.
func (s *rows) readViews(ctx context.Context, e *plan, v *views) error {
	if e.seen == nil {
		reads := append([]Statement{v.read()}, s.claims(e, v)...)
		if len(e.acqs) > 0 {
			again := v.read()
			again.Needless = func() bool { return v.noHolders() && v.noneWaits() || v.hasAll(e) }
			reads = append(reads, again)
		}
		return s.engine.Run(ctx, reads...)
	}
	v.copyRows(e.seen)
	reads := slices.DeleteFunc(s.claims(e, v), func(r Statement) bool { return r.Needless != nil && r.Needless() })
	if len(reads) == 0 {
		return nil
	}
	return s.engine.Run(ctx, reads...)
}

// claims are the statements that read the claims that a plan is about.
func (s *rows) claims(e *plan, v *views) []Statement {
	if e.all {
		return []Statement{{Name: "all_claims", Batch: []Column{e.names}, Args: []any{forgetAfter.Microseconds()}, Scan: v.addClaim}}
	}
	window := []any{int64(e.window), s.client.Instance.String()}
	needless := func() bool { return v.noHolders() && v.noneWaits() || e.tries && v.allHeld() }
	reads := []Statement{{Name: "claims", Batch: []Column{e.names}, Args: window, Scan: v.addClaim, Needless: needless}}
	if s.sole {
		reads = []Statement{
			{Name: "claims_that_hold", Batch: []Column{e.names}, Scan: v.addClaim,
				Needless: func() bool { return needless() || v.noHolders() }},
			{Name: "claims_that_wait", Batch: []Column{e.names}, Args: window, Scan: v.addClaim,
				Needless: func() bool { return needless() || v.noneWaits() }},
		}
	}
	if len(e.acqs) > 0 {
		reads = append(reads, Statement{Name: "claims_of", Batch: []Column{e.ofNames, e.acqs}, Scan: v.addClaimOf, Needless: needless})
	}
	return reads
}

// noneWaits reports that the rows say that no claim waits.
func (v *views) noneWaits() bool {
	return !slices.ContainsFunc(v.list, func(w *view) bool { return w.row.Waiting > 0 })
}

// allHeld reports that the rows say that each name is held alone.
func (v *views) allHeld() bool {
	return !slices.ContainsFunc(v.list, func(w *view) bool { return w.row.Acq == driver.ID{} || w.row.Expires <= w.now })
}

// hasAll reports that the acquisitions of a plan were found. One that was handed the name
// between two statements may be missing: the row was read too early, and the claim too late.
func (v *views) hasAll(e *plan) bool {
	for i, acq := range e.acqs {
		if w := v.byName[e.ofNames[i]]; !w.known[acq] && w.row.Acq != acq {
			return false
		}
	}
	return true
}

// noHolders reports that the rows say that no claim holds.
func (v *views) noHolders() bool {
	return !slices.ContainsFunc(v.list, func(w *view) bool { return w.row.Holding > 0 })
}

func (s *rows) newVisit(w *view, e *plan) *claim.Visit {
	visit := claim.NewVisit(w.row, w.claims)
	visit.Now, visit.By = w.now, s.client.Instance
	if !e.all && w.waiting >= e.window {
		visit.ReadTo = w.readTo
	}
	visit.Alive = func(locker driver.ID) bool { return locker == s.client.Instance || w.alive[locker] }
	visit.Locked = func(acq driver.ID) bool { return s.sole || w.locked[acq] }
	return visit
}

// lookAndVisit does a plan, and takes locks only for names on which there is something to
// change.
func (s *rows) lookAndVisit(ctx context.Context, e *plan) error {
	names, err := s.tryPlan(ctx, e)
	if err != nil || len(names) == 0 {
		return err
	}
	e.names = names
	e.keep(names)
	return s.visit(ctx, e)
}

// keep keeps only those claims that are of names, which are sorted.
func (e *plan) keep(names []string) {
	var ofNames []string
	var acqs []driver.ID
	for i, name := range e.ofNames {
		if _, ok := slices.BinarySearch(names, name); ok {
			ofNames, acqs = append(ofNames, name), append(acqs, e.acqs[i])
		}
	}
	e.ofNames, e.acqs = ofNames, acqs
}

// visit does a plan in a transaction. Then it serves the queues of those names whose
// window it has used up.
func (s *rows) visit(ctx context.Context, e *plan) error {
	if len(e.names) == 0 {
		return nil
	}
	if len(e.names) == 1 && s.visitOrder != nil {
		end, err := s.visitOrder.begin(ctx, e.names[0])
		if err != nil {
			return err
		}
		defer end()
	}
	more, err := s.visitOnce(ctx, e)
	for err == nil && len(more) > 0 {
		// What the plan was about is done. An error now must not hide that: whoever
		// waits asks again.
		var failed error
		more, failed = s.visitOnce(ctx, &plan{names: more, window: largeWindow, decide: advance})
		if failed != nil {
			break
		}
	}
	return err
}

func advance(_ *view, visit *claim.Visit) error {
	visit.Advance()
	return nil
}

// visitOnce is visit with one window. It returns the names whose window was used up.
func (s *rows) visitOnce(ctx context.Context, e *plan) (more []string, err error) {
	var v *views
	var c changes
	read := func() []Statement {
		v = newViews(e.names)
		return s.locks(e, v)
	}
	err = s.engine.Tx(ctx, read, func() (Writes, error) {
		more, c = nil, changes{by: s.client.Instance}
		for _, w := range v.list {
			usedUp, err := s.decide(e, w, &c)
			if err != nil {
				return Writes{}, err
			}
			if usedUp {
				more = append(more, w.name)
			}
		}
		if e.agreed != nil && !e.agreed() {
			more, c = nil, changes{}
		}
		return c.writes(), nil
	})
	switch {
	case errors.Is(err, errSmallWindow):
		e.window = largeWindow
		return s.visitOnce(ctx, e)
	case errors.Is(err, errNoRow):
		e.make = true
		return s.visitOnce(ctx, e)
	}
	if err == nil {
		s.report(c.crashed)
	}
	return more, err
}

// report reports crashes that no result tells of.
func (s *rows) report(crashed []driver.Crash) {
	if s.client.Crashed == nil {
		return
	}
	for i := range crashed {
		s.client.Crashed(crashed[i])
	}
}

// decide does a plan with one name, whose row is locked, and gathers what has changed. It
// reports that the window was used up.
func (s *rows) decide(e *plan, w *view, c *changes) (usedUp bool, err error) {
	if !w.exists && e.pass {
		return false, nil
	}
	visit := s.newVisit(w, e)
	// Whoever ends a term that goes on says if it was ever guarded.
	goesOn := w.row.Acq != driver.ID{} && w.row.Expires > w.now && !e.ends
	visit.Pinned = w.exists && !w.unpinned && !goesOn && !s.sole
	if err := e.decide(w, visit); err != nil {
		return false, err
	}
	done := visit.Changes()
	switch {
	case done.Err != nil:
		return false, fmt.Errorf("%q: %w", w.name, done.Err)
	case !w.exists && done.Changed && e.make: // it was deleted between two statements
		return false, ErrLocked
	case !w.exists && done.Changed:
		return false, errNoRow
	case visit.UsedUp() && e.window < largeWindow:
		return false, errSmallWindow
	}
	c.add(w, done, e)
	return visit.UsedUp(), nil
}

// errSmallWindow says that a visit would admit all waiting claims that it has read.
var errSmallWindow = errors.New("the window is too small")

// errNoRow says that a name has no row, and needs one.
var errNoRow = errors.New("the name has no row")

// locks are the statements that lock the rows of a plan and read its claims.
func (s *rows) locks(e *plan, v *views) []Statement {
	names := []Column{e.names}
	var reads []Statement
	if e.make {
		reads = append(reads, Statement{Name: "make_rows", Batch: names})
	}
	if s.sole {
		return append(append(reads, v.read()), s.claims(e, v)...)
	}
	lock := "lock_rows"
	if e.pass {
		lock = "lock_free_rows"
	}
	reads = append(reads,
		Statement{Name: lock, Batch: names, Scan: v.addRow},
		Statement{Name: "unpinned", Batch: names, Args: []any{number(e.ends)}, Scan: v.addUnpinned,
			Needless: func() bool { return !e.ends && v.allHeld() }},
		Statement{Name: "lock_claims", Batch: names, Args: []any{number(e.lockAll)}, Scan: v.addLocked, Needless: v.noHolders})
	return append(reads, s.claims(e, v)...) // what was locked is read after it was locked
}

// number is a boolean as a parameter.
func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// changes gathers what visits write.
type changes struct {
	by      driver.ID // the Locker that makes the visits
	names   []string
	rows    []claim.Row
	deleted []driver.ID // and of
	of      []string
	claims  []claim.Claim // and claimsOf
	claimOf []string
	wakes   []claim.Wake
	flush   bool
	crashed []driver.Crash // that no result tells of
}

func (c *changes) add(w *view, done claim.Changes, e *plan) {
	name := w.name
	if done.Changed {
		c.names, c.rows = append(c.names, name), append(c.rows, done.Row)
	}
	for _, acq := range done.Delete {
		c.of, c.deleted = append(c.of, name), append(c.deleted, acq)
	}
	for i := range done.Insert {
		c.claimOf, c.claims = append(c.claimOf, name), append(c.claims, done.Insert[i])
	}
	for _, wake := range done.Wakes {
		if !slices.Contains(e.acqs, wake.Acq) { // it is told by the answer
			c.wakes = append(c.wakes, wake)
		}
	}
	for _, t := range done.HandOvers {
		if !e.tellsHandOvers && !slices.Contains(e.acqs, t.Acq) {
			c.wakes = append(c.wakes, claim.Wake{Locker: c.by, Acq: t.Acq})
		}
	}
	for i := range done.Crashed {
		if t := &done.Crashed[i]; !e.tellsCrashes && !w.reported[t.Acq] {
			c.crashed = append(c.crashed, driver.Crash{Name: name, Holder: holderOf(t)})
		}
	}
	c.flush = c.flush || done.Durable
}

// writes are the statements that write it.
func (c *changes) writes() Writes {
	w := Writes{Flush: c.flush}
	if len(c.names) > 0 {
		w.Statements = append(w.Statements, Statement{Name: "write_rows", Batch: c.rowBatch()})
	}
	if len(c.deleted) > 0 {
		w.Statements = append(w.Statements, Statement{Name: "delete_claims", Batch: []Column{c.of, c.deleted}})
	}
	if len(c.claims) > 0 {
		w.Statements = append(w.Statements, Statement{Name: "insert_claims", Batch: c.claimBatch()})
	}
	if n := len(c.wakes); n > 0 {
		w.After = []Statement{{Name: "wake", Batch: []Column{
			column(n, func(i int) driver.ID { return c.wakes[i].Locker }),
			column(n, func(i int) driver.ID { return c.wakes[i].Acq }),
		}}}
	}
	return w
}

func (c *changes) rowBatch() []Column {
	n := len(c.rows)
	ints := func(of func(r *claim.Row) int64) Column {
		return column(n, func(i int) int64 { return of(&c.rows[i]) })
	}
	return []Column{
		c.names,
		ints(func(r *claim.Row) int64 { return r.Version }),
		column(n, func(i int) driver.ID { return c.rows[i].Acq }),
		column(n, func(i int) string { return c.rows[i].Owner }),
		column(n, func(i int) string { return c.rows[i].Label }),
		column(n, func(i int) driver.ID { return c.rows[i].Locker }),
		column(n, func(i int) []byte { return c.rows[i].Value }),
		ints(func(r *claim.Row) int64 { return int64(r.Holds) }),
		ints(func(r *claim.Row) int64 { return r.Since }),
		ints(func(r *claim.Row) int64 { return r.Expires }),
		ints(func(r *claim.Row) int64 { return r.Limit }),
		ints(func(r *claim.Row) int64 { return r.Delay }),
		ints(func(r *claim.Row) int64 { return r.NotBefore }),
		ints(func(r *claim.Row) int64 { return int64(r.Permits) }),
		ints(func(r *claim.Row) int64 { return int64(r.Waiting) }),
		ints(func(r *claim.Row) int64 { return int64(r.Holding) }),
		ints(func(r *claim.Row) int64 { return r.Seq }),
		ints(func(r *claim.Row) int64 { return int64(r.Ended) }),
		ints(func(r *claim.Row) int64 { return r.Revoked }),
	}
}

func (c *changes) claimBatch() []Column {
	n := len(c.claims)
	ints := func(of func(c *claim.Claim) int64) Column {
		return column(n, func(i int) int64 { return of(&c.claims[i]) })
	}
	return []Column{
		c.claimOf,
		column(n, func(i int) driver.ID { return c.claims[i].Acq }),
		ints(func(c *claim.Claim) int64 { return int64(c.State) }),
		ints(func(c *claim.Claim) int64 { return int64(c.Kind) }),
		ints(func(c *claim.Claim) int64 { return int64(c.Slot) }),
		ints(func(c *claim.Claim) int64 { return c.Seq }),
		ints(func(c *claim.Claim) int64 { return c.Token }),
		ints(func(c *claim.Claim) int64 { return int64(c.Holds) }),
		ints(func(c *claim.Claim) int64 { return c.TTL }),
		ints(func(c *claim.Claim) int64 { return c.Handed }),
		ints(func(c *claim.Claim) int64 { return c.MaxHold }),
		ints(func(c *claim.Claim) int64 { return c.Since }),
		ints(func(c *claim.Claim) int64 { return c.Expires }),
		ints(func(c *claim.Claim) int64 { return c.Limit }),
		ints(func(c *claim.Claim) int64 { return c.Delay }),
		column(n, func(i int) driver.ID { return c.claims[i].Locker }),
		column(n, func(i int) string { return c.claims[i].Owner }),
		column(n, func(i int) string { return c.claims[i].Label }),
		column(n, func(i int) []byte { return c.claims[i].Value }),
		column(n, func(i int) []byte { return joinIDs(c.claims[i].Carries) }),
	}
}

// joinIDs writes IDs one behind the other.
func joinIDs(ids []driver.ID) []byte {
	b := make([]byte, 0, len(ids)*len(driver.ID{}))
	for i := range ids {
		b = append(b, ids[i][:]...)
	}
	return b
}

// addUnpinned notes a row that no transaction guards.
func (v *views) addUnpinned(scan Scanner) error {
	var name string
	var now int64
	if err := scan(&name, &now); err != nil {
		return err
	}
	w := v.byName[name]
	w.unpinned, w.now = true, max(w.now, now)
	return nil
}

// addLocked notes a claim that could be locked.
func (v *views) addLocked(scan Scanner) error {
	var name string
	var acq driver.ID
	if err := scan(&name, id{&acq}); err != nil {
		return err
	}
	w := v.byName[name]
	mark(&w.locked, acq)
	return nil
}
