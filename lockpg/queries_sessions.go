package lockpg

import "strings"

// The SQL of the modes that keep locks in sessions, see queries.go. {mode} is the
// number of the mode in the table of terms.

// anybody stands in revoke_for for whoever has a name with a version up to revoked.
const anybody = `'00000000-0000-0000-0000-000000000000'::uuid`

// thisServer names the server, from its start to its end. writable says that it takes
// writes: it is no standby, and nobody has it refuse them, as before a switchover.
const (
	thisServer = `(date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint`
	writable   = `(NOT pg_is_in_recovery() AND NOT current_setting('default_transaction_read_only')::boolean)`
)

// noTerm is what all ends of a term have in common.
const noTerm = `acq = NULL, owner = NULL, instance = NULL, label = NULL, holds = 0, value = NULL, pid = NULL, started = NULL,
		delay = 0, revoke_for = NULL, ended_at = ` + now

// wasRevoked says that the holder of a term was asked to give it up.
const wasRevoked = `coalesce(t.revoke_for <> ` + anybody + ` OR t.version <= t.revoked, false)`

// termHolder is holder for a row of the table of terms, whose session decides until
// when.
const termHolder = `t.acq::text, t.owner, t.label, t.version, t.acquired_at, 0::bigint, false`

// sameStart tells the session a of a term from another one of its number.
const sameStart = `(extract(epoch FROM a.backend_start) * 1000000)::bigint = t.started`

// standing says that the session lives by which a term was begun. Of one whose start
// may not be seen it says no: it may be another one of that number.
const standing = `CASE WHEN t.pid BETWEEN 1 AND 2147483647 THEN EXISTS (SELECT FROM pg_stat_get_activity(t.pid::integer) a
		WHERE ` + sameStart + `) ELSE false END`

