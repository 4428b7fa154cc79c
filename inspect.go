package sqllock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sqllock/sqllock/driver"
)

// State is the state of a name in the database.
type State uint8

// The states of a name.
const (
	// StateUnknown: the table has no row of the name. It was never locked, or was purged.
	StateUnknown State = iota
	// StateHeld: the name is held.
	StateHeld
	// StateReleased: its last holder unlocked it.
	StateReleased
	// StateExpired: its last holder let its lease expire, or nobody adopted a detached term.
	StateExpired
	// StateForced: ForceUnlock ended the lease of its last holder.
	StateForced
	// StateDetached: its holder has given the term away with [Lease.Detach], and nobody has
	// adopted it yet. The name is not free. Label is that of the former holder.
	StateDetached
)

// String returns the state in one word.
func (s State) String() string {
	switch s {
	case StateUnknown:
		return "unknown"
	case StateHeld:
		return "held"
	case StateReleased:
		return "released"
	case StateExpired:
		return "expired"
	case StateForced:
		return "forced"
	case StateDetached:
		return "detached"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Info is what the database knows of a name. All times are on its clock.
type Info struct {
	Name  string
	State State

	// Owner, Label, Holds and Value are those of the holder. They stay after its lease has
	// expired, until the row is cleaned up. Holds is how many leases the holder had of
	// its term, re-entries included, when the term was last renewed. List does not read Value.
	Owner string
	Label string
	Holds int
	Value []byte

	// Readers is how many readers share the name, as far as the database knows. In
	// advisory mode it counts Lockers, for all their readers; in for-update mode it is not
	// known. Readers have no common Owner or Label.
	Readers int
	// Permits is how many permits the name has, or 0 if no [Semaphore] has used it.
	// PermitsHeld is how many of them are held. Their holders have no common Owner or Label.
	Permits, PermitsHeld int
	// Holders are the first ten of those who hold the name together: holders of permits, in the
	// order of their slots, or readers, in the order in which they came. List, Watch and
	// ForceUnlock do not read Holders. In the other modes than unique they are not known.
	Holders []Holder

	// Waiters is how many callers wait for the name, in all processes, and Queue are the
	// first ten of them, in the order in which they get the name. List does not read Queue.
	// Watch and ForceUnlock read neither: Waiters is 0 then.
	// They are those that have a claim in the database: in unique mode, without Barging and
	// [Tries], and as long as their process lives. In the other modes they are not known.
	Waiters int
	Queue   []Waiter

	// Token, Since and Until are those of the current term, or else of the last one. Until
	// is when the lease expires unless it is renewed, or when the term ended; it is zero
	// while a session of the database keeps the name. After ForceUnlock, and on MySQL
	// after an expired term was cleaned up, the token is one that no lease had.
	Token int64
	Since time.Time
	Until time.Time

	// KeptUntil is until when no caller can acquire the name although it is not held,
	// because its last holder used [MinHold] or, in the modes for update and advisory, because
	// the [LockDelay] of a holder whose session has ended is not over. It is zero if there is
	// no such time.
	KeptUntil time.Time

	// LastDone is the key of [Locker.Once] that was completed last. It is zero if there is
	// none, and after ForceUnlock and Watch, which do not read it.
	LastDone Completion

	// Now is the database's clock at the time of the reading.
	Now time.Time
}

// firstRead is how many waiters Inspect reads, and how many of those who hold a name together.
const firstRead = 10

// Holder is one of those who hold a name together: with a permit, or shared.
type Holder struct {
	Owner string
	Label string // of its Locker
	Slot  int    // of the permit, see [Lease.Slot]; 0 for a reader
	Token int64  // readers of one term have the same
	Since time.Time
	Until time.Time // when the lease expires unless it is renewed
}

// Waiter is a caller that waits for a name.
type Waiter struct {
	Label string    // of its Locker
	Since time.Time // when it began to wait in the database
	Kind  Kind
}

// Kind is what a [Waiter] wants of a name.
type Kind uint8

// The kinds.
const (
	// KindExclusive: it wants the name for itself.
	KindExclusive Kind = iota
	// KindShared: it wants to share the name with other readers.
	KindShared
	// KindPermit: it wants a permit of a semaphore.
	KindPermit
)

// String returns the kind in one word.
func (k Kind) String() string {
	switch k {
	case KindExclusive:
		return "exclusive"
	case KindShared:
		return "shared"
	case KindPermit:
		return "permit"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Completion is a key of [Locker.Once] that is complete.
type Completion struct {
	Key     string
	Attempt int       // how often it was begun
	At      time.Time // when it was completed
}

func newInfo(r *driver.Row) Info {
	i := Info{
		Name: r.Name, State: stateOf(r), Owner: r.Holder.Owner, Label: r.Holder.Label, Holds: r.Holds, Readers: r.Readers, Value: r.Value,
		Permits: r.Permits, PermitsHeld: r.PermitsHeld,
		Waiters: r.Waiters, Token: r.Holder.Version, Now: time.UnixMicro(r.Now),
	}
	for _, h := range r.Holders {
		i.Holders = append(i.Holders, Holder{
			Owner: h.Owner, Label: h.Label, Slot: h.Slot, Token: h.Version, Since: time.UnixMicro(h.Since), Until: time.UnixMicro(h.Until),
		})
	}
	for _, q := range r.Queue {
		i.Queue = append(i.Queue, Waiter{Label: q.Label, Since: time.UnixMicro(q.Since), Kind: Kind(q.Kind)})
	}
	if i.State != StateUnknown {
		i.Since = time.UnixMicro(r.Holder.Since)
	}
	if i.State != StateUnknown && !r.Session {
		i.Until = time.UnixMicro(r.Holder.Until)
	}
	if r.Gate > r.Now {
		i.KeptUntil = time.UnixMicro(r.Gate)
	}
	return i
}

func stateOf(r *driver.Row) State {
	switch {
	case r.Detached && r.Holder.Until > r.Now:
		return StateDetached
	case r.Held() && (r.Session || r.Holder.Until > r.Now):
		return StateHeld
	case r.Held() || r.Ended == driver.EndedExpired:
		return StateExpired
	case r.Ended == driver.EndedRevoked:
		return StateForced
	case r.Holder.Version == 0:
		return StateUnknown
	}
	return StateReleased
}

// checkCall checks the arguments that all calls for one name have.
func checkCall(ctx context.Context, name string) error {
	if err := driver.CheckContext(ctx); err != nil {
		return err
	}
	return driver.CheckName(name)
}

// Inspect returns what the database knows of name. A name that it does not know is not an
// error. Inspect waits for no lock. It returns [ErrInvalidName], [ErrClosed], or the error
// of the database.
func (l *Locker) Inspect(ctx context.Context, name string) (Info, error) {
	if err := checkCall(ctx, name); err != nil {
		return Info{}, err
	}
	row, err := l.readFirst(ctx, name, firstRead)
	if err != nil {
		return Info{}, operatorError("inspect", name, err)
	}
	infos := []Info{newInfo(&row)}
	if err := l.readLastDone(ctx, infos); err != nil {
		return Info{}, operatorError("inspect", name, err)
	}
	return infos[0], nil
}

// readLastDone reads which keys of the names were completed last.
func (l *Locker) readLastDone(ctx context.Context, infos []Info) error {
	if l.mode.keys == nil || len(infos) == 0 {
		return nil
	}
	names := make([]string, len(infos))
	for i := range infos {
		names[i] = infos[i].Name
	}
	var last map[string]driver.KeyState
	err := l.retryRepeatable(ctx, func(ctx context.Context) (err error) {
		last, err = l.mode.keys.LastKeys(ctx, names)
		return err
	})
	for i := range infos {
		if k, ok := last[infos[i].Name]; ok {
			infos[i].LastDone = Completion{Key: k.Key, Attempt: k.Attempt, At: time.UnixMicro(k.At)}
		}
	}
	return err
}

func (l *Locker) readRow(ctx context.Context, name string) (driver.Row, error) {
	return l.readFirst(ctx, name, 0)
}

// readFirst reads the row of a name and, unless first is 0, how many wait for it, the first so
// many of them, and the first so many of those who hold it together.
func (l *Locker) readFirst(ctx context.Context, name string, first int) (row driver.Row, err error) {
	err = l.retryRepeatable(ctx, func(ctx context.Context) error {
		read, err := l.mode.Read(ctx, driver.ReadRequest{Names: []string{name}, Holders: first, Queue: first})
		if err == nil {
			row = read.Rows[0]
		}
		return err
	})
	return row, err
}

// ListOption is an option of [Locker.List].
type ListOption func(*listOptions)

type listOptions struct {
	driver.ListRequest
	prefix string
	limit  int
	err    error
}

// IncludeFree lists also the free names: those that were once locked and have not been
// purged.
func IncludeFree() ListOption { return func(o *listOptions) { o.Free = true } }

// Prefix lists only names that begin with prefix, and reads no others. It must be empty, which
// is the default, or could be a name; otherwise List yields [ErrInvalidName].
func Prefix(prefix string) ListOption {
	return func(o *listOptions) {
		if prefix != "" {
			o.err = errors.Join(o.err, driver.CheckName(prefix))
		}
		o.prefix = prefix
	}
}

// After lists only names behind name in the order of their bytes, for the next page of a list.
// It must be empty, which is the default, or could be a name; otherwise List yields
// [ErrInvalidName].
func After(name string) ListOption {
	return func(o *listOptions) {
		if name != "" {
			o.err = errors.Join(o.err, driver.CheckName(name))
		}
		o.After = name
	}
}

// Limit lists n names at most. With [IncludeFree] it reads hardly more; else it also reads the
// free names that stand between them. The default is all of them. If n is not positive, List
// yields [ErrInvalidOption].
func Limit(n int) ListOption {
	return func(o *listOptions) {
		if n <= 0 {
			o.err = errors.Join(o.err, fmt.Errorf("%w: Limit(%d): must be positive", ErrInvalidOption, n))
		}
		o.limit = n
	}
}

// listWindow is how many rows one statement of List reads at most.
const listWindow = 5000

func newListOptions(ctx context.Context, opts []ListOption) (o listOptions, err error) {
	o.Limit, o.Count, o.err = listWindow, true, driver.CheckContext(ctx)
	for _, opt := range opts {
		if opt == nil {
			return o, driver.NilError("ListOption")
		}
		opt(&o)
	}
	if o.limit > 0 {
		o.Limit = min(o.limit, listWindow)
	}
	o.After = max(o.After, beforePrefix(o.prefix))
	return o, o.err
}

// beforePrefix returns a text behind all names that are before those with the prefix, in the
// order of their bytes. It is UTF-8, as servers ask for, and longer than a name.
func beforePrefix(prefix string) string {
	last, size := utf8.DecodeLastRuneInString(prefix)
	rest := prefix[:len(prefix)-size]
	switch last--; {
	case size == 0 || last == 0: // no name has a NUL
		return rest
	case !utf8.ValidRune(last): // of a surrogate pair
		last = 0xd7ff
	}
	return rest + string(last) + strings.Repeat(string(utf8.MaxRune), 64)
}

// List returns an iterator over the names that are not free, in the order of their bytes:
// names that are held, names whose holder's lease has expired and was not cleaned up, names of
// detached terms, and names that a MinHold or a LockDelay keeps. It reads the table in pieces, so
// the results are not of one moment. An error ends the iterator.
func (l *Locker) List(ctx context.Context, opts ...ListOption) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		o, err := newListOptions(ctx, opts)
		if err != nil {
			yield(Info{}, err)
			return
		}
		for more := true; more; {
			infos, page, err := l.readPage(ctx, o.ListRequest)
			if err != nil {
				yield(Info{}, operatorError("list", "", err))
				return
			}
			for i := range infos {
				if !strings.HasPrefix(infos[i].Name, o.prefix) || !yield(infos[i], nil) {
					return
				}
				if o.limit--; o.limit == 0 {
					return
				}
			}
			o.After, more = page.Last, page.More && strings.HasPrefix(page.Last, o.prefix)
			o.Limit = min(2*o.Limit, listWindow) // there may be many free names
		}
	}
}

// readPage reads one piece of the table.
func (l *Locker) readPage(ctx context.Context, req driver.ListRequest) (infos []Info, page driver.ReadResult, err error) {
	err = l.retryRepeatable(ctx, func(ctx context.Context) (err error) {
		page, err = l.mode.Read(ctx, driver.ReadRequest{List: req})
		return err
	})
	if err != nil {
		return nil, page, err
	}
	infos = make([]Info, len(page.Rows))
	for i := range page.Rows {
		infos[i] = newInfo(&page.Rows[i])
	}
	return infos, page, l.readLastDone(ctx, infos)
}

// ForceUnlock ends the lease of name, whoever holds it, and a time for which [MinHold]
// keeps the name. It returns the state before. The name is free at once, even if its
// holder used LockDelay. ForceUnlock looks once who holds the name. It never ends a later
// lease: if that lease ends while ForceUnlock waits, it returns [ErrNotHeld]. Of a semaphore it ends
// all permits that are held when it succeeds.
//
// In unique mode, the former holder learns of it at its next renewal, within a third of
// its TTL, or at its deadline: the context of its lease ends with a [*LostError] of reason
// [LostRevoked]. Until then it trusts its lease. If another caller acquires the name
// meanwhile, there are two holders, and only the token tells them apart: that of the
// former holder is lower.
//
// In the modes for update and advisory, ForceUnlock asks the holder to release the name,
// which takes up to a second. It waits until the holder has done so, until the server has
// ended the holder's session, or until ctx ends. The lock itself may be released a moment
// later. In advisory mode on Postgres, the holder of a name is known about a second after
// the grant, or at once if it has a Value. Until then the name counts as free. So does a
// name that readers hold: in these two modes ForceUnlock cannot end shared leases.
//
// While a transaction guards the lease, or has locked its row otherwise, ForceUnlock waits
// until ctx ends. It returns [ErrNotHeld] if the name was free, [ErrInvalidName],
// [ErrClosed], or the error of the database. If the connection breaks, it is unknown
// whether the lease was ended: use [Locker.Inspect]. ForceUnlock does not repeat its
// request then, because another caller could have the name by now. It does replace an idle
// connection of the pool that the server had ended before.
func (l *Locker) ForceUnlock(ctx context.Context, name string) (Info, error) {
	return l.forceUnlock(ctx, name, 0)
}

// ForceUnlockTerm is [Locker.ForceUnlock] of the term with this token, for a program that has shown
// it to somebody who then decides. It returns [ErrNotHeld] if the name has another token by now, and
// [ErrInvalidOption] if token is below 1.
func (l *Locker) ForceUnlockTerm(ctx context.Context, name string, token int64) (Info, error) {
	if token < 1 {
		return Info{}, fmt.Errorf("%w: the token %d: must be 1 or more", ErrInvalidOption, token)
	}
	return l.forceUnlock(ctx, name, token)
}

// forceUnlock ends the term with a token, or any term if token is 0.
func (l *Locker) forceUnlock(ctx context.Context, name string, token int64) (Info, error) {
	if err := checkCall(ctx, name); err != nil {
		return Info{}, err
	}
	res, seen, err := l.revoke(ctx, name, token)
	if err != nil {
		return Info{}, operatorError("force unlock", name, err)
	}
	info := newInfo(&res.Row)
	switch {
	case res.Revoked:
	case seen != 0 && info.Token != seen:
		return info, fmt.Errorf("%w: %q: the term has ended meanwhile", ErrNotHeld, name)
	default:
		return info, fmt.Errorf("%w: %q is free", ErrNotHeld, name)
	}
	if info.State == StateExpired && res.Row.Held() && !res.Row.Detached {
		l.crashed(name, res.Row.Holder)
	}
	for _, t := range l.queue.terms(name) {
		if t.token == info.Token || t.permit && t.token < info.Token {
			t.lose(LostRevoked, nil)
		}
	}
	return info, l.waitForRelease(ctx, name, &res.Row)
}

// revoke ends the term of name that it sees first, and no later one, however often it has
// to try. It ends none if that has another token than is wanted, unless that is 0. It returns the
// token of the term, or 0 if it saw none.
func (l *Locker) revoke(ctx context.Context, name string, token int64) (res driver.RevokeResult, seen int64, err error) {
	row, err := l.readRow(ctx, name)
	if err != nil {
		return res, 0, err
	}
	if now := newInfo(&row).Token; token != 0 && now != token {
		return driver.RevokeResult{Row: row}, token, nil
	}
	if !row.Held() && !row.Session && row.Gate <= row.Now {
		return driver.RevokeResult{Row: row}, 0, nil
	}
	switch {
	case token != 0:
		seen = token
	case row.Session && (!row.Held() || row.Together() > 0): // of a session whose term is not written yet
	case row.PermitsHeld > 0: // each that changes hands raises the version
	default:
		seen = row.Holder.Version
	}
	again := false
	err = l.retry(ctx, func(ctx context.Context) error {
		if again && seen == 0 && row.PermitsHeld > 0 { // those who held permits may all have gone
			now, err := l.readRow(ctx, name)
			if err != nil || now.PermitsHeld == 0 {
				res = driver.RevokeResult{Row: now}
				return err
			}
		}
		again = true
		all, err := l.mode.Revoke(ctx, []driver.RevokeRequest{{Name: name, Version: seen}})
		if err == nil {
			res = all[0]
		}
		return err
	})
	return res, seen, err
}

// waitForRelease waits until the holder of a session's lock has released it as asked, or
// the server has ended its session.
func (l *Locker) waitForRelease(ctx context.Context, name string, was *driver.Row) error {
	if !was.Session {
		return nil
	}
	for backoff := newBackoff(&l.cfg); ; {
		row, err := l.readRow(ctx, name)
		if err != nil {
			return operatorError("force unlock", name, err)
		}
		if !row.Session || row.Holder.Version != was.Holder.Version {
			return nil
		}
		if err := l.sleep(ctx, nil, backoff.next()); err != nil {
			return operatorError("force unlock", name, fmt.Errorf("the holder was asked and has not let go: %w", err))
		}
	}
}

func operatorError(what, name string, err error) error {
	switch {
	case errors.Is(err, ErrClosed):
		return ErrClosed
	case name == "":
		return fmt.Errorf("sqllock: %s: %w", what, err)
	}
	return fmt.Errorf("sqllock: %s %q: %w", what, name, err)
}

// Watch returns an iterator over the states of name: the current one, and then each change
// that it sees, in order. It is a change if the token, the State or the value differs.
// States that last only for a moment may be missed; the last state never is.
//
// Watch polls the database with growing pauses of at most RetryMax, and when a lease
// expires. While the database cannot be reached, it keeps trying. The iterator ends with
// an error when ctx ends, when the Locker is closed ([ErrClosed]), when the name is
// invalid ([ErrInvalidName]) or when the database refuses. It holds no connection between
// two polls.
func (l *Locker) Watch(ctx context.Context, name string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		if err := checkCall(ctx, name); err != nil {
			yield(Info{}, err)
			return
		}
		var last Info
		backoff := newBackoff(&l.cfg)
		for first := true; ; {
			pause := backoff.next()
			row, err := l.readRow(ctx, name)
			switch info := newInfo(&row); {
			case err != nil && (ctx.Err() != nil || errors.Is(err, ErrClosed) || l.mode.Classify(err) == driver.Refused):
				yield(Info{}, operatorError("watch", name, err))
				return
			case err != nil: // the database has to come back
			case l.mode.quorum && info.isBehind(&last): // other databases have answered first
			case first || changed(&last, &info):
				if !yield(info, nil) {
					return
				}
				first, last = false, info
				backoff = newBackoff(&l.cfg)
				pause = 0 // changes since then must not wait
			case (info.State == StateHeld || info.State == StateDetached) && !row.Session:
				pause = min(pause, timeLeft(row.Holder.Until, row.Now)+time.Millisecond)
			}
			if err := l.sleep(ctx, nil, pause); err != nil {
				yield(Info{}, operatorError("watch", name, err))
				return
			}
		}
	}
}

// isBehind reports whether a state is one that was before last: that of a free name with a lower
// token, or of a term that has ended since.
func (info *Info) isBehind(last *Info) bool {
	switch info.State {
	case StateReleased, StateExpired, StateForced:
		return info.Token < last.Token
	}
	return info.Token == last.Token && (last.State == StateReleased || last.State == StateForced)
}

func changed(a, b *Info) bool {
	if a.State == StateExpired && b.State == StateExpired && a.Since.Equal(b.Since) {
		return false // it was cleaned up
	}
	return a.State != b.State || a.Token != b.Token || string(a.Value) != string(b.Value)
}
