-- The whole schema.
--
-- History (run, run_event, run_final) is insert-only and partitioned by day of the time-ordered id.
-- Live state (run_ready, run_backlog, run_timer, run_parked, run_lease) is inserted and deleted, never updated:
-- a run stands in exactly one of them, or has its final row for the current attempt.
-- No foreign keys between hot tables: each would cost a lock and an index probe a row;
-- `rowlock.violations` names what they would have kept out.

-- ---------------------------------------------------------------- time and ids

-- The database's clock; a session may shift it (SET rowlock.clock_offset = '1 hour') so that tests own time.
-- STABLE, so that an index can be searched with it.
CREATE FUNCTION rowlock.now() RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
DECLARE shift text := current_setting('rowlock.clock_offset', true);
BEGIN
  IF shift IS NULL OR shift = '' THEN RETURN clock_timestamp(); END IF;
  RETURN clock_timestamp() + shift::interval;
END $$;

-- End the statement in a way that its caller tries again.
CREATE FUNCTION rowlock.try_again(why text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '%', why USING ERRCODE = 'serialization_failure';
END $$;

CREATE SEQUENCE rowlock.run_seq AS bigint CACHE 64;

-- The smallest run id of an instant: 41 bits of milliseconds since 2025-01-01, 22 bits of sequence.
CREATE FUNCTION rowlock.id_floor(t timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE AS
$$ SELECT ((extract(epoch FROM t) * 1000)::bigint - 1735689600000) << 22 $$;

CREATE FUNCTION rowlock.new_run_id() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT rowlock.id_floor(clock_timestamp()) | (nextval('rowlock.run_seq') & 4194303) $$;

-- ---------------------------------------------------------------- what runs belong to

CREATE TABLE rowlock.pool (
  pool_id    int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  namespace  text NOT NULL DEFAULT '',
  name       text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT rowlock.now(),
  UNIQUE (namespace, name)
);

CREATE TABLE rowlock.agent (
  agent_id                  int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  namespace                 text NOT NULL DEFAULT '',
  name                      text NOT NULL,
  max_running               int,
  max_running_per_key       int,
  starts_per_minute_per_key int,
  -- Whether any cap is set.
  capped                    boolean GENERATED ALWAYS AS (
    max_running IS NOT NULL OR max_running_per_key IS NOT NULL OR starts_per_minute_per_key IS NOT NULL) STORED,
  -- A run of weight 2 counts half in the queue that all agents share.
  weight                    float8 NOT NULL DEFAULT 1 CHECK (weight > 0),
  UNIQUE (namespace, name)
);

-- What an agent was when a run was accepted; running runs keep theirs.
CREATE TABLE rowlock.agent_revision (
  revision_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  agent_id    int NOT NULL REFERENCES rowlock.agent,
  digest      text NOT NULL,
  entrypoint  text NOT NULL,
  spec        bytea NOT NULL,
  created_at  timestamptz NOT NULL DEFAULT rowlock.now(),
  UNIQUE (agent_id, digest)
);

-- How far the backlog of a capped agent has come: the vft of the run promoted last, for each priority.
CREATE TABLE rowlock.agent_turn (
  agent_id int NOT NULL,
  priority smallint NOT NULL,
  vft      float8 NOT NULL,
  PRIMARY KEY (agent_id, priority)
);

-- Starts of rate-limited keys, which the sliding window counts; `started_at` is NULL from the promotion
-- of a run until a later one has found out when a worker took it.
CREATE TABLE rowlock.run_start (
  run_id     bigint PRIMARY KEY,
  agent_id   int NOT NULL,
  key        text COLLATE "C" NOT NULL,
  started_at timestamptz
);
CREATE INDEX run_start_window ON rowlock.run_start (agent_id, started_at, key);

-- ---------------------------------------------------------------- history

CREATE TABLE rowlock.run (
  run_id      bigint NOT NULL,
  agent_id    int NOT NULL,
  revision_id int NOT NULL,
  pool_id     int NOT NULL,
  key         text,
  priority    smallint NOT NULL,
  linked      boolean NOT NULL,
  created_at  timestamptz NOT NULL,
  input       bytea NOT NULL,
  options     bytea NOT NULL,
  max_takeovers smallint NOT NULL DEFAULT 5,
  pinned      boolean NOT NULL DEFAULT false,
  PRIMARY KEY (run_id)
) PARTITION BY RANGE (run_id);

CREATE TABLE rowlock.run_event (
  run_id  bigint NOT NULL,
  seq     int NOT NULL,
  epoch   int NOT NULL,
  attempt smallint NOT NULL,
  kind    smallint NOT NULL,
  key     text,
  try     smallint NOT NULL,
  at      timestamptz NOT NULL DEFAULT rowlock.now(),
  dur_ms  int,
  body    bytea,
  PRIMARY KEY (run_id, seq)
) PARTITION BY RANGE (run_id);
-- The few events that a status shows, found without reading a long conversation.
CREATE INDEX run_event_lifecycle ON rowlock.run_event (run_id, seq) WHERE kind >= 64;

CREATE TABLE rowlock.run_final (
  run_id      bigint NOT NULL,
  attempt     smallint NOT NULL,
  epoch       int NOT NULL,
  status      smallint NOT NULL CHECK (status IN (1, 2, 3)),
  reason      text,
  message     text,
  outcome     text,
  step        int,
  worker_id   bigint,
  worker      text,
  takeovers   smallint NOT NULL,
  started_at  timestamptz,
  claimed_at  timestamptz,
  finished_at timestamptz NOT NULL DEFAULT rowlock.now(),
  active_ms   bigint NOT NULL DEFAULT 0,
  tokens_in   bigint NOT NULL DEFAULT 0,
  tokens_out  bigint NOT NULL DEFAULT 0,
  cost_micro  bigint NOT NULL DEFAULT 0,
  revision    bigint NOT NULL DEFAULT 0,
  result      bytea,
  carry       jsonb,
  PRIMARY KEY (run_id, attempt)
) PARTITION BY RANGE (run_id);

-- Bodies are compressed by their writers: the server must not try again.
ALTER TABLE rowlock.run ALTER COLUMN input SET STORAGE EXTERNAL;
ALTER TABLE rowlock.run_event ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE rowlock.run_final ALTER COLUMN result SET STORAGE EXTERNAL;

-- One winner for each further attempt that somebody asks for.
CREATE TABLE rowlock.run_attempt (
  run_id     bigint NOT NULL,
  attempt    smallint NOT NULL,
  asked_at   timestamptz NOT NULL DEFAULT rowlock.now(),
  asked_by   text NOT NULL,
  PRIMARY KEY (run_id, attempt)
);

-- Below this id history may be gone.
CREATE TABLE rowlock.history_floor (
  one    boolean PRIMARY KEY DEFAULT true CHECK (one),
  run_id bigint NOT NULL DEFAULT 0
);
INSERT INTO rowlock.history_floor DEFAULT VALUES;

-- ---------------------------------------------------------------- live state
-- `carry` holds what others know and the next owner must write into history first:
-- a JSON array of {"event","epoch","attempt","worker","reason","claimed_at","at","message"}.
-- `revision` is the number of the newest change of the run (0 for runs without a custom resource).
-- `queue_deadline` holds until the first claim, `started_at` is that claim.
-- `vft` is the place in line: in run_ready among all runs of the pool and priority, in run_backlog
-- among those of the agent and priority (see 0005_pre_caps.sql).
-- `takeovers` is how often another worker went on, whoever was to blame; `blamed` is how many of the losses are put down
-- to this run, and the one that maxTakeovers bounds; `suspected` is how many processes died with it that it may have
-- killed, and `quarantined` that it is claimed alone therefore. All that moves a run must take these along.
-- (They stand where alignment would leave a hole, and so take no space.)
-- `build` is the only build of a worker that may go on with it, NULL for any; of a `pinned` run it is the build that
-- began it, of another one that whose steps its history holds: see 0011_pre_builds.sql.

CREATE TABLE rowlock.run_ready (
  run_id         bigint PRIMARY KEY,
  pool_id        int NOT NULL,
  agent_id       int NOT NULL,
  revision_id    int NOT NULL,
  key            text COLLATE "C",
  priority       smallint NOT NULL,
  vft            float8 NOT NULL,
  epoch          int NOT NULL,
  attempt        smallint NOT NULL,
  takeovers      smallint NOT NULL,
  max_takeovers  smallint NOT NULL,
  blamed         smallint NOT NULL DEFAULT 0,
  suspected      smallint NOT NULL DEFAULT 0,
  quarantined    boolean NOT NULL DEFAULT false,
  active_ms      bigint NOT NULL,
  queue_deadline timestamptz,
  linked         boolean NOT NULL,
  revision       bigint NOT NULL,
  carry          jsonb,
  ready_at       timestamptz NOT NULL,
  started_at     timestamptz,
  build          text COLLATE "C",
  pinned         boolean NOT NULL DEFAULT false
);
-- Three lines: what any loop may claim, what only those of one build may, and what is claimed alone.
-- No claim meets a row of another line.
CREATE INDEX run_ready_claim ON rowlock.run_ready (pool_id, priority DESC, vft, run_id)
  WHERE NOT quarantined AND build IS NULL;
CREATE INDEX run_ready_build ON rowlock.run_ready (pool_id, build, priority DESC, vft, run_id) WHERE build IS NOT NULL;
CREATE INDEX run_ready_quarantine ON rowlock.run_ready (pool_id, priority DESC, vft, run_id) WHERE quarantined;
CREATE INDEX run_ready_deadline ON rowlock.run_ready (queue_deadline) WHERE queue_deadline IS NOT NULL;

CREATE TABLE rowlock.run_backlog (LIKE rowlock.run_ready INCLUDING DEFAULTS, PRIMARY KEY (run_id));
CREATE INDEX run_backlog_front ON rowlock.run_backlog (agent_id, priority DESC, vft, run_id);
CREATE INDEX run_backlog_key ON rowlock.run_backlog (agent_id, coalesce(key, ''), priority DESC, vft, run_id);
-- Those that ran before: no limit on starts holds them back.
CREATE INDEX run_backlog_again ON rowlock.run_backlog (agent_id, coalesce(key, ''), priority DESC, vft, run_id)
  WHERE started_at IS NOT NULL;
CREATE INDEX run_backlog_deadline ON rowlock.run_backlog (queue_deadline) WHERE queue_deadline IS NOT NULL;

CREATE TABLE rowlock.run_timer (
  LIKE rowlock.run_ready INCLUDING DEFAULTS,
  due_at timestamptz NOT NULL,
  reason smallint NOT NULL,
  PRIMARY KEY (run_id)
);
CREATE INDEX run_timer_due ON rowlock.run_timer (due_at);
CREATE INDEX run_timer_deadline ON rowlock.run_timer (queue_deadline) WHERE queue_deadline IS NOT NULL;

CREATE TABLE rowlock.run_parked (
  LIKE rowlock.run_ready INCLUDING DEFAULTS,
  reasons text[] NOT NULL,
  wake_at timestamptz,
  PRIMARY KEY (run_id)
);
CREATE INDEX run_parked_wake ON rowlock.run_parked (wake_at) WHERE wake_at IS NOT NULL;

CREATE TABLE rowlock.run_lease (
  LIKE rowlock.run_ready INCLUDING DEFAULTS,
  worker_id   bigint NOT NULL,
  claim_token bigint NOT NULL,
  claimed_at  timestamptz NOT NULL,
  PRIMARY KEY (run_id)
);
CREATE INDEX run_lease_worker ON rowlock.run_lease (worker_id);
CREATE INDEX run_lease_capped ON rowlock.run_lease (agent_id, key);
-- For counting a cap, and for the end of the line of a key.
CREATE INDEX run_ready_line ON rowlock.run_ready (agent_id, key, priority, pool_id, vft);

-- One more entry behind those that the lease of `epoch` has not written into history yet.
-- That owner writes them all before anything else, each as one event of its own epoch;
-- `written_now` counts those that the calling statement itself is writing, which no snapshot of it shows.
CREATE FUNCTION rowlock.carry_on(run bigint, lease_epoch int, carried jsonb, entry jsonb, written_now bigint DEFAULT 0)
RETURNS jsonb LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN carried IS NULL OR jsonb_array_length(carried) <= written_now + (
                SELECT count(*) FROM rowlock.run_event e
                WHERE e.run_id = run AND e.epoch = lease_epoch AND e.kind >= 64)
              THEN '[]'::jsonb ELSE carried END || entry
$$;

-- What somebody asked of a run, until it is done or the run is final.
-- A wish to suspend stands for as long as the run is to be suspended; `settled` says that it is.
CREATE TABLE rowlock.wish (
  run_id   bigint NOT NULL,
  kind     smallint NOT NULL,
  asked_at timestamptz NOT NULL DEFAULT rowlock.now(),
  asked_by text NOT NULL,
  reason   text,
  settled  boolean NOT NULL DEFAULT false,
  PRIMARY KEY (run_id, kind)
);
CREATE INDEX wish_suspend ON rowlock.wish (run_id) WHERE kind = 2 AND NOT settled;

-- What a cancelled run's owner reads, or NULL where nobody wished to cancel it.
CREATE FUNCTION rowlock.cancel_wish(run bigint) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT 'cancelled by ' || w.asked_by || coalesce(': ' || w.reason, '')
  FROM rowlock.wish w WHERE w.run_id = run AND w.kind = 1
$$;

CREATE TABLE rowlock.approval (
  run_id     bigint NOT NULL,
  step_key   text NOT NULL,
  digest     text NOT NULL,
  attempt    smallint NOT NULL,
  tool       text NOT NULL,
  question   bytea NOT NULL,
  asked_at   timestamptz NOT NULL DEFAULT rowlock.now(),
  expires_at timestamptz,
  decided_at timestamptz,
  decision   smallint,
  decided_by text,
  reason     text,
  PRIMARY KEY (run_id, step_key, digest, attempt)
);
CREATE INDEX approval_expiry ON rowlock.approval (expires_at) WHERE decided_at IS NULL;

-- ---------------------------------------------------------------- workers

-- One row a boot of one process, never reused: identity and fence. Almost never updated.
CREATE TABLE rowlock.worker (
  worker_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  pool_id       int NOT NULL,
  instance      text COLLATE "C" NOT NULL,
  name          text NOT NULL,
  pod_uid       text,
  -- Of its pod: name of the cluster as its operator knows it; NULL outside Kubernetes.
  cluster       text,
  -- The operator found its node lost: once its lease lapses, that is why.
  node_lost     boolean NOT NULL DEFAULT false,
  node          text,
  pid           int NOT NULL,
  build         text NOT NULL,
  started_at    timestamptz NOT NULL DEFAULT rowlock.now(),
  lease_seconds float8 NOT NULL CHECK (lease_seconds > 0),
  claim_floor   bigint NOT NULL DEFAULT 0,
  fenced_at     timestamptz,
  fence_reason  text,
  -- Holds one run at a time, one that may be what killed other processes.
  quarantine    boolean NOT NULL DEFAULT false,
  -- Whose code its event loop executed when it ended, as its supervisor saw; NULL where nobody knows.
  run_on_loop   bigint,
  -- Until then it claims nothing: the autoscaler is about to take its pod away. It lapses by itself, so that
  -- no worker stays idle for an operator that is gone. 'infinity' for one that is there for pinned runs of its build.
  rests_until   timestamptz
);
CREATE INDEX worker_quarantine ON rowlock.worker (pool_id) WHERE quarantine AND fenced_at IS NULL;
CREATE INDEX worker_instance ON rowlock.worker (instance) WHERE fenced_at IS NULL;
CREATE INDEX worker_pod ON rowlock.worker (pod_uid) WHERE fenced_at IS NULL AND pod_uid IS NOT NULL;

-- Updated with every beat, always in place: no secondary index, much free space.
CREATE TABLE rowlock.worker_beat (
  worker_id bigint PRIMARY KEY,
  beat_at   timestamptz NOT NULL,
  slots     int NOT NULL,
  running   int NOT NULL,
  lag_ms    int NOT NULL,
  draining  boolean NOT NULL,
  -- Of the last half minute: tries of steps, and those of them that were told to come again later.
  tries     int NOT NULL DEFAULT 0,
  refused   int NOT NULL DEFAULT 0,
  -- How long PostgreSQL takes for a batch of history, as the process sees it.
  commit_ms int NOT NULL DEFAULT 0,
  -- How full the CPU of the whole worker is; 0 where nobody knows.
  cpu_percent int NOT NULL DEFAULT 0
) WITH (fillfactor = 20);

-- `granted_at`: every lease counts as renewed then (the reaper itself was away, so nobody could renew).
-- `mass_since`: since when most pods look dead at once, NULL while they do not.
CREATE TABLE rowlock.reaper (
  one        boolean PRIMARY KEY DEFAULT true CHECK (one),
  tick_at    timestamptz NOT NULL DEFAULT rowlock.now(),
  granted_at timestamptz NOT NULL DEFAULT rowlock.now(),
  mass_since timestamptz
);
INSERT INTO rowlock.reaper DEFAULT VALUES;

-- ---------------------------------------------------------------- submission and the Kubernetes link

CREATE TABLE rowlock.run_dedup (
  agent_id     int NOT NULL,
  idem_key     text NOT NULL,
  run_id       bigint NOT NULL,
  input_sha    bytea NOT NULL,
  created_at   timestamptz NOT NULL DEFAULT rowlock.now(),
  PRIMARY KEY (agent_id, idem_key)
);

-- Which custom resource a run belongs to; `cluster` is the uid of the kube-system namespace.
CREATE TABLE rowlock.run_object (
  cluster    text NOT NULL,
  uid        text NOT NULL,
  run_id     bigint NOT NULL,
  namespace  text NOT NULL,
  name       text NOT NULL,
  generation bigint NOT NULL,
  PRIMARY KEY (cluster, uid)
);
CREATE UNIQUE INDEX run_object_run ON rowlock.run_object (run_id);

CREATE SEQUENCE rowlock.revision_seq AS bigint;

-- Visible transitions that no mirror has shown and announced yet.
CREATE TABLE rowlock.run_change (
  seq    bigint PRIMARY KEY,
  run_id bigint NOT NULL,
  kind   smallint NOT NULL,
  epoch  int NOT NULL,
  at     timestamptz NOT NULL DEFAULT rowlock.now(),
  -- Made by the sweep to show the same revision again.
  again  boolean NOT NULL DEFAULT false
);
CREATE INDEX run_change_run ON rowlock.run_change (run_id);

-- ---------------------------------------------------------------- upkeep of hot tables

-- Prepared statements keep the plan of the moment when they were prepared, and on an empty table that may be
-- to read it from end to end. Some pages of dead rows, which vacuum keeps (vacuum_truncate), rule that out.
INSERT INTO rowlock.run_ready (run_id, pool_id, agent_id, revision_id, priority, vft, epoch, attempt, takeovers,
                               max_takeovers, active_ms, linked, revision, carry, ready_at)
  SELECT n, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, false, 0, to_jsonb(repeat('x', 1700)), now() FROM generate_series(1, 240) n;
INSERT INTO rowlock.run_backlog SELECT * FROM rowlock.run_ready;
INSERT INTO rowlock.run_timer SELECT q.*, now(), 1 FROM rowlock.run_ready q;
INSERT INTO rowlock.run_parked SELECT q.*, '{}', NULL FROM rowlock.run_ready q;
INSERT INTO rowlock.run_lease SELECT q.*, 0, 0, now() FROM rowlock.run_ready q;
INSERT INTO rowlock.wish SELECT n, 0, now(), '', repeat('x', 1700) FROM generate_series(1, 240) n;
INSERT INTO rowlock.run_change SELECT n, 0, 0, 0, now() FROM generate_series(1, 10000) n;
INSERT INTO rowlock.run_object SELECT '', n::text, n, '', repeat('x', 1700), 0 FROM generate_series(1, 240) n;
INSERT INTO rowlock.run_dedup SELECT 0, n::text, 0, repeat('x', 1700)::bytea, now() FROM generate_series(1, 240) n;
INSERT INTO rowlock.run_start SELECT n, 0, repeat('x', 1700) FROM generate_series(1, 240) n;
DELETE FROM rowlock.run_ready;
DELETE FROM rowlock.run_backlog;
DELETE FROM rowlock.run_timer;
DELETE FROM rowlock.run_parked;
DELETE FROM rowlock.run_lease;
DELETE FROM rowlock.wish;
DELETE FROM rowlock.run_change;
DELETE FROM rowlock.run_object;
DELETE FROM rowlock.run_dedup;
DELETE FROM rowlock.run_start;
INSERT INTO rowlock.run_attempt SELECT n, 0, now(), repeat('x', 1700) FROM generate_series(1, 240) n;
INSERT INTO rowlock.approval SELECT n, '', '', 0, '', repeat('x', 1700)::bytea FROM generate_series(1, 240) n;
DELETE FROM rowlock.run_attempt;
DELETE FROM rowlock.approval;
ALTER TABLE rowlock.run_object SET (vacuum_truncate = off);
ALTER TABLE rowlock.run_dedup SET (vacuum_truncate = off);
ALTER TABLE rowlock.run_attempt SET (vacuum_truncate = off);
ALTER TABLE rowlock.approval SET (vacuum_truncate = off);

DO $$
DECLARE t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['run_ready', 'run_backlog', 'run_timer', 'run_parked', 'run_lease', 'run_change', 'wish',
                           'run_start'] LOOP
    EXECUTE format('ALTER TABLE rowlock.%I SET (autovacuum_vacuum_scale_factor = 0,
      autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off)', t);
  END LOOP;
END $$;

-- Make the partitions of yesterday, today and `ahead` days; workers may call it, so a missing day never stops a write.
-- ATTACH, not PARTITION OF: the latter locks the parent against all reads and writes.
CREATE FUNCTION rowlock.ensure_partitions(ahead int) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE day date; parent text; part text; made int := 0;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('rowlock.ensure_partitions'));
  FOR day IN SELECT generate_series((now() AT TIME ZONE 'UTC')::date - 1,
                                    (now() AT TIME ZONE 'UTC')::date + least(ahead, 31), interval '1 day')::date LOOP
    FOREACH parent IN ARRAY ARRAY['run', 'run_event', 'run_final'] LOOP
      part := parent || '_' || to_char(day, 'YYYYMMDD');
      CONTINUE WHEN to_regclass('rowlock.' || part) IS NOT NULL;
      EXECUTE format('CREATE TABLE rowlock.%I (LIKE rowlock.%I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)',
        part, parent);
      EXECUTE format('ALTER TABLE rowlock.%I ATTACH PARTITION rowlock.%I FOR VALUES FROM (%s) TO (%s)', parent, part,
        rowlock.id_floor(day::timestamp AT TIME ZONE 'UTC'), rowlock.id_floor((day + 1)::timestamp AT TIME ZONE 'UTC'));
      made := made + 1;
    END LOOP;
  END LOOP;
  RETURN made;
END $$;
