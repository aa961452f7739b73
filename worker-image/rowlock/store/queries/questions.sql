-- What the operator shows of questions to people as custom resources. Numbers of kinds are those of states.py.

-- name: questions_of
-- Read all questions of the runs whose custom resources in cluster $1 have the uids $2.
-- `newer`: in the same attempt, the run asked about the same step again, but about other arguments.
SELECT o.uid, o.namespace, o.name, p.run_id, p.step_key, p.digest, p.attempt, p.tool, p.question, p.asked_at, p.expires_at,
       p.decided_at, p.decision, coalesce(p.decided_by, '') AS by, coalesce(p.reason, '') AS reason,
       l.attempt AS live_attempt, coalesce(r.options, '{}'::bytea) AS options,
       EXISTS (SELECT FROM rowlock.approval n
               WHERE n.run_id = p.run_id AND n.step_key = p.step_key AND n.attempt = p.attempt AND n.asked_at > p.asked_at) AS newer
FROM unnest($2::text[]) AS a(uid)
JOIN rowlock.run_object o ON o.cluster = $1::text AND o.uid = a.uid
JOIN rowlock.approval p ON p.run_id = o.run_id
LEFT JOIN LATERAL (SELECT x.attempt FROM rowlock.run_live x WHERE x.run_id = o.run_id LIMIT 1) l ON true
LEFT JOIN LATERAL (SELECT x.options FROM rowlock.run x WHERE x.run_id = o.run_id LIMIT 1) r ON true
ORDER BY p.asked_at, p.step_key;

-- name: asking
-- Find up to $4 custom resources of cluster $1 and namespaces $2 (null for all) whose runs have open questions, by uid after $3.
SELECT DISTINCT o.uid
FROM rowlock.approval p
JOIN rowlock.run_object o ON o.run_id = p.run_id
WHERE p.decided_at IS NULL AND o.cluster = $1::text AND o.uid > $3::text
  AND ($2::text[] IS NULL OR o.namespace = ANY($2::text[]))
  AND (SELECT true FROM rowlock.run_live l WHERE l.run_id = p.run_id AND l.attempt = p.attempt LIMIT 1)
ORDER BY o.uid LIMIT $4::int;
