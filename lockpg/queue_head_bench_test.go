package lockpg_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/migrations"
)

// BenchmarkHeadOfTheQueue compares two places for those who wait for a hot name: the table of
// claims, where they are, and arrays in the row of the name. It hands the name over to the
// first of so many, and lets the former holder enter at the end. The statements of the table do
// all that is promised. Those of the arrays know neither kinds, values nor MinHold, and have no
// bound. Both ask whether the first lives. Beside them is an UPDATE that waits for its flush.
func BenchmarkHeadOfTheQueue(b *testing.B) {
	for _, waiters := range []int{1, 8, 100} {
		b.Run(fmt.Sprint(waiters), func(b *testing.B) {
			d := testdb.New(b, testdb.Postgres)
			db := d.Open(b)
			if err := migrations.Up(b.Context(), lockpg.DB(db)); err != nil {
				b.Fatal(err)
			}
			store, err := lockpg.DB(db).OpenUnique(b.Context(), driver.Client{Instance: headLocker, Label: "test"})
			if err != nil {
				b.Fatal(err)
			}
			reqs := make([]driver.AcquireRequest, 1+waiters)
			for i := range reqs {
				reqs[i] = waiter("a", 1+i)
			}
			res, err := store.Acquire(b.Context(), reqs)
			if err != nil || !res[0].Granted {
				b.Fatal(res, err)
			}
			conn, err := pgx.Connect(b.Context(), d.DSN())
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = conn.Close(b.Context()) }()
			h := &heads{B: b, conn: conn, texts: lockpg.Texts(store), reqs: reqs, tableVersion: res[0].Version}
			h.prepare()
			h.run()
		})
	}
}

// headLocker holds and waits.
var headLocker = driver.ID{1}

// heads are the two places.
type heads struct {
	*testing.B
	conn  *pgx.Conn
	texts map[string]string
	reqs  []driver.AcquireRequest

	tableVersion, rowVersion int64
}

const headNow = `(date_part('epoch', clock_timestamp()) * 1000000)::bigint`

// inTheRow has the first waiters in arrays.
var inTheRow = map[string]string{
	"row_make": `CREATE TABLE head_lock (
		LIKE sqllock_lock INCLUDING DEFAULTS, acqs uuid[] NOT NULL, lockers uuid[] NOT NULL, owners text[] NOT NULL,
		labels text[] NOT NULL, handed bigint[] NOT NULL, PRIMARY KEY (name)) WITH (fillfactor = 50)`,
	"row_fill": `INSERT INTO head_lock
		SELECT l.*, q.* FROM sqllock_lock l CROSS JOIN (
			SELECT array_agg(acq ORDER BY seq), array_agg(locker ORDER BY seq), array_agg(owner ORDER BY seq),
			       array_agg(label ORDER BY seq), array_agg(handed ORDER BY seq) FROM sqllock_claim) q`,
	"row_hand_over": `UPDATE head_lock l
		SET (acq, locker, owner, label, version, since, expires_at, holds, ended, waiting, acqs, lockers, owners, labels, handed) = (
			SELECT l.acqs[n.i], l.lockers[n.i], l.owners[n.i], l.labels[n.i], greatest(l.version + 1, t.now), t.now,
			       t.now + l.handed[n.i], 1, 0, l.waiting - 1,
			       l.acqs[:n.i - 1] || l.acqs[n.i + 1:], l.lockers[:n.i - 1] || l.lockers[n.i + 1:],
			       l.owners[:n.i - 1] || l.owners[n.i + 1:], l.labels[:n.i - 1] || l.labels[n.i + 1:],
			       l.handed[:n.i - 1] || l.handed[n.i + 1:]
			FROM (SELECT ` + headNow + ` AS now) t CROSS JOIN (
				SELECT i FROM generate_subscripts(l.lockers, 1) i
				WHERE EXISTS (SELECT FROM sqllock_waiter w WHERE w.locker = l.lockers[i] AND w.expires_at > ` + headNow + `)
				ORDER BY i LIMIT 1) n)
		WHERE l.name = $1 AND l.acq = $2 AND l.version = $3 AND l.waiting > 0 AND l.holding = 0
		  AND l.not_before <= ` + headNow + ` AND set_config('lock_timeout', '1s', true) <> ''
		RETURNING l.acq, l.version`,
	"row_enter": `UPDATE head_lock l
		SET acqs = l.acqs || $2::uuid, lockers = l.lockers || $3::uuid, owners = l.owners || $4::text,
		    labels = l.labels || $5::text, handed = l.handed || $6::bigint, waiting = l.waiting + 1,
		    seq = greatest(l.seq + 1, ` + headNow + `)
		WHERE l.name = $1 AND l.acq <> $2 AND l.expires_at > ` + headNow + `
		  AND set_config('lock_timeout', '1s', true) <> '' AND set_config('synchronous_commit', 'off', true) <> ''
		RETURNING l.acq, l.owner, l.label, l.version, l.since, l.expires_at`,
	"plain_make":   `CREATE TABLE head_plain (id int PRIMARY KEY, n bigint NOT NULL) WITH (fillfactor = 50)`,
	"plain_fill":   `INSERT INTO head_plain VALUES (1, 0)`,
	"plain_update": `UPDATE head_plain SET n = n + 1 WHERE id = $1`,
}

