-- Runs that wait without a worker: for a time, for a person, or because somebody suspended them.
-- Numbers of kinds are those of states.py. `= ANY(ARRAY(…))` and `(SELECT true …)`: see work.sql.

-- name: park
-- Let runs ($2..$8 are columns) that worker $1 holds wait, and ask their questions ($9..$14).
-- The rows of answers and of wishes to suspend are locked: who writes one of them at this moment is waited for,
-- and who comes later looks for the run after us and finds it parked. So no answer and no wish falls in between.
WITH clock AS MATERIALIZED (
  SELECT rowlock.now() AS now
), me AS MATERIALIZED (
  SELECT w.worker_id, w.name, w.quarantine FROM rowlock.worker w WHERE w.worker_id = $1::bigint AND w.fenced_at IS NULL FOR SHARE
), asked AS MATERIALIZED (
  SELECT * FROM unnest($2::bigint[], $3::int[], $4::int[], $5::bigint[], $6::text[], $7::float8[], $8::bytea[])
    AS a(run_id, epoch, seq, used_ms, waits_for, wake_in, body)
), question AS MATERIALIZED (
  SELECT * FROM unnest($9::bigint[], $10::text[], $11::text[], $12::text[], $13::bytea[], $14::float8[])
    AS q(run_id, step_key, digest, tool, question, expires_in)
), own AS MATERIALIZED (
  SELECT l.run_id, l.epoch FROM rowlock.run_lease l
  WHERE l.run_id = ANY($2::bigint[]) AND l.worker_id + 0 = (SELECT worker_id FROM me)
  ORDER BY l.run_id FOR UPDATE
), gone AS (
  DELETE FROM rowlock.run_lease
  WHERE run_id = ANY(ARRAY(SELECT o.run_id FROM own o JOIN asked a USING (run_id, epoch)))
  RETURNING *, rowlock.cancel_wish(run_id) AS cancelled
), suspending AS MATERIALIZED (
  SELECT w.run_id FROM rowlock.wish w
  WHERE w.run_id = ANY(ARRAY(SELECT run_id FROM gone)) AND w.kind = 2 /* SUSPEND */
  ORDER BY w.run_id FOR SHARE
), known AS MATERIALIZED (
  SELECT p.run_id, p.step_key, p.digest, p.attempt, p.decided_at FROM rowlock.approval p
  WHERE p.run_id = ANY(ARRAY(SELECT q.run_id FROM question q JOIN gone g USING (run_id)))
  ORDER BY p.run_id, p.step_key, p.digest, p.attempt FOR SHARE
), decided AS MATERIALIZED (
  SELECT DISTINCT k.run_id FROM known k JOIN question q USING (run_id, step_key, digest)
  JOIN gone g ON g.run_id = k.run_id AND g.attempt = k.attempt
  WHERE k.decided_at IS NOT NULL
), judged AS MATERIALIZED (
  SELECT g.*, a.seq, a.used_ms, a.waits_for, a.wake_in, a.body,
         g.run_id IN (SELECT s.run_id FROM suspending s) AS suspended,
         g.run_id IN (SELECT d.run_id FROM decided d) AS answered
  FROM gone g JOIN asked a USING (run_id, epoch)
), caps AS MATERIALIZED (
  SELECT * FROM rowlock.hold_caps(ARRAY(SELECT DISTINCT agent_id FROM judged))
), moved AS MATERIALIZED (
  SELECT j.*, coalesce(k.hold_all OR (k.hold_keys AND j.key IS NOT NULL), false) AS held,
         m.worker_id AS parked_by, m.name AS worker, c.now,
         j.quarantined AND NOT (m.quarantine AND c.now >= j.claimed_at + rowlock.probation(j.suspected)) AS stays_alone,
         CASE WHEN j.cancelled IS NOT NULL THEN 'cancelled'
              WHEN j.suspended THEN 'suspended'
              WHEN j.answered OR j.waits_for = '' THEN 'ready'
              ELSE 'parked' END AS fate,
         CASE WHEN j.linked THEN nextval('rowlock.revision_seq') ELSE 0 END AS next_revision,
         -- The owner wrote what was carried before all else, so only a part that it could not write stays.
         CASE WHEN j.carry IS NOT NULL AND jsonb_array_length(j.carry) > (
                SELECT count(*) FROM rowlock.run_event e WHERE e.run_id = j.run_id AND e.epoch = j.epoch AND e.kind >= 64)
              THEN j.carry END AS next_carry
  FROM judged j CROSS JOIN me m CROSS JOIN clock c LEFT JOIN caps k USING (agent_id)
), noted AS (
  INSERT INTO rowlock.run_event (run_id, seq, epoch, attempt, kind, key, try, at, body)
  SELECT run_id, seq, epoch, attempt, 67 /* PARKED */, '67:' || epoch, 1, now, body FROM moved WHERE fate <> 'cancelled'
  ON CONFLICT (run_id, seq) DO NOTHING
), questions AS (
  INSERT INTO rowlock.approval (run_id, step_key, digest, attempt, tool, question, asked_at, expires_at)
  SELECT q.run_id, q.step_key, q.digest, m.attempt, q.tool, q.question, m.now, m.now + q.expires_in * interval '1 second'
  FROM question q JOIN moved m USING (run_id) WHERE m.fate <> 'cancelled'
  ON CONFLICT (run_id, step_key, digest, attempt) DO NOTHING
), parked AS (
  INSERT INTO rowlock.run_parked (run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
                                  max_takeovers, blamed, suspected, quarantined, build, pinned,
                                  active_ms, linked, revision, carry, ready_at, started_at, reasons, wake_at)
  SELECT run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
         max_takeovers, blamed, suspected, stays_alone, build, pinned,
         used_ms, linked, next_revision, next_carry, now, started_at,
         string_to_array(waits_for, ',') || CASE WHEN suspended THEN '{suspended}'::text[] ELSE '{}' END,
         CASE WHEN NOT suspended THEN now + wake_in * interval '1 second' END
  FROM moved WHERE fate IN ('parked', 'suspended')
), queued AS (
  INSERT INTO rowlock.run_ready (run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
                                 max_takeovers, blamed, suspected, quarantined, build, pinned,
                                 active_ms, linked, revision, carry, ready_at, started_at)
  SELECT run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
         max_takeovers, blamed, suspected, stays_alone, build, pinned,
         used_ms, linked, next_revision, next_carry, now, started_at
  FROM moved WHERE fate = 'ready' AND NOT held
), held_back AS (
  -- What ran before is the first of its key.
  INSERT INTO rowlock.run_backlog (run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
                                   max_takeovers, blamed, suspected, quarantined, build, pinned,
                                   active_ms, linked, revision, carry, ready_at, started_at)
  SELECT run_id, pool_id, agent_id, revision_id, key, priority, '-infinity', epoch, attempt, takeovers,
         max_takeovers, blamed, suspected, stays_alone, build, pinned,
         used_ms, linked, next_revision, next_carry, now, started_at
  FROM moved WHERE fate = 'ready' AND held
), finals AS (
  INSERT INTO rowlock.run_final (run_id, attempt, epoch, status, reason, message, worker_id, worker, takeovers,
                                 started_at, claimed_at, finished_at, active_ms, revision, carry)
  SELECT run_id, attempt, epoch, 3 /* CANCELLED */, 'Cancelled', cancelled, parked_by, worker, takeovers,
         started_at, claimed_at, now, used_ms, next_revision, next_carry
  FROM moved WHERE fate = 'cancelled'
  ON CONFLICT (run_id, attempt) DO NOTHING
), changed AS (
  INSERT INTO rowlock.run_change (seq, run_id, kind, epoch)
  SELECT next_revision, run_id,
         CASE fate WHEN 'cancelled' THEN 9 /* ENDED */ WHEN 'suspended' THEN 11 /* SUSPENDED */
                   WHEN 'parked' THEN 10 /* PARKED */ ELSE 8 /* WOKEN */ END, epoch
  FROM moved WHERE linked
), unwished AS (
  DELETE FROM rowlock.wish WHERE run_id = ANY(ARRAY(SELECT run_id FROM moved WHERE fate = 'cancelled'))
), settled AS (
  UPDATE rowlock.wish SET settled = true
  WHERE run_id = ANY(ARRAY(SELECT run_id FROM moved WHERE fate = 'suspended')) AND kind = 2 /* SUSPEND */
)
SELECT run_id FROM moved;

