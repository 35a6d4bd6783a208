"""Parts of a run: shares that separate processes or machines play, and the merge of these shares into the run.

Part 3 of 16 plays every 16th episode of the plan, starting with the third, in ``RUN/parts/03-of-16``. A part is an
ordinary run directory: it is locked, and the same command resumes it after a kill. Merging moves all records of the
parts into the run and removes the parts. A merge may be interrupted at any moment; the next merge completes it. An
episode is identified by its key. Ledger lines have no key, so the merge of a ledger is first announced in a file, and
rolled back if it was interrupted.
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

from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.chat_model.spending.ledger import LEDGER, Ledger, read_ledger
from sotopia_env.foundation.errors import DamagedRecordError, InvalidValueError, Where, excerpt
from sotopia_env.foundation.files import repair_torn_line, write_text_atomically
from sotopia_env.foundation.json_text import read_json
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
        number: the number of this part, from 1 to ``count``.
        count: the number of parts that the run is divided into.
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
            InvalidValueError: ``text`` does not name a part.
        """
        number, slash, count = text.partition("/")
        if not (slash and number.isdecimal() and count.isdecimal()):
            raise InvalidValueError(field="part", expected="a part and the number of parts, such as 3/16", got=text)
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
        """Returns the model options of this part: an equal share of every limit and of the remaining budget.

        Raises:
            BudgetExceededError: the calls that are already merged into the run have used up the budget.
        """
        with Ledger(max_cost=options.max_cost, max_tokens=options.max_tokens) as ledger:
            for entry in read_ledger(run) if (run / LEDGER).exists() else ():
                ledger.record(entry)
            ledger.check()
            return options.share(self.count, ledger.totals())


def take_over(part: RunDirectory, run: Path, keys: Collection[str]) -> None:
    """Makes a part skip the episodes that its run has recorded, and continue those that its run has started.

    Args:
        part: the directory of the part.
        run: the directory of the whole run.
        keys: the keys of the part's episodes.
    """
    if not (run / RUN).exists():
        return
    part.elsewhere |= {episode.key for episode in read_run(run)}
    keys_in_part = set(part.unfinished)
    for item in read_unfinished(run):
        if item.key in keys and item.key not in keys_in_part:
            part.unfinished.append(item)


def check_division(run: Path, part: Part, config: RunConfig) -> None:
    """Checks that a part belongs to this run, and that all parts divide the run into the same number of shares.

    Raises:
        InvalidValueError: the part belongs to another run, or to another division of this run.
    """
    if (run / RUN).exists():
        read_manifest(run).adds(config, run)
    others = [path.name for path in _directories(run) if not path.name.endswith(f"-of-{part.count}")]
    if others:
        raise InvalidValueError(
            field="part",
            expected=f"a share like {others[0]}",
            got=str(part),
            hint="merge the recorded parts first",
            where=run / PARTS,
        )


