"""Notes from one conversation of a study to the next one of the same people with the same partners."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.foundation.json_text import parse_json
from sotopia_env.people.studies.design import of_item
from sotopia_env.people.studies.interviews import OWN_NOTES
from sotopia_env.people.studies.settings import PlayStudy
from sotopia_env.world import Task
from sotopia_env.world.play.notes import note_line
from sotopia_studio.store import episodes, events, studies


async def carried_notes(
    connection: AsyncConnection, study: PlayStudy, study_id: str, task: Task, people: Mapping[str, str], partner: str
) -> dict[str, str] | None:
    """Returns the notes for a conversation that begins, by agent id: those after the latest one of the same people.

    A person's notes are what they wrote in the form after it, or those that they had; a policy's are in its record.

    Args:
        connection: a transaction.
        study: the study with its conditions.
        study_id: its id.
        task: the task of the conversation.
        people: the participants by agent id.
        partner: the policy of the other seats, or people.

    Returns:
        ``None`` while the earlier conversation is not recorded yet.
    """
    items: dict[str, list[Any]] = defaultdict(list)
    for row in await studies.assignments(connection, study_id, "done"):
        items[row.item].append(row)
    same = [
        rows
        for item, rows in items.items()
        if sorted(row.participant for row in rows) == sorted(people.values())
        and of_item(study, item).study.partner == partner
    ]
    if not same:
        return {}
    before = max(same, key=lambda rows: max(row.finished for row in rows))
    answers = {row.participant: parse_json(row.answers, "assignment") for row in before}
    identity = next(iter(answers.values()))["episode"]
    if (await events.row_of(connection, identity)).status != "done":
        return None
    record = await episodes.record_of(connection, identity)
    notes = {agent: _own(record.task, answers[person], record.rules.carry) for agent, person in people.items()}
    # The other seats are all the same policy's, so the order of seats tells whose notes are whose.
    scripted = [agent for agent in record.task.agents if agent not in {own["agent"] for own in answers.values()}]
    others = [agent for agent in task.agents if agent not in people]
    notes |= {agent: record.notes.get(earlier, "") for agent, earlier in zip(others, scripted, strict=False)}
    return {agent: text for agent, text in notes.items() if text}


def _own(task: Task, answers: Mapping[str, Any], most: int) -> str:
    """A person's notes after a conversation."""
    return note_line(answers.get(OWN_NOTES) or task.notes.get(answers["agent"], ""), most)