const (
	querySessionCheck = `
SELECT coalesce((SELECT relpersistence::text FROM pg_class WHERE oid = to_regclass($1::text)), ''),
       coalesce((SELECT relpersistence::text FROM pg_class WHERE oid = to_regclass($2::text)), ''),
       coalesce((SELECT relpersistence::text FROM pg_class WHERE oid = to_regclass($3::text)), ''),
       current_setting('max_locks_per_transaction')::bigint *
       (current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint),
       current_setting('idle_session_timeout', true) IS NOT NULL`

	queryServer = `SELECT ` + thisServer + `, ` + writable

	queryBackend = `SELECT pg_backend_pid()`

	// queryDraw draws a token for whoever has the lock of a name, and writes who that
	// is if $11. It waits for nobody: a row that somebody has locked, be it to guard
	// the former holder's lease, is passed over. It ends the term of a holder whose
	// lock is gone, and keeps its delay. A session other than that which draws may have
	// the lock by now, if the draw comes late: {standing} says that it has, and must be
	// looked at when the row is locked.
	queryDraw = `
WITH ` + flushed + `{lifting}, clock AS MATERIALIZED (
	SELECT ` + now + ` AS now FROM settings{lifted}
), was AS MATERIALIZED (
	SELECT t.* FROM {term} t CROSS JOIN settings
	WHERE t.mode = {mode} AND t.name = $1::text
	FOR UPDATE OF t SKIP LOCKED
), other AS MATERIALIZED (
	SELECT {standing} AS stands FROM was t WHERE t.acq <> $2::uuid
), seen AS MATERIALIZED (
	SELECT c.now, t.name IS NOT NULL AS mine, t.version,
	       EXISTS (SELECT FROM {term} x WHERE x.mode = {mode} AND x.name = $1::text) AS known,
	       coalesce(o.stands, false) AS stands, coalesce(NOT o.stands, false) AS crashed,
	       CASE WHEN t.acq = $2::uuid OR o.stands THEN 0 ELSE
	       greatest(coalesce(t.not_before, 0), CASE WHEN t.acq IS NOT NULL AND t.delay > 0 THEN c.now + t.delay ELSE 0 END) END AS gate
	FROM clock c LEFT JOIN was t ON true LEFT JOIN other o ON true
), decided AS MATERIALIZED (
	SELECT s.*, (s.mine OR NOT s.known) AND NOT s.stands AND s.gate <= s.now AS won FROM seen s
), drawn AS MATERIALIZED (
	SELECT d.*, d.won AND $11::boolean AS named, CASE WHEN d.won THEN {token_of} END AS token FROM decided d
), changed AS (
	UPDATE {term} t SET
		lock_key = $12::bigint, version = coalesce(d.token, t.version), revoke_for = NULL,
		acq = CASE WHEN d.named THEN $2::uuid END, owner = CASE WHEN d.named THEN $3::text END,
		instance = CASE WHEN d.named THEN $4::uuid END, label = CASE WHEN d.named THEN $5::text END,
		holds = CASE WHEN d.named THEN 1 ELSE 0 END, delay = CASE WHEN d.named THEN $6::bigint ELSE 0 END,
		value = CASE WHEN d.named THEN nullif($8::text::bytea, '') END,
		pid = CASE WHEN d.named THEN $9::bigint END, started = CASE WHEN d.named THEN $10::bigint END,
		acquired_at = CASE WHEN d.named THEN d.now ELSE t.acquired_at END,
		ended_at = CASE WHEN d.named THEN t.ended_at ELSE d.now END,
		not_before = CASE WHEN d.named AND $7::bigint > 0 THEN greatest(t.not_before, d.now + $7::bigint) ELSE greatest(t.not_before, d.gate) END,
		ended = CASE WHEN d.crashed THEN 2 WHEN d.won THEN 1 ELSE t.ended END
	FROM drawn d
	WHERE t.mode = {mode} AND t.name = $1::text AND d.mine AND (d.won OR d.crashed)
	RETURNING t.name
), added AS (
	INSERT INTO {term} AS t (mode, name, lock_key, version, acq, owner, instance, label, holds, delay, value, pid, started,
		acquired_at, ended_at, not_before, ended)
	SELECT {mode}, $1::text, $12::bigint, d.token, CASE WHEN d.named THEN $2::uuid END, CASE WHEN d.named THEN $3::text END,
	       CASE WHEN d.named THEN $4::uuid END, CASE WHEN d.named THEN $5::text END, CASE WHEN d.named THEN 1 ELSE 0 END,
	       CASE WHEN d.named THEN $6::bigint ELSE 0 END, CASE WHEN d.named THEN nullif($8::text::bytea, '') END,
	       CASE WHEN d.named THEN $9::bigint END, CASE WHEN d.named THEN $10::bigint END,
	       d.now, CASE WHEN d.named THEN 0 ELSE d.now END, CASE WHEN d.named AND $7::bigint > 0 THEN d.now + $7::bigint ELSE 0 END, 1
	FROM drawn d
	WHERE d.won AND NOT d.known
	ON CONFLICT (mode, name) DO NOTHING
	RETURNING t.name
)
SELECT d.won AND (EXISTS (SELECT FROM changed) OR EXISTS (SELECT FROM added)), coalesce(d.token, 0),
       d.crashed AND EXISTS (SELECT FROM changed), d.gate, d.now, ` + termHolder + `
FROM drawn d LEFT JOIN was t ON true`

	// queryEndTerm ends terms by their holders. The draw has written until when a minimum
	// hold keeps the name; a release without one, of a call that failed, takes that back. Who has guarded one must not have it
	// locked now, else it is left as it is. It says whether it was left.
	queryEndTerm = `
WITH ` + unflushed + `, req AS MATERIALIZED (
	SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[]) AS r(name, acq, min_hold)
), mine AS MATERIALIZED (
	SELECT t.name FROM {term} t JOIN req r ON r.name = t.name CROSS JOIN settings
	WHERE t.mode = {mode} AND t.acq = r.acq
	ORDER BY t.name
	FOR UPDATE OF t SKIP LOCKED
), done AS (
	UPDATE {term} t SET ` + noTerm + `,
		ended = CASE WHEN ` + wasRevoked + ` THEN 3 ELSE 1 END,
		revoked = CASE WHEN ` + wasRevoked + ` THEN t.version ELSE t.revoked END,
		not_before = CASE WHEN ` + wasRevoked + ` OR r.min_hold = 0 THEN 0 ELSE t.not_before END
	FROM mine m JOIN req r ON r.name = m.name
	WHERE t.mode = {mode} AND t.name = m.name AND t.acq = r.acq
	RETURNING t.name
)
SELECT EXISTS (SELECT FROM {term} t JOIN req r ON r.name = t.name
	WHERE t.mode = {mode} AND t.acq = r.acq AND t.name NOT IN (SELECT m.name FROM mine m))
FROM (SELECT count(*) FROM done) d`

	// queryAsked says which names a Locker is asked to give up: those of a holder of
	// its, or those whose version is not above revoked. A server that takes no writes any
	// more would answer for ever.
	queryAsked = `
SELECT c.now, ` + writable + `, t.name, t.acq::text, CASE WHEN t.revoke_for = ` + anybody + ` THEN t.revoked ELSE 0 END
FROM (SELECT ` + now + ` AS now) c
LEFT JOIN {term} t ON t.mode = {mode} AND t.revoke_for IN ($1::uuid, ` + anybody + `)`

	// queryGuarded says whether somebody has locked the row of a term.
	queryGuarded = `
SELECT l.name IS NULL
FROM {term} t
LEFT JOIN LATERAL (
	SELECT x.name FROM {term} x WHERE x.mode = {mode} AND x.name = t.name FOR UPDATE SKIP LOCKED
) l ON true
WHERE t.mode = {mode} AND t.name = $1::text AND t.acq = $2::uuid`

	queryHolds = `
WITH ` + unflushed + `
UPDATE {term} t SET holds = r.holds
FROM unnest($1::text[], $2::uuid[], $3::integer[]) AS r(name, acq, holds) CROSS JOIN settings
WHERE t.mode = {mode} AND t.name = r.name AND t.acq = r.acq`
)

