"""Annotation and validation of items by people.

An item is an episode to be scored or a scenario to be checked. Its view for people comes from
:mod:`sotopia_env.people`, which reads no policies, models or judges, so annotators stay blind to them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.foundation.json_text import parse_json
from sotopia_env.people.sheet import AnnotatedSeat, episode_view
from sotopia_env.people.studies.design import tasks_of
from sotopia_env.people.studies.forms import Section
from sotopia_env.people.studies.guidance import Guidance, guidance
from sotopia_env.people.studies.ratings import annotation_form, qualification, rated_items, validation_form
from sotopia_env.people.studies.settings import AnnotateStudy, ValidateStudy
from sotopia_studio.store import episodes, studies, tables


@dataclass(frozen=True, slots=True)
class RatingItem:
    """An item that a person is to judge.

    Attributes:
        assignment: the row of the assignment.
        situation: the context that all characters know.
        seats: the characters, with their private knowledge and goals.
        transcript: lines of the conversation; empty for a scenario.
        sections: the form.
        number: the number of items that the person has done before.
        gold: whether it belongs to the qualification.
        guidance: the annotators' instructions; ``None`` for a scenario.
    """

    assignment: Any
    situation: str
    seats: tuple[AnnotatedSeat, ...]
    transcript: tuple[str, ...]
    sections: tuple[Section, ...]
    number: int
    gold: bool = False
    guidance: Guidance | None = None


async def plan(connection: AsyncConnection, study: AnnotateStudy | ValidateStudy) -> list[tuple[str, int]]:
    """Returns the assignments of a study, one for each item and slot."""
    if isinstance(study, ValidateStudy):
        items = [task.id for task in tasks_of(study)]
    else:
        row = tables.episode
        query = select(row.c.id).where(row.c.run.in_(study.runs), row.c.status == "done")
        items = list((await connection.execute(query.order_by(row.c.id))).scalars())
    return rated_items(study, items)


async def next_item(
    connection: AsyncConnection, study: AnnotateStudy | ValidateStudy, study_id: str, person: Any
) -> RatingItem | None:
    """Leases and returns the next item of a participant; ``None`` when no item is left or ``per_person`` are done."""
    done = await studies.done_by(connection, study_id, person.id)
    if isinstance(study, AnnotateStudy) and study.gold:
        gold = await _next_gold(connection, study, study_id, person.id)
        if gold is not None:
            return await _annotation(connection, study, gold, done, gold=True)
        # Qualification items do not count towards `per_person`.
        done -= len(study.gold)
    if done >= study.per_person:
        return None
    until = time.time() + studies.LEASE
    assignment = await studies.take(connection, study_id, person.id, until, overlap_first=True)
    if assignment is None:
        return None
    if isinstance(study, ValidateStudy):
        task = next(task for task in tasks_of(study) if task.id == assignment.item)
        view = episode_view(task)
        return RatingItem(assignment, view.situation, view.seats, (), validation_form(study, task), done)
    return await _annotation(connection, study, assignment, done)


async def _gold(connection: AsyncConnection, study_id: str, person: str) -> dict[str, Any]:
    """Returns a participant's qualification items and their assignments."""
    assignments = await studies.assignments(connection, study_id, participant=person)
    return {assignment.item: assignment for assignment in assignments if assignment.slot == GOLD_SLOT}


async def _next_gold(connection: AsyncConnection, study: AnnotateStudy, study_id: str, person: str) -> Any:
    """Returns the next qualification item as an assignment of this person; ``None`` when all are done."""
    row, mine = tables.assignment, await _gold(connection, study_id, person)
    for example in study.gold:
        if example.episode not in mine:
            await studies.add_assignments(connection, study_id, [(example.episode, GOLD_SLOT)])
            new = await connection.execute(
                select(row).where(row.c.study == study_id, row.c.item == example.episode, row.c.participant.is_(None))
            )
            assignment = new.first()
            assert assignment is not None
            columns = {"participant": person, "state": "leased", "leased_until": time.time() + studies.LEASE}
            await studies.change_assignment(connection, assignment.id, **columns)
            return await studies.current(connection, study_id, person)
        if mine[example.episode].state == "leased":
            return mine[example.episode]
    return None


GOLD_SLOT = -1
"""The slot of assignments that belong to the qualification."""


async def qualify(connection: AsyncConnection, study: AnnotateStudy, study_id: str, person: str) -> None:
    """Ends the participation of an annotator whose scores differ too much from the gold, and records the dimensions."""
    assignments = await _gold(connection, study_id, person)
    done = {item: row for item, row in assignments.items() if row.state == "done"}
    if not study.gold or len(done) < len(study.gold):
        return
    result = qualification(study, {item: parse_json(row.answers, "assignment") for item, row in done.items()})
    state = None if result["passed"] else "not_qualified"
    await studies.change_participant(connection, person, state=state, answers={"qualification": result})


async def _annotation(
    connection: AsyncConnection, study: AnnotateStudy, assignment: Any, number: int, gold: bool = False
) -> RatingItem:
    episode = await episodes.record_of(connection, assignment.item)
    view = episode_view(episode)
    sections = annotation_form(study, episode)
    return RatingItem(assignment, view.situation, view.seats, view.transcript, sections, number, gold, guidance(study))
