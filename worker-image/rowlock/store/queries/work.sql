-- What a worker does with its runs. Numbers of kinds are those of states.py.
-- Each statement that writes holds the worker's row FOR SHARE and checks fenced_at on its newest version:
-- a fence waits for it, or it sees the fence and does nothing. No row of `me` means fenced.
-- Writes lock their lease rows too: a statement that was delayed by its connection must not write
-- into a run that the same worker has given back meanwhile.
-- `= ANY(ARRAY(…))` and `(SELECT true …)` stand where a join or EXISTS would do: each is one index probe a row,
-- while for those the planner may choose to read a whole table once it guesses the number of rows wrong.
-- `worker_id + 0` keeps it off the index by worker, through which it would read all leases of the worker.

-- name: claim
-- Lease up to $4 runs of pool $2 to worker $1. A token $3 at or below the worker's floor takes nothing.
WITH clock AS MATERIALIZED (
  SELECT rowlock.now() AS now
), me AS MATERIALIZED (
  SELECT w.worker_id, w.build, w.claim_floor < $3::bigint AS may_claim, coalesce(w.rests_until < rowlock.now(), true) AS awake
  FROM rowlock.worker w WHERE w.worker_id = $1::bigint AND w.fenced_at IS NULL FOR SHARE
), own AS (
  -- Only for workers of this build, and begun: they go first. One that rests takes them if all others of it rest, too.
  SELECT q.run_id FROM rowlock.run_ready q
  WHERE q.pool_id = $2::int AND q.build = (SELECT build FROM me) AND NOT q.quarantined
    AND (SELECT may_claim AND (awake OR NOT EXISTS (
           SELECT FROM rowlock.worker o WHERE o.pool_id = $2::int AND o.build = me.build AND o.fenced_at IS NULL
                                          AND coalesce(o.rests_until < rowlock.now(), true))) FROM me)
  ORDER BY q.priority DESC, q.vft, q.run_id LIMIT $4::int FOR UPDATE SKIP LOCKED
), picked AS (
  SELECT q.run_id FROM rowlock.run_ready q
  WHERE q.pool_id = $2::int AND NOT q.quarantined AND q.build IS NULL AND (SELECT may_claim AND awake FROM me)
  ORDER BY q.priority DESC, q.vft, q.run_id LIMIT $4::int - (SELECT count(*)::int FROM own) FOR UPDATE SKIP LOCKED
), taken AS (
  DELETE FROM rowlock.run_ready q WHERE q.run_id = ANY(ARRAY(SELECT run_id FROM own UNION ALL SELECT run_id FROM picked))
  RETURNING q.*, CASE WHEN q.linked THEN nextval('rowlock.revision_seq') ELSE 0 END AS next_revision
), leased AS (
  INSERT INTO rowlock.run_lease (run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
                                 max_takeovers, blamed, suspected, quarantined, build, pinned,
                                 active_ms, linked, revision, carry, ready_at, started_at,
                                 worker_id, claim_token, claimed_at)
  SELECT run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch + 1, attempt, takeovers,
         max_takeovers, blamed, suspected, quarantined, coalesce(build, CASE WHEN pinned THEN (SELECT build FROM me) END), pinned,
         active_ms, linked, next_revision, carry, ready_at, coalesce(started_at, c.now),
         $1::bigint, $3::bigint, c.now
  FROM taken CROSS JOIN clock c
  RETURNING *
), changed AS (
  INSERT INTO rowlock.run_change (seq, run_id, kind, epoch)
  SELECT revision, run_id, 2 /* CLAIMED */, epoch FROM leased WHERE linked
)
SELECT l.run_id, l.epoch, l.attempt, l.agent_id, l.revision_id, l.key, l.takeovers, l.max_takeovers, l.active_ms,
       l.linked, l.claimed_at, l.carry,
       (SELECT true FROM rowlock.wish w WHERE w.run_id = l.run_id AND w.kind = 1 /* CANCEL */) IS TRUE AS cancelled,
       l.blamed, l.suspected
FROM me LEFT JOIN leased l ON true;

-- name: nudge
-- Tell those who listen that a run was queued: see nudges.py.
SELECT pg_notify('rowlock_ready', '');

-- name: raise_claim_floor
-- Make every claim of worker $1 with a token up to $2 take nothing, however late it arrives.
UPDATE rowlock.worker SET claim_floor = greatest(claim_floor, $2::bigint)
WHERE worker_id = $1::bigint AND fenced_at IS NULL
RETURNING worker_id;

