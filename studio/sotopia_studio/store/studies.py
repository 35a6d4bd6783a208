"""Studies, their participants and their assignments."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.foundation.json_text import canonical_json, parse_json
from sotopia_env.people.studies.settings import FINISHED, AnyStudy, study_of
from sotopia_studio.problems import ConflictError, MissingError
from sotopia_studio.store import tables

TRIAL = "trial"
"""The status of a trial, which is nobody's study."""
LEASE = 2 * 3600.0
"""Seconds for which an assignment to annotate or validate is leased; then another person may get it."""


async def add(connection: AsyncConnection, name: str, kind: str, settings: str, owner: str) -> str:
    """Adds a study and returns its id.

    Raises:
        ConflictError: another study has this name.
    """
    # Checked before the insert: a violated constraint would abort the whole transaction on PostgreSQL.
    if (await connection.execute(select(tables.study.c.id).where(tables.study.c.name == name))).first():
        raise ConflictError(f"study {name!r}: the name is taken; choose another one")
    identity = tables.new_id()
    values = {"name": name, "kind": kind, "settings": settings, "status": "open", "owner": owner}
    await connection.execute(insert(tables.study).values(id=identity, created=time.time(), **values))
    return identity


async def by_name(connection: AsyncConnection, name: str, *, lock: bool = False) -> Any:
    """Returns the row of a study, by its name or id; ``lock`` locks it for this transaction.

    Raises:
        MissingError: the study does not exist.
    """
    row = tables.study
    # An id goes before a name: a study may be called as another one's id.
    query = select(row).where((row.c.name == name) | (row.c.id == name)).order_by((row.c.id != name), row.c.id).limit(1)
    study = (await connection.execute(query.with_for_update() if lock else query)).one_or_none()
    if study is None:
        raise MissingError(f"study {name!r}: not found")
    return study


def settings_of(row: Any) -> AnyStudy:
    """Returns the settings in a study's row."""
    return study_of(parse_json(row.settings, f"study {row.name}"))


async def listed(connection: AsyncConnection) -> Sequence[Any]:
    """Returns all studies, the latest first."""
    row = tables.study
    query = select(row).where(row.c.status != TRIAL).order_by(row.c.id.desc())
    return (await connection.execute(query)).all()


async def change(connection: AsyncConnection, study: str, **columns: Any) -> None:
    """Changes columns of a study, such as its settings, or its status: a closed study admits no new participants."""
    await connection.execute(update(tables.study).where(tables.study.c.id == study).values(**columns))


async def add_participant(
    connection: AsyncConnection,
    study: str | None,
    *,
    link: str | None = None,
    external: str = "",
) -> str:
    """Adds an invited participant and returns its id.

    Args:
        connection: a writing transaction.
        study: id of the study; ``None`` for a person who is invited to one seat and to no study.
        link: the hash of the secret in a personal link.
        external: a panel's id of the person.
    """
    identity = tables.new_id()
    values = {"study": study, "link": link, "external": external, "state": "invited", "answers": "{}"}
    await connection.execute(insert(tables.participant).values(id=identity, created=time.time(), **values))
    return identity


async def participant(connection: AsyncConnection, identity: str) -> Any:
    """Returns the row of a participant.

    Raises:
        MissingError: the participant does not exist.
    """
    row = tables.participant
    person = (await connection.execute(select(row).where(row.c.id == identity))).one_or_none()
    if person is None:
        raise MissingError("participant not found")
    return person


async def enter(connection: AsyncConnection, identity: str) -> tuple[Any, Any]:
    """Returns the rows of a participant and of the study, locked until the end of the transaction.

    Otherwise two concurrent requests of one person, or of two partners, would not see each other's changes.

    Raises:
        MissingError: the participant does not exist.
    """
    study = await by_name(connection, (await participant(connection, identity)).study, lock=True)
    return await participant(connection, identity), study


async def by_external(connection: AsyncConnection, study: str, external: str) -> Any:
    """Returns the participant whom a panel knows by this id; ``None`` if no one has joined with it."""
    row = tables.participant
    query = select(row).where(row.c.study == study, row.c.external == external)
    return (await connection.execute(query)).one_or_none()


async def participants(connection: AsyncConnection, study: str) -> Sequence[Any]:
    """Returns the participants of a study in the order of joining."""
    row = tables.participant
    return (await connection.execute(select(row).where(row.c.study == study).order_by(row.c.id))).all()


def answers_of(person: Any) -> dict[str, Any]:
    """Returns the answers in a participant's row."""
    return dict(parse_json(person.answers, "participant"))


async def change_participant(
    connection: AsyncConnection, identity: str, *, state: str | None = None, answers: Mapping[str, Any] | None = None
) -> None:
    """Changes a participant's state, and adds to the answers."""
    person = await participant(connection, identity)
    values: dict[str, Any] = {"seen": time.time()}
    if state is not None:
        values["state"] = state
        if state in FINISHED:
            values["finished"] = time.time()
    if answers:
        values["answers"] = canonical_json({**answers_of(person), **answers})
    await connection.execute(update(tables.participant).where(tables.participant.c.id == identity).values(**values))


