"""The state of a study while people are in it: where everybody is, what fails, what it costs, and what is left."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.foundation.json_text import parse_json
from sotopia_env.people.studies.assigning import by_condition, seconds_left
from sotopia_env.people.studies.design import of_item, of_person
from sotopia_env.people.studies.settings import FINISHED, AnyStudy, PlayStudy
from sotopia_env.people.tables.spending import spent_on
from sotopia_env.world.episode import RecordedTurn, Usage
from sotopia_studio import live
from sotopia_studio.store import episodes, studies, tables

STAGES = {
    "invited": "has not agreed yet",
    "consented": "reads the instructions",
    "waiting": "waits for a partner",
    "acts": "has the turn",
    "listens": "the partner has the turn",
    "rates": "judges an item",
    "between": "after a conversation",
    "questionnaire": "answers the questionnaire",
    "done": "done",
    "declined": "did not agree",
    "no_partner": "no partner came",
    "not_qualified": "not qualified",
    "stopped": "stopped early",
    "dropped": "did not answer in time",
}
"""Where a person can be, in words."""
LOST = ("no_partner", "not_qualified", "stopped", "dropped")
"""The stages of people who began and did not finish."""


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """A person on the board.

    Attributes:
        code: code of the person.
        external: the panel's id.
        condition: the condition of the conversation, or of the person who stays in one.
        stage: one of :data:`STAGES`.
        since: the time since when the stage has lasted, in seconds since the epoch.
        done: finished conversations or items.
        episode: id of the present conversation; empty without one.
        turns: its number of turns.
        deadline: when the person's time is over.
    """

    code: str
    external: str
    condition: str
    stage: str
    since: float | None
    done: int
    episode: str = ""
    turns: int = 0
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class StalledModel:
    """A conversation or an assistant that waits for a model, or has failed.

    Attributes:
        episode: id of the conversation.
        state: ``failed``, or ``retrying``.
        part: ``conversation`` or ``assistant``.
        reason: the error of the last attempt.
    """

    episode: str
    state: str
    part: str
    reason: str


@dataclass(frozen=True, slots=True)
class Board:
    """The state of a study.

    Attributes:
        people: everybody, those who are in the study first.
        stages: the number of people in each stage.
        conditions: for each condition, the numbers of finished, present and free conversations.
        outages: what waits for a model, or has failed.
        usage: tokens and dollars of all conversations so far, and of assistants; ``None`` where unknown.
        left: the number of open items.
        seconds_left: how long the rest takes at the pace of the latest items; ``None`` if that cannot be said yet.
    """

    people: tuple[Whereabouts, ...]
    stages: Mapping[str, int]
    conditions: Mapping[str, Mapping[str, int]]
    outages: tuple[StalledModel, ...]
    usage: Usage
    left: int
    seconds_left: float | None

    @property
    def present(self) -> int:
        """The number of people who are in the study now."""
        return sum(count for stage, count in self.stages.items() if stage not in FINISHED)


async def board_of(connection: AsyncConnection, study: AnyStudy, study_id: str) -> Board:
    """Returns the state of a study; only reads."""
    people = await studies.participants(connection, study_id)
    assignments = await studies.assignments(connection, study_id)
    rows = await _episodes(connection, study_id if study.kind == "play" else "")
    current = {row.participant: row for row in assignments if row.state == "leased"}
    done = Counter(row.participant for row in assignments if row.state == "done")
    acting = await _acting(connection, [identity for identity, row in rows.items() if row.status == "waiting"])
    entries = [_person(study, person, current.get(person.id), rows, acting, done[person.id]) for person in people]
    entries.sort(key=lambda entry: entry.stage in FINISHED)
    return Board(
        people=tuple(entries),
        stages=Counter(entry.stage for entry in entries),
        conditions=by_condition(study, assignments) if isinstance(study, PlayStudy) else {},
        outages=tuple(await _outages(connection, rows)),
        usage=await _usage(connection, rows),
        left=sum(row.state in ("open", "leased") for row in assignments),
        seconds_left=seconds_left(assignments, time.time()),
    )


async def _episodes(connection: AsyncConnection, study_id: str) -> dict[str, Any]:
    """The rows of a study's conversations by id, each with the time of its latest event."""
    row, event, assignment = tables.episode, tables.event.c, tables.assignment.c
    query_of_answers = select(assignment.answers).where(assignment.study == study_id, assignment.answers != "{}")
    texts = await connection.execute(query_of_answers)
    ids = {parse_json(text, "assignment").get("episode", "") for (text,) in texts} - {""}
    times = select(event.episode, func.max(event.at).label("latest")).where(event.episode.in_(ids))
    latest = times.group_by(event.episode).subquery()
    query = select(row, latest.c.latest).outerjoin(latest, latest.c.episode == row.c.id).where(row.c.id.in_(ids))
    return {item.id: item for item in await connection.execute(query)}


