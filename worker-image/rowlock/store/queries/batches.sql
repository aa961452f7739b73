-- Batches: 0010_pre_batches.sql says how they work. Numbers of kinds are those of states.py.
-- An open item has a run and no status.

-- name: accept_batch
-- Write a batch that is new, unless its object ($1, $2) has one.
INSERT INTO rowlock.batch (cluster, uid, namespace, name, agent_id, revision_id, pool_id, key, priority, max_takeovers,
                           queue_deadline_seconds, options, parallelism, max_failed_percent, materialize, pinned)
VALUES ($1::text, $2::text, $3::text, $4::text, $5::int, $6::int, $7::int, $8::text, $9::smallint, $10::smallint,
        $11::float8, $12::bytea, $13::int, $14::smallint, $15::smallint,
        $16::boolean)
ON CONFLICT (cluster, uid) DO NOTHING
RETURNING batch_id;

-- name: batch_of_object
-- Find the batch of object $2 of cluster $1.
SELECT batch_id FROM rowlock.batch WHERE cluster = $1::text AND uid = $2::text;

-- name: add_items
-- Add items ($2..$4 are columns) to batch $1 while it takes any; those that it has stay as they are.
WITH b AS MATERIALIZED (
  SELECT x.batch_id FROM rowlock.batch x
  WHERE x.batch_id = $1::bigint AND NOT x.sealed AND x.stopped IS NULL FOR UPDATE
), added AS (
  INSERT INTO rowlock.batch_item (batch_id, place, item, input)
  SELECT b.batch_id, u.place, u.item, u.input
  FROM b CROSS JOIN unnest($2::int[], $3::text[], $4::bytea[]) AS u(place, item, input)
  ORDER BY u.item
  ON CONFLICT (batch_id, item) DO NOTHING
  RETURNING place
), counted AS (
  UPDATE rowlock.batch x SET total = x.total + (SELECT count(*) FROM added)
  WHERE x.batch_id = (SELECT batch_id FROM b)
)
SELECT EXISTS (SELECT FROM b) AS open, (SELECT count(*)::int FROM added) AS added;

-- name: item_places
-- Find the places of items $2 of batch $1.
SELECT item, place FROM rowlock.batch_item WHERE batch_id = $1::bigint AND item = ANY($2::text[]);

-- name: seal_batch
-- Note that all items of batch $1 are known.
UPDATE rowlock.batch SET sealed = true WHERE batch_id = $1::bigint AND stopped IS NULL RETURNING total, materialize;

-- name: read_by
-- Note that run $2 reads the items of batch $1.
UPDATE rowlock.batch SET reader_run = $2::bigint WHERE batch_id = $1::bigint;

-- name: stop_batch
-- Start nothing more of batch $1, for reason $2 with message $3; the first reason stays.
UPDATE rowlock.batch SET stopped = $2::text, stop_message = $3::text
WHERE batch_id = $1::bigint AND stopped IS NULL AND finished_at IS NULL;

-- name: steer_batch
-- Have batch $1 go on as its object says now.
UPDATE rowlock.batch
SET parallelism = $2::int, max_failed_percent = $3::smallint, suspended = $4::boolean, held = held OR $4::boolean
WHERE batch_id = $1::bigint
  AND (parallelism, max_failed_percent, suspended) IS DISTINCT FROM ($2::int, $3::smallint, $4::boolean);

-- name: batch_departed
-- Note that the object of batch $1 is gone.
UPDATE rowlock.batch SET departed = true WHERE batch_id = $1::bigint AND NOT departed;

-- name: active_batches
-- Find the batches of cluster $1 (null for all) that have not ended and that nobody moved on within $2 seconds.
SELECT batch_id FROM rowlock.batch
WHERE finished_at IS NULL AND ($1::text IS NULL OR cluster = $1::text)
  AND moved_at <= rowlock.now() - $2::float8 * interval '1 second'
ORDER BY moved_at, batch_id;

-- name: take_batch
-- Hold batch $1 and read how it stands, unless it has ended, somebody else holds it, or moved it on within $2 seconds.
SELECT b.*, r.status AS reader_status, coalesce(r.message, r.reason) AS reader_reason,
       (SELECT true FROM rowlock.run_live l WHERE l.run_id = b.reader_run LIMIT 1) IS TRUE AS reading,
       -- Of so many items at most that a whole look does no harm.
       b.materialize = 2 AND EXISTS (
         SELECT FROM rowlock.batch_item i
         WHERE i.batch_id = b.batch_id AND i.run_id IS NULL AND i.object_name IS NOT NULL AND NOT i.object_refused) AS named
