"""Parts of a run: shares that processes or machines play on their own, and their merging into the run.

Part 3 of 16 plays every 16th episode of the plan, from the third, in ``RUN/parts/03-of-16``. That is a run directory
as any other: locked, and resumed by the same command after a kill. Merging takes everything from the parts into the run
and removes them; it may be cut short at any moment, and is then finished the next time. An episode is merged under its
key. A ledger's lines have no key; their merging is announced in a file first, and taken back when it was cut short.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sotopia_env.chat_model import Ledger, ModelOptions, read_ledger
from sotopia_env.chat_model.spending.ledger import LEDGER
from sotopia_env.errors import DamagedRecordError, InvalidValueError, Where, excerpt
from sotopia_env.files import repair_torn_line, write_text_atomically
from sotopia_env.json_text import read_json
from sotopia_env.runs.plan import set_hash
from sotopia_env.storage.directory import RunDirectory, read_run, read_unfinished
from sotopia_env.storage.manifest import EPISODES, RUN, RunConfig, read_manifest
from sotopia_env.storage.recordings import PlayKey, play_key

logger = logging.getLogger(__name__)
PARTS = "parts"
_INTENT = "merging.json"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Part:
    """A share of a run.

    Attributes:
        number: from 1 to ``count``.
        count: of the parts that the run is divided into.
    """

    number: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise InvalidValueError(
                field="part", expected=f"1/{self.count} to {self.count}/{self.count}", got=str(self)
            )

    @classmethod
    def parse(cls, text: str) -> Part:
        """Returns the part that a text such as ``3/16`` names.

        Raises:
            InvalidValueError: it names none.
        """
        number, slash, count = text.partition("/")
        if not (slash and number.isdecimal() and count.isdecimal()):
            raise InvalidValueError(field="part", expected="a number and how many there are, such as 3/16", got=text)
        return cls(int(number), int(count))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def of(self, plans: Sequence[_T]) -> list[_T]:
        """Returns this part of the plans."""
        return list(plans[self.number - 1 :: self.count])

    def path(self, run: Path) -> Path:
        """Returns the directory of this part of a run."""
        return run / PARTS / f"{self.number:0{len(str(self.count))}d}-of-{self.count}"

    def limits(self, options: ModelOptions, run: Path) -> ModelOptions:
        """Returns how this part reaches its models: an equal share of every limit, and of what is left to spend.

        Raises:
            BudgetExceededError: what is merged into the run already has used everything.
        """
        with Ledger(max_cost=options.max_cost, max_tokens=options.max_tokens) as ledger:
            for entry in read_ledger(run) if (run / LEDGER).exists() else ():
                ledger.record(entry)
            ledger.check()
            return options.share(self.count, ledger.totals())


def take_over(part: RunDirectory, run: Path, keys: Collection[str]) -> None:
    """Has the part with these episodes leave out what its run has already, and go on with what its run has begun."""
    if not (run / RUN).exists():
        return
    part.elsewhere |= {episode.key for episode in read_run(run)}
    begun = set(part.unfinished)
    for item in read_unfinished(run):
        if item.key in keys and item.key not in begun:
            part.unfinished.append(item)


def check_division(run: Path, part: Part, config: RunConfig) -> None:
    """Checks that a part is one of this run, and that the run is divided into as many.

    Raises:
        InvalidValueError: it is not.
    """
    if (run / RUN).exists():
        read_manifest(run).adds(config, run)
    others = [path.name for path in _directories(run) if not path.name.endswith(f"-of-{part.count}")]
    if others:
        raise InvalidValueError(
            field="part",
            expected=f"a share like {others[0]}",
            got=str(part),
            hint="merge what was played first",
            where=run / PARTS,
        )


# --- merging ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MergeResult:
    """Counts of a merging.

    Attributes:
        planned: episodes of the whole run; ``None`` where it is of several plans.
        recorded: episodes that it has now.
        new: how many of these came from parts now.
        failed: episodes that could not be finished.
        absent: the parts that were not there, where these were the first to be merged.
    """

    planned: int | None
    recorded: int
    new: int
    failed: int
    absent: tuple[str, ...] = ()

    @property
    def missing(self) -> int:
        """Episodes that were neither recorded nor failed."""
        return 0 if self.planned is None else self.planned - self.recorded - self.failed


def merge_run(path: Path) -> MergeResult:
    """Merges the parts of a run, and checks that every planned episode is there once.

    Raises:
        InvalidValueError: no run and no part is there, a part is being played or is one of another run, or a key is
            that of two different episodes.
        DamagedRecordError: a record cannot be read, or the episodes are others than those planned.
    """
    parts = [read_manifest(directory) for directory in _directories(path)]
    with RunDirectory(path, parts[0].config if parts else None) as run:
        before = len(run.done)
        merge_parts(run)
        config = run.manifest.config
        planned = None if run.manifest.added else config.episodes
        if len(run.done) == planned and set_hash(run.done) != config.plan_hash:
            raise DamagedRecordError("the episodes are not those planned", field="plan_hash", where=path / RUN)
        absent = () if before else _absent({manifest.part for manifest in parts if manifest.part})
        result = MergeResult(planned, len(run.done), len(run.done) - before, len(run.failures), absent)
        if parts or run.manifest.finished is None:
            with Ledger(path if (path / LEDGER).exists() else None) as ledger:
                run.finish(complete=result.missing == 0, answered=ledger.answered())
    return result


def _absent(names: set[str]) -> tuple[str, ...]:
    """The parts without a directory, where some have one."""
    count = max((Part.parse(name).count for name in names), default=0)
    return tuple(name for name in (str(Part(number, count)) for number in range(1, count + 1)) if name not in names)


def merge_parts(run: RunDirectory) -> None:
    """Takes everything from the parts of a run into it, and removes them.

    Nobody may be writing the run's ledger.

    Raises:
        InvalidValueError: a part is being played, or one of another run; or a key is that of two different episodes.
    """
    root = run.path / PARTS
    if not root.is_dir():
        return
    _take_back(run.path)
    paths = sorted(path for path in root.iterdir() if path.is_dir())
    with ExitStack() as stack:
        parts = [stack.enter_context(RunDirectory(path)) for path in _directories(run.path)]
        for part in parts:
            run.note_part(part.manifest)
        for part in parts:
            _merge_episodes(run, part)
        for failure in [failure for part in parts for failure in part.failures.values()]:
            if failure.key not in run.done:
                run.append_failure(failure)
        for path in paths:
            _merge_ledger(run.path, path)
    for path in paths:
        shutil.rmtree(path)
    root.rmdir()


def _directories(run: Path) -> list[Path]:
    """The directories of a run's parts, without those whose process was killed before it had written anything."""
    return sorted(path.parent for path in (run / PARTS).glob(f"*/{RUN}") if (path.parent / EPISODES).exists())


