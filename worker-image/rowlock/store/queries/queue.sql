-- What happens to runs that no worker holds: wishes, deadlines, timers. Numbers of kinds are those of states.py.
-- All of them skip rows that another statement holds: that statement decides, and the next sweep looks again.
-- `= ANY(ARRAY(…))` and `(SELECT true …)`: see work.sql.

-- name: ask_cancel
-- Write a wish to cancel for each of runs $1 that is not final, asked by $2 for reason $3.
INSERT INTO rowlock.wish (run_id, kind, asked_by, reason)
SELECT a.run_id, 1 /* CANCEL */, $2::text, $3::text
FROM unnest($1::bigint[]) AS a(run_id)
WHERE (SELECT true FROM rowlock.run_live l WHERE l.run_id = a.run_id LIMIT 1)
ORDER BY a.run_id
ON CONFLICT (run_id, kind) DO NOTHING;

-- name: waiting_wishes
-- Find up to $1 wishes to cancel whose runs no worker holds.
SELECT w.run_id FROM rowlock.wish w
WHERE w.kind = 1 /* CANCEL */ AND (SELECT true FROM rowlock.run_lease l WHERE l.run_id = w.run_id) IS NULL
ORDER BY w.run_id LIMIT $1::int;

-- name: cancel_waiting
-- End those of runs $1 that no worker holds and that somebody wished to cancel.
WITH wished AS MATERIALIZED (
  SELECT w.run_id, rowlock.cancel_wish(w.run_id) AS message
  FROM rowlock.wish w WHERE w.run_id = ANY($1::bigint[]) AND w.kind = 1 /* CANCEL */
), ready_row AS (
  SELECT run_id FROM rowlock.run_ready WHERE run_id = ANY(ARRAY(SELECT run_id FROM wished)) FOR UPDATE SKIP LOCKED
), ready AS (
  DELETE FROM rowlock.run_ready x WHERE x.run_id = ANY(ARRAY(SELECT run_id FROM ready_row))
  RETURNING x.run_id, x.attempt, x.epoch, x.takeovers, x.active_ms, x.linked, x.carry, x.started_at
), backlog_row AS (
  SELECT run_id FROM rowlock.run_backlog WHERE run_id = ANY(ARRAY(SELECT run_id FROM wished)) FOR UPDATE SKIP LOCKED
), backlog AS (
  DELETE FROM rowlock.run_backlog x WHERE x.run_id = ANY(ARRAY(SELECT run_id FROM backlog_row))
  RETURNING x.run_id, x.attempt, x.epoch, x.takeovers, x.active_ms, x.linked, x.carry, x.started_at
), timer_row AS (
  SELECT run_id FROM rowlock.run_timer WHERE run_id = ANY(ARRAY(SELECT run_id FROM wished)) FOR UPDATE SKIP LOCKED
), timer AS (
  DELETE FROM rowlock.run_timer x WHERE x.run_id = ANY(ARRAY(SELECT run_id FROM timer_row))
  RETURNING x.run_id, x.attempt, x.epoch, x.takeovers, x.active_ms, x.linked, x.carry, x.started_at
), parked_row AS (
  SELECT run_id FROM rowlock.run_parked WHERE run_id = ANY(ARRAY(SELECT run_id FROM wished)) FOR UPDATE SKIP LOCKED
), parked AS (
  DELETE FROM rowlock.run_parked x WHERE x.run_id = ANY(ARRAY(SELECT run_id FROM parked_row))
  RETURNING x.run_id, x.attempt, x.epoch, x.takeovers, x.active_ms, x.linked, x.carry, x.started_at
), ended AS MATERIALIZED (
  SELECT e.*, w.message, CASE WHEN e.linked THEN nextval('rowlock.revision_seq') ELSE 0 END AS next_revision
  FROM (TABLE ready UNION ALL TABLE backlog UNION ALL TABLE timer UNION ALL TABLE parked) e JOIN wished w USING (run_id)
), finals AS (
  INSERT INTO rowlock.run_final (run_id, attempt, epoch, status, reason, message, takeovers, started_at, active_ms,
                                 revision, carry)
  SELECT run_id, attempt, epoch, 3 /* CANCELLED */, 'Cancelled', message, takeovers, started_at, active_ms,
         next_revision, carry
  FROM ended
  ON CONFLICT (run_id, attempt) DO NOTHING
), changed AS (
  INSERT INTO rowlock.run_change (seq, run_id, kind, epoch)
  SELECT next_revision, run_id, 9 /* ENDED */, epoch FROM ended WHERE linked
), unwished AS (
  DELETE FROM rowlock.wish WHERE run_id = ANY(ARRAY(SELECT run_id FROM ended))
)
SELECT run_id FROM ended;

-- name: drop_done_wishes
-- Remove the wishes of those of runs $1 that are final or gone.
DELETE FROM rowlock.wish w
WHERE w.run_id = ANY($1::bigint[])
  AND (SELECT true FROM rowlock.run_live l WHERE l.run_id = w.run_id LIMIT 1) IS NULL;