-- name: already_parked
-- Find those of runs $2 that worker $1 parked, or ended because of a wish, at epochs $3.
SELECT a.run_id FROM unnest($2::bigint[], $3::int[]) AS a(run_id, epoch)
WHERE (SELECT true FROM rowlock.run_event e
       WHERE e.run_id = a.run_id AND e.kind = 67 /* PARKED */ AND e.epoch = a.epoch LIMIT 1)
   OR (SELECT true FROM rowlock.run_final f
       WHERE f.run_id = a.run_id AND f.epoch = a.epoch AND f.worker_id = $1::bigint LIMIT 1);

-- name: wake_parked
-- Put up to $1 parked runs whose time has come back into the queue; suspended ones have none.
WITH picked AS (
  SELECT run_id FROM rowlock.run_parked WHERE wake_at <= rowlock.now()
  ORDER BY wake_at LIMIT $1::int FOR UPDATE SKIP LOCKED
), due AS (
  DELETE FROM rowlock.run_parked p WHERE p.run_id = ANY(ARRAY(SELECT run_id FROM picked))
  RETURNING p.*, CASE WHEN p.linked THEN nextval('rowlock.revision_seq') ELSE 0 END AS next_revision
), caps AS MATERIALIZED (
  SELECT * FROM rowlock.hold_caps(ARRAY(SELECT DISTINCT agent_id FROM due))
), woken AS MATERIALIZED (
  SELECT d.*, coalesce(k.hold_all OR (k.hold_keys AND d.key IS NOT NULL), false) AS held
  FROM due d LEFT JOIN caps k USING (agent_id)
), queued AS (
  INSERT INTO rowlock.run_ready (run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
                                 max_takeovers, blamed, suspected, quarantined, build, pinned,
                                 active_ms, linked, revision, carry, ready_at, started_at)
  SELECT run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
         max_takeovers, blamed, suspected, quarantined, build, pinned,
         active_ms, linked, next_revision, carry, rowlock.now(), started_at
  FROM woken WHERE NOT held
), held_back AS (
  -- What ran before is the first of its key.
  INSERT INTO rowlock.run_backlog (run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
                                   max_takeovers, blamed, suspected, quarantined, build, pinned,
                                   active_ms, linked, revision, carry, ready_at, started_at)
  SELECT run_id, pool_id, agent_id, revision_id, key, priority, '-infinity', epoch, attempt, takeovers,
         max_takeovers, blamed, suspected, quarantined, build, pinned,
         active_ms, linked, next_revision, carry, rowlock.now(), started_at
  FROM woken WHERE held
), changed AS (
  INSERT INTO rowlock.run_change (seq, run_id, kind, epoch)
  SELECT next_revision, run_id, 8 /* WOKEN */, epoch FROM due WHERE linked
)
SELECT count(*) AS woken FROM due;

