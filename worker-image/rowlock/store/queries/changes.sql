-- What the operator's mirror and sweep read. Numbers of kinds are those of states.py.

-- name: unshown
-- Read up to $2 changes after number $1. Numbers may appear late: begin at 0 again soon.
SELECT seq, run_id, kind, epoch, at, again FROM rowlock.run_change WHERE seq > $1::bigint ORDER BY seq LIMIT $2::int;

-- name: shown
-- Forget exactly the changes $1.
DELETE FROM rowlock.run_change WHERE seq = ANY($1::bigint[]);

-- name: snapshots
-- Read all that a status shows of runs $1, as of one instant. Results above $2 bytes stay behind.
SELECT o.run_id, o.cluster, o.uid, o.namespace, o.name, o.generation,
       coalesce(l.place, 'final') AS place, coalesce(l.revision, f.revision, 0) AS revision,
       coalesce(l.epoch, f.epoch, 0) AS epoch, coalesce(l.attempt, f.attempt, 1) AS attempt,
       coalesce(l.takeovers, f.takeovers, 0) AS takeovers, coalesce(l.max_takeovers, 0) AS max_takeovers,
       coalesce(l.blamed, 0) AS blamed, coalesce(l.quarantined, false) AS quarantined, l.build,
       r.created_at, v.digest AS agent_revision, l.ready_at, coalesce(l.claimed_at, f.claimed_at) AS claimed_at,
       coalesce(l.started_at, f.started_at) AS started_at, l.due_at, l.timer_reason,
       coalesce(w.name, f.worker, f.carry -> -1 ->> 'worker') AS worker,
       coalesce(w.pod_uid, (SELECT x.pod_uid FROM rowlock.worker x WHERE x.worker_id = f.worker_id)) AS pod_uid,
       (SELECT true FROM rowlock.wish x WHERE x.run_id = o.run_id AND x.kind = 1 /* CANCEL */) IS TRUE AS cancel_asked,
       (SELECT x.reasons FROM rowlock.run_parked x WHERE x.run_id = o.run_id) AS parked_for,
       (SELECT array_agg(ROW(q.step_key, q.digest, q.tool, q.expires_at) ORDER BY q.asked_at, q.step_key)
        FROM rowlock.approval q WHERE q.run_id = o.run_id AND q.attempt = l.attempt AND q.decided_at IS NULL) AS questions,
       (SELECT w2.asked_by || coalesce(': ' || w2.reason, '') FROM rowlock.wish w2
        WHERE w2.run_id = o.run_id AND w2.kind = 2 /* SUSPEND */) AS suspend_asked,
       coalesce((SELECT max(substring(x.asked_by FROM '^spec[.]redrive ([0-9]{1,9})$')::int)
                 FROM rowlock.run_attempt x WHERE x.run_id = o.run_id), 0) AS redrives,
       coalesce(l.carry, f.carry) AS carry,
       e.seqs, e.epochs, e.attempts, e.kinds, e.ats, e.bodies,
       f.status, f.reason, f.message, f.outcome, f.step, f.finished_at,
       coalesce(f.tokens_in, 0) AS tokens_in, coalesce(f.tokens_out, 0) AS tokens_out,
       coalesce(f.cost_micro, 0) AS cost_micro, f.result, f.result_size
