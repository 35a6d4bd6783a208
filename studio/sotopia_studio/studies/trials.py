"""Trials: a researcher goes through a study as a participant would.

A trial is a copy of the study with people and assignments of its own, which no list, count or export of a study reads.
A researcher has one trial at a time; beginning another one, or ending it, deletes all that came of it.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.foundation.json_text import parse_json
from sotopia_env.people.studies.settings import PERSON, AnyStudy, PlayStudy
from sotopia_studio.auth import SCOPES, Principal
from sotopia_studio.problems import MissingError
from sotopia_studio.settings import ServiceSettings
from sotopia_studio.store import episode_lists, studies, tables
from sotopia_studio.store.engine import Database
from sotopia_studio.studies import opening

STAND_IN = "random"
"""The policy that takes the seats of the other participants in a trial, on request; it plays in every task."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial as its participants' pages show it.

    Attributes:
        back: the address of the page on which it was begun; empty for who joined it by a link.
        pairs: whether it waits for another participant, whom the researcher has to play as well.
    """

    back: str
    pairs: bool


async def begin(database: Database, settings: ServiceSettings, study: AnyStudy, owner: str, back: str) -> None:
    """Begins a trial of a study in place of the owner's earlier one; raises the errors of opening a study."""
    study = await opening.frozen(database, study)
    items = await opening.planned(database, settings, study)
    trial = study.model_copy(update={"name": f"trial-{secrets.token_hex(6)}"})
    async with database.write() as connection:
        await remove(connection, owner)
        identity = await studies.add(connection, trial.name, trial.kind, trial.model_dump_json(), owner)
        await studies.change(connection, identity, status=studies.TRIAL)
        await studies.add_assignments(connection, identity, items)
        await studies.add_participant(connection, identity, external=back)


async def participation(connection: AsyncConnection, principal: Principal) -> tuple[Principal, Trial | None]:
    """Returns who somebody is on the pages of participants, and their trial if it is one.

    A researcher is the participant of their own trial; everybody else is who they are.
    """
    person, study = tables.participant.c, tables.study.c
    query = select(person.id, person.study, person.external, study.kind, study.settings)
    query = query.join(tables.study, study.id == person.study).where(study.status == studies.TRIAL)
    if "run" in principal.scopes:
        # The first participant; others have joined the trial by a link.
        query = query.where(study.owner == principal.id).order_by(person.id).limit(1)
    else:
        query = query.where(person.id == principal.id)
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        return principal, None
    content = parse_json(row.settings, "trial")
    role = "participant" if row.kind == "play" else "annotator"
    trial = Trial(row.external, content.get("partner") == PERSON)
    return Principal(row.id, role, SCOPES[role], row.study), trial


async def stand_in(database: Database, settings: ServiceSettings, owner: str) -> None:
    """Lets a policy take the seats of the other participants in the owner's trial, whose conversations begin anew."""
    async with database.read() as connection:
        row = await _of(connection, owner)
    study = studies.settings_of(row)
    assert isinstance(study, PlayStudy)
    changed = study.model_copy(update={"partner": STAND_IN})
    items = await opening.planned(database, settings, changed)
    async with database.write() as connection:
        await _clear(connection, row.id)
        await studies.change(connection, row.id, settings=changed.model_dump_json())
        await studies.add_assignments(connection, row.id, items)


async def second_seat(connection: AsyncConnection, owner: str) -> str:
    """Returns the secret of a link with which the researcher also takes part as the partner, in another browser."""
    return (await opening.add_links(connection, (await _of(connection, owner)).id, 1))[0]


async def _of(connection: AsyncConnection, owner: str) -> Any:
    row = tables.study
    query = select(row).where(row.c.owner == owner, row.c.status == studies.TRIAL)
    trial = (await connection.execute(query)).one_or_none()
    if trial is None:
        raise MissingError("this trial has ended; begin another one on the study's page")
    return trial


async def remove(connection: AsyncConnection, owner: str) -> None:
    """Deletes the owner's trial, if any, with its people, answers and conversations."""
    row = tables.study
    query = select(row.c.id).where(row.c.owner == owner, row.c.status == studies.TRIAL)
    for trial in (await connection.execute(query)).scalars().all():
        await _clear(connection, trial)
        people = select(tables.participant.c.id).where(tables.participant.c.study == trial)
        await connection.execute(delete(tables.draft).where(tables.draft.c.owner.in_(people)))
        await connection.execute(delete(tables.session).where(tables.session.c.scope == trial))
        await connection.execute(delete(tables.participant).where(tables.participant.c.study == trial))
        await connection.execute(delete(row).where(row.c.id == trial))


async def _clear(connection: AsyncConnection, trial: str) -> None:
    """Deletes the assignments of a trial and its conversations, whether or not they have ended."""
    assignments = await studies.assignments(connection, trial)
    answers = [parse_json(item.answers, "assignment") for item in assignments]
    await connection.execute(delete(tables.assignment).where(tables.assignment.c.study == trial))
    # In a study of annotation, an item is an episode of others; only played conversations are in the answers.
    for episode in {entry["episode"] for entry in answers if "episode" in entry}:
        await episode_lists.erase(connection, episode)