async def add_assignments(connection: AsyncConnection, study: str, items: Sequence[tuple[str, int]]) -> None:
    """Adds open assignments, one for each item and slot."""
    rows = [
        {"id": tables.new_id(), "study": study, "item": item, "slot": slot, "state": "open", "answers": "{}"}
        for item, slot in items
    ]
    if rows:
        await connection.execute(insert(tables.assignment), rows)


async def take(
    connection: AsyncConnection, study: str, person: str, until: float, *, overlap_first: bool = False, item: str = ""
) -> Any:
    """Leases the next assignment that is open or whose lease has expired; ``None`` if none is left for this person.

    No person gets an item twice.

    Args:
        connection: a connection that may write.
        study: the id of the study.
        person: the id of the participant.
        until: the end of the lease.
        overlap_first: whether items that most others have answered or are answering come first, so that the answers of
            few people can be compared with each other. By default items with the fewest answers come first.
        item: the only item to take; any by default.
    """
    row, now = tables.assignment, time.time()
    mine = await current(connection, study, person)
    if mine is not None:
        return mine
    earlier = select(row.c.item).where(row.c.study == study, row.c.participant == person)
    due = (row.c.state == "open") | ((row.c.state == "leased") & (row.c.leased_until < now))
    # Negative slots are qualification items, which belong to one person from the beginning.
    due = due & (row.c.slot >= 0)
    query = select(row.c.id).where(row.c.study == study, due, row.c.item.not_in(earlier))
    query = query.where(row.c.item == item) if item else query
    order: list[Any] = [row.c.slot, row.c.id]  # the first slot of every item comes before the second slot of any
    if overlap_first:
        other = row.alias()
        same = (other.c.study == study) & (other.c.item == row.c.item) & (other.c.slot >= 0)
        # Answers before leases: who has only opened an item may never answer it.
        counts = [
            select(func.count()).select_from(other).where(same, other.c.state == state).scalar_subquery()
            for state in ("done", "leased")
        ]
        order = [*(count.desc() for count in counts), *order]
    query = query.order_by(*order).limit(1).with_for_update(skip_locked=True)
    change = update(row).where(row.c.id == query.scalar_subquery())
    change = change.values(state="leased", participant=person, leased_until=until)
    return (await connection.execute(change.returning(*row.c))).one_or_none()


async def current(connection: AsyncConnection, study: str, person: str) -> Any:
    """Returns the assignment that a person has leased, or ``None``."""
    row = tables.assignment
    query = select(row).where(row.c.study == study, row.c.participant == person, row.c.state == "leased")
    return (await connection.execute(query.order_by(row.c.id))).first()


async def done_by(connection: AsyncConnection, study: str, person: str) -> int:
    """Returns the number of assignments that a person has done."""
    row = tables.assignment
    query = select(func.count()).where(row.c.study == study, row.c.participant == person, row.c.state == "done")
    return int((await connection.execute(query)).scalar_one())


async def finish(
    connection: AsyncConnection, assignment: str, person: str, answers: Mapping[str, Any], seconds: float | None = None
) -> None:
    """Records the answers to an assignment.

    Raises:
        ConflictError: the lease has passed to another person, or the answers were sent before.
    """
    row = tables.assignment
    mine = (row.c.id == assignment) & (row.c.participant == person) & (row.c.state == "leased")
    values = {"state": "done", "answers": canonical_json(dict(answers)), "seconds": seconds, "finished": time.time()}
    # The condition on state and person refuses a second click and a form that was open when its lease expired.
    if not (await connection.execute(update(row).where(mine).values(**values))).rowcount:
        raise ConflictError("this was sent before, or its time was up; reload the page for the next step")


async def change_assignment(connection: AsyncConnection, assignment: str, **columns: Any) -> None:
    """Changes an assignment's row."""
    await connection.execute(update(tables.assignment).where(tables.assignment.c.id == assignment).values(**columns))


async def assignments(
    connection: AsyncConnection, study: str, *states: str, participant: str | None = None
) -> Sequence[Any]:
    """Returns the assignments of a study, of all states or of some, and of all participants or of one."""
    row = tables.assignment
    query = select(row).where(row.c.study == study)
    query = query.where(row.c.state.in_(states)) if states else query
    query = query if participant is None else query.where(row.c.participant == participant)
    return (await connection.execute(query.order_by(row.c.id))).all()


async def progress(connection: AsyncConnection, study: str) -> dict[str, int]:
    """Returns the number of assignments of a study in each state."""
    row = tables.assignment
    query = select(row.c.state, func.count().label("n")).where(row.c.study == study).group_by(row.c.state)
    return {item.state: item.n for item in await connection.execute(query)}
