-- How history goes. Only the owner of the schema may: partitions are detached and dropped.
-- Definitions cannot have parameters, so some statements here answer with the text of the next one.

-- name: gc_turn
-- Begin a round unless another process has one; it is held for as long as this transaction stays open.
SELECT pg_try_advisory_xact_lock(hashtext('rowlock.gc')) AS mine;

-- name: gc_hold
-- Let this transaction stay open and idle. It must be the last statement in it, sent by `execute`: the portal
-- that `fetch` leaves keeps a snapshot, which a detach would wait for.
SET LOCAL idle_in_transaction_session_timeout = 0;

-- name: gc_owner
-- Say who owns the schema, and whether we may act as that role.
SELECT pg_get_userbyid(n.nspowner)::text AS owner, pg_has_role(n.nspowner, 'USAGE') AS allowed
FROM pg_catalog.pg_namespace n WHERE n.nspname = 'rowlock';

-- name: history_days
-- Read the days with history older than $1 days that nobody has decided about, the oldest first.
SELECT DISTINCT t.day FROM rowlock.history_table t
WHERE t.attached AND t.day < (rowlock.now() AT TIME ZONE 'UTC')::date - $1::int
  AND NOT EXISTS (SELECT FROM rowlock.expired_day e WHERE e.day = t.day)
ORDER BY t.day;

-- name: expire_day
-- Decide that day $1 goes, unless a run in it is needed or ended less than $2 days ago; answer why it stays.
SELECT rowlock.expire_day($1::date, $2::int * interval '1 day') AS why;

-- name: next_removal
-- Answer with the next statement towards the end of an expired day. A half-done detach goes first, for a
-- table has room for one only; the ends of runs go last, for they say that the others were not needed.
SELECT t.day, t.name,
       CASE WHEN t.pending THEN 'finalize' WHEN t.attached THEN 'detach' ELSE 'drop' END AS act,
       CASE WHEN t.pending THEN format('ALTER TABLE rowlock.%I DETACH PARTITION rowlock.%I FINALIZE', t.parent, t.name)
            WHEN t.attached THEN format('ALTER TABLE rowlock.%I DETACH PARTITION rowlock.%I CONCURRENTLY', t.parent, t.name)
            ELSE format('DROP TABLE rowlock.%I', t.name) END AS statement
FROM rowlock.history_table t JOIN rowlock.expired_day e ON e.day = t.day
ORDER BY t.pending DESC, t.day, t.attached, array_position('{run_event,run,run_final}'::text[], t.parent) LIMIT 1;

-- name: forget_removed_days
-- Forget the expired days of which nothing is left.
DELETE FROM rowlock.expired_day e
WHERE NOT EXISTS (SELECT FROM rowlock.history_table t WHERE t.day = e.day)
RETURNING e.day;

-- name: history_floor
-- Read the run id below which history may be gone.
SELECT f.run_id FROM rowlock.history_floor f;

-- name: partitions_ahead
-- Read for how many whole days after today every table of history has its partition.
SELECT count(*) AS days FROM (
  SELECT t.day, row_number() OVER (ORDER BY t.day) AS nth
  FROM rowlock.history_table t
  WHERE t.attached AND NOT t.pending AND t.day > (rowlock.now() AT TIME ZONE 'UTC')::date
  GROUP BY t.day HAVING count(*) = 3
) d WHERE d.day = (rowlock.now() AT TIME ZONE 'UTC')::date + d.nth::int;

-- name: young_partitions
-- Answer with statements that tell the planner of partitions of yesterday and today which grew a lot since it last looked.
SELECT t.name, format('ANALYZE rowlock.%I', t.name) AS statement
FROM rowlock.history_table t JOIN pg_catalog.pg_stat_user_tables s ON s.relid = t.oid
WHERE t.attached AND t.day BETWEEN (rowlock.now() AT TIME ZONE 'UTC')::date - 1 AND (rowlock.now() AT TIME ZONE 'UTC')::date
  AND s.n_mod_since_analyze > 1000 + s.n_live_tup / 10
ORDER BY t.name;

-- Orphans, each a page after a cursor. Rows of runs below the floor whose history is gone are nobody's any more.

-- name: gc_run_dedup
-- Delete the idempotency keys of runs that are gone, among the $3 keys after ($1, $2).
WITH page AS MATERIALIZED (
  SELECT d.agent_id, d.idem_key, d.run_id FROM rowlock.run_dedup d
  WHERE (d.agent_id, d.idem_key) > ($1::int, $2::text) ORDER BY d.agent_id, d.idem_key LIMIT $3::int
), gone AS (
  DELETE FROM rowlock.run_dedup d USING page p
  WHERE d.agent_id = p.agent_id AND d.idem_key = p.idem_key
    AND p.run_id < (SELECT f.run_id FROM rowlock.history_floor f)
    AND NOT EXISTS (SELECT FROM rowlock.run r WHERE r.run_id = p.run_id)
  RETURNING d.run_id
)
SELECT p.agent_id, p.idem_key, (SELECT count(*) FROM gone) AS deleted
FROM page p ORDER BY p.agent_id DESC, p.idem_key DESC LIMIT 1;

