-- What `rowlock doctor` asks. Each statement is one check and changes nothing; what its numbers mean is in doctor.py.

-- name: doctor_server
-- Read which server this is and whether it takes writes.
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int AS number,
       pg_is_in_recovery() AS standby, current_setting('default_transaction_read_only')::boolean AS read_only;

-- name: doctor_stuck_leases
-- Read how many leases nobody renews, of those how many for more than two lease times, and some of the runs.
SELECT count(*) AS stuck,
       count(*) FILTER (WHERE s.silent_for IS NULL OR s.silent_for > coalesce(w.lease_seconds, 0) * 2 * interval '1 second')
         AS abandoned,
       (array_agg(s.run_id::text || ' (' || s.problem || ')' ORDER BY s.run_id))[1:3] AS some
FROM rowlock.stuck_leases s LEFT JOIN rowlock.worker w ON w.worker_id = s.worker_id;

-- name: doctor_takeovers
-- Read to how many live runs more than one loss is put down, or may be, the most losses that count, and some of the runs.
SELECT count(*) AS repeated, coalesce(max(t.blamed), 0) AS most,
       (array_agg(t.run_id::text || ' (' || t.blamed || ' of ' || t.max_takeovers || ')'
                  ORDER BY t.blamed DESC, t.suspected DESC, t.run_id))[1:3] AS some
FROM rowlock.repeat_takeovers t;

-- name: doctor_quarantine
-- Read how many runs are to go on alone, how many of them do, for how long the oldest waits, and some that wait.
SELECT count(*) AS quarantined, count(*) FILTER (WHERE l.place = 'lease') AS running,
       coalesce(extract(epoch FROM rowlock.now() - min(l.ready_at) FILTER (WHERE l.place = 'ready'))::float8, 0) AS oldest,
       (array_agg(l.run_id::text ORDER BY l.ready_at) FILTER (WHERE l.place = 'ready'))[1:3] AS some
FROM rowlock.run_live l WHERE l.quarantined;

-- name: doctor_workers
-- Read how many workers are known, how many are silent for longer than their lease, and some of them.
SELECT count(*) AS known, count(*) FILTER (WHERE w.lease_until < rowlock.now()) AS silent,
       (array_agg(w.name ORDER BY w.worker_id) FILTER (WHERE w.lease_until < rowlock.now()))[1:3] AS some
FROM rowlock.worker_live w;

-- name: doctor_transactions
-- Read the oldest transaction of others here, the longest that one stands idle, and who they are, in seconds.
-- Sessions of other roles show only to members of pg_read_all_stats.
WITH session AS MATERIALIZED (
  SELECT a.pid, coalesce(a.application_name, '') AS name,
         extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS open_for,
         CASE WHEN a.state LIKE 'idle in transaction%'
              THEN extract(epoch FROM clock_timestamp() - a.state_change)::float8 END AS idle_for
  FROM pg_catalog.pg_stat_activity a
  WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend'
    AND a.application_name <> 'rowlock gc turn'
)
SELECT coalesce(max(s.open_for), 0) AS oldest, coalesce(max(s.idle_for), 0) AS idle,
       (array_agg(s.pid || ' (' || s.name || ')' ORDER BY s.open_for DESC NULLS LAST) FILTER (WHERE s.open_for > 0))[1:3] AS some,
       pg_has_role('pg_read_all_stats', 'USAGE') AS sees_all
FROM session s;

-- name: doctor_horizon
-- Read what holds back the removal of dead rows, in transactions, and how far this database is from a wraparound.
SELECT h.holder, h.age::bigint AS age, age(d.datfrozenxid)::bigint AS wraparound
FROM pg_catalog.pg_database d
LEFT JOIN LATERAL (
  SELECT 'session ' || a.pid AS holder, age(a.backend_xmin) AS age FROM pg_catalog.pg_stat_activity a
  WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid()
  UNION ALL
  SELECT 'replication slot ' || s.slot_name, greatest(age(s.xmin), age(s.catalog_xmin))
  FROM pg_catalog.pg_replication_slots s WHERE s.xmin IS NOT NULL OR s.catalog_xmin IS NOT NULL
  UNION ALL
  SELECT 'prepared transaction ' || p.gid, age(p.transaction) FROM pg_catalog.pg_prepared_xacts p
  ORDER BY 2 DESC LIMIT 1
) h ON true
WHERE d.datname = current_database();

