-- What people, the scaler and `rowlock doctor` read.

-- Every live row with the name of its table.
CREATE VIEW rowlock.run_live AS
SELECT 'ready' AS place, q.run_id, q.pool_id, q.agent_id, q.key, q.epoch, q.attempt, q.takeovers, q.max_takeovers,
       q.blamed, q.suspected, q.quarantined, q.build, q.pinned,
       q.linked, q.revision, q.carry, q.ready_at, q.started_at,
       NULL::bigint AS worker_id, NULL::timestamptz AS claimed_at, NULL::timestamptz AS due_at, NULL::smallint AS timer_reason
FROM rowlock.run_ready q
UNION ALL
SELECT 'backlog', q.run_id, q.pool_id, q.agent_id, q.key, q.epoch, q.attempt, q.takeovers, q.max_takeovers,
       q.blamed, q.suspected, q.quarantined, q.build, q.pinned,
       q.linked, q.revision, q.carry, q.ready_at, q.started_at, NULL, NULL, NULL, NULL
FROM rowlock.run_backlog q
UNION ALL
SELECT 'timer', q.run_id, q.pool_id, q.agent_id, q.key, q.epoch, q.attempt, q.takeovers, q.max_takeovers,
       q.blamed, q.suspected, q.quarantined, q.build, q.pinned,
       q.linked, q.revision, q.carry, q.ready_at, q.started_at, NULL, NULL, q.due_at, q.reason
FROM rowlock.run_timer q
UNION ALL
SELECT 'parked', q.run_id, q.pool_id, q.agent_id, q.key, q.epoch, q.attempt, q.takeovers, q.max_takeovers,
       q.blamed, q.suspected, q.quarantined, q.build, q.pinned,
       q.linked, q.revision, q.carry, q.ready_at, q.started_at, NULL, NULL, q.wake_at, NULL
FROM rowlock.run_parked q
UNION ALL
SELECT 'lease', q.run_id, q.pool_id, q.agent_id, q.key, q.epoch, q.attempt, q.takeovers, q.max_takeovers,
       q.blamed, q.suspected, q.quarantined, q.build, q.pinned,
       q.linked, q.revision, q.carry, q.ready_at, q.started_at, q.worker_id, q.claimed_at, NULL, NULL
FROM rowlock.run_lease q;

-- Live workers and the end of what their last beat, or a grant of the reaper, gave them.
CREATE VIEW rowlock.worker_live AS
SELECT w.worker_id, w.pool_id, w.name, w.node, w.lease_seconds, w.started_at, w.quarantine, w.node_lost,
       coalesce(w.pod_uid, split_part(w.instance, '/', 1)) AS pod,
       b.beat_at, b.slots, b.running, b.lag_ms, b.draining, b.tries, b.refused, b.commit_ms, b.cpu_percent,
       w.rests_until,
       greatest(b.beat_at, r.granted_at) + w.lease_seconds * interval '1 second' AS lease_until
FROM rowlock.worker w
JOIN rowlock.worker_beat b ON b.worker_id = w.worker_id
CROSS JOIN rowlock.reaper r
WHERE w.fenced_at IS NULL;

-- One row a run: where it stands now, or how its newest attempt ended.
CREATE VIEW rowlock.run_status AS
SELECT r.run_id, a.namespace AS agent_namespace, a.name AS agent, o.namespace, o.name, r.key,
       coalesce(l.place, 'final') AS place,
       CASE f.status WHEN 1 THEN 'Succeeded' WHEN 2 THEN 'Failed' WHEN 3 THEN 'Cancelled' END AS ended,
       f.reason, f.message,
       coalesce(l.attempt, f.attempt) AS attempt,
       coalesce(l.epoch, f.epoch) AS epoch,
       coalesce(l.takeovers, f.takeovers) AS takeovers,
       coalesce(w.name, f.worker) AS worker,
       EXISTS (SELECT FROM rowlock.wish x WHERE x.run_id = r.run_id AND x.kind = 1) AS cancel_asked,
       r.created_at, coalesce(l.started_at, f.started_at) AS started_at, l.claimed_at, l.due_at, f.finished_at
FROM rowlock.run r
JOIN rowlock.agent a ON a.agent_id = r.agent_id
LEFT JOIN rowlock.run_object o ON o.run_id = r.run_id
LEFT JOIN rowlock.run_live l ON l.run_id = r.run_id
LEFT JOIN rowlock.worker w ON w.worker_id = l.worker_id
LEFT JOIN LATERAL (
  SELECT * FROM rowlock.run_final x WHERE x.run_id = r.run_id ORDER BY x.attempt DESC LIMIT 1
) f ON l.run_id IS NULL;

-- Leases that nobody renews; a row that stays for longer than a lease means that no reaper runs.
CREATE VIEW rowlock.stuck_leases AS
SELECT l.run_id, l.worker_id, w.name AS worker, w.node, l.claimed_at, b.beat_at,
       rowlock.now() - b.beat_at AS silent_for,
       CASE WHEN w.worker_id IS NULL THEN 'its worker is unknown'
            WHEN w.fenced_at IS NOT NULL THEN 'its worker is fenced: ' || w.fence_reason
            ELSE 'its worker is silent' END AS problem
