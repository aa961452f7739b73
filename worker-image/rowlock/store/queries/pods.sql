-- Pods of workers, as the operator of one cluster judges them.

-- name: pod_workers
-- Read the pods of cluster $1 and namespaces $2 (null for all) that have workers which are not fenced.
SELECT w.pod_uid, p.namespace, min(split_part(w.name, '/', 1)) AS name, bool_or(w.node_lost) AS node_lost
FROM rowlock.worker w JOIN rowlock.pool p ON p.pool_id = w.pool_id
WHERE w.fenced_at IS NULL AND w.pod_uid IS NOT NULL AND w.cluster = $1::text
  AND ($2::text[] IS NULL OR p.namespace = ANY($2::text[]))
GROUP BY w.pod_uid, p.namespace;

-- name: mark_node_lost
-- Note that the nodes of pods $1 are lost ($2), or not. A worker whose row is locked is writing: the next round marks it.
WITH marked AS (
  SELECT worker_id FROM rowlock.worker
  WHERE fenced_at IS NULL AND pod_uid = ANY($1::text[]) AND node_lost <> $2::boolean
  ORDER BY worker_id FOR UPDATE SKIP LOCKED
)
UPDATE rowlock.worker w SET node_lost = $2::boolean FROM marked m WHERE w.worker_id = m.worker_id;