def _merge_episodes(run: RunDirectory, part: RunDirectory) -> None:
    present: dict[str, PlayKey] = {}
    for episode in read_run(part.path):
        run.check(episode, Where(part.path))
        if episode.key in run.done:
            present[episode.key] = play_key(episode)
        else:
            run.append(episode)
    for episode in read_run(run.path) if present else ():
        if present.get(episode.key, play_key(episode)) != play_key(episode):
            raise InvalidValueError(
                f"the episode is in {run.path} too, with other turns",
                hint="remove one of the two",
                where=Where(part.path, record=f"episode {excerpt(episode.key)}"),
            )
    for key in part.unfinished:  # each begins with what was taken over
        for item in part.unfinished.records(key)[len(run.unfinished.records(key)) :]:
            run.unfinished.append(item)


def _merge_ledger(run: Path, part: Path) -> None:
    target, source, intent = run / LEDGER, part / LEDGER, run / PARTS / _INTENT
    if not source.exists():
        return
    repair_torn_line(target)
    repair_torn_line(source)
    size = target.stat().st_size if target.exists() else 0
    write_text_atomically(intent, json.dumps({"part": part.name, "size": size}))
    with target.open("ab") as stream:
        stream.write(source.read_bytes())
        stream.flush()
        os.fsync(stream.fileno())
    source.unlink()  # from here on the merging stands
    intent.unlink()


def _take_back(run: Path) -> None:
    """Removes from the run's ledger what a merging that was cut short had added; it is merged again."""
    intent = run / PARTS / _INTENT
    if not intent.exists():
        return
    try:
        note = read_json(intent)
        part, size = run / PARTS / str(note["part"]), int(note["size"])
    except (ValueError, KeyError, TypeError):
        raise InvalidValueError(expected="the note of a merging", where=intent) from None
    if (part / LEDGER).exists() and (run / LEDGER).exists():
        logger.warning("%s: merging the ledger of part %s was cut short; it is merged again", run, part.name)
        os.truncate(run / LEDGER, size)
    intent.unlink()
