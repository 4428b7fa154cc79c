package main

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
}

func cell(nemesis, mode, database string) catcher {
	return catcher{nemesis: nemesis, mode: mode, database: database}
}

func test(pkg, run string) catcher { return catcher{pkg: pkg, run: run} }

// conformance is one promise, or those that share words, of one pair.
func conformance(pair, words string) catcher {
	return test(".", "TestConformance/"+pair+"/"+words)
}

const onSQLite = "locksqlite/sql/unique.sql"

const functions = "migrations/postgres/20261121000004_line.sql"

// lateDraws lets a session draw a token although another one has the lock.
var lateDraws = edit{"lockpg/queries_sessions.go", "\"{standing}\", standing}", "\"{standing}\", \"false\"}"}

var bugs = []bug{
	{"release without acq", []edit{
		{onSQLite, "AND l.acq = r.acq AND l.version = r.version AND l.waiting = 0", "AND l.version = r.version AND l.waiting = 0"},
	}, test("./locksqlite", "TestRelease")},
	{"release without version", []edit{
		{onSQLite, "AND l.acq = r.acq AND l.version = r.version AND l.waiting = 0", "AND l.acq = r.acq AND l.waiting = 0"},
	}, test("./locksqlite", "TestRelease")},
	{"a re-entry is counted by SQL, and a lost reply counts it twice", []edit{
		{onSQLite, "min(r.now + r.ttl, l.limit_at))),\n    holds = r.holds\n", "min(r.now + r.ttl, l.limit_at))),\n    holds = l.holds + 1\n"},
	}, conformance("unique_on_sqlite", "the_row_shows_the_number")},
	{"the deadline counts from the arrival of the reply", []edit{
		{"acquisition.go", "r.Before+clock.Trust(", "r.After+clock.Trust("},
	}, cell("net-latency", "unique", "postgres")},
	{"the deadline goes by the wall clock", []edit{
		{"internal/clock/clock_linux.go", "unix.ClockGettime(unix.CLOCK_BOOTTIME", "unix.ClockGettime(unix.CLOCK_REALTIME"},
	}, test("./internal/clock", "TestOnLinuxTheClock")},
	{"now() for clock_timestamp()", []edit{
		{functions, "	clock := (date_part('epoch', clock_timestamp()) * 1000000)::bigint;\n	IF clock > at + 10000", "	clock := (date_part('epoch', now()) * 1000000)::bigint;\n	IF clock > at + 10000"},
	}, test("./lockpg", "TestALeaseCountsFromTheGrant")},
	{"a renewal is not flushed", []edit{
		{"lockpg/queries.go", "	queryRenew = `\nWITH ` + flushed + `", "	queryRenew = `\nWITH ` + unflushed + `"},
	}, test("./lockpg", "TestAGrantIsFlushed")},
	{"a hand-over is not flushed", []edit{
		{"lockpg/queries_line.go", "	queryHandOver = `\nWITH ` + waited + `", "	queryHandOver = `\nWITH ` + unflushed + `"},
	}, test("./lockpg", "TestWhatIsHandedOverIsFlushed")},
	{"a release deletes the row", []edit{
		{functions, "	SELECT coalesce(array_agg(d.ord), '{}') INTO done FROM done d;\n", "	SELECT coalesce(array_agg(d.ord), '{}') INTO done FROM done d;\n	DELETE FROM \"sqllock_lock\" l WHERE l.name = ANY (names) AND l.acq IS NULL;\n"},
		{functions, "version = greatest(l.version + 1, at)", "version = l.version + 1"},
		{functions, "SELECT r.name, r.acq, r.owner, mine, me, at, 1, at, at + r.ttl", "SELECT r.name, r.acq, r.owner, mine, me, 1, 1, at, at + r.ttl"},
	}, cell("none", "unique", "postgres")},
	{"a renewal revives a lease that has expired", []edit{
		{onSQLite, "  AND l.expires_at > r.now\n", ""},
	}, conformance("unique_on_sqlite", "a_renewal_revives")},
	{"a re-entry does not look whether the lease is lost", []edit{
		{"lock.go", "		if lost := carried.term.lostError(); lost != nil {\n			return nil, lost\n		}\n", ""},
		{"term.go", "	case termLost:\n		return nil, t.lost\n	}\n	return nil, nil\n", "	case termLost:\n		return t.addLease(ctx), nil\n	}\n	return nil, nil\n"},
	}, conformance("unique_on_sqlite", "re-entering_with_a_lost")},
	{"what a cancelled caller gets is given back with its context", []edit{
		{"sqllock.go", "		Late:        l.giveBackLate,\n", "		Late:        func(*driver.GrantRequest, batch.Reply[driver.GrantResult]) {},\n"},
	}, test(".", "TestACallThatWasCancelledGivesBack")},
	{"a loss is logged and no more", []edit{
		{"term.go", "	for _, l := range t.leases {\n		l.ctx.cancel(t.lost)\n	}\n", ""},
	}, test(".", "TestADefiniteLossIsToldAtOnce|TestAnUnreachableDatabaseIsJeopardy")},
	{"a connection goes back to the pool with a lock on it", []edit{
		{"lockpg/sessionconn.go", "	_ = c.conn.Do(context.Background(), func(context.Context, *sql.Conn) error { return errOver }) // it is in doubt\n", ""},
	}, test("./lockpg", "TestAConnectionWhoseLocksAreInDoubt")},
	{"what is not known is taken for a failure", []edit{
		{"cleanup.go", "	if c.ctx.Err() != nil { // closed", "	if true { // closed"},
	}, cell("none", "unique", "postgres")},
	{"Guard is a plain SELECT", []edit{
		{"lockpg/queries.go", "	FOR KEY SHARE\n) g ON true`", ") g ON true`"},
	}, cell("client-pause", "unique", "postgres")},
	{"a release does not look for tickets", []edit{
		{functions, "WHERE l.name = r.name AND l.acq = r.acq AND l.version = r.version AND l.wait_until <= at", "WHERE l.name = r.name AND l.acq = r.acq AND l.version = r.version"},
	}, test("./lockpg", "TestATicketWrittenWhile")},
	{"the token is drawn before the wait", []edit{
		{"lockpg/forupdate.go", "	locked, res, err := s.lock(ctx, req)\n", "	drawn, _ := s.store.draw(ctx, &drawing{req: req, named: !req.Shared, pid: s.pid, started: s.started, run: s.store.queryKept})\n	locked, res, err := s.lock(ctx, req)\n"},
		{"lockpg/forupdate.go", "	s.held, s.version, s.holds = &held, res.Version, 1\n", "	if drawn.Granted {\n		res.Version = drawn.Version\n	}\n	s.held, s.version, s.holds = &held, res.Version, 1\n"},
		lateDraws,
	}, cell("none", "forupdate", "postgres")},
	{"a token that is drawn too late ends the term of the holder", []edit{lateDraws}, test("./lockpg", "TestATokenThatIsDrawnTooLate")},
	{"a renewal shortens a lease", []edit{
		{onSQLite, "SET expires_at = max(l.expires_at,\n                     iif(l.limit_at", "SET expires_at = max(0,\n                     iif(l.limit_at"},
	}, conformance("unique_on_sqlite", "a_renewal_never_shortens")},
	{"the reaper frees past a Guard", []edit{
		{"lockpg/queries_inside.go", "	WHERE s.crashed AND ` + crashed + `\n	ORDER BY l.name\n	FOR UPDATE OF l SKIP LOCKED", "	WHERE s.crashed AND ` + crashed + `\n	ORDER BY l.name\n	FOR NO KEY UPDATE OF l SKIP LOCKED"},
	}, conformance("unique_on_postgres", "after_Guard_nobody")},
	{"tokens do not rise", []edit{
		{functions, "l.version := greatest(l.version + 1, clock);", "l.version := greatest(l.version, 1);"},
	}, cell("none", "unique", "postgres")},
}
