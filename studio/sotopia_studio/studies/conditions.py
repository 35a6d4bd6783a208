"""The assignment of people and conversations to the conditions of a play study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.foundation.json_text import parse_json
from sotopia_env.people.studies.design import CONDITION, conditions, item_parts, of_item, of_person
from sotopia_env.people.studies.settings import PlayStudy
from sotopia_studio.store import studies

_LEFT = ("declined", "no_partner", "not_qualified", "stopped", "dropped")


def answers_of(person: Any) -> dict[str, Any]:
    """Returns the answers in a participant's row."""
    return dict(parse_json(person.answers, "participant"))


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
