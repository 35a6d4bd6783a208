"""What an environment is built with, checked once, and how an action is read from what callers pass to ``step``."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypedDict

import numpy as np

from sotopia_env.errors import InvalidValueError, UnknownNameError, name_hint
from sotopia_env.world.action import ACTION_TYPES, ActionType
from sotopia_env.world.dynamics import Rules, SilenceRule, TurnOrder
from sotopia_env.world.episode import Evaluator
from sotopia_env.world.reward import Scalarisation
from sotopia_env.world.scenario import Task
from sotopia_env.world.taskset import TaskSet

RENDER_MODES = ("human", "ansi")
"""``human`` writes to standard output as the episode goes on; ``ansi`` returns the transcript as text."""

OnUnscored = Literal["raise", "zero"]


class EnvOptions(TypedDict, total=False):
    """The constructor arguments that all faces of the environment share.

    Attributes:
        task: one task, or those among which ``reset`` draws.
        seats: number of agents; needed only when the tasks differ in it, and then the others are left out.
        evaluator: scores the finished episode.
        turn_order: who acts when (:class:`sotopia_env.world.dynamics.TurnOrder`).
        max_turns: limit on actions of all agents together.
        max_cycles: limit on rounds, as PettingZoo's tools expect; replaces the limit on actions.
        max_silent_turns: silent turns in a row that end the episode; 0 for never.
        silence_rule: how they are counted.
        first_seat: the seat that begins in round-robin order.
        action_types: the types agents may use.
        scalarisation: ``"overall"``, a dimension's name or weights by dimension.
        render_mode: one of :data:`RENDER_MODES`, or ``None``.
        on_unscored: when the evaluator fails, ``"raise"`` its error out of ``step``, or pay ``"zero"`` and give the
            reason in ``infos[agent]["unscored"]``.
    """

    task: Task | TaskSet | Sequence[Task]
    seats: int | None
    evaluator: Evaluator
    turn_order: TurnOrder | str
    max_turns: int | None
    max_cycles: int | None
    max_silent_turns: int | None
    silence_rule: SilenceRule | str
    first_seat: int
    action_types: Iterable[ActionType | str]
    scalarisation: Scalarisation | str | Mapping[str, float] | None
    render_mode: str | None
    on_unscored: OnUnscored


_RULES = ("turn_order", "max_turns", "max_silent_turns", "silence_rule", "first_seat")


@dataclass(frozen=True, slots=True)
class Settings:
    """Checked :class:`EnvOptions`."""

    tasks: TaskSet
    seats: int
    evaluator: Evaluator
    rules: Rules
    scalarisation: Scalarisation
    render_mode: str | None
    on_unscored: OnUnscored

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> Self:
        """Checks the options.

        Raises:
            InvalidValueError: an option is unknown, missing or has a value that cannot be meant.
        """
        for name in options:
            if name not in EnvOptions.__annotations__:
                raise UnknownNameError(f"environment option: {name_hint(name, EnvOptions.__annotations__)}")
        tasks, seats = _read_tasks(options.get("task"), options.get("seats"))
        evaluator = options.get("evaluator")
        if not isinstance(evaluator, Evaluator) or isinstance(evaluator, type):
            raise InvalidValueError(f"evaluator: expected an object that is an Evaluator, got {shown(evaluator)}")
        return cls(
            tasks,
            seats,
            evaluator,
            _read_rules(options, seats),
            Scalarisation.of(options.get("scalarisation")),
            _choice("render_mode", options.get("render_mode"), (None, *RENDER_MODES)),
            _choice("on_unscored", options.get("on_unscored", "raise"), ("raise", "zero")),
        )

    def pinned(self, options: Mapping[str, Any] | None) -> Task | None:
        """Returns the task that ``reset(options={"task": task or its id})`` asks for; other keys are not ours.

        Raises:
            InvalidValueError: it is not a task, not an id in the set, or has another number of seats.
        """
        if options is not None and not isinstance(options, Mapping):
            raise InvalidValueError(f"options: expected a mapping, got {shown(options)}")
        task = options.get("task") if options else None
        if isinstance(task, str):
            return self.tasks.get(task)
        if task is None or (isinstance(task, Task) and len(task.agents) == self.seats):
            return task
        if isinstance(task, Task):
            raise InvalidValueError(f"options['task']: expected {self.seats} seats, got {len(task.agents)}")
        raise InvalidValueError(f"options['task']: expected a Task or the id of one, got {shown(task)}")


def _read_tasks(value: object, seats: int | None) -> tuple[TaskSet, int]:
    tasks = [value] if isinstance(value, Task) else value
    if not isinstance(tasks, Sequence) or not tasks or not all(isinstance(task, Task) for task in tasks):
        raise InvalidValueError(
            f"task: expected a Task, or a TaskSet or sequence with at least one, got {shown(value)}"
        )
    counts = sorted({len(task.agents) for task in tasks})
    if seats is None and len(counts) > 1:
        raise InvalidValueError(
            f"task: the tasks have {counts} seats, but agents are fixed; choose with seats={counts[0]}"
        )
    if seats is not None and seats not in counts:
        raise InvalidValueError(f"seats: expected one of {counts}, the seats of the tasks, got {shown(seats)}")
    chosen = counts[0] if seats is None else int(seats)
    if len(counts) == 1 and isinstance(tasks, TaskSet):
        return tasks, chosen
    return TaskSet([task for task in tasks if len(task.agents) == chosen]), chosen


def _read_rules(options: Mapping[str, Any], seats: int) -> Rules:
    given = {name: options[name] for name in _RULES if name in options}
    cycles = options.get("max_cycles")
    if cycles is not None and (isinstance(cycles, bool) or not isinstance(cycles, int) or cycles < 1):
        raise InvalidValueError(f"max_cycles: expected a whole number of at least 1, got {shown(cycles)}")
    kinds = options.get("action_types", ACTION_TYPES)
    if isinstance(kinds, str) or not isinstance(kinds, Iterable):
        raise InvalidValueError(f"action_types: expected several action types, got {shown(kinds)}")
    rules = Rules(**given, max_rounds=cycles, action_types=tuple(kinds))
    if rules.first_seat >= seats:
        raise InvalidValueError(f"first_seat: expected 0 to {seats - 1}, got {rules.first_seat}")
    return rules


def _choice(field: str, value: Any, valid: Sequence[Any]) -> Any:
    if value not in valid:
        raise UnknownNameError(f"{field}: {name_hint(str(value), [str(name) for name in valid])}")
    return value


def read_seed(seed: object) -> int | None:
    """Returns a seed as a plain integer; raises :class:`InvalidValueError` for anything but one of at least 0."""
    if seed is None:
        return None
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise InvalidValueError(f"seed: expected None or a whole number of at least 0, got {shown(seed)}")
    return int(seed)


def shown(value: object) -> str:
    """Returns ``value`` for an error message: short, and safe for values whose own ``repr`` is huge or fails."""
    if isinstance(value, str):
        return reprlib.repr(str(value))
    if value is None or isinstance(value, (bool, float)) or (isinstance(value, int) and abs(value) < 10**12):
        return repr(value)
    return f"a value of type {type(value).__name__}"
