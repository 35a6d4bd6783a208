"""The files of a run on disk: reading, writing and resuming them."""

from sotopia_env.storage.directory import read_run
from sotopia_env.storage.journal import Journal

__all__ = [
    "Journal",
    "read_run",
]