FROM rowlock.batch b
LEFT JOIN LATERAL (
  SELECT x.status, x.reason, x.message FROM rowlock.run_final x
  WHERE NOT b.sealed AND x.run_id = b.reader_run ORDER BY x.attempt DESC LIMIT 1) r ON true
WHERE b.batch_id = $1::bigint AND b.finished_at IS NULL
  AND b.moved_at <= rowlock.now() - $2::float8 * interval '1 second'
FOR UPDATE OF b SKIP LOCKED;

-- name: settle_items
-- Note how open items of batch $1 have ended, and count them. A run that history has lost counts as failed.
WITH open AS MATERIALIZED (
  SELECT i.item, i.run_id FROM rowlock.batch_item i
  WHERE i.batch_id = $1::bigint AND i.run_id IS NOT NULL AND i.status IS NULL
), ended AS MATERIALIZED (
  SELECT o.item, coalesce(f.status, 2 /* FAILED */) AS status, CASE WHEN f.status IS NULL THEN 'RowMissing' ELSE f.reason END AS reason,
         coalesce(f.takeovers, 0) AS takeovers
  FROM open o
  LEFT JOIN LATERAL (SELECT x.status, x.reason, x.takeovers FROM rowlock.run_final x
                     WHERE x.run_id = o.run_id ORDER BY x.attempt DESC LIMIT 1) f ON true
  WHERE (SELECT true FROM rowlock.run_live l WHERE l.run_id = o.run_id LIMIT 1) IS NULL
    AND (f.status IS NOT NULL OR o.run_id < (SELECT h.run_id FROM rowlock.history_floor h))
), noted AS (
  UPDATE rowlock.batch_item i SET status = e.status, reason = e.reason
  FROM ended e WHERE i.batch_id = $1::bigint AND i.item = e.item
)
SELECT (SELECT count(*)::int FROM open) - count(*)::int AS open,
       (count(*) FILTER (WHERE e.status = 1))::int AS succeeded,
       (count(*) FILTER (WHERE e.status = 2))::int AS failed,
       (count(*) FILTER (WHERE e.status = 3))::int AS cancelled,
       coalesce(sum(e.takeovers), 0)::int AS takeovers
FROM ended e;

-- name: next_items
-- Read the first $2 items of batch $1 without a run, after place $4; $3: only those whose AgentRun exists.
SELECT i.item, i.place, i.input, i.object_name, i.object_uid FROM rowlock.batch_item i
WHERE i.batch_id = $1::bigint AND i.run_id IS NULL AND i.status IS NULL AND i.place > $4::int
  AND (NOT $3::boolean OR i.object_uid IS NOT NULL)
ORDER BY i.place LIMIT $2::int;

-- name: feed_items
-- Note that items $2 of batch $1 are runs $3, and that all up to place $4 are.
WITH reached AS (
  UPDATE rowlock.batch SET fed_place = $4::int WHERE batch_id = $1::bigint
)
UPDATE rowlock.batch_item i SET run_id = u.run_id
FROM unnest($2::text[], $3::bigint[]) AS u(item, run_id)
WHERE i.batch_id = $1::bigint AND i.item = u.item;

-- name: move_batch
-- Add to the counts of batch $1: $2 fed, $3 succeeded, $4 failed, $5 cancelled, $6 takeovers; $7: it has ended.
UPDATE rowlock.batch b
SET fed = b.fed + $2::int, succeeded = b.succeeded + $3::int, failed = b.failed + $4::int,
    cancelled = b.cancelled + $5::int, takeovers = b.takeovers + $6::int, moved_at = rowlock.now(),
    started_at = CASE WHEN $2::int > 0 THEN coalesce(b.started_at, rowlock.now()) ELSE b.started_at END,
    finished_at = CASE WHEN $7::boolean THEN rowlock.now() END
WHERE b.batch_id = $1::bigint;