-- name: doctor_bloat
-- Read the hot table with the most dead rows beyond its live ones.
SELECT s.relname::text AS name, s.n_dead_tup AS dead, s.n_live_tup AS live,
       pg_total_relation_size(s.relid) AS bytes, s.last_autovacuum AS vacuumed
FROM pg_catalog.pg_stat_user_tables s
WHERE s.schemaname = 'rowlock' AND s.relname IN ('run_ready', 'run_backlog', 'run_timer', 'run_parked', 'run_lease',
                                                 'run_change', 'wish', 'worker', 'worker_beat')
ORDER BY s.n_dead_tup - s.n_live_tup DESC LIMIT 1;

-- name: doctor_retention
-- Read how many days are decided to go and still there, since when, and whether a detach is half done.
SELECT count(DISTINCT e.day) AS days, coalesce(extract(epoch FROM rowlock.now() - min(e.decided_at))::float8, 0) AS oldest,
       coalesce(bool_or(t.pending), false) AS half_done
FROM rowlock.expired_day e JOIN rowlock.history_table t ON t.day = e.day;

-- name: doctor_changes
-- Read how many changes no mirror has shown, and the age of the oldest in seconds.
SELECT count(*) AS unshown, coalesce(extract(epoch FROM rowlock.now() - min(c.at))::float8, 0) AS oldest
FROM rowlock.run_change c;

-- name: doctor_queue
-- Read for pools with claimable runs and no worker how many runs wait, the age of the oldest, and the pools.
SELECT coalesce(sum(p.claimable), 0)::bigint AS waiting,
       coalesce(extract(epoch FROM rowlock.now() - min(p.oldest_ready_at))::float8, 0) AS oldest,
       (array_agg(concat_ws('/', nullif(p.namespace, ''), p.name) ORDER BY p.oldest_ready_at))[1:3] AS some
FROM rowlock.pool_demand p WHERE p.claimable > 0 AND p.workers = 0;

-- name: doctor_wishes
-- Read how many wishes are not carried out, the age of the oldest, and some of their runs.
SELECT count(*) AS open, coalesce(extract(epoch FROM rowlock.now() - min(w.asked_at))::float8, 0) AS oldest,
       (array_agg(w.run_id::text ORDER BY w.asked_at))[1:3] AS some
FROM rowlock.wish w WHERE w.kind = 1 /* CANCEL */;

-- name: doctor_connections
-- Read how many connections the server has, how many it may have, and the same for this database and this role.
SELECT (SELECT count(*) FROM pg_catalog.pg_stat_activity a WHERE a.backend_type = 'client backend') AS used,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int AS most,
       (SELECT count(*) FROM pg_catalog.pg_stat_activity a WHERE a.datname = current_database()
          AND a.backend_type = 'client backend') AS used_here,
       d.datconnlimit AS most_here,
       (SELECT count(*) FROM pg_catalog.pg_stat_activity a WHERE a.usename = session_user
          AND a.backend_type = 'client backend') AS used_by_role,
       r.rolconnlimit AS most_by_role
FROM pg_catalog.pg_database d, pg_catalog.pg_roles r
WHERE d.datname = current_database() AND r.rolname = session_user;

-- name: doctor_settings
-- Read the settings on which durability and upkeep rest; times in milliseconds, 0 for none.
SELECT current_setting('fsync')::boolean AS fsync, current_setting('full_page_writes')::boolean AS full_page_writes,
       current_setting('synchronous_commit') AS synchronous_commit, current_setting('autovacuum')::boolean AS autovacuum,
       (SELECT s.setting::int FROM pg_catalog.pg_settings s WHERE s.name = 'statement_timeout') AS statement_timeout,
       (SELECT s.setting::int FROM pg_catalog.pg_settings s WHERE s.name = 'lock_timeout') AS lock_timeout,
       (SELECT s.setting::int FROM pg_catalog.pg_settings s WHERE s.name = 'idle_in_transaction_session_timeout')
         AS idle_timeout;
