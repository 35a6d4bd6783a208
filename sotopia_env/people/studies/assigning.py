"""The assignment of people and conversations to the conditions of a play study, evenly, and what is left to do."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from sotopia_env.people.studies.design import Condition, conditions, item_parts, of_item
from sotopia_env.people.studies.settings import PlayStudy

_FEWEST = 3
"""The number of finished items below which nothing is said about the time that is left."""


class Assignment(Protocol):
    """A seat in a conversation or an item to judge, such as a row of the studio's database.

    Attributes:
        id: sorts by the order in which assignments were planned.
        item: the conversation as :func:`~sotopia_env.people.studies.design.plan` names it, or the id of an episode or
            a task.
        slot: the seat in the conversation, or which of the people who judge the item, from 0.
        state: ``open``, ``leased``, or how it ended, such as ``done``.
        participant: code of the person who has it; ``None`` if nobody has.
        seconds: the time that the person took for a form; ``None`` if it is unknown.
        finished: the time of the end, in seconds since the epoch; ``None`` before it.
    """

    id: str
    item: str
    slot: int
    state: str
    participant: str | None
    seconds: float | None
    finished: float | None


def emptiest(study: PlayStudy, people: Iterable[Condition], free: Iterable[str]) -> int:
    """Returns the number of the condition for a new participant: the one with the fewest people that has a seat.

    Args:
        study: the study.
        people: the condition of everybody who stays in one.
        free: the items of open assignments.
    """
    seats = Counter(of_item(study, item).number for item in free)
    present = Counter(condition.number for condition in people)
    # A condition without a free seat comes last: who enters it can only wait for a dropout.
    return min(range(len(conditions(study))), key=lambda number: (not seats[number], present[number], number))


def admits(study: PlayStudy, condition: Condition | None, item: str) -> bool:
    """Whether a participant who stays in a condition, if any, may hold a conversation."""
    return condition is None or condition.number == of_item(study, item).number


def preferred(
    study: PlayStudy, person: str, condition: Condition | None, assignments: Sequence[Assignment]
) -> list[str]:
    """Returns the open items for a participant, the best first: a new condition, a new task, the rarest condition.

    Args:
        study: the study.
        person: code of the participant.
        condition: the condition in which the person stays, if any.
        assignments: all assignments of the study.
    """
    own = [row.item for row in assignments if row.participant == person]
    had = Counter(of_item(study, item).number for item in own)
    tasks = Counter(item_parts(item)[0] for item in own)
    counts = Counter(of_item(study, row.item).number for row in assignments if row.state in ("leased", "done"))

    def order(row: Assignment) -> tuple[Any, ...]:
        number = of_item(study, row.item).number
        return had[number], tasks[item_parts(row.item)[0]], counts[number], row.slot, row.id

    free = [row for row in assignments if row.state == "open" and row.item not in own]
    return [row.item for row in sorted(free, key=order) if admits(study, condition, row.item)]


def by_condition(study: PlayStudy, assignments: Iterable[Assignment]) -> dict[str, Counter[str]]:
    """Returns for each condition the number of assignments in each state; empty without factors."""
    if len(conditions(study)) == 1:
        return {}
    counts: dict[str, Counter[str]] = {condition.name: Counter() for condition in conditions(study)}
    for row in assignments:
        counts[of_item(study, row.item).name][row.state] += 1
    return counts


def seconds_left(assignments: Sequence[Assignment], now: float) -> float | None:
    """Returns how long the rest takes at the pace of the latest ends; ``None`` if that cannot be said.

    The rest times the mean pause between the ends, which contains how many people work at once.
    """
    ends = sorted(row.finished for row in assignments if row.state == "done" and row.finished)[-20:]
    left = sum(row.state in ("open", "leased") for row in assignments)
    if len(ends) < _FEWEST or not left:
        return None
    pause = statistics.mean(later - earlier for earlier, later in itertools.pairwise(ends))
    # Nobody came lately: the pace of people who have gone says nothing about those who will come.
    return None if now - ends[-1] > max(600.0, 5 * pause) else left * pause
