"""A run on disk: ``run.json`` (what was asked for), ``episodes.jsonl``, ``failures.jsonl``.

Durability: an episode survives the death of the process at any moment (:mod:`sotopia_env.append_only`). The file is
forced to the disk (``fsync``) when the run ends, not after each line: a power cut may cost the last lines, which a
resumed run plays again. A line that was cut short is cut off when the run is resumed, and said. One process at a time
holds a directory (``flock``; POSIX systems).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from pydantic import Field, ValidationError

from sotopia_env.append_only import AppendOnlyFile, lock
from sotopia_env.difference import first_difference
from sotopia_env.dynamics import Rules
from sotopia_env.episode import (
    SCHEMA_VERSION,
    Episode,
    EpisodeError,
    Evaluator,
    RecordedTurn,
    code_version,
    read_episodes,
    read_lines,
    to_line,
)
from sotopia_env.errors import DamagedRecordError, InvalidValueError
from sotopia_env.plan import EpisodePlan, policy_identity
from sotopia_env.policies.policy import Policy
from sotopia_env.provenance import package_versions, source_revision
from sotopia_env.scenario import JsonObject, Record, canonical_json
from sotopia_env.taskset import explain, write_text_atomically

logger = logging.getLogger(__name__)

EPISODES, FAILURES, RUN, LOCK = "episodes.jsonl", "failures.jsonl", "run.json", ".lock"
_RecordT = TypeVar("_RecordT", bound=Record)


class Named(Record):
    """A policy or evaluator as it was configured."""

    name: str
    parameters: JsonObject = Field(default_factory=dict)


def named(configured: Policy | Evaluator) -> Named:
    """Returns the record of a policy's or an evaluator's name and parameters.

    Raises:
        InvalidValueError: these cannot be written as JSON.
    """
    try:
        return Named(name=configured.name, parameters=dict(configured.parameters))
    except ValidationError as error:
        raise InvalidValueError(f"{configured.name!r}: parameters must be JSON values ({explain(error)})") from None


class RunConfig(Record):
    """What a run consists of; a directory is resumed only by the same one.

    Attributes:
        tasks: number of different tasks; ``tasks_hash`` is over their contents.
        episodes: number of planned episodes; ``plan_hash`` is over their keys.
    """

    seed: tuple[int, ...]
    policies: tuple[Named, ...]
    matchups: tuple[str, ...]
    evaluator: Named | None = None
    rules: tuple[Rules, ...]
    repeats: int
    tasks: int
    tasks_hash: str
    episodes: int
    plan_hash: str

    @classmethod
    def of(cls, plans: Sequence[EpisodePlan], evaluator: Named | None) -> RunConfig:
        """Returns the configuration that these plans amount to."""
        policies = {policy_identity(policy): policy for plan in plans for policy in plan.policies}
        tasks = {plan.task.content_hash for plan in plans}
        return cls(
            policies=tuple(named(policy) for _, policy in sorted(policies.items())),
            matchups=tuple(sorted({" vs ".join(policy.name for policy in plan.policies) for plan in plans})),
            evaluator=evaluator,
            rules=tuple(dict.fromkeys(plan.rules for plan in plans)),
            seed=tuple(sorted({plan.seed for plan in plans})),
            repeats=len({plan.repeat for plan in plans}),
            tasks=len(tasks),
            tasks_hash=_hash(tasks),
            episodes=len(plans),
            plan_hash=_hash({plan.key for plan in plans}),
        )

    def _plain(self) -> dict[str, Any]:
        # Not mode="json", in which parameters are text: differences are looked for inside them.
        plain: dict[str, Any] = json.loads(canonical_json(self.model_dump()))
        return plain

    def check_same(self, other: RunConfig, path: Path) -> None:
        """Raises :class:`InvalidValueError` naming the first field in which ``other`` differs."""
        ours, theirs = self._plain(), other._plain()
        for name in type(self).model_fields:
            if ours[name] != theirs[name]:
                where, expected, got = first_difference(name, ours[name], theirs[name])
                raise InvalidValueError(
                    f"{path}: holds another run; {where}: expected {expected}, got {got}; "
                    "resume it with the settings it was started with, or choose another directory"
                )


def _hash(texts: set[str]) -> str:
    return hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()[:16]


class RunCounts(Record):
    """How a run ended: episodes recorded, outstanding failures, episodes without scores."""

    episodes: int
    failed: int
    unscored: int


class RunManifest(Record):
    """Contents of ``run.json``. Times are UTC, ISO 8601; ``finished`` and ``counts`` are null while a run goes on.

    ``models`` tells who answered: by account (agent or judge) and model as it was named, the name and version that the
    server gave, with the number of answers. What the models were told is in ``config``: the parameters of policies and
    evaluators hold hashes of their prompts.
    """

    schema_version: int = SCHEMA_VERSION
    config: RunConfig
    code_version: str = Field(default_factory=code_version)
    packages: JsonObject = Field(default_factory=package_versions)
    revision: str | None = Field(default_factory=source_revision)
    started: str = Field(default_factory=lambda: _now())
    finished: str | None = None
    counts: RunCounts | None = None
    models: JsonObject = Field(default_factory=dict)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class FailureRecord(Record):
    """An episode that was not finished, and why.

    Attributes:
        kind: the exception's class, ``"Timeout"`` for the time limit of an episode.
        traceback: the last lines of the traceback.
        turns: what had happened until then.
        errors: what had failed in these turns and was survived.
    """

    key: str
    task: str
    policies: tuple[str, ...]
    kind: str
    message: str
    traceback: str = ""
    turns: tuple[RecordedTurn, ...] = ()
    errors: tuple[EpisodeError, ...] = ()


class RunDirectory:
    """A locked run directory that is being written.

    Attributes:
        path: the directory.
        manifest: contents of ``run.json``.
        done: keys of the episodes it holds.
        unscored: how many of these have no scores.
        repaired: sentences about lines that had been cut short and were removed.
    """

    def __init__(self, path: str | Path, config: RunConfig | None = None) -> None:
        """Creates the directory, or takes up the one that is there.

        Args:
            path: where the run lies.
            config: what the run consists of; ``None`` takes up an existing run as it is.

        Raises:
            InvalidValueError: another process holds the directory, it holds another run, or there is none to take up.
            DamagedRecordError: a record in it cannot be read.
        """
        self.path = Path(path)
        self.done: set[str] = set()
        self.unscored = 0
        self.repaired: tuple[str, ...] = ()
        if config is None:
            check_run(self.path)
        with ExitStack() as held:
            held.callback(os.close, _lock(self.path))
            self.manifest = self._take_up(config)
            self._episodes = held.enter_context(self._opened(EPISODES))
            self._failures = held.enter_context(self._opened(FAILURES))
            self._scan()
            self._held = held.pop_all()

    def _take_up(self, config: RunConfig | None) -> RunManifest:
        if not (self.path / RUN).exists():
            return self._begin(config)
        manifest = read_manifest(self.path)
        if config is not None:
            manifest.config.check_same(config, self.path)
        return manifest

    def _opened(self, name: str) -> AppendOnlyFile:
        file = AppendOnlyFile(self.path / name)
        if file.repaired:
            said = f"{file.path}: removed a last line that had been cut short ({file.repaired} bytes)"
            logger.warning(said)
            self.repaired += (said,)
        return file

    def _begin(self, config: RunConfig | None) -> RunManifest:
        present = [name for name in (EPISODES, FAILURES) if (self.path / name).exists()]
        if present or config is None:
            raise InvalidValueError(f"{self.path}: has {' and '.join(present)} but no {RUN}; not a run directory")
        manifest = RunManifest(config=config)
        self._write_manifest(manifest)
        return manifest

    def _scan(self) -> None:
        for number, episode in enumerate(read_run(self.path), start=1):
            if episode.key in self.done:
                raise DamagedRecordError(f"{self.path / EPISODES}, line {number}: episode {episode.key!r} stands twice")
            self.done.add(episode.key)
            self.unscored += is_unscored(episode)

    def append(self, episode: Episode) -> None:
        """Adds one episode; it is safe from the death of the process when this returns."""
        self._episodes.append(to_line(episode).encode())
        self.done.add(episode.key)
        self.unscored += is_unscored(episode)

    def append_failure(self, failure: FailureRecord) -> None:
        """Adds one failure; it is superseded when the episode succeeds later."""
        self._failures.append(f"{failure.model_dump_json()}\n".encode())

    def failures(self) -> tuple[FailureRecord, ...]:
        """The latest failure of every episode that has not succeeded since."""
        latest = {failure.key: failure for failure in _read(self.path / FAILURES, FailureRecord)}
        return tuple(failure for key, failure in latest.items() if key not in self.done)

    def finish(self, complete: bool = True, answered: Mapping[str, Any] | None = None) -> None:
        """Forces everything to the disk, drops superseded failures, notes the end in ``run.json``.

        Args:
            complete: whether the run came to its end; one that was stopped is not ``finished``.
            answered: who answered (:meth:`sotopia_env.chat_model.Ledger.answered`).
        """
        self._episodes.sync()
        failures = self.failures()
        write_text_atomically(self.path / FAILURES, "".join(f.model_dump_json() + "\n" for f in failures))
        counts = RunCounts(episodes=len(self.done), failed=len(failures), unscored=self.unscored)
        ended = {"finished": _now() if complete else None, "counts": counts if complete else None}
        self._write_manifest(self.manifest.model_copy(update={**ended, "models": self._models(answered)}))

    def _models(self, answered: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """What is known about who answered: a ledger's word goes before what was noted earlier."""
        return {**self.manifest.models, **(answered or {})}

    def note_models(self, answered: Mapping[str, Any]) -> None:
        """Notes in ``run.json`` who answered."""
        if answered:
            self._write_manifest(self.manifest.model_copy(update={"models": self._models(answered)}))

    def replace_episodes(self, temporary: Path, unscored: int) -> None:
        """Puts ``temporary``, a file in the same directory, in the place of the episodes, at once or not at all."""
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        temporary.replace(self.path / EPISODES)
        self._episodes.close()
        self._episodes = self._held.enter_context(self._opened(EPISODES))
        self.unscored = unscored
        if self.manifest.counts is not None:
            counts = self.manifest.counts.model_copy(update={"unscored": unscored})
            self._write_manifest(self.manifest.model_copy(update={"counts": counts}))

    def _write_manifest(self, manifest: RunManifest) -> None:
        write_text_atomically(self.path / RUN, manifest.model_dump_json(indent=2) + "\n")
        self.manifest = manifest

    def close(self) -> None:
        """Lets go of the files and the lock."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def is_unscored(episode: Episode) -> bool:
    """Whether the latest evaluation of an episode failed; an episode not evaluated yet is not *un*scored."""
    latest = episode.evaluation()
    return latest is not None and latest.unscored is not None


def read_manifest(path: Path) -> RunManifest:
    """Returns a run's ``run.json``, or raises :class:`DamagedRecordError`."""
    try:
        return RunManifest.model_validate_json((path / RUN).read_text(encoding="utf-8"))
    except ValidationError as error:
        raise DamagedRecordError(f"{path / RUN}: damaged ({explain(error)})") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedRecordError(f"{path / RUN}: cannot be read ({error})") from None


