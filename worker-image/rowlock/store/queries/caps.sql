-- Caps and promotion: 0005_pre_caps.sql says how they work. Numbers of kinds are those of states.py.
-- `coalesce(key, '')` stands for the key: runs without one are a line of their own, which no cap for keys concerns.
-- '-infinity' is the place of runs that ran before: they are the first of their key.

-- name: capped_agents
-- Find the agents with any cap.
SELECT agent_id FROM rowlock.agent WHERE capped;

-- name: agents_waiting
-- Find the agents with runs in the backlog that may start one, as far as max_running goes, stepping from agent to agent.
-- The order lets the count go by index and end at the cap, where the planner expects one agent to have most runs.
WITH RECURSIVE waiting AS (
  (SELECT agent_id FROM rowlock.run_backlog ORDER BY agent_id LIMIT 1)
  UNION ALL
  SELECT (SELECT b.agent_id FROM rowlock.run_backlog b WHERE b.agent_id > w.agent_id ORDER BY b.agent_id LIMIT 1)
  FROM waiting w WHERE w.agent_id IS NOT NULL
)
SELECT w.agent_id FROM waiting w LEFT JOIN rowlock.agent a USING (agent_id)
WHERE w.agent_id IS NOT NULL
  AND (a.max_running IS NULL
       OR a.max_running > (SELECT count(*) FROM (SELECT FROM rowlock.run_lease x WHERE x.agent_id = w.agent_id
                                                ORDER BY x.agent_id, x.key LIMIT a.max_running) l)
                        + (SELECT count(*) FROM (SELECT FROM rowlock.run_ready x WHERE x.agent_id = w.agent_id
                                                ORDER BY x.agent_id, x.key LIMIT a.max_running) q));

-- name: take_turn
-- Begin a promotion of agent $1, waiting for another one only if $2, and read its caps.
SELECT max_running, max_running_per_key, starts_per_minute_per_key FROM rowlock.take_turn($1::int, $2::boolean);

-- name: occupied
-- Count by key what holds a slot of agent $1 and, if $2, the starts of the last 60 s and those still to come.
SELECT x.key, sum(x.held)::int AS held, sum(x.starts)::int AS starts
FROM (
  SELECT coalesce(l.key, '') AS key, count(*) AS held, 0 AS starts
  FROM rowlock.run_lease l WHERE l.agent_id = $1::int GROUP BY l.key
  UNION ALL
  SELECT coalesce(q.key, ''), count(*), 0 FROM rowlock.run_ready q WHERE q.agent_id = $1::int GROUP BY q.key
  UNION ALL
  SELECT s.key, 0, count(*) FROM rowlock.run_start s
  WHERE $2::boolean AND s.agent_id = $1::int
    AND (s.started_at IS NULL OR s.started_at > rowlock.now() - interval '60 seconds')
  GROUP BY s.key
) x
GROUP BY x.key;

-- name: settle_starts
-- Find out when promoted runs of agent $1 started, and forget the starts that are older than 60 s.
WITH old AS (
  DELETE FROM rowlock.run_start s
  WHERE s.agent_id = $1::int AND s.started_at <= rowlock.now() - interval '60 seconds'
), open AS MATERIALIZED (
  SELECT s.run_id, l.place, coalesce(l.started_at, f.started_at) AS started_at
  FROM rowlock.run_start s
  LEFT JOIN LATERAL (SELECT x.place, x.started_at FROM rowlock.run_live x WHERE x.run_id = s.run_id LIMIT 1) l ON true
  LEFT JOIN LATERAL (SELECT x.started_at FROM rowlock.run_final x WHERE x.run_id = s.run_id LIMIT 1) f
    ON l.place IS NULL
  WHERE s.agent_id = $1::int AND s.started_at IS NULL
), never AS (
  -- It ended, or went back, before any worker took it.
  DELETE FROM rowlock.run_start s
  WHERE s.run_id = ANY(ARRAY(SELECT o.run_id FROM open o WHERE o.started_at IS NULL AND o.place IS DISTINCT FROM 'ready'))
)
UPDATE rowlock.run_start s SET started_at = o.started_at
FROM open o WHERE s.run_id = o.run_id AND o.started_at IS NOT NULL;

