-- A further attempt that somebody asks for. Numbers of kinds are those of states.py.

-- name: last_attempt
-- Say how the newest attempt of run $1 stands, and whether its history may be gone.
SELECT $1::bigint < h.run_id AS expired, r.run_id IS NOT NULL AS there, l.attempt AS live, f.attempt AS ended
FROM rowlock.history_floor h
LEFT JOIN LATERAL (SELECT x.run_id FROM rowlock.run x WHERE x.run_id = $1::bigint LIMIT 1) r ON true
LEFT JOIN LATERAL (SELECT x.attempt FROM rowlock.run_live x WHERE x.run_id = $1::bigint LIMIT 1) l ON true
LEFT JOIN LATERAL (SELECT x.attempt FROM rowlock.run_final x
                   WHERE x.run_id = $1::bigint ORDER BY x.attempt DESC LIMIT 1) f ON true;

-- name: asked_attempts
-- Count the attempts of run $1 that $2 asked for.
SELECT count(*)::int AS asked FROM rowlock.run_attempt WHERE run_id = $1::bigint AND asked_by = $2::text;

-- name: redrive
-- Queue attempt $2 of run $1 if the one before it was the last, asked by $3. The key of run_attempt has one winner.
-- A pinned run is pinned anew, to the build of the worker that takes it first: somebody asked for it now.
-- The floor's lock keeps the retention from taking the run's history away meanwhile.
WITH clock AS MATERIALIZED (
  SELECT rowlock.now() AS now
), floor AS MATERIALIZED (
  SELECT h.run_id FROM rowlock.history_floor h FOR SHARE
), target AS MATERIALIZED (
  -- An item of a batch may have got its custom resource after it ended.
  SELECT r.run_id, r.pool_id, r.agent_id, r.revision_id, r.key, r.priority, r.max_takeovers, r.pinned,
         r.linked OR EXISTS (SELECT FROM rowlock.run_object o WHERE o.run_id = $1::bigint) AS linked,
         f.epoch, f.attempt + 1 AS attempt, f.carry, f.started_at, c.now
  FROM (SELECT x.* FROM rowlock.run x WHERE x.run_id = $1::bigint LIMIT 1) r
  CROSS JOIN clock c
  CROSS JOIN floor b
  JOIN LATERAL (SELECT x.attempt, x.epoch, x.carry, x.started_at FROM rowlock.run_final x
                WHERE x.run_id = $1::bigint ORDER BY x.attempt DESC LIMIT 1) f ON f.attempt + 1 = $2::smallint
  WHERE r.run_id >= b.run_id
    AND (SELECT true FROM rowlock.run_live l WHERE l.run_id = $1::bigint LIMIT 1) IS NULL
), won AS (
  INSERT INTO rowlock.run_attempt (run_id, attempt, asked_at, asked_by)
  SELECT t.run_id, t.attempt, t.now, $3::text FROM target t
  ON CONFLICT (run_id, attempt) DO NOTHING
  RETURNING run_id
), begun AS MATERIALIZED (
  SELECT t.*, CASE WHEN t.linked THEN nextval('rowlock.revision_seq') ELSE 0 END AS next_revision
  FROM target t JOIN won USING (run_id)
), caps AS MATERIALIZED (
  SELECT * FROM rowlock.hold_caps(ARRAY(SELECT agent_id FROM begun))
), lined_up AS MATERIALIZED (
  SELECT b.*, coalesce(k.hold_all OR (k.hold_keys AND b.key IS NOT NULL), false) AS held, coalesce(k.step, 1) AS step
  FROM begun b LEFT JOIN caps k USING (agent_id)
), queued AS (
  INSERT INTO rowlock.run_ready (run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
                                 max_takeovers, active_ms, linked, revision, carry, ready_at, started_at, pinned)
  SELECT run_id, pool_id, agent_id, revision_id, key, priority,
         rowlock.ready_line(pool_id, priority, agent_id, key) + step, epoch, attempt, 0,
         max_takeovers, 0, linked, next_revision, carry, now, started_at, pinned
  FROM lined_up WHERE NOT held
), held_back AS (
  -- What ran before is the first of its key.
  INSERT INTO rowlock.run_backlog (run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
                                   max_takeovers, active_ms, linked, revision, carry, ready_at, started_at, pinned)
  SELECT run_id, pool_id, agent_id, revision_id, key, priority,
         CASE WHEN started_at IS NULL THEN rowlock.backlog_line(priority, agent_id, key) + 1 ELSE '-infinity' END,
         epoch, attempt, 0, max_takeovers, 0, linked, next_revision, carry, now, started_at, pinned
  FROM lined_up WHERE held
), changed AS (
  INSERT INTO rowlock.run_change (seq, run_id, kind, epoch)
  SELECT next_revision, run_id, 1 /* QUEUED */, epoch FROM begun WHERE linked
), unwished AS (
  -- Of the attempt that ended.
  DELETE FROM rowlock.wish WHERE run_id = ANY(ARRAY(SELECT run_id FROM begun))
)
SELECT run_id FROM begun;
