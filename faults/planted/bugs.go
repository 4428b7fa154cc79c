package main

import "github.com/sqllock/sqllock/faults/internal/check"

// A bug is a known mistake: the change of the library, and the check that should notice
// it.
type bug struct {
	name  string
	edits []edit
	catch catcher
}

// An edit replaces a text that occurs once in a file.
type edit struct{ file, old, new string }

// catcher is either a cell of the faults, or tests of the library.
type catcher struct {
	nemesis, mode, database string
	pkg, run                string
	weak                    string // a weak check that may be the only one of a cell that fails
}

// by returns a catcher that takes one of the weak checks for evidence.
func (c catcher) by(weak string) catcher {
	c.weak = weak
	return c
}

func cell(nemesis, mode, database string) catcher {
	return catcher{nemesis: nemesis, mode: mode, database: database}
}

func test(pkg, run string) catcher { return catcher{pkg: pkg, run: run} }

// conformance is one promise, or those that share words, of one pair.
func conformance(pair, words string) catcher {
	return test(".", "TestConformance/"+pair+"/"+words)
}

// The statements of the unique mode, and what stands between those that read and those that
// write.
const (
	lite     = "locksqlite/sql/unique.sql"
	pg       = "lockpg/sql/unique.sql"
	rules    = "internal/claim/claim.go"
	rowstore = "internal/rowstore/visit.go"
)

// steps compares the store of a database with the rules, row by row.
const steps = "TestGeneratedStepsDoWhatTheStateMachineSays"

// permits are the races of statements about permits on Postgres.
const permits = "TestWhatChangesWhile|Permit"

// lateDraws lets a session draw a token although another one has the lock.
var lateDraws = edit{"lockpg/sql/sessions.sql", "WHEN {mode} = 2 AND t.pid BETWEEN", "WHEN false AND t.pid BETWEEN"}