-- name: gc_approval
-- Delete the questions of runs that are gone, among $2 after run $1.
WITH page AS MATERIALIZED (
  SELECT a.run_id FROM rowlock.approval a
  WHERE a.run_id > $1::bigint AND a.run_id < (SELECT f.run_id FROM rowlock.history_floor f)
  ORDER BY a.run_id LIMIT $2::int
), gone AS (
  DELETE FROM rowlock.approval a
  WHERE a.run_id = ANY(ARRAY(SELECT p.run_id FROM page p))
    AND NOT EXISTS (SELECT FROM rowlock.run r WHERE r.run_id = a.run_id)
  RETURNING a.run_id
)
SELECT max(p.run_id) AS run_id, (SELECT count(*) FROM gone) AS deleted FROM page p HAVING count(*) > 0;

-- name: gc_run_attempt
-- Delete the wishes for another attempt of runs that are gone, among $2 after run $1.
WITH page AS MATERIALIZED (
  SELECT a.run_id FROM rowlock.run_attempt a
  WHERE a.run_id > $1::bigint AND a.run_id < (SELECT f.run_id FROM rowlock.history_floor f)
  ORDER BY a.run_id LIMIT $2::int
), gone AS (
  DELETE FROM rowlock.run_attempt a
  WHERE a.run_id = ANY(ARRAY(SELECT p.run_id FROM page p))
    AND NOT EXISTS (SELECT FROM rowlock.run r WHERE r.run_id = a.run_id)
  RETURNING a.run_id
)
SELECT max(p.run_id) AS run_id, (SELECT count(*) FROM gone) AS deleted FROM page p HAVING count(*) > 0;

-- name: gc_wish
-- Delete the wishes for runs that are gone, among $2 after run $1.
WITH page AS MATERIALIZED (
  SELECT w.run_id FROM rowlock.wish w
  WHERE w.run_id > $1::bigint AND w.run_id < (SELECT f.run_id FROM rowlock.history_floor f)
  ORDER BY w.run_id LIMIT $2::int
), gone AS (
  DELETE FROM rowlock.wish w
  WHERE w.run_id = ANY(ARRAY(SELECT p.run_id FROM page p))
    AND NOT EXISTS (SELECT FROM rowlock.run r WHERE r.run_id = w.run_id)
  RETURNING w.run_id
)
SELECT max(p.run_id) AS run_id, (SELECT count(*) FROM gone) AS deleted FROM page p HAVING count(*) > 0;

-- name: gc_run_start
-- Delete the starts older than a day, which no window counts any more, among the $2 after run $1.
WITH page AS MATERIALIZED (
  SELECT s.run_id FROM rowlock.run_start s WHERE s.run_id > $1::bigint ORDER BY s.run_id LIMIT $2::int
), gone AS (
  DELETE FROM rowlock.run_start s
  WHERE s.run_id = ANY(ARRAY(SELECT p.run_id FROM page p)) AND s.started_at < rowlock.now() - interval '1 day'
  RETURNING s.run_id
)
SELECT max(p.run_id) AS run_id, (SELECT count(*) FROM gone) AS deleted FROM page p HAVING count(*) > 0;

-- name: gc_worker
-- Delete workers fenced more than $3 days ago that hold nothing, and their beats, among the $2 after worker $1.
WITH page AS MATERIALIZED (
  SELECT w.worker_id FROM rowlock.worker w WHERE w.worker_id > $1::bigint ORDER BY w.worker_id LIMIT $2::int
), gone AS (
  DELETE FROM rowlock.worker w
  WHERE w.worker_id = ANY(ARRAY(SELECT p.worker_id FROM page p))
    AND w.fenced_at < rowlock.now() - $3::int * interval '1 day'
    AND NOT EXISTS (SELECT FROM rowlock.run_lease l WHERE l.worker_id = w.worker_id)
  RETURNING w.worker_id
), beats AS (
  DELETE FROM rowlock.worker_beat b WHERE b.worker_id = ANY(ARRAY(SELECT g.worker_id FROM gone g))
)
SELECT max(p.worker_id) AS worker_id, (SELECT count(*) FROM gone) AS deleted FROM page p HAVING count(*) > 0;
