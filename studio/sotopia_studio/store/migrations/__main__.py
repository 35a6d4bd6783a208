"""Writes a revision that brings the schema of the last one to the present tables."""

from __future__ import annotations

import sys

from alembic import command
from sqlalchemy import create_engine

from sotopia_studio.store.migrations import config_of

if __name__ == "__main__":
    with create_engine("sqlite://").begin() as connection:
        config = config_of(connection)
        command.upgrade(config, "head")
        command.revision(config, " ".join(sys.argv[1:]), autogenerate=True)
