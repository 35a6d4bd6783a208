"""The options of an environment, checked once: tasks, evaluator, rules, reward and rendering, as objects or by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple, Self, TypedDict, cast

import numpy as np

from sotopia_env.envs.fresh_tasks import FreshTasks
from sotopia_env.envs.names import resolve
from sotopia_env.foundation.errors import (
    InvalidValueError,
    RenderModeError,
    UnknownKeywordError,
    UnknownNameError,
    Verbatim,
    check_members,
    excerpt,
    nearest_name,
)
from sotopia_env.tasks import TaskStream
from sotopia_env.world.action import ActionType
from sotopia_env.world.dynamics import Rules, SilenceRule
from sotopia_env.world.episode import Evaluator
from sotopia_env.world.reward import Scalarisation
from sotopia_env.world.scenario import Scenario, Task
from sotopia_env.world.taskset import TaskSet
from sotopia_env.world.turn_order import TurnOrder

RENDER_MODES = ("human", "ansi")
"""``human`` writes to standard output as the episode proceeds; ``ansi`` returns the transcript as text."""

OnUnscored = Literal["raise", "zero"]
InfoForm = Literal["full", "flags"]

RESET_OPTIONS = ("task", "evaluator")
"""The options that ``reset(options=...)`` accepts for one episode, in every form of the environment."""

# PettingZoo's and MOMAland's test suites reset with this key; it has no meaning here.
_PROBE = "options"


class EnvOptions(TypedDict, total=False):
    """The constructor arguments that all forms of the environment share.

    Attributes:
        task: one task, those among which ``reset`` draws, a :class:`~sotopia_env.tasks.TaskStream`, a scenario or
            several, or a name as on the command line: a shipped set (``"starter"``, ``"everyday"``), families joined by
            commas, a ``.json``, ``.jsonl`` or ``.yaml`` file of tasks or scenarios, or what another package adds.
            Families and streams give a fresh task at every ``reset``, scenarios a fresh casting;
            ``"bargaining:level=hard,n=1000"`` draws among a thousand.
        seats: number of agents; needed only when the tasks differ in it, and then the others are left out.
        evaluator: scores the finished episode; an object or a name such as ``"judge:MODEL"``. By default the moves
            decide, and a task without an outcome is refused.
        turn_order: this and all others up to ``worths`` are the fields of
            :class:`sotopia_env.world.dynamics.Rules`.
        scalarisation: the reward of scalar environments: a dimension's name (its native score), weights by dimension
            over scores mapped to [0, 1], ``"share"`` (of the outcome, below 0 for a loss) or ``"overall"``, also called
            ``"mean"``. By default GOAL in [0, 1] where it is verified, and the mean where all seven are judged
            (:class:`~sotopia_env.envs.episode_reward.EpisodeReward`).
        render_mode: one of :data:`RENDER_MODES`, or ``None``.
        on_unscored: when the evaluator fails, ``"raise"`` its error out of ``step``, or pay ``"zero"`` and give the
            reason in ``infos[agent]["unscored"]``.
        infos: ``"full"`` (:data:`~sotopia_env.envs.base.InfoDict`), or ``"flags"`` for tools that make an array of each
            info: truth values alone, the same ones in every info.
    """

    task: Task | Scenario | TaskSet | TaskStream | Sequence[Task] | Sequence[Scenario] | str
    seats: int | None
    evaluator: Evaluator | str
    turn_order: TurnOrder | str
    max_turns: int | None
    max_rounds: int | None
    max_silent_turns: int | None
    silence_rule: SilenceRule | str
    first_seat: int
    action_types: Iterable[ActionType | str]
    end_when_settled: bool
    worths: bool
    scalarisation: Scalarisation | str | Mapping[str, float] | None
    render_mode: str | None
    on_unscored: OnUnscored
    infos: InfoForm


_RULES = tuple(rule.name for rule in fields(Rules))
_RENAMED = {"max_cycles": "max_rounds"}


@dataclass(frozen=True, slots=True)
class CheckedOptions:
    """Checked :class:`EnvOptions`; evaluator and scalarisation are ``None`` where they follow from the task."""

    tasks: TaskSet | FreshTasks
    seats: int
    evaluator: Evaluator | None
    rules: Rules
    scalarisation: Scalarisation | None
    render_mode: str | None
    on_unscored: OnUnscored
    infos: InfoForm
    _named_tasks: dict[str, TaskSet | FreshTasks] = field(default_factory=dict, repr=False, compare=False)

    @property
    def samples(self) -> Sequence[Task]:
        """Representative tasks: all tasks of a set, or one of each kind if they are generated without end."""
        return self.tasks.samples if isinstance(self.tasks, FreshTasks) else self.tasks

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> Self:
        """Checks the options.

        Raises:
            InvalidValueError: an option is unknown, missing or has an invalid value.
        """
        for name in options:
            if name not in EnvOptions.__annotations__:
                # Python's own words: tools such as TorchRL look for them (see UnknownKeywordError).
                problem = f"got an unexpected keyword argument {name!r}"
                nearest = _RENAMED.get(name) or nearest_name(name, EnvOptions.__annotations__)
                raise UnknownKeywordError(problem, field=name, nearest=nearest)
        tasks, seats = _read_tasks(options.get("task"), options.get("seats"))
        return cls(
            tasks,
            seats,
            _read_evaluator(options["evaluator"]) if "evaluator" in options else None,
            _read_rules(options, seats),
            None if options.get("scalarisation") is None else Scalarisation.of(options["scalarisation"]),
            choice("render_mode", options.get("render_mode"), (None, *RENDER_MODES), RenderModeError),
            choice("on_unscored", options.get("on_unscored", "raise"), ("raise", "zero")),
            choice("infos", options.get("infos", "full"), ("full", "flags")),
        )

    def of_reset(self, options: Mapping[str, Any] | None) -> ResetOptions:
        """Returns what ``reset(options={"task": …, "evaluator": …})`` changes for one episode.

        Raises:
            InvalidValueError: the task is neither a Task nor the id or name of one, or has another number of seats;
                the evaluator is not an evaluator or the name of one; or an option is unknown.
        """
        changes = check_reset_options(options, RESET_OPTIONS, _PROBE)
        task, evaluator = changes.get("task"), changes.get("evaluator")
        tasks = None if task is None else self._reset_tasks(task)
        return ResetOptions(tasks, self.evaluator if evaluator is None else _read_evaluator(evaluator))

    def _reset_tasks(self, task: object) -> Sequence[Task]:
        if isinstance(task, Task):
            if len(task.agents) != self.seats:
                raise InvalidValueError(field="options['task']", expected=f"{self.seats} seats", got=len(task.agents))
            return [task]
        if not isinstance(task, str):
            raise InvalidValueError(field="options['task']", expected="a Task, or the id or name of one", got=task)
        try:
            return [self.tasks.get(task)]
        except UnknownNameError:
            # Read once: a file or a family is the same at every reset.
            if task not in self._named_tasks:
                self._named_tasks[task] = self._read_named(task)
            return self._named_tasks[task]

    def _read_named(self, name: str) -> TaskSet | FreshTasks:
        try:
            tasks = resolve("task", name)
        except UnknownNameError as error:
            if error.got != name:  # the name is valid, and one of its options is not
                raise
            nearest = nearest_name(name, [task.id for task in self.samples]) or error.nearest
            expected = f"the id of a task, or {error.expected}"
            raise UnknownNameError(field="options['task']", expected=expected, got=name, nearest=nearest) from None
        try:
            return _read_tasks(tasks, self.seats)[0]
        except InvalidValueError:
            raise InvalidValueError(
                field="options['task']",
                expected=f"tasks with {self.seats} seats",
                got=Verbatim(f"none in {excerpt(name)}"),
            ) from None


class ResetOptions(NamedTuple):
    """The options of one episode, after the changes by ``reset``.

    Attributes:
        tasks: the tasks to draw from; ``None`` for the environment's own.
        evaluator: the evaluator; ``None`` if it follows from the task.
    """

    tasks: Sequence[Task] | None
    evaluator: Evaluator | None


def _read_tasks(value: object, seats: int | None) -> tuple[TaskSet | FreshTasks, int]:
    tasks = (
        resolve("task", value) if isinstance(value, str) else [value] if isinstance(value, Task | Scenario) else value
    )
    if isinstance(tasks, Sequence) and tasks and all(isinstance(item, Scenario) for item in tasks):
        tasks = TaskStream(tasks, seed=0)
    if isinstance(tasks, TaskStream):
        tasks = FreshTasks(tasks, seats)
    if isinstance(tasks, FreshTasks):
        return tasks, tasks.seats
    if not isinstance(tasks, Sequence) or not tasks or not all(isinstance(task, Task) for task in tasks):
        raise InvalidValueError(
            field="task", expected="a Task, a Scenario, a sequence with at least one, or a name", got=value
        )
    counts = sorted({len(task.agents) for task in tasks})
    if seats is None and len(counts) > 1:
        raise InvalidValueError(
            f"the tasks have {counts} seats, but agents are fixed", field="task", hint=f"choose with seats={counts[0]}"
        )
    if seats is not None and seats not in counts:
        raise InvalidValueError(field="seats", expected=f"one of {counts}, the seats of the tasks", got=seats)
    count = counts[0] if seats is None else int(seats)
    if len(counts) == 1 and isinstance(tasks, TaskSet):
        return tasks, count
    return _with_seats(tasks, count), count


def _with_seats(tasks: Sequence[Task], seats: int) -> TaskSet:
    return TaskSet([task for task in tasks if len(task.agents) == seats])


def _read_evaluator(value: object) -> Evaluator:
    evaluator = resolve("evaluator", value) if isinstance(value, str) else value
    check_members("evaluator", "an object that is an Evaluator, or a name", evaluator, Evaluator)
    return cast(Evaluator, evaluator)


def _read_rules(options: Mapping[str, Any], seats: int) -> Rules:
    rules = Rules(**{name: options[name] for name in _RULES if name in options})
    if rules.first_seat >= seats:
        raise InvalidValueError(field="first_seat", expected=f"0 to {seats - 1}", got=rules.first_seat)
    return rules


def choice(field: str, value: Any, valid: Sequence[Any], error: type[UnknownNameError] = UnknownNameError) -> Any:
    """Returns ``value``; raises ``error`` unless it is one of the ``valid`` ones."""
    if value not in valid:
        raise error(field=field, got=value, valid=[str(name) for name in valid])
    return value


def check_reset_options(options: object, names: Sequence[str], unread: str | None = None) -> Mapping[str, Any]:
    """Returns the options of ``reset``; raises :class:`InvalidValueError` unless each is ``unread`` or in ``names``."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise InvalidValueError(field="options", expected="a mapping", got=options)
    for name in options:
        if name not in names and name != unread:
            raise UnknownNameError(field="options", got=name, valid=names)
    return options


def read_seed(seed: object) -> int | None:
    """Returns a seed as a plain integer; raises :class:`InvalidValueError` for anything but one of at least 0."""
    if seed is None:
        return None
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise InvalidValueError(field="seed", expected="None or a whole number of at least 0", got=seed)
    return int(seed)
