-- How history goes: a day at a time, once nobody needs anything of it.

-- Days whose end is decided. `rowlock gc` detaches and drops their partitions, then deletes the row;
-- one that was killed in between leaves the row, and the next one goes on.
CREATE TABLE rowlock.expired_day (
  day        date PRIMARY KEY,
  decided_at timestamptz NOT NULL DEFAULT rowlock.now()
);

-- The tables of each day of history. `attached` is false once a table is detached, `pending` while that is half done.
CREATE VIEW rowlock.history_table AS
SELECT to_date(right(c.relname, 8), 'YYYYMMDD') AS day, c.oid, c.relname::text AS name,
       left(c.relname, -9)::text AS parent, i.inhrelid IS NOT NULL AS attached,
       coalesce(i.inhdetachpending, false) AS pending
FROM pg_catalog.pg_class c
LEFT JOIN pg_catalog.pg_inherits i ON i.inhrelid = c.oid
WHERE c.relnamespace = 'rowlock'::regnamespace AND c.relkind = 'r'
  AND c.relname ~ '^(run|run_event|run_final)_[0-9]{8}$';

-- Decide that a day goes, and raise the floor above it; or say why it stays.
-- Whoever starts a run of that day again holds the floor FOR SHARE: it comes first and is seen here as a live run,
-- or it comes later and finds the floor raised. That needs a snapshot newer than the lock, so READ COMMITTED.
CREATE FUNCTION rowlock.expire_day(day date, keep interval) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  low bigint := rowlock.id_floor(day::timestamp AT TIME ZONE 'UTC');
  high bigint := rowlock.id_floor((day + 1)::timestamp AT TIME ZONE 'UTC');
  past timestamptz := rowlock.now() - keep;
  why text;
BEGIN
  PERFORM FROM rowlock.history_floor FOR UPDATE;
  -- One statement: a run that ends meanwhile is seen in the one place or in the other.
  SELECT CASE
    WHEN high > rowlock.id_floor(past) THEN 'is younger than the retention'
    WHEN EXISTS (SELECT FROM rowlock.run_ready x WHERE x.run_id >= low AND x.run_id < high)
      OR EXISTS (SELECT FROM rowlock.run_backlog x WHERE x.run_id >= low AND x.run_id < high)
      OR EXISTS (SELECT FROM rowlock.run_timer x WHERE x.run_id >= low AND x.run_id < high)
      OR EXISTS (SELECT FROM rowlock.run_parked x WHERE x.run_id >= low AND x.run_id < high)
      OR EXISTS (SELECT FROM rowlock.run_lease x WHERE x.run_id >= low AND x.run_id < high)
      THEN 'holds a run that has not ended'
    WHEN EXISTS (SELECT FROM rowlock.run_change x WHERE x.run_id >= low AND x.run_id < high)
      THEN 'holds a run with a change that no mirror has shown'
    WHEN EXISTS (SELECT FROM rowlock.run_object x WHERE x.run_id >= low AND x.run_id < high)
      THEN 'holds a run whose custom resource is still there'
    WHEN EXISTS (SELECT FROM rowlock.run_final x WHERE x.run_id >= low AND x.run_id < high AND x.finished_at >= past)
      THEN 'holds a run that ended within the retention'
    WHEN EXISTS (SELECT FROM rowlock.run r WHERE r.run_id >= low AND r.run_id < high AND NOT EXISTS (
                   SELECT FROM rowlock.run_final x WHERE x.run_id = r.run_id AND x.run_id >= low AND x.run_id < high))
      THEN 'holds a run that stands nowhere and has no final: see rowlock.violations'
    END INTO why;
  IF why IS NOT NULL THEN RETURN why; END IF;
  UPDATE rowlock.history_floor SET run_id = high WHERE run_id < high;
  INSERT INTO rowlock.expired_day VALUES (day) ON CONFLICT DO NOTHING;
  RETURN NULL;
END $$;

REVOKE EXECUTE ON FUNCTION rowlock.expire_day(date, interval) FROM PUBLIC;
SELECT rowlock.grant_roles();
