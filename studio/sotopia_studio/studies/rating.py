"""Annotation and validation of items by people.

An item is an episode to be scored or a scenario to be checked. Its view for people comes from
:mod:`sotopia_env.people`, which reads no policies, models or judges, so annotators stay blind to them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.foundation.json_text import parse_json
from sotopia_env.people.sheet import AnnotatedSeat, dimension_guides, dimensions_of, episode_view
from sotopia_env.people.studies.forms import FormQuestion, Section
from sotopia_env.people.studies.settings import AnnotateStudy, ValidateStudy
from sotopia_env.world.episode import Episode
from sotopia_studio.store import episodes, studies, tables
from sotopia_studio.studies.guidance import Guidance, guidance, rationale_note, title
from sotopia_studio.studies.play import tasks_of

REASONING = ".reasoning"
"""Suffix of the answer with the rationale of a score."""


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
    """Returns the assignments of a study, one for each item and slot, in an order drawn with the study's seed."""
    if isinstance(study, ValidateStudy):
        items = [task.id for task in tasks_of(study)]
    else:
        row = tables.episode
        query = select(row.c.id).where(row.c.run.in_(study.runs), row.c.status == "done")
        items = list((await connection.execute(query.order_by(row.c.id))).scalars())
        gold = {example.episode for example in study.gold}
        items = [item for item in items if item not in gold]
    shuffled = random.Random(f"items:{study.seed}").sample(items, len(items))[: study.n]
    return [(item, slot) for slot in range(study.overlap) for item in shuffled]


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
        return _validation(study, assignment, done)
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
    mine = {item: assignment for item, assignment in assignments.items() if assignment.state == "done"}
    if not study.gold or len(mine) < len(study.gold):
        return
    misses: dict[str, int] = {}
    total = 0
    for example in study.gold:
        answers = parse_json(mine[example.episode].answers, "assignment")
        for agent, scores in example.scores.items():
            for dimension, gold in scores.items():
                total += 1
                score = answers.get(f"{agent}.{dimension}")
                if score is None or abs(score - gold) > study.tolerance:
                    misses[dimension] = misses.get(dimension, 0) + 1
    # Gold without scores measures nothing, so everyone passes.
    share = 1 - sum(misses.values()) / total if total else 1.0
    passed = share >= study.pass_share
    result = {"qualification": {"share": share, "passed": passed, "read_again": sorted(misses)}}
    await studies.change_participant(connection, person, state=None if passed else "not_qualified", answers=result)


async def _annotation(
    connection: AsyncConnection, study: AnnotateStudy, assignment: Any, number: int, gold: bool = False
) -> RatingItem:
    episode = await episodes.record_of(connection, assignment.item)
    view = episode_view(episode)
    sections = annotation_form(study, episode)
    return RatingItem(assignment, view.situation, view.seats, view.transcript, sections, number, gold, guidance(study))


def annotation_form(study: AnnotateStudy, episode: Episode) -> tuple[Section, ...]:
    """Returns the form for an episode: for each agent, a rationale and a score on each dimension."""
    guides = dimension_guides((*study.custom, *dimensions_of(episode)))
    # In the order of the guides, which begin with the seven dimensions of SOTOPIA.
    names = [name for name in guides if not study.dimensions or name in study.dimensions]
    return tuple(
        Section(
            title=episode.task.names[agent],
            questions=tuple(
                question
                for name in names
                for question in (
                    FormQuestion(
                        # The rationale comes before the score: annotators justify a score before they give it.
                        name=f"{agent}.{name}{REASONING}",
                        text=f"{title(name)}: why?",
                        note=rationale_note(name),
                        min_words=study.min_words,
                    ),
                    FormQuestion(
                        name=f"{agent}.{name}",
                        text=title(name),
                        kind="scale",
                        low=guides[name].low,
                        high=guides[name].high,
                        note=guides[name].text,
                    ),
                )
            ),
        )
        for agent in episode.task.agents
    )


def _validation(study: ValidateStudy, assignment: Any, number: int) -> RatingItem:
    task = next(task for task in tasks_of(study) if task.id == assignment.item)
    view = episode_view(task)
    per_seat = tuple(
        Section(
            title=seat.name,
            questions=tuple(q.model_copy(update={"name": f"{seat.agent}.{q.name}"}) for q in study.per_seat),
        )
        for seat in view.seats
    )
    sections = (*per_seat, Section(title="The whole situation", questions=study.questions))
    return RatingItem(assignment, view.situation, view.seats, (), sections, number)


def scores_of(answers: Mapping[str, Any], agent: str, names: Sequence[str]) -> dict[str, float]:
    """Returns a seat's scores in an annotator's answers, by dimension."""
    scores = {name: answers.get(f"{agent}.{name}") for name in names}
    return {name: float(value) for name, value in scores.items() if isinstance(value, int)}