-- name: ask_suspend
-- Write a wish to suspend for each of runs $1 that is not final, asked by $2 for reason $3.
INSERT INTO rowlock.wish (run_id, kind, asked_by, reason)
SELECT a.run_id, 2 /* SUSPEND */, $2::text, $3::text
FROM unnest($1::bigint[]) AS a(run_id)
WHERE (SELECT true FROM rowlock.run_live l WHERE l.run_id = a.run_id LIMIT 1)
ORDER BY a.run_id
ON CONFLICT (run_id, kind) DO NOTHING;

-- name: waiting_suspensions
-- Find up to $1 wishes to suspend that are not carried out and whose runs no worker holds.
SELECT w.run_id FROM rowlock.wish w
WHERE w.kind = 2 /* SUSPEND */ AND NOT w.settled
  AND (SELECT true FROM rowlock.run_lease l WHERE l.run_id = w.run_id) IS NULL
ORDER BY w.run_id LIMIT $1::int;

-- name: suspend_waiting
-- Park those of runs $1 that no worker holds and that somebody wished to suspend.
-- `ready_at` keeps when that was: the queue's deadline stands still meanwhile.
WITH wished AS MATERIALIZED (
  SELECT w.run_id FROM rowlock.wish w WHERE w.run_id = ANY($1::bigint[]) AND w.kind = 2 /* SUSPEND */ AND NOT w.settled
  ORDER BY w.run_id FOR NO KEY UPDATE
), ready_row AS (
  SELECT run_id FROM rowlock.run_ready WHERE run_id = ANY(ARRAY(SELECT run_id FROM wished)) FOR UPDATE SKIP LOCKED
), ready AS (
  DELETE FROM rowlock.run_ready x WHERE x.run_id = ANY(ARRAY(SELECT run_id FROM ready_row))
  RETURNING x.run_id, x.pool_id, x.agent_id, x.revision_id, x.key, x.priority, x.vft, x.epoch, x.attempt, x.takeovers,
            x.max_takeovers, x.blamed, x.suspected, x.quarantined, x.build, x.pinned,
            x.active_ms, x.queue_deadline, x.linked, x.carry, x.started_at, '{}'::text[] AS reasons
), backlog_row AS (
  SELECT run_id FROM rowlock.run_backlog WHERE run_id = ANY(ARRAY(SELECT run_id FROM wished)) FOR UPDATE SKIP LOCKED
), backlog AS (
  DELETE FROM rowlock.run_backlog x WHERE x.run_id = ANY(ARRAY(SELECT run_id FROM backlog_row))
  RETURNING x.run_id, x.pool_id, x.agent_id, x.revision_id, x.key, x.priority, x.vft, x.epoch, x.attempt, x.takeovers,
            x.max_takeovers, x.blamed, x.suspected, x.quarantined, x.build, x.pinned,
            x.active_ms, x.queue_deadline, x.linked, x.carry, x.started_at, '{}'::text[] AS reasons
), timer_row AS (
  SELECT run_id FROM rowlock.run_timer WHERE run_id = ANY(ARRAY(SELECT run_id FROM wished)) FOR UPDATE SKIP LOCKED
), timer AS (
  DELETE FROM rowlock.run_timer x WHERE x.run_id = ANY(ARRAY(SELECT run_id FROM timer_row))
  RETURNING x.run_id, x.pool_id, x.agent_id, x.revision_id, x.key, x.priority, x.vft, x.epoch, x.attempt, x.takeovers,
            x.max_takeovers, x.blamed, x.suspected, x.quarantined, x.build, x.pinned,
            x.active_ms, x.queue_deadline, x.linked, x.carry, x.started_at, '{}'::text[] AS reasons
), parked_row AS (
  SELECT run_id FROM rowlock.run_parked WHERE run_id = ANY(ARRAY(SELECT run_id FROM wished)) FOR UPDATE SKIP LOCKED
), parked AS (
  DELETE FROM rowlock.run_parked x WHERE x.run_id = ANY(ARRAY(SELECT run_id FROM parked_row))
  RETURNING x.run_id, x.pool_id, x.agent_id, x.revision_id, x.key, x.priority, x.vft, x.epoch, x.attempt, x.takeovers,
            x.max_takeovers, x.blamed, x.suspected, x.quarantined, x.build, x.pinned,
            x.active_ms, x.queue_deadline, x.linked, x.carry, x.started_at, x.reasons
), moved AS MATERIALIZED (
  SELECT e.*, CASE WHEN e.linked THEN nextval('rowlock.revision_seq') ELSE 0 END AS next_revision
  FROM (TABLE ready UNION ALL TABLE backlog UNION ALL TABLE timer UNION ALL TABLE parked) e
), held AS (
  INSERT INTO rowlock.run_parked (run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
                                  max_takeovers, blamed, suspected, quarantined, build, pinned,
                                  active_ms, queue_deadline, linked, revision, carry, ready_at, started_at,
                                  reasons)
  SELECT run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
         max_takeovers, blamed, suspected, quarantined, build, pinned,
         active_ms, queue_deadline, linked, next_revision, carry, rowlock.now(), started_at,
         array_append(array_remove(reasons, 'suspended'), 'suspended')
  FROM moved
), changed AS (
  INSERT INTO rowlock.run_change (seq, run_id, kind, epoch)
  SELECT next_revision, run_id, 11 /* SUSPENDED */, epoch FROM moved WHERE linked
), settled AS (
  UPDATE rowlock.wish SET settled = true
  WHERE run_id = ANY(ARRAY(SELECT run_id FROM moved)) AND kind = 2 /* SUSPEND */
)
SELECT run_id FROM moved;