FROM rowlock.run_lease l
LEFT JOIN rowlock.worker w ON w.worker_id = l.worker_id
LEFT JOIN rowlock.worker_beat b ON b.worker_id = l.worker_id
LEFT JOIN rowlock.worker_live v ON v.worker_id = l.worker_id
WHERE v.worker_id IS NULL OR v.lease_until < rowlock.now();

-- Runs to which more than one loss of a worker is put down, or may be: look here for one that kills its worker.
CREATE VIEW rowlock.repeat_takeovers AS
SELECT l.run_id, o.namespace, o.name, a.name AS agent, l.place, l.takeovers, l.max_takeovers,
       l.blamed, l.suspected, l.quarantined, l.due_at,
       w.name AS worker, l.carry -> -1 ->> 'worker' AS lost_worker, l.carry -> -1 ->> 'reason' AS lost_reason
FROM rowlock.run_live l
JOIN rowlock.agent a ON a.agent_id = l.agent_id
LEFT JOIN rowlock.run_object o ON o.run_id = l.run_id
LEFT JOIN rowlock.worker w ON w.worker_id = l.worker_id
WHERE l.blamed >= 2 OR l.suspected >= 2;

-- One row a pool, zeros where there is nothing: the scaler, the metric and KEDA read the same.
-- `claimable` is what a free slot could take now; `waiting` leaves out parked runs, which wait for a person.
-- `quarantined` are those of the claimable that need no slot but a process of their own, which any worker can start.
-- Such processes are no capacity: they count neither as workers nor with their slot.
CREATE VIEW rowlock.pool_demand AS
SELECT p.pool_id, p.namespace, p.name,
       coalesce(l.running, 0) AS running,
       coalesce(q.claimable, 0) AS claimable,
       coalesce(b.waiting, 0) + coalesce(t.waiting, 0) AS waiting,
       q.oldest_ready_at,
       coalesce(w.workers, 0) AS workers,
       coalesce(w.slots, 0) AS slots,
       coalesce(q.quarantined, 0) AS quarantined,
       q.oldest_for_slot_at
FROM rowlock.pool p
LEFT JOIN (SELECT pool_id, count(*) AS running FROM rowlock.run_lease GROUP BY pool_id) l USING (pool_id)
LEFT JOIN (SELECT pool_id, count(*) AS claimable, min(ready_at) AS oldest_ready_at,
                  count(*) FILTER (WHERE quarantined) AS quarantined,
                  min(ready_at) FILTER (WHERE NOT quarantined AND build IS NULL) AS oldest_for_slot_at
           FROM rowlock.run_ready GROUP BY pool_id) q USING (pool_id)
LEFT JOIN (SELECT pool_id, count(*) AS waiting FROM rowlock.run_backlog GROUP BY pool_id) b USING (pool_id)
LEFT JOIN (SELECT pool_id, count(*) AS waiting FROM rowlock.run_timer GROUP BY pool_id) t USING (pool_id)
LEFT JOIN (SELECT pool_id, count(*) AS workers, coalesce(sum(slots) FILTER (WHERE NOT draining), 0) AS slots
           FROM rowlock.worker_live WHERE lease_until >= rowlock.now() AND NOT quarantine
           GROUP BY pool_id) w USING (pool_id);

-- What must never be: each row names a broken invariant and its run. Reads everything.
CREATE VIEW rowlock.violations AS
SELECT 'stands in ' || string_agg(place, ' and ' ORDER BY place) AS problem, run_id
FROM rowlock.run_live GROUP BY run_id HAVING count(*) > 1
UNION ALL
SELECT 'stands in ' || l.place || ', but its attempt has ended', l.run_id
FROM rowlock.run_live l JOIN rowlock.run_final f ON f.run_id = l.run_id AND f.attempt >= l.attempt
UNION ALL
SELECT 'stands nowhere and has no final', r.run_id
FROM rowlock.run r
WHERE NOT EXISTS (SELECT FROM rowlock.run_live l WHERE l.run_id = r.run_id)
  AND NOT EXISTS (SELECT FROM rowlock.run_final f WHERE f.run_id = r.run_id)
UNION ALL
SELECT 'stands in ' || l.place || ', but was never accepted', l.run_id
FROM rowlock.run_live l WHERE NOT EXISTS (SELECT FROM rowlock.run r WHERE r.run_id = l.run_id)
UNION ALL
SELECT 'is leased to worker ' || l.worker_id || ', which is ' || CASE WHEN w.worker_id IS NULL THEN 'unknown' ELSE 'fenced' END,
       l.run_id
