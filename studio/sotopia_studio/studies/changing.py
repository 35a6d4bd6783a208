"""Changes of a study that is open: what may change while people are in it, and carrying a change out.

Whoever has begun keeps the settings with which they began; a change holds for those who begin after it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.foundation.json_text import canonical_json, parse_json
from sotopia_env.people.studies.settings import FINISHED, AnyStudy, PlayStudy
from sotopia_studio.problems import ConflictError
from sotopia_studio.settings import ServiceSettings
from sotopia_studio.store import studies, tables
from sotopia_studio.store.engine import Database
from sotopia_studio.studies import opening
from sotopia_studio.studies.flow import BEGAN_WITH

FREE = frozenset(
    {
        *("title", "consent", "instructions", "open", "codes"),
        *("questionnaire", "interview", "scenario_interview", "show_result", "questions", "per_seat"),
        *("turn_seconds", "wait_seconds", "on_timeout", "min_words", "screening"),
        *("repeats", "overlap", "per_person"),
    }
)
"""The settings that may change while people are in a study: without them, what is compared would not be the same."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a study, before it is carried out.

    Attributes:
        title: the title of the study.
        begun: the number of people who have begun.
        settings: the names of the settings that change.
        fixed: those of them that may not change any more.
        is_stale: whether the study was changed by somebody else since the draft began.
    """

    title: str
    begun: int
    settings: tuple[str, ...]
    fixed: tuple[str, ...]
    is_stale: bool


def version(settings: str) -> str:
    """Returns a short digest of a study's settings, by which a draft knows what it changes."""
    return hashlib.sha256(settings.encode()).hexdigest()[:16]


async def change_of(connection: AsyncConnection, identity: str, base: str, study: AnyStudy | None) -> Change:
    """Returns what a draft changes in a study; ``None`` for a draft that cannot be read yet."""
    row = await studies.by_name(connection, identity)
    old = studies.settings_of(row)
    people = await studies.participants(connection, row.id)
    begun = sum(person.state != "invited" for person in people)
    names = [] if study is None else [n for n in type(old).model_fields if getattr(old, n) != getattr(study, n)]
    # The address of a study has been given out.
    fixed = [name for name in names if name == "name" or (begun and name not in FREE)]
    return Change(old.title, begun, tuple(names), tuple(fixed), base != version(row.settings))


async def carry_out(database: Database, settings: ServiceSettings, identity: str, base: str, study: AnyStudy) -> None:
    """Changes a study.

    Raises:
        ConflictError: a setting may not change any more, or the study was changed since ``base``.
        InvalidValueError: the errors of opening a study.
    """
    study = await opening.frozen(database, study)
    items = await opening.planned(database, settings, study)
    async with database.write() as connection:
        row = await studies.by_name(connection, identity, lock=True)
        change = await change_of(connection, row.id, base, study)
        if change.is_stale:
            raise ConflictError("the study was changed since this draft began; begin again on its page, or copy it")
        if change.fixed:
            raise ConflictError(f"{', '.join(change.fixed)}: cannot change any more; copy the study instead")
        await _remember(connection, row)
        await studies.change(connection, row.id, settings=study.model_dump_json())
        await _plan_anew(connection, study, row.id, items)


async def _remember(connection: AsyncConnection, row: Any) -> None:
    """Records for everybody who is in the study the settings with which they began."""
    for person in await studies.participants(connection, row.id):
        is_in = person.state != "invited" and person.state not in FINISHED
        if is_in and BEGAN_WITH not in (answers := studies.answers_of(person)):
            answers = {**answers, BEGAN_WITH: parse_json(row.settings, "study")}
            change = update(tables.participant).where(tables.participant.c.id == person.id)
            await connection.execute(change.values(answers=canonical_json(answers)))


async def _plan_anew(
    connection: AsyncConnection, study: AnyStudy, identity: str, items: Sequence[tuple[str, int]]
) -> None:
    """Adds the assignments that are new, and takes back those that nobody has and nobody needs any more."""
    rows = [row for row in await studies.assignments(connection, identity) if row.slot >= 0]
    entries = dict.fromkeys(items)
    if not isinstance(study, PlayStudy) and any(row.state != "open" for row in rows):
        # What is judged stays the same even if runs have grown since; only the number of people changes.
        entries = dict.fromkeys((row.item, slot) for slot in range(study.overlap) for row in rows)
    surplus = [row.id for row in rows if row.state == "open" and (row.item, row.slot) not in entries]
    await connection.execute(delete(tables.assignment).where(tables.assignment.c.id.in_(surplus)))
    present = {(row.item, row.slot) for row in rows}
    await studies.add_assignments(connection, identity, [entry for entry in entries if entry not in present])
