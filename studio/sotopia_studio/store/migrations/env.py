"""Alembic environment: configures the connection and the tables for every Alembic command."""

from __future__ import annotations

from alembic import context

from sotopia_studio.store import tables

# Batch mode, because SQLite cannot alter a column in place: Alembic copies the table.
context.configure(
    connection=context.config.attributes["connection"], target_metadata=tables.metadata, render_as_batch=True
)
with context.begin_transaction():
    context.run_migrations()
