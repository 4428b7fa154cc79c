package locksqlite

// The SQL for names that are held together, see queries.go. The row of the name
// says how many hold it and until when the last of them expires, so that others
// need not look further; who they are stands in rows of their own. Whoever changes
// the one changes the other in the same transaction.

// together says that a name is held by those who share it.
const together = `(l.acq IS NULL AND l.others > 0 AND l.others_until > ` + now + `)`

// joinable says that a name can be had together with those who have it.
const joinable = `(l.acq IS NULL OR l.expires_at <= ` + now + ` AND (l.others = 0 OR l.others_until <= ` + now + `))
	AND l.not_before <= ` + now + ` AND l.wait_until <= ` + now

// begins says that who shares a name now is the first of a new term.
const begins = `(l.acq IS NOT NULL OR l.others <= 0 OR l.others_until <= ` + now + `)`

// miscounted says that fewer hold a name than its row says, or not for as long:
// some have expired, or who had it for longest has let it go.
const miscounted = `(SELECT count(*) < l.others OR coalesce(max(h.expires_at), 0) < l.others_until
	FROM {holder} AS h WHERE h.name = l.name AND h.version = l.version AND h.expires_at > ` + now + `)`

// over says that a holder has expired, or that its term was ended by others.
const over = `(h.expires_at <= ` + now + ` OR h.version IS NOT (SELECT l.version FROM {lock} AS l WHERE l.name = h.name))`

// none says that nobody is left of those who shared a name.
const none = `NOT EXISTS (SELECT 1 FROM {holder} AS h WHERE h.name = l.name)`

