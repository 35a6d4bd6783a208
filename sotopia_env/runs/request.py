"""A run as a user asks for it, in names and numbers, and the same run with every name resolved to its object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sotopia_env import naming
from sotopia_env.chat_model.pool import ModelOptions
from sotopia_env.errors import InvalidValueError
from sotopia_env.naming.grammar import split, split_names
from sotopia_env.runs.plan import EpisodePlan, all_matchups, plan_episodes
from sotopia_env.world.dynamics import Rules

if TYPE_CHECKING:
    from sotopia_env.chat_model.pool import ModelPool
    from sotopia_env.policies.policy import Policy
    from sotopia_env.world.episode import Evaluator
    from sotopia_env.world.taskset import TaskSet


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A run in names and numbers; picklable, and the same request makes the same plan on every machine.

    Attributes:
        policies: names, each one or several with commas; each plays each.
        matchups: single pairings, as ``"a vs b"``; ``"a vs a"`` for a policy against itself.
        tasks: a source of tasks; see :func:`sotopia_env.naming.task_set`.
        n: how many tasks.
        level: difficulty of generated tasks.
        seed: of generated tasks and of the episodes.
        evaluator: its name, or ``none``.
        repeats: repetitions with other seeds.
        rules: order and limits.
        self_play: whether policies also play themselves.
        both_seats: whether every pairing is played in both seats.
        both_orders: whether every seat begins once.
        by_role: whether a pairing seats one policy with all senders and the other with all receivers.
        manner: settings of every language model in a seat that its own name does not give, such as ``temperature``.
        models: how the models are reached.
    """

    policies: tuple[str, ...] = ()
    matchups: tuple[str, ...] = ()
    tasks: str = "starter"
    n: int | None = None
    level: str = "medium"
    seed: int = 0
    evaluator: str = "verified+rules"
    repeats: int = 1
    rules: Rules = Rules()  # noqa: RUF009 - frozen
    self_play: bool = True
    both_seats: bool = True
    both_orders: bool = False
    by_role: bool = False
    manner: Mapping[str, float | int] = field(default_factory=dict)
    models: ModelOptions = ModelOptions()  # noqa: RUF009 - frozen

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
        pairings = self._pairings(models)
        policies = [policy for pairing in pairings for policy in pairing]
        evaluator = naming.make_optional_evaluator(self.evaluator, model_factory=models.judge, policies=policies)
        if check_limits:
            models.check_answers(*(policy.parameters for policy in policies))
            models.check_answers(evaluator.parameters if evaluator else {})
        return ResolvedRun(self, naming.task_set(self.tasks, self.n, self.seed, self.level), pairings, evaluator)

    def _pairings(self, models: ModelPool) -> tuple[tuple[Policy, ...], ...]:
        """Every named policy against every other, and the explicit matchups."""
        names = list(dict.fromkeys(name for text in self.policies for name in split_names(text)))
        matchups = [split(text, " vs ") for text in self.matchups]
        if not names and not matchups:
            raise InvalidValueError("policies or matchups: expected at least one; `sotopia policies` lists the names")
        for text, sides in zip(self.matchups, matchups, strict=True):
            if len(sides) == 1:
                raise InvalidValueError(
                    f"matchup: expected 'a vs b', got {text!r}; a policy against itself is '{text} vs {text}'"
                )
        if any(name.partition(":")[0].strip() == "human" for side in (names, *matchups) for name in side):
            raise InvalidValueError("policy 'human': a rollout asks nobody; take a seat yourself with `sotopia play`")

        def make(name: str) -> Policy:
            return naming.make_policy(name, models, self.manner)

        policies = [make(name) for name in names]
        explicit = [tuple(make(name) for name in sides) for sides in matchups]
        return (*all_matchups(policies, self.self_play or len(policies) == 1), *explicit)


@dataclass(frozen=True, slots=True)
class ResolvedRun:
    """A run whose names have been resolved once; what is planned, forecast and played.

    Attributes:
        request: the order of play, repeats and seeds.
        tasks: what the episodes are about.
        pairings: the policies that play each other.
        evaluator: of every episode, if any.
    """

    request: RunRequest
    tasks: TaskSet
    pairings: tuple[tuple[Policy, ...], ...]
    evaluator: Evaluator | None

    def plans(self) -> list[EpisodePlan]:
        """Returns the episodes.

        Raises:
            InvalidValueError: there are none, or a matchup fits no task.
        """
        request = self.request
        return plan_episodes(
            self.tasks,
            self.pairings,
            repeats=request.repeats,
            seed=request.seed,
            rules=request.rules,
            both_seats=request.both_seats,
            both_orders=request.both_orders,
            by_role=request.by_role,
        )