async def _acting(connection: AsyncConnection, ids: Sequence[str]) -> dict[str, list[str]]:
    """The agents whose turn it is, by conversation."""
    event = tables.event.c
    last = select(event.episode, func.max(event.number).label("number"))
    last_rows = last.where(event.episode.in_(ids), event.kind == "waiting").group_by(event.episode).subquery()
    query = select(event.episode, event.payload)
    query = query.join(last_rows, (last_rows.c.episode == event.episode) & (last_rows.c.number == event.number))
    return {row.episode: parse_json(row.payload, "event")["agents"] for row in await connection.execute(query)}


def _person(
    study: AnyStudy, person: Any, assignment: Any, rows: Mapping[str, Any], acting: Mapping[str, list[str]], done: int
) -> Whereabouts:
    answers = {} if assignment is None else parse_json(assignment.answers, "assignment")
    row = rows.get(answers.get("episode", ""))
    stage, since = person.state, person.finished or person.seen or person.created
    if person.state == "active":
        stage = "between" if assignment is None else "waiting" if study.kind == "play" else "rates"
    if row is not None:
        is_acting = answers["agent"] in acting.get(row.id, ())
        stage, since = "acts" if is_acting else "listens", row.latest
    condition = None
    if isinstance(study, PlayStudy):
        own = of_person(study, studies.answers_of(person))
        condition = of_item(study, assignment.item) if assignment is not None else own
    return Whereabouts(
        code=person.id,
        external=person.external,
        condition="" if condition is None else condition.name,
        stage=stage,
        since=since,
        done=done,
        episode="" if row is None else row.id,
        turns=0 if row is None else row.turns,
        deadline=row.deadline if row is not None and stage == "acts" else None,
    )


async def _outages(connection: AsyncConnection, rows: Mapping[str, Any]) -> list[StalledModel]:
    job = tables.job.c
    outages = [
        StalledModel(row.id, "failed", "conversation", row.error) for row in rows.values() if row.status == "failed"
    ]
    parts = {live.ADVANCE: "conversation", live.ADVISE: "assistant"}
    query = select(job.target, job.kind, job.error).where(job.kind.in_(parts), job.requests > job.done, job.error != "")
    retried = await connection.execute(query.where(job.target.in_(list(rows))))
    return outages + [StalledModel(row.target, "retrying", parts[row.kind], row.error) for row in retried]


async def _usage(connection: AsyncConnection, rows: Mapping[str, Any]) -> Usage:
    total = Usage()
    for identity, row in rows.items():
        total += await _episode_usage(connection, identity, row)
    return total


async def _episode_usage(connection: AsyncConnection, identity: str, row: Any) -> Usage:
    # An episode of so many events cost what it cost: each is read once, and again only while it goes on.
    key = (identity, row.events, row.status)
    if (usage := _spent.get(key)) is None:
        turns: Sequence[RecordedTurn]
        if row.status == "done":
            turns = (await episodes.record_of(connection, identity)).turns
        else:
            turns = (await live.LiveEpisode.load(connection, identity)).table.turns
        if len(_spent) > _MOST_REMEMBERED:
            _spent.clear()
        usage = _spent[key] = spent_on(turns)
    return usage


_MOST_REMEMBERED = 20_000
_spent: dict[tuple[str, int, str], Usage] = {}


def minutes(seconds: float) -> int:
    """Returns a duration in whole minutes, at least 1."""
    return max(1, math.ceil(seconds / 60))
