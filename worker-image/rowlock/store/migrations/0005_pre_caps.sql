-- Caps of agents, and who is next.
--
-- A run of a capped agent waits in run_backlog, which no claim reads, and is promoted to run_ready while fewer runs
-- than the cap allows hold a slot: those in run_lease and run_ready. Only a promotion makes that number rise,
-- and promotions of one agent take turns. So the claim never meets a run over its cap.
--
-- Two locks, both on the agent and both until the end of the transaction:
-- `hold_caps`  shared by whatever puts runs into a queue, exclusive to who changes the caps.
--              Without it a run that was on its way while a cap is set would slip past it.
-- `take_turn`  exclusive, taken by each promotion. Nothing that holds it waits for the other one.
-- Both answer from a snapshot that is younger than the lock: VOLATILE, and each query in them sees what was committed
-- when it began. A plain statement that locks and counts sees what was committed before it waited.

-- Say of each of these agents whether its runs go to the backlog: all of them, or those that have a key.
-- `step` is how far one run moves its key back in the shared queue.
CREATE FUNCTION rowlock.hold_caps(agents int[])
RETURNS TABLE (agent_id int, hold_all boolean, hold_keys boolean, step float8)
LANGUAGE plpgsql VOLATILE ROWS 4 AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(hashtext('rowlock.caps'), x.agent)
  FROM (SELECT DISTINCT unnest(agents) AS agent ORDER BY 1) x;
  RETURN QUERY
    SELECT a.agent_id, a.max_running IS NOT NULL, a.capped, 1 / a.weight
    FROM rowlock.agent a WHERE a.agent_id = ANY(agents);
END $$;

-- Wait until nothing is on its way into a queue of this agent and nobody promotes: for who changes its caps.
CREATE FUNCTION rowlock.hold_still(agent int) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('rowlock.caps'), agent);
  PERFORM pg_advisory_xact_lock(hashtext('rowlock.promote'), agent);
END $$;

-- Begin a promotion and answer with the caps that hold now; nothing if another one is under way and `wait` is false.
CREATE FUNCTION rowlock.take_turn(agent int, wait boolean)
RETURNS TABLE (max_running int, max_running_per_key int, starts_per_minute_per_key int)
LANGUAGE plpgsql VOLATILE ROWS 1 AS $$
BEGIN
  IF wait THEN
    PERFORM pg_advisory_xact_lock(hashtext('rowlock.promote'), agent);
  ELSIF NOT pg_try_advisory_xact_lock(hashtext('rowlock.promote'), agent) THEN
    RETURN;
  END IF;
  RETURN QUERY
    SELECT a.max_running, a.max_running_per_key, a.starts_per_minute_per_key
    FROM rowlock.agent a WHERE a.agent_id = agent;
END $$;

-- Fair queueing: a run's place is one step behind the last of its own key, or behind the head of the queue if that is
-- further on (Golestani's self-clocked variant, 1994). So keys take turns, however much one of them has queued,
-- and none is punished for what it used before. Two runs that come at once may get the same place: no harm.

-- The last place in line of a key in the shared queue, in microseconds since 2025 while the queue is empty:
-- steps are so small that what comes back later, with the place it had, is among the first.
-- A run that was claimed before is no sign of how far the queue has come.
CREATE FUNCTION rowlock.ready_line(pool int, level smallint, agent int, line text) RETURNS float8
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN greatest(
    CASE WHEN line IS NULL
      THEN (SELECT q.vft FROM rowlock.run_ready q
            WHERE q.agent_id = agent AND q.key IS NULL AND q.priority = level AND q.pool_id = pool
            ORDER BY q.vft DESC LIMIT 1)
      ELSE (SELECT q.vft FROM rowlock.run_ready q
            WHERE q.agent_id = agent AND q.key = line AND q.priority = level AND q.pool_id = pool
            ORDER BY q.vft DESC LIMIT 1) END,
    coalesce(
      (SELECT q.vft FROM rowlock.run_ready q
       WHERE q.pool_id = pool AND q.priority = level AND q.epoch = 0 AND NOT q.quarantined AND q.build IS NULL
       ORDER BY q.vft LIMIT 1),
      -- One instant for the whole statement: by a clock that runs on, keys that come together would not take turns.
      extract(epoch FROM statement_timestamp() - '2025-01-01 00:00:00+00'::timestamptz
              + coalesce(nullif(current_setting('rowlock.clock_offset', true), ''), '0')::interval)::float8 * 1000000));
END $$;

-- The last place in line of a key in the backlog of its agent, where 1 is a step.
CREATE FUNCTION rowlock.backlog_line(level smallint, agent int, line text) RETURNS float8
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN greatest(0,
    (SELECT b.vft FROM rowlock.run_backlog b
     WHERE b.agent_id = agent AND coalesce(b.key, '') = coalesce(line, '') AND b.priority = level
     ORDER BY b.vft DESC LIMIT 1),
    (SELECT t.vft FROM rowlock.agent_turn t WHERE t.agent_id = agent AND t.priority = level));
END $$;
