-- Workers: registration, beats, wishes for them, and how they lose their runs. Numbers of kinds are those of states.py.
-- Fencing is two statements of one transaction: `fence…` takes the rows' locks, which waits for every write in flight
-- and keeps new ones out; `move_leases` must see what those writes left, so it needs a newer snapshot.

-- name: register
-- Register one process for each place of the columns $1..$11; one whose pod rests will rest, too, a reserved one for ever.
WITH asked AS (
  SELECT * FROM unnest($1::int[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int[], $7::text[], $8::float8[],
                       $9::boolean[], $10::text[], $11::boolean[])
    WITH ORDINALITY AS u(pool_id, instance, name, pod_uid, node, pid, build, lease_seconds, quarantine, cluster, reserved,
                         place)
), made AS (
  INSERT INTO rowlock.worker (pool_id, instance, name, pod_uid, node, pid, build, lease_seconds, quarantine, cluster,
                              rests_until)
  SELECT pool_id, instance, name, pod_uid, node, pid, build, lease_seconds, quarantine, cluster,
         CASE WHEN reserved THEN 'infinity' ELSE
           (SELECT max(w.rests_until) FROM rowlock.worker w WHERE w.pod_uid = a.pod_uid AND w.fenced_at IS NULL) END
  FROM asked a ORDER BY place
  RETURNING worker_id
), beating AS (
  INSERT INTO rowlock.worker_beat (worker_id, beat_at, slots, running, lag_ms, draining)
  SELECT worker_id, rowlock.now(), 0, 0, 0, false FROM made
)
SELECT worker_id FROM made ORDER BY worker_id;

-- name: beat
-- Renew the leases of workers $1, with what each says of itself in $2..$9; answer with those that are not fenced.
WITH alive AS MATERIALIZED (
  SELECT w.worker_id FROM rowlock.worker w
  WHERE w.worker_id = ANY($1::bigint[]) AND w.fenced_at IS NULL ORDER BY w.worker_id FOR SHARE
)
UPDATE rowlock.worker_beat b
SET beat_at = rowlock.now(), slots = u.slots, running = u.running, lag_ms = u.lag_ms, draining = u.draining,
    tries = u.tries, refused = u.refused, commit_ms = u.commit_ms, cpu_percent = u.cpu_percent
FROM unnest($1::bigint[], $2::int[], $3::int[], $4::int[], $5::boolean[], $6::int[], $7::int[], $8::int[],
            $9::int[])
  AS u(worker_id, slots, running, lag_ms, draining, tries, refused, commit_ms, cpu_percent)
JOIN alive USING (worker_id)
WHERE b.worker_id = u.worker_id
RETURNING b.worker_id;

-- name: wishes
-- Read what was asked of the runs that workers $1 hold.
SELECT w.run_id, l.worker_id, w.kind, w.reason
FROM rowlock.wish w JOIN rowlock.run_lease l ON l.run_id = w.run_id
WHERE l.worker_id = ANY($1::bigint[]);

-- name: fence
-- Fence workers $1 for reason $2, waiting for what they are writing now; runs $3 were on their loops, NULL for unknown.
WITH doomed AS (
  SELECT worker_id FROM rowlock.worker WHERE worker_id = ANY($1::bigint[]) AND fenced_at IS NULL
  ORDER BY worker_id FOR UPDATE
)
UPDATE rowlock.worker w SET fenced_at = rowlock.now(), fence_reason = $2::text, run_on_loop = u.run_on_loop
FROM doomed d LEFT JOIN unnest($1::bigint[], $3::bigint[]) AS u(worker_id, run_on_loop) USING (worker_id)
WHERE w.worker_id = d.worker_id
RETURNING w.worker_id;

-- name: workers_of_instance
-- Find the unfenced workers of instances that begin with $1 and a slash, without $2.
SELECT worker_id FROM rowlock.worker
WHERE fenced_at IS NULL AND instance > $1::text || '/' AND instance < $1::text || '0'
  AND worker_id <> ALL($2::bigint[]);

-- name: workers_of_pods
-- Find the unfenced workers of pods $1.
SELECT worker_id FROM rowlock.worker WHERE fenced_at IS NULL AND pod_uid = ANY($1::text[]);

-- name: move_leases
-- Take every lease from workers $1, which must be fenced or unknown, and say what is put down to each run.
-- 0005_pre_caps.sql and 0006_pre_blame.sql have what this builds on.
WITH clock AS MATERIALIZED (
  SELECT rowlock.now() AS now
), dead AS MATERIALIZED (
  SELECT a.worker_id, coalesce(w.name, 'unknown') AS worker, coalesce(w.fence_reason, 'WorkerDied') AS fence_reason,
         coalesce(w.fence_reason = 'Left', false) AS handed, least(w.fenced_at, c.now) AS lost_at, c.now,
         coalesce(w.quarantine, false) AS quarantine, w.run_on_loop, coalesce(w.build, '') AS worker_build
  FROM (SELECT DISTINCT unnest($1::bigint[]) AS worker_id) a
  LEFT JOIN rowlock.worker w ON w.worker_id = a.worker_id
  CROSS JOIN clock c
  WHERE w.worker_id IS NULL OR w.fenced_at IS NOT NULL
), gone AS (
  DELETE FROM rowlock.run_lease l WHERE l.worker_id = ANY(ARRAY(SELECT worker_id FROM dead))
  RETURNING l.*, rowlock.cancel_wish(l.run_id) AS cancelled
), judged AS (
  SELECT g.*, d.worker, d.worker_build, d.fence_reason, d.handed, d.now,
         g.active_ms + greatest(0, extract(epoch FROM d.lost_at - g.claimed_at) * 1000)::bigint AS used_ms,
         rowlock.blame(reason => d.fence_reason, alone => d.quarantine OR count(*) OVER () = 1,
                       on_loop => g.run_id = d.run_on_loop,
                       known => bool_or(g.run_id = d.run_on_loop) OVER (PARTITION BY g.worker_id)) AS blame
  FROM gone g JOIN dead d USING (worker_id)
), counted AS (
  SELECT j.*, j.takeovers + CASE WHEN j.handed THEN 0 ELSE 1 END AS losses,
         j.blamed + CASE WHEN j.blame = 'blamed' THEN 1 ELSE 0 END AS counted,
         j.suspected + s.more AS suspicion, j.quarantined OR s.more > 0 AND j.suspected + s.more >= 2 AS to_be_alone
  FROM judged j
  CROSS JOIN LATERAL (SELECT rowlock.suspicion(reason => j.fence_reason, blame => j.blame) AS more) s
), caps AS MATERIALIZED (
  SELECT * FROM rowlock.hold_caps(ARRAY(SELECT DISTINCT agent_id FROM counted))
), moved AS MATERIALIZED (
  SELECT c.*, coalesce(k.hold_all OR (k.hold_keys AND c.key IS NOT NULL), false) AS held,
         CASE WHEN c.cancelled IS NOT NULL THEN 'cancelled'
              WHEN c.handed THEN 'requeued'
              WHEN c.counted > c.max_takeovers THEN 'failed'
              WHEN c.blame = 'blamed' AND c.counted >= 2 THEN 'delayed'
              ELSE 'requeued' END AS fate,
         CASE WHEN c.linked THEN nextval('rowlock.revision_seq') ELSE 0 END AS next_revision,
         rowlock.carry_on(c.run_id, c.epoch, c.carry, jsonb_build_object(
           'event', CASE WHEN c.handed THEN 65 /* HANDED_OVER */ ELSE 64 /* TAKEN_OVER */ END,
           'epoch', c.epoch, 'attempt', c.attempt, 'worker', c.worker, 'reason', c.fence_reason,
           'claimed_at', c.claimed_at, 'at', c.now, 'blame', coalesce(c.blame, ''), 'build', c.worker_build)) AS next_carry
  FROM counted c LEFT JOIN caps k USING (agent_id)
), queued AS (
  INSERT INTO rowlock.run_ready (run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
                                 max_takeovers, blamed, suspected, quarantined, build, pinned,
                                 active_ms, linked, revision, carry, ready_at, started_at)
  SELECT run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, losses,
         max_takeovers, counted, suspicion, to_be_alone, build, pinned,
         used_ms, linked, next_revision, next_carry, now, started_at
  FROM moved WHERE fate = 'requeued' AND NOT held
), held_back AS (
  -- What ran before is the first of its key.
  INSERT INTO rowlock.run_backlog (run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
                                   max_takeovers, blamed, suspected, quarantined, build, pinned,
                                   active_ms, linked, revision, carry, ready_at, started_at)
  SELECT run_id, pool_id, agent_id, revision_id, key, priority, '-infinity', epoch, attempt, losses,
         max_takeovers, counted, suspicion, to_be_alone, build, pinned,
         used_ms, linked, next_revision, next_carry, now, started_at
  FROM moved WHERE fate = 'requeued' AND held
), delayed AS (
  -- 5, 10, 20 … 300 seconds from the second loss on that is put down to the run, each ± 50 %.
  INSERT INTO rowlock.run_timer (run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
                                 max_takeovers, blamed, suspected, quarantined, build, pinned,
                                 active_ms, linked, revision, carry, ready_at, started_at, due_at, reason)
  SELECT run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, losses,
         max_takeovers, counted, suspicion, to_be_alone, build, pinned,
         used_ms, linked, next_revision, next_carry, now, started_at,
         now + least(300, 5 * 2 ^ least(counted - 2, 10)) * (0.5 + random()) * interval '1 second',
         1 /* TAKEOVER_BACKOFF */
  FROM moved WHERE fate = 'delayed'
), finals AS (
  INSERT INTO rowlock.run_final (run_id, attempt, epoch, status, reason, message, worker_id, worker, takeovers,
                                 started_at, claimed_at, finished_at, active_ms, revision, carry)
  SELECT run_id, attempt, epoch, CASE fate WHEN 'failed' THEN 2 /* FAILED */ ELSE 3 /* CANCELLED */ END,
         CASE fate WHEN 'failed' THEN 'TakeoverLimitReached' ELSE 'Cancelled' END,
         CASE fate WHEN 'failed' THEN format('%s losses of its worker are put down to it%s, maxTakeovers is %s', counted,
                                        CASE WHEN losses > counted THEN format(' (of %s in all)', losses) ELSE '' END,
                                        max_takeovers)
                   ELSE cancelled END,
         worker_id, worker, losses, started_at, claimed_at, now, used_ms, next_revision, next_carry
  FROM moved WHERE fate IN ('failed', 'cancelled')
  ON CONFLICT (run_id, attempt) DO NOTHING
), changed AS (
  INSERT INTO rowlock.run_change (seq, run_id, kind, epoch)
  SELECT next_revision, run_id,
         CASE WHEN fate IN ('failed', 'cancelled') THEN 9 /* ENDED */
              WHEN handed THEN 5 /* RELEASED */ ELSE 3 /* WORKER_LOST */ END, epoch
  FROM moved WHERE linked
), unwished AS (
  DELETE FROM rowlock.wish WHERE run_id = ANY(ARRAY(SELECT run_id FROM moved WHERE fate IN ('failed', 'cancelled')))
)
SELECT run_id, fate, blame, to_be_alone AND fate IN ('requeued', 'delayed') AS quarantined FROM moved;

-- name: reaper_turn
-- Begin a round unless another process has one; answer how many seconds ago the last one began.
UPDATE rowlock.reaper r SET tick_at = rowlock.now()
FROM (SELECT tick_at, pg_try_advisory_xact_lock(hashtext('rowlock.reaper')) AS mine FROM rowlock.reaper OFFSET 0) old
WHERE old.mine
RETURNING extract(epoch FROM r.tick_at - old.tick_at)::float8 AS since;

-- name: grant_leases
-- Count every lease as renewed now.
UPDATE rowlock.reaper SET granted_at = rowlock.now(), mass_since = NULL;

-- name: overdue
-- Read who is silent for longer than its lease, of how many, since when most are, and whose node is lost:
-- what explains a silence is no reason to doubt the network.
SELECT coalesce(array_agg(v.worker_id ORDER BY v.worker_id) FILTER (WHERE v.silent), '{}') AS workers,
       count(DISTINCT v.pod) FILTER (WHERE NOT v.node_lost) AS pods,
       count(DISTINCT v.pod) FILTER (WHERE v.silent AND NOT v.node_lost) AS silent_pods,
       coalesce(max(v.lease_seconds) FILTER (WHERE v.silent AND NOT v.node_lost), 0)::float8 AS lease_seconds,
       (SELECT extract(epoch FROM rowlock.now() - r.mass_since)::float8 FROM rowlock.reaper r) AS mass_for,
       coalesce(array_agg(v.worker_id ORDER BY v.worker_id) FILTER (WHERE v.silent AND v.node_lost), '{}') AS explained
FROM (SELECT l.*, l.lease_until < rowlock.now() AS silent FROM rowlock.worker_live l) v;

-- name: mass_silence
-- Remember since when most pods look dead at once ($1), or that they do not any more.
UPDATE rowlock.reaper SET mass_since = CASE WHEN $1::boolean THEN coalesce(mass_since, rowlock.now()) END
WHERE (mass_since IS NOT NULL) <> $1::boolean;

-- name: lock_silent
-- Lock those of workers $1 that nobody is writing for.
SELECT worker_id FROM rowlock.worker WHERE worker_id = ANY($1::bigint[]) AND fenced_at IS NULL
ORDER BY worker_id FOR UPDATE SKIP LOCKED;

-- name: fence_silent
-- Fence those of the locked workers $1 that have still not beaten.
UPDATE rowlock.worker w SET fenced_at = rowlock.now(),
                            fence_reason = CASE WHEN w.node_lost THEN 'NodeLost' ELSE 'LeaseExpired' END
FROM rowlock.worker_live v
WHERE w.worker_id = ANY($1::bigint[]) AND v.worker_id = w.worker_id AND v.lease_until < rowlock.now()
RETURNING w.worker_id;

-- name: stranded
-- Find fenced or unknown workers that still hold leases, stepping through the index from worker to worker.
WITH RECURSIVE holder AS (
  (SELECT worker_id FROM rowlock.run_lease ORDER BY worker_id LIMIT 1)
  UNION ALL
  SELECT (SELECT l.worker_id FROM rowlock.run_lease l WHERE l.worker_id > h.worker_id ORDER BY l.worker_id LIMIT 1)
  FROM holder h WHERE h.worker_id IS NOT NULL
)
SELECT h.worker_id FROM holder h
WHERE h.worker_id IS NOT NULL
  AND NOT EXISTS (SELECT FROM rowlock.worker w WHERE w.worker_id = h.worker_id AND w.fenced_at IS NULL);
