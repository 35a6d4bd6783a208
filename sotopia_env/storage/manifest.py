"""Records beside a run's episodes: its configuration, counts, provenance and failures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from sotopia_env.errors import DamagedRecordError, InvalidValueError, Verbatim
from sotopia_env.files import read_text
from sotopia_env.json_text import decode_json
from sotopia_env.records import (
    JsonObject,
    Record,
    canonical_json,
    code_version,
    explain,
    first_difference,
    package_versions,
    read_record,
    source_revision,
)
from sotopia_env.world.answers import Configured, settings_of
from sotopia_env.world.dynamics import Rules
from sotopia_env.world.episode import SCHEMA_VERSION, EpisodeError, Evaluation, RecordedTurn, SchemaVersion

EPISODES, FAILURES, RUN, LOCK = "episodes.jsonl", "failures.jsonl", "run.json", ".lock"
UNFINISHED = "unfinished.jsonl"


def now() -> str:
    """Returns the time in UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class Named(Record):
    """A policy or evaluator as it was configured."""

    name: str
    parameters: JsonObject = Field(default_factory=dict)


def named(configured: Configured) -> Named:
    """Returns the record of a policy's or an evaluator's name and parameters.

    Raises:
        InvalidValueError: these cannot be written as JSON.
    """
    try:
        return Named(name=configured.name, parameters=dict(configured.parameters))
    except ValidationError as error:
        problem = f"parameters must be JSON values ({explain(error)})"
        raise InvalidValueError(problem, field=configured.name) from None


class RunConfig(Record):
    """The contents of a run; a directory is resumed by the same one, and others of the same tasks are added to it.

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

    def as_json(self) -> dict[str, Any]:
        """Returns all fields as JSON values."""
        # Not mode="json", in which parameters are text: differences are looked for inside them.
        values: dict[str, Any] = decode_json(canonical_json(self.model_dump()))
        return values

    def is_same(self, other: RunConfig) -> bool:
        """Whether ``other`` is the same run."""
        return self.as_json() == other.as_json()


_OF_MATCHUPS = ("policies", "matchups", "episodes", "plan_hash")
"""Fields in which the parts of one run differ."""


def _other_run(path: Path, name: str, present: object, new: object) -> InvalidValueError:
    field, expected, got = first_difference(name, present, new)
    return InvalidValueError(
        "the directory holds another run",
        field=field,
        expected=expected,
        got=Verbatim(got),
        hint="resume it with the settings it was started with, or choose another directory",
        where=path,
    )


def _settings(policies: Iterable[Named]) -> list[tuple[str, Any]]:
    """Name and settings of policies, as JSON values."""
    return [(policy.name, decode_json(canonical_json(settings_of(policy)))) for policy in policies]


class RunCounts(Record):
    """How a run ended: episodes recorded, outstanding failures, episodes without scores."""

    episodes: int
    failed: int
    unscored: int


class RunManifest(Record):
    """Contents of ``run.json``. Times are UTC, ISO 8601; ``finished`` and ``counts`` are null while a run goes on;
    both times are empty in a run of imported episodes, since nobody knows them.

    ``specs`` are the settings of the commands that played it (:class:`sotopia_env.runs.spec.RunSpec`): as it was
    started, and as it was added to; empty for plans made in Python. ``config`` is the run as it was started, ``added``
    the matchups that were added to it later, with the same tasks, rules, seed, repeats and evaluator; ``finished`` is
    the end of the latest of these that was played.
    ``models`` holds the models that answered: by account (agent or judge) and model as it was named, the name and
    version that the server gave, with the number of answers. Prompts are in ``config``: the parameters of policies and
    evaluators hold their hashes. ``code`` holds the modules that names of policies and scorers had imported: by module
    its file and the hash of its source, several where a resumed run found it changed. ``part`` is set where only a
    share of the run was played, such as ``3/16``; ``config`` is that of the whole run.
    """

    schema_version: SchemaVersion = SCHEMA_VERSION
    config: RunConfig
    added: tuple[RunConfig, ...] = ()
    specs: tuple[JsonObject, ...] = ()
    part: str | None = None
    code_version: str = Field(default_factory=code_version)
    code: JsonObject = Field(default_factory=dict)
    packages: JsonObject = Field(default_factory=package_versions)
    revision: str | None = Field(default_factory=source_revision)
    started: str = Field(default_factory=now)
    finished: str | None = None
    counts: RunCounts | None = None
    models: JsonObject = Field(default_factory=dict)

    @property
    def configs(self) -> tuple[RunConfig, ...]:
        """The run as it was started, and what was added to it."""
        return (self.config, *self.added)

    @property
    def policies(self) -> tuple[Named, ...]:
        """The policies of the whole run, each once."""
        policies = [policy for config in self.configs for policy in config.policies]
        return tuple({canonical_json(policy.model_dump()): policy for policy in policies}.values())

    def adds(self, other: RunConfig, path: Path) -> bool:
        """Whether ``other`` would be added to the run: only its matchups, and so its policies, are others.

        A policy of a name that the run has must be the run's, but for the person that it is: changed settings are
        refused, not played beside it.

        Raises:
            InvalidValueError: it is another run; names the first field in which ``other`` differs.
        """
        if any(other.is_same(config) for config in self.configs):
            return False
        present, new = self.config.as_json(), other.as_json()
        variants: dict[str, list[Any]] = {}
        for name, settings in _settings(self.policies):
            variants.setdefault(name, []).append(settings)
        for name, settings in _settings(other.policies):
            own = variants.get(name, [settings])
            if settings not in own:
                raise _other_run(path, f"policies.{name}.parameters", own[0], settings)
        for name in RunConfig.model_fields:
            if name not in _OF_MATCHUPS and present[name] != new[name]:
                raise _other_run(path, name, present[name], new[name])
        return True


class FailureRecord(Record):
    """An episode that was not finished, and why.

    Attributes:
        kind: the exception's class, ``"Timeout"`` for the time limit of an episode.
        traceback: the last lines of the traceback.
        turns: those before the failure.
        errors: earlier failures in these turns that did not end the episode.
    """

    key: str
    task: str
    policies: tuple[str, ...]
    kind: str
    message: str
    traceback: str = ""
    turns: tuple[RecordedTurn, ...] = ()
    errors: tuple[EpisodeError, ...] = ()


class UnfinishedPart(Record):
    """A turn of an episode that is not recorded yet, or the evaluation of a judge whose panel has not ended.

    Attributes:
        key: of the episode.
        turn: with the text behind it.
        errors: what failed outside while it was made, and was survived.
        evaluation: of the judge.
    """

    key: str
    turn: RecordedTurn | None = None
    errors: tuple[EpisodeError, ...] = ()
    evaluation: Evaluation | None = None


def read_manifest(path: Path) -> RunManifest:
    """Returns a run's ``run.json``, or raises :class:`DamagedRecordError`."""
    file = path / RUN
    return read_record(RunManifest, read_text(file, DamagedRecordError), file)


def configured_evaluator(path: Path) -> Named | None:
    """Returns the evaluator a run was started with; ``None`` for a run without one, or a mere file of episodes.

    Raises:
        DamagedRecordError: ``run.json`` cannot be read.
    """
    return read_manifest(path).config.evaluator if path.is_dir() else None


def configured_policies(path: Path) -> Iterator[Named]:
    """Yields the policies of a run; none for a mere file of episodes. The run is read when the first one is asked for.

    Raises:
        DamagedRecordError: ``run.json`` cannot be read.
    """
    if path.is_dir():
        yield from read_manifest(path).policies
