-- The lines that runs wait in, as people read them. Numbers of kinds are those of states.py.
-- Each line is read from its front as far as the limit goes: a long queue costs no more than a short one.

-- name: waiting_lines
-- Read the first $3 runs of each line of the pools of namespace $1 with name $2; null stands for all.
-- A place is among all runs of the pool, or of the agent where its limits hold them back; what goes on alone,
-- waits for a time, for a person or for workers of one build has none.
WITH RECURSIVE wanted AS MATERIALIZED (
  SELECT p.pool_id, p.namespace, p.name FROM rowlock.pool p
  WHERE ($1::text IS NULL OR p.namespace = $1::text) AND ($2::text IS NULL OR p.name = $2::text)
), held_back AS (
  (SELECT b.agent_id FROM rowlock.run_backlog b ORDER BY b.agent_id LIMIT 1)
  UNION ALL
  SELECT (SELECT b.agent_id FROM rowlock.run_backlog b WHERE b.agent_id > h.agent_id ORDER BY b.agent_id LIMIT 1)
  FROM held_back h WHERE h.agent_id IS NOT NULL
), ready AS (
  SELECT q.* FROM wanted p CROSS JOIN LATERAL (
    SELECT x.run_id, x.pool_id, x.agent_id, x.key, x.priority, x.ready_at, x.attempt,
           row_number() OVER (ORDER BY x.priority DESC, x.vft, x.run_id) AS nth
    FROM rowlock.run_ready x WHERE x.pool_id = p.pool_id AND NOT x.quarantined AND x.build IS NULL
    ORDER BY x.priority DESC, x.vft, x.run_id LIMIT $3::int) q
), alone AS (
  SELECT q.* FROM wanted p CROSS JOIN LATERAL (
    SELECT x.run_id, x.pool_id, x.agent_id, x.key, x.priority, x.ready_at, x.attempt
    FROM rowlock.run_ready x WHERE x.pool_id = p.pool_id AND x.quarantined
    ORDER BY x.priority DESC, x.vft, x.run_id LIMIT $3::int) q
), bound AS (
  SELECT q.* FROM wanted p CROSS JOIN LATERAL (
    SELECT x.run_id, x.pool_id, x.agent_id, x.key, x.priority, x.ready_at, x.attempt
    FROM rowlock.run_ready x WHERE x.pool_id = p.pool_id AND x.build IS NOT NULL AND NOT x.quarantined
    ORDER BY x.build, x.priority DESC, x.vft, x.run_id LIMIT $3::int) q
), backlog AS (
  SELECT q.* FROM held_back h CROSS JOIN LATERAL (
    SELECT y.* FROM (
      SELECT x.run_id, x.pool_id, x.agent_id, x.key, x.priority, x.ready_at, x.attempt,
             row_number() OVER (ORDER BY x.priority DESC, x.vft, x.run_id) AS nth
      FROM rowlock.run_backlog x WHERE x.agent_id = h.agent_id) y
    WHERE y.pool_id = ANY(ARRAY(SELECT pool_id FROM wanted))
    ORDER BY y.nth LIMIT $3::int) q
  WHERE h.agent_id IS NOT NULL
), timer AS (
  SELECT x.run_id, x.pool_id, x.agent_id, x.key, x.priority, x.ready_at, x.attempt, x.due_at, x.reason
  FROM rowlock.run_timer x WHERE x.pool_id = ANY(ARRAY(SELECT pool_id FROM wanted))
  ORDER BY x.due_at LIMIT $3::int
), parked AS (
  SELECT x.run_id, x.pool_id, x.agent_id, x.key, x.priority, x.ready_at, x.attempt, x.wake_at, x.reasons
  FROM rowlock.run_parked x WHERE x.pool_id = ANY(ARRAY(SELECT pool_id FROM wanted))
  ORDER BY x.run_id LIMIT $3::int
), line AS (
  SELECT 'ready' AS place, false AS quarantined, run_id, pool_id, agent_id, key, priority, ready_at, attempt, nth,
         NULL::timestamptz AS due_at, NULL::smallint AS timer_reason, NULL::text[] AS parked_for FROM ready
  UNION ALL
  SELECT 'ready', true, run_id, pool_id, agent_id, key, priority, ready_at, attempt, NULL, NULL, NULL, NULL FROM alone
  UNION ALL
  SELECT 'ready', false, run_id, pool_id, agent_id, key, priority, ready_at, attempt, NULL, NULL, NULL, NULL FROM bound
  UNION ALL
  SELECT 'backlog', false, run_id, pool_id, agent_id, key, priority, ready_at, attempt, nth, NULL, NULL, NULL FROM backlog
  UNION ALL
  SELECT 'timer', false, run_id, pool_id, agent_id, key, priority, ready_at, attempt, NULL, due_at, reason, NULL FROM timer
  UNION ALL
  SELECT 'parked', false, run_id, pool_id, agent_id, key, priority, ready_at, attempt, NULL, wake_at, NULL, reasons FROM parked
)
SELECT l.run_id, p.namespace, p.name AS pool, g.name AS agent, l.key, l.priority, l.place, l.quarantined, l.attempt,
       l.nth, l.ready_at AS since, l.due_at, l.timer_reason, l.parked_for
