"""Opening studies and admitting people, by personal links that can be claimed once or by the study's address.

A personal link admits to a study, or to a seat of one episode.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.people.studies.design import conditions, plan
from sotopia_env.people.studies.settings import PERSON, AnnotateStudy, AnyStudy, PlayStudy
from sotopia_env.tasks import OpenTasks
from sotopia_env.world import Task
from sotopia_env.world.play.policy import Policy
from sotopia_studio import auth, live
from sotopia_studio.problems import ConflictError, MissingError
from sotopia_studio.settings import ServiceSettings
from sotopia_studio.store import episodes, library, studies, tables
from sotopia_studio.store.engine import Database
from sotopia_studio.store.kinds import SCENARIOS, TASKS
from sotopia_studio.store.library import LibraryItem
from sotopia_studio.studies import rating
from sotopia_studio.work import names

PINNED = 16
"""The number of characters of a hash that names the content of an item of the library."""
_MOST_LINKS = 1_000
_MOST_ITEMS = 10_000
_LONGEST_ID = 200
_USED = "this link was used before or is incomplete; ask for a new one"


async def open_study(database: Database, settings: ServiceSettings, study: AnyStudy, owner: str = "") -> str:
    """Adds a study with all its assignments and returns its id.

    Raises:
        ConflictError: another study has this name.
        InvalidValueError: the study has no assignments, or a name is not allowed in a service with accounts.
        UnknownNameError: a name is unknown.
    """
    study = await frozen(database, study)
    items = await planned(database, settings, study)
    async with database.write() as connection:
        identity = await studies.add(connection, study.name, study.kind, study.model_dump_json(), owner)
        await studies.add_assignments(connection, identity, items)
    return identity


async def frozen(database: Database, study: AnyStudy) -> AnyStudy:
    """Returns a study with the tasks of the library that it names as they are now; later changes do not reach it.

    Raises:
        InvalidValueError: the library has no such task or scenario, or it has another content.
    """
    if isinstance(study, AnnotateStudy) or not (study.library or study.frozen):
        return study
    async with database.read() as connection:
        items = [await _item(connection, entry) for entry in study.library]
    tasks = [_task(item, study.seed) for item in items]
    if len({task.id for task in tasks}) < len(tasks):
        raise InvalidValueError(field="library", expected="different tasks", got=", ".join(task.id for task in tasks))
    pinned = tuple(f"{item.id}@{item.hash[:PINNED]}" for item in items)
    return study.model_copy(update={"library": pinned, "frozen": tuple(task.model_dump_json() for task in tasks)})


async def _item(connection: AsyncConnection, entry: str) -> LibraryItem[Any]:
    """Finds an item by its id; in a studio that has its content under another id, by its hash."""
    identity, _, digest = entry.partition("@")
    for key in filter(None, (identity, digest)):
        for kind in (TASKS, SCENARIOS):
            with suppress(MissingError):
                item: LibraryItem[Any] = await library.get(connection, kind, key, archived=True)
                if item.hash.startswith(digest):
                    return item
    hint = "save it in the library first, or correct the id and the hash"
    raise InvalidValueError(field="library", expected="a task or scenario of this studio", got=entry, hint=hint)


def _task(item: LibraryItem[Any], seed: int) -> Task:
    record = item.read()
    return record if isinstance(record, Task) else OpenTasks([record]).stream(seed, "medium").take(1)[0]


async def planned(database: Database, settings: ServiceSettings, study: AnyStudy) -> list[tuple[str, int]]:
    """Returns the assignments of a study; raises the errors of :func:`open_study` on its settings."""
    await names.checked(settings, lambda: _check(settings, study))
    if isinstance(study, PlayStudy):
        items = await asyncio.to_thread(plan, study)
    else:
        async with database.read() as connection:
            items = await rating.plan(connection, study)
    if not items:
        raise InvalidValueError("the study has no assignments", field="runs" if study.kind == "annotate" else "tasks")
    return items


def _check(settings: ServiceSettings, study: AnyStudy) -> None:
    """Raises an error if a name is unknown or not allowed, or if there are too many tasks."""
    variants = [c.study for c in conditions(study)] if isinstance(study, PlayStudy) else [study]
    for variant in variants:
        if not isinstance(variant, AnnotateStudy):
            repeats = variant.repeats if isinstance(variant, PlayStudy) else variant.overlap
            names.check_tasks(settings, variant.tasks)
            names.check_size(variant.tasks, variant.n, repeats * len(variants), _MOST_ITEMS)
        if isinstance(variant, PlayStudy):
            _check_partner(settings, variant)


def _check_partner(settings: ServiceSettings, study: PlayStudy) -> None:
    models = ModelPool(settings.models)
    partners: list[Policy] = []
    for field, name in (("partner", study.partner), ("adviser", study.adviser)):
        try:
            partners += names.policies(settings, models, [] if name in (PERSON, "") else [name], {})
        except InvalidValueError as error:
            raise InvalidValueError.of(error, field=field) from None
    names.evaluator(settings, models, study.evaluator, partners)


async def add_links(connection: AsyncConnection, study: str, count: int) -> list[str]:
    """Adds participants and returns the secrets of their personal links; the database keeps only hashes.

    Raises:
        InvalidValueError: ``count`` is not between 1 and 1,000.
    """
    if not 1 <= count <= _MOST_LINKS:
        raise InvalidValueError(field="count", expected=f"1 to {_MOST_LINKS}", got=count)
    links = [secrets.token_urlsafe(16) for _ in range(count)]
    for link in links:
        await studies.add_participant(connection, study, link=auth.digest(link))
    return links


async def new_link(connection: AsyncConnection, person: str) -> str:
    """Returns the secret of a new link for a participant, to continue on another device."""
    link = secrets.token_urlsafe(16)
    row = tables.participant
    await connection.execute(update(row).where(row.c.id == person).values(link=auth.digest(link)))
    return link


async def check_link(connection: AsyncConnection, secret: str) -> None:
    """Raises :class:`MissingError` if a personal link was claimed before, or never existed."""
    row = tables.participant.c
    if (await connection.execute(select(row.id).where(row.link == auth.digest(secret)))).first() is None:
        raise MissingError(_USED)


async def claim(connection: AsyncConnection, secret: str) -> str:
    """Returns the secret of a new session in exchange for that of a personal link; raises as :func:`check_link`."""
    row = tables.participant
    # One statement finds and deletes the link, so that of two clicks one is refused.
    mine = update(row).where(row.c.link == auth.digest(secret)).values(link=None).returning(row.c.id, row.c.study)
    person = (await connection.execute(mine)).one_or_none()
    if person is None:
        raise MissingError(_USED)
    if person.study is None:
        await _arrive(connection, person.id)
    return await _session(connection, person.id, person.study)


async def _arrive(connection: AsyncConnection, person: str) -> None:
    """Records that the person of a seat has arrived."""
    is_first = (await studies.participant(connection, person)).seen is None
    await studies.change_participant(connection, person, state="active")
    episode, _ = await episodes.seat_of(connection, person)
    if is_first:
        await live.arrive(connection, episode)


async def join(connection: AsyncConnection, study: Any, external: str, panel: Mapping[str, str] | None = None) -> str:
    """Returns the secret of a session for a person who joins by the study's address.

    Args:
        connection: a writing transaction.
        study: the study's row.
        external: the panel's id of the person; joining again with the same id continues the participation.
        panel: further ids that the panel sent, for the export.

    Raises:
        ConflictError: the study is closed.
        InvalidValueError: the id is too long.
    """
    if len(external) > _LONGEST_ID:
        raise InvalidValueError(field="PROLIFIC_PID", expected=f"at most {_LONGEST_ID} characters", got=len(external))
    study = await studies.by_name(connection, study.id, lock=True)  # a double click must not make two people of one
    earlier = await studies.by_external(connection, study.id, external) if external else None
    if earlier is not None:
        return await _session(connection, earlier.id, study.id)
    # After the look-up above, so that participants of a closed study can come back and finish.
    if study.status != "open":
        raise ConflictError("this study is closed; thank you for your interest")
    person = await studies.add_participant(connection, study.id, external=external)
    ids = {name: text for name, text in (panel or {}).items() if text}
    await studies.change_participant(connection, person, answers=ids)
    return await _session(connection, person, study.id)


async def _session(connection: AsyncConnection, person: str, study: str | None) -> str:
    plays = study is None or (await studies.by_name(connection, study)).kind == "play"
    return await auth.open_session(connection, person, "participant" if plays else "annotator", study or "")
