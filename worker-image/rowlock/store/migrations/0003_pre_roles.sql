-- Four roles: the owner (who migrates), worker, operator and reader. None may log in: grant them to your login roles.
-- A worker changes no definition and deletes no history.
-- Roles belong to the whole server: where this role may not create them, an administrator does it and migrates again.

DO $$
DECLARE wanted text;
BEGIN
  FOREACH wanted IN ARRAY ARRAY['rowlock_reader', 'rowlock_worker', 'rowlock_operator'] LOOP
    CONTINUE WHEN EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = wanted);
    BEGIN
      EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
    EXCEPTION
      -- Another database of this server is migrated at the same time.
      WHEN duplicate_object OR unique_violation THEN NULL;
      WHEN insufficient_privilege THEN
        RAISE NOTICE 'role % is missing and % may not create it: create it, then call rowlock.grant_roles()', wanted, current_user;
    END;
  END LOOP;
END $$;

-- Give each of the roles that exist what it needs; call it again after creating one by hand.
CREATE FUNCTION rowlock.grant_roles() RETURNS void LANGUAGE plpgsql AS $$
DECLARE who text; what text;
BEGIN
  FOR who IN SELECT rolname FROM pg_catalog.pg_roles WHERE rolname IN ('rowlock_reader', 'rowlock_worker', 'rowlock_operator') LOOP
    EXECUTE format('GRANT USAGE ON SCHEMA rowlock TO %I', who);
    EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA rowlock TO %I', who);
    CONTINUE WHEN who = 'rowlock_reader';
    EXECUTE format('GRANT USAGE ON ALL SEQUENCES IN SCHEMA rowlock TO %I', who);
    FOREACH what IN ARRAY ARRAY[
      'INSERT ON rowlock.pool, rowlock.run, rowlock.run_event, rowlock.run_final, rowlock.run_attempt',
      'INSERT ON rowlock.run_dedup, rowlock.run_object, rowlock.run_change',
      'INSERT, DELETE ON rowlock.run_ready, rowlock.run_backlog, rowlock.run_timer, rowlock.run_parked, rowlock.run_lease',
      -- SELECT ... FOR UPDATE asks for UPDATE on one column at least.
      'UPDATE (run_id) ON rowlock.run_ready, rowlock.run_backlog, rowlock.run_timer, rowlock.run_parked',
      'UPDATE (build) ON rowlock.run_ready',
      'UPDATE (run_id, revision) ON rowlock.run_lease',
      'INSERT, UPDATE, DELETE ON rowlock.run_start',
      'INSERT, UPDATE ON rowlock.agent_turn',
      'INSERT, UPDATE, DELETE ON rowlock.wish',
      'UPDATE (one) ON rowlock.history_floor',
      'INSERT, UPDATE ON rowlock.approval, rowlock.worker, rowlock.worker_beat',
      'UPDATE ON rowlock.reaper'
    ] LOOP
      EXECUTE format('GRANT %s TO %I', what, who);
    END LOOP;
    EXECUTE format('GRANT EXECUTE ON FUNCTION rowlock.ensure_partitions(int) TO %I', who);
  END LOOP;
  IF EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'rowlock_operator') THEN
    GRANT INSERT, UPDATE ON rowlock.agent, rowlock.agent_revision TO rowlock_operator;
    GRANT DELETE ON rowlock.run_change, rowlock.run_object TO rowlock_operator;
    GRANT UPDATE ON rowlock.run_change TO rowlock_operator;
    GRANT UPDATE (priority, vft) ON rowlock.run_ready, rowlock.run_backlog, rowlock.run_parked TO rowlock_operator;
    -- Of a later migration.
    IF to_regclass('rowlock.run_ttl') IS NOT NULL THEN
      GRANT INSERT, UPDATE, DELETE ON rowlock.run_ttl TO rowlock_operator;
    END IF;
  END IF;
END $$;

REVOKE EXECUTE ON FUNCTION rowlock.ensure_partitions(int), rowlock.grant_roles() FROM PUBLIC;
SELECT rowlock.grant_roles();
SELECT rowlock.ensure_partitions(7);
