"""Writes a revision that updates the schema of an older database to the current tables."""

from __future__ import annotations

import sys

from alembic import command
from sqlalchemy import create_engine

from sotopia_studio.store.migrations import config_of

if __name__ == "__main__":
    file, *message = sys.argv[1:]
    with create_engine(f"sqlite:///{file}").begin() as connection:
        command.revision(config_of(connection), " ".join(message), autogenerate=True)
