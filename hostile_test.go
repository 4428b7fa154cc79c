package sqllock_test

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
)

// victim is a name whose rows somebody has written by hand.
const victim = "victim"

// hostile are statements that spoil the rows of the victim, which somebody holds for
// an hour. {end} is the largest number that there is, {y9999} a time in the year 9999,
// {soon} one in an hour, {id} an id, {other} another, and {zero} one that names nothing; {bytes:…} and
// {text:…} are those bytes.
var hostile = map[string]string{
	"all times are negative":                  `UPDATE sqllock_lock SET since = -1, expires_at = -{end}, limit_at = -{end}, delay = -{end}, not_before = -{end}`,
	"held until the end of time":              `UPDATE sqllock_lock SET expires_at = {end}`,
	"held since the end of time":              `UPDATE sqllock_lock SET since = {end}, expires_at = 1`,
	"held until the year 9999":                `UPDATE sqllock_lock SET expires_at = {y9999}`,
	"held up to a limit that is over":         `UPDATE sqllock_lock SET limit_at = 1`,
	"held with an endless delay":              `UPDATE sqllock_lock SET delay = {end}, expires_at = 1`,
	"kept until the year 9999":                free + `, not_before = {y9999}`,
	"kept until the end of time":              free + `, not_before = {end}`,
	"held and kept until the end of time":     `UPDATE sqllock_lock SET expires_at = {end}, not_before = {end}`,
	"a holder without owner":                  `UPDATE sqllock_lock SET owner = NULL, label = NULL, locker = NULL`,
	"an expired holder without owner":         `UPDATE sqllock_lock SET owner = NULL, label = NULL, locker = NULL, expires_at = 1`,
	"an owner without holder":                 `UPDATE sqllock_lock SET acq = NULL`,
	"held absurdly often":                     `UPDATE sqllock_lock SET holds = 2147483647`,
	"held less than never":                    `UPDATE sqllock_lock SET holds = -2147483648, expires_at = 1`,
	"a negative version":                      `UPDATE sqllock_lock SET version = -{end}`,
	"a negative version, free":                free + `, version = -{end}`,
	"a version of 2^53 - 1, free":             free + `, version = 9007199254740991`,
	"a version of 2^53 - 1, expired":          `UPDATE sqllock_lock SET version = 9007199254740991, expires_at = 1`,
	"the last version, held":                  `UPDATE sqllock_lock SET version = {end}`,
	"the last version, free":                  free + `, version = {end}`,
	"the last version, expired":               `UPDATE sqllock_lock SET version = {end}, expires_at = 1`,
	"the last version but one, expired":       `UPDATE sqllock_lock SET version = {end} - 1, expires_at = 1`,
	"a number of readers below zero":          free + `, holding = -1`,
	"readers that there are not":              free + `, holding = 1000000`,
	"readers beside a holder":                 `UPDATE sqllock_lock SET holding = 3`,
	"a number of waiters below zero":          free + `, waiting = -5`,
	"waiters that there are not":              free + `, waiting = 1000000`,
	"waiters that there are not, expired":     `UPDATE sqllock_lock SET waiting = 2147483647, expires_at = 1`,
	"a number of permits below zero":          free + `, permits = -1`,
	"an id that names nothing":                `UPDATE sqllock_lock SET acq = {zero}`,
	"an id that names nothing, expired":       `UPDATE sqllock_lock SET acq = {zero}, expires_at = 1`,
	"the last claim was entered":              `UPDATE sqllock_lock SET seq = {end}`,
	"the last claim was entered, free":        free + `, seq = {end}`,
	"the last claim was before the first":     `UPDATE sqllock_lock SET seq = -{end}`,
	"an unknown end":                          free + `, ended = 77, revoked = {end}`,
	"a claim from before the first":           waitingClaim(`-{end}`, `{id}`, `{soon}`, `1`) + `; UPDATE sqllock_lock SET waiting = 1`,
	"a claim after the last":                  waitingClaim(`{end}`, `{id}`, `{soon}`, `1`) + `; UPDATE sqllock_lock SET waiting = 1`,
	"a claim that is not counted":             waitingClaim(`1`, `{id}`, `{soon}`, `1000`) + `; ` + free,
	"a claim that lives for ever":             waitingClaim(`1`, `{id}`, `{end}`, `{end}`) + `; ` + free + `, waiting = 1, seq = 1`,
	"a claim for a negative time":             waitingClaim(`1`, `{id}`, `{soon}`, `-{end}`) + `; ` + free + `, waiting = 1, seq = 1`,
	"a claim of nobody":                       waitingClaim(`1`, `{zero}`, `{soon}`, `1000`) + `; ` + free + `, waiting = 1, seq = 1`,
	"a claim of the holder":                   waitingClaim(`1`, `(SELECT acq FROM sqllock_lock WHERE name = 'victim')`, `{soon}`, `1000`) + `; UPDATE sqllock_lock SET waiting = 1`,
	"a claim of an unknown kind":              waitingClaim(`1`, `{id}`, `{soon}`, `1000`) + `; UPDATE sqllock_claim SET kind = 77; ` + free + `, waiting = 1`,
	"a claim of an unknown state":             waitingClaim(`1`, `{id}`, `{soon}`, `1000`) + `; UPDATE sqllock_claim SET state = 77; ` + free + `, waiting = 1`,
	"a claim that carries half an id":         waitingClaim(`1`, `{id}`, `{soon}`, `1000`) + `; UPDATE sqllock_claim SET carries = {bytes:01}`,
	"a reader of the last version":            holdingClaim(`{end}`, `{soon}`),
	"a reader until the end of time":          free + `, version = 5, holding = 1; ` + holdingClaim(`5`, `{end}`),
	"a reader since before time":              free + `, version = 5, holding = 1; ` + holdingClaim(`5`, `-{end}`),
	"a reader of an unknown kind":             free + `, holding = 1; ` + holdingClaim(`1`, `{soon}`) + `; UPDATE sqllock_claim SET kind = 77`,
	"a permit that is not there":              free + `, holding = 1, permits = 1; ` + holdingClaim(`1`, `{soon}`) + `; UPDATE sqllock_claim SET kind = 2, slot = -1`,
	"a name that ends in blanks":              named(`'victim  '`),
	"a name without bytes":                    named(`''`),
	"a name of control characters":            named(`{text:1b5b33316d}`),
	"claims of a name that has no row":        `DELETE FROM sqllock_lock; ` + waitingClaim(`7`, `{id}`, `{soon}`, `1`) + `; ` + holdingClaim(`1`, `{soon}`),
	"an id that is too short, SQLite":         `UPDATE sqllock_lock SET acq = {bytes:0102}`,
	"an id without bytes, SQLite":             `UPDATE sqllock_lock SET acq = {bytes:}`,
	"an id without bytes, expired, SQLite":    `UPDATE sqllock_lock SET acq = {bytes:}, expires_at = 1`,
	"a name of too many bytes, SQLite":        named(`'` + strings.Repeat("x", 70_000) + `'`),
	"a name that is no UTF-8, SQLite":         named(`{text:ff}`),
	"a name with NUL in it, SQLite":           named(`{text:6100}`),
	"a name of 300 bytes, Postgres":           named(`'` + strings.Repeat("x", 300) + `'`),
	"a name that is no UTF-8, MariaDB, MySQL": named(`{bytes:ff00}`),
}