# --- merging ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MergeResult:
    """Counts of a merge.

    Attributes:
        planned: the number of episodes in the whole run; ``None`` if the run was extended with further plans.
        recorded: the number of episodes in the run after the merge.
        new: the number of episodes that this merge added.
        failed: the number of episodes that could not be finished.
        absent: the parts without a directory; empty unless this was the first merge of the run.
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
    """Merges the parts of a run, and checks that every planned episode is recorded once.

    Raises:
        InvalidValueError: ``path`` holds neither a run nor a part, a part is being played or belongs to another run,
            or two different episodes have the same key.
        DamagedRecordError: a record cannot be read, or the recorded episodes are not the planned ones.
    """
    parts = [read_manifest(directory) for directory in _directories(path)]
    with RunDirectory(path, parts[0].config if parts else None) as run:
        before = len(run.done)
        merge_parts(run)
        config = run.manifest.config
        # Plans that were added may overlap with the first one, so the numbers of their episodes cannot be summed.
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
    """Returns the parts without a directory; empty if no part has one."""
    count = max((Part.parse(name).count for name in names), default=0)
    return tuple(name for name in (str(Part(number, count)) for number in range(1, count + 1)) if name not in names)


def merge_parts(run: RunDirectory) -> None:
    """Moves all records of a run's parts into the run, and removes the parts.

    The run's ledger must not be open for writing.

    Raises:
        InvalidValueError: a part is being played or belongs to another run, or two different episodes have the same
            key.
    """
    root = run.path / PARTS
    if not root.is_dir():
        return
    _roll_back(run.path)
    paths = sorted(path for path in root.iterdir() if path.is_dir())
    with ExitStack() as stack:
        # All parts are locked before anything is merged: a part that is still being played stops the whole merge.
        parts = [stack.enter_context(RunDirectory(path)) for path in _directories(run.path)]
        for part in parts:
            run.note_part(part.manifest)
        for part in parts:
            _merge_episodes(run, part)
        for failure in [failure for part in parts for failure in part.failures.values()]:
            if failure.key not in run.done:
                run.append_failure(failure)
        # ``paths`` includes parts killed before they wrote an episode: their ledgers hold calls that were paid for.
        for path in paths:
            _merge_ledger(run.path, path)
    for path in paths:
        shutil.rmtree(path)
    root.rmdir()


def _directories(run: Path) -> list[Path]:
    """Returns the directories of a run's parts, except those whose process was killed before it wrote anything."""
    return sorted(path.parent for path in (run / PARTS).glob(f"*/{RUN}") if (path.parent / EPISODES).exists())


def _merge_episodes(run: RunDirectory, part: RunDirectory) -> None:
    # Episodes in both places are normal after an interrupted merge; they must then be the same play of the plan.
    duplicates: dict[str, PlayKey] = {}
    for episode in read_run(part.path):
        run.check(episode, Where(part.path))
        if episode.key in run.done:
            duplicates[episode.key] = play_key(episode)
        else:
            run.append(episode)
    for episode in read_run(run.path) if duplicates else ():
        if duplicates.get(episode.key, play_key(episode)) != play_key(episode):
            raise InvalidValueError(
                f"{run.path} holds another episode with this key and different turns",
                hint="remove one of the two",
                where=Where(part.path, record=f"episode {excerpt(episode.key)}"),
            )
    # A part's unfinished episode starts with the records it took over from the run; only the rest is new.
    for key in part.unfinished:
        for item in part.unfinished.records(key)[len(run.unfinished.records(key)) :]:
            run.unfinished.append(item)


def _merge_ledger(run: Path, part: Path) -> None:
    target, source, intent = run / LEDGER, part / LEDGER, run / PARTS / _INTENT
    if not source.exists():
        return
    # A torn last line would otherwise be joined with the first appended one.
    repair_torn_line(target)
    repair_torn_line(source)
    # Until the source is removed, the intent file allows truncating the target back to its old size.
    size = target.stat().st_size if target.exists() else 0
    write_text_atomically(intent, json.dumps({"part": part.name, "size": size}))
    with target.open("ab") as stream:
        stream.write(source.read_bytes())
        stream.flush()
        os.fsync(stream.fileno())
    source.unlink()  # commits the merge
    intent.unlink()


def _roll_back(run: Path) -> None:
    """Removes the lines that an interrupted merge added to the run's ledger; they are merged again."""
    intent = run / PARTS / _INTENT
    if not intent.exists():
        return
    try:
        note = read_json(intent)
        part, size = run / PARTS / str(note["part"]), int(note["size"])
    except (ValueError, KeyError, TypeError):
        raise InvalidValueError(expected="the note of a merge", where=intent) from None
    if (part / LEDGER).exists() and (run / LEDGER).exists():
        logger.warning("%s: the merge of the ledger of part %s was interrupted; repeating it", run, part.name)
        os.truncate(run / LEDGER, size)
    intent.unlink()
