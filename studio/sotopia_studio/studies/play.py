"""Conversations of a play study: matching partners, and recording their ends."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.foundation.json_text import canonical_json, parse_json
from sotopia_env.people.seat.assistance import Assistance
from sotopia_env.people.studies.assigning import admits, emptiest, preferred
from sotopia_env.people.studies.design import CONDITION, conditions, item_parts, of_item, of_person, tasks_of
from sotopia_env.people.studies.forms import Section
from sotopia_env.people.studies.interviews import interview_form, is_interview
from sotopia_env.people.studies.settings import FINISHED, PERSON, PlayStudy
from sotopia_env.world.play.notes import with_notes
from sotopia_studio import live
from sotopia_studio.problems import ConflictError
from sotopia_studio.store import episodes, events, studies, tables
from sotopia_studio.store.event_records import LiveSpec
from sotopia_studio.studies.notes import carried_notes

_HERE = 30.0
"""Seconds without a request from the waiting page after which a person counts as absent."""

_MOST_FAILURES = 2
"""The number of failed conversations after which a person is asked for no other one."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The state of a participant of a play study.

    Attributes:
        kind: ``waiting`` (for a partner), ``seat`` (in a conversation), ``interview`` (after one) or ``over`` (no
            conversation is left).
        assignment: the row of the current assignment.
        details: for a seat and an interview, the ids of the episode and the agent; while waiting, the time until which
            to wait.
        sections: the form of an interview.
    """

    kind: str
    assignment: Any = None
    details: Any = None
    sections: tuple[Section, ...] = ()


async def enroll(connection: AsyncConnection, study: PlayStudy, study_id: str) -> dict[str, int]:
    """Returns the answer that records a new participant's condition.

    Empty if the study assigns conversations to conditions and not people.
    """
    if len(conditions(study)) == 1 or study.assignment == "conversations":
        return {}
    free = [row.item for row in await studies.assignments(connection, study_id, "open")]
    people = await studies.participants(connection, study_id)
    present = [person for person in people if person.state == "done" or person.state not in FINISHED]
    assigned = [of_person(study, studies.answers_of(person)) for person in present]
    return {CONDITION: emptiest(study, filter(None, assigned), free)}


async def stage(connection: AsyncConnection, study: PlayStudy, study_id: str, person: Any) -> Stage:
    """Returns the state of a participant, after matching a partner or starting the next conversation if possible."""
    assignment = await studies.current(connection, study_id, person.id)
    if assignment is not None and "episode" in (answers := parse_json(assignment.answers, "assignment")):
        return await _playing(connection, study, study_id, person, assignment, answers)
    if (interview := await _interview(connection, study, study_id, person.id)) is not None:
        return interview
    failed = await studies.assignments(connection, study_id, "failed", participant=person.id)
    if len(failed) >= _MOST_FAILURES or await studies.done_by(connection, study_id, person.id) >= study.per_person:
        return Stage("over")
    until = time.time() + study.wait_seconds
    if assignment is None:
        assignment = await _take_seat(connection, study, study_id, person, until)
        if assignment is None:
            return Stage("over")
    # The lease is the waiting time: when it expires, the seat is opened again and the participation ends with the code
    # `no_partner`.
    elif assignment.leased_until < time.time():
        await _release(connection, assignment.id)
        await studies.change_participant(connection, person.id, state="no_partner")
        return Stage("over")
    # Updates `seen`: the waiting page has asked, so the person is present.
    await studies.change_participant(connection, person.id)
    if await _begin_if_complete(connection, study, study_id, assignment):
        return await stage(connection, study, study_id, person)
    return Stage("waiting", assignment, {"until": assignment.leased_until})


async def _interview(connection: AsyncConnection, study: PlayStudy, study_id: str, person: str) -> Stage | None:
    """Returns the interview about the earliest conversation without one; ``None`` if there is nothing to ask."""
    if not study.has_interview:
        return None
    # A conversation counts as done without its interview: a person who closes the page has still played it.
    for assignment in await studies.assignments(connection, study_id, "done", participant=person):
        answers = parse_json(assignment.answers, "assignment")
        if any(is_interview(name) for name in answers):
            continue
        episode = await live.LiveEpisode.load(connection, answers["episode"])
        if sections := interview_form(study, episode.id, episode.table, answers["agent"]):
            return Stage("interview", assignment, answers, sections)
    return None


async def record_interview(
    connection: AsyncConnection, study_id: str, person: str, assignment: str, values: dict[str, Any]
) -> None:
    """Adds the answers of an interview to those of its conversation; needs the study's lock.

    Raises:
        ConflictError: the person has no such conversation, or the answers were sent before.
    """
    done = await studies.assignments(connection, study_id, "done", participant=person)
    answers = next((parse_json(row.answers, "assignment") for row in done if row.id == assignment), None)
    if answers is None or any(is_interview(name) for name in answers):
        raise ConflictError("this was sent before; reload the page for the next step")
    await studies.change_assignment(connection, assignment, answers=canonical_json({**answers, **values}))


async def _take_seat(connection: AsyncConnection, study: PlayStudy, study_id: str, person: Any, until: float) -> Any:
    """Leases a seat, preferably in a conversation in which another person is waiting."""
    own = of_person(study, studies.answers_of(person))
    if any(condition.study.partner == PERSON for condition in conditions(study)):
        # First, so that no one is matched with a person who has closed the page.
        await _release_absent(connection, study_id)
        for waiting in await _waiting(connection, study_id):
            if not admits(study, own, waiting.item):
                continue
            free = await _free_seat(connection, study_id, waiting.item, person.id)
            if free is not None:
                columns = {"state": "leased", "participant": person.id, "leased_until": until}
                await studies.change_assignment(connection, free.id, **columns)
                return await studies.current(connection, study_id, person.id)
    if not study.factors:
        return await studies.take(connection, study_id, person.id, until)
    items = preferred(study, person.id, own, await studies.assignments(connection, study_id))
    return await studies.take(connection, study_id, person.id, until, item=items[0]) if items else None


async def _waiting(connection: AsyncConnection, study_id: str) -> Sequence[Any]:
    leased = await studies.assignments(connection, study_id, "leased")
    return [row for row in leased if "episode" not in parse_json(row.answers, "assignment")]


async def _seats(connection: AsyncConnection, study_id: str, item: str) -> Sequence[Any]:
    """Returns the assignments of a conversation, one for each seat that a person takes."""
    row = tables.assignment
    query = select(row).where(row.c.study == study_id, row.c.item == item)
    return (await connection.execute(query.order_by(row.c.slot))).all()


async def _free_seat(connection: AsyncConnection, study_id: str, item: str, person: str) -> Any:
    seats = await _seats(connection, study_id, item)
    # A person cannot be their own partner.
    if any(seat.participant == person for seat in seats):
        return None
    return next((seat for seat in seats if seat.state == "open"), None)


async def _release_absent(connection: AsyncConnection, study_id: str) -> None:
    """Opens the seats of people who closed the page while they waited."""
    for row in await _waiting(connection, study_id):
        person = await studies.participant(connection, row.participant)
        if person.seen is None or person.seen < time.time() - _HERE:
            await _release(connection, row.id)


async def _release(connection: AsyncConnection, assignment: str) -> None:
    await studies.change_assignment(connection, assignment, state="open", participant=None, leased_until=None)


async def _begin_if_complete(connection: AsyncConnection, study: PlayStudy, study_id: str, assignment: Any) -> bool:
    """Starts the conversation as soon as all its seats for people are occupied."""
    seats = await _seats(connection, study_id, assignment.item)
    if any(seat.state != "leased" for seat in seats):
        return False
    whole, study = study, of_item(study, assignment.item).study
    task = tasks_of(study)[item_parts(assignment.item)[0]]
    people = {task.agents[seat.slot]: seat.participant for seat in seats}
    if study.carry:
        notes = await carried_notes(connection, whole, study_id, task, people, study.partner)
        if notes is None:
            return False
        task = with_notes(task, notes)
    spec = LiveSpec(
        task=task,
        rules=study.rules,
        seed=study.seed,
        policies={agent: episodes.PERSON if agent in people else study.partner for agent in task.agents},
        evaluator=study.evaluator,
        turn_seconds=study.turn_seconds,
        on_timeout=study.on_timeout,
        tag=f"study:{study.name}",
        study=study_id,
        assistants={agent: Assistance(mode=study.assistance, policy=study.adviser) for agent in people}
        if study.assistance != "none"
        else {},
    )
    episode = await live.begin(connection, spec, participants=people)
    for seat in seats:
        answers = canonical_json({"episode": episode, "agent": task.agents[seat.slot]})
        # Without an expiry: from now on the deadlines of turns decide, and the seat must not be leased to another
        # person.
        await studies.change_assignment(connection, seat.id, answers=answers, leased_until=None)
    return True


async def _playing(
    connection: AsyncConnection, study: PlayStudy, study_id: str, person: Any, assignment: Any, answers: dict[str, Any]
) -> Stage:
    """Returns the state of a participant with a conversation; an ended one is first recorded as done or dropped."""
    episode = await live.LiveEpisode.load(connection, answers["episode"])
    if not episode.ended:
        return Stage("seat", assignment, answers)
    if episode.status in ("failed", "stopped"):
        # Through no fault of the person, who goes on with another conversation; this one is planned again.
        seats = await _seats(connection, study_id, assignment.item)
        await studies.change_assignment(connection, assignment.id, state="failed", finished=time.time())
        if not any(seat.state == "failed" for seat in seats):  # once for all seats of the conversation
            await _plan_again(connection, study, study_id, assignment)
        return await stage(connection, study, study_id, person)
    if dropped_out(episode, answers["agent"]):
        await studies.change_assignment(connection, assignment.id, state="dropped", finished=time.time())
        await studies.change_participant(connection, person.id, state="dropped")
        await _plan_again(connection, study, study_id, assignment)
        return Stage("over")
    await studies.finish(connection, assignment.id, person.id, answers)
    return await stage(connection, study, study_id, person)


async def _plan_again(connection: AsyncConnection, study: PlayStudy, study_id: str, assignment: Any) -> None:
    """Plans the conversation again as a new item after a participant dropped out."""
    item, study = item_parts(assignment.item), of_item(study, assignment.item).study
    seats = range(len(tasks_of(study)[item[0]].agents)) if study.partner == PERSON else [assignment.slot]
    # The id makes the item new: those who were in the dropped conversation may be matched for it, too.
    again = canonical_json([*item, assignment.id])
    await studies.add_assignments(connection, study_id, [(again, seat) for seat in seats])


def dropped_out(episode: live.LiveEpisode, agent: str) -> bool:
    """Whether the last turn of a seat was made by the service because the person did not answer in time."""
    own = [item for item in episode.table.turns if item.turn.actor == agent]
    generation = own[-1].generation if own else None
    return generation is not None and generation.parse_failure == live.LATE_ANSWER


async def settle(connection: AsyncConnection, study: PlayStudy, study_id: str) -> None:
    """Records the ended conversations of people who never came back, and plans those of dropouts again."""
    for row in await unsettled(connection, study_id):
        answers = parse_json(row.answers, "assignment")
        person = await studies.participant(connection, row.participant)
        await _playing(connection, study, study_id, person, row, answers)


async def unsettled(connection: AsyncConnection, study_id: str) -> list[Any]:
    """Returns the assignments whose conversations have ended without a request of their people since."""
    leased = await studies.assignments(connection, study_id, "leased")
    by_episode = [(parse_json(row.answers, "assignment").get("episode", ""), row) for row in leased]
    counts = await events.counts(connection, [episode for episode, _ in by_episode])
    return [row for episode, row in by_episode if episode in counts and counts[episode][1] in live.CLOSED]