var (
	bytesIn = regexp.MustCompile(`\{bytes:([0-9a-f]*)\}`)
	textIn  = regexp.MustCompile(`\{text:([0-9a-f]*)\}`)
)

const free = `UPDATE sqllock_lock SET acq = NULL, owner = NULL, locker = NULL, label = NULL, holds = 0, expires_at = 1`

// waitingClaim is a claim that waits, of a Locker that lives until a time.
func waitingClaim(seq, acq, until, ttl string) string {
	return fmt.Sprintf(`INSERT INTO sqllock_claim (name, state, seq, acq, kind, slot, token, holds, ttl, handed, max_hold, since, expires_at, limit_at, delay,
		locker, owner, label) VALUES ('victim', 0, %s, %s, 0, 0, 0, 0, %s, %s, 0, -1, 0, 0, 0, {id}, '', '')`, seq, acq, ttl, ttl) +
		fmt.Sprintf(`; INSERT INTO sqllock_waiter (locker, expires_at) VALUES ({id}, %s)`, until)
}

// holdingClaim is a claim of a reader.
func holdingClaim(token, until string) string {
	return fmt.Sprintf(`INSERT INTO sqllock_claim (name, state, seq, acq, kind, slot, token, holds, ttl, handed, max_hold, since, expires_at, limit_at, delay,
		locker, owner, label) VALUES ('victim', 1, 1, {other}, 1, 0, %s, -1, 1, 1, 0, -1, %s, 0, 0, {zero}, '', '')`, token, until)
}

