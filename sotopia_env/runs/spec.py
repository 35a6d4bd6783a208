"""The specification of a run in names and numbers, and the same run with every name resolved to an object.

A :class:`RunSpec` can come from YAML, from flags or from Python. ``run.json`` records it, so that a run can be
played again from its own directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, model_validator

from sotopia_env import naming
from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.settings import Settings, merged, settings_of
from sotopia_env.foundation.yaml_text import read_yaml
from sotopia_env.naming.grammar import split, split_names
from sotopia_env.runs.plan import EpisodePlan, Orders, all_matchups, plan_episodes
from sotopia_env.storage.manifest import RUN, read_manifest
from sotopia_env.world.dynamics import Rules
from sotopia_env.world.play.notes import CarriedNotes, notes_length

if TYPE_CHECKING:
    from sotopia_env.chat_model.pool import ModelPool
    from sotopia_env.world.episode import Evaluator
    from sotopia_env.world.play.policy import Policy
    from sotopia_env.world.scenario import Task
    from sotopia_env.world.taskset import TaskSet


class WorkOptions(Settings):
    """Options for work on many episodes.

    Attributes:
        concurrency: the number of episodes in progress at once.
        timeout: seconds for playing one episode, and again for evaluating it; ``None`` for no limit.
        models: the options and the budget of language models. Unless ``models.timeout`` is set, it is reduced to
            ``timeout`` if that is shorter.
    """

    concurrency: int = Field(default=128, ge=1)
    timeout: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    models: ModelOptions = ModelOptions()

    @model_validator(mode="after")
    def _fit_requests(self) -> Self:
        if self.timeout is None or self.models.timeout <= self.timeout:
            return self
        if "timeout" in self.models.model_fields_set:
            expected = f"at least models.timeout {self.models.timeout:g}, the seconds of one request"
            raise InvalidValueError(field="timeout", expected=expected, got=self.timeout)
        # The default time of a request is not the user's choice; it must not make a shorter episode limit an error.
        object.__setattr__(self, "models", self.models.model_copy(update={"timeout": self.timeout}))
        return self


class EpisodeOptions(WorkOptions):
    """Options for playing one episode.

    Attributes:
        seed: the seed of generated tasks and of the episodes.
        max_turns: the turn limit; by default the task's, or 20.
        turn_order: ``round-robin``, ``random``, ``simultaneous`` or ``reactive``; by default that of a YAML task
            file, or round-robin.
        worths: whether seats read what single values and open offers are worth to them; by default as in a YAML task
            file, or yes.
        carry: ``notes`` lets every seat take its own notes from one episode to the next with the same people, by
            default up to 600 characters; ``notes:N`` up to N (:mod:`sotopia_env.runs.series`).
    """

    seed: int = Field(default=0, ge=0)
    max_turns: int | None = Field(default=None, ge=1)
    turn_order: str | None = None
    worths: bool | None = None
    carry: CarriedNotes | None = None

    @property
    def rule_options(self) -> dict[str, Any]:
        """The options that are fields of :class:`~sotopia_env.world.Rules`."""
        return {"turn_order": self.turn_order, "max_turns": self.max_turns, "worths": self.worths} | (
            {} if self.carry is None else {"carry": notes_length(self.carry)}
        )


class PlayOptions(EpisodeOptions):
    """Options for playing episodes.

    Attributes:
        repeats: how often each episode is played, each time with another seed.
        orders: which seat acts first in round-robin order: ``first``, seat 0; ``both``, every seat in one episode
            each; ``alternate``, the seats in turn from task to task.
        both_seats: whether every pairing is played in both seat assignments.
        manner: settings of every language model in a seat, such as ``temperature``; settings in a policy's name take
            precedence.
    """

    repeats: int = Field(default=1, ge=1)
    orders: Orders = "first"
    both_seats: bool = True
    manner: dict[str, float | int | str] = Field(default_factory=dict)

    def plans(
        self, tasks: Iterable[Task], pairings: Iterable[Sequence[Policy]], rules: Rules, *, by_role: bool = False
    ) -> list[EpisodePlan]:
        """Returns the episodes between policies in tasks.

        Raises:
            InvalidValueError: there are no episodes, or a pairing does not fit a task.
        """
        return plan_episodes(
            tasks,
            pairings,
            repeats=self.repeats,
            seed=self.seed,
            rules=rules,
            both_seats=self.both_seats,
            orders=self.orders,
            by_role=by_role,
        )


class TaskOptions(PlayOptions):
    """Options for playing episodes in the tasks of a source.

    Attributes:
        tasks: a source of tasks; see :func:`sotopia_env.naming.task_set`.
        n: the number of tasks.
        level: the difficulty of generated tasks.
    """

    tasks: str = "all"
    n: int | None = Field(default=None, ge=1)
    level: str = "medium"

    @property
    def rules(self) -> Rules:
        """The order and limits of play: those of the settings, or else those in a YAML task file."""
        return naming.task_rules(self.tasks, **self.rule_options)

    def task_set(self) -> TaskSet:
        """Returns the tasks; raises the errors of :func:`sotopia_env.naming.task_set`."""
        return naming.task_set(self.tasks, self.n, self.seed, self.level)


class RunSpec(TaskOptions):
    """A run in names and numbers; picklable, and the same spec gives the same plan on every machine.

    Attributes:
        policies: the names of policies, also comma-separated; every policy plays every other.
        matchups: single pairings, as ``"a vs b"``; ``"a vs a"`` for a policy against itself.
        evaluator: the name of the evaluator, or ``none``.
        self_play: whether policies also play themselves.
        by_role: whether one policy of a pairing plays all senders and the other all receivers.
    """

    policies: tuple[str, ...] = ()
    matchups: tuple[str, ...] = ()
    evaluator: str = "verified"
    self_play: bool = True
    by_role: bool = False

    def resolve(self, models: ModelPool, *, check_limits: bool = True) -> ResolvedRun:
        """Returns the run with the names of tasks, policies and evaluator replaced by objects.

        Args:
            models: the pool that makes the named models.
            check_limits: whether contradictory limits are refused. A process with a share of the run's limits does
                not check them: they were checked for the run as a whole.

        Raises:
            InvalidValueError: there is nothing to play, or an option is invalid or contradicts another.
            UnknownNameError: a name is unknown.
        """
        rules, pairings = self.rules, self._pairings(models)
        policies = [policy for pairing in pairings for policy in pairing]
        evaluator = naming.make_optional_evaluator(self.evaluator, model_factory=models.judge, policies=policies)
        if check_limits:
            models.check_answers(*(policy.parameters for policy in policies))
            models.check_answers(evaluator.parameters if evaluator else {})
        return ResolvedRun(self, self.task_set(), pairings, evaluator, rules)

    def _pairings(self, models: ModelPool) -> tuple[tuple[Policy, ...], ...]:
        """Returns every named policy against every other one, and the explicit matchups."""
        names = list(dict.fromkeys(name for text in self.policies for name in split_names(text)))
        matchups = [split(text, " vs ") for text in self.matchups]
        if not names and not matchups:
            raise InvalidValueError(
                field="policies", expected="at least one, or a matchup", hint="`sotopia policies` lists the names"
            )
        for text, sides in zip(self.matchups, matchups, strict=True):
            if len(sides) == 1:
                raise InvalidValueError(
                    field="matchup",
                    expected="'a vs b'",
                    got=text,
                    hint=f"a policy against itself is '{text} vs {text}'",
                )
        if any(name.partition(":")[0].strip() == "human" for side in (names, *matchups) for name in side):
            raise InvalidValueError(
                "a rollout has no person to ask", field="policies", got="human", hint="take a seat with `sotopia play`"
            )

        def make(name: str) -> Policy:
            return naming.make_policy(name, models, self.manner)

        policies = [make(name) for name in names]
        explicit = [tuple(make(name) for name in sides) for sides in matchups]
        return (*all_matchups(policies, self.self_play or len(policies) == 1), *explicit)


@dataclass(frozen=True, slots=True)
class ResolvedRun:
    """A run with all names resolved, ready to be planned, forecast and played.

    Attributes:
        spec: the specification, with the order of play, repeats and seeds.
        tasks: the tasks of the episodes.
        pairings: the policies that play each other.
        evaluator: the evaluator of every episode, if any.
        rules: the order and limits of play.
    """

    spec: RunSpec
    tasks: TaskSet
    pairings: tuple[tuple[Policy, ...], ...]
    evaluator: Evaluator | None
    rules: Rules

    def plans(self) -> list[EpisodePlan]:
        """Returns the episodes.

        Raises:
            InvalidValueError: the run has no episodes, or a matchup fits no task.
        """
        return self.spec.plans(self.tasks, self.pairings, self.rules, by_role=self.spec.by_role)


def read_specs(path: Path, values: dict[str, Any]) -> list[RunSpec]:
    """Returns the spec in a YAML file, or those in a ``run.json``: the first one, and those that were added.

    Args:
        path: the path of the file.
        values: settings that replace those in the file.

    Raises:
        InvalidValueError: the file cannot be read, or a setting is invalid.
        UnknownNameError: the file or ``values`` contains an unknown setting.
    """
    if path.name == RUN:
        contents = [dict(spec) for spec in read_manifest(path.parent).specs]
        if not contents:
            raise InvalidValueError("the run was not started by a command", expected="the specs of a run", where=path)
    else:
        contents = [read_yaml(path)]
    for content in contents:
        if not isinstance(content, dict):
            raise InvalidValueError(expected="a mapping of settings", got=content, where=path)
    return [settings_of(merged(content, values), RunSpec, str(path)) for content in contents]
