"""The records of a run other than its episodes: configuration, counts, provenance and failures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from sotopia_env.foundation.errors import DamagedRecordError, InvalidValueError, Verbatim
from sotopia_env.foundation.files import read_text
from sotopia_env.foundation.json_text import canonical_json, decode_json, first_difference
from sotopia_env.foundation.records import JsonObject, Record, read_record
from sotopia_env.foundation.validation import explain
from sotopia_env.foundation.versions import code_version, package_versions, source_revision
from sotopia_env.world.answers import Configured, settings_of
from sotopia_env.world.dynamics import Rules
from sotopia_env.world.episode import (
    COUNTS_OF_WORDS,
    SCHEMA_VERSION,
    EpisodeError,
    Evaluation,
    RecordedTurn,
    SchemaVersion,
)

EPISODES, FAILURES, RUN, LOCK = "episodes.jsonl", "failures.jsonl", "run.json", ".lock"
UNFINISHED = "unfinished.jsonl"


def now() -> str:
    """Returns the current time in UTC as ISO 8601 text, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class Named(Record):
    """A policy or evaluator as it was configured."""

    name: str
    parameters: JsonObject = Field(default_factory=dict)


def named(configured: Configured) -> Named:
    """Returns the record of a policy's or an evaluator's name and parameters.

    Raises:
        InvalidValueError: the parameters cannot be written as JSON.
    """
    try:
        return Named(name=configured.name, parameters=dict(configured.parameters))
    except ValidationError as error:
        problem = f"parameters must be JSON values ({explain(error)})"
        raise InvalidValueError(problem, field=configured.name) from None


class RunConfig(Record):
    """The configuration of a run. The same one resumes a directory; others with the same tasks are added to it.

    Attributes:
        tasks: the number of different tasks; ``tasks_hash`` is a hash of their contents.
        episodes: the number of planned episodes; ``plan_hash`` is a hash of their keys.
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
        # Not mode="json", which turns parameters into text: ``first_difference`` must look inside them.
        values: dict[str, Any] = decode_json(canonical_json(self.model_dump()))
        return values

    def is_same(self, other: RunConfig) -> bool:
        """Whether ``other`` is the same run."""
        return self.as_json() == other.as_json()


_OF_MATCHUPS = ("policies", "matchups", "episodes", "plan_hash")
"""Fields in which an added configuration may differ from that of the run."""


def _other_run(path: Path, name: str, present: object, new: object) -> InvalidValueError:
    if isinstance(present, list) and isinstance(new, list) and len(present) == len(new) == 1:
        present, new = present[0], new[0]  # the only seed or rules, which a user gave without a list
    field, expected, got = first_difference(name, present, new)
    hint = "resume it with the settings it was started with, or choose another directory"
    if field == "evaluator.name" and COUNTS_OF_WORDS in str(present):
        hint = "'rules' counted words and was removed: play the other episodes into another directory"
    if ".parameters.prompts." in field:
        hint = "the prompts of this version are others: play the other episodes into another directory"
    return InvalidValueError(
        "the directory holds another run", field=field, expected=expected, got=Verbatim(got), hint=hint, where=path
    )


def _settings(policies: Iterable[Named]) -> list[tuple[str, Any]]:
    """Returns the names and settings of policies as JSON values."""
    return [(policy.name, decode_json(canonical_json(settings_of(policy)))) for policy in policies]


class RunCounts(Record):
    """Counts at the end of a run: recorded episodes, outstanding failures, unscored episodes."""

    episodes: int
    failed: int
    unscored: int


class RunManifest(Record):
    """The contents of ``run.json``.

    Times are UTC, ISO 8601. They are empty in a run of imported episodes, since they are unknown.

    Attributes:
        config: the configuration with which the run was started; for a part, that of the whole run. The parameters of
            policies and evaluators in it contain the hashes of their prompts.
        added: configurations that were added later: other matchups with the same tasks, rules, seed, repeats and
            evaluator.
        specs: the settings of the commands that started and extended the run
            (:class:`sotopia_env.runs.spec.RunSpec`); empty for plans made in Python.
        part: the share that was played, such as ``3/16``; ``None`` for a whole run.
        code: the modules that were imported because a policy or scorer was named in them: for each module its file and
            the hash of its source, with several entries if a resumed run found it changed.
        finished: the end of the latest configuration that was played; ``None`` while the run is not done.
        counts: the counts at that time; ``None`` while the run is not done.
        models: the models that answered, by account (agent or judge), model as the user named it, and name and version
            that the server reported, with the number of answers.
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
        """The configuration with which the run was started, and those that were added."""
        return (self.config, *self.added)

    @property
    def policies(self) -> tuple[Named, ...]:
        """The policies of the whole run, each once."""
        policies = [policy for config in self.configs for policy in config.policies]
        return tuple({canonical_json(policy.model_dump()): policy for policy in policies}.values())

    def adds(self, other: RunConfig, path: Path) -> bool:
        """Whether ``other`` has to be added to the run; ``False`` if the run has this configuration already.

        Only configurations with other matchups, and so other policies, can be added. A policy with a name that the run
        contains must have the settings of the run's policy, except for the participant: a changed policy is refused
        instead of being played in addition.

        Raises:
            InvalidValueError: ``other`` belongs to another run; the error names the first field that differs.
        """
        if any(other.is_same(config) for config in self.configs):
            return False
        present, new = self.config.as_json(), other.as_json()
        variants: dict[str, list[Any]] = {}
        for name, settings in _settings(self.policies):
            variants.setdefault(name, []).append(settings)
        for name, settings in _settings(other.policies):
            # Policies of one name may occur with several settings already; any of them is accepted.
            own = variants.get(name, [settings])
            if settings not in own:
                raise _other_run(path, f"policies.{name}.parameters", own[0], settings)
        for name in RunConfig.model_fields:
            if name not in _OF_MATCHUPS and present[name] != new[name]:
                raise _other_run(path, name, present[name], new[name])
        return True


class FailureRecord(Record):
    """An episode that could not be finished, with the reason.

    Attributes:
        kind: the exception's class; ``"Timeout"`` for the time limit of an episode.
        traceback: the last lines of the traceback.
        turns: the turns before the failure.
        errors: earlier failures in these turns that did not end the episode.
        culprits: the identities (:func:`~sotopia_env.world.play.policy.policy_identity`) of the policies whose turn it
            was; empty in records of earlier versions.
    """

    key: str
    task: str
    policies: tuple[str, ...]
    kind: str
    message: str
    traceback: str = ""
    turns: tuple[RecordedTurn, ...] = ()
    errors: tuple[EpisodeError, ...] = ()
    culprits: tuple[str, ...] = ()


class UnfinishedPart(Record):
    """A turn of an unfinished episode, or the evaluation by one judge of a panel that has not ended.

    Attributes:
        key: the key of the episode.
        turn: the turn with the model's text.
        errors: external failures during the turn that did not end the episode.
        evaluation: the evaluation by the judge.
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
    """Returns the evaluator with which a run was started; ``None`` for a run without one, or a file of episodes.

    Raises:
        DamagedRecordError: ``run.json`` cannot be read.
    """
    return read_manifest(path).config.evaluator if path.is_dir() else None


def configured_policies(path: Path) -> Iterator[Named]:
    """Yields the policies of a run, or nothing for a file of episodes; ``run.json`` is read lazily.

    Raises:
        DamagedRecordError: ``run.json`` cannot be read.
    """
    if path.is_dir():
        yield from read_manifest(path).policies
