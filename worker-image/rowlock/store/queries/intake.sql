-- Everything that comes in: pools, agents, runs. Numbers of kinds are those of states.py.

-- name: ensure_pool
-- Make pool $2 of namespace $1 unless it exists.
INSERT INTO rowlock.pool (namespace, name) VALUES ($1::text, $2::text) ON CONFLICT (namespace, name) DO NOTHING;

-- name: pool_id
-- Find pool $2 of namespace $1.
SELECT pool_id FROM rowlock.pool WHERE namespace = $1::text AND name = $2::text;

-- name: ensure_agent
-- Make agent $2 of namespace $1 with these caps unless it exists.
INSERT INTO rowlock.agent (namespace, name, max_running, max_running_per_key, starts_per_minute_per_key)
VALUES ($1::text, $2::text, $3::int, $4::int, $5::int)
ON CONFLICT (namespace, name) DO NOTHING;

-- name: agent
-- Find agent $2 of namespace $1 and its caps.
SELECT agent_id, max_running, max_running_per_key, starts_per_minute_per_key
FROM rowlock.agent WHERE namespace = $1::text AND name = $2::text;

-- name: ensure_revision
-- Make the revision of agent $1 with digest $2 unless it exists.
INSERT INTO rowlock.agent_revision (agent_id, digest, entrypoint, spec)
VALUES ($1::int, $2::text, $3::text, $4::bytea)
ON CONFLICT (agent_id, digest) DO NOTHING;

-- name: revision_id
-- Find the revision of agent $1 with digest $2.
SELECT revision_id FROM rowlock.agent_revision WHERE agent_id = $1::int AND digest = $2::text;

