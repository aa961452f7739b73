-- What the autoscaler reads and does. Ages and limits are by the database's clock.

-- name: pool_signals
-- Read what every pool has to do and who does it; a loop later than $1 ms, or a CPU fuller than $2 %, has no use for free slots.
-- `oldest_wait` leaves out quarantined runs, which need no slot; a worker that rests, or leaves, is no capacity.
SELECT p.pool_id, p.namespace, p.name, p.running, p.claimable, p.waiting, p.oldest_ready_at, p.workers, p.slots,
       p.quarantined,
       extract(epoch FROM rowlock.now() - p.oldest_for_slot_at)::float8 AS oldest_wait,
       coalesce(w.free, 0) AS free, coalesce(w.saturated, 0) AS saturated,
       coalesce(w.tries, 0) AS tries, coalesce(w.refused, 0) AS refused,
       coalesce(w.commit_ms, 0)::float8 AS commit_ms
FROM rowlock.pool_demand p
LEFT JOIN (SELECT v.pool_id,
                  sum(greatest(v.slots - v.running, 0)) FILTER (WHERE v.working AND NOT v.full) AS free,
                  sum(greatest(v.slots - v.running, 0)) FILTER (WHERE v.working AND v.full) AS saturated,
                  sum(v.tries) AS tries, sum(v.refused) AS refused, avg(v.commit_ms) AS commit_ms
           FROM (SELECT l.*, NOT l.draining AND coalesce(l.rests_until < rowlock.now(), true) AS working,
                       l.lag_ms > $1::int OR l.cpu_percent > $2::int AS full
                 FROM rowlock.worker_live l WHERE l.lease_until >= rowlock.now() AND NOT l.quarantine) v
           GROUP BY v.pool_id) w
  USING (pool_id)
ORDER BY p.pool_id;

-- name: rest_pods
-- Let the workers of pods $2 of pool $1 claim nothing for $3 seconds, and all others of that pool but reserved ones claim again.
-- It waits for the claims under way: what it leaves with a resting worker stays the last that this one holds.
WITH meant AS (
  SELECT worker_id FROM rowlock.worker
  WHERE pool_id = $1::int AND fenced_at IS NULL AND pod_uid IS NOT NULL
    AND (pod_uid = ANY($2::text[]) OR rests_until IS NOT NULL) AND rests_until IS DISTINCT FROM 'infinity'
  ORDER BY worker_id FOR UPDATE
)
UPDATE rowlock.worker w
SET rests_until = CASE WHEN w.pod_uid = ANY($2::text[]) THEN rowlock.now() + $3::float8 * interval '1 second' END
FROM meant m WHERE w.worker_id = m.worker_id
RETURNING w.pod_uid;

-- name: pod_loads
-- Count the runs that each pod of pool $1 holds.
SELECT w.pod_uid, count(l.run_id) AS running
FROM rowlock.worker w LEFT JOIN rowlock.run_lease l USING (worker_id)
WHERE w.pool_id = $1::int AND w.fenced_at IS NULL AND w.pod_uid IS NOT NULL
GROUP BY w.pod_uid;
