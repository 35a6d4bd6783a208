"""Episodes in the database: the row of each, with the columns that lists filter by, and its exact line."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.service.problems import MissingError
from sotopia_env.service.store import tables
from sotopia_env.world import Episode, Task
from sotopia_env.world.episode import Evaluation, read_episode, to_line

PERSON = "human"
"""The policy name of a seat that a person takes."""


def task_columns(task: Task) -> dict[str, Any]:
    """Returns the columns of an episode's row that its task decides."""
    return {
        "task": task.id,
        "task_hash": task.content_hash,
        "scenario": task.scenario.id,
        "seats": len(task.agents),
        "characters": ", ".join(task.names[agent] for agent in task.agents),
    }


async def add_seats(
    connection: AsyncConnection, episode: str, task: Task, policies: Mapping[str, str], participants: Mapping[str, str]
) -> None:
    """Adds a row for each seat of an episode."""
    rows = [
        {
            "episode": episode,
            "agent": agent,
            "character": task.names[agent],
            "policy": policies.get(agent, ""),
            "participant": participants.get(agent, ""),
        }
        for agent in task.agents
    ]
    await connection.execute(insert(tables.seat), rows)


async def participants(connection: AsyncConnection, episode: str) -> dict[str, str]:
    """Returns who takes which seat: agent id to the person's id, of the seats that people take."""
    columns = tables.seat.c
    query = select(columns.agent, columns.participant)
    query = query.where(columns.episode == episode, columns.participant != "")
    return {row.agent: row.participant for row in await connection.execute(query)}


def record_columns(episode: Episode) -> dict[str, Any]:
    """Returns the columns that an ended episode decides, its line among them."""
    return {
        "status": "done",
        "stop": episode.stop.value if episode.stop else "",
        "turns": len(episode.turns),
        "record": to_line(episode),
        "ended": time.time(),
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
        for score in evaluation.scores
    ]


async def write_scores(connection: AsyncConnection, episode: str, evaluations: Iterable[Evaluation]) -> None:
    """Writes the scores of an episode in place of those that are there."""
    await connection.execute(delete(tables.score).where(tables.score.c.episode == episode))
    rows = score_rows(episode, evaluations)
    if rows:
        await connection.execute(insert(tables.score), rows)


async def add_recorded(connection: AsyncConnection, run: str, episode: Episode, created: float) -> str:
    """Adds an episode that was played elsewhere, such as one of a run directory; returns its id."""
    identity = tables.new_id()
    policies = {policy.agent: policy.name for policy in episode.policies}
    values = {
        "id": identity,
        "run": run,
        "key": episode.key,
        "policies": ", ".join(policies.get(agent, "") for agent in episode.task.agents),
        "seed": episode.seed,
        "created": created,
        "events": 0,
        "starred": False,
        **task_columns(episode.task),
        **record_columns(episode),
    }
    await connection.execute(insert(tables.episode).values(**values))
    await add_seats(connection, identity, episode.task, policies, {})
    await write_scores(connection, identity, episode.evaluations)
    return identity


async def record_of(connection: AsyncConnection, episode: str) -> Episode:
    """Returns the record of an ended episode.

    Raises:
        MissingError: there is none, or it has not ended.
    """
    row = tables.episode
    line = (await connection.execute(select(row.c.record).where(row.c.id == episode))).scalar_one_or_none()
    if line is None:
        raise MissingError(f"episode {episode}: there is no record of it; it may still be in progress")
    return read_episode(line, f"episode {episode}")


async def replace_record(connection: AsyncConnection, identity: str, episode: Episode) -> None:
    """Writes a record with other evaluations over the one that is there."""
    await connection.execute(
        update(tables.episode).where(tables.episode.c.id == identity).values(record=to_line(episode))
    )
    await write_scores(connection, identity, episode.evaluations)