-- name: unknown_leases
-- Read the leases of worker $1 that are not among $2.
SELECT l.run_id, l.epoch, l.attempt, l.agent_id, l.revision_id, l.key, l.takeovers, l.max_takeovers, l.active_ms,
       l.linked, l.claimed_at, l.carry,
       (SELECT true FROM rowlock.wish w WHERE w.run_id = l.run_id AND w.kind = 1 /* CANCEL */) IS TRUE AS cancelled,
       l.blamed, l.suspected,
       CASE WHEN l.quarantined THEN extract(epoch FROM rowlock.probation(l.suspected))::float8 END AS probation_seconds
FROM rowlock.run_lease l
WHERE l.worker_id = $1::bigint AND l.run_id <> ALL($2::bigint[]);

-- name: bodies
-- Read input and options of runs $1.
-- One probe for each id, which goes to its partition alone; `= ANY` would open all of them in a generic plan.
SELECT r.run_id, r.input, r.options
FROM unnest($1::bigint[]) AS a(run_id)
JOIN LATERAL (SELECT * FROM rowlock.run x WHERE x.run_id = a.run_id LIMIT 1) r ON true;

-- name: history
-- Read the whole history of run $1.
SELECT e.run_id, e.seq, e.epoch, e.attempt, e.kind, e.key, e.try, e.dur_ms, e.body,
       -- Of what a wait counts from: so many seconds ago, by the clock that decides about waits.
       CASE WHEN e.kind IN (1, 3, 5) /* STEP_INTENT, STEP_FAILED, SLEEP */
            THEN extract(epoch FROM (SELECT rowlock.now()) - e.at)::float8 END AS age
FROM rowlock.run_event e WHERE e.run_id = $1::bigint ORDER BY e.seq;

-- name: revision
-- Read revision $1 of an agent.
SELECT v.entrypoint, v.spec, a.name, v.digest
FROM rowlock.agent_revision v JOIN rowlock.agent a USING (agent_id) WHERE v.revision_id = $1::int;

-- name: append
-- Write events ($2..$10 are columns) of runs that worker $1 holds; answer whether it is fenced and which runs it lost.
WITH clock AS MATERIALIZED (
  SELECT rowlock.now() AS now
), me AS MATERIALIZED (
  SELECT w.worker_id FROM rowlock.worker w WHERE w.worker_id = $1::bigint AND w.fenced_at IS NULL FOR SHARE
), asked AS MATERIALIZED (
  SELECT * FROM unnest($2::bigint[], $3::int[], $4::int[], $5::smallint[], $6::smallint[], $7::text[], $8::smallint[],
                       $9::int[], $10::bytea[])
    AS e(run_id, seq, epoch, attempt, kind, key, try, dur_ms, body)
), own AS MATERIALIZED (
  SELECT l.run_id, l.epoch, l.linked FROM rowlock.run_lease l
  WHERE l.run_id = ANY($2::bigint[]) AND l.worker_id + 0 = (SELECT worker_id FROM me)
  ORDER BY l.run_id FOR UPDATE
), written AS (
  INSERT INTO rowlock.run_event (run_id, seq, epoch, attempt, kind, key, try, at, dur_ms, body)
  SELECT e.run_id, e.seq, e.epoch, e.attempt, e.kind, e.key, e.try, c.now, e.dur_ms, e.body
  FROM asked e JOIN own USING (run_id, epoch) CROSS JOIN clock c
  ON CONFLICT (run_id, seq) DO NOTHING
  RETURNING run_id, seq, epoch, kind
), visible AS MATERIALIZED (
  SELECT w.run_id, w.epoch, nextval('rowlock.revision_seq') AS revision,
         CASE w.kind WHEN 64 THEN 4 /* TAKEN_OVER */ WHEN 65 THEN 6 /* HANDED_OVER */ ELSE 7 /* RETRYING */ END AS kind
  FROM written w JOIN own o USING (run_id) WHERE w.kind >= 64 AND o.linked
), changed AS (
  INSERT INTO rowlock.run_change (seq, run_id, kind, epoch) SELECT revision, run_id, kind, epoch FROM visible
), raised AS (
  UPDATE rowlock.run_lease l SET revision = v.revision
  FROM (SELECT run_id, max(revision) AS revision FROM visible GROUP BY run_id) v WHERE l.run_id = v.run_id
)
SELECT NOT EXISTS (SELECT FROM me) AS fenced,
       ARRAY(SELECT DISTINCT e.run_id FROM asked e
             WHERE NOT EXISTS (SELECT FROM own o WHERE o.run_id = e.run_id AND o.epoch = e.epoch)) AS lost;