func named(name string) string {
	return fmt.Sprintf(`INSERT INTO sqllock_lock (name, acq, owner, version, holds, expires_at) VALUES (%s, {id}, 'x', 1, 1, 1)`, name)
}

// isFor reports whether a case is one for the database. Some are for those that they
// name.
func isFor(e *engine, what string) bool {
	products := strings.ToLower(what)
	for _, product := range []string{testdb.SQLite, testdb.Postgres, testdb.MariaDB} {
		if strings.Contains(products, product) && !strings.Contains(products, e.name) {
			return false
		}
	}
	return true
}

// spoil runs the statements of a case.
func spoil(t *testing.T, e *engine, db *sql.DB, statements string) {
	t.Helper()
	id, start, end := "X'", "X'", "'"
	text := "CAST(X'${1}' AS CHAR)"
	switch e.name {
	case testdb.SQLite:
		text = "CAST(X'${1}' AS TEXT)"
	case testdb.Postgres:
		id, start, end = "'", `'\x`, "'::bytea"
		text = `convert_from('\x${1}', 'UTF8')`
	}
	statements = strings.NewReplacer("{end}", "9223372036854775807", "{y9999}", "253402300799000000",
		"{soon}", fmt.Sprint(time.Now().Add(time.Hour).UnixMicro()), "{id}", id+strings.Repeat("ab", 16)+"'",
		"{other}", id+strings.Repeat("cd", 16)+"'", "{zero}", id+strings.Repeat("00", 16)+"'").Replace(statements)
	statements = bytesIn.ReplaceAllString(statements, start+"${1}"+end)
	statements = textIn.ReplaceAllString(statements, text)
	for s := range strings.SplitSeq(statements, "; ") {
		if !strings.HasPrefix(s, "INSERT") {
			s += ` WHERE name = 'victim'`
		}
		mustExec(t, db, s)
	}
}

// probe does with the victim all that can be done with a name.
type probe struct {
	*testing.T
	a, b *sqllock.Locker
}

// Calls that need not wait are given as long as a slow machine may take.
const (
	moment = 50 * time.Millisecond
	answer = 5 * time.Second
)

// within fails the test if f takes much longer than its context allows.
func (p *probe) within(bound time.Duration, what string, f func(ctx context.Context) error) error {
	p.Helper()
	const most = 20 * time.Second
	ctx, cancel := context.WithTimeout(p.Context(), bound)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	select {
	case err := <-done:
		p.Logf("%s: %v", what, err)
		return err
	case <-time.After(most):
		p.Fatalf("%s hangs", what)
		return nil
	}
}

// acquire lets both Lockers ask for the victim, who is not granted to both.
func (p *probe) acquire(what string, waits bool) {
	p.Helper()
	for _, how := range []struct {
		name  string
		bound time.Duration
		lock  func(l *sqllock.Locker, ctx context.Context, name string, opts ...sqllock.LockOption) (*sqllock.Lease, error)
	}{
		{"TryRLock", answer, (*sqllock.Locker).TryRLock},
		{"TryLock", answer, (*sqllock.Locker).TryLock},
		{"RLock", moment, (*sqllock.Locker).RLock},
		{"Lock", moment, (*sqllock.Locker).Lock},
	} {
		if how.bound == moment && !waits {
			continue
		}
		var lease *sqllock.Lease
		err := p.within(how.bound, what+how.name, func(ctx context.Context) (err error) { lease, err = how.lock(p.a, ctx, victim); return err })
		if err != nil {
			continue
		}
		_ = p.within(answer, "another's TryLock", func(ctx context.Context) error {
			second, err := p.b.TryLock(ctx, victim)
			if second != nil && lease.Remaining() > 0 {
				p.Errorf("%s%s: granted twice, with the tokens %d and %d", what, how.name, lease.Token(), second.Token())
			}
			if second != nil {
				return second.Unlock(ctx)
			}
			return err
		})
		_ = p.within(answer, "Unlock", lease.Unlock)
	}
}

