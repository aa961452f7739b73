-- The schema's own version, and what stands between us and the server.

-- name: schema_version
-- Read the number of the newest migration that must precede the code.
SELECT coalesce(max(number), 0) AS number FROM rowlock.migration WHERE phase = 'pre';

-- name: lock_migrations
-- Let one process migrate at a time; the table is made under the same lock.
SELECT pg_advisory_xact_lock(hashtext('rowlock.migrate'));

-- name: create_schema
-- Make the schema where there is none.
CREATE SCHEMA IF NOT EXISTS rowlock;

-- name: create_migration_table
-- Make the table of applied migrations where there is none.
CREATE TABLE IF NOT EXISTS rowlock.migration (
  number     int PRIMARY KEY,
  name       text NOT NULL,
  phase      text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- name: has_migration_table
-- Say whether any migration was ever tried.
SELECT to_regclass('rowlock.migration') IS NOT NULL AS there;

-- name: applied_migrations
-- Read the names of applied migrations.
SELECT name FROM rowlock.migration ORDER BY number;

-- name: record_migration
-- Note that migration $1 with name $2 and phase $3 is applied.
INSERT INTO rowlock.migration (number, name, phase) VALUES ($1::int, $2::text, $3::text);

-- name: backend_pid
-- Read the process id of the session behind whatever stands between.
SELECT pg_backend_pid();

-- name: knows_prepared
-- Say whether this session has a prepared statement by the name $1.
SELECT EXISTS (SELECT FROM pg_catalog.pg_prepared_statements p WHERE p.name = $1::text);
