"""The results of a study in the database, as the library's tables."""

from __future__ import annotations

from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.foundation.json_text import parse_json
from sotopia_env.people.studies.settings import PlayStudy
from sotopia_env.people.tables import results
from sotopia_env.people.tables.results import StudyTables
from sotopia_env.world.episode import Episode
from sotopia_studio import live
from sotopia_studio.store import episodes, events, studies


async def tables_of(connection: AsyncConnection, row: Any) -> StudyTables:
    """Returns the tables of a study, given its row."""
    study = studies.settings_of(row)
    people = [(person, studies.answers_of(person)) for person in await studies.participants(connection, row.id)]
    assignments = [
        (assignment, parse_json(assignment.answers, "assignment"))
        for assignment in await studies.assignments(connection, row.id, "done", "rejected", "dropped", "failed")
    ]
    ids: list[str] = []
    if isinstance(study, PlayStudy):
        ids = [answers["episode"] for _, answers in assignments]
    elif study.kind == "annotate":
        ids = [assignment.item for assignment, _ in assignments]
    records = {identity: await _record(connection, identity) for identity in dict.fromkeys(ids)}
    return results.tables_of(row.name, study, people, assignments, records)


async def _record(connection: AsyncConnection, identity: str) -> Episode:
    """The record of an ended episode, or of the turns so far of one that has none."""
    if (await events.row_of(connection, identity)).status == "done":
        return await episodes.record_of(connection, identity)
    return (await live.LiveEpisode.load(connection, identity)).table.episode()