const (
	// queryBegin chooses what the default may not be. Between statements such a
	// transaction holds no snapshot.
	queryBegin    = `BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE`
	queryCommit   = `COMMIT`
	queryRollback = `ROLLBACK`

	// queryRest has the server forget the statement before it, whose snapshot it would
	// keep for as long as the transaction goes on: drivers do not close their portals.
	// It has no snapshot itself, even as a prepared statement.
	queryRest = `SET LOCAL lock_timeout = '1s'`

	// pinSettings end with the transaction. The server ends a session that is silent for
	// the TTL; if the network is, by what it says to the other side's kernel. What it
	// does not know it is not told.
	pinSettings = `settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', $2::text, true) AS done, set_config('synchronous_commit', 'off', true),
	       set_config('statement_timeout', '0', true),
	       set_config('idle_in_transaction_session_timeout', $3::text, true),
	       set_config('tcp_user_timeout', $4::text, true), set_config('tcp_keepalives_idle', $5::text, true),
	       set_config('tcp_keepalives_interval', $6::text, true), set_config('tcp_keepalives_count', $7::text, true),
	       CASE WHEN current_setting('transaction_timeout', true) IS NOT NULL THEN set_config('transaction_timeout', '0', true) END,
	       CASE WHEN ` + checkable + ` THEN set_config('client_connection_check_interval', $8::text, true) END
)`

	// checkable says that the server can look, while it works, whether its client is
	// there: from version 14 on, and not on Windows.
	checkable = `current_setting('client_connection_check_interval', true) IS NOT NULL AND version() !~* 'visual c|mingw|windows|msvc'`

	// queryPin locks a name's pin. It tells whether there is one, and who holds the
	// name, as far as is known.
	queryPin = `
WITH ` + pinSettings + `
SELECT l.name IS NOT NULL, EXISTS (SELECT FROM {pin} x WHERE x.name = $1::text), pg_backend_pid(),
       (SELECT (extract(epoch FROM a.backend_start) * 1000000)::bigint FROM pg_stat_get_activity(pg_backend_pid()) a),
       ` + thisServer + `, ` + writable + `, ` + now + `, ` + termHolder + `
FROM settings s
LEFT JOIN LATERAL (
	SELECT p.name FROM {pin} p WHERE p.name = $1::text AND s.done IS NOT NULL {strength}
) l ON true
LEFT JOIN {term} t ON t.mode = {mode} AND t.name = $1::text`

	queryNewPin = `
INSERT INTO {pin} (name) SELECT $1::text
WHERE NOT EXISTS (SELECT FROM {pin} p WHERE p.name = $1::text)
ON CONFLICT (name) DO NOTHING`

	queryTermHolder = `
SELECT ` + now + `, ` + termHolder + `
FROM (SELECT) one LEFT JOIN {term} t ON t.mode = {mode} AND t.name = $1::text`

	// queryGuardTerm runs in a transaction of the application, see queryGuard.
	queryGuardTerm = `
SELECT m.id = $4::uuid, g.name IS NOT NULL
FROM {meta} m
LEFT JOIN LATERAL (
	SELECT t.name FROM {term} t
	WHERE m.id = $4::uuid AND t.mode = {mode} AND t.name = $1::text AND t.acq = $2::uuid AND t.version = $3::bigint
	FOR KEY SHARE
) g ON true`

	// queryTryTx runs in a transaction of the application. Nothing is locked in another
	// database, or on another server than that of the connection that draws the token.
	queryTryTx = `
SELECT m.id = $2::uuid, ` + thisServer + `, EXISTS (SELECT FROM {pin} x WHERE x.name = $1::text), l.name IS NOT NULL
FROM {meta} m
LEFT JOIN LATERAL (
	SELECT p.name FROM {pin} p WHERE m.id = $2::uuid AND ` + thisServer + ` = $3::bigint AND p.name = $1::text {strength}
) l ON true`
)