-- name: unasked_items
-- Find the open runs of batch $1 that nobody wished to cancel; $2: only those that no worker holds.
SELECT i.run_id FROM rowlock.batch_item i
WHERE i.batch_id = $1::bigint AND i.run_id IS NOT NULL AND i.status IS NULL
  AND (SELECT true FROM rowlock.wish w WHERE w.run_id = i.run_id AND w.kind = 1 /* CANCEL */) IS NULL
  AND (NOT $2::boolean OR (SELECT true FROM rowlock.run_lease l WHERE l.run_id = i.run_id) IS NULL);

-- name: unheld_items
-- Find the open runs of batch $1 that nobody wished to suspend.
SELECT i.run_id FROM rowlock.batch_item i
WHERE i.batch_id = $1::bigint AND i.run_id IS NOT NULL AND i.status IS NULL
  AND (SELECT true FROM rowlock.wish w WHERE w.run_id = i.run_id AND w.kind = 2 /* SUSPEND */) IS NULL;

-- name: open_items
-- Find the open runs of batch $1.
SELECT i.run_id FROM rowlock.batch_item i
WHERE i.batch_id = $1::bigint AND i.run_id IS NOT NULL AND i.status IS NULL;

-- name: unhold_batch
-- Note that no item of batch $1 is held any more, unless it was suspended again meanwhile.
UPDATE rowlock.batch SET held = false WHERE batch_id = $1::bigint AND NOT suspended;

-- name: batch_statuses
-- Read all that the statuses of batches $1 show, up to $2 failed items of each.
SELECT b.batch_id, b.uid, b.total, b.fed, b.succeeded, b.failed, b.cancelled, b.takeovers, b.sealed, b.suspended,
       b.stopped, b.stop_message, b.materialize, b.started_at, b.finished_at, b.max_failed_percent,
       (SELECT count(*)::int FROM rowlock.batch_item i
        WHERE i.batch_id = b.batch_id AND i.run_id IS NOT NULL AND i.status IS NULL
          AND (SELECT true FROM rowlock.run_lease l WHERE l.run_id = i.run_id)) AS running,
       ARRAY(SELECT i.item || ' ' || coalesce(i.reason, '') FROM rowlock.batch_item i
             WHERE i.batch_id = b.batch_id AND i.status = 2 /* FAILED */ ORDER BY i.place LIMIT $2::int) AS failures
FROM rowlock.batch b WHERE b.batch_id = ANY($1::bigint[]);

-- name: batches_of
-- Read the batches of cluster $1 and namespaces $2 (null for all).
SELECT batch_id, uid, namespace, name, finished_at IS NOT NULL AS finished, departed, materialize
FROM rowlock.batch WHERE cluster = $1::text AND ($2::text[] IS NULL OR namespace = ANY($2::text[]));

-- name: purge_items
-- Delete up to $2 items of batch $1.
DELETE FROM rowlock.batch_item i
WHERE i.batch_id = $1::bigint
  AND i.item = ANY(ARRAY(SELECT x.item FROM rowlock.batch_item x WHERE x.batch_id = $1::bigint LIMIT $2::int));

-- name: purge_batch
-- Delete batch $1, which has no items.
DELETE FROM rowlock.batch WHERE batch_id = $1::bigint;

-- name: unnamed_items
-- Read up to $2 items of batch $1 that are to get an AgentRun: failed ones, or if $3 those that come next.
SELECT x.item FROM (
  (SELECT i.item, i.place FROM rowlock.batch_item i
   WHERE NOT $3::boolean AND i.batch_id = $1::bigint AND i.status = 2 /* FAILED */ AND i.object_name IS NULL
   ORDER BY i.place LIMIT $2::int)
  UNION ALL
  (SELECT i.item, i.place FROM rowlock.batch_item i
   WHERE $3::boolean AND i.batch_id = $1::bigint AND i.run_id IS NULL AND i.object_name IS NULL
   ORDER BY i.place LIMIT $2::int)
) x ORDER BY x.place;

-- name: name_objects
-- Reserve names $3 for the AgentRuns of items $2 of batch $1.
WITH named AS (
  UPDATE rowlock.batch_item i SET object_name = u.name
  FROM unnest($2::text[], $3::text[]) AS u(item, name)
  WHERE i.batch_id = $1::bigint AND i.item = u.item AND i.object_name IS NULL
  RETURNING i.item
)
UPDATE rowlock.batch b SET objects = b.objects + (SELECT count(*) FROM named) WHERE b.batch_id = $1::bigint;