// wait waits for the victim and holds something, so that it looks for circles.
func (p *probe) wait() {
	p.Helper()
	lease := mustTry(p.T, p.b, "held meanwhile")
	_ = p.within(4*moment, "Lock with a lease", func(ctx context.Context) error {
		ctx, cancel := lease.Bind(ctx)
		defer cancel()
		second, err := p.b.Lock(ctx, victim)
		if err == nil {
			err = second.Unlock(ctx)
		}
		return err
	})
	_ = p.within(answer, "Unlock", lease.Unlock)
}

// neighbours are not harmed: who is held is listed, who has crashed is cleaned up.
func (p *probe) neighbours() {
	p.Helper()
	var listed []string
	err := p.within(answer, "List", func(ctx context.Context) error {
		for info, err := range p.a.List(ctx) {
			if err != nil {
				return err
			}
			listed = append(listed, info.Name)
		}
		return nil
	})
	if err == nil && (!slices.Contains(listed, "a neighbour") || !slices.Contains(listed, "the next neighbour")) {
		p.Errorf("List yields %q", listed)
	}
	var crashed []string
	err = p.within(answer, "Reap", func(ctx context.Context) error {
		report, err := p.b.Reaper().Reap(ctx)
		for _, c := range report.Crashed {
			crashed = append(crashed, c.Name)
		}
		return err
	})
	if err == nil && !slices.Contains(crashed, "a neighbour") {
		p.Errorf("Reap finds %q", crashed)
	}
	if err := p.within(answer, "Lock of a neighbour", func(ctx context.Context) error { return p.a.Do(ctx, "a neighbour", nothing) }); err != nil {
		p.Errorf("a neighbour cannot be locked: %v", err)
	}
}

func nothing(context.Context, *sqllock.Lease) error { return nil }

func TestHostileRowsMakeNoPanicNoHangAndNoSecondHolder(t *testing.T) {
	onEach(t, func(t *testing.T, e *engine, d *testdb.Database) {
		t.Parallel()
		db := d.Open(t)
		o := sqllock.UniqueOptions{TTL: time.Hour, RetryMax: 20 * time.Millisecond}
		a, b := newLocks(t, e.open(db), o), newLocks(t, e.open(db), o)
		for _, what := range slices.Sorted(maps.Keys(hostile)) {
			if !isFor(e, what) {
				continue
			}
			t.Run(what, func(t *testing.T) {
				holder := newLocks(t, e.open(db), o)
				for _, name := range []string{victim, "a neighbour", "the next neighbour"} {
					// What is left of the case before is given back in the background.
					if _, err := holder.Lock(t.Context(), name, sqllock.Wait(answer)); err != nil {
						t.Fatal(err)
					}
				}
				mustExec(t, db, `UPDATE sqllock_lock SET expires_at = 1 WHERE name = 'a neighbour'`)
				spoil(t, e, db, hostile[what])
				p := &probe{t, a, b}
				p.acquire("", true)
				_ = p.within(answer, "Inspect", func(ctx context.Context) error { _, err := a.Inspect(ctx, victim); return err })
				if strings.Contains(what, "claim") {
					p.wait()
				}
				p.neighbours()
				_ = p.within(5*moment, "ForceUnlock", func(ctx context.Context) error { _, err := a.ForceUnlock(ctx, victim); return err })
				p.acquire("after ForceUnlock ", false)
				for _, table := range []string{"lock", "claim", "waiter"} {
					mustExec(t, db, `DELETE FROM sqllock_`+table)
				}
			})
		}
	})
}