-- name: finished
-- Find those of runs $1 that are final.
SELECT a.run_id FROM unnest($1::bigint[]) AS a(run_id)
WHERE (SELECT true FROM rowlock.run_final f WHERE f.run_id = a.run_id LIMIT 1)
  AND (SELECT true FROM rowlock.run_live l WHERE l.run_id = a.run_id LIMIT 1) IS NULL;

-- name: expire_queued
-- End up to $1 runs of each queue that waited for their first claim past their deadline.
WITH late_ready AS (
  SELECT run_id FROM rowlock.run_ready WHERE queue_deadline < rowlock.now()
  ORDER BY queue_deadline LIMIT $1::int FOR UPDATE SKIP LOCKED
), late_backlog AS (
  SELECT run_id FROM rowlock.run_backlog WHERE queue_deadline < rowlock.now()
  ORDER BY queue_deadline LIMIT $1::int FOR UPDATE SKIP LOCKED
), late_timer AS (
  SELECT run_id FROM rowlock.run_timer WHERE queue_deadline < rowlock.now()
  ORDER BY queue_deadline LIMIT $1::int FOR UPDATE SKIP LOCKED
), ready AS (
  DELETE FROM rowlock.run_ready x WHERE x.run_id = ANY(ARRAY(SELECT run_id FROM late_ready))
  RETURNING x.run_id, x.attempt, x.epoch, x.takeovers, x.active_ms, x.linked, x.carry, x.started_at
), backlog AS (
  DELETE FROM rowlock.run_backlog x WHERE x.run_id = ANY(ARRAY(SELECT run_id FROM late_backlog))
  RETURNING x.run_id, x.attempt, x.epoch, x.takeovers, x.active_ms, x.linked, x.carry, x.started_at
), timer AS (
  DELETE FROM rowlock.run_timer x WHERE x.run_id = ANY(ARRAY(SELECT run_id FROM late_timer))
  RETURNING x.run_id, x.attempt, x.epoch, x.takeovers, x.active_ms, x.linked, x.carry, x.started_at
), ended AS MATERIALIZED (
  SELECT e.*, CASE WHEN e.linked THEN nextval('rowlock.revision_seq') ELSE 0 END AS next_revision
  FROM (TABLE ready UNION ALL TABLE backlog UNION ALL TABLE timer) e
), finals AS (
  INSERT INTO rowlock.run_final (run_id, attempt, epoch, status, reason, message, takeovers, started_at, active_ms,
                                 revision, carry)
  SELECT run_id, attempt, epoch, 2 /* FAILED */, 'QueueDeadlineExceeded',
         'no worker took the run before queueDeadlineSeconds', takeovers, started_at, active_ms, next_revision, carry
  FROM ended
  ON CONFLICT (run_id, attempt) DO NOTHING
), changed AS (
  INSERT INTO rowlock.run_change (seq, run_id, kind, epoch)
  SELECT next_revision, run_id, 9 /* ENDED */, epoch FROM ended WHERE linked
), unwished AS (
  DELETE FROM rowlock.wish WHERE run_id = ANY(ARRAY(SELECT run_id FROM ended))
)
SELECT run_id FROM ended;

-- name: wake_due
-- Put up to $1 runs whose timer is due back into the queue or, under a cap, into the backlog.
WITH picked AS (
  SELECT run_id FROM rowlock.run_timer WHERE due_at <= rowlock.now()
  ORDER BY due_at LIMIT $1::int FOR UPDATE SKIP LOCKED
), due AS (
  DELETE FROM rowlock.run_timer t WHERE t.run_id = ANY(ARRAY(SELECT run_id FROM picked))
  RETURNING t.*, CASE WHEN t.linked THEN nextval('rowlock.revision_seq') ELSE 0 END AS next_revision
), caps AS MATERIALIZED (
  SELECT * FROM rowlock.hold_caps(ARRAY(SELECT DISTINCT agent_id FROM due))
), woken AS MATERIALIZED (
  SELECT d.*, coalesce(k.hold_all OR (k.hold_keys AND d.key IS NOT NULL), false) AS held
  FROM due d LEFT JOIN caps k USING (agent_id)
), queued AS (
  INSERT INTO rowlock.run_ready (run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
                                 max_takeovers, blamed, suspected, quarantined, build, pinned,
                                 active_ms, queue_deadline, linked, revision, carry, ready_at, started_at)
  SELECT run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
         max_takeovers, blamed, suspected, quarantined, build, pinned,
         active_ms, queue_deadline, linked, next_revision, carry, rowlock.now(), started_at
  FROM woken WHERE NOT held
), held_back AS (
  -- What ran before is the first of its key.
  INSERT INTO rowlock.run_backlog (run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
                                   max_takeovers, blamed, suspected, quarantined, build, pinned,
                                   active_ms, queue_deadline, linked, revision, carry, ready_at, started_at)
  SELECT run_id, pool_id, agent_id, revision_id, key, priority, '-infinity', epoch, attempt, takeovers,
         max_takeovers, blamed, suspected, quarantined, build, pinned,
         active_ms, queue_deadline, linked, next_revision, carry, rowlock.now(), started_at
  FROM woken WHERE held
), changed AS (
  INSERT INTO rowlock.run_change (seq, run_id, kind, epoch)
  SELECT next_revision, run_id, 8 /* WOKEN */, epoch FROM due WHERE linked
)
SELECT count(*) AS woken FROM due;
