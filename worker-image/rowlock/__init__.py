"""Rowlock: durable AI-agent runs, checkpointed in PostgreSQL."""