-- name: enqueue
-- Accept new runs ($1..$17 are columns) and answer with the places and ids of those that were created.
-- Two gates, each in the order of its key so that concurrent batches cannot deadlock: first the
-- idempotency key, then the custom resource. A row that a gate holds back leaves nothing behind.
WITH clock AS MATERIALIZED (
  SELECT rowlock.now() AS now
), asked AS MATERIALIZED (
  SELECT u.*, rowlock.new_run_id() AS run_id
  FROM unnest($1::int[], $2::int[], $3::int[], $4::bytea[], $5::bytea[], $6::text[], $7::smallint[], $8::smallint[],
              $9::float8[], $10::text[], $11::bytea[], $12::text[], $13::text[], $14::text[], $15::text[], $16::bigint[],
              $17::boolean[])
    WITH ORDINALITY AS u(agent_id, revision_id, pool_id, input, options, key, priority, max_takeovers,
                         deadline_seconds, idem_key, input_sha, cluster, uid, namespace, name, generation, pinned, place)
), unseen AS MATERIALIZED (
  SELECT a.* FROM asked a
  WHERE a.uid IS NULL
     OR (SELECT true FROM rowlock.run_object o WHERE o.cluster = a.cluster AND o.uid = a.uid) IS NULL
), keyed AS (
  INSERT INTO rowlock.run_dedup (agent_id, idem_key, run_id, input_sha)
  SELECT u.agent_id, u.idem_key, u.run_id, u.input_sha FROM unseen u
  WHERE u.idem_key IS NOT NULL ORDER BY u.agent_id, u.idem_key
  ON CONFLICT (agent_id, idem_key) DO NOTHING
  RETURNING run_id
), allowed AS MATERIALIZED (
  -- The count makes the first gate finish before the second one opens.
  SELECT u.* FROM unseen u
  WHERE (SELECT count(*) FROM keyed) >= 0
    AND (u.idem_key IS NULL OR u.run_id IN (SELECT k.run_id FROM keyed k))
), linked AS (
  INSERT INTO rowlock.run_object (cluster, uid, run_id, namespace, name, generation)
  SELECT a.cluster, a.uid, a.run_id, a.namespace, a.name, a.generation FROM allowed a
  WHERE a.uid IS NOT NULL ORDER BY a.cluster, a.uid
  ON CONFLICT (cluster, uid) DO NOTHING
  RETURNING run_id
), created AS MATERIALIZED (
  SELECT a.agent_id, a.revision_id, a.pool_id, a.input, a.options, nullif(a.key, '') AS key, a.priority,
         a.max_takeovers, a.pinned, a.deadline_seconds, a.place, a.run_id, a.uid IS NOT NULL AS linked, c.now,
         CASE WHEN a.uid IS NULL THEN 0 ELSE nextval('rowlock.revision_seq') END AS revision
  FROM allowed a CROSS JOIN clock c
  WHERE a.uid IS NULL OR a.run_id IN (SELECT l.run_id FROM linked l)
), caps AS MATERIALIZED (
  SELECT * FROM rowlock.hold_caps(ARRAY(SELECT DISTINCT agent_id FROM created))
), numbered AS (
  SELECT c.run_id, c.pool_id, c.agent_id, c.revision_id, c.key, c.priority, c.max_takeovers, c.pinned, c.deadline_seconds, c.linked,
         c.revision, c.now, c.place,
         coalesce(k.hold_all OR (k.hold_keys AND c.key IS NOT NULL), false) AS held, coalesce(k.step, 1) AS step,
         row_number() OVER (PARTITION BY c.agent_id, c.key, c.priority, c.pool_id ORDER BY c.place) AS nth
  FROM created c LEFT JOIN caps k USING (agent_id)
), lined_up AS MATERIALIZED (
  -- The end of each key's line is looked up once, with its first run.
  SELECT n.*, max(CASE WHEN n.nth > 1 THEN NULL
                       WHEN n.held THEN rowlock.backlog_line(n.priority, n.agent_id, n.key)
                       ELSE rowlock.ready_line(n.pool_id, n.priority, n.agent_id, n.key) END)
                OVER (PARTITION BY n.agent_id, n.key, n.priority, n.pool_id)
              + n.nth * CASE WHEN n.held THEN 1 ELSE n.step END AS vft
  FROM numbered n
), accepted AS (
  INSERT INTO rowlock.run (run_id, agent_id, revision_id, pool_id, key, priority, linked, created_at, input, options,
                           max_takeovers, pinned)
  SELECT run_id, agent_id, revision_id, pool_id, key, priority, linked, now, input, options, max_takeovers, pinned FROM created
), queued AS (
  INSERT INTO rowlock.run_ready (run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
                                 max_takeovers, active_ms, queue_deadline, linked, revision, ready_at, pinned)
  SELECT run_id, pool_id, agent_id, revision_id, key, priority, vft, 0, 1, 0,
         max_takeovers, 0, now + deadline_seconds * interval '1 second', linked, revision, now, pinned
  FROM lined_up WHERE NOT held
), held_back AS (
  INSERT INTO rowlock.run_backlog (run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
                                   max_takeovers, active_ms, queue_deadline, linked, revision, ready_at, pinned)
  SELECT run_id, pool_id, agent_id, revision_id, key, priority, vft, 0, 1, 0,
         max_takeovers, 0, now + deadline_seconds * interval '1 second', linked, revision, now, pinned
  FROM lined_up WHERE held
), changed AS (
  INSERT INTO rowlock.run_change (seq, run_id, kind, epoch, at)
  SELECT revision, run_id, 1 /* QUEUED */, 0, now FROM created WHERE linked
)
SELECT c.place, c.run_id, c.held FROM lined_up c
UNION ALL
-- The key's gate let a run through that its custom resource's gate held back: another batch has just
-- accepted the same resource under another key. Once more, and the first step sees that.
SELECT a.place, a.run_id, false FROM allowed a
WHERE a.idem_key IS NOT NULL AND a.uid IS NOT NULL
  AND a.run_id NOT IN (SELECT l.run_id FROM linked l)
  AND rowlock.try_again('a concurrent batch accepted the same custom resource');

-- name: find_submitted
-- Say which runs exist already for these custom resources ($1, $2) and idempotency keys ($3, $4) with inputs $5.
SELECT o.run_id AS by_object, d.run_id AS by_key, d.input_sha = a.input_sha AS same_input,
       coalesce(h.namespace || '/' || h.name, '') AS holder
FROM unnest($1::text[], $2::text[], $3::int[], $4::text[], $5::bytea[])
  WITH ORDINALITY AS a(cluster, uid, agent_id, idem_key, input_sha, place)
LEFT JOIN rowlock.run_object o ON o.cluster = a.cluster AND o.uid = a.uid
LEFT JOIN rowlock.run_dedup d ON d.agent_id = a.agent_id AND d.idem_key = a.idem_key
LEFT JOIN rowlock.run_object h ON h.run_id = d.run_id
ORDER BY a.place;

-- name: run_ids_by_object
-- Find the runs of custom resources $2 of cluster $1.
SELECT uid, run_id FROM rowlock.run_object WHERE cluster = $1::text AND uid = ANY($2::text[]);

-- name: ensure_partitions
-- Make the partitions of today and the next $1 days.
SELECT rowlock.ensure_partitions($1::int) AS made;