def check_run(path: Path) -> None:
    """Raises :class:`InvalidValueError` unless a run directory is there."""
    for name in (RUN, EPISODES):
        if not (path / name).is_file():
            raise InvalidValueError(f"{path}: expected a run directory with its {name}, found none")


def configured_evaluator(path: Path) -> Named | None:
    """Returns the evaluator a run was started with; ``None`` for a run without one, or a mere file of episodes.

    Raises:
        DamagedRecordError: ``run.json`` cannot be read.
    """
    return read_manifest(path).config.evaluator if path.is_dir() else None


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
    if path.is_dir() and not (path / RUN).exists():
        raise InvalidValueError(f"{path}: expected a run directory with a {RUN}, found none")
    if not path.exists():
        raise InvalidValueError(f"{path}: expected a run directory or a .jsonl file of episodes, found nothing")
    if file.exists():  # a run that was killed at once has none yet
        yield from read_episodes(file)


def _read(file: Path, record: type[_RecordT]) -> Iterator[_RecordT]:
    for where, line in read_lines(file) if file.exists() else ():
        try:
            yield record.model_validate_json(line)
        except ValidationError as error:
            raise DamagedRecordError(f"{where}: damaged record ({explain(error)})") from None


def read_failures(path: str | Path) -> tuple[FailureRecord, ...]:
    """Returns the lines of a run's ``failures.jsonl`` as they stand."""
    return tuple(_read(Path(path) / FAILURES, FailureRecord))


def _lock(path: Path) -> int:
    try:
        path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InvalidValueError(f"{path}: expected a directory that can be written ({error.strerror})") from None
    held = "another process is writing to this run directory; wait for it to end, or choose another directory"
    try:
        lock(descriptor, f"{path}: {held}")
    except InvalidValueError:
        os.close(descriptor)
        raise
    return descriptor
