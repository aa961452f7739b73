-- When the custom resource of a run is to be deleted: one row a run that has a time to live, none for all others.

CREATE TABLE rowlock.run_ttl (
  run_id       bigint PRIMARY KEY,
  -- What the custom resource says; it may change at any time.
  own_seconds  int,
  -- What the Agent or the installation said when the run was accepted.
  else_seconds int,
  -- NULL while the run has not ended, or has no time to live any more.
  delete_at    timestamptz
);
CREATE INDEX run_ttl_due ON rowlock.run_ttl (delete_at) WHERE delete_at IS NOT NULL;

-- Pages of dead rows that vacuum keeps: no plan of an empty table reads it from end to end (see 0001_pre_schema.sql).
INSERT INTO rowlock.run_ttl SELECT n FROM generate_series(1, 10000) n;
DELETE FROM rowlock.run_ttl;
ALTER TABLE rowlock.run_ttl SET (vacuum_truncate = off);

SELECT rowlock.grant_roles();
