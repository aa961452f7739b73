-- What a client reads: agents and pools by name, runs, and what is new of many runs at once.
-- One probe for each id, which goes to its partition alone; see `bodies` in work.sql.

-- name: newest_revision
-- Find agent $2 of namespace $1 with the revision that was made last, null where it has none.
SELECT a.agent_id, v.revision_id, v.entrypoint, v.spec
FROM rowlock.agent a
LEFT JOIN LATERAL (
  SELECT x.revision_id, x.entrypoint, x.spec FROM rowlock.agent_revision x
  WHERE x.agent_id = a.agent_id ORDER BY x.revision_id DESC LIMIT 1
) v ON true
WHERE a.namespace = $1::text AND a.name = $2::text;

-- name: agent_names
-- List the first $2 agents of namespace $1.
SELECT a.name FROM rowlock.agent a WHERE a.namespace = $1::text ORDER BY a.name LIMIT $2::int;

-- name: pool_names
-- List the first $2 pools of namespace $1.
SELECT p.name FROM rowlock.pool p WHERE p.namespace = $1::text ORDER BY p.name LIMIT $2::int;

-- name: existing_runs
-- Say which of runs $1 were accepted and are still in history.
SELECT a.run_id FROM unnest($1::bigint[]) AS a(run_id)
WHERE (SELECT true FROM rowlock.run r WHERE r.run_id = a.run_id LIMIT 1);

-- name: run_infos
-- Read how runs $1 of namespace $2 stand, or of any if that is null.
SELECT r.run_id, g.name AS agent, r.key, r.priority, r.created_at,
       coalesce(l.place, 'final') AS place, (SELECT p.reasons FROM rowlock.run_parked p WHERE p.run_id = a.run_id) AS reasons,
       coalesce(l.attempt, f.attempt) AS attempt, coalesce(l.takeovers, f.takeovers) AS takeovers, coalesce(w.name, f.worker) AS worker,
       coalesce(l.started_at, f.started_at) AS started_at, l.due_at, f.finished_at,
       f.status, f.reason, f.message, f.outcome, f.tokens_in, f.tokens_out, f.cost_micro
FROM unnest($1::bigint[]) WITH ORDINALITY AS a(run_id, place)
JOIN LATERAL (SELECT x.run_id, x.agent_id, x.key, x.priority, x.created_at
              FROM rowlock.run x WHERE x.run_id = a.run_id LIMIT 1) r ON true
JOIN rowlock.agent g ON g.agent_id = r.agent_id AND ($2::text IS NULL OR g.namespace = $2::text)
LEFT JOIN LATERAL (SELECT x.* FROM rowlock.run_live x WHERE x.run_id = a.run_id LIMIT 1) l ON true
LEFT JOIN rowlock.worker w ON w.worker_id = l.worker_id
LEFT JOIN LATERAL (SELECT x.* FROM rowlock.run_final x
                   WHERE x.run_id = a.run_id ORDER BY x.attempt DESC LIMIT 1) f ON l.run_id IS NULL
ORDER BY a.place;

-- name: newest_runs
-- List up to $6 runs of namespace $1, the newest first: those of agent $2, with key $3, in places or ends $4, below $5, accepted since $7.
-- Null stands for all; a parked run stands where it waits. A rare kind of run is looked for through all of history.
SELECT r.run_id
FROM rowlock.run r
JOIN rowlock.agent g ON g.agent_id = r.agent_id AND g.namespace = $1::text
LEFT JOIN LATERAL (SELECT x.place FROM rowlock.run_live x WHERE x.run_id = r.run_id LIMIT 1) l ON true
LEFT JOIN LATERAL (SELECT x.status FROM rowlock.run_final x
                   WHERE x.run_id = r.run_id ORDER BY x.attempt DESC LIMIT 1) f ON l.place IS NULL
