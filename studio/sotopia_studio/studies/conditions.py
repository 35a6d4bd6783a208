"""Conditions of a play study: every combination of the levels of its factors, and their assignment.

An item of the study, which is one conversation, names its condition by its repeat: the repeats of a task go through all
conditions in turn. So a study without factors is one with one condition.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.foundation.json_text import parse_json
from sotopia_env.people.studies.settings import AnyStudy, PlayStudy
from sotopia_studio.store import studies

CONDITION = "condition"
"""The entry of a participant's answers with the number of the condition in which the person stays."""
_LEFT = ("declined", "no_partner", "not_qualified", "stopped", "dropped")


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition.

    Attributes:
        number: its number, from 0.
        levels: the level of each factor.
        study: the study in this condition, without factors.
    """

    number: int
    levels: Mapping[str, str]
    study: PlayStudy

    @property
    def name(self) -> str:
        """The levels in words; empty in a study without factors."""
        return ", ".join(f"{factor}: {level}" for factor, level in self.levels.items())


@lru_cache(maxsize=64)  # every step of every participant needs them
def conditions(study: PlayStudy) -> tuple[Condition, ...]:
    """Returns the conditions of a study; one without factors."""
    every = []
    for number, levels in enumerate(itertools.product(*(factor.levels for factor in study.factors))):
        variant = study.model_copy(update={"factors": ()})
        for factor, level in zip(study.factors, levels, strict=True):
            variant = variant.with_level(factor, level)
        names = {factor.name: level.name for factor, level in zip(study.factors, levels, strict=True)}
        every.append(Condition(number, names, variant))
    return tuple(every)


def item_parts(item: str) -> list[Any]:
    """Returns the parts of an item: task index, repeat, seat, and the id of the assignment it repeats, if any."""
    parts: list[Any] = parse_json(f'{{"item": {item}}}', "assignment")["item"]
    return parts


def of_item(study: PlayStudy, item: str) -> Condition:
    """Returns the condition of a conversation."""
    every = conditions(study)
    repeat: int = item_parts(item)[1]
    return every[repeat % len(every)]


def answers_of(person: Any) -> dict[str, Any]:
    """Returns the answers in a participant's row."""
    return dict(parse_json(person.answers, "participant"))


def of_person(study: PlayStudy, answers: Mapping[str, Any]) -> Condition | None:
    """Returns the condition in which a participant with these answers stays; ``None`` if no condition is assigned."""
    every = conditions(study)
    number: int | None = answers.get(CONDITION, 0 if len(every) == 1 else None)
    return None if number is None else every[number]


def as_read(study: AnyStudy, answers: Mapping[str, Any]) -> AnyStudy:
    """Returns a study as a participant with these answers reads it: with the instructions of their condition."""
    condition = of_person(study, answers) if isinstance(study, PlayStudy) else None
    return study if condition is None else condition.study


async def enroll(connection: AsyncConnection, study: PlayStudy, study_id: str) -> dict[str, int]:
    """Returns the answer that records a new participant's condition: the one with the fewest people that has a seat.

    Empty if the study assigns conversations to conditions and not people.
    """
    every = conditions(study)
    if len(every) == 1 or study.assignment == "conversations":
        return {}
    open_items = [row.item for row in await studies.assignments(connection, study_id, "open")]
    free = Counter(of_item(study, item).number for item in open_items)
    people: Counter[int] = Counter()
    for person in await studies.participants(connection, study_id):
        condition = of_person(study, answers_of(person))
        if condition is not None and person.state not in _LEFT:
            people[condition.number] += 1
    # A condition without a free seat comes last: who enters it can only wait for a dropout.
    return {CONDITION: min(range(len(every)), key=lambda number: (not free[number], people[number], number))}


def admits(study: PlayStudy, person: Any, item: str) -> bool:
    """Whether a participant may hold a conversation, by its condition."""
    own = of_person(study, answers_of(person))
    return own is None or own.number == of_item(study, item).number


def preferred(study: PlayStudy, person: Any, rows: Sequence[Any]) -> list[str]:
    """Returns the open items for a participant, the best first: a new condition, a new task, the rarest condition.

    Args:
        study: the study.
        person: the participant's row.
        rows: all assignments of the study.
    """
    own = [row.item for row in rows if row.participant == person.id]
    had = Counter(of_item(study, item).number for item in own)
    tasks = Counter(item_parts(item)[0] for item in own)
    taken = Counter(of_item(study, row.item).number for row in rows if row.state in ("leased", "done"))

    def order(row: Any) -> tuple[Any, ...]:
        number = of_item(study, row.item).number
        return had[number], tasks[item_parts(row.item)[0]], taken[number], row.slot, row.id

    free = [row for row in rows if row.state == "open" and row.item not in own and admits(study, person, row.item)]
    return [row.item for row in sorted(free, key=order)]
