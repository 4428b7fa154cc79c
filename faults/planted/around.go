package main

// The bugs below are in what stands around a lock: permits, several names, terms that are given
// away or end in a transaction, runs, elections, quorums and shards.

// sqliteSays is a promise of unique mode on SQLite.
func sqliteSays(words string) catcher { return conformance("unique_on_sqlite", words) }

// quorumSays is a test of a quorum of SQLite files.
func quorumSays(run string) catcher { return test("./internal/quorumtest", run) }

var around = []bug{
	{"a Semaphore does not know what it was resized to", []edit{
		{"semaphore.go", "\ts.permits.Store(int64(permits))\n\tl.claims.recheck(s.name)\n", "\tl.claims.recheck(s.name)\n"},
	}, sqliteSays("the_first_caller_says")},
	{"a call for a permit does not wait for the Resize that is under way", []edit{
		{"semaphore.go", "if !errors.Is(err, ErrPermits) || !s.wasResized(ctx, o.permits) {", "if !errors.Is(err, ErrPermits) || s.Permits() == o.permits {"},
	}, test(".", "TestACallForAPermitWaitsForTheResize")},
	{"LockAll does not hear of the loss of names that were free", []edit{
		{"lockall.go", "\t\t\tfor _, lease := range a.leases[before:] {\n\t\t\t\tctx.add(lease)\n\t\t\t}\n", "\t\t\t_ = before\n"},
	}, sqliteSays("LockAll_that_loses_a_name")},
	{"a LockAll that gives up keeps names for MinHold", []edit{
		{"lockall.go", "\t\tlease.term.notUsedBy(lease)\n", "\t\t_ = lease\n"},
	}, sqliteSays("LockAll_that_gives_up")},
	{"a LockAll that gives up keeps what a request without a reply was granted", []edit{
		{"lockall.go", "\t\t\tone.unknown, one.unknownSince = true, sent\n", "\t\t\tone.unknownSince = sent\n"},
	}, inSchedules},
	{"a lease that was re-entered ends in a transaction", []edit{
		{"unlocktx.go", "\tif t.count > 1 {\n", "\tif t.count > 2 {\n"},
	}, sqliteSays("a_lease_that_was_re-entered")},
	{"an UnlockInTx hands the name to nobody", []edit{
		{"unlocktx.go", "\tif awaited {\n\t\tl.serveQueue(bound, t)\n", "\tif false {\n\t\tl.serveQueue(bound, t)\n"},
	}, test(".", "TestAnUnlockInTxServesThoseWhoWait")},
	{"a lease that stays after a rollback wakes nobody", []edit{
		{"term.go", "\tif back {\n\t\tt.locker.queue.back(t)\n", "\tif false {\n\t\tt.locker.queue.back(t)\n"},
	}, test(".", "TestALeaseThatStaysLetsItsOwnerInAgain")},
	{"a session that hangs delays the news of others", []edit{
		{"keeper.go", "\t\tg.session = k.mode.sessions.Session(t.acq)\n", "\t\t_ = k.mode.sessions.Session(t.acq)\n"},
	}, test(".", "TestASessionThatHangsDelaysNoNewsOfOthers")},
	{"a loss that only Unlock finds is told to nobody", []edit{
		{"unlock.go", "\tif err != nil {\n\t\tif lost :=", "\tif false {\n\t\tif lost :="},
	}, test(".", "TestALossThatOnlyUnlockFindsIsToldAsEachIs")},
	{"an Unlock with the context of its lease forgets the deadline", []edit{
		{"unlock.go", "\tif ctx == nil || ctx.Err() != nil {\n\t\treturn unlockBound", "\tif ctx == nil || ctx.Err() != nil || ctx.Value(carriesKey{}) != nil {\n\t\treturn unlockBound"},
	}, test(".", "TestAnUnlockWithTheContextOfItsLeaseKeepsItsDeadline")},
	{"MariaDB: what is told before a commit that is undone is believed", []edit{
		{"lockmysql/quick.go", "\tif err == nil && told && !done {\n", "\tif err == nil && told && !done && s == nil {\n"},
	}, test("./lockmysql", "TestWhatABackupKeepsFromBeingCommittedIsNotBelieved")},
	{"the pause of the reaper is not noted", []edit{
		{"reaper.go", "driver.SweepRequest{Pause: pause}", "driver.SweepRequest{Pause: min(pause, 1)}"},
	}, test(".", "TestPassesThatTakeLongAreFurtherApart")},
	{"a renewal beside the commit of an UnlockInTx is believed", []edit{
		{"unlocktx.go", "\tif commits {\n\t\tt.leavingSince = never\n", "\tif commits && t.count > 1 {\n\t\tt.leavingSince = never\n"},
	}, test(".", "TestARenewalThatOvertakesTheReplyToACommit")},
	{"a detached term forgets MinHold", []edit{
		{"detach.go", "\tttl = max(ttl, t.granted+t.minHold-now)\n", "\tttl = max(ttl, 0)\n"},
	}, sqliteSays("MinHold_and_MaxHold_of_a_lease_that_is_detached")},
	{"a lease that was re-entered is given away", []edit{
		{"detach.go", "\tcase t.count > 1:\n", "\tcase t.count > 2:\n"},
	}, sqliteSays("what_cannot_be_detached")},
	{"a detached term of which nobody knows is not freed", []edit{
		{"detach.go", "\tr.Acq = key\n\tl.cleanup.add(r, kept)\n", "\tr.Acq = key\n"},
	}, conformance("unique_on_mariadb", "Detach_whose_replies_are_all_lost")},
	{"the keys of a time are forgotten with its floor", []edit{
		{"internal/rowstore/once.go", "|| k.key <= floor\n", "|| k.key < \"\" && k.key <= floor\n"},
	}, conformance("unique_on_sqlite", "old_keys_are_forgotten")},
	{"a handover of other tables is taken", []edit{
		{"detach.go", "\tif h.database != databaseMark(l.mode.database) {\n", "\tif h.database != databaseMark(l.mode.database) && h.name == \"\" {\n"},
	}, test(".", "TestAHandoverOfOtherTablesIsRefused")},
	{"a commit without a reply was not done", []edit{
		{"once.go", "\tcase state.Complete:\n\t\treturn nil\n\t}\n\treturn failed\n", "\tcase state.Complete && state.Attempt > 99:\n\t\treturn nil\n\t}\n\treturn failed\n"},
	}, conformance("unique_on_postgres", "a_commit_of_a_run_whose_reply_is_lost")},
	{"a run completes its key whoever has the name", []edit{
		{"internal/rowstore/once.go", "w.exists && w.row.Acq == req.Acq && w.row.Version == req.Version", "w.exists && req.Version > 0"},
	}, sqliteSays("a_run_that_has_lost")},
	{"a leader hears of requests to former leaders", []edit{
		{"election_resign.go", "err == nil && version == lease.Token() {", "err == nil && version != 0 {"},
	}, sqliteSays("a_request_to_resign_is_one_to_a_term|a_leader_that_was_asked")},
	{"a request to resign goes to whoever leads by then", []edit{
		{"election_resign.go", "[]driver.RevokeRequest{{Name: name, Version: token, Politely: true}}", "[]driver.RevokeRequest{{Name: name, Version: token, Politely: token > 1<<62}}"},
	}, sqliteSays("a_leader_that_does_not_listen|a_leader_that_listens")},
	{"a round takes its own remains for another holder", []edit{
		{"quorum_grant.go", "\tif ok && isSameCall(h.Acq, t.req.Acq) {\n", "\tif ok && h.Acq == t.req.Acq {\n"},
	}, quorumSays("TestTryLockIsNotInItsOwnWay")},
	{"a raise that was refused counts as one", []edit{
		{"quorum_grant.go", "t.round.Raise(i, err == nil && done[k])", "t.round.Raise(i, err == nil && (done[k] || k >= 0))"},
	}, quorumSays("Raise|Late|Nobody|AnyMinority|Token")},
	{"SQLite: the version of somebody else's term is raised", []edit{
		{lite, "  AND l.acq = substr(?2, r.value ->> 1, 16)\n  AND l.version <= r.value ->> 2\n", "  AND l.version <= r.value ->> 2\n"},
	}, test("./locksqlite", "TestQueueAndSharedTerms/a_raise_lifts")},
	{"Postgres: a raise lowers a version", []edit{
		{pg, "l.acq = r.acq AND l.version <= r.version\n", "l.acq = r.acq\n"},
	}, test("./lockpg", "TestQueueAndSharedTerms/a_raise_lifts")},
	{"MariaDB: the version of a term that has expired is raised", []edit{
		{"lockmysql/sql/unique.sql", "AND l.version <= r.version AND l.expires_at > {now}\n", "AND l.version <= r.version\n"},
	}, test("./lockmysql", "TestQueueAndSharedTermsInEverySession/mariadb/plain/a_raise_lifts")},
	{"a quorum's lease lasts as long as on the node where it lasts longest", []edit{
		{"quorum_grant.go", "time.Duration(quorum.Quorum(remaining, g.q.need))", "time.Duration(quorum.Quorum(remaining, 1))"},
	}, test(".", "TestALeaseOfAQuorumLastsAsLong")},
	{"the name of a shard runs into the key", []edit{
		{"sharded.go", "fnv1a(fnvOffset, name+\"\\x00\")", "fnv1a(fnvOffset, name)"},
	}, test(".", "TestTheOwnerOfANameIsTheSame")},
	{"names that count up go to one shard", []edit{
		{"sharded.go", "score := mix(fnv1a(s.shards[i].hash, key));", "score := fnv1a(s.shards[i].hash, key);"},
	}, test(".", "TestEachShardOwns")},
}