-- name: backlog_front
-- Read the first $2 runs of the backlog of agent $1, over all keys.
SELECT b.run_id, coalesce(b.key, '') AS key, b.started_at IS NULL AS fresh
FROM rowlock.run_backlog b WHERE b.agent_id = $1::int
ORDER BY b.priority DESC, b.vft, b.run_id LIMIT $2::int;

-- name: backlog_heads
-- Read which $2 runs of the backlog of agent $1 are next, stepping from key to key.
-- Keys $3 have room for $4 runs, $5 of them not started before, all others for $6 and $7.
WITH RECURSIVE line AS (
  (SELECT coalesce(b.key, '') AS key FROM rowlock.run_backlog b
   WHERE b.agent_id = $1::int ORDER BY coalesce(b.key, '') LIMIT 1)
  UNION ALL
  SELECT (SELECT coalesce(b.key, '') FROM rowlock.run_backlog b
          WHERE b.agent_id = $1::int AND coalesce(b.key, '') > l.key ORDER BY coalesce(b.key, '') LIMIT 1)
  FROM line l WHERE l.key IS NOT NULL
), open AS (
  SELECT l.key, least($2::int, coalesce(u.room, $6::int)) AS room, least($2::int, coalesce(u.fresh, $7::int)) AS fresh
  FROM line l LEFT JOIN unnest($3::text[], $4::int[], $5::int[]) AS u(key, room, fresh) ON u.key = l.key
  WHERE l.key IS NOT NULL AND coalesce(u.room, $6::int) > 0
)
SELECT h.run_id
FROM open o
CROSS JOIN LATERAL (
  SELECT x.* FROM (
    (SELECT b.run_id, b.priority, b.vft FROM rowlock.run_backlog b
     WHERE b.agent_id = $1::int AND coalesce(b.key, '') = o.key AND b.started_at IS NULL
     ORDER BY b.priority DESC, b.vft, b.run_id LIMIT o.fresh)
    UNION ALL
    (SELECT b.run_id, b.priority, b.vft FROM rowlock.run_backlog b
     WHERE b.agent_id = $1::int AND coalesce(b.key, '') = o.key AND b.started_at IS NOT NULL
     ORDER BY b.priority DESC, b.vft, b.run_id LIMIT o.room)
  ) x ORDER BY x.priority DESC, x.vft, x.run_id LIMIT o.room
) h
ORDER BY h.priority DESC, h.vft, h.run_id LIMIT $2::int;

-- name: promote
-- Move runs $2 of agent $1 from its backlog to the end of their lines in the shared queue; $3: their starts count.
WITH moved AS (
  DELETE FROM rowlock.run_backlog b WHERE b.run_id = ANY($2::bigint[]) AND b.agent_id = $1::int
  RETURNING b.*, CASE WHEN b.linked THEN nextval('rowlock.revision_seq') ELSE 0 END AS next_revision
), numbered AS (
  SELECT m.*, 1 / a.weight AS step,
         row_number() OVER (PARTITION BY m.key, m.priority, m.pool_id, m.started_at IS NULL ORDER BY m.vft, m.run_id) AS nth
  FROM moved m JOIN rowlock.agent a USING (agent_id)
), lined_up AS MATERIALIZED (
  SELECT n.*, CASE WHEN n.started_at IS NOT NULL THEN '-infinity' ELSE
           max(CASE WHEN n.nth = 1 AND n.started_at IS NULL
                    THEN rowlock.ready_line(n.pool_id, n.priority, n.agent_id, n.key) END)
             OVER (PARTITION BY n.key, n.priority, n.pool_id) + n.nth * n.step END AS place
  FROM numbered n
), queued AS (
  INSERT INTO rowlock.run_ready (run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
                                 max_takeovers, blamed, suspected, quarantined, build, pinned,
                                 active_ms, queue_deadline, linked, revision, carry, ready_at, started_at)
  SELECT run_id, pool_id, agent_id, revision_id, key, priority, place, epoch, attempt, takeovers,
         max_takeovers, blamed, suspected, quarantined, build, pinned,
         active_ms, queue_deadline, linked, next_revision, carry, rowlock.now(), started_at
  FROM lined_up
), reserved AS (
  INSERT INTO rowlock.run_start (run_id, agent_id, key)
  SELECT run_id, agent_id, key FROM moved WHERE $3::boolean AND key IS NOT NULL AND started_at IS NULL
  ON CONFLICT (run_id) DO UPDATE SET started_at = NULL
), turned AS (
  INSERT INTO rowlock.agent_turn AS t (agent_id, priority, vft)
  SELECT $1::int, priority, max(vft) FROM moved WHERE started_at IS NULL GROUP BY priority
  ON CONFLICT (agent_id, priority) DO UPDATE SET vft = greatest(t.vft, excluded.vft)
), changed AS (
  INSERT INTO rowlock.run_change (seq, run_id, kind, epoch)
  SELECT next_revision, run_id, 13 /* PROMOTED */, epoch FROM moved WHERE linked
)
SELECT count(*) AS promoted FROM moved;