FROM unnest($1::bigint[]) AS a(run_id)
JOIN rowlock.run_object o ON o.run_id = a.run_id
JOIN LATERAL (SELECT x.created_at, x.revision_id FROM rowlock.run x WHERE x.run_id = a.run_id LIMIT 1) r ON true
JOIN rowlock.agent_revision v ON v.revision_id = r.revision_id
LEFT JOIN LATERAL (SELECT x.* FROM rowlock.run_live x WHERE x.run_id = a.run_id LIMIT 1) l ON true
LEFT JOIN rowlock.worker w ON w.worker_id = l.worker_id
LEFT JOIN LATERAL (
  SELECT x.attempt, x.epoch, x.status, x.reason, x.message, x.outcome, x.step, x.worker, x.worker_id, x.takeovers, x.started_at,
         x.claimed_at, x.finished_at, x.tokens_in, x.tokens_out, x.cost_micro, x.revision, x.carry,
         octet_length(x.result) AS result_size,
         CASE WHEN octet_length(x.result) <= $2::int THEN x.result END AS result
  FROM rowlock.run_final x WHERE x.run_id = a.run_id ORDER BY x.attempt DESC LIMIT 1
) f ON l.run_id IS NULL
CROSS JOIN LATERAL (
  SELECT array_agg(x.seq ORDER BY x.seq) AS seqs, array_agg(x.epoch ORDER BY x.seq) AS epochs,
         array_agg(x.attempt ORDER BY x.seq) AS attempts, array_agg(x.kind ORDER BY x.seq) AS kinds,
         array_agg(x.at ORDER BY x.seq) AS ats, array_agg(x.body ORDER BY x.seq) AS bodies
  FROM rowlock.run_event x WHERE x.run_id = a.run_id AND x.kind >= 64
) e;

-- name: objects
-- Read up to $4 linked runs of cluster $1 and namespaces $2 (null for all), by uid after $3.
SELECT o.uid, o.run_id, o.namespace, o.name, o.generation, coalesce(l.revision, f.revision, 0) AS revision,
       l.run_id IS NULL AS finished, r.created_at
FROM (
  SELECT * FROM rowlock.run_object x
  WHERE x.cluster = $1::text AND x.uid > $3::text AND ($2::text[] IS NULL OR x.namespace = ANY($2::text[]))
  ORDER BY x.uid LIMIT $4::int
) o
JOIN LATERAL (SELECT x.created_at FROM rowlock.run x WHERE x.run_id = o.run_id LIMIT 1) r ON true
LEFT JOIN LATERAL (SELECT x.run_id, x.revision FROM rowlock.run_live x WHERE x.run_id = o.run_id LIMIT 1) l ON true
LEFT JOIN LATERAL (SELECT x.revision FROM rowlock.run_final x
                   WHERE x.run_id = o.run_id ORDER BY x.attempt DESC LIMIT 1) f ON l.run_id IS NULL
ORDER BY o.uid;

-- name: recreate_changes
-- Have runs $1 shown again as they stand, also those of which a change is there: it may have been read before what is new.
WITH made AS (
  INSERT INTO rowlock.run_change (seq, run_id, kind, epoch, again)
  SELECT nextval('rowlock.revision_seq'), o.run_id,
         CASE coalesce(l.place, 'final')
           WHEN 'lease' THEN 2 /* CLAIMED */ WHEN 'timer' THEN 7 /* RETRYING */ WHEN 'parked' THEN 10 /* PARKED */
           WHEN 'final' THEN 9 /* ENDED */ ELSE 1 /* QUEUED */ END,
         coalesce(l.epoch, 0), true
  FROM rowlock.run_object o
  LEFT JOIN LATERAL (SELECT x.place, x.epoch FROM rowlock.run_live x WHERE x.run_id = o.run_id LIMIT 1) l ON true
  WHERE o.run_id = ANY($1::bigint[])
  RETURNING run_id
)
SELECT count(*) AS made FROM made;

-- name: unlink
-- Forget that runs $1 belong to a custom resource; later changes of them find no object and are shown to nobody.
WITH changes AS (
  DELETE FROM rowlock.run_change WHERE run_id = ANY($1::bigint[])
), ttls AS (
  DELETE FROM rowlock.run_ttl WHERE run_id = ANY($1::bigint[])
)
DELETE FROM rowlock.run_object WHERE run_id = ANY($1::bigint[]);

-- name: pool_demand
-- Read what every pool has to do and who does it.
SELECT pool_id, namespace, name, running, claimable, waiting, oldest_ready_at, workers, slots, quarantined
FROM rowlock.pool_demand ORDER BY pool_id;

-- name: violations
-- Read every broken invariant.
SELECT problem, run_id FROM rowlock.violations ORDER BY run_id, problem;
