"""Episodes in the database: the row of each, with the columns that lists filter by, and its exact line."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.world import Task
from sotopia_env.world.episode import Episode, Evaluation, read_episode, to_line
from sotopia_studio.problems import MissingError
from sotopia_studio.store import tables

PERSON = "human"
"""The policy name of a seat that a person takes."""


def task_columns(task: Task) -> dict[str, Any]:
    """Returns the columns of an episode's row that are derived from its task."""
    return {
        "task": task.id,
        "task_hash": task.content_hash,
        "scenario": task.scenario.id,
        "seats": len(task.agents),
        "characters": ", ".join(task.names[agent] for agent in task.agents),
    }


def seat_rows(
    episode: str, task: Task, policies: Mapping[str, str], participants: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Returns a row for each seat of an episode."""
    return [
        {
            "episode": episode,
            "agent": agent,
            "character": task.names[agent],
            "policy": policies.get(agent, ""),
            "participant": participants.get(agent, ""),
        }
        for agent in task.agents
    ]


async def participants(connection: AsyncConnection, episode: str) -> dict[str, str]:
    """Returns the seats that people take: agent id to the person's id."""
    columns = tables.seat.c
    query = select(columns.agent, columns.participant)
    query = query.where(columns.episode == episode, columns.participant != "")
    return {row.agent: row.participant for row in await connection.execute(query)}


async def guests(connection: AsyncConnection, episode: str) -> dict[str, Any]:
    """Returns the seats to which people are invited by a link: agent id to character and participant's row."""
    seat, person = tables.seat.c, tables.participant
    query = select(seat.agent, seat.character, *person.c).join(person, seat.participant == person.c.id)
    query = query.where(seat.episode == episode, person.c.study.is_(None)).order_by(seat.agent)
    return {row.agent: row for row in await connection.execute(query)}


async def seat_of(connection: AsyncConnection, person: str) -> tuple[str, str]:
    """Returns the ids of the episode and the agent of a person who is invited to one seat.

    Raises:
        MissingError: the episode was deleted.
    """
    columns = tables.seat.c
    query = select(columns.episode, columns.agent).where(columns.participant == person)
    seat = (await connection.execute(query)).one_or_none()
    if seat is None:
        raise MissingError("the conversation does not exist any more")
    return seat.episode, seat.agent


async def overdue(connection: AsyncConnection) -> list[str]:
    """Returns the ids of episodes in which a person has exceeded the time limit."""
    row = tables.episode.c
    query = select(row.id).where(row.deadline.is_not(None), row.deadline < time.time(), row.status == "waiting")
    return list((await connection.execute(query)).scalars())


def record_columns(episode: Episode) -> dict[str, Any]:
    """Returns the columns of an episode's row that are derived from the record of an ended episode."""
    return {
        "status": "done",
        "stop": episode.stop.value if episode.stop else "",
        "turns": len(episode.turns),
        "ended": time.time(),
        # The worker looks for deadlines that have passed; an ended episode must not have one.
        "deadline": None,
    }


def score_rows(episode: str, evaluations: Iterable[Evaluation]) -> list[dict[str, Any]]:
    """Returns a row for every score, for lists and filters."""
    return [
        {
            "episode": episode,
            "agent": score.agent,
            "evaluator": evaluation.evaluator,
            "dimension": str(score.dimension),
            "value": score.value,
        }
        for evaluation in evaluations
        for scores in evaluation.by_agent.values()
        for score in scores.values()
    ]


async def add_recorded(
    connection: AsyncConnection,
    run: str | None,
    entries: Sequence[tuple[Episode, str]],
    created: float,
    *,
    owner: str = "",
) -> list[tuple[str, bool]]:
    """Adds episodes that were played elsewhere, such as in a batch run, or updates those that are in the database.

    Args:
        connection: a writing transaction.
        run: id of the run they belong to; within a run, an episode is known by its key.
        entries: the records, each with its exact line if it was read from one.
        created: the time at which they were recorded.
        owner: id of the user they belong to.

    Returns:
        The id of each episode, and whether it is new.
    """
    if not entries:
        return []
    row = tables.episode
    present: dict[str, str] = {}
    if run is not None:
        # A run directory is indexed repeatedly, and evaluating a run rewrites its lines: the key identifies the
        # episode.
        keys = [episode.key for episode, _ in entries]
        query = select(row.c.key, row.c.id).where(row.c.run == run, row.c.key.in_(keys))
        present = {item.key: item.id for item in await connection.execute(query)}
        entries = await _with_own(connection, present, entries)
    # Ids of one millisecond are random in their last digits; sorted ones list the episodes in their order here.
    drawn = sorted(tables.new_id() for _ in entries)
    ids = [present.get(episode.key, identity) for identity, (episode, _) in zip(drawn, entries, strict=True)]
    rows, seats, documents, lines = [], [], [], []
    for identity, (episode, line) in zip(ids, entries, strict=True):
        # The line is stored as it was read, so that an export is byte for byte equal to the run directory.
        text = (line or to_line(episode)).rstrip("\n")
        if episode.key in present:
            lines.append((identity, text))
            continue
        policies = {policy.agent: policy.name for policy in episode.policies}
        rows.append(
            {
                "id": identity,
                "run": run,
                "key": episode.key or identity,
                "policies": ", ".join(policies.get(agent, "") for agent in episode.task.agents),
                "seed": episode.seed,
                "created": created,
                "owner": owner,
                **task_columns(episode.task),
                **record_columns(episode),
            }
        )
        documents.append({"episode": identity, "record": text})
        seats += seat_rows(identity, episode.task, policies, {})
    for table, values in ((row, rows), (tables.document, documents), (tables.seat, seats)):
        if values:
            await connection.execute(insert(table), values)
    await _write_lines(connection, lines)
    await _write_scores(
        connection, [(identity, item.evaluations) for identity, (item, _) in zip(ids, entries, strict=True)]
    )
    return [(identity, episode.key not in present) for identity, (episode, _) in zip(ids, entries, strict=True)]


async def _with_own(
    connection: AsyncConnection, present: Mapping[str, str], entries: Sequence[tuple[Episode, str]]
) -> list[tuple[Episode, str]]:
    """Adds the evaluations that exist only in the database to the records of a run directory."""
    column = tables.document.c
    query = select(column.episode, column.record).where(column.episode.in_(present.values()))
    stored = {row.episode: row.record for row in await connection.execute(query)}
    merged = []
    for episode, line in entries:
        text = (line or to_line(episode)).rstrip("\n")
        before = stored.get(present.get(episode.key, ""), text)
        names = {evaluation.evaluator for evaluation in episode.evaluations}
        # Most lines have not changed, and are not parsed.
        earlier = () if before == text else read_episode(before, f"episode {episode.key}").evaluations
        own = [evaluation for evaluation in earlier if evaluation.evaluator not in names]
        for evaluation in own:
            episode = episode.with_evaluation(evaluation)
        merged.append((episode, "" if own else line))
    return merged


async def line_of(connection: AsyncConnection, episode: str) -> str:
    """Returns the exact line of an ended episode's record.

    Raises:
        MissingError: the episode does not exist or has not ended.
    """
    column = tables.document.c
    line = (await connection.execute(select(column.record).where(column.episode == episode))).scalar_one_or_none()
    if line is None:
        raise MissingError(f"episode {episode}: no record found; it may still be in progress")
    return str(line)


async def lines_of(connection: AsyncConnection, identities: Sequence[str]) -> list[str]:
    """Returns the exact lines of those of these episodes that have ended, in the order of the ids."""
    column = tables.document.c
    query = select(column.episode, column.record).where(column.episode.in_(identities), column.record.is_not(None))
    lines = {row.episode: row.record for row in await connection.execute(query)}
    return [lines[identity] for identity in identities if identity in lines]


async def record_of(connection: AsyncConnection, episode: str) -> Episode:
    """Returns the record of an ended episode; raises as :func:`line_of` does."""
    return read_episode(await line_of(connection, episode), f"episode {episode}")


async def spec_of(connection: AsyncConnection, episode: str) -> str:
    """Returns the :class:`~sotopia_studio.store.event_records.LiveSpec` of a live episode, as JSON text.

    Raises:
        MissingError: the episode does not exist or is not a live one.
    """
    column = tables.document.c
    spec = (await connection.execute(select(column.spec).where(column.episode == episode))).scalar_one_or_none()
    if not spec:
        raise MissingError(f"episode {episode}: it is not a live one")
    return str(spec)


async def replace_record(connection: AsyncConnection, identity: str, episode: Episode) -> None:
    """Writes the record and the scores of an episode, replacing the previous ones."""
    await _write_lines(connection, [(identity, to_line(episode).rstrip("\n"))])
    await _write_scores(connection, [(identity, episode.evaluations)])


async def _write_lines(connection: AsyncConnection, lines: Sequence[tuple[str, str]]) -> None:
    if lines:
        change = update(tables.document).where(tables.document.c.episode == bindparam("identity"))
        values = [{"identity": identity, "line": line} for identity, line in lines]
        await connection.execute(change.values(record=bindparam("line")), values)


async def _write_scores(connection: AsyncConnection, entries: Sequence[tuple[str, Iterable[Evaluation]]]) -> None:
    """Replaces the scores of episodes."""
    ids = [identity for identity, _ in entries]
    await connection.execute(delete(tables.score).where(tables.score.c.episode.in_(ids)))
    rows = [row for identity, evaluations in entries for row in score_rows(identity, evaluations)]
    if rows:
        await connection.execute(insert(tables.score), rows)
