-- Questions to people. An answer is written once; then, in the same transaction but by a newer snapshot,
-- the run that waits for it is woken. Numbers of kinds are those of states.py.

-- name: decide
-- Answer the open question of run $1 about step $2 with digest $3 in attempt $4: $5 is the decision, by $6, because $7.
UPDATE rowlock.approval p
SET decided_at = rowlock.now(), decision = $5::smallint, decided_by = $6::text, reason = $7::text
WHERE p.run_id = $1::bigint AND p.step_key = $2::text AND p.digest = $3::text AND p.attempt = $4::smallint
  AND p.decided_at IS NULL AND (p.expires_at IS NULL OR p.expires_at > rowlock.now())
  AND (SELECT true FROM rowlock.run_live l WHERE l.run_id = p.run_id AND l.attempt = p.attempt LIMIT 1)
RETURNING p.run_id;

-- name: expire_approvals
-- Answer up to $1 open questions whose time is over.
WITH late AS (
  SELECT p.run_id, p.step_key, p.digest, p.attempt FROM rowlock.approval p
  WHERE p.decided_at IS NULL AND p.expires_at <= rowlock.now()
  ORDER BY p.expires_at LIMIT $1::int FOR UPDATE SKIP LOCKED
)
UPDATE rowlock.approval p
SET decided_at = rowlock.now(), decision = 3 /* EXPIRED */, decided_by = 'expiry', reason = 'nobody answered in time'
FROM late l
WHERE p.run_id = l.run_id AND p.step_key = l.step_key AND p.digest = l.digest AND p.attempt = l.attempt
RETURNING p.run_id;

-- name: wake_decided
-- Put those of runs $1 that wait for an answer back into the queue, unless they are suspended.
WITH picked AS (
  SELECT p.run_id FROM rowlock.run_parked p
  WHERE p.run_id = ANY($1::bigint[]) AND 'approval' = ANY(p.reasons) AND NOT 'suspended' = ANY(p.reasons)
  ORDER BY p.run_id FOR UPDATE
), woken AS (
  DELETE FROM rowlock.run_parked p WHERE p.run_id = ANY(ARRAY(SELECT run_id FROM picked))
  RETURNING p.*, CASE WHEN p.linked THEN nextval('rowlock.revision_seq') ELSE 0 END AS next_revision
), caps AS MATERIALIZED (
  SELECT * FROM rowlock.hold_caps(ARRAY(SELECT DISTINCT agent_id FROM woken))
), moved AS MATERIALIZED (
  SELECT d.*, coalesce(k.hold_all OR (k.hold_keys AND d.key IS NOT NULL), false) AS held
  FROM woken d LEFT JOIN caps k USING (agent_id)
), queued AS (
  INSERT INTO rowlock.run_ready (run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
                                 max_takeovers, blamed, suspected, quarantined, build, pinned,
                                 active_ms, linked, revision, carry, ready_at, started_at)
  SELECT run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
         max_takeovers, blamed, suspected, quarantined, build, pinned,
         active_ms, linked, next_revision, carry, rowlock.now(), started_at
  FROM moved WHERE NOT held
), held_back AS (
  -- What ran before is the first of its key.
  INSERT INTO rowlock.run_backlog (run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
                                   max_takeovers, blamed, suspected, quarantined, build, pinned,
                                   active_ms, linked, revision, carry, ready_at, started_at)
  SELECT run_id, pool_id, agent_id, revision_id, key, priority, '-infinity', epoch, attempt, takeovers,
         max_takeovers, blamed, suspected, quarantined, build, pinned,
         active_ms, linked, next_revision, carry, rowlock.now(), started_at
  FROM moved WHERE held
), changed AS (
  INSERT INTO rowlock.run_change (seq, run_id, kind, epoch)
  SELECT next_revision, run_id, 8 /* WOKEN */, epoch FROM woken WHERE linked
)
SELECT run_id FROM woken;

-- name: show_answered
-- Have runs $1 shown again as they stand, each once for each answer: what a mirror is just showing may be older.
INSERT INTO rowlock.run_change (seq, run_id, kind, epoch, again)
SELECT nextval('rowlock.revision_seq'), o.run_id,
       CASE l.place WHEN 'lease' THEN 2 /* CLAIMED */ WHEN 'timer' THEN 7 /* RETRYING */ WHEN 'parked' THEN 10 /* PARKED */
                    ELSE 1 /* QUEUED */ END,
       l.epoch, true
FROM rowlock.run_object o
JOIN LATERAL (SELECT x.place, x.epoch FROM rowlock.run_live x WHERE x.run_id = o.run_id LIMIT 1) l ON true
WHERE o.run_id = ANY($1::bigint[]);

-- name: approval
-- Read the newest questions of run $1 about step $2.
SELECT p.digest, p.attempt, p.decision, p.decided_by, p.reason, p.expires_at <= rowlock.now() AS late,
       (SELECT true FROM rowlock.run_live l WHERE l.run_id = p.run_id AND l.attempt = p.attempt LIMIT 1) IS TRUE AS live
FROM rowlock.approval p WHERE p.run_id = $1::bigint AND p.step_key = $2::text
ORDER BY p.attempt DESC, p.asked_at DESC;

-- name: pending_approvals
-- Read up to $2 open questions, the oldest first: those of run $1, or of all if that is null.
SELECT p.run_id, p.step_key, p.digest, p.attempt, p.tool, p.question, p.asked_at, p.expires_at
FROM rowlock.approval p
WHERE p.decided_at IS NULL AND ($1::bigint IS NULL OR p.run_id = $1::bigint)
  AND (p.expires_at IS NULL OR p.expires_at > rowlock.now())
  AND (SELECT true FROM rowlock.run_live l WHERE l.run_id = p.run_id AND l.attempt = p.attempt LIMIT 1)
ORDER BY p.asked_at, p.run_id, p.step_key LIMIT $2::int;

-- name: answers
-- Read the answers to questions of run $1.
SELECT p.step_key, p.digest, p.attempt, p.decision, p.decided_by, p.reason
FROM rowlock.approval p WHERE p.run_id = $1::bigint AND p.decided_at IS NOT NULL
ORDER BY p.attempt;
