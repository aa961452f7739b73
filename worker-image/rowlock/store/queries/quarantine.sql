-- Runs that are claimed alone, by processes that hold nothing else. Numbers of kinds are those of states.py.

-- name: claim_alone
-- Lease one quarantined run of pool $2 to worker $1. A token $3 at or below the worker's floor takes nothing.
-- As `claim`, which must not meet these, and with a plan of its own: each goes by the index of its line.
WITH clock AS MATERIALIZED (
  SELECT rowlock.now() AS now
), me AS MATERIALIZED (
  SELECT w.worker_id, w.build,
         w.claim_floor < $3::bigint AND w.quarantine
           AND (SELECT true FROM rowlock.run_lease l WHERE l.worker_id = w.worker_id LIMIT 1) IS NULL AS may_claim,
         coalesce(w.rests_until < rowlock.now(), true) AS awake
  FROM rowlock.worker w WHERE w.worker_id = $1::bigint AND w.fenced_at IS NULL FOR SHARE
), picked AS (
  SELECT q.run_id FROM rowlock.run_ready q
  WHERE q.pool_id = $2::int AND q.quarantined AND (SELECT may_claim FROM me)
    AND CASE WHEN q.build IS NULL THEN (SELECT awake FROM me) ELSE q.build = (SELECT build FROM me) END
  ORDER BY q.priority DESC, q.vft, q.run_id LIMIT 1 FOR UPDATE SKIP LOCKED
), taken AS (
  DELETE FROM rowlock.run_ready q WHERE q.run_id = ANY(ARRAY(SELECT run_id FROM picked))
  RETURNING q.*, CASE WHEN q.linked THEN nextval('rowlock.revision_seq') ELSE 0 END AS next_revision
), leased AS (
  INSERT INTO rowlock.run_lease (run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
                                 max_takeovers, blamed, suspected, quarantined, build, pinned,
                                 active_ms, linked, revision, carry, ready_at, started_at,
                                 worker_id, claim_token, claimed_at)
  SELECT run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch + 1, attempt, takeovers,
         max_takeovers, blamed, suspected, quarantined, coalesce(build, CASE WHEN pinned THEN (SELECT build FROM me) END), pinned,
         active_ms, linked, next_revision, carry, ready_at, coalesce(started_at, c.now),
         $1::bigint, $3::bigint, c.now
  FROM taken CROSS JOIN clock c
  RETURNING *
), changed AS (
  INSERT INTO rowlock.run_change (seq, run_id, kind, epoch)
  SELECT revision, run_id, 2 /* CLAIMED */, epoch FROM leased WHERE linked
)
SELECT l.run_id, l.epoch, l.attempt, l.agent_id, l.revision_id, l.key, l.takeovers, l.max_takeovers, l.active_ms,
       l.linked, l.claimed_at, l.carry,
       (SELECT true FROM rowlock.wish w WHERE w.run_id = l.run_id AND w.kind = 1 /* CANCEL */) IS TRUE AS cancelled,
       l.blamed, l.suspected, extract(epoch FROM rowlock.probation(l.suspected))::float8 AS probation_seconds
FROM me LEFT JOIN leased l ON true;

-- name: alone_waiting
-- Count, up to 64, the quarantined runs of pool $1 that wait, and the processes of quarantine that hold none.
SELECT w.waiting, CASE WHEN w.waiting > 0 THEN (
         SELECT count(*) FROM rowlock.worker v
         WHERE v.pool_id = $1::int AND v.quarantine AND v.fenced_at IS NULL
           AND (SELECT true FROM rowlock.run_lease l WHERE l.worker_id = v.worker_id LIMIT 1) IS NULL
       ) ELSE 0 END AS free
FROM (SELECT count(*) AS waiting FROM (
        SELECT FROM rowlock.run_ready q WHERE q.pool_id = $1::int AND q.quarantined LIMIT 64) x) w;