FROM line l JOIN wanted p USING (pool_id) JOIN rowlock.agent g USING (agent_id)
ORDER BY p.namespace, p.name, array_position('{ready,backlog,timer,parked}', l.place), l.quarantined,
         CASE WHEN l.place = 'backlog' THEN g.name END, l.nth, l.due_at, l.run_id;

-- name: waiting_place
-- Read where run $1 waits, and how many runs of its line, up to $2, stand before it.
SELECT l.run_id, p.namespace, p.name AS pool, g.name AS agent, l.key, l.priority, l.place, l.quarantined, l.attempt,
       l.nth, l.since, l.due_at, l.timer_reason, l.parked_for
FROM (
  SELECT q.run_id, q.pool_id, q.agent_id, q.key, q.priority, 'ready' AS place, q.quarantined, q.attempt,
         CASE WHEN NOT q.quarantined AND q.build IS NULL THEN 1
           + (SELECT count(*) FROM (
                SELECT FROM rowlock.run_ready x
                WHERE x.pool_id = q.pool_id AND NOT x.quarantined AND x.build IS NULL AND x.priority > q.priority
                ORDER BY x.priority DESC, x.vft, x.run_id LIMIT $2::int) higher)
           + (SELECT count(*) FROM (
                SELECT FROM rowlock.run_ready x
                WHERE x.pool_id = q.pool_id AND NOT x.quarantined AND x.build IS NULL AND x.priority = q.priority
                  AND (x.vft, x.run_id) < (q.vft, q.run_id)
                ORDER BY x.priority DESC, x.vft, x.run_id LIMIT $2::int) earlier) END AS nth,
         q.ready_at AS since, NULL::timestamptz AS due_at, NULL::smallint AS timer_reason, NULL::text[] AS parked_for
  FROM rowlock.run_ready q WHERE q.run_id = $1::bigint
  UNION ALL
  SELECT b.run_id, b.pool_id, b.agent_id, b.key, b.priority, 'backlog', false, b.attempt,
         1 + (SELECT count(*) FROM (
                SELECT FROM rowlock.run_backlog x
                WHERE x.agent_id = b.agent_id AND x.priority > b.priority
                ORDER BY x.priority DESC, x.vft, x.run_id LIMIT $2::int) higher)
           + (SELECT count(*) FROM (
                SELECT FROM rowlock.run_backlog x
                WHERE x.agent_id = b.agent_id AND x.priority = b.priority AND (x.vft, x.run_id) < (b.vft, b.run_id)
                ORDER BY x.priority DESC, x.vft, x.run_id LIMIT $2::int) earlier),
         b.ready_at, NULL, NULL, NULL
  FROM rowlock.run_backlog b WHERE b.run_id = $1::bigint
  UNION ALL
  SELECT t.run_id, t.pool_id, t.agent_id, t.key, t.priority, 'timer', false, t.attempt, NULL, t.ready_at, t.due_at, t.reason, NULL
  FROM rowlock.run_timer t WHERE t.run_id = $1::bigint
  UNION ALL
  SELECT k.run_id, k.pool_id, k.agent_id, k.key, k.priority, 'parked', false, k.attempt, NULL, k.ready_at, k.wake_at, NULL, k.reasons
  FROM rowlock.run_parked k WHERE k.run_id = $1::bigint
) l JOIN rowlock.pool p USING (pool_id) JOIN rowlock.agent g USING (agent_id)
LIMIT 1;
