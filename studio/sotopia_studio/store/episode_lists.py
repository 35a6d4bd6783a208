"""Lists of episodes, filtered by indexed columns and paged by id, without reading records."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pydantic import Field
from sqlalchemy import ColumnElement, Select, delete, exists, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.foundation.errors import UnknownNameError
from sotopia_env.foundation.records import Record
from sotopia_studio.problems import ConflictError, MissingError
from sotopia_studio.store import events, studies, tables
from sotopia_studio.store import tags as tag_store

PAGE = 50
"""The number of episodes on a page of a list, unless another number is requested."""
_MOST_SORTED = 50_000
"""The maximum number of scores of which SQLite makes a sorted copy to filter by."""
OPEN = ("queued", "running", "waiting")
"""The states of an episode that is being played."""


class EpisodeFilter(Record):
    """A filter of episodes; a field that is ``None`` admits all.

    Attributes:
        run: id of their run.
        tag: one of their tags.
        scenario: its name.
        task: its name.
        task_hash: hash of the task's content.
        policy: name of the policy in one of the seats.
        character: name of the character in one of the seats.
        participant: id of the person in one of the seats.
        status: ``queued``, ``running``, ``waiting`` (``open`` for any of them), ``done``, ``failed`` or ``stopped``.
        stop: the stop reason, such as ``settled``.
        starred: whether the episodes are starred.
        owner: id of the user who started them.
        trials: whether conversations of trials of studies are listed, too; they are nobody's results.
        dimension: a dimension on which a seat has a score, within ``low`` and ``high``.
        evaluator: name of the evaluator that gave the score.
        low: lowest score.
        high: highest score.
    """

    run: str | None = None
    tag: str | None = None
    scenario: str | None = None
    task: str | None = None
    task_hash: str | None = None
    policy: str | None = None
    character: str | None = None
    participant: str | None = None
    status: str | None = None
    stop: str | None = None
    starred: bool | None = None
    owner: str | None = None
    trials: bool = False
    dimension: str | None = None
    evaluator: str | None = None
    low: float | None = None
    high: float | None = None


class EpisodeRow(Record):
    """An episode in a list.

    Attributes:
        id: sorts by time of creation.
        run: id of its run.
        task: its name.
        scenario: its name.
        characters: their names in seat order.
        policies: names in seat order.
        status: as in :class:`EpisodeFilter`.
        stop: the stop reason; empty while it is in progress.
        error: the reason why it failed.
        turns: number of turns so far.
        seed: seed of the turn order and the policies.
        starred: whether it is starred.
        trial: whether it is a conversation in a trial of a study.
        tags: in alphabetical order.
        scores: agent id to dimension to the mean of the evaluators' scores.
        created: seconds since the epoch.
        ended: seconds since the epoch.
    """

    id: str
    run: str | None
    task: str
    scenario: str
    characters: str
    policies: str
    status: str
    stop: str
    error: str
    turns: int
    seed: int
    starred: bool
    trial: bool = False
    tags: tuple[str, ...] = ()
    scores: dict[str, dict[str, float]] = Field(default_factory=dict)
    created: float
    ended: float | None


EVERY = EpisodeFilter()
_COLUMNS = [tables.episode.c[name] for name in EpisodeRow.model_fields if name not in ("trial", "tags", "scores")]
_EQUAL = ("run", "scenario", "task", "task_hash", "stop", "starred", "owner")
_SEAT = ("policy", "character", "participant")
_SCORE = ("dimension", "evaluator", "low", "high")


async def _conditions(connection: AsyncConnection, of: EpisodeFilter, few: bool = True) -> list[ColumnElement[bool]]:
    """A filter as conditions on the episode's row; ``few`` if only the first episodes that fit are wanted."""
    row, fields = tables.episode.c, of.model_dump(exclude_none=True)
    clauses = [row[name] == fields[name] for name in _EQUAL if name in fields]
    if of.status is not None:
        clauses.append(row.status.in_(OPEN) if of.status == "open" else row.status == of.status)
    if not of.trials:
        clauses.append(row.id.not_in(_trials()))
    if of.tag is not None:
        tag = tables.tag.c
        clauses.append(row.id.in_(select(tag.item).where(tag.kind == "episode", tag.tag == of.tag)))
    for name in _SEAT:
        if name in fields:
            clauses.append(row.id.in_(select(tables.seat.c.episode).where(tables.seat.c[name] == fields[name])))
    if any(name in fields for name in _SCORE):
        clauses.append(await _scored(connection, of, few))
    return clauses


