"""A run on disk: ``run.json`` (its configuration), ``episodes.jsonl``, ``failures.jsonl``, ``unfinished.jsonl``.

Durability: an episode survives the death of the process at any moment (:mod:`sotopia_env.foundation.files`), and so
does each turn that a model or a person generated: the turns of unfinished episodes are in ``unfinished.jsonl``, from
which a resumed run continues. The files are forced to disk (``fsync``) when the run ends, not after each line: a power
cut may lose the last lines, which a resumed run plays again. An incomplete line is removed with a warning when the run
is resumed. One process at a time locks a directory (``flock``; POSIX systems).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from sotopia_env.foundation.errors import DamagedRecordError, InvalidValueError, Where
from sotopia_env.foundation.files import BINARY, AppendOnlyFile, lock, read_lines, replacement, write_text_atomically
from sotopia_env.foundation.records import Record, read_record
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
        manifest: the contents of ``run.json``.
        done: the keys of the recorded episodes.
        elsewhere: for a part of a run, the keys of the episodes that the run itself holds.
        failures: the latest failure of every episode that has not succeeded since.
        unscored: the number of recorded episodes that the run's evaluator failed to score; in a run without an
            evaluator, the number of those whose latest evaluation failed.
        unfinished: the parts of episodes that were started and are not recorded, by key: their turns, and evaluations
            by the judges of a panel.
        repaired: one sentence for each incomplete line that was removed.
    """

    def __init__(
        self,
        path: str | Path,
        config: RunConfig | None = None,
        check: Callable[[Episode, RunManifest], None] | None = None,
        part: str | None = None,
    ) -> None:
        """Creates the directory, or opens an existing one.

        Args:
            path: the directory.
            config: the configuration of the episodes to play; it is added to an existing run with other policies and
                the same tasks. ``None`` opens an existing run unchanged.
            check: raises :class:`DamagedRecordError` for an episode that is not part of the run.
            part: the share of the run for which a directory is created, such as ``3/16``.

        Raises:
            InUseError: another process locks the directory.
            InvalidValueError: the directory holds another run, or ``config`` is ``None`` and it holds no run.
            DamagedRecordError: a record in the directory cannot be read.
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
            # The lock comes first, since opening the files repairs them.
            resources.callback(os.close, _lock(self.path))
            self.manifest = self._open_manifest(config, part)
            self._episodes = resources.enter_context(self._noted(AppendOnlyFile(self.path / EPISODES)))
            self.failures = resources.enter_context(
                self._noted(Journal(self.path / FAILURES, FailureRecord, lambda failure: failure.key))
            )
            self.unfinished = self._noted(Journal(self.path / UNFINISHED, UnfinishedPart, lambda part: part.key))
            resources.callback(lambda: self.unfinished.close(remove=not self.unfinished))
            self._scan()
            self._write_addition()
            self._resources = resources.pop_all()

    def _open_manifest(self, config: RunConfig | None, part: str | None) -> RunManifest:
        if not (self.path / RUN).exists():
            return self._begin(config, part)
        manifest = read_manifest(self.path)
        if config is None or not manifest.adds(config, self.path):
            return manifest
        return manifest.model_copy(update={"added": (*manifest.added, config)})

    def _write_addition(self) -> None:
        """Writes the added configuration, after all records have been read without an error."""
        present = read_manifest(self.path).configs
        if self.manifest.configs != present:
            added = self.manifest.added[-1]
            if not set(added.matchups) <= {name for config in present for name in config.matchups}:
                names = ", ".join(policy.name for policy in added.policies)
                logger.warning("%s: holds a run of other matchups; adding episodes between %s", self.path, names)
            self._write_manifest(self.manifest)

    def _noted(self, file: _FileT) -> _FileT:
        """Returns an opened file, after noting whether an incomplete line was removed from its end."""
        if file.repaired:
            sentence = f"{file.path}: removed an incomplete last line ({file.repaired} bytes)"
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
        """Counts a recorded episode, and discards its earlier turns and failures."""
        self.done.add(episode.key)
        self.unscored += self._is_unscored(episode)
        self.failures.discard(episode.key)
        self.unfinished.discard(episode.key)

    def _is_unscored(self, episode: Episode) -> bool:
        """Whether the evaluation by the run's evaluator failed; in a run without one, the latest evaluation."""
        own = self.manifest.config.evaluator
        return is_unscored(episode, None if own is None else own.name)

    def note_spec(self, spec: Mapping[str, Any]) -> None:
        """Records in ``run.json`` the settings of a command that started or extended the run."""
        # There is one spec per configuration; a command that merely resumes the run is not recorded.
        if len(self.manifest.specs) < len(self.manifest.configs):
            specs = (*self.manifest.specs, dict(spec))
            self._write_manifest(self.manifest.model_copy(update={"specs": specs}))

    def check(self, episode: Episode, where: Where) -> None:
        """Raises :class:`DamagedRecordError` at ``where`` for an episode that is not part of the run."""
        if self._check is not None:
            try:
                self._check(episode, self.manifest)
            except DamagedRecordError as error:
                raise DamagedRecordError.of(error, where=where) from None

    def append(self, episode: Episode) -> None:
        """Adds one episode; after the return, it survives a kill of the process."""
        self._episodes.append(to_line(episode).encode())
        self._count(episode)

    def append_failure(self, failure: FailureRecord) -> None:
        """Adds one failure; it is discarded when the episode fails again or succeeds."""
        self.failures.discard(failure.key)
        self.failures.append(failure)

    def finish(self, complete: bool = True, answered: Mapping[str, Any] | None = None) -> None:
        """Forces all files to disk, removes outdated failures, and records the end in ``run.json``.

        Args:
            complete: whether the run is done; a run that was stopped has no time in ``finished``.
            answered: the models that answered (:meth:`sotopia_env.chat_model.spending.ledger.Ledger.answered`).
        """
        self._episodes.sync()
        self.failures.compact()
        self.unfinished.compact()
        counts = RunCounts(episodes=len(self.done), failed=len(self.failures), unscored=self.unscored)
        changes = {"finished": now() if complete else None, "counts": counts if complete else None}
        self._write_manifest(self.manifest.model_copy(update={**changes, "models": self._models(answered)}))

    def _models(self, answered: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Returns the models that answered: those of the ledger, or else those recorded earlier."""
        return {**self.manifest.models, **(answered or {})}

    def note_models(self, answered: Mapping[str, Any]) -> None:
        """Records the models that answered in ``run.json``."""
        if answered:
            self._write_manifest(self.manifest.model_copy(update={"models": self._models(answered)}))

    def note_code(self, code: Mapping[str, Mapping[str, str]]) -> None:
        """Records the imported user modules in ``run.json``; a module whose source has changed gets a second entry."""
        sources_of = self.manifest.code
        changed = [module for module in code if module in sources_of and code[module] not in sources_of[module]]
        if changed:
            names = ", ".join(changed)
            logger.warning("%s: the code of %s has changed since the run was started", self.path, names)
        new = {module: [*sources_of.get(module, ()), source] for module, source in code.items()}
        new = {module: sources for module, sources in new.items() if code[module] not in sources_of.get(module, ())}
        if new:
            self._write_manifest(self.manifest.model_copy(update={"code": {**sources_of, **new}}))

    def note_part(self, part: RunManifest) -> None:
        """Records the configurations, commands and code of a part in the ``run.json`` of this run.

        Raises:
            InvalidValueError: the part belongs to another run.
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
        """Replaces all episodes atomically."""
        unscored = 0
        with replacement(self.path / EPISODES) as stream:
            for episode in episodes:
                stream.write(to_line(episode).encode())
                unscored += self._is_unscored(episode)
            # Forced to disk before it replaces the old file: a power cut must not leave an empty file.
            stream.flush()
            os.fsync(stream.fileno())
        # The open descriptor still refers to the replaced file; lines appended to that would be lost.
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
    """Whether the evaluation by ``evaluator``, or the latest one, failed; ``False`` for an unevaluated episode."""
    evaluation = episode.evaluation(evaluator)
    return evaluation is not None and evaluation.unscored is not None


def check_run(path: Path) -> None:
    """Raises :class:`InvalidValueError` unless ``path`` is a run directory."""
    for name in (RUN, EPISODES):
        if not (path / name).is_file():
            raise InvalidValueError(expected=f"a run directory with its {name}", where=path)


def read_run(path: str | Path) -> Iterator[Episode]:
    """Yields the episodes of a run directory, or of a ``.jsonl`` file, in the order in which they were finished.

    An incomplete last line, of a run that is being written or was killed, is skipped with a logged warning.

    Raises:
        InvalidValueError: ``path`` is neither a run directory nor a file.
        DamagedRecordError: a line cannot be read; the error names the file and the line.
    """
    path = Path(path)
    file = path / EPISODES if path.is_dir() else path
    if path.is_dir():
        if not (path / RUN).exists():
            raise InvalidValueError(expected=f"a run directory with a {RUN}", where=path)
        # Raises an error for a run with another schema version, whose episodes might be misread.
        read_manifest(path)
    if not path.exists():
        raise InvalidValueError(expected="a run directory or a .jsonl file of episodes", where=path)
    # A run that was killed right after its start has no episodes yet.
    if file.exists():
        yield from read_episodes(file)


def read_failures(path: str | Path) -> tuple[FailureRecord, ...]:
    """Returns all lines of a run's ``failures.jsonl``, including outdated ones."""
    return tuple(_read(Path(path) / FAILURES, FailureRecord))


def read_unfinished(path: str | Path) -> tuple[UnfinishedPart, ...]:
    """Returns all lines of a run's ``unfinished.jsonl``, including outdated ones."""
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