var bugs = []bug{
	{"release without acq", []edit{
		{lite, "WHERE l.name = r.name AND l.acq = r.acq AND l.version = r.version AND l.waiting = 0\nRETURNING name;",
			"WHERE l.name = r.name AND l.version = r.version AND l.waiting = 0\nRETURNING name;"},
	}, test("./locksqlite", "TestRelease|"+steps)},
	{"release without version", []edit{
		{lite, "AND l.acq = r.acq AND l.version = r.version AND l.waiting = 0\nRETURNING name;", "AND l.acq = r.acq AND l.waiting = 0\nRETURNING name;"},
	}, test("./locksqlite", "TestRelease|"+steps)},
	{"a grant that is being committed is overlooked by its cleanup", []edit{
		{"internal/rowstore/release.go", "bool { return r.Settle })", "bool { return r.Settle && false })"},
	}, test("./locksqlite", "TestQueueAndSharedTerms/a_withdrawal_that_settles")},
	{"a re-entry is counted by SQL, and a lost reply counts it twice", []edit{
		{lite, "r.now + r.ttl, min(r.now + r.ttl, l.limit_at))),\n    holds = r.holds\n", "r.now + r.ttl, min(r.now + r.ttl, l.limit_at))),\n    holds = l.holds + 1\n"},
	}, conformance("unique_on_sqlite", "the_row_shows_the_number")},
	{"the deadline counts from the arrival of the reply", []edit{
		{"acquisition.go", "r.Before+clock.Trust(", "r.After+clock.Trust("},
	}, cell("net-latency", "unique", "postgres")},
	{"the deadline goes by the wall clock", []edit{
		{"internal/clock/clock_linux.go", "unix.ClockGettime(unix.CLOCK_BOOTTIME", "unix.ClockGettime(unix.CLOCK_REALTIME"},
	}, test("./internal/clock", "TestOnLinuxTheClock")},
	{"now() for clock_timestamp()", []edit{
		{pg, "\tFROM (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now) t)\nWHERE l.acq IS NULL AND l.waiting = 0 AND l.holding = 0\n  AND l.not_before <= (date_part('epoch', clock_timestamp()) * 1000000)::bigint\nRETURNING l.name, l.version, l.since, l.expires_at;\n\n-- name: grant_all\n", "\tFROM (SELECT (date_part('epoch', now()) * 1000000)::bigint AS now) t)\nWHERE l.acq IS NULL AND l.waiting = 0 AND l.holding = 0\n  AND l.not_before <= (date_part('epoch', clock_timestamp()) * 1000000)::bigint\nRETURNING l.name, l.version, l.since, l.expires_at;\n\n-- name: grant_all\n"},
	}, test("./lockpg", "TestALeaseCountsFromTheGrant")},
	{"a renewal is not flushed", []edit{
		{pg, "-- name: renew\nWITH settings AS MATERIALIZED (\n\tSELECT set_config('lock_timeout', '1s', true), CASE current_setting('synchronous_commit')\n\t       WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END\n",
			"-- name: renew\nWITH settings AS MATERIALIZED (\n\tSELECT set_config('lock_timeout', '1s', true), set_config('synchronous_commit', 'off', true)\n"},
	}, test("./lockpg", "TestAGrantIsFlushed")},
	{"a hand-over is not flushed", []edit{
		{rules, "\tv.changes.Durable = true\n\tif r.Kind != Shared", "\tif r.Kind != Shared"},
	}, test("./lockpg", "TestWhatIsHandedOverIsFlushed")},
	{"a visit forgets a claim that it has read", []edit{
		{rowstore, "		reads = append(reads, Statement{Name: \"claims_of\"", "		_ = append(reads, Statement{Name: \"claims_of\""},
	}, test("./lockpg", steps)},
	{"who is dead keeps its place at the head", []edit{
		{rules, " && v.Alive(c.Locker) {", " {"},
	}, test("./lockpg", steps)},
	{"a renewal revives a lease that has expired", []edit{
		{lite, "WHERE l.name = r.name AND l.acq = r.acq AND l.version = r.version\n  AND l.expires_at > r.now\n", "WHERE l.name = r.name AND l.acq = r.acq AND l.version = r.version\n"},
	}, conformance("unique_on_sqlite", "a_renewal_revives")},
	{"a re-entry does not look whether the lease is lost", []edit{
		{"lock.go", "		if lost := carried.term.lostError(); lost != nil {\n			return nil, lost\n		}\n", ""},
		{"term.go", "	case t.state == termLost:\n		return nil, t.lost\n	case t.state != termLive || t.leaving:\n", "	case t.state == termLost:\n		return t.addLease(ctx), nil\n	case t.state != termLive || t.leaving:\n"},
	}, conformance("unique_on_sqlite", "re-entering_with_a_lost")},
	{"what a cancelled caller gets is given back with its context", []edit{
		{"sqllock.go", "		Late:        l.giveBackLate,\n", "		Late:        func(*driver.AcquireRequest, batch.Reply[driver.AcquireResult]) {},\n"},
	}, test(".", "TestACallThatWasCancelledGivesBack")},
	{"a loss is logged and no more", []edit{
		{"term.go", "	for _, l := range t.leases {\n		l.ctx.cancel(t.lost)\n	}\n", ""},
	}, test(".", "TestADefiniteLossIsToldAtOnce|TestAnUnreachableDatabaseIsJeopardy")},
	{"a connection goes back to the pool with a lock on it", []edit{
		{"internal/sqlconn/session.go", "		_ = s.conn.Do(context.Background(), func(context.Context, *sql.Conn) error { return errInDoubt })\n", ""},
	}, test("./lockpg", "TestAConnectionWhoseLocksAreInDoubt")},
	{"what is not known is taken for a failure", []edit{
		{"cleanup.go", "	if c.ctx.Err() != nil { // closed", "	if true { // closed"},
	}, cell("none", "unique", "postgres").by(check.Waiting)},
	{"Guard is a plain SELECT", []edit{
		{pg, "l.version = $3::bigint\n\tFOR KEY SHARE\n) g ON true;", "l.version = $3::bigint\n) g ON true;"},
	}, cell("client-pause", "unique", "postgres")},
	{"a release does not look for claims", []edit{
		{pg, "WHERE l.name = $1::text AND l.acq = $2::uuid AND l.version = $3::bigint AND l.waiting = 0\n  AND set_config('lock_timeout', '1s', true) <> ''\n",
			"WHERE l.name = $1::text AND l.acq = $2::uuid AND l.version = $3::bigint\n  AND set_config('lock_timeout', '1s', true) <> ''\n"},
	}, test("./lockpg", "TestAClaimWrittenWhile|"+steps)},
	{"the token is drawn before the wait", []edit{
		{"lockpg/forupdate.go", "	locked, res, err := s.lock(ctx, req)\n", "	drawn, _ := s.store.draw(ctx, &drawing{req: req, named: !req.Shared, pid: s.pid, started: s.started, run: s.store.queryKept})\n	locked, res, err := s.lock(ctx, req)\n"},
		{"lockpg/forupdate.go", "	s.held, s.version, s.holds = &held, res.Version, 1\n", "	if drawn.Granted {\n		res.Version = drawn.Version\n	}\n	s.held, s.version, s.holds = &held, res.Version, 1\n"},
		lateDraws,
	}, cell("none", "forupdate", "postgres")},
	{"a token that is drawn too late ends the term of the holder", []edit{lateDraws}, test("./lockpg", "TestATokenThatIsDrawnTooLate")},
	{"a renewal shortens a lease", []edit{
		{lite, "SET expires_at = max(l.expires_at,\n                     iif(l.limit_at = 0,", "SET expires_at = max(0,\n                     iif(l.limit_at = 0,"},
	}, conformance("unique_on_sqlite", "a_renewal_never_shortens")},
	{"the reaper frees past a Guard", []edit{
		{rowstore, "\tvisit.Pinned = w.exists && !w.unpinned && !goesOn && !s.sole\n", "\t_ = goesOn\n\tvisit.Pinned = false\n"},
	}, conformance("unique_on_postgres", "after_Guard_nobody")},
	{"tokens do not rise", []edit{
		{rules, "\t\tv.row.Version = max(v.row.Version+1, v.Now, r.Floor)\n\t\tv.row.Since", "\t\tv.row.Version = max(v.row.Version, 1)\n\t\tv.row.Since"},
	}, cell("none", "unique", "postgres")},
	{"a permit too many", []edit{
		{rules, "return readers == 0 && permitted < permits\n", "return readers == 0 && permitted <= permits\n"},
	}, cell("client-kill", "unique", "sqlite")},
	{"a slot is given twice", []edit{
		{rules, "c.State == Holding && c.Slot < len(taken) {", "c.State == Holding && c.Slot < len(taken) && c.Locker == v.By {"},
	}, cell("none", "permits", "sqlite")},
	{"the token of a permit is drawn lower the more wait", []edit{
		{rules, "Seq: v.row.Seq, Token: v.row.Version,", "Seq: v.row.Seq, Token: v.row.Version - int64(v.row.Waiting)*1_000_000,"},
	}, cell("none", "unique", "mariadb")},
	{"a permit of one lets a lock in", []edit{
		{rules, "return readers == 0 && permitted == 0\n", "return readers == 0 && permitted <= 1\n"},
	}, conformance("unique_on_sqlite", "a_permit_of_a_semaphore_of_one")},
	{"a wait for the only permit is in no deadlock", []edit{
		{"internal/deadlock/deadlock.go", "return len(g.next[node]) < len(g.waits[node].Holders) ||", "return len(g.next[node]) <= len(g.waits[node].Holders) ||"},
	}, conformance("unique_on_sqlite", "a_permit_of_a_semaphore_of_one")},
	{"Guard of a permit is a plain SELECT", []edit{
		{pg, "c.state = 1 AND c.token = $3::bigint\n\tFOR KEY SHARE\n", "c.state = 1 AND c.token = $3::bigint\n"},
	}, cell("client-pause", "permits", "postgres")},
	{"LockAll overlooks readers", []edit{
		{lite, "WHERE h.acq IS NOT NULL OR h.waiting <> 0 OR h.holding <> 0 OR", "WHERE h.acq IS NOT NULL OR h.waiting <> 0 OR"},
	}, cell("none", "lockall", "sqlite")},
	{"a permit is granted although those who hold have changed", []edit{
		{pg, "WHERE b.name = $1::text AND b.seq = l.seq AND b.holding = l.holding", "WHERE b.name = $1::text"},
	}, test("./lockpg", permits)},
	{"permits of several names are granted although those who hold have changed", []edit{
		{pg, "WHERE b.name = l.name AND b.seq = l.seq AND b.holding = l.holding", "WHERE b.name = l.name"},
	}, test("./lockpg", permits)},
	{"a permit has the slot behind all others, free or not", []edit{
		{pg, "SELECT coalesce(min(k.place) FILTER (WHERE k.slot > k.place), count(*))\n\t\tFROM (\n\t\t\tSELECT h.slot, row_number() OVER (ORDER BY h.slot) - 1 AS place FROM {claim} h\n\t\t\tWHERE h.name = $1::text",
			"SELECT count(*)\n\t\tFROM (\n\t\t\tSELECT h.slot, row_number() OVER (ORDER BY h.slot) - 1 AS place FROM {claim} h\n\t\t\tWHERE h.name = $1::text"},
	}, test("./lockpg", permits+"|"+steps)},
	{"a permit is granted over an expired one that may be guarded", []edit{
		{pg, "h.kind = 2 AND h.acq <> $2::uuid\n\t\t  AND h.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint",
			"h.kind = 2 AND h.acq <> $2::uuid"},
	}, test("./lockpg", permits+"|"+steps)},
	{"a repeated request is granted a second permit", []edit{
		{pg, "h.state = 1 AND h.kind = 2 AND h.acq <> $2::uuid", "h.state = 1 AND h.kind = 2"},
		{pg, "SELECT $1::text, $2::uuid, 1, 2, g.slot,", "SELECT $1::text, gen_random_uuid(), 1, 2, g.slot,"},
	}, test("./lockpg", permits+"|"+steps)},
	{"a permit is granted past those who wait", []edit{
		{pg, "AND l.acq IS NULL AND l.waiting = 0\n\t  AND l.permits = $6::bigint AND l.holding", "AND l.acq IS NULL\n\t  AND l.permits = $6::bigint AND l.holding"},
	}, test("./lockpg", permits+"|"+steps)},
	{"a permit that has just ended is counted twice", []edit{
		{pg, "SELECT 1::bigint, 1 / (g.acq IS NOT NULL)::integer FROM freed", "SELECT 1::bigint, 1 FROM freed"},
	}, test("./lockpg", permits)},
	{"permits of several names that have just ended are counted twice", []edit{
		{pg, "SELECT f.place, 1 / (g.place IS NOT NULL)::integer\n", "SELECT f.place, 1\n"},
	}, test("./lockpg", permits)},
	{"the last permit that is freed does not end the term of the name", []edit{
		{pg, "THEN least(c.expires_at, t.now) ELSE l.expires_at END,\n\t\t       CASE WHEN l.holding = 1 THEN 1 ELSE l.ended END,\n\t\t       CASE WHEN $4::bigint",
			"THEN least(c.expires_at, t.now) ELSE l.expires_at END,\n\t\t       l.ended,\n\t\t       CASE WHEN $4::bigint"},
	}, test("./lockpg", steps)},
	{"a permit is handed over although those who hold have changed", []edit{
		{pg, "JOIN seen s ON s.name = m.name AND s.version = m.version AND s.holding = m.holding", "JOIN seen s ON s.name = m.name"},
	}, test("./lockpg", permits)},
	{"a permit is handed over although there are fewer by now", []edit{
		{pg, "AND m.waiting > 0 AND m.holding = m.permits", "AND m.waiting > 0 AND m.holding >= m.permits"},
	}, test("./lockpg", permits+"|"+steps)},
	{"who wants a permit waits although one is free", []edit{
		{pg, "AND l.permits = r.permits AND l.holding >= l.permits", "AND l.permits = r.permits AND l.holding > 0"},
	}, test("./lockpg", permits+"|"+steps)},
	{"who wants a permit waits although one has expired", []edit{
		{pg, "(h.kind <> 2\n\t\t   OR h.expires_at <= (date_part('epoch', clock_timestamp()) * 1000000)::bigint)", "h.kind <> 2"},
	}, test("./lockpg", permits+"|"+steps)},
	{"a guarded permit is freed like any other", []edit{
		{"internal/rowstore/permits.go", "reqs[i].Shared && !reqs[i].Guarded && which(&reqs[i])", "reqs[i].Shared && which(&reqs[i])"},
	}, test("./lockpg", permits)},
}