const (
	// queryStateShared is queryState for those who share: it also finds what they
	// hold already.
	queryStateShared = `
SELECT r.key,
       coalesce(` + joinable + `, 1),
       coalesce(` + together + ` AND h.version = l.version AND h.expires_at > ` + now + `, 0),
       h.acq IS NOT NULL,
       coalesce(h.expires_at, 0),
       ` + gate + `,
       ` + now + `,
       ` + holder + `
FROM json_each(?1) AS r
LEFT JOIN {lock} AS l ON l.name = json_extract(r.value, '$[0]')
LEFT JOIN {holder} AS h ON h.name = json_extract(r.value, '$[0]') AND h.acq = substr(?2, 1 + 16 * r.key, 16)`

	// queryJoin counts in those who share, in a transaction that has seen whose
	// expired term that ends. Those of one term have one version.
	queryJoin = `
INSERT INTO {lock} AS l (name, version, acquired_at, others, others_until)
SELECT json_extract(r.value, '$[0]'), ` + now + `, ` + now + `, 1, ` + now + ` + json_extract(r.value, '$[1]')
FROM json_each(?1) AS r
WHERE true
ON CONFLICT (name) DO UPDATE
SET ` + ended + `,
    version = CASE WHEN ` + begins + ` THEN max(l.version + 1, excluded.version) ELSE l.version END,
    acquired_at = CASE WHEN ` + begins + ` THEN excluded.acquired_at ELSE l.acquired_at END,
    others = CASE WHEN ` + begins + ` THEN 1 ELSE l.others + 1 END,
    others_until = CASE WHEN ` + begins + ` THEN excluded.others_until ELSE max(l.others_until, excluded.others_until) END
WHERE ` + joinable + `
RETURNING name, version, ` + now

	// queryEnter writes who they are.
	queryEnter = `
INSERT OR REPLACE INTO {holder} (name, acq, owner, instance, label, version, holds, acquired_at, expires_at)
SELECT json_extract(r.value, '$[0]'), substr(?2, 1 + 16 * r.key, 16), json_extract(r.value, '$[1]'), ?3, ?4,
       json_extract(r.value, '$[2]'), 1, json_extract(r.value, '$[3]'), json_extract(r.value, '$[4]')
FROM json_each(?1) AS r`

	queryRenewShared = `
UPDATE {holder} AS h
SET expires_at = max(h.expires_at, ` + now + ` + json_extract(r.value, '$[2]')),
    holds = json_extract(r.value, '$[3]')
FROM json_each(?1) AS r
JOIN {lock} AS l ON l.name = json_extract(r.value, '$[0]')
WHERE h.name = json_extract(r.value, '$[0]')
  AND h.acq = substr(?2, 1 + 16 * r.key, 16)
  AND h.version = json_extract(r.value, '$[1]')
  AND h.expires_at > ` + now + `
  AND l.version = json_extract(r.value, '$[1]')
  AND ` + together + `
RETURNING name, acq, expires_at, ` + now

	// queryReach is for the names of those that queryRenewShared has renewed.
	queryReach = `
UPDATE {lock} AS l
SET others_until = max(l.others_until, json_extract(r.value, '$[1]'))
FROM json_each(?1) AS r
WHERE l.name = json_extract(r.value, '$[0]')`

	queryLeave = `
DELETE FROM {holder}
WHERE (name, acq, version) IN (
	SELECT json_extract(r.value, '$[0]'), substr(?2, 1 + 16 * r.key, 16), json_extract(r.value, '$[2]')
	FROM json_each(?1) AS r)
RETURNING name, acq, version, acquired_at, expires_at > ` + now

	// queryQuit is queryLeave for acquisitions whose version is not known.
	queryQuit = `
DELETE FROM {holder}
WHERE (name, acq) IN (
	SELECT json_extract(r.value, '$[0]'), substr(?2, 1 + 16 * r.key, 16)
	FROM json_each(?1) AS r)
RETURNING name, acq, version, acquired_at, expires_at > ` + now

	// queryCountOut counts out those that have left, of the current term only.
	queryCountOut = `
UPDATE {lock} AS l
SET others = max(l.others - json_extract(r.value, '$[2]'), 0),
    others_until = CASE WHEN l.others > json_extract(r.value, '$[2]') THEN l.others_until ELSE 0 END,
    expires_at = CASE WHEN l.others > json_extract(r.value, '$[2]') THEN l.expires_at ELSE ` + now + ` END,
    ended = CASE WHEN l.others > json_extract(r.value, '$[2]') THEN l.ended ELSE 1 END,
    not_before = max(l.not_before, json_extract(r.value, '$[3]'))
FROM json_each(?1) AS r
WHERE l.name = json_extract(r.value, '$[0]')
  AND l.version = json_extract(r.value, '$[1]')
  AND l.acq IS NULL
  AND l.others > 0
RETURNING name, version, wait_until > ` + now

	// queryMend and queryRecount, in one transaction, make right what the row of a
	// name says of those who hold it together.
	queryMend = `
DELETE FROM {holder} AS h
WHERE h.name IN (SELECT r.value FROM json_each(?1) AS r)
  AND ` + over + `
RETURNING name, acq, owner, label, version, acquired_at, expires_at, expires_at <= ` + now

	queryRecount = `
UPDATE {lock} AS l
SET others = (SELECT count(*) FROM {holder} AS h WHERE h.name = l.name),
    others_until = (SELECT coalesce(max(h.expires_at), 0) FROM {holder} AS h WHERE h.name = l.name),
    expires_at = CASE WHEN l.acq IS NULL AND ` + none + ` THEN max(l.expires_at, min(l.others_until, ` + now + `)) ELSE l.expires_at END,
    ended = CASE WHEN l.acq IS NULL AND ` + none + ` THEN 2 ELSE l.ended END
WHERE l.name IN (SELECT r.value FROM json_each(?1) AS r)
  AND l.others > 0`

	// queryDrop follows on queryRevoke.
	queryDrop = `DELETE FROM {holder} WHERE name IN (SELECT r.value FROM json_each(?1) AS r)`
)

// sharedQueries are the texts for those who share.
type sharedQueries struct {
	state, join, enter, renew, reach, leave, quit, countOut, mend, recount, drop string
}

func newSharedQueries(text func(string) string) sharedQueries {
	return sharedQueries{
		state:    text(queryStateShared),
		join:     text(queryJoin),
		enter:    text(queryEnter),
		renew:    text(queryRenewShared),
		reach:    text(queryReach),
		leave:    text(queryLeave),
		quit:     text(queryQuit),
		countOut: text(queryCountOut),
		mend:     text(queryMend),
		recount:  text(queryRecount),
		drop:     text(queryDrop),
	}
}
