"""A run on disk: ``run.json`` (its configuration), ``episodes.jsonl``, ``failures.jsonl``, ``unfinished.jsonl``.

Durability: an episode survives the death of the process at any moment (:mod:`sotopia_env.files`), and so does each of
its turns that somebody was asked for: those of episodes that have not ended are in ``unfinished.jsonl``, from which a
resumed run goes on. The files are forced to the disk (``fsync``) when the run ends, not after each line: a power cut
may cost the last lines, which a resumed run plays again. A line that was cut short is removed when the run is resumed,
with a warning. One process at a time holds a directory (``flock``; POSIX systems).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from sotopia_env.errors import DamagedRecordError, InvalidValueError, Where
from sotopia_env.files import BINARY, AppendOnlyFile, lock, read_lines, replacement, write_text_atomically
from sotopia_env.records import Record, read_record
from sotopia_env.storage.journal import Journal
from sotopia_env.storage.manifest import (
    EPISODES,
    FAILURES,
    LOCK,
    RUN,
    UNFINISHED,
    FailureRecord,
    RunConfig,
    RunCounts,
    RunManifest,
    UnfinishedPart,
    now,
    read_manifest,
)
from sotopia_env.world.episode import Episode, read_episodes, to_line

logger = logging.getLogger(__name__)
_RecordT = TypeVar("_RecordT", bound=Record)
_FileT = TypeVar("_FileT", AppendOnlyFile, Journal[FailureRecord], Journal[UnfinishedPart])


class RunDirectory:
    """A locked run directory that is being written.

    Attributes:
        path: the directory.
        manifest: contents of ``run.json``.
        done: keys of the episodes it holds.
        elsewhere: keys of episodes that the run holds of which this is a part.
        failures: the latest failure of every episode that has not succeeded since.
        unscored: how many of these its evaluator has not scored; in a run without one, the latest that was asked.
        unfinished: parts of episodes that were begun and are not recorded, by key: their turns, and evaluations by the
            judges of a panel.
        repaired: sentences about lines that had been cut short and were removed.
    """

    def __init__(
        self,
        path: str | Path,
        config: RunConfig | None = None,
        check: Callable[[Episode, RunManifest], None] | None = None,
        part: str | None = None,
    ) -> None:
        """Creates the directory, or takes up the one that is there.

        Args:
            path: where the run lies.
            config: what is played; it is added to a run of other policies in the same tasks. ``None`` takes up an
                existing run as it is.
            check: raises :class:`DamagedRecordError` for an episode that is not one of the run.
            part: the share of the run that a new directory is for.

        Raises:
            InUseError: another process holds the directory.
            InvalidValueError: it holds another run, or there is none to take up.
            DamagedRecordError: a record in it cannot be read.
        """
        self.path = Path(path)
        self._check = check
        self.done: set[str] = set()
        self.elsewhere: set[str] = set()
        self.unscored = 0
        self.repaired: tuple[str, ...] = ()
        if config is None:
            check_run(self.path)
        with ExitStack() as resources:
            resources.callback(os.close, _lock(self.path))
            self.manifest = self._take_up(config, part)
            self._episodes = resources.enter_context(self._noted(AppendOnlyFile(self.path / EPISODES)))
            self.failures = resources.enter_context(
                self._noted(Journal(self.path / FAILURES, FailureRecord, lambda failure: failure.key))
            )
            self.unfinished = self._noted(Journal(self.path / UNFINISHED, UnfinishedPart, lambda part: part.key))
            resources.callback(lambda: self.unfinished.close(remove=not self.unfinished))
            self._scan()
            self._write_addition()
            self._resources = resources.pop_all()

    def _take_up(self, config: RunConfig | None, part: str | None) -> RunManifest:
        if not (self.path / RUN).exists():
            return self._begin(config, part)
        manifest = read_manifest(self.path)
        if config is None or not manifest.adds(config, self.path):
            return manifest
        return manifest.model_copy(update={"added": (*manifest.added, config)})

    def _write_addition(self) -> None:
        """Writes what is new to the run, once its records have been read without complaint."""
        present = read_manifest(self.path).configs
        if self.manifest.configs != present:
            added = self.manifest.added[-1]
            if not set(added.matchups) <= {name for config in present for name in config.matchups}:
                names = ", ".join(policy.name for policy in added.policies)
                logger.warning("%s: the run in it is of other matchups; adds episodes between %s", self.path, names)
            self._write_manifest(self.manifest)

    def _noted(self, file: _FileT) -> _FileT:
        """Returns the file that was opened, after a note on what was removed from its end."""
        if file.repaired:
            sentence = f"{file.path}: removed a last line that had been cut short ({file.repaired} bytes)"
            logger.warning(sentence)
            self.repaired += (sentence,)
        return file

    def _begin(self, config: RunConfig | None, part: str | None) -> RunManifest:
        present = [name for name in (EPISODES, FAILURES) if (self.path / name).exists()]
        if present or config is None:
            raise InvalidValueError(f"has {' and '.join(present)} but no {RUN}: not a run directory", where=self.path)
        manifest = RunManifest(config=config, part=part)
        self._write_manifest(manifest)
        return manifest

    def _scan(self) -> None:
        for number, episode in enumerate(read_run(self.path), start=1):
            where = Where(self.path / EPISODES, number)
            if episode.key in self.done:
                raise DamagedRecordError(
                    "the file has two episodes with this key", field="key", got=episode.key, where=where
                )
            self.check(episode, where)
            self._count(episode)

    def _count(self, episode: Episode) -> None:
        """Counts an episode that is recorded; what there was of it before, turns or a failure, is superseded."""
        self.done.add(episode.key)
        self.unscored += self._is_unscored(episode)
        self.failures.discard(episode.key)
        self.unfinished.discard(episode.key)

    def _is_unscored(self, episode: Episode) -> bool:
        """Whether the run's own evaluator failed, whatever others said later; where it has none, the latest one."""
        own = self.manifest.config.evaluator
        return is_unscored(episode, None if own is None else own.name)

    def note_spec(self, spec: Mapping[str, Any]) -> None:
        """Adds the settings of a command that began the run or added to it to ``run.json``."""
        if len(self.manifest.specs) < len(self.manifest.configs):
            specs = (*self.manifest.specs, dict(spec))
            self._write_manifest(self.manifest.model_copy(update={"specs": specs}))

    def check(self, episode: Episode, where: Where) -> None:
        """Raises :class:`DamagedRecordError`, beginning with ``where``, for an episode that is not one of the run."""
        if self._check is not None:
            try:
                self._check(episode, self.manifest)
            except DamagedRecordError as error:
                raise DamagedRecordError.of(error, where=where) from None

    def append(self, episode: Episode) -> None:
        """Adds one episode; it is safe from the death of the process when this returns."""
        self._episodes.append(to_line(episode).encode())
        self._count(episode)

    def append_failure(self, failure: FailureRecord) -> None:
        """Adds one failure; it is superseded when the episode fails again or succeeds."""
        self.failures.discard(failure.key)
        self.failures.append(failure)

    def finish(self, complete: bool = True, answered: Mapping[str, Any] | None = None) -> None:
        """Forces everything to the disk, drops superseded failures, records the end in ``run.json``.

        Args:
            complete: whether the run came to its end; one that was stopped is not ``finished``.
            answered: the models that did (:meth:`sotopia_env.chat_model.Ledger.answered`).
        """
        self._episodes.sync()
        self.failures.compact()
        self.unfinished.compact()
        counts = RunCounts(episodes=len(self.done), failed=len(self.failures), unscored=self.unscored)
        changes = {"finished": now() if complete else None, "counts": counts if complete else None}
        self._write_manifest(self.manifest.model_copy(update={**changes, "models": self._models(answered)}))

    def _models(self, answered: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """The models that answered, by the ledger where there is one, else as recorded earlier."""
        return {**self.manifest.models, **(answered or {})}

    def note_models(self, answered: Mapping[str, Any]) -> None:
        """Records in ``run.json`` which models answered."""
        if answered:
            self._write_manifest(self.manifest.model_copy(update={"models": self._models(answered)}))

    def note_code(self, code: Mapping[str, Mapping[str, str]]) -> None:
        """Records in ``run.json`` which modules were imported by name; one that has changed since is another entry."""
        sources_of = self.manifest.code
        changed = [module for module in code if module in sources_of and code[module] not in sources_of[module]]
        if changed:
            logger.warning("%s: was begun with other code in %s; its episodes mix both", self.path, ", ".join(changed))
        new = {module: [*sources_of.get(module, ()), source] for module, source in code.items()}
        new = {module: sources for module, sources in new.items() if code[module] not in sources_of.get(module, ())}
        if new:
            self._write_manifest(self.manifest.model_copy(update={"code": {**sources_of, **new}}))

    def note_part(self, part: RunManifest) -> None:
        """Records in ``run.json`` what a part of this run was played with: configurations, commands and code.

        Raises:
            InvalidValueError: it is a part of another run.
        """
        for number, config in enumerate(part.configs):
            if self.manifest.adds(config, self.path):
                self._write_manifest(self.manifest.model_copy(update={"added": (*self.manifest.added, config)}))
            if number < len(part.specs):
                self.note_spec(part.specs[number])
        for module, sources in part.code.items():
            for source in sources:
                self.note_code({module: source})

    def replace_episodes(self, episodes: Iterable[Episode]) -> None:
        """Replaces the episodes, at once or not at all."""
        unscored = 0
        with replacement(self.path / EPISODES) as stream:
            for episode in episodes:
                stream.write(to_line(episode).encode())
                unscored += self._is_unscored(episode)
            stream.flush()
            os.fsync(stream.fileno())
        self._episodes.close()
        self._episodes = self._resources.enter_context(AppendOnlyFile(self.path / EPISODES))
        self.unscored = unscored
        if self.manifest.counts is not None:
            counts = self.manifest.counts.model_copy(update={"unscored": unscored})
            self._write_manifest(self.manifest.model_copy(update={"counts": counts}))

    def _write_manifest(self, manifest: RunManifest) -> None:
        write_text_atomically(self.path / RUN, manifest.model_dump_json(indent=2) + "\n")
        self.manifest = manifest

    def close(self) -> None:
        """Closes the files and releases the lock."""
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def is_unscored(episode: Episode, evaluator: str | None = None) -> bool:
    """Whether an evaluator's, or the latest, evaluation failed; an episode not evaluated yet is not *un*scored."""
    evaluation = episode.evaluation(evaluator)
    return evaluation is not None and evaluation.unscored is not None


def check_run(path: Path) -> None:
    """Raises :class:`InvalidValueError` unless a run directory is there."""
    for name in (RUN, EPISODES):
        if not (path / name).is_file():
            raise InvalidValueError(expected=f"a run directory with its {name}", where=path)


def read_run(path: str | Path) -> Iterator[Episode]:
    """Yields the episodes of a run directory, or of a ``.jsonl`` file, in the order they were finished.

    A last line without a line end belongs to a run that is being written or was killed; it is left out with a logged
    warning.

    Raises:
        InvalidValueError: there is no such run.
        DamagedRecordError: names the file and line that cannot be read.
    """
    path = Path(path)
    file = path / EPISODES if path.is_dir() else path
    if path.is_dir():
        if not (path / RUN).exists():
            raise InvalidValueError(expected=f"a run directory with a {RUN}", where=path)
        read_manifest(path)  # a run of another version is not read as one of this
    if not path.exists():
        raise InvalidValueError(expected="a run directory or a .jsonl file of episodes", where=path)
    if file.exists():  # a run that was killed at once has none yet
        yield from read_episodes(file)


def read_failures(path: str | Path) -> tuple[FailureRecord, ...]:
    """Returns the lines of a run's ``failures.jsonl`` as they stand."""
    return tuple(_read(Path(path) / FAILURES, FailureRecord))


def read_unfinished(path: str | Path) -> tuple[UnfinishedPart, ...]:
    """Returns the lines of a run's ``unfinished.jsonl`` as they stand."""
    return tuple(_read(Path(path) / UNFINISHED, UnfinishedPart))


def _read(file: Path, kind: type[_RecordT]) -> Iterator[_RecordT]:
    for where, line in read_lines(file) if file.exists() else ():
        yield read_record(kind, line, where)


def _lock(path: Path) -> int:
    try:
        path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | BINARY, 0o644)
    except OSError as error:
        raise InvalidValueError(f"the directory cannot be written ({error.strerror})", where=path) from None
    problem = "another process is writing to this run directory; wait for it to end, or choose another directory"
    try:
        lock(descriptor, path, problem)
    except InvalidValueError:
        os.close(descriptor)
        raise
    return descriptor
