"""What Alembic runs for every command: the connection and the tables it is about."""

from __future__ import annotations

from alembic import context

from sotopia_env.service.store import tables

context.configure(
    connection=context.config.attributes["connection"], target_metadata=tables.metadata, render_as_batch=True
)
with context.begin_transaction():
    context.run_migrations()
