-- Whole databases. Their names cannot be parameters, so the text is written by the server.

-- name: copy_database_text
-- Write the statement that makes database $1 as a copy of this one.
SELECT format('CREATE DATABASE %I TEMPLATE %I STRATEGY FILE_COPY', $1::text, current_database()) AS text;

-- name: untemplate_database_text
-- Write the statement that makes database $1 an ordinary one.
SELECT format('ALTER DATABASE %I IS_TEMPLATE false', $1::text) AS text;

-- name: drop_database_text
-- Write the statement that drops database $1 with its sessions.
SELECT format('DROP DATABASE IF EXISTS %I WITH (FORCE)', $1::text) AS text;