-- name: hold_still
-- Wait until nothing of agent $1 is on its way into a queue, and keep it so.
SELECT rowlock.hold_still($1::int);

-- name: caps
-- Read the caps of agent $1.
SELECT max_running, max_running_per_key, starts_per_minute_per_key FROM rowlock.agent WHERE agent_id = $1::int;

-- name: write_caps
-- Give agent $1 these caps.
UPDATE rowlock.agent
SET max_running = $2::int, max_running_per_key = $3::int, starts_per_minute_per_key = $4::int
WHERE agent_id = $1::int;

-- name: hold_back
-- Take runs of agent $1 that no worker has taken yet back into its backlog: all ($2), or those that have a key.
-- They stand before those of their key that wait there; where none does, all keys begin side by side.
WITH moved AS (
  DELETE FROM rowlock.run_ready q WHERE q.agent_id = $1::int AND ($2::boolean OR q.key IS NOT NULL)
  RETURNING q.*, CASE WHEN q.linked THEN nextval('rowlock.revision_seq') ELSE 0 END AS next_revision
), line AS MATERIALIZED (
  SELECT m.key, m.priority, count(*) AS length,
         (SELECT b.vft FROM rowlock.run_backlog b
          WHERE b.agent_id = $1::int AND coalesce(b.key, '') = coalesce(m.key, '') AND b.priority = m.priority
            AND b.vft > '-infinity'
          ORDER BY b.vft LIMIT 1) AS first,
         (SELECT t.vft FROM rowlock.agent_turn t WHERE t.agent_id = $1::int AND t.priority = m.priority) AS turn
  FROM moved m WHERE m.started_at IS NULL GROUP BY m.key, m.priority
), numbered AS (
  SELECT m.*, row_number() OVER (PARTITION BY m.key, m.priority, m.started_at IS NULL ORDER BY m.vft, m.run_id) AS nth
  FROM moved m
), lined_up AS (
  SELECT n.*, CASE WHEN n.started_at IS NOT NULL THEN '-infinity'
                   ELSE coalesce(l.first - l.length - 1, l.turn, 0) + n.nth END AS place
  FROM numbered n
  LEFT JOIN line l ON coalesce(l.key, '') = coalesce(n.key, '') AND l.priority = n.priority
), held_back AS (
  INSERT INTO rowlock.run_backlog (run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
                                   max_takeovers, blamed, suspected, quarantined, build, pinned,
                                   active_ms, queue_deadline, linked, revision, carry, ready_at, started_at)
  SELECT run_id, pool_id, agent_id, revision_id, key, priority, place, epoch, attempt, takeovers,
         max_takeovers, blamed, suspected, quarantined, build, pinned,
         active_ms, queue_deadline, linked, next_revision, carry, rowlock.now(), started_at
  FROM lined_up
), unreserved AS (
  DELETE FROM rowlock.run_start s WHERE s.run_id = ANY(ARRAY(SELECT run_id FROM moved)) AND s.started_at IS NULL
), changed AS (
  INSERT INTO rowlock.run_change (seq, run_id, kind, epoch)
  SELECT next_revision, run_id, 14 /* HELD_BACK */, epoch FROM moved WHERE linked
)
SELECT count(*) AS held_back FROM moved;
