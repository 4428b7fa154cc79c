// Package rowstore keeps the leases of the unique mode in rows of a database. It runs the
// state machine of package claim between the statements that read and the statements that
// write, so that the rules stand in one place for all databases.
//
// A driver gives an [Engine], which runs statements by their names. The statements are in
// one .sql file per database, under the same names, with the same parameters and the same
// columns in their results. They are listed here. Times are microseconds since the epoch on
// the clock of the database; "now" is that clock, after any wait for a lock. In results, an
// ID is 32 lower-case hexadecimal digits, or empty for NULL; a text is empty for NULL; a value is
// bytes or NULL; a boolean is 0 or 1. A batch is given as b(columns), further parameters
// behind it.
//
// Some statements read the clock before they wait for a row, which they do for a second at most: on
// MariaDB queue_quickly, hand_over_quickly, renew and renew_shared, and an INSERT that meets one of
// the same row; on Postgres grant_quickly and queue_quickly, if the row was locked and has not
// changed. They look at the row again when they have it, so nobody gets what another has. But a
// term that expires during the wait is renewed all the same, and a new term, and its minimum hold
// time, count from before the wait.
//
// A lock row, in results, is
//
//	name, now, version, acq, owner, label, locker, value, holds, since, expires_at, limit_at, delay,
//	not_before, permits, waiting, holding, seq, ended, revoked
//
// and a claim is
//
//	name, now, acq, state, kind, slot, seq, token, holds, ttl, handed, max_hold, since, expires_at, limit_at, delay,
//	locker, owner, label, value, alive
//
// where alive is 1 if the Locker of a claim has a row in the table waiter that has not
// expired.
//
// Reading; these lock nothing, but in the transaction of a visit:
//
//	clock                                      → now
//	rows             b(name)                   → lock rows, of names that have one
//	claims           b(name), window, locker   → the claims of the names that hold, and of each name the first
//	                                             window claims that wait and are alive or of the locker, by seq
//	claims_that_hold b(name)                   → of a [Sole], in the place of claims: those that hold
//	claims_that_wait b(name), window, locker   → and the others
//	claims_of        b(name, acq)              → claims by acq
//	all_claims       b(name), gone             → all claims of the names; alive is 2 if the Locker has been dead for
//	                                             gone microseconds, or has no row in waiter
//	page             after, limit, free        → lock rows behind a name, in the byte order of the names, but
//	                                             those that nobody holds and nothing keeps only if free is 1; it
//	                                             looks at limit rows
//	page_end         after, limit              → how many rows page looks at, and the last name ('' if none)
//	readers          b(name)                   → name, kind, how many claims of it hold and have not expired, the highest
//	                                             expires_at of these
//	together         b(name), first            → name, acq, kind, slot, owner, label, token, since, expires_at: of the
//	                                             first claims of each name that hold and have not expired, by name,
//	                                             slot and seq
//	queues           b(name), first            → name, waiters, label, since, kind: of the first claims of each name
//	                                             that wait and are alive, by name and seq; waiters counts all
//	                                             of them
//	waits            locker                    → of claims that wait, carry something and are alive:
//	                                             name, acq, label, seq, since, kind, carries (hexadecimal)
//	holders          b(name)                   → name, acq: who holds the names and has not expired, either way
//
// In the transaction of a visit, in this order; of a [Sole] rows takes the place of those that
// lock:
//
//	make_rows        b(name)                   makes rows for names that have none, free since now, and returns nothing
//	lock_rows        b(name)                   → lock rows, locked in the order of the names against everybody but
//	                                             guards; it waits for others, see [Engine.Tx]
//	lock_free_rows   b(name)                   → the same of rows that nobody has locked; it passes over the others
//	unpinned         b(name), all              → name, now: those rows that could be locked against guards, too,
//	                                             without waiting: rows without an exclusive term that goes on,
//	                                             or all if all is 1
//	lock_claims      b(name), all              → name, acq: claims of the names that hold and could be locked
//	                                             without waiting, of those that have expired, or of all if all is 1
//	claims and claims_of, or all_claims
//	write_rows       b(name, version, acq, owner, label, locker, value, holds, since, expires_at, limit_at,
//	                   delay, not_before, permits, waiting, holding, seq, ended, revoked)
//	delete_claims    b(name, acq)
//	insert_claims    b(name, acq, state, kind, slot, seq, token, holds, ttl, handed, max_hold, since, expires_at,
//	                   limit_at, delay, locker, owner, label, value, carries)
//	wake             b(locker, acq)            after the commit, where the database can push
//
// By themselves:
//
//	beat             locker, life              the row of the Locker in the table waiter expires in life from now,
//	                                             or later. It need not be flushed
//	claims_of_locker locker, age               → name, acq: claims of the Locker that have waited for age microseconds,
//	                                             in the order of the names
//	set_value        b(name, acq, version, value, rising)  changes the value of exclusive terms that are held and
//	                                             have not expired, if rising is 1 only from none, or one that is
//	                                             not higher in the order of bytes
//	raise            b(name, acq, version)     sets the version of exclusive terms that are held, whose version is not
//	                                             higher, and that have not expired
//	asked            b(name)                   → name, asked
//	ask_to_resign    b(name, version)          sets asked to the version of exclusive terms that are held, have that
//	                                             version and have not expired
//	sweep_window     after, limit, gone, retention → name, visit, idle, seen: of the next limit rows behind a name
//	                                             those with visit or idle, in the order of the names. The last
//	                                             row of the result has the last name of all ('' if there is
//	                                             none) and how many they are. visit is 1 if the exclusive term
//	                                             has expired; or if the row counts claims, and one that holds has
//	                                             expired, or one waits whose Locker has been dead for gone
//	                                             microseconds. idle is 1 if purge would delete the row
//	purge            b(name), retention        deletes rows: nobody holds, waits for or is kept from the names, and
//	                                             expires_at and version are before now - retention. Rows that
//	                                             others have locked are passed over. The conditions are repeated
//	                                             under the lock
//	purge_waiters    gone                      deletes rows of waiter that expired gone microseconds ago and have no
//	                                             claims
//	sweep_due        every                     changes the row of meta (swept_at) if it has not done so for every
//	                                             microseconds, nor for sweep_pause
//	sweep_pause      pause                     changes the row of meta: for so many microseconds after swept_at
//	                                             sweep_due changes nothing
//
// About keys; they are in a file of their own. A key, in results, is name, key, attempt, since, at:
//
//	keys             b(name, key)              → keys that have a row
//	floors           b(name)                   → name, key: the highest key whose since is 0, or ''
//	lock_keys        b(name, key)              → keys, locked; in a transaction, and not of a [Sole]
//	write_keys       b(name, key, attempt, since, at)  in a transaction
//	last_keys        b(name)                   → of each name the key that was completed last; it may be several
//	old_keys         retention, limit          → name, key, at, floor: keys with a since, whose since and at are
//	                                             before now - retention. floor is that of the name, or ''
//	raise_floors     b(name, key)              sets since to 0, of keys that are complete
//	purge_keys       b(name, key), retention   deletes keys whose since and at are before now - retention. Rows that
//	                                             others have locked are passed over
//
// In transactions of the application:
//
//	guard, end_term  see the drivers
//	complete         name, key                 sets at of a key that is not complete
//	completed        name, key                 → at, or 0
package rowstore