func (h *heads) prepare() {
	h.Helper()
	for _, set := range []string{"plan_cache_mode = force_generic_plan", "enable_seqscan = off", "enable_bitmapscan = off",
		"enable_nestloop = off", "jit = off"} {
		h.exec("SET " + set)
	}
	h.exec(`UPDATE sqllock_waiter SET expires_at = 1e16`)
	for _, name := range []string{"row_make", "row_fill", "plain_make", "plain_fill"} {
		h.exec(inTheRow[name])
	}
	for name, text := range inTheRow {
		h.texts[name] = text
	}
	for _, name := range []string{"hand_over_quickly", "queue_quickly", "row_hand_over", "row_enter", "plain_update"} {
		if _, err := h.conn.Prepare(h.Context(), name, h.texts[name]); err != nil {
			h.Fatal(name, err)
		}
	}
	h.rowVersion = h.tableVersion
}

func (h *heads) exec(text string) {
	if _, err := h.conn.Exec(h.Context(), text); err != nil {
		h.Fatal(text, err)
	}
}

// run takes turns.
func (h *heads) run() {
	took := make(map[string]time.Duration)
	timed := func(what string, f func()) {
		began := time.Now()
		f()
		took[what] += time.Since(began)
	}
	for i := 0; h.Loop(); i++ {
		mine, next := &h.reqs[i%len(h.reqs)], &h.reqs[(i+1)%len(h.reqs)]
		timed("update", func() { h.exec1("plain_update", 1) })
		timed("table-hand-over", func() { h.tableHandOver(mine, next) })
		timed("table-enter", func() { h.tableEnter(mine) })
		timed("row-hand-over", func() { h.rowHandOver(mine, next) })
		timed("row-enter", func() { h.rowEnter(mine) })
	}
	for what, d := range took {
		h.ReportMetric(float64(d.Microseconds())/float64(h.N), "µs/"+what)
	}
}

func (h *heads) exec1(name string, args ...any) {
	if tag, err := h.conn.Exec(h.Context(), name, args...); err != nil || tag.RowsAffected() != 1 {
		h.Fatal(name, tag, err)
	}
}

func uuidOf(id driver.ID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

func (h *heads) tableHandOver(mine, next *driver.AcquireRequest) {
	var place, now, waiting, expires int64
	var acq, locker string
	err := h.conn.QueryRow(h.Context(), "hand_over_quickly", []string{"a"}, []pgtype.UUID{uuidOf(mine.Acq)}, []int64{h.tableVersion}, []int64{0},
		uuidOf(driver.ID{2})).Scan(&place, &now, &waiting, &acq, &locker, &h.tableVersion, &expires)
	if err != nil || acq != next.Acq.String() {
		h.Fatal(acq, err)
	}
}

func (h *heads) tableEnter(mine *driver.AcquireRequest) {
	h.exec1("queue_quickly", []string{"a"}, []pgtype.UUID{uuidOf(mine.Acq)}, []int64{0}, []int64{60_000_000}, []int64{60_000_000},
		[]string{mine.Owner}, [][]byte{nil}, [][]byte{nil}, uuidOf(headLocker), "test")
}

func (h *heads) rowHandOver(mine, next *driver.AcquireRequest) {
	var acq pgtype.UUID
	err := h.conn.QueryRow(h.Context(), "row_hand_over", "a", uuidOf(mine.Acq), h.rowVersion).Scan(&acq, &h.rowVersion)
	if err != nil || acq.Bytes != next.Acq {
		h.Fatal(acq, err)
	}
}

func (h *heads) rowEnter(mine *driver.AcquireRequest) {
	h.exec1("row_enter", "a", uuidOf(mine.Acq), uuidOf(headLocker), mine.Owner, "test", int64(60_000_000))
}
