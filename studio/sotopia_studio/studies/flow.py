"""The steps of a participant through a study, decided from the database alone.

A participant's page shows the result of :func:`next_step`, so it is correct after a reload, on another device and after
a restart. A form names the step it belongs to and is refused when that step is over.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.foundation.json_text import parse_json
from sotopia_env.people.studies.design import as_read
from sotopia_env.people.studies.forms import FormQuestion, Section
from sotopia_env.people.studies.guidance import guidance
from sotopia_env.people.studies.settings import FINISHED, AnnotateStudy, AnyStudy, PlayStudy, study_of
from sotopia_studio.problems import ConflictError
from sotopia_studio.store import studies
from sotopia_studio.studies import play, rating


@dataclass(frozen=True, slots=True)
class Step:
    """The current step of a participant.

    Attributes:
        kind: ``consent``, ``instructions``, ``waiting``, ``seat``, ``interview``, ``rating``,
            ``questionnaire`` or ``end``.
        study: the study.
        study_id: its id.
        person: the participant's row.
        assignment: the row of the current assignment, if any.
        sections: the form of the step, if any.
        details: further values for the page.
    """

    kind: str
    study: AnyStudy
    study_id: str
    person: Any
    assignment: Any
    sections: tuple[Section, ...]
    details: Any


CONSENT = (Section(questions=(FormQuestion(name="consent", text="I agree and want to take part.", kind="check"),)),)


BEGAN_WITH = "began_with"
"""The entry of a participant's answers with the settings with which the person began, if they have changed since."""


async def study_of_person(connection: AsyncConnection, person_id: str) -> AnyStudy:
    """Returns the study of a participant."""
    person = await studies.participant(connection, person_id)
    return _study(person, await studies.by_name(connection, person.study))


def _study(person: Any, row: Any) -> AnyStudy:
    """The study as the person began it."""
    earlier = studies.answers_of(person).get(BEGAN_WITH)
    return studies.settings_of(row) if earlier is None else study_of(earlier)


async def next_step(connection: AsyncConnection, person_id: str) -> Step:
    """Returns the current step of a participant; needs a writing transaction, since it may lease an assignment.

    Raises:
        MissingError: the participant does not exist.
    """
    person, row = await studies.enter(connection, person_id)
    study = _study(person, row)

    def step(kind: str, assignment: Any = None, sections: tuple[Section, ...] = (), details: Any = None) -> Step:
        read = as_read(study, studies.answers_of(person))
        return Step(kind, read, row.id, person, assignment, sections, details)

    if person.state in FINISHED:
        return step("end")
    if person.state == "invited":
        # A closed study admits no new participants; people who have consented may finish.
        if row.status not in ("open", studies.TRIAL):
            raise ConflictError("this study is closed; thank you for your interest")
        return step("consent", sections=CONSENT)
    if person.state == "consented":
        return step("instructions", details=guidance(study) if isinstance(study, AnnotateStudy) else None)
    if person.state == "questionnaire":
        return step("questionnaire", sections=(Section(questions=study.questionnaire),))
    if isinstance(study, PlayStudy):
        # Finding a partner or an item may end the participation (no partner, not qualified), so the row is read again
        # below.
        stage = await play.stage(connection, study, row.id, person)
        if stage.kind != "over":
            return step(stage.kind, stage.assignment, stage.sections, stage.details)
    else:
        item = await rating.next_item(connection, study, row.id, person)
        if item is not None:
            return step("rating", item.assignment, item.sections, item)
    person = await studies.participant(connection, person_id)
    if person.state in FINISHED:
        return step("end")
    return await _conclude(connection, person_id, study)


async def _conclude(connection: AsyncConnection, person_id: str, study: AnyStudy) -> Step:
    """Continues with the questionnaire, or ends the participation, when no assignment is left."""
    await studies.change_participant(connection, person_id, state="questionnaire" if study.questionnaire else "done")
    return await next_step(connection, person_id)


async def begin(connection: AsyncConnection, person_id: str) -> None:
    """Records that a participant has read the instructions."""
    person, _ = await studies.enter(connection, person_id)
    if person.state == "consented":
        await studies.change_participant(connection, person_id, state="active")


async def consent(connection: AsyncConnection, person_id: str, agreed: bool) -> None:
    """Records whether a person wants to take part."""
    person, row = await studies.enter(connection, person_id)
    # A second click on the form must not reset a participant who is further on.
    if person.state != "invited":
        return
    study = _study(person, row)
    answers: dict[str, Any] = {"consented_at": time.time()}
    if agreed and isinstance(study, PlayStudy):
        answers |= await play.enroll(connection, study, row.id)
    instructed = isinstance(study, AnnotateStudy) or bool(as_read(study, answers).instructions)
    state = "declined" if not agreed else "consented" if instructed else "active"
    await studies.change_participant(connection, person_id, state=state, answers=answers)


async def leave(connection: AsyncConnection, person_id: str) -> None:
    """Ends the participation of a person who waits for a partner or wants to stop; finished assignments are kept."""
    person, study = await studies.enter(connection, person_id)
    if person.state in FINISHED:
        return
    assignment = await studies.current(connection, person.study, person_id)
    if assignment is not None:
        answers = parse_json(assignment.answers, "assignment")
        # The partner is in the same conversation; leaving it is an action there, which the partner sees.
        if "episode" in answers:
            raise ConflictError("the conversation is still in progress: choose `leave` there to end it")
        await studies.change_assignment(
            connection, assignment.id, state="open", participant=None, leased_until=None, answers="{}"
        )
    # Only who waits for a partner can be left without one; whoever stops annotating has stopped.
    waiting = study.kind == "play" and assignment is not None and person.state == "active"
    done = await studies.done_by(connection, person.study, person_id)
    state = "done" if done else "no_partner" if waiting else "stopped"
    await studies.change_participant(connection, person_id, state=state, answers=None if waiting else {"stopped": done})


async def answer(connection: AsyncConnection, person_id: str, values: dict[str, Any]) -> None:
    """Records the answers to the questionnaire."""
    person, _ = await studies.enter(connection, person_id)
    if person.state != "questionnaire":
        raise ConflictError("this form was sent before; reload the page for the next step")
    await studies.change_participant(connection, person_id, state="done", answers={"questionnaire": values})


async def submit(
    connection: AsyncConnection, person_id: str, assignment: str, values: dict[str, Any], seconds: float | None
) -> None:
    """Records the answers about a conversation or an item, and compares a new annotator's scores with the gold."""
    person, row = await studies.enter(connection, person_id)
    study = _study(person, row)
    if isinstance(study, PlayStudy):
        await play.record_interview(connection, row.id, person_id, assignment, values)
        return
    await studies.finish(connection, assignment, person_id, values, seconds)
    if isinstance(study, AnnotateStudy):
        await rating.qualify(connection, study, row.id, person_id)
