"""A run as a user asks for it, in names and numbers, and the same run with every name resolved to its object.

A :class:`RunSpec` is read from YAML, from flags and from Python alike, and ``run.json`` keeps it, so that a run can be
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
from sotopia_env.errors import InvalidValueError
from sotopia_env.naming.grammar import split, split_names
from sotopia_env.runs.plan import EpisodePlan, Orders, all_matchups, plan_episodes
from sotopia_env.settings import Settings, merged, settings_of
from sotopia_env.storage.manifest import RUN, read_manifest
from sotopia_env.world.dynamics import Rules
from sotopia_env.yaml_text import read_yaml

if TYPE_CHECKING:
    from sotopia_env.chat_model.pool import ModelPool
    from sotopia_env.policies.policy import Policy
    from sotopia_env.world.episode import Evaluator
    from sotopia_env.world.scenario import Task
    from sotopia_env.world.taskset import TaskSet


class WorkOptions(Settings):
    """How work on many episodes is carried out.

    Attributes:
        concurrency: episodes in progress at once.
        timeout: seconds for playing one episode, and again for evaluating it; ``None`` for no limit.
        models: how language models are reached, and what they may spend. Where one request may take longer than
            ``timeout`` by default, it may take ``timeout``.
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
        object.__setattr__(self, "models", self.models.model_copy(update={"timeout": self.timeout}))
        return self


class PlayOptions(WorkOptions):
    """How episodes are played.

    Attributes:
        seed: of generated tasks and of the episodes.
        repeats: how often each episode is played, with other seeds.
        max_turns: turn limit; by default the task's, or 20.
        turn_order: ``round-robin``, ``random`` or ``simultaneous``; by default that of a YAML task file, or
            round-robin.
        orders: who begins in round-robin order: ``first``, seat 0; ``both``, every seat once; ``alternate``, once, the
            seats in turn from task to task.
        both_seats: whether every pairing is played in both seats.
        manner: settings of every language model in a seat that its own name does not give, such as ``temperature``.
    """

    seed: int = Field(default=0, ge=0)
    repeats: int = Field(default=1, ge=1)
    max_turns: int | None = Field(default=None, ge=1)
    turn_order: str | None = None
    orders: Orders = "first"
    both_seats: bool = True
    manner: dict[str, float | int | str] = Field(default_factory=dict)

    def plans(
        self, tasks: Iterable[Task], pairings: Iterable[Sequence[Policy]], rules: Rules, *, by_role: bool = False
    ) -> list[EpisodePlan]:
        """Returns the episodes between policies in tasks.

        Raises:
            InvalidValueError: there are none, or a pairing does not fit a task.
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
    """What is played, and how.

    Attributes:
        tasks: a source of tasks; see :func:`sotopia_env.naming.task_set`.
        n: how many tasks.
        level: difficulty of generated tasks.
    """

    tasks: str = "starter"
    n: int | None = Field(default=None, ge=1)
    level: str = "medium"

    @property
    def rules(self) -> Rules:
        """Order and limits of play: those in a YAML task file, with the settings on top."""
        return naming.task_rules(self.tasks, turn_order=self.turn_order, max_turns=self.max_turns)

    def task_set(self) -> TaskSet:
        """Returns the tasks; errors are those of :func:`sotopia_env.naming.task_set`."""
        return naming.task_set(self.tasks, self.n, self.seed, self.level)


class RunSpec(TaskOptions):
    """A run in names and numbers; picklable, and the same spec makes the same plan on every machine.

    Attributes:
        policies: names, each one or several with commas; each plays each.
        matchups: single pairings, as ``"a vs b"``; ``"a vs a"`` for a policy against itself.
        evaluator: its name, or ``none``.
        self_play: whether policies also play themselves.
        by_role: whether a pairing seats one policy with all senders and the other with all receivers.
    """

    policies: tuple[str, ...] = ()
    matchups: tuple[str, ...] = ()
    evaluator: str = "verified+rules"
    self_play: bool = True
    by_role: bool = False

    def resolve(self, models: ModelPool, *, check_limits: bool = True) -> ResolvedRun:
        """Returns the run with tasks, policies and evaluator in place of their names.

        Args:
            models: makes the models that are named.
            check_limits: whether limits that contradict each other are refused; a process that has only a share of
                the run's limits does not check them, since the run as a whole did.

        Raises:
            InvalidValueError: nothing to play, or an option that cannot be meant or contradicts another.
            UnknownNameError: a name is not known.
        """
        rules, pairings = self.rules, self._pairings(models)
        policies = [policy for pairing in pairings for policy in pairing]
        evaluator = naming.make_optional_evaluator(self.evaluator, model_factory=models.judge, policies=policies)
        if check_limits:
            models.check_answers(*(policy.parameters for policy in policies))
            models.check_answers(evaluator.parameters if evaluator else {})
        return ResolvedRun(self, self.task_set(), pairings, evaluator, rules)

    def _pairings(self, models: ModelPool) -> tuple[tuple[Policy, ...], ...]:
        """Every named policy against every other, and the explicit matchups."""
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
    """A run whose names have been resolved once; what is planned, forecast and played.

    Attributes:
        spec: the order of play, repeats and seeds.
        tasks: what the episodes are about.
        pairings: the policies that play each other.
        evaluator: of every episode, if any.
        rules: order and limits of play.
    """

    spec: RunSpec
    tasks: TaskSet
    pairings: tuple[tuple[Policy, ...], ...]
    evaluator: Evaluator | None
    rules: Rules

    def plans(self) -> list[EpisodePlan]:
        """Returns the episodes.

        Raises:
            InvalidValueError: there are none, or a matchup fits no task.
        """
        return self.spec.plans(self.tasks, self.pairings, self.rules, by_role=self.spec.by_role)


def read_specs(path: Path, values: dict[str, Any]) -> list[RunSpec]:
    """Returns the run in a YAML file, or those in a ``run.json``: as it was started, and as it was added to.

    Args:
        path: of the file.
        values: settings that replace those in the file.

    Raises:
        InvalidValueError: the file cannot be read, or a setting is invalid.
        UnknownNameError: there is no such setting.
    """
    if path.name == RUN:
        contents = [dict(spec) for spec in read_manifest(path.parent).specs]
        if not contents:
            raise InvalidValueError("it was not played by a command", expected="the specs of a run", where=path)
    else:
        contents = [read_yaml(path)]
    for content in contents:
        if not isinstance(content, dict):
            raise InvalidValueError(expected="a mapping of settings", got=content, where=path)
    return [settings_of(merged(content, values), RunSpec, str(path)) for content in contents]