FROM rowlock.run_lease l LEFT JOIN rowlock.worker w ON w.worker_id = l.worker_id
WHERE w.worker_id IS NULL OR w.fenced_at IS NOT NULL
UNION ALL
SELECT 'has a gap in its history', e.run_id
FROM rowlock.run_event e GROUP BY e.run_id HAVING count(*) <> max(e.seq) OR min(e.seq) <> 1
UNION ALL
SELECT DISTINCT 'has an epoch that went back in its history', e.run_id
FROM (SELECT run_id, epoch < lag(epoch) OVER (PARTITION BY run_id ORDER BY seq) AS back FROM rowlock.run_event) e
WHERE e.back
UNION ALL
SELECT DISTINCT 'has history of a later epoch than its own', l.run_id
FROM rowlock.run_live l JOIN rowlock.run_event e ON e.run_id = l.run_id AND e.epoch > l.epoch
UNION ALL
SELECT DISTINCT 'has an epoch that went back since an attempt ended', l.run_id
FROM rowlock.run_live l JOIN rowlock.run_final f ON f.run_id = l.run_id AND f.epoch > l.epoch
UNION ALL
SELECT DISTINCT 'has an epoch that went back between attempts', b.run_id
FROM rowlock.run_final a JOIN rowlock.run_final b ON b.run_id = a.run_id AND b.attempt > a.attempt AND b.epoch < a.epoch
UNION ALL
SELECT 'misses the end of an earlier attempt', f.run_id
FROM rowlock.run_final f GROUP BY f.run_id HAVING count(*) <> max(f.attempt)
UNION ALL
SELECT 'is to blame for more losses than it may', l.run_id
FROM rowlock.run_live l WHERE l.blamed > l.max_takeovers
UNION ALL
SELECT 'is leased among others, but is to be alone', l.run_id
FROM rowlock.run_lease l JOIN rowlock.worker w USING (worker_id) WHERE l.quarantined AND NOT w.quarantine
UNION ALL
SELECT 'shares a process of quarantine', l.run_id
FROM rowlock.run_lease l JOIN rowlock.worker w USING (worker_id)
WHERE w.quarantine AND (SELECT count(*) FROM rowlock.run_lease o WHERE o.worker_id = l.worker_id) > 1
UNION ALL
SELECT 'may be claimed, but its agent has more runs than its cap allows', q.run_id
FROM rowlock.run_ready q
WHERE q.agent_id IN (
  SELECT a.agent_id FROM rowlock.agent a
  JOIN (SELECT agent_id FROM rowlock.run_ready UNION ALL SELECT agent_id FROM rowlock.run_lease) u USING (agent_id)
  WHERE a.max_running IS NOT NULL GROUP BY a.agent_id HAVING count(*) > a.max_running)
UNION ALL
SELECT 'may be claimed, but its key has more runs than its cap allows', q.run_id
FROM rowlock.run_ready q
WHERE (q.agent_id, q.key) IN (
  SELECT a.agent_id, u.key FROM rowlock.agent a
  JOIN (SELECT agent_id, key FROM rowlock.run_ready UNION ALL SELECT agent_id, key FROM rowlock.run_lease) u USING (agent_id)
  WHERE a.max_running_per_key IS NOT NULL GROUP BY a.agent_id, u.key HAVING count(*) > a.max_running_per_key)
UNION ALL
SELECT 'is suspended, but nobody wishes that', p.run_id
FROM rowlock.run_parked p
WHERE 'suspended' = ANY(p.reasons)
  AND NOT EXISTS (SELECT FROM rowlock.wish w WHERE w.run_id = p.run_id AND w.kind = 2)
UNION ALL
SELECT 'is parked, but nothing would wake it', p.run_id
FROM rowlock.run_parked p
WHERE NOT 'suspended' = ANY(p.reasons) AND p.wake_at IS NULL
  AND NOT EXISTS (SELECT FROM rowlock.approval q
                  WHERE q.run_id = p.run_id AND q.attempt = p.attempt AND q.decided_at IS NULL)
UNION ALL
SELECT 'was asked for an attempt that neither stands nor has ended', a.run_id
FROM rowlock.run_attempt a
WHERE NOT EXISTS (SELECT FROM rowlock.run_live l WHERE l.run_id = a.run_id AND l.attempt >= a.attempt)
  AND NOT EXISTS (SELECT FROM rowlock.run_final f WHERE f.run_id = a.run_id AND f.attempt >= a.attempt)
  AND a.run_id >= (SELECT h.run_id FROM rowlock.history_floor h)
UNION ALL
SELECT 'is linked to a custom resource but was never accepted', o.run_id
FROM rowlock.run_object o WHERE NOT EXISTS (SELECT FROM rowlock.run r WHERE r.run_id = o.run_id)
UNION ALL
SELECT 'holds an idempotency key but was never accepted', d.run_id
FROM rowlock.run_dedup d
WHERE NOT EXISTS (SELECT FROM rowlock.run r WHERE r.run_id = d.run_id)
  AND d.run_id >= (SELECT h.run_id FROM rowlock.history_floor h)
UNION ALL
SELECT 'has an unshown change newer than its revision', c.run_id
FROM rowlock.run_change c JOIN rowlock.run_live l ON l.run_id = c.run_id AND c.seq > l.revision
WHERE NOT c.again;