-- name: unmade_objects
-- Read up to $2 items of batch $1 whose AgentRun has a name, but none of $3, and may not exist yet.
SELECT i.item, i.object_name, i.input FROM rowlock.batch_item i
WHERE i.batch_id = $1::bigint AND i.object_name IS NOT NULL AND i.object_uid IS NULL AND NOT i.object_refused
  AND i.object_name <> ALL($3::text[])
LIMIT $2::int;

-- name: refuse_objects
-- Make no AgentRuns named $2 for batch $1 any more; $3: those of them without a run fail, with reason $4.
WITH b AS MATERIALIZED (
  SELECT x.batch_id FROM rowlock.batch x WHERE x.batch_id = $1::bigint FOR UPDATE
), refused AS (
  UPDATE rowlock.batch_item i
  SET object_refused = true,
      status = CASE WHEN $3::boolean AND i.run_id IS NULL THEN 2 /* FAILED */ ELSE i.status END,
      reason = CASE WHEN $3::boolean AND i.run_id IS NULL THEN $4::text ELSE i.reason END
  FROM b
  WHERE i.batch_id = b.batch_id AND i.object_name = ANY($2::text[]) AND i.object_uid IS NULL AND NOT i.object_refused
  RETURNING ($3::boolean AND i.run_id IS NULL)::int AS failed
)
UPDATE rowlock.batch x SET fed = x.fed + r.failed, failed = x.failed + r.failed
FROM (SELECT coalesce(sum(failed), 0)::int AS failed FROM refused) r
WHERE x.batch_id = $1::bigint AND r.failed > 0;

-- name: link_objects
-- Link those of the AgentRuns ($2..$5 are columns) of cluster $1 whose names are reserved to their items.
WITH asked AS (
  SELECT * FROM unnest($2::text[], $3::text[], $4::text[], $5::bigint[]) AS a(namespace, name, uid, generation)
), mine AS MATERIALIZED (
  SELECT i.batch_id, i.item, i.run_id, a.namespace, a.name, a.uid, a.generation
  FROM asked a
  JOIN rowlock.batch_item i ON i.object_name = a.name
  JOIN rowlock.batch b ON b.batch_id = i.batch_id AND b.cluster = $1::text AND b.namespace = a.namespace
  WHERE i.object_uid IS NULL OR i.object_uid = a.uid
  FOR UPDATE OF i
), noted AS (
  UPDATE rowlock.batch_item i SET object_uid = m.uid
  FROM mine m WHERE i.batch_id = m.batch_id AND i.item = m.item AND i.object_uid IS NULL
), linked AS (
  INSERT INTO rowlock.run_object (cluster, uid, run_id, namespace, name, generation)
  SELECT $1::text, m.uid, m.run_id, m.namespace, m.name, m.generation FROM mine m WHERE m.run_id IS NOT NULL
  ORDER BY m.uid
  ON CONFLICT DO NOTHING
  RETURNING run_id
)
SELECT m.uid, (SELECT l.run_id FROM linked l WHERE l.run_id = m.run_id) AS linked FROM mine m;

-- name: objects_wanted
-- Read which of batches $1 may have AgentRuns to make, and how many of their items are open or wait with a name.
SELECT b.batch_id, b.namespace, b.name, b.uid, b.materialize, b.objects, b.suspended, b.stopped IS NOT NULL AS stopped,
       b.sealed, b.finished_at IS NOT NULL AS finished, b.parallelism,
       EXISTS (SELECT FROM rowlock.batch_item i
               WHERE i.batch_id = b.batch_id AND i.object_name IS NOT NULL AND i.object_uid IS NULL
                 AND NOT i.object_refused) AS unmade,
       (SELECT count(*)::int FROM rowlock.batch_item i
        WHERE b.materialize = 2 AND i.batch_id = b.batch_id AND i.run_id IS NOT NULL AND i.status IS NULL)
       + (SELECT count(*)::int FROM rowlock.batch_item i
          WHERE b.materialize = 2 AND i.batch_id = b.batch_id AND i.run_id IS NULL AND i.object_name IS NOT NULL
            AND NOT i.object_refused) AS taken
FROM rowlock.batch b
WHERE b.batch_id = ANY($1::bigint[]) AND b.materialize > 0 AND NOT b.departed;
