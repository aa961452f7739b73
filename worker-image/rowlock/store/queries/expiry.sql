-- The end of custom resources: when they are to be deleted, and which may not go yet.

-- name: set_ttl
-- Note for runs $1 the time to live that each says itself ($2) and else gets ($3, null to leave it as it is), in seconds.
-- A run whose custom resource is gone meanwhile gets none: nobody would take it away again.
INSERT INTO rowlock.run_ttl AS t (run_id, own_seconds, else_seconds)
SELECT a.run_id, a.own, a.other FROM unnest($1::bigint[], $2::int[], $3::int[]) AS a(run_id, own, other)
WHERE EXISTS (SELECT FROM rowlock.run_object o WHERE o.run_id = a.run_id)
  AND (a.own IS NOT NULL OR a.other IS NOT NULL
       OR EXISTS (SELECT FROM rowlock.run_ttl x WHERE x.run_id = a.run_id))
ORDER BY a.run_id
ON CONFLICT (run_id) DO UPDATE
SET own_seconds = excluded.own_seconds, else_seconds = coalesce(excluded.else_seconds, t.else_seconds);

-- name: time_ends
-- Set when the custom resources of runs $1 are to be deleted; never, while a run has not ended.
UPDATE rowlock.run_ttl t
SET delete_at = e.ended_at + coalesce(t.own_seconds, t.else_seconds) * interval '1 second'
FROM (
  -- Most runs have no time to live: of those nothing else is read.
  SELECT a.run_id, CASE WHEN l.run_id IS NULL THEN f.finished_at END AS ended_at
  FROM rowlock.run_ttl a
  LEFT JOIN LATERAL (SELECT x.run_id FROM rowlock.run_live x WHERE x.run_id = a.run_id LIMIT 1) l ON true
  LEFT JOIN LATERAL (SELECT x.finished_at FROM rowlock.run_final x
                     WHERE x.run_id = a.run_id ORDER BY x.attempt DESC LIMIT 1) f ON true
  WHERE a.run_id = ANY($1::bigint[])
) e
WHERE t.run_id = e.run_id;

-- name: expired_objects
-- Find up to $3 custom resources of cluster $1 and namespaces $2 (null for all) whose time is over, oldest first, but for $4.
-- A run that goes on again, or whose last end is not shown yet, still has the time of an earlier end.
SELECT o.namespace, o.name, o.uid
FROM rowlock.run_ttl t JOIN rowlock.run_object o ON o.run_id = t.run_id
WHERE t.delete_at <= rowlock.now() AND o.cluster = $1::text
  AND ($2::text[] IS NULL OR o.namespace = ANY($2::text[]))
  AND o.uid <> ALL($4::text[])
  AND (SELECT true FROM rowlock.run_live l WHERE l.run_id = t.run_id LIMIT 1) IS NULL
  AND NOT EXISTS (SELECT FROM rowlock.run_change c WHERE c.run_id = t.run_id)
ORDER BY t.delete_at LIMIT $3::int;

-- name: collect_ttl
-- Forget times to live whose custom resources are gone: noted while these were just going.
DELETE FROM rowlock.run_ttl t
WHERE NOT EXISTS (SELECT FROM rowlock.run_object o WHERE o.run_id = t.run_id);

-- name: live_objects
-- Find which of the custom resources $2 of cluster $1 have a run that has not ended.
SELECT o.uid FROM rowlock.run_object o
WHERE o.cluster = $1::text AND o.uid = ANY($2::text[])
  AND (SELECT true FROM rowlock.run_live l WHERE l.run_id = o.run_id LIMIT 1);