-- name: finish
-- Write events ($2..$10) and ends of attempts ($11..$23) of runs that worker $1 holds, all or nothing for each run.
-- A retry becomes a timer, or a cancelled end where somebody wished that; a result beats a wish.
WITH clock AS MATERIALIZED (
  SELECT rowlock.now() AS now
), me AS MATERIALIZED (
  SELECT w.worker_id, w.name, w.build FROM rowlock.worker w WHERE w.worker_id = $1::bigint AND w.fenced_at IS NULL FOR SHARE
), asked AS MATERIALIZED (
  SELECT * FROM unnest($2::bigint[], $3::int[], $4::int[], $5::smallint[], $6::smallint[], $7::text[], $8::smallint[],
                       $9::int[], $10::bytea[])
    AS e(run_id, seq, epoch, attempt, kind, key, try, dur_ms, body)
), final AS MATERIALIZED (
  SELECT * FROM unnest($11::bigint[], $12::int[], $13::smallint[], $14::text[], $15::text[], $16::text[], $17::int[],
                       $18::bigint[], $19::bigint[], $20::bigint[], $21::bigint[], $22::bytea[], $23::float8[])
    AS f(run_id, epoch, status, reason, message, outcome, step, used_ms, tokens_in, tokens_out, cost_micro, result,
         retry_in)
), own AS MATERIALIZED (
  SELECT l.run_id, l.epoch, l.linked FROM rowlock.run_lease l
  WHERE l.run_id = ANY($2::bigint[] || $11::bigint[]) AND l.worker_id + 0 = (SELECT worker_id FROM me)
  ORDER BY l.run_id FOR UPDATE
), written AS (
  INSERT INTO rowlock.run_event (run_id, seq, epoch, attempt, kind, key, try, at, dur_ms, body)
  SELECT e.run_id, e.seq, e.epoch, e.attempt, e.kind, e.key, e.try, c.now, e.dur_ms, e.body
  FROM asked e JOIN own USING (run_id, epoch) CROSS JOIN clock c
  ON CONFLICT (run_id, seq) DO NOTHING
  RETURNING run_id, seq, epoch, kind
), visible AS MATERIALIZED (
  SELECT w.run_id, w.epoch, nextval('rowlock.revision_seq') AS revision,
         CASE w.kind WHEN 64 THEN 4 /* TAKEN_OVER */ WHEN 65 THEN 6 /* HANDED_OVER */ ELSE 7 /* RETRYING */ END AS kind
  FROM written w JOIN own o USING (run_id) WHERE w.kind >= 64 AND o.linked
), raised AS (
  UPDATE rowlock.run_lease l SET revision = v.revision
  FROM (SELECT run_id, max(revision) AS revision FROM visible GROUP BY run_id) v
  WHERE l.run_id = v.run_id AND l.run_id NOT IN (SELECT f.run_id FROM final f)
), gone AS (
  DELETE FROM rowlock.run_lease
  WHERE run_id = ANY(ARRAY(SELECT o.run_id FROM own o JOIN final f USING (run_id, epoch)))
  RETURNING *
), ended AS MATERIALIZED (
  -- Takes its revision after those of this batch's own events.
  SELECT g.*, f.status, f.reason, f.message, f.outcome, f.step, f.used_ms, f.tokens_in, f.tokens_out, f.cost_micro,
         f.result, f.retry_in, w.cancelled, f.retry_in IS NOT NULL AND w.cancelled IS NULL AS retried,
         c.now, m.worker_id AS ended_by, m.name AS worker,
         CASE WHEN g.linked THEN nextval('rowlock.revision_seq') ELSE 0 END AS next_revision,
         CASE WHEN f.retry_in IS NOT NULL THEN
           rowlock.carry_on(g.run_id, g.epoch, g.carry, jsonb_build_object(
             'event', 66 /* ATTEMPT_FAILED */, 'epoch', g.epoch, 'attempt', g.attempt, 'worker', m.name,
             'reason', coalesce(f.reason, 'AgentError'), 'message', left(coalesce(f.message, ''), 1000),
             'claimed_at', g.claimed_at, 'at', c.now, 'build', m.build),
             (SELECT count(*) FROM written w WHERE w.run_id = g.run_id AND w.kind >= 64)) END AS next_carry
  FROM gone g JOIN final f USING (run_id, epoch) CROSS JOIN me m CROSS JOIN clock c
  CROSS JOIN LATERAL (
    SELECT CASE WHEN f.retry_in IS NOT NULL THEN rowlock.cancel_wish(g.run_id) END AS cancelled OFFSET 0
  ) w
  WHERE (SELECT count(*) FROM visible) >= 0
), finals AS (
  INSERT INTO rowlock.run_final (run_id, attempt, epoch, status, reason, message, outcome, step, worker_id, worker,
                                 takeovers, started_at, claimed_at, finished_at, active_ms, tokens_in, tokens_out,
                                 cost_micro, revision, result, carry)
  SELECT e.run_id, e.attempt, e.epoch, CASE WHEN e.cancelled IS NULL THEN e.status ELSE 3 /* CANCELLED */ END,
         CASE WHEN e.cancelled IS NULL THEN e.reason ELSE 'Cancelled' END, coalesce(e.cancelled, e.message), e.outcome,
         e.step, e.ended_by, e.worker, e.takeovers, e.started_at, e.claimed_at, e.now, e.used_ms,
         e.tokens_in, e.tokens_out, e.cost_micro, e.next_revision, e.result,
         CASE WHEN e.cancelled IS NOT NULL THEN e.next_carry END
  FROM ended e
  ON CONFLICT (run_id, attempt) DO NOTHING
), again AS (
  INSERT INTO rowlock.run_timer (run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
                                 max_takeovers, blamed, suspected, quarantined, build, pinned,
                                 active_ms, linked, revision, carry, ready_at, started_at, due_at, reason)
  SELECT e.run_id, e.pool_id, e.agent_id, e.revision_id, e.key, e.priority, e.vft, e.epoch, e.attempt + 1, e.takeovers,
         e.max_takeovers, e.blamed, e.suspected, e.quarantined, e.build, e.pinned,
         e.used_ms, e.linked, e.next_revision, e.next_carry,
         e.now, e.started_at, e.now + e.retry_in * interval '1 second', 2 /* RETRY_BACKOFF */
  FROM ended e WHERE e.retried
), changed AS (
  INSERT INTO rowlock.run_change (seq, run_id, kind, epoch)
  SELECT revision, run_id, kind, epoch FROM visible
  UNION ALL
  SELECT next_revision, run_id, CASE WHEN retried THEN 7 /* RETRYING */ ELSE 9 /* ENDED */ END, epoch
  FROM ended WHERE linked
), unwished AS (
  DELETE FROM rowlock.wish WHERE run_id = ANY(ARRAY(SELECT run_id FROM ended WHERE NOT retried))
)
SELECT NOT EXISTS (SELECT FROM me) AS fenced,
       ARRAY(SELECT DISTINCT e.run_id FROM asked e
             WHERE NOT EXISTS (SELECT FROM own o WHERE o.run_id = e.run_id AND o.epoch = e.epoch)) AS lost,
       ARRAY(SELECT e.run_id FROM ended e) AS done;