-- name: suspended
-- Find those of runs $1 that are suspended.
SELECT w.run_id FROM rowlock.wish w WHERE w.run_id = ANY($1::bigint[]) AND w.kind = 2 /* SUSPEND */ AND w.settled;

-- name: take_suspend_back
-- Take the wish to suspend back for each of runs $1, of those that $2 asked for, or of all if that is null.
-- It waits for a statement that is carrying the wish out.
WITH held AS (
  SELECT run_id FROM rowlock.wish
  WHERE run_id = ANY($1::bigint[]) AND kind = 2 /* SUSPEND */ AND ($2::text IS NULL OR asked_by = $2::text)
  ORDER BY run_id FOR UPDATE
)
DELETE FROM rowlock.wish w USING held h WHERE w.run_id = h.run_id AND w.kind = 2 /* SUSPEND */
RETURNING w.run_id;

-- name: continue_suspended
-- Put those of runs $1 that are suspended, though nobody wishes that any more, back into the queue.
-- Those that no worker ever had go to the end of their lines: the place that they had may be of another queue.
WITH picked AS (
  SELECT p.run_id FROM rowlock.run_parked p
  WHERE p.run_id = ANY($1::bigint[]) AND 'suspended' = ANY(p.reasons)
    AND (SELECT true FROM rowlock.wish w WHERE w.run_id = p.run_id AND w.kind = 2 /* SUSPEND */) IS NULL
  ORDER BY p.run_id FOR UPDATE
), freed AS (
  DELETE FROM rowlock.run_parked p WHERE p.run_id = ANY(ARRAY(SELECT run_id FROM picked))
  RETURNING p.*, CASE WHEN p.linked THEN nextval('rowlock.revision_seq') ELSE 0 END AS next_revision
), caps AS MATERIALIZED (
  SELECT * FROM rowlock.hold_caps(ARRAY(SELECT DISTINCT agent_id FROM freed))
), numbered AS (
  SELECT f.*, coalesce(k.hold_all OR (k.hold_keys AND f.key IS NOT NULL), false) AS held, coalesce(k.step, 1) AS step,
         row_number() OVER (PARTITION BY f.agent_id, f.key, f.priority, f.pool_id, f.started_at IS NULL
                            ORDER BY f.run_id) AS nth
  FROM freed f LEFT JOIN caps k USING (agent_id)
), lined_up AS MATERIALIZED (
  SELECT n.*, CASE WHEN n.started_at IS NOT NULL AND n.held THEN '-infinity'
                   WHEN n.started_at IS NOT NULL THEN n.vft
                   ELSE max(CASE WHEN n.nth > 1 OR n.started_at IS NOT NULL THEN NULL
                                 WHEN n.held THEN rowlock.backlog_line(n.priority, n.agent_id, n.key)
                                 ELSE rowlock.ready_line(n.pool_id, n.priority, n.agent_id, n.key) END)
                          OVER (PARTITION BY n.agent_id, n.key, n.priority, n.pool_id)
                        + n.nth * CASE WHEN n.held THEN 1 ELSE n.step END END AS place
  FROM numbered n
), queued AS (
  INSERT INTO rowlock.run_ready (run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
                                 max_takeovers, blamed, suspected, quarantined, build, pinned,
                                 active_ms, queue_deadline, linked, revision, carry, ready_at, started_at)
  SELECT run_id, pool_id, agent_id, revision_id, key, priority, place, epoch, attempt, takeovers,
         max_takeovers, blamed, suspected, quarantined, build, pinned,
         active_ms, queue_deadline + (rowlock.now() - ready_at), linked, next_revision, carry,
         rowlock.now(), started_at
  FROM lined_up WHERE NOT held
), held_back AS (
  INSERT INTO rowlock.run_backlog (run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
                                   max_takeovers, blamed, suspected, quarantined, build, pinned,
                                   active_ms, queue_deadline, linked, revision, carry, ready_at, started_at)
  SELECT run_id, pool_id, agent_id, revision_id, key, priority, place, epoch, attempt, takeovers,
         max_takeovers, blamed, suspected, quarantined, build, pinned,
         active_ms, queue_deadline + (rowlock.now() - ready_at), linked, next_revision, carry,
         rowlock.now(), started_at
  FROM lined_up WHERE held
), changed AS (
  INSERT INTO rowlock.run_change (seq, run_id, kind, epoch)
  SELECT next_revision, run_id, 12 /* CONTINUED */, epoch FROM freed WHERE linked
)
SELECT run_id FROM freed;