def _trials() -> Select[tuple[str]]:
    """Selects the ids of the conversations in trials of studies; there are few, and each step has an index."""
    seat, person, study = tables.seat.c, tables.participant.c, tables.study.c
    query = select(seat.episode).join(tables.participant, person.id == seat.participant)
    return query.join(tables.study, study.id == person.study).where(study.status == studies.TRIAL)


async def _scored(connection: AsyncConnection, of: EpisodeFilter, few: bool) -> ColumnElement[bool]:
    # All score conditions apply to one row, so that one score of one seat meets them together.
    score, row = tables.score.c, tables.episode.c
    fits = [score[name] == getattr(of, name) for name in ("dimension", "evaluator") if getattr(of, name) is not None]
    fits += [] if of.low is None else [score.value >= of.low]
    fits += [] if of.high is None else [score.value <= of.high]
    if few and connection.dialect.name == "sqlite":
        some = select(score.episode).where(*fits).limit(_MOST_SORTED + 1).subquery()
        if (await connection.execute(select(func.count()).select_from(some))).scalar_one() > _MOST_SORTED:
            # Many episodes fit: the first ones are found sooner one by one than in a sorted copy of all that fit. The
            # expression keeps SQLite from the index of the dimension, which it would read anew for each episode.
            own = [score.dimension.concat("") == of.dimension, *fits[1:]] if of.dimension is not None else fits
            return exists().where(score.episode == row.id, *own).correlate(tables.episode)
    return row.id.in_(select(score.episode).where(*fits))


async def page(
    connection: AsyncConnection, of: EpisodeFilter = EVERY, *, after: str = "", limit: int = PAGE
) -> list[EpisodeRow]:
    """Returns a page of episodes, the newest first.

    Args:
        connection: a transaction.
        of: the filter.
        after: id of the last episode of the previous page.
        limit: the maximum number of episodes to return.
    """
    row = tables.episode.c
    query = select(*_COLUMNS).where(*await _conditions(connection, of)).order_by(row.id.desc()).limit(limit)
    rows = (await connection.execute(query.where(row.id < after) if after else query)).mappings().all()
    return await _with_details(connection, {item["id"]: dict(item) for item in rows})


async def _with_details(connection: AsyncConnection, rows: Mapping[str, dict[str, Any]]) -> list[EpisodeRow]:
    """Adds to the columns of episodes what other tables hold."""
    tags, scores = await tag_store.of(connection, "episode", list(rows)), await mean_scores(connection, list(rows))
    own = _trials().where(tables.seat.c.episode.in_(list(rows)))
    trials: set[Any] = {*(await connection.execute(own)).scalars()}
    return [
        EpisodeRow(**row, trial=key in trials, tags=tags[key], scores=scores.get(key, {})) for key, row in rows.items()
    ]


async def one(connection: AsyncConnection, episode: str) -> EpisodeRow:
    """Returns the row of an episode.

    Raises:
        MissingError: the episode does not exist.
    """
    row = (await events.row_of(connection, episode))._mapping
    return (await _with_details(connection, {episode: {column.name: row[column.name] for column in _COLUMNS}}))[0]


async def count(connection: AsyncConnection, of: EpisodeFilter = EVERY) -> int:
    """Returns the total number of episodes of a list."""
    query = select(func.count()).select_from(tables.episode)
    query = query.where(*await _conditions(connection, of, few=False))
    return int((await connection.execute(query)).scalar_one())


async def most_seats(connection: AsyncConnection, of: EpisodeFilter) -> int:
    """Returns the largest number of seats of an episode of a list; 0 for an empty one."""
    query = select(func.max(tables.episode.c.seats)).where(*await _conditions(connection, of, few=False))
    return (await connection.execute(query)).scalar_one() or 0


async def neighbours(connection: AsyncConnection, of: EpisodeFilter, episode: str) -> tuple[str | None, str | None]:
    """Returns the ids of the episodes before and after one in a list, the newest first."""
    row = tables.episode.c
    clauses = await _conditions(connection, of)
    newer = select(func.min(row.id)).where(*clauses, row.id > episode)
    older = select(func.max(row.id)).where(*clauses, row.id < episode)
    return (await connection.execute(newer)).scalar_one(), (await connection.execute(older)).scalar_one()