-- name: already_finished
-- Find those of runs $2 whose attempt worker $1 ended at epochs $3.
SELECT a.run_id FROM unnest($2::bigint[], $3::int[]) AS a(run_id, epoch)
WHERE (SELECT true FROM rowlock.run_final f
       WHERE f.run_id = a.run_id AND f.epoch = a.epoch AND f.worker_id = $1::bigint LIMIT 1);

-- name: release
-- Give runs $2 that worker $1 holds at epochs $3 back to the queue, active for $4 milliseconds in all.
-- Those with a build $5 go on with that alone; $6 says why. Under a cap they go to the backlog.
-- A wish to cancel ends the run instead.
-- One that has lived through its time alone is cleared: any loop may claim it again.
WITH clock AS MATERIALIZED (
  SELECT rowlock.now() AS now
), me AS MATERIALIZED (
  SELECT w.worker_id, w.name, w.quarantine, w.build FROM rowlock.worker w WHERE w.worker_id = $1::bigint AND w.fenced_at IS NULL FOR SHARE
), asked AS MATERIALIZED (
  SELECT * FROM unnest($2::bigint[], $3::int[], $4::bigint[], $5::text[], $6::text[])
    AS a(run_id, epoch, used_ms, wanted_build, said)
), own AS MATERIALIZED (
  SELECT l.run_id, l.epoch FROM rowlock.run_lease l
  WHERE l.run_id = ANY($2::bigint[]) AND l.worker_id + 0 = (SELECT worker_id FROM me)
  ORDER BY l.run_id FOR UPDATE
), gone AS (
  DELETE FROM rowlock.run_lease
  WHERE run_id = ANY(ARRAY(SELECT o.run_id FROM own o JOIN asked a USING (run_id, epoch)))
  RETURNING *, rowlock.cancel_wish(run_id) AS cancelled
), caps AS MATERIALIZED (
  SELECT * FROM rowlock.hold_caps(ARRAY(SELECT DISTINCT agent_id FROM gone))
), moved AS MATERIALIZED (
  SELECT g.*, a.used_ms, coalesce(a.wanted_build, g.build) AS next_build, m.name AS worker, c.now,
         coalesce(k.hold_all OR (k.hold_keys AND g.key IS NOT NULL), false) AS held,
         g.quarantined AND NOT (m.quarantine AND c.now >= g.claimed_at + rowlock.probation(g.suspected)) AS stays_alone,
         CASE WHEN g.linked THEN nextval('rowlock.revision_seq') ELSE 0 END AS next_revision,
         rowlock.carry_on(g.run_id, g.epoch, g.carry, jsonb_build_object(
           'event', 65 /* HANDED_OVER */, 'epoch', g.epoch, 'attempt', g.attempt, 'worker', m.name,
           'reason', CASE WHEN a.wanted_build IS NULL THEN 'Drained' ELSE 'OtherBuild' END,
           'message', left(coalesce(a.said, ''), 1000),
           'claimed_at', g.claimed_at, 'at', c.now, 'build', m.build)) AS next_carry
  FROM gone g JOIN asked a USING (run_id, epoch) CROSS JOIN me m CROSS JOIN clock c LEFT JOIN caps k USING (agent_id)
), queued AS (
  INSERT INTO rowlock.run_ready (run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
                                 max_takeovers, blamed, suspected, quarantined, build, pinned,
                                 active_ms, linked, revision, carry, ready_at, started_at)
  SELECT run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
         max_takeovers, blamed, suspected, stays_alone, next_build, pinned,
         used_ms, linked, next_revision, next_carry, now, started_at
  FROM moved WHERE cancelled IS NULL AND NOT held
), held_back AS (
  -- What ran before is the first of its key.
  INSERT INTO rowlock.run_backlog (run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
                                   max_takeovers, blamed, suspected, quarantined, build, pinned,
                                   active_ms, linked, revision, carry, ready_at, started_at)
  SELECT run_id, pool_id, agent_id, revision_id, key, priority, '-infinity', epoch, attempt, takeovers,
         max_takeovers, blamed, suspected, stays_alone, next_build, pinned,
         used_ms, linked, next_revision, next_carry, now, started_at
  FROM moved WHERE cancelled IS NULL AND held
), finals AS (
  INSERT INTO rowlock.run_final (run_id, attempt, epoch, status, reason, message, worker_id, worker, takeovers,
                                 started_at, claimed_at, finished_at, active_ms, revision, carry)
  SELECT run_id, attempt, epoch, 3 /* CANCELLED */, 'Cancelled', cancelled, worker_id, worker, takeovers,
         started_at, claimed_at, now, used_ms, next_revision, next_carry
  FROM moved WHERE cancelled IS NOT NULL
  ON CONFLICT (run_id, attempt) DO NOTHING
), changed AS (
  INSERT INTO rowlock.run_change (seq, run_id, kind, epoch)
  SELECT next_revision, run_id, CASE WHEN cancelled IS NULL THEN 5 /* RELEASED */ ELSE 9 /* ENDED */ END, epoch
  FROM moved WHERE linked
), unwished AS (
  DELETE FROM rowlock.wish WHERE run_id = ANY(ARRAY(SELECT run_id FROM moved WHERE cancelled IS NOT NULL))
)
SELECT run_id FROM moved;

-- name: already_released
-- Find those of runs $1 that were handed over, or cancelled instead, at epochs $2.
SELECT a.run_id FROM unnest($1::bigint[], $2::int[]) AS a(run_id, epoch)
CROSS JOIN LATERAL (SELECT jsonb_build_array(jsonb_build_object('event', 65 /* HANDED_OVER */, 'epoch', a.epoch)) AS entry) c
WHERE (SELECT true FROM rowlock.run_live l WHERE l.run_id = a.run_id AND l.carry @> c.entry LIMIT 1)
   OR (SELECT true FROM rowlock.run_final f WHERE f.run_id = a.run_id AND f.carry @> c.entry LIMIT 1)
   -- The next owner wrote it into history.
   OR (SELECT true FROM rowlock.run_event e
       WHERE e.run_id = a.run_id AND e.kind = 65 /* HANDED_OVER */ AND e.epoch = a.epoch + 1 LIMIT 1);
