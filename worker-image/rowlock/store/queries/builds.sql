-- Which builds of workers have runs that only they may go on with: 0011_pre_builds.sql says which those are.

-- name: build_lives
-- Say whether a worker of build $2 of pool $1 is there, or was in the last minute.
SELECT rowlock.build_lives($1::int, $2::text) AS lives;

-- name: unbind
-- Let any build go on with up to $1 runs whose own is gone. Pinned ones wait for theirs.
WITH stray AS (
  SELECT q.run_id FROM rowlock.run_ready q
  -- All pools by name: so that it goes by the index, whatever the planner guesses of the table.
  WHERE q.pool_id = ANY(ARRAY(SELECT p.pool_id FROM rowlock.pool p)) AND q.build IS NOT NULL AND NOT q.pinned
    AND NOT rowlock.build_lives(q.pool_id, q.build)
  LIMIT $1::int FOR UPDATE SKIP LOCKED
)
UPDATE rowlock.run_ready q SET build = NULL
WHERE q.run_id = ANY(ARRAY(SELECT run_id FROM stray))
RETURNING q.run_id;

-- name: bound_runs
-- Count by pool and build the runs that only that build may go on with: all of them, the pinned ones, and of all
-- those that can be claimed and those that are held.
SELECT b.pool_id, b.build, count(*) AS runs, count(*) FILTER (WHERE b.pinned) AS pinned,
       count(*) FILTER (WHERE b.place = 'ready') AS claimable, count(*) FILTER (WHERE b.place = 'lease') AS running
FROM (SELECT ARRAY(SELECT p.pool_id FROM rowlock.pool p) AS ids) every, LATERAL (
  SELECT 'ready' AS place, pool_id, build, pinned FROM rowlock.run_ready WHERE pool_id = ANY(every.ids) AND build IS NOT NULL
  UNION ALL SELECT 'lease', pool_id, build, pinned FROM rowlock.run_lease WHERE pool_id = ANY(every.ids) AND build IS NOT NULL
  UNION ALL SELECT 'backlog', pool_id, build, pinned FROM rowlock.run_backlog WHERE pool_id = ANY(every.ids) AND build IS NOT NULL
  UNION ALL SELECT 'timer', pool_id, build, pinned FROM rowlock.run_timer WHERE pool_id = ANY(every.ids) AND build IS NOT NULL
  UNION ALL SELECT 'parked', pool_id, build, pinned FROM rowlock.run_parked WHERE pool_id = ANY(every.ids) AND build IS NOT NULL
) b
GROUP BY b.pool_id, b.build;