def _column(name: str) -> ColumnElement[Any]:
    choices: dict[str, ColumnElement[Any]] = {
        **{column: tables.episode.c[column] for column in (*_EQUAL, "status")},
        **{column: tables.seat.c[column] for column in _SEAT},
        **{column: tables.score.c[column] for column in ("dimension", "evaluator")},
    }
    if name not in choices:
        raise UnknownNameError(field="column", got=name, valid=[*choices, "tag"])
    return choices[name]


async def values(connection: AsyncConnection, column: str) -> dict[str, int]:
    """Returns the distinct values of a column that lists can be filtered by, each with its number of episodes.

    Trials are not counted.

    Raises:
        UnknownNameError: lists cannot be filtered by ``column``.
    """
    if column == "tag":
        return await tag_store.names(connection, "episode", without=_trials())
    value = _column(column)
    table = value.table
    # An episode has several seats and scores: in those tables each episode is counted once.
    number = func.count() if table is tables.episode else func.count(table.c.episode.distinct())
    own = table.c.id if table is tables.episode else table.c.episode
    query = select(value, number).where(value.is_not(None), own.not_in(_trials())).group_by(value).order_by(value)
    return {str(name): total for name, total in await connection.execute(query)}


async def distinct(connection: AsyncConnection, column: str) -> list[str]:
    """Returns the distinct values of a column, in a tenth of the time of :func:`values`; raises as it does."""
    value = _column(column)
    # Sorted here: told to sort, SQLite would sort more than a million rows to find a handful of values.
    return sorted(str(name) for name in (await connection.execute(select(value).distinct())).scalars())


async def mean_scores(connection: AsyncConnection, episodes: Collection[str]) -> dict[str, dict[str, dict[str, float]]]:
    """Returns episode to agent to dimension to the mean of the evaluators' scores."""
    row = tables.score.c
    query = select(row.episode, row.agent, row.dimension, func.avg(row.value)).where(row.episode.in_(episodes))
    means: dict[str, dict[str, dict[str, float]]] = {}
    query = query.group_by(row.episode, row.agent, row.dimension).order_by(row.episode, row.agent)
    for episode, agent, dimension, value in await connection.execute(query):
        means.setdefault(episode, {}).setdefault(agent, {})[dimension] = value
    return means


async def star(connection: AsyncConnection, episode: str, starred: bool) -> None:
    """Stars an episode, or removes its star.

    Raises:
        MissingError: the episode does not exist.
    """
    change = update(tables.episode).where(tables.episode.c.id == episode).values(starred=starred)
    if (await connection.execute(change)).rowcount != 1:
        raise MissingError(f"episode {episode}: not found")


async def remove(connection: AsyncConnection, episode: str) -> None:
    """Deletes an episode with its seats, scores, events, comments and tags.

    Raises:
        MissingError: the episode does not exist.
        ConflictError: the episode is being played, or belongs to a study or a batch run.
    """
    row = await events.row_of(connection, episode, lock=True)
    if row.status in OPEN:
        raise ConflictError(f"episode {episode} is being played; stop it first")
    use = select(tables.assignment.c.study).where(tables.assignment.c.item == episode).limit(1)
    study = (await connection.execute(use)).scalar_one_or_none()
    if study is not None:
        raise ConflictError(f"episode {episode} is used by study {study}; delete that first")
    # The next indexing of the run directory would add the episode again.
    if row.run is not None:
        raise ConflictError(f"episode {episode} is a part of run {row.run}, which is kept whole")
    await erase(connection, episode)


async def erase(connection: AsyncConnection, episode: str) -> None:
    """Deletes an episode in any state; a worker that plays it finds nothing left to do."""
    await connection.execute(delete(tables.job).where(tables.job.c.target == episode))
    # Rows that refer to the episode are deleted before it because of the foreign keys.
    for table in (tables.document, tables.seat, tables.score, tables.event, tables.submission, tables.comment):
        await connection.execute(delete(table).where(table.c.episode == episode))
    tag = tables.tag.c
    await connection.execute(delete(tables.tag).where(tag.kind == "episode", tag.item == episode))
    await connection.execute(delete(tables.episode).where(tables.episode.c.id == episode))
