"""Run directories as pages: read-only in a browser, or as one file that needs no network."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from sotopia_env.foundation.files import write_text_atomically
from sotopia_env.people.seat.conversation import show
from sotopia_env.storage import read_run
from sotopia_env.world.play.table import Table
from sotopia_studio.pages.episodes import one_file
from sotopia_studio.store import episodes, runs
from sotopia_studio.store.engine import Database
from sotopia_studio.work.batch import import_run


def export(paths: Sequence[Path], out: Path) -> int:
    """Writes the episodes of run directories and ``.jsonl`` files as one HTML file, and returns how many there are.

    Raises:
        InvalidValueError: a path is neither.
        DamagedRecordError: a record cannot be read.
    """
    views = []
    for number, episode in enumerate((episode for path in paths for episode in read_run(path)), start=1):
        policies = {policy.agent: policy.name for policy in episode.policies}
        views.append(show(str(number), Table.resume(episode), policies=policies))
    write_text_atomically(out, one_file(views, ", ".join(path.name for path in paths)))
    return len(views)


async def load(database: Database, paths: Sequence[Path]) -> int:
    """Reads runs into a database and returns how many episodes there are; raises as :func:`export`."""
    count = 0
    for path in paths:
        if path.is_dir():
            count += (await import_run(database, path))[1]
            continue
        # The whole file is read before the transaction, so a damaged record adds no run.
        listed = list(read_run(path))
        async with database.write() as connection:
            run = await runs.add(connection, "", name=path.name, planned=len(listed), status="done")
            await episodes.add_recorded(connection, run, [(episode, "") for episode in listed], time.time())
            await runs.change(connection, run, played=len(listed), finished=time.time())
        count += len(listed)
    return count
