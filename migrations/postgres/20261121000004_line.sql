-- +goose Up

-- qseq is the number of the last ticket of the name. What stands up to qhead is over.
ALTER TABLE "sqllock_lock"
	ADD COLUMN qseq  bigint NOT NULL DEFAULT 0,
	ADD COLUMN qhead bigint NOT NULL DEFAULT 0;

-- Who waits for a name of the unique mode, in line. A ticket is written in a
-- transaction that has locked the row of the name before: so the numbers are in the
-- order of the commits, and whoever frees the name cannot miss one. Until when the
-- last ticket of a name lives stands in wait_until of its row, or later. ttl and handed
-- are for how long the row keeps the name when it is handed over, by the same client or
-- by another. carries are acquisitions that the waiter holds, 16 bytes each.
CREATE TABLE IF NOT EXISTS "sqllock_ticket" (
	name       text COLLATE "C" NOT NULL,
	seq        bigint NOT NULL,
	acq        uuid NOT NULL,
	owner      text NOT NULL,
	instance   uuid NOT NULL,
	label      text NOT NULL,
	shared     boolean NOT NULL,
	ttl        bigint NOT NULL,
	handed     bigint NOT NULL,
	value      bytea,
	carries    bytea,
	entered_at bigint NOT NULL,
	expires_at bigint NOT NULL,
	PRIMARY KEY (name, seq),
	UNIQUE (acq)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX ON "sqllock_ticket" (entered_at) WHERE carries IS NOT NULL;

-- These are functions because each statement of one that is VOLATILE sees what was
-- committed until the statement began: one locks the row of a name, the next reads the
-- tickets, and the client waits for one reply.

-- Tells a waiter that it has the name, or that it should ask.
CREATE OR REPLACE FUNCTION "sqllock_tell"(instance uuid, acq uuid) RETURNS void LANGUAGE sql VOLATILE AS
'SELECT pg_notify(''sqllock_'' || replace(instance::text, ''-'', ''''), replace(acq::text, ''-'', ''''))';

-- Moves the line of a name whose row the transaction has locked: whoever is first
-- becomes the holder, if nobody else is. l is the row as it is to be, less that (a record,
-- for a function with the type of a table would keep that from being dropped); it is
-- written if that, or changed, demands it. mine is the client for whom this is done.
-- It tells its own waiters by itself if tells is true: they are returned, all others
-- are notified. If asking is not null, nobody else is served, except that those who
-- share enter together, but then an expired holder gives way, unless a transaction
-- guards the lease: that needs a lock of the row that no guard lets through.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION "sqllock_advance"(
	l record, changed boolean, mine uuid, tells boolean, asking uuid[],
	OUT term bigint, OUT clock bigint, OUT entered uuid[], OUT until bigint[]
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	head    "sqllock_ticket";
	readers bigint := 0;
	stop    bigint; -- the first ticket that stays
	latest  bigint;
	others  uuid[];
	theirs  uuid[];
BEGIN
	clock := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
	SELECT t.* INTO head FROM "sqllock_ticket" t
	WHERE t.name = l.name AND t.seq > l.qhead AND t.expires_at > clock
	ORDER BY t.seq LIMIT 1;
	IF head.seq IS NULL THEN
		changed := changed OR l.wait_until > 0;
		l.wait_until := 0;
	ELSIF l.acq IS NULL OR asking IS NOT NULL AND l.expires_at <= clock THEN
		IF l.acq IS NULL AND l.others > 0 AND l.others_until > clock THEN
			SELECT count(*) INTO readers FROM "sqllock_holder" h
			WHERE h.name = l.name AND h.version = l.version AND h.expires_at > clock;
		END IF;
		IF head.shared THEN
			SELECT t.seq INTO stop FROM "sqllock_ticket" t
			WHERE t.name = l.name AND t.seq > head.seq AND NOT t.shared AND t.expires_at > clock
			ORDER BY t.seq LIMIT 1;
			stop := coalesce(stop, l.qseq + 1);
		ELSIF readers = 0 THEN
			stop := head.seq + 1;
		END IF;
		IF stop IS NOT NULL AND l.not_before > clock THEN
			IF asking IS NULL THEN
				PERFORM "sqllock_tell"(head.instance, head.acq);
			END IF;
			stop := NULL;
		ELSIF stop IS NOT NULL AND asking IS NOT NULL AND NOT head.acq = ANY (asking) THEN
			PERFORM 1 FROM "sqllock_ticket" t
			WHERE t.acq = ANY (asking) AND t.name = l.name AND t.seq > head.seq AND t.seq < stop;
			IF NOT FOUND THEN
				stop := NULL;
			END IF;
		END IF;
		IF stop IS NOT NULL AND l.acq IS NOT NULL THEN
			PERFORM 1 FROM "sqllock_lock" k WHERE k.name = l.name FOR UPDATE SKIP LOCKED;
			IF NOT FOUND THEN
				stop := NULL;
			END IF;
		END IF;
	END IF;

	IF stop IS NOT NULL THEN
		changed := true;
		IF readers = 0 THEN
			l.version := greatest(l.version + 1, clock);
			l.acquired_at := clock;
			l.others := 0;
			l.others_until := 0;
		END IF;
		IF head.shared THEN
			l.acq := NULL; l.owner := NULL; l.instance := NULL; l.label := NULL; l.holds := 0; l.value := NULL;
			-- Who has expired and comes back is counted already.
			SELECT l.others - count(*) INTO l.others FROM "sqllock_holder" h
			JOIN "sqllock_ticket" t ON t.name = h.name AND t.acq = h.acq
			WHERE h.name = l.name AND h.version = l.version AND t.seq > l.qhead AND t.seq < stop AND t.expires_at > clock;
			WITH gone AS (
				DELETE FROM "sqllock_ticket" t WHERE t.name = l.name AND t.seq > l.qhead AND t.seq < stop
				RETURNING t.*
			), added AS (
				INSERT INTO "sqllock_holder" AS h (name, acq, owner, instance, label, version, holds, acquired_at, expires_at)
				SELECT g.name, g.acq, g.owner, g.instance, g.label, l.version, 1, clock,
				       clock + CASE WHEN g.instance = mine THEN g.ttl ELSE g.handed END
				FROM gone g WHERE g.expires_at > clock
				ON CONFLICT (name, acq) DO UPDATE SET owner = excluded.owner, instance = excluded.instance, label = excluded.label,
					version = excluded.version, holds = 1, acquired_at = excluded.acquired_at, expires_at = excluded.expires_at
				RETURNING h.acq, h.instance, h.expires_at, tells AND h.instance = mine AS told
			)
			SELECT l.others + count(*), max(a.expires_at),
			       array_agg(a.acq) FILTER (WHERE a.told), array_agg(a.expires_at) FILTER (WHERE a.told),
			       array_agg(a.acq) FILTER (WHERE NOT a.told), array_agg(a.instance) FILTER (WHERE NOT a.told)
			INTO l.others, latest, entered, until, others, theirs FROM added a;
			l.others_until := greatest(l.others_until, latest);
			PERFORM "sqllock_tell"(o.instance, o.acq) FROM unnest(others, theirs) o(acq, instance)
			WHERE asking IS NULL OR NOT o.acq = ANY (asking);
		ELSE
			DELETE FROM "sqllock_ticket" t WHERE t.name = l.name AND t.seq > l.qhead AND t.seq < stop;
			l.acq := head.acq; l.owner := head.owner; l.instance := head.instance; l.label := head.label;
			l.holds := 1; l.value := head.value;
			l.expires_at := clock + CASE WHEN head.instance = mine THEN head.ttl ELSE head.handed END;
			IF tells AND head.instance = mine THEN
				entered := ARRAY[head.acq];
				until := ARRAY[l.expires_at];
			ELSIF asking IS NULL THEN
				PERFORM "sqllock_tell"(head.instance, head.acq);
			END IF;
		END IF;
		l.qhead := stop - 1;
		PERFORM 1 FROM "sqllock_ticket" t
		WHERE t.name = l.name AND t.seq > l.qhead AND t.expires_at > clock
		ORDER BY t.seq LIMIT 1;
		IF NOT FOUND THEN
			l.wait_until := 0;
		END IF;
	END IF;

	IF changed THEN
		UPDATE "sqllock_lock" k SET
			acq = l.acq, owner = l.owner, instance = l.instance, label = l.label, value = l.value, version = l.version,
			holds = l.holds, acquired_at = l.acquired_at, expires_at = l.expires_at, ended = l.ended, not_before = l.not_before,
			others = l.others, others_until = l.others_until, wait_until = l.wait_until, qseq = l.qseq, qhead = l.qhead
		WHERE k.name = l.name;
	END IF;
	term := l.version;
END
$$;
-- +goose StatementEnd

-- Ends what an acquisition has of a name, and moves the line. v is the version; null is
-- for whatever it has, also a ticket. hold keeps the name from others for a time after
-- the grant. While a transaction guards a lease that was guarded it is not ended: that
-- is an error if v is null.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION "sqllock_leave"(
	n text, a uuid, v bigint, hold bigint, together boolean, guarded boolean, mine uuid,
	OUT freed boolean, OUT term bigint, OUT clock bigint, OUT entered uuid[], OUT until bigint[]
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	l       "sqllock_lock";
	h       "sqllock_holder";
	changed boolean := false;
BEGIN
	freed := false;
	SELECT k.* INTO l FROM "sqllock_lock" k WHERE k.name = n FOR NO KEY UPDATE;
	IF l.name IS NULL THEN
		RETURN;
	END IF;
	clock := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
	IF together THEN
		DELETE FROM "sqllock_holder" t WHERE t.name = n AND t.acq = a AND (v IS NULL OR t.version = v)
		RETURNING t.* INTO h;
		IF h.version = l.version THEN
			freed := h.expires_at > clock;
			changed := l.others > 0;
		END IF;
		IF changed THEN
			l.others := l.others - 1;
			IF l.others = 0 THEN
				l.others_until := 0;
				l.expires_at := clock;
				l.ended := 1;
			END IF;
			IF hold > 0 THEN
				l.not_before := greatest(l.not_before, h.acquired_at + hold);
			END IF;
		END IF;
	ELSIF l.acq = a AND (v IS NULL OR l.version = v) THEN
		IF guarded AND v IS NULL THEN
			PERFORM 1 FROM "sqllock_lock" k WHERE k.name = n FOR UPDATE NOWAIT;
		ELSIF guarded THEN
			PERFORM 1 FROM "sqllock_lock" k WHERE k.name = n FOR UPDATE SKIP LOCKED;
			IF NOT FOUND THEN
				RETURN;
			END IF;
		END IF;
		freed := true;
		changed := true;
		l.acq := NULL; l.owner := NULL; l.instance := NULL; l.label := NULL; l.holds := 0; l.value := NULL;
		l.ended := 1;
		l.expires_at := clock;
		IF hold > 0 THEN
			l.not_before := greatest(l.not_before, l.acquired_at + hold);
		END IF;
	END IF;
	IF v IS NULL THEN
		DELETE FROM "sqllock_ticket" t WHERE t.acq = a AND t.name = n;
	ELSIF NOT changed THEN
		RETURN;
	END IF;
	SELECT f.* INTO term, clock, entered, until FROM "sqllock_advance"(l, changed, mine, v IS NOT NULL, NULL) f;
END
$$;
-- +goose StatementEnd

-- Asks for a name for those who wait for it, in their order. Who does not get it has a
-- ticket in the end. It answers with a row for each: version and until are null for
-- those; holder and what follows tell who has the name. One more row tells whose expired
-- term this has ended, if it has. durable is the synchronous_commit of a transaction in
-- which somebody gets a name: for tickets alone the caller need not wait, so that the row
-- is locked for no longer than it takes to write them. Those that a crash undoes are
-- written anew when their waiters ask again.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION "sqllock_line"(
	n text, acqs uuid[], owners text[], ttls bigint[], vals bytea[], together boolean[],
	lives bigint[], handed bigint[], carried bytea[], mine uuid, me text, durable text
) RETURNS TABLE (
	ord bigint, version bigint, found boolean, until bigint, ahead bigint, clock bigint,
	holder uuid, owner text, label text, held bigint, since bigint, lasts bigint, shared boolean, crashed boolean
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
	l       "sqllock_lock";
	was     "sqllock_lock";
	dead    "sqllock_holder";
	missing bigint; -- readers who have expired
	at      bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
	have    uuid[] := '{}'; -- those who have the name already
	longest bigint;
	tickets bigint;
	changed boolean := false;
	readers boolean := false;
	stay    boolean := false; -- all have tickets, and nothing else is to be done
BEGIN
	SELECT k.* INTO l FROM "sqllock_lock" k WHERE k.name = n;
	SELECT max(r.life) INTO longest FROM unnest(lives) r(life);

	-- While somebody holds the name alone, those whose tickets will live for a while need
	-- not lock the row of the name to stay: with many of them it would be locked for most of
	-- the time. A ticket that is locked is just being served.
	IF l.expires_at > at AND NOT l.acq = ANY (acqs) AND l.wait_until >= at + longest THEN
		SELECT count(*) = cardinality(acqs) INTO stay FROM unnest(acqs, lives) r(acq, life)
		JOIN "sqllock_ticket" t ON t.acq = r.acq
		WHERE t.name = n AND t.seq > l.qhead AND t.expires_at > at + r.life / 6;
	END IF;
	IF stay THEN
		WITH mine AS (
			SELECT t.acq, r.life FROM unnest(acqs, lives) r(acq, life) JOIN "sqllock_ticket" t ON t.acq = r.acq
			FOR NO KEY UPDATE OF t SKIP LOCKED
		)
		UPDATE "sqllock_ticket" t SET expires_at = greatest(t.expires_at, at + m.life) FROM mine m WHERE t.acq = m.acq;
		SELECT k.* INTO l FROM "sqllock_lock" k WHERE k.name = n; -- who was served meanwhile
		at := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
	END IF;
	FOR look IN 1 .. 2 LOOP
		IF l.expires_at > at AND l.acq = ANY (acqs) THEN
			have := ARRAY[l.acq];
		ELSIF l.acq IS NULL AND l.others > 0 AND l.others_until > at THEN
			SELECT coalesce(array_agg(h.acq), '{}') INTO have FROM "sqllock_holder" h
			WHERE h.name = n AND h.acq = ANY (acqs) AND h.version = l.version AND h.expires_at > at;
		END IF;
		EXIT WHEN look = 2 OR stay OR cardinality(have) = cardinality(acqs);
		LOOP
			SELECT k.* INTO l FROM "sqllock_lock" k WHERE k.name = n FOR NO KEY UPDATE;
			EXIT WHEN l.name IS NOT NULL;
			INSERT INTO "sqllock_lock" (name, version, qseq)
			SELECT n, 0, coalesce(max(t.seq), 0) FROM "sqllock_ticket" t WHERE t.name = n
			ON CONFLICT DO NOTHING;
		END LOOP;
		at := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
		was := l;
		have := '{}';
	END LOOP;

	IF cardinality(have) < cardinality(acqs) AND NOT stay THEN
		IF l.acq IS NULL AND l.others > 0 AND l.others_until > at THEN
			WITH gone AS (
				DELETE FROM "sqllock_holder" h WHERE h.name = n AND h.version = l.version AND h.expires_at <= at
				RETURNING h.*
			)
			SELECT g.*, count(*) OVER () INTO dead.name, dead.acq, dead.owner, dead.instance, dead.label, dead.version,
				dead.holds, dead.acquired_at, dead.expires_at, missing
			FROM gone g ORDER BY g.acq = ANY (acqs), g.expires_at DESC LIMIT 1;
			IF missing > 0 THEN
				SELECT count(*), coalesce(max(h.expires_at), 0) INTO l.others, l.others_until FROM "sqllock_holder" h
				WHERE h.name = n AND h.version = l.version;
				IF l.others = 0 THEN
					l.expires_at := dead.expires_at;
					l.ended := 2;
				END IF;
				changed := true;
			END IF;
		END IF;
		UPDATE "sqllock_ticket" t SET expires_at = greatest(t.expires_at, at + r.life)
		FROM unnest(acqs, lives) r(acq, life)
		WHERE t.acq = r.acq AND NOT r.acq = ANY (have);
		GET DIAGNOSTICS tickets = ROW_COUNT;
		IF tickets + cardinality(have) < cardinality(acqs) THEN
			INSERT INTO "sqllock_ticket" (name, seq, acq, owner, instance, label, shared, ttl, handed, value, carries, entered_at, expires_at)
			SELECT n, l.qseq + row_number() OVER (ORDER BY r.ord), r.acq, r.owner, mine, me, r.shared, r.ttl, r.handed,
			       nullif(r.value, ''), nullif(r.carries, ''), at, at + r.life
			FROM unnest(acqs, owners, together, ttls, handed, vals, carried, lives) WITH ORDINALITY
				r(acq, owner, shared, ttl, handed, value, carries, life, ord)
			WHERE NOT r.acq = ANY (have) AND NOT EXISTS (SELECT FROM "sqllock_ticket" t WHERE t.acq = r.acq);
			GET DIAGNOSTICS tickets = ROW_COUNT;
			l.qseq := l.qseq + tickets;
			changed := true;
		END IF;
		IF l.wait_until < at + longest THEN -- with room, so that not each ticket writes the row
			l.wait_until := at + longest + longest / 2;
			changed := true;
		END IF;
		SELECT f.clock INTO at FROM "sqllock_advance"(l, changed, mine, false, acqs) f;
		SELECT k.* INTO l FROM "sqllock_lock" k WHERE k.name = n;
		IF l.qhead > was.qhead THEN
			PERFORM set_config('synchronous_commit', durable, true);
		END IF;
	END IF;

	IF l.acq IS NULL AND l.others > 0 AND l.others_until > at THEN
		SELECT count(*) > 0 INTO readers FROM "sqllock_holder" h
		WHERE h.name = n AND h.version = l.version AND h.expires_at > at;
	END IF;
	RETURN QUERY
	WITH answer AS (
		SELECT r.ord, r.acq = ANY (have) AS found,
		       CASE WHEN r.acq = l.acq THEN CASE WHEN l.expires_at > at THEN l.expires_at END ELSE h.expires_at END AS until,
		       CASE WHEN stay THEN coalesce(w.ahead, 64) ELSE w.ahead END AS ahead
		FROM unnest(acqs) WITH ORDINALITY r(acq, ord)
		LEFT JOIN "sqllock_holder" h ON readers AND h.name = n AND h.acq = r.acq AND h.version = l.version AND h.expires_at > at
		LEFT JOIN (
			SELECT f.acq, row_number() OVER (ORDER BY f.seq) - 1 AS ahead FROM (
				SELECT t.acq, t.seq FROM "sqllock_ticket" t
				WHERE t.name = n AND t.seq > l.qhead AND t.expires_at > at
				ORDER BY t.seq LIMIT CASE WHEN stay THEN 64 END
			) f
		) w ON w.acq = r.acq
	)
	SELECT a.ord, CASE WHEN a.until IS NOT NULL THEN l.version END, a.found, a.until, a.ahead, at, k.*, false
	FROM answer a
	LEFT JOIN LATERAL (
		SELECT l.acq, l.owner, l.label, l.version, l.acquired_at, CASE WHEN readers THEN l.others_until ELSE l.expires_at END, readers
		-- One who has expired is not in the way but of the first, and of that only if guarded.
		WHERE a.until IS NULL AND (readers OR l.acq IS NOT NULL AND (l.expires_at > at OR l.not_before <= at AND a.ahead = 0))
		UNION ALL
		SELECT NULL, NULL, NULL, 0, 0, l.not_before, false
		WHERE a.until IS NULL AND (l.acq IS NULL OR l.expires_at <= at) AND NOT readers AND l.not_before > at
	) k ON true
	ORDER BY a.ord;

	IF NOT dead.acq = ANY (acqs) THEN -- who asks again has not crashed
		RETURN QUERY SELECT 1::bigint, NULL::bigint, false, NULL::bigint, NULL::bigint, at,
			dead.acq, dead.owner, dead.label, dead.version, dead.acquired_at, dead.expires_at, true, true;
	ELSIF was.acq IS NOT NULL AND l.version > was.version AND l.acq IS DISTINCT FROM was.acq THEN
		RETURN QUERY SELECT r.ord, NULL::bigint, false, NULL::bigint, NULL::bigint, at,
			was.acq, was.owner, was.label, was.version, was.acquired_at, was.expires_at, false, true
		FROM unnest(acqs) WITH ORDINALITY r(acq, ord)
		WHERE r.acq = l.acq OR l.acq IS NULL AND EXISTS (
			SELECT FROM "sqllock_holder" h WHERE h.name = n AND h.acq = r.acq AND h.version = l.version)
		ORDER BY r.ord LIMIT 1;
	END IF;
END
$$;
-- +goose StatementEnd

-- Grants names that are free to those who do not share, as long as nobody waits for them.
-- What is there and free is updated, what is not there is inserted; an attempt that finds
-- a holder writes nothing and locks nothing. The names are sorted: the rows are locked in
-- their order. The first row of the answer says who has got which version; then there is a
-- row for each of the others, with fresh if its name was new.
--
-- It is a function because its plans are made once, for one name: each looks up rows by
-- the primary key, in the order of the names, however small the table was by then, and a
-- statement with arrays would be planned anew each time. The limit is what makes the
-- planner expect one name.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION "sqllock_grant"(
	names text[], acqs uuid[], owners text[], ttls bigint[], vals bytea[], mine uuid, me text
) RETURNS TABLE (
	clock bigint, ords bigint[], versions bigint[], ord bigint, fresh boolean, untidy boolean,
	acq uuid, owner text, label text, version bigint, since bigint, until bigint, shared boolean, gate bigint
) LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '1s' AS $$
#variable_conflict use_column
DECLARE
	at  bigint := (date_part('epoch', clock_timestamp()) * 1000000)::bigint;
	won bigint[] := '{}';
	got bigint[] := '{}';
BEGIN
	IF current_setting('synchronous_commit') = 'off' THEN
		PERFORM set_config('synchronous_commit', 'on', true);
	END IF;
	IF pg_relation_size($q$"sqllock_lock"$q$) > 0 THEN -- planned on an empty table it would read all of it for good
		WITH won AS (
			UPDATE "sqllock_lock" l SET
				acq = r.acq, owner = r.owner, instance = mine, label = me, version = greatest(l.version + 1, at), holds = 1,
				acquired_at = at, expires_at = at + r.ttl, value = nullif(r.value, ''),
				others = 0, others_until = 0 -- or they would be back if the clock went back
			FROM (SELECT * FROM unnest(names, acqs, owners, ttls, vals) WITH ORDINALITY r(name, acq, owner, ttl, value, ord)
				LIMIT cardinality(names)) r
			WHERE l.name = r.name AND l.acq IS NULL AND (l.others = 0 OR l.others_until <= at)
			  AND l.not_before <= at AND l.wait_until <= at
			RETURNING r.ord, l.version
		)
		SELECT coalesce(array_agg(w.ord), '{}'), coalesce(array_agg(w.version), '{}') INTO won, got FROM won w;
	END IF;
	clock := (date_part('epoch', clock_timestamp()) * 1000000)::bigint;
	IF clock > at + 10000 AND cardinality(won) > 0 THEN -- after a wait for a row: the term begins now
		UPDATE "sqllock_lock" l SET acquired_at = clock, expires_at = clock + r.ttl
		FROM (SELECT * FROM unnest(names, ttls) WITH ORDINALITY r(name, ttl, ord) LIMIT cardinality(names)) r
		WHERE l.name = r.name AND r.ord = ANY (won);
	END IF;
	at := clock;
	ords := won;
	versions := got;
	RETURN NEXT;
	IF cardinality(won) = cardinality(names) THEN
		RETURN;
	END IF;

	INSERT INTO "sqllock_lock" (name, acq, owner, instance, label, version, holds, acquired_at, expires_at, value)
	SELECT r.name, r.acq, r.owner, mine, me, at, 1, at, at + r.ttl, nullif(r.value, '')
	FROM unnest(names, acqs, owners, ttls, vals) WITH ORDINALITY r(name, acq, owner, ttl, value, ord)
	WHERE (SELECT true FROM "sqllock_lock" l WHERE l.name = r.name) IS NULL -- a conflict may wait for who changes the row
	ORDER BY r.ord
	ON CONFLICT DO NOTHING;

	RETURN QUERY
	SELECT t.now, NULL::bigint[], NULL::bigint[], r.ord, coalesce(l.acq = r.acq AND l.version = at AND l.acquired_at = at, false),
	       CASE WHEN l.together AND l.not_before <= t.now AND l.wait_until <= t.now THEN (
			SELECT count(*) < l.others OR coalesce(max(h.expires_at), 0) < l.others_until
			FROM "sqllock_holder" h WHERE h.name = l.name AND h.version = l.version AND h.expires_at > t.now) ELSE false END,
	       l.acq, l.owner, l.label, l.version, l.acquired_at, CASE WHEN l.together THEN l.others_until ELSE l.expires_at END,
	       l.together, greatest(l.not_before, l.wait_until)
	FROM unnest(names, acqs) WITH ORDINALITY r(name, acq, ord)
	CROSS JOIN (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now OFFSET 0) t
	LEFT JOIN LATERAL (
		SELECT l.*, l.acq IS NULL AND l.others > 0 AND l.others_until > t.now AS together
		FROM "sqllock_lock" l WHERE l.name = r.name OFFSET 0
	) l ON true
	WHERE NOT r.ord = ANY (won)
	ORDER BY r.ord;
END
$$;
-- +goose StatementEnd

-- Frees names that nobody waits for, of leases that were not guarded. The names are
-- sorted. It answers with what it has not freed, and whether that is still held. It is a
-- function for the same reason.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION "sqllock_release"(
	names text[], acqs uuid[], terms bigint[], stays bigint[]
) RETURNS TABLE (ord bigint, held boolean)
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '1s' AS $$
#variable_conflict use_column
DECLARE
	at   bigint := (date_part('epoch', clock_timestamp()) * 1000000)::bigint;
	done bigint[];
BEGIN
	PERFORM set_config('synchronous_commit', 'off', true);
	WITH done AS (
		UPDATE "sqllock_lock" l SET
			acq = NULL, owner = NULL, instance = NULL, label = NULL, holds = 0, value = NULL, ended = 1, expires_at = at,
			not_before = CASE WHEN r.stay > 0 THEN greatest(l.not_before, l.acquired_at + r.stay) ELSE l.not_before END
		FROM (SELECT * FROM unnest(names, acqs, terms, stays) WITH ORDINALITY r(name, acq, version, stay, ord)
			LIMIT cardinality(names)) r
		WHERE l.name = r.name AND l.acq = r.acq AND l.version = r.version AND l.wait_until <= at
		RETURNING r.ord
	)
	SELECT coalesce(array_agg(d.ord), '{}') INTO done FROM done d;
	IF cardinality(done) < cardinality(names) THEN
		RETURN QUERY
		SELECT r.ord, (SELECT true FROM "sqllock_lock" l WHERE l.name = r.name AND l.acq = r.acq AND l.version = r.version) IS NOT NULL
		FROM unnest(names, acqs, terms) WITH ORDINALITY r(name, acq, version, ord)
		WHERE NOT r.ord = ANY (done)
		ORDER BY r.ord;
	END IF;
END
$$;
-- +goose StatementEnd

-- Takes locks of the mode advisory for the session, and then looks, of those that were
-- free, whether a transaction guards a lease of the former holder: then the lock is let go
-- at once. Of what it has got it draws the tokens that are asked for, unless something else
-- keeps the name. tokens has an answer for each: a token, or 0: others have the lock, -1: a
-- transaction guards it, -2: it is locked, and nothing was drawn. gates says of each until
-- when the name is kept, -1 if its row names somebody, or 0; it is null if none is kept.
--
-- It is a function because each statement of one that is VOLATILE sees what was committed
-- until the statement began: what a former holder has written until it let the lock go is
-- seen. The key of a guard is had for a moment only, not until the transaction has been
-- flushed: others who are granted the same name, to share it, look too. A guard that comes
-- later finds that its session is dead.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION "sqllock_try"(
	keys bigint[], guards bigint[], together boolean[], names text[], draws boolean[], lift bigint,
	OUT clock bigint, OUT tokens bigint[], OUT gates bigint[]
) LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '1s' AS $$
BEGIN
	IF current_setting('synchronous_commit') = 'off' THEN
		PERFORM set_config('synchronous_commit', 'on', true);
	END IF;
	PERFORM pg_advisory_xact_lock_shared(lift);
	SELECT array_agg(CASE
		WHEN NOT CASE WHEN r.shared THEN pg_try_advisory_lock_shared(r.key) ELSE pg_try_advisory_lock(r.key) END THEN 0
		WHEN CASE WHEN pg_try_advisory_lock(r.guard) THEN pg_advisory_unlock(r.guard) ELSE false END THEN -2
		WHEN CASE WHEN r.shared THEN pg_advisory_unlock_shared(r.key) ELSE pg_advisory_unlock(r.key) END THEN -1
		ELSE -1 END) INTO tokens -- the last condition is there for what it does
	FROM unnest(keys, guards, together) r(key, guard, shared);
	clock := (date_part('epoch', clock_timestamp()) * 1000000)::bigint;
	IF EXISTS (
		SELECT FROM unnest(names) r(name)
		WHERE (SELECT t.acq IS NOT NULL OR t.not_before > clock FROM "sqllock_term" t WHERE t.mode = 3 AND t.name = r.name)
	) THEN
		SELECT array_agg(coalesce((
			SELECT CASE WHEN t.acq IS NOT NULL THEN -1 WHEN t.not_before > clock THEN t.not_before ELSE 0 END
			FROM "sqllock_term" t WHERE t.mode = 3 AND t.name = r.name), 0)) INTO gates
		FROM unnest(names) r(name);
	END IF;
	IF gates IS NULL THEN
		SELECT array_agg(CASE WHEN r.token = -2 AND r.draws THEN nextval($q$"sqllock_token"$q$) ELSE r.token END) INTO tokens
		FROM unnest(tokens, draws) r(token, draws);
	ELSE
		SELECT array_agg(CASE WHEN r.token = -2 AND r.draws AND r.gate = 0 THEN nextval($q$"sqllock_token"$q$) ELSE r.token END) INTO tokens
		FROM unnest(tokens, draws, gates) r(token, draws, gate);
	END IF;
END
$$;
-- +goose StatementEnd

-- Puts the schema of the tables into the functions, which name the tables: so they mean
-- these tables in every session, whatever its search_path is. It is called once here, and
-- is for you to call after ALTER SCHEMA … RENAME. prefix is that of the tables.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION "sqllock_bind"(home text, prefix text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	-- A backslash in a replacement is special.
	there text := replace('"' || replace(home, '"', '""') || '"."' || prefix, '\', '\\');
	f     record;
BEGIN
	FOR f IN
		SELECT p.oid, p.prosrc, regexp_replace(p.prosrc, '("([^"]|"")+"\.)?"' || prefix, there, 'g') AS bound
		FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
		WHERE n.nspname = home
		  AND p.proname IN (prefix || 'gate', prefix || 'advance', prefix || 'leave', prefix || 'line', prefix || 'grant',
		                    prefix || 'release', prefix || 'try')
	LOOP
		EXECUTE replace(pg_get_functiondef(f.oid), f.prosrc, f.bound);
	END LOOP;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
DO $$
DECLARE
	home   text;
	prefix text;
BEGIN
	SELECT n.nspname, left(c.relname::text, -4) INTO home, prefix
	FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $q$"sqllock_meta"$q$::regclass;
	IF home IS DISTINCT FROM (SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.oid = $q$"sqllock_ticket"$q$::regclass) THEN
		RAISE EXCEPTION 'sqllock: some tables are in schema %, and others would be made elsewhere', home
			USING HINT = 'set search_path to that schema alone, or use lockpg.Schema';
	END IF;
	PERFORM "sqllock_bind"(home, prefix);
END
$$;
-- +goose StatementEnd

UPDATE "sqllock_meta" SET schema_version = 20261121000004;

-- +goose Down

UPDATE "sqllock_meta" SET schema_version = 20261121000003;

DROP FUNCTION IF EXISTS "sqllock_bind"(text, text);
DROP FUNCTION IF EXISTS "sqllock_try"(bigint[], bigint[], boolean[], text[], boolean[], bigint);
DROP FUNCTION IF EXISTS "sqllock_release"(text[], uuid[], bigint[], bigint[]);
DROP FUNCTION IF EXISTS "sqllock_grant"(text[], uuid[], text[], bigint[], bytea[], uuid, text);
DROP FUNCTION IF EXISTS "sqllock_line"(text, uuid[], text[], bigint[], bytea[], boolean[], bigint[], bigint[], bytea[], uuid, text, text);
DROP FUNCTION IF EXISTS "sqllock_leave"(text, uuid, bigint, bigint, boolean, boolean, uuid);
DROP FUNCTION IF EXISTS "sqllock_advance"(record, boolean, uuid, boolean, uuid[]);
DROP FUNCTION IF EXISTS "sqllock_tell"(uuid, uuid);
DROP TABLE IF EXISTS "sqllock_ticket";
ALTER TABLE "sqllock_lock" DROP COLUMN qseq, DROP COLUMN qhead;
