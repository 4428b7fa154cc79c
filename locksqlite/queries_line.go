package locksqlite

// The SQL for those who wait in line, see queries.go. Whoever is served has a ticket
// at that moment: the row of the name is filled from it.

// alive says that a ticket has not been given up, at the time of the statement.
const alive = `t.expires_at > ` + now

// served are the tickets that are alive before a place in the lines of names, which are
// ?1 as JSON arrays of name and place. ?2 is the time, so that the statements of one
// hand-over agree, and ?3 the client who hands over.
const served = `
FROM json_each(?1) AS r
JOIN {ticket} AS t ON t.name = json_extract(r.value, '$[0]') AND t.seq < json_extract(r.value, '$[1]')
WHERE t.expires_at > ?2`

// servedUntil is when the row of one that is served expires.
const servedUntil = `?2 + CASE WHEN t.instance = ?3 THEN t.ttl ELSE t.handed END`

// accompanied says that somebody who is alive shares a name.
const accompanied = `(` + together + ` AND EXISTS (
	SELECT 1 FROM {holder} AS h WHERE h.name = l.name AND h.version = l.version AND h.expires_at > ` + now + `))`

const (
	// queryNext finds who may be served of names that nobody holds alone. It looks up
	// to the first writer.
	queryNext = `
SELECT r.value, ` + now + `, ` + accompanied + `,
       (SELECT t.seq FROM {ticket} AS t WHERE t.name = r.value AND ` + alive + ` ORDER BY t.seq LIMIT 1),
       (SELECT t.seq FROM {ticket} AS t WHERE t.name = r.value AND ` + alive + ` AND t.shared = 0 ORDER BY t.seq LIMIT 1)
FROM json_each(?1) AS r
JOIN {lock} AS l ON l.name = r.value
WHERE l.acq IS NULL AND l.not_before <= ` + now + ` AND l.wait_until > ` + now

	// queryServe hands names over to those who do not share, one of each name.
	queryServe = `
UPDATE {lock} AS l
SET acq = n.acq, owner = n.owner, instance = n.instance, label = n.label,
    version = max(l.version + 1, ?2), holds = 1, acquired_at = ?2, expires_at = n.until, value = n.value,
    others = 0, others_until = 0
FROM (SELECT t.name, t.acq, t.owner, t.instance, t.label, t.value, ` + servedUntil + ` AS until` + served + ` AND t.shared = 0) AS n
WHERE l.name = n.name
RETURNING name, acq, instance, version, expires_at`

	// queryAdmit counts in those who share, before queryEnterServed writes who they are.
	// The dead among those who were counted before stay so until queryMend.
	queryAdmit = `
UPDATE {lock} AS l
SET ` + ended + `,
    version = CASE WHEN ` + accompanied + ` THEN l.version ELSE max(l.version + 1, ?2) END,
    acquired_at = CASE WHEN ` + accompanied + ` THEN l.acquired_at ELSE ?2 END,
    others = CASE WHEN ` + accompanied + ` THEN l.others + n.count ELSE n.count END,
    others_until = CASE WHEN ` + accompanied + ` THEN max(l.others_until, n.until) ELSE n.until END
FROM (SELECT t.name, count(*) AS count, max(` + servedUntil + `) AS until` + served + ` AND t.shared = 1 GROUP BY t.name) AS n
WHERE l.name = n.name`

	queryEnterServed = `
INSERT OR REPLACE INTO {holder} (name, acq, owner, instance, label, version, holds, acquired_at, expires_at)
SELECT t.name, t.acq, t.owner, t.instance, t.label, (SELECT l.version FROM {lock} AS l WHERE l.name = t.name), 1, ?2, ` + servedUntil + served + ` AND t.shared = 1
RETURNING name, acq, instance, version, expires_at`

	// queryPass deletes the tickets of those who were served, and the dead before them.
	queryPass = `
DELETE FROM {ticket}
WHERE (name, seq) IN (
	SELECT t.name, t.seq
	FROM json_each(?1) AS r
	JOIN {ticket} AS t ON t.name = json_extract(r.value, '$[0]') AND t.seq < json_extract(r.value, '$[1]'))`

	// querySettle follows on every change of who is first in the lines of names.
	querySettle = `
UPDATE {lock} AS l
SET qhead = coalesce((SELECT t.seq - 1 FROM {ticket} AS t WHERE t.name = l.name ORDER BY t.seq LIMIT 1), l.qseq),
    wait_until = CASE WHEN EXISTS (SELECT 1 FROM {ticket} AS t WHERE t.name = l.name AND ` + alive + `) THEN l.wait_until ELSE 0 END
WHERE l.name IN (SELECT r.value FROM json_each(?1) AS r)`

	// queryLine reads what a request has to know of each name.
	queryLine = `
SELECT r.key,
       CASE WHEN ` + together + ` THEN ` + miscounted + ` ELSE 0 END,
       coalesce(l.not_before, 0),
       coalesce(l.wait_until, 0),
       coalesce(l.qseq, 0),
       ` + now + `,
       ` + holder + `
FROM json_each(?1) AS r
LEFT JOIN {lock} AS l ON l.name = r.value`

	queryTickets = `
SELECT r.key, t.seq, t.acq, t.shared, t.expires_at
FROM json_each(?1) AS r
JOIN {ticket} AS t ON t.name = r.value
ORDER BY r.key, t.seq`

	// queryMember finds what those who share hold already.
	queryMember = `
SELECT r.key, h.version, h.expires_at, ` + together + ` AND h.version = l.version AND h.expires_at > ` + now + `
FROM json_each(?1) AS r
JOIN {lock} AS l ON l.name = json_extract(r.value, '$[0]')
JOIN {holder} AS h ON h.name = l.name AND h.acq = substr(?2, 1 + 16 * r.key, 16)`

	// queryAwait makes the rows of names that are waited for.
	queryAwait = `
INSERT INTO {lock} AS l (name, version, qseq, wait_until)
SELECT json_extract(r.value, '$[0]'), 0, json_extract(r.value, '$[1]'), json_extract(r.value, '$[2]')
FROM json_each(?1) AS r
WHERE true
ON CONFLICT (name) DO UPDATE
SET qseq = excluded.qseq, wait_until = max(l.wait_until, excluded.wait_until)`

	queryTicket = `
INSERT INTO {ticket} AS t
       (name, seq, acq, owner, instance, label, shared, ttl, handed, entered_at, expires_at, carries, value)
SELECT json_extract(r.value, '$[0]'), json_extract(r.value, '$[1]'), substr(?2, 1 + 16 * r.key, 16), json_extract(r.value, '$[2]'), ?3, ?4,
       json_extract(r.value, '$[3]'), json_extract(r.value, '$[4]'), json_extract(r.value, '$[5]'), ?6, json_extract(r.value, '$[6]'),
       nullif(substr(?5, 1 + json_extract(r.value, '$[7]'), json_extract(r.value, '$[8]')), x''),
       nullif(substr(?5, 1 + json_extract(r.value, '$[9]'), json_extract(r.value, '$[10]')), x'')
FROM json_each(?1) AS r`

	queryExtend = `
UPDATE {ticket} AS t
SET expires_at = max(t.expires_at, json_extract(r.value, '$[2]'))
FROM json_each(?1) AS r
WHERE t.name = json_extract(r.value, '$[0]') AND t.seq = json_extract(r.value, '$[1]')`

	queryWaits = `
SELECT t.name, t.acq, t.label, t.seq, t.entered_at, t.shared, t.carries,
       coalesce((SELECT hex(l.acq) FROM {lock} AS l WHERE l.name = t.name AND l.acq IS NOT NULL AND l.expires_at > ` + now + `),
                (SELECT group_concat(hex(h.acq), '') FROM {lock} AS l JOIN {holder} AS h ON h.name = l.name AND h.version = l.version
                 WHERE l.name = t.name AND ` + together + ` AND h.expires_at > ` + now + `), '')
FROM {ticket} AS t
WHERE t.carries IS NOT NULL AND ` + alive + `
ORDER BY t.name, t.seq`

	// queryLeft finds which requests there is something to abandon for.
	queryLeft = `
SELECT r.key
FROM json_each(?1) AS r
WHERE EXISTS (SELECT 1 FROM {lock} AS l WHERE l.name = json_extract(r.value, '$[0]') AND l.acq = substr(?2, 1 + 16 * r.key, 16))
   OR EXISTS (SELECT 1 FROM {holder} AS h WHERE h.name = json_extract(r.value, '$[0]') AND h.acq = substr(?2, 1 + 16 * r.key, 16))
   OR EXISTS (SELECT 1 FROM {ticket} AS t WHERE t.name = json_extract(r.value, '$[0]') AND t.acq = substr(?2, 1 + 16 * r.key, 16))`

	queryCancel = `
DELETE FROM {ticket}
WHERE (name, acq) IN (SELECT json_extract(r.value, '$[0]'), substr(?2, 1 + 16 * r.key, 16) FROM json_each(?1) AS r)
RETURNING name`

	// queryBury deletes what queryWindow found of tickets that are long dead.
	queryBury = `
DELETE FROM {ticket} AS t
WHERE t.name IN (SELECT r.value FROM json_each(?1) AS r)
  AND ` + longDead
)

// longDead says that a ticket can go: a waiter that has been away for so long does not
// expect its place. A younger one is left to those who are quick to come back.
const longDead = `t.expires_at <= ` + now + ` - 60000000`

// lineQueries are the texts for those who wait.
type lineQueries struct {
	next, serve, admit, enter, pass, settle       string
	state, tickets, member, await, ticket, extend string
	waits, left, cancel, bury                     string
}

func newLineQueries(text func(string) string) lineQueries {
	return lineQueries{
		next:    text(queryNext),
		serve:   text(queryServe),
		admit:   text(queryAdmit),
		enter:   text(queryEnterServed),
		pass:    text(queryPass),
		settle:  text(querySettle),
		state:   text(queryLine),
		tickets: text(queryTickets),
		member:  text(queryMember),
		await:   text(queryAwait),
		ticket:  text(queryTicket),
		extend:  text(queryExtend),
		waits:   text(queryWaits),
		left:    text(queryLeft),
		cancel:  text(queryCancel),
		bury:    text(queryBury),
	}
}
