-- Which build of the workers goes on with a run.
--
-- Mostly any: the claim takes what has no build. Two kinds of runs have one:
-- * `pinned`, because their Agent says so: they get the build of the worker that takes them first, and keep it.
-- * others whose code did not match what their history holds: they get the build that wrote it, as long as a worker
--   of it lives. `unbind` takes it away again, and the next worker of another build ends the run.

CREATE INDEX worker_build ON rowlock.worker (pool_id, build, fenced_at);
CREATE INDEX run_lease_build ON rowlock.run_lease (pool_id, build) WHERE build IS NOT NULL;
CREATE INDEX run_backlog_build ON rowlock.run_backlog (pool_id, build) WHERE build IS NOT NULL;
CREATE INDEX run_timer_build ON rowlock.run_timer (pool_id, build) WHERE build IS NOT NULL;
CREATE INDEX run_parked_build ON rowlock.run_parked (pool_id, build) WHERE build IS NOT NULL;

-- Say whether a worker of this build may take the run: one lives, or was there in the last minute
-- and may be about to start again.
CREATE FUNCTION rowlock.build_lives(pool int, wanted text) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT (SELECT true FROM rowlock.worker w
          WHERE w.pool_id = pool AND w.build = wanted AND w.fenced_at IS NULL LIMIT 1) IS TRUE
      OR (SELECT true FROM rowlock.worker w
          WHERE w.pool_id = pool AND w.build = wanted
            AND w.fenced_at > (SELECT rowlock.now()) - interval '1 minute' LIMIT 1) IS TRUE
$$;

SELECT rowlock.grant_roles();