// hostileTerms are hostile rows of the modes that keep locks in sessions: of a name
// that nobody holds, but that has a row because somebody did.
var hostileTerms = map[string]string{
	"kept until the end of time":     `UPDATE sqllock_term SET not_before = {end}`,
	"kept until before time":         `UPDATE sqllock_term SET not_before = -{end}, acquired_at = -{end}, ended_at = -{end}`,
	"the last version":               `UPDATE sqllock_term SET version = {end}`,
	"a version of 2^53 - 1":          `UPDATE sqllock_term SET version = 9007199254740991`,
	"a negative version":             `UPDATE sqllock_term SET version = -{end}`,
	"a holder without a session":     `UPDATE sqllock_term SET acq = {id}, owner = 'x', instance = {id}, label = 'x', holds = 1`,
	"a holder without owner":         `UPDATE sqllock_term SET acq = {id}, owner = NULL, instance = NULL, label = NULL`,
	"a holder of the last version":   `UPDATE sqllock_term SET acq = {id}, version = {end}, holds = -1`,
	"a holder with an endless delay": `UPDATE sqllock_term SET acq = {id}, delay = {end}, acquired_at = {end}`,
	"a holder with a negative delay": `UPDATE sqllock_term SET acq = {id}, delay = -{end}`,
	"an id that names nothing":       `UPDATE sqllock_term SET acq = {zero}, instance = {zero}`,
	"a session of the far future":    `UPDATE sqllock_term SET acq = {id}, pid = 9223372036854775807, started = {end}`,
	"a session that is another's":    `UPDATE sqllock_term SET acq = {id}, pid = 1, started = 1`,
	"asked to go by nobody":          `UPDATE sqllock_term SET revoke_for = {zero}, acq = {zero}`,
	"asked to go by somebody":        `UPDATE sqllock_term SET revoke_for = {id}, acq = {id}`,
	"an unknown end":                 `UPDATE sqllock_term SET ended = 77, revoked = {end}`,
	"no row":                         `DELETE FROM sqllock_term`,
	"no pin":                         `DELETE FROM sqllock_pin`,
}

func TestHostileTermsMakeNoPanicNoHangAndNoSecondHolder(t *testing.T) {
	const ttl = 12 * time.Second
	reaper := &sqllock.ReaperOptions{Off: true}
	onEachServer(t, func(t *testing.T, e *engine, d *testdb.Database) {
		t.Parallel()
		db := d.Open(t)
		for mode, open := range map[string]func(db *sql.DB) (*sqllock.Locker, error){
			"for update": func(db *sql.DB) (*sqllock.Locker, error) {
				return sqllock.NewForUpdate(t.Context(), e.open(db).(driver.ForUpdateDatabase), &sqllock.ForUpdateOptions{TTL: ttl, Reaper: reaper})
			},
			"advisory": func(db *sql.DB) (*sqllock.Locker, error) {
				return sqllock.NewAdvisory(t.Context(), e.open(db).(driver.AdvisoryDatabase), &sqllock.AdvisoryOptions{TTL: ttl, Reaper: reaper})
			},
		} {
			locker := func(t *testing.T) *sqllock.Locker {
				l, err := open(db)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { closeSoon(l) })
				return l
			}
			a, b := locker(t), locker(t)
			for _, what := range slices.Sorted(maps.Keys(hostileTerms)) {
				t.Run(mode+", "+what, func(t *testing.T) {
					lease, err := b.Lock(t.Context(), victim, sqllock.Value([]byte("noted")), sqllock.Wait(answer))
					if err != nil {
						t.Fatal(err)
					}
					if err := lease.Unlock(t.Context()); err != nil {
						t.Fatal(err)
					}
					spoil(t, e, db, hostileTerms[what])
					p := &probe{t, a, b}
					p.acquire("", true)
					_ = p.within(answer, "Inspect", func(ctx context.Context) error { _, err := a.Inspect(ctx, victim); return err })
					_ = p.within(answer, "List", func(ctx context.Context) error {
						for _, err := range a.List(ctx) {
							if err != nil {
								return err
							}
						}
						return nil
					})
					_ = p.within(answer, "Reap", func(ctx context.Context) error { _, err := b.Reaper().Reap(ctx); return err })
					_ = p.within(5*moment, "ForceUnlock", func(ctx context.Context) error { _, err := a.ForceUnlock(ctx, victim); return err })
					p.acquire("after ForceUnlock ", false)
					mustExec(t, db, `DELETE FROM sqllock_term WHERE name = 'victim'`)
				})
			}
		}
	})
}
