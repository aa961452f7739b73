-- Batches: many runs of one agent that one object asks for.
--
-- An item waits as a row here and becomes a run only when it is its turn, so a batch of a hundred thousand
-- fills no queue. Those under way ("open": a run, and no status yet) are never more than `parallelism`:
-- whoever moves a batch on holds its row, counts the open ones and starts no more than what is left.
-- All that such a round reads is by index and bounded by the open ones, however many items there are.
-- Nothing starts before all items are known (`sealed`), so a line that is wrong costs nothing.

CREATE TABLE rowlock.batch (
  batch_id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  cluster       text NOT NULL,
  uid           text NOT NULL,
  namespace     text NOT NULL,
  name          text NOT NULL,
  -- What each item is run with, as it was resolved when the batch was accepted.
  agent_id      int NOT NULL,
  revision_id   int NOT NULL,
  pool_id       int NOT NULL,
  key           text,
  priority      smallint NOT NULL,
  max_takeovers smallint NOT NULL,
  queue_deadline_seconds float8,
  options       bytea NOT NULL,
  pinned        boolean NOT NULL DEFAULT false,
  -- What may change.
  parallelism   int,
  max_failed_percent smallint NOT NULL,
  suspended     boolean NOT NULL DEFAULT false,
  -- What is materialized: 0 nothing, 1 failed items, 2 all items; and how many objects were given a name.
  materialize   smallint NOT NULL,
  objects       int NOT NULL DEFAULT 0,
  -- All items are known.
  sealed        boolean NOT NULL DEFAULT false,
  -- The run that reads the items; NULL where they came with the object.
  reader_run    bigint,
  -- Why nothing more is started, and whether open items may still be held by a wish to suspend.
  stopped       text,
  stop_message  text NOT NULL DEFAULT '',
  held          boolean NOT NULL DEFAULT false,
  -- The object is gone: the rows go once all has ended.
  departed      boolean NOT NULL DEFAULT false,
  total         int NOT NULL DEFAULT 0,
  fed           int NOT NULL DEFAULT 0,
  -- The place up to which all items have a run: the index holds dead entries of those until it is vacuumed.
  fed_place     int NOT NULL DEFAULT 0,
  succeeded     int NOT NULL DEFAULT 0,
  failed        int NOT NULL DEFAULT 0,
  cancelled     int NOT NULL DEFAULT 0,
  takeovers     int NOT NULL DEFAULT 0,
  created_at    timestamptz NOT NULL DEFAULT rowlock.now(),
  started_at    timestamptz,
  finished_at   timestamptz,
  moved_at      timestamptz NOT NULL DEFAULT '-infinity',
  UNIQUE (cluster, uid)
) WITH (fillfactor = 50);
CREATE INDEX batch_active ON rowlock.batch (batch_id) WHERE finished_at IS NULL;
CREATE INDEX batch_departed ON rowlock.batch (batch_id) WHERE departed;

CREATE TABLE rowlock.batch_item (
  batch_id    bigint NOT NULL,
  -- The line, or the place in the object's list, from 1 on.
  place       int NOT NULL,
  item        text COLLATE "C" NOT NULL,
  run_id      bigint,
  -- How its run ended, as `run_final.status`; NULL before.
  status      smallint,
  reason      text,
  -- The AgentRun that shows it: its name is written here before it is created, its uid after.
  object_name text COLLATE "C",
  object_uid  text,
  -- None is made any more: it was refused for good, or its batch stopped before.
  object_refused boolean NOT NULL DEFAULT false,
  input       bytea NOT NULL,
  PRIMARY KEY (batch_id, item)
);
ALTER TABLE rowlock.batch_item ALTER COLUMN input SET STORAGE EXTERNAL;
CREATE INDEX batch_item_waiting ON rowlock.batch_item (batch_id, place) WHERE run_id IS NULL;
CREATE INDEX batch_item_open ON rowlock.batch_item (batch_id) WHERE run_id IS NOT NULL AND status IS NULL;
CREATE INDEX batch_item_failed ON rowlock.batch_item (batch_id, place) WHERE status = 2;
CREATE INDEX batch_item_unnamed ON rowlock.batch_item (batch_id, place) WHERE status = 2 AND object_name IS NULL;
CREATE INDEX batch_item_unmade ON rowlock.batch_item (batch_id) WHERE object_name IS NOT NULL AND object_uid IS NULL;
CREATE UNIQUE INDEX batch_item_object ON rowlock.batch_item (object_name) WHERE object_name IS NOT NULL;

-- Pages of dead rows, which vacuum keeps, so that no plan is made to read this table from end to end:
-- see the end of 0001_pre_schema.sql.
INSERT INTO rowlock.batch_item (batch_id, place, item, run_id, status, object_name, input)
  SELECT 0, n, n::text, n, n % 4, 'object ' || n, repeat('x', 1700)::bytea FROM generate_series(1, 240) n;
DELETE FROM rowlock.batch_item;
ALTER TABLE rowlock.batch_item SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05,
  vacuum_truncate = off);

-- What earlier migrations granted, and the tables of this one.
ALTER FUNCTION rowlock.grant_roles() RENAME TO grant_roles_without_batches;
CREATE FUNCTION rowlock.grant_roles() RETURNS void LANGUAGE plpgsql AS $$
DECLARE who text;
BEGIN
  PERFORM rowlock.grant_roles_without_batches();
  FOR who IN SELECT rolname FROM pg_catalog.pg_roles WHERE rolname IN ('rowlock_worker', 'rowlock_operator') LOOP
    EXECUTE format('GRANT INSERT, UPDATE ON rowlock.batch, rowlock.batch_item TO %I', who);
  END LOOP;
  IF EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'rowlock_operator') THEN
    GRANT DELETE ON rowlock.batch, rowlock.batch_item TO rowlock_operator;
  END IF;
END $$;
REVOKE EXECUTE ON FUNCTION rowlock.grant_roles() FROM PUBLIC;
SELECT rowlock.grant_roles();
