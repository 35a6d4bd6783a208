"""What a run consists of, in words: the same words make the same plan in another process or on another machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sotopia_env.errors import InvalidValueError

if TYPE_CHECKING:  # a command imports what it needs when it runs
    from sotopia_env.policies.policy import Policy
    from sotopia_env.world.episode import Evaluator

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sotopia_env.chat_model.pool import ModelOptions, RunModels
from sotopia_env.naming.task_sources import task_set
from sotopia_env.world.dynamics import Rules

if TYPE_CHECKING:
    from sotopia_env.policies.policy import Policy
    from sotopia_env.runs.plan import EpisodePlan
    from sotopia_env.world.episode import Evaluator


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A run as it is asked for on the command line; picklable.

    Attributes:
        policies: names; each plays each.
        matchups: single pairings, as ``"a vs b"``.
        tasks: a source of tasks; see :func:`sotopia_env.naming.task_sources.task_set`.
        n: how many tasks.
        level: difficulty of generated tasks.
        seed: of generated tasks and of the episodes.
        evaluator: its name, or ``none``.
        repeats: repetitions with other seeds.
        rules: order and limits.
        self_play: whether policies also play themselves.
        both_seats: whether every pairing is played in both seats.
        both_orders: whether every seat begins once.
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
    manner: Mapping[str, float | int] = field(default_factory=dict)
    models: ModelOptions = ModelOptions()  # noqa: RUF009 - frozen

    def plans(self, models: RunModels, *, check_limits: bool = True) -> list[EpisodePlan]:
        """Returns the episodes, whose policies ask ``models``.

        Args:
            models: makes the models that are named.
            check_limits: whether limits that contradict each other are refused; not where they are a part of the
                run's, which was checked as a whole.

        Raises:
            InvalidValueError: nothing to play, or an option that cannot be meant.
            UnknownNameError: a name is not known.
        """
        from sotopia_env.runs.plan import plan_episodes

        pairings = self._pairings(models)
        if check_limits:
            models.check_answers(*(policy.parameters for pairing in pairings for policy in pairing))
        return plan_episodes(
            task_set(self.tasks, self.n, self.seed, self.level),
            pairings,
            repeats=self.repeats,
            seed=self.seed,
            rules=self.rules,
            both_seats=self.both_seats,
            both_orders=self.both_orders,
        )

    def _pairings(self, models: RunModels) -> list[tuple[Policy, ...]]:
        from sotopia_env import naming

        def make(spec: str) -> Policy:
            return naming.make_policy(spec, models, self.manner)

        return read_matchups(self.policies, self.matchups, self.self_play, make)

    def judge(self, models: RunModels, *, check_limits: bool = True) -> Evaluator | None:
        """Returns the evaluator, whose judges ask ``models``; ``None`` for ``none``.

        ``check_limits`` is as for :meth:`plans`.

        Raises:
            UnknownNameError: a name is not known.
            InvalidValueError: an option cannot be meant, or contradicts another.
        """
        return None if self.evaluator == "none" else make_judge(self.evaluator, models, check_limits=check_limits)


def make_judge(spec: str, models: RunModels, *, check_limits: bool = True) -> Evaluator:
    """Returns the evaluator that ``spec`` names, whose judges ask ``models``.

    ``check_limits`` is as for :meth:`RunRequest.plans`.

    Raises:
        UnknownNameError: a name is not known.
        InvalidValueError: an option cannot be meant, or contradicts another.
    """
    from sotopia_env import naming

    judge = naming.make_evaluator(spec, model_factory=models.judge)
    if check_limits:
        models.check_answers(judge.parameters)
    return judge


def read_matchups(
    names: Sequence[str], pairs: Sequence[str], self_play: bool, make: Callable[[str], Policy]
) -> list[tuple[Policy, ...]]:
    """Returns every named policy against every other, and the explicit pairings ``"a vs b"``.

    Args:
        names: of policies, each one text or several with commas.
        pairs: pairings.
        self_play: whether policies also play themselves.
        make: makes a policy of its name.

    Raises:
        InvalidValueError: no policy is named, or a person.
        UnknownNameError: a policy is not known.
    """
    from sotopia_env.runs.plan import all_matchups

    wanted = [spec for name in names for spec in split_policies(name)]
    if not wanted and not pairs:
        raise InvalidValueError("--policy or --matchup: expected at least one; `sotopia policies` lists the names")
    sides = [side.strip() for pair in pairs for side in pair.split(" vs ")]
    if any(spec.partition(":")[0].strip() == "human" for spec in (*wanted, *sides)):
        raise InvalidValueError("policy 'human': a rollout asks nobody; take a seat yourself with `sotopia play`")
    made = [make(spec) for spec in dict.fromkeys(wanted)]
    explicit = [tuple(make(side.strip()) for side in pair.split(" vs ")) for pair in pairs]
    return [*all_matchups(made, self_play or len(made) == 1), *explicit]


def split_policies(text: str) -> list[str]:
    """Returns the policies in ``"a,b:x=1,y=2,c"``.

    A comma before ``key=value`` belongs to the policy before it, and one in parentheses to what is in them.
    """
    found: list[str] = []
    for part in text.split(","):
        within = bool(found) and found[-1].count("(") > found[-1].count(")")
        if within or (found and _SETTING.match(part)):
            found[-1] += f",{part.strip()}"
        else:
            found.append(part.strip())
    return found


_SETTING = re.compile(r"\s*\w+\s*=")
