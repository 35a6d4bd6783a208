"""Runs written by several processes, each in a directory of its own under ``RUN/shards``, merged into the run.

An episode is merged under its key, so it stands in ``episodes.jsonl`` once however often the merging was cut short. A
ledger's lines have no key; their merging is announced in a file first, and taken back when it was cut short.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Collection
from pathlib import Path

from sotopia_env.chat_model.spending.ledger import LEDGER
from sotopia_env.errors import InvalidValueError, Where
from sotopia_env.files import repair_torn_line, write_text_atomically
from sotopia_env.json_text import read_json
from sotopia_env.storage.directory import RunDirectory, read_failures, read_run
from sotopia_env.storage.manifest import EPISODES, RUN, UNFINISHED, FailureRecord

logger = logging.getLogger(__name__)
SHARDS = "shards"
_INTENT = "merging.json"


def shard_path(run: Path, number: int) -> Path:
    """Returns the directory of one process."""
    return run / SHARDS / f"{number:05d}"


def merge_shards(run: RunDirectory) -> tuple[int, tuple[FailureRecord, ...]]:
    """Takes everything from the shards into the run, and removes them.

    No process may be writing to a shard, and none the run's ledger.

    Returns:
        How many episodes were new to the run, and the failures of those that are still missing.
    """
    root = run.path / SHARDS
    if not root.is_dir():
        return 0, ()
    _take_back(run.path)
    count = 0
    failures: dict[str, FailureRecord] = {}
    for shard in sorted(path for path in root.iterdir() if path.is_dir()):
        if (shard / RUN).exists() and (shard / EPISODES).exists():  # else it was killed before it had written anything
            count += _merge_episodes(run, shard)
            failures |= {failure.key: failure for failure in read_failures(shard)}
        _merge_ledger(run.path, shard)
        shutil.rmtree(shard)
    root.rmdir()
    outstanding = tuple(failure for key, failure in failures.items() if key not in run.done)
    for failure in outstanding:
        run.append_failure(failure)
    return count, outstanding


def hand_out(run: RunDirectory, shard: Path, keys: Collection[str]) -> None:
    """Writes what the run has of unfinished episodes into the shard that is to play them."""
    lines = [part.model_dump_json() for key in sorted(keys) for part in run.unfinished.records(key)]
    if lines:
        write_text_atomically(shard / UNFINISHED, "".join(f"{line}\n" for line in lines))


def _merge_episodes(run: RunDirectory, shard: Path) -> int:
    before = len(run.done)
    with RunDirectory(shard) as directory:  # refuses if a process still writes there
        for episode in read_run(shard):
            run.check(episode, Where(shard))
            if episode.key not in run.done:
                run.append(episode)
        for key in directory.unfinished:  # each begins with the parts that were handed out
            for part in directory.unfinished.records(key)[len(run.unfinished.records(key)) :]:
                run.unfinished.append(part)
    return len(run.done) - before


def _merge_ledger(run: Path, shard: Path) -> None:
    target, source, intent = run / LEDGER, shard / LEDGER, run / SHARDS / _INTENT
    if not source.exists():
        return
    repair_torn_line(target)
    repair_torn_line(source)
    size = target.stat().st_size if target.exists() else 0
    write_text_atomically(intent, json.dumps({"shard": shard.name, "size": size}))
    with target.open("ab") as stream:
        stream.write(source.read_bytes())
        stream.flush()
        os.fsync(stream.fileno())
    source.unlink()  # from here on the merging stands
    intent.unlink()


def _take_back(run: Path) -> None:
    """Removes from the run's ledger what a merging that was cut short had added; it is merged again."""
    intent = run / SHARDS / _INTENT
    if not intent.exists():
        return
    try:
        note = read_json(intent)
        shard, size = run / SHARDS / str(note["shard"]), int(note["size"])
    except (ValueError, KeyError, TypeError):
        raise InvalidValueError(expected="the note of a merging", where=intent) from None
    if (shard / LEDGER).exists() and (run / LEDGER).exists():
        logger.warning("%s: merging the ledger of shard %s was cut short; it is merged again", run, shard.name)
        os.truncate(run / LEDGER, size)
    intent.unlink()
