-- A run's place in the queue, as long as it has not started.

-- name: set_priority_ready
-- Give the queued runs $1 that never started the priorities $2; each goes to the end of its key's line there.
UPDATE rowlock.run_ready q
SET priority = a.priority, vft = rowlock.ready_line(q.pool_id, a.priority, q.agent_id, q.key) + 1
FROM unnest($1::bigint[], $2::smallint[]) AS a(run_id, priority)
WHERE q.run_id = a.run_id AND q.started_at IS NULL AND q.priority <> a.priority;

-- name: set_priority_backlog
-- Do the same for those that an agent's caps hold back.
UPDATE rowlock.run_backlog q
SET priority = a.priority, vft = rowlock.backlog_line(a.priority, q.agent_id, q.key) + 1
FROM unnest($1::bigint[], $2::smallint[]) AS a(run_id, priority)
WHERE q.run_id = a.run_id AND q.started_at IS NULL AND q.priority <> a.priority;

-- name: set_priority_parked
-- Do the same for those that are suspended: they line up when they are continued.
UPDATE rowlock.run_parked q SET priority = a.priority
FROM unnest($1::bigint[], $2::smallint[]) AS a(run_id, priority)
WHERE q.run_id = a.run_id AND q.started_at IS NULL AND q.priority <> a.priority;