WHERE ($2::text IS NULL OR g.name = $2::text)
  AND ($3::text IS NULL OR r.key = $3::text)
  AND ($4::text[] IS NULL OR coalesce(
         CASE WHEN l.place = 'parked' THEN
           (SELECT CASE WHEN 'suspended' = ANY(p.reasons) THEN 'suspended' WHEN 'approval' = ANY(p.reasons) THEN 'approval'
                        WHEN 'retry' = ANY(p.reasons) THEN 'retry' ELSE 'sleep' END
            FROM rowlock.run_parked p WHERE p.run_id = r.run_id)
         ELSE l.place END, f.status::text) = ANY($4::text[]))
  AND r.run_id < $5::bigint
  AND r.run_id >= coalesce(rowlock.id_floor($7::timestamptz), 0)
ORDER BY r.run_id DESC LIMIT $6::int;

-- name: run_ends
-- Read how those of runs $1 ended that are final, up to $2 of them; a result over $3 bytes is left out.
SELECT f.run_id, f.attempt, f.status, f.reason, f.message, f.outcome, octet_length(f.result) AS size,
       CASE WHEN octet_length(f.result) <= $3::int THEN f.result END AS result
FROM unnest($1::bigint[]) AS a(run_id)
JOIN LATERAL (SELECT x.* FROM rowlock.run_final x
              WHERE x.run_id = a.run_id ORDER BY x.attempt DESC LIMIT 1) f ON true
WHERE (SELECT true FROM rowlock.run_live l WHERE l.run_id = a.run_id LIMIT 1) IS NULL
LIMIT $2::int;

-- name: run_result
-- Read the result of attempt $2 of run $1.
SELECT f.result FROM rowlock.run_final f WHERE f.run_id = $1::bigint AND f.attempt = $2::smallint;

-- name: watched_runs
-- Read where runs $1 stand and, of each, the first $3 rows of history after number $2; a body over $4 bytes is left out.
-- One snapshot: a run that is final here has no rows but these and those that the limit cut off.
SELECT r.run_id, coalesce(l.place, 'final') AS place,
       (SELECT p.reasons FROM rowlock.run_parked p WHERE p.run_id = a.run_id) AS reasons,
       coalesce(l.attempt, f.attempt) AS attempt, coalesce(l.epoch, f.epoch) AS epoch, coalesce(l.takeovers, f.takeovers) AS takeovers,
       coalesce(w.name, f.worker) AS worker, coalesce(l.claimed_at, l.ready_at, f.finished_at) AS since, l.due_at,
       f.status, f.reason, f.message, f.outcome,
       e.seqs, e.epochs, e.attempts, e.kinds, e.keys, e.tries, e.ats, e.durations, e.sizes, e.bodies
FROM unnest($1::bigint[], $2::int[]) AS a(run_id, after)
JOIN LATERAL (SELECT x.run_id FROM rowlock.run x WHERE x.run_id = a.run_id LIMIT 1) r ON true
LEFT JOIN LATERAL (SELECT x.* FROM rowlock.run_live x WHERE x.run_id = a.run_id LIMIT 1) l ON true
LEFT JOIN rowlock.worker w ON w.worker_id = l.worker_id
LEFT JOIN LATERAL (SELECT x.* FROM rowlock.run_final x
                   WHERE x.run_id = a.run_id ORDER BY x.attempt DESC LIMIT 1) f ON l.run_id IS NULL
CROSS JOIN LATERAL (
  SELECT array_agg(n.seq ORDER BY n.seq) AS seqs, array_agg(n.epoch ORDER BY n.seq) AS epochs,
         array_agg(n.attempt ORDER BY n.seq) AS attempts, array_agg(n.kind ORDER BY n.seq) AS kinds,
         array_agg(n.key ORDER BY n.seq) AS keys, array_agg(n.try ORDER BY n.seq) AS tries,
         array_agg(n.at ORDER BY n.seq) AS ats, array_agg(n.dur_ms ORDER BY n.seq) AS durations,
         array_agg(octet_length(n.body) ORDER BY n.seq) AS sizes,
         array_agg(CASE WHEN octet_length(n.body) <= $4::int THEN n.body END ORDER BY n.seq) AS bodies
  FROM (SELECT x.* FROM rowlock.run_event x
        WHERE x.run_id = a.run_id AND x.seq > a.after ORDER BY x.seq LIMIT $3::int) n
) e;