// sessionQueries are the texts of one mode for one schema and prefix.
type sessionQueries struct {
	termTable, pinTable, tokenSequence string // quoted

	draw, endTerm, asked, holds, termHolder        string
	guarded, proclaim                              string
	pin, pinWait, pinShared, pinSharedWait         string
	newPin, guard, tryTx, tryTxShared              string
	look, list, revoke, sweep, turn                string
	lift, try, pass, unlock, checkGuards, ownLocks string
	note, noteShared                               string
	guardLock, tryLockTx, tryLockTxShared          string
}

func newSessionQueries(schema, prefix, mode string) sessionQueries {
	q := sessionQueries{
		termTable: quote(schema, prefix+"term"), pinTable: quote(schema, prefix+"pin"), tokenSequence: quote(schema, prefix+"token"),
	}
	drawn := []string{"{token_of}", "greatest(coalesce(d.version, 0) + 1, d.now)", "{lifting}", "", "{lifted}", "", "{standing}", standing}
	inside := insideForUpdate
	if mode == modeAdvisory {
		drawn = []string{"{token_of}", "nextval('{token}')", "{lifting}", ", " + lifting("$13"), "{lifted}", " CROSS JOIN unlifted", "{standing}", "false"} // the session draws itself
		inside = insideAdvisory
	}
	text := func(text string, more ...string) string {
		text = strings.NewReplacer(more...).Replace(text)
		return strings.NewReplacer("{mode}", mode, "{term}", q.termTable, "{pin}", q.pinTable, "{try}", quote(schema, prefix+"try_1"),
			"{token}", strings.ReplaceAll(q.tokenSequence, "'", "''"), // stands in a string
			"{meta}", quote(schema, prefix+"meta")).Replace(text)
	}
	q.draw = text(queryDraw, drawn...)
	q.endTerm = text(queryEndTerm)
	q.asked = text(queryAsked)
	q.holds = text(queryHolds)
	q.guarded = text(queryGuarded)
	q.proclaim = text(queryProclaimTerm)
	q.termHolder = text(queryTermHolder)
	q.pin = text(queryPin, "{strength}", "FOR UPDATE SKIP LOCKED")
	q.pinWait = text(queryPin, "{strength}", "FOR UPDATE")
	q.pinShared = text(queryPin, "{strength}", "FOR SHARE SKIP LOCKED")
	q.pinSharedWait = text(queryPin, "{strength}", "FOR SHARE")
	q.newPin = text(queryNewPin)
	q.guard = text(queryGuardTerm)
	q.tryTx = text(queryTryTx, "{strength}", "FOR UPDATE SKIP LOCKED")
	q.tryTxShared = text(queryTryTx, "{strength}", "FOR SHARE SKIP LOCKED")
	q.look = text(queryLookTerms, inside...)
	q.list = text(queryListTerms, inside...)
	q.revoke = text(queryRevokeTerms, inside...)
	q.sweep = text(querySweepTerms, inside...)
	q.turn = text(queryTurnTerms)
	q.lift = text(queryLift)
	q.try = text(queryTry)
	q.pass = text(queryPass)
	q.unlock = text(queryUnlock)
	q.checkGuards = text(queryCheckGuards)
	q.ownLocks = text(queryOwnLocks)
	q.note = text(queryNote)
	q.noteShared = text(queryNoteShared)
	q.guardLock = text(queryGuardLock)
	q.tryLockTx = text(queryTryLockTx, "{shared}", "")
	q.tryLockTxShared = text(queryTryLockTx, "{shared}", "_shared")
	return q
}
