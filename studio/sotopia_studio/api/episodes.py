"""Episodes: lists, records, upload, events, and the seats that people take."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import ConfigDict, Field
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError, Where
from sotopia_env.foundation.files import csv_text
from sotopia_env.world import Action
from sotopia_env.world.episode import Episode, read_episode
from sotopia_studio import live
from sotopia_studio.api.bodies import (
    Body,
    Created,
    Page,
    StrictRoute,
    json_answer,
    page_text,
)
from sotopia_studio.auth import Reader, Runner
from sotopia_studio.context import Services, ServicesDep
from sotopia_studio.problems import ForbiddenError, MissingError
from sotopia_studio.store import episode_lists, episodes, events
from sotopia_studio.store import tags as tag_store
from sotopia_studio.store.episode_lists import EpisodeFilter, EpisodeRow

router = APIRouter(tags=["episodes"], route_class=StrictRoute)
_UPLOADS = 10_000
"""The maximum number of episodes in one upload."""
_EXPORT_PAGE = 200
_MOST_WHOLE = 500
_ROW_COLUMNS = tuple(name for name in EpisodeRow.model_fields if name not in ("trial", "tags", "scores"))


class Filters(EpisodeFilter):
    """A filter of a list of episodes, and a page of it."""

    model_config = ConfigDict(defer_build=False)  # FastAPI reads its fields when routes are made

    after: str = Field(default="", max_length=80)
    limit: int = Field(default=50, ge=1, le=500)


FiltersDep = Annotated[Filters, Query()]


@router.get("/episodes", response_model=Page[EpisodeRow])
async def list_episodes(parts: ServicesDep, _: Reader, filters: FiltersDep) -> Response:
    """Lists episodes, filtered by any column; no record is read for it."""
    async with parts.database.read() as connection:
        rows = await episode_lists.page(connection, filters, after=filters.after, limit=filters.limit + 1)
        total = await episode_lists.count(connection, filters)
    return json_answer(page_text([(row.id, row.model_dump_json()) for row in rows], total, filters.limit))


@router.get(
    "/episodes/export.jsonl",
    response_class=Response,
    responses={200: {"content": {"application/jsonl": {"schema": {"type": "string"}}}}},
)
async def export_episodes(parts: ServicesDep, _: Reader, filters: FiltersDep) -> StreamingResponse:
    """Returns the records of all ended episodes of a list, one line each, as they are on disk."""

    async def lines() -> AsyncIterator[str]:
        async for connection, rows in _pages(parts, filters):
            for record in await episodes.lines_of(connection, [row.id for row in rows]):
                yield record + "\n"

    return StreamingResponse(lines(), media_type="application/jsonl")


@router.get(
    "/episodes/export.csv",
    response_class=Response,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
)
async def export_rows(parts: ServicesDep, _: Reader, filters: FiltersDep) -> StreamingResponse:
    """Returns a list of episodes as CSV, a line each: its columns, and a column for each seat and dimension."""
    async with parts.database.read() as connection:
        dimensions = await episode_lists.distinct(connection, "dimension")
        seats = await episode_lists.most_seats(connection, filters)
    scores = [(f"agent_{seat}", dimension) for seat in range(seats) for dimension in dimensions]
    columns = (*_ROW_COLUMNS, "tags", *(f"{agent}.{dimension}" for agent, dimension in scores))

    async def text() -> AsyncIterator[str]:
        yield csv_text(columns, [])
        async for _connection, rows in _pages(parts, filters):
            cells = [
                [
                    *(getattr(row, name) for name in _ROW_COLUMNS),
                    " ".join(row.tags),
                    *(row.scores.get(agent, {}).get(dimension) for agent, dimension in scores),
                ]
                for row in rows
            ]
            yield csv_text(columns, cells).partition("\n")[2]  # without its heading

    return StreamingResponse(text(), media_type="text/csv; charset=utf-8")


async def _pages(parts: Services, filters: Filters) -> AsyncIterator[tuple[AsyncConnection, list[EpisodeRow]]]:
    """Yields the pages of a list, each in a short transaction: a long download must not hold a connection.

    A list may show trials of studies, which are nobody's results; no export holds them.
    """
    filters, after, is_last = filters.model_copy(update={"trials": False}), filters.after, False
    while not is_last:
        async with parts.database.read() as connection:
            rows = await episode_lists.page(connection, filters, after=after, limit=_EXPORT_PAGE)
            yield connection, rows
        after, is_last = rows[-1].id if rows else "", len(rows) < _EXPORT_PAGE


async def _by(parts: Services, get_by: str, value: str) -> Response:
    if get_by not in ("id", "tag"):
        raise UnknownNameError(field="get_by", got=get_by, valid=["id", "tag"])
    async with parts.database.read() as connection:
        if get_by == "id":
            rows = [await episode_lists.one(connection, value)]
        else:
            rows = await episode_lists.page(connection, EpisodeFilter(tag=value, status="done"), limit=_MOST_WHOLE)
        ended = [row.id for row in rows if row.status == "done"]
        lines = await episodes.lines_of(connection, ended)
    if not lines:
        raise MissingError(f"no ended episode has the {get_by} {value!r}")
    return json_answer(page_text(list(zip(ended, lines, strict=True)), len(lines), len(lines)))


# These two are before the routes of one episode, so that a tag may be called `record`; that of S4 is at the end.
@router.get("/episodes/id/{value}", include_in_schema=False)
async def episodes_by_id(parts: ServicesDep, _: Reader, value: str) -> Response:
    """Returns the record of an ended episode, as a list of one."""
    return await _by(parts, "id", value)


@router.get("/episodes/tag/{value}", include_in_schema=False)
async def episodes_by_tag(parts: ServicesDep, _: Reader, value: str) -> Response:
    """Lists the records of the ended episodes with a tag."""
    return await _by(parts, "tag", value)


class Uploaded(Body):
    """The ids of the episodes, in the order of the lines."""

    ids: list[str]


@router.post(
    "/episodes",
    status_code=201,
    openapi_extra={"requestBody": {"required": True, "content": {"application/jsonl": {"schema": {"type": "string"}}}}},
)
async def upload(parts: ServicesDep, principal: Runner, request: Request) -> Uploaded:
    """Adds recorded episodes: JSON Lines with one record per line, as in `episodes.jsonl`. Adds all of them or none."""
    try:
        text = (await request.body()).decode()
    except UnicodeDecodeError:
        raise InvalidValueError(field="body", expected="UTF-8 text") from None
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not 1 <= len(lines) <= _UPLOADS:
        raise InvalidValueError(field="body", expected=f"1 to {_UPLOADS} lines, each an episode", got=len(lines))
    # All lines are read before the first one is written: a bad line in the middle adds nothing.
    records = [read_episode(line, Where("the body of the request", number)) for number, line in lines]
    if any(record.stop is None for record in records):
        raise InvalidValueError(field="stop", expected="episodes that have ended")
    entries = [(record, line) for (_, line), record in zip(lines, records, strict=True)]
    async with parts.database.write() as connection:
        added = await episodes.add_recorded(connection, None, entries, time.time(), owner=principal.id)
    return Uploaded(ids=[identity for identity, _ in added])


@router.get("/episodes/{episode}", response_model=EpisodeRow)
async def episode_row(parts: ServicesDep, _: Reader, episode: str) -> EpisodeRow:
    """Returns an episode as lists show it."""
    async with parts.database.read() as connection:
        return await episode_lists.one(connection, episode)


@router.get("/episodes/{episode}/record", response_model=Episode)
async def record(parts: ServicesDep, _: Reader, episode: str) -> Response:
    """Returns the record of an ended episode, byte for byte: task, rules, turns and evaluations."""
    async with parts.database.read() as connection:
        return json_answer(await episodes.line_of(connection, episode))


@router.delete("/episodes/{episode}")
async def delete_episode(parts: ServicesDep, _: Runner, episode: str) -> Created:
    """Deletes an episode, unless it is being played or is a part of a run or a study (409)."""
    async with parts.database.write() as connection:
        await episode_lists.remove(connection, episode)
    return Created(id=episode)


class Labels(Body):
    """Changes of the star and the tags of an episode; `null` leaves the star unchanged."""

    starred: bool | None = None
    add_tags: list[str] = Field(default=[], max_length=50)
    remove_tags: list[str] = Field(default=[], max_length=50)


@router.patch("/episodes/{episode}")
async def label(parts: ServicesDep, _: Runner, episode: str, labels: Labels) -> EpisodeRow:
    """Stars an episode, adds and removes tags."""
    async with parts.database.write() as connection:
        await events.row_of(connection, episode)
        if labels.starred is not None:
            await episode_lists.star(connection, episode, labels.starred)
        await tag_store.add(connection, "episode", episode, labels.add_tags)
        await tag_store.remove(connection, "episode", episode, labels.remove_tags)
        return await episode_lists.one(connection, episode)


class Status(Body):
    """The progress of an episode."""

    status: str = Field(description="queued, running, waiting (for a person), done, failed or stopped")
    turns: int
    reason: str = Field(description="Why it ended or failed; empty while it is in progress.")


@router.get("/simulation_status/{episode}")
@router.get("/simulate/status/{episode}", name="status_by_its_other_name")
async def status(parts: ServicesDep, _: Reader, episode: str) -> Status:
    """Returns the progress of an episode."""
    async with parts.database.read() as connection:
        row = await events.row_of(connection, episode)
    return Status(status=row.status, turns=row.turns, reason=row.error or row.stop)


@router.post("/episodes/{episode}/stop", status_code=202)
async def stop_episode(parts: ServicesDep, _: Runner, episode: str) -> Status:
    """Stops a live episode at once; its turns are kept."""
    await live.end(parts.database, episode, "stopped", "a stop was requested")
    await parts.hub.notify(episode)
    return await status(parts, _, episode)


@router.post("/episodes/{episode}/resume", status_code=202)
async def resume_episode(parts: ServicesDep, _: Runner, episode: str) -> Status:
    """Resumes an episode that failed or was stopped, from its last turn; 409 in any other state."""
    async with parts.database.write() as connection:
        await live.resume(connection, episode)
    await parts.hub.notify(episode)
    return await status(parts, _, episode)


# --- events -------------------------------------------------------------------------------------------------------
async def existing_episode(parts: ServicesDep, episode: str) -> str:
    """Returns the id of an existing episode; checked before the stream begins, so that a missing one is 404."""
    async with parts.database.read() as connection:
        await events.row_of(connection, episode)
    return episode


@router.get("/episodes/{episode}/events", response_class=EventSourceResponse)
async def follow(
    parts: ServicesDep,
    _: Reader,
    episode: Annotated[str, Depends(existing_episode)],
    last_event_id: Annotated[int, Header(ge=0, le=2**31 - 1)] = 0,
) -> AsyncIterator[ServerSentEvent]:
    """Streams the events of an episode from the first, or from the one after `Last-Event-ID`; ends with `closed`.

    The kinds are `began`, `waiting`, `answer`, `turn`, `ended`, `evaluated`, `failed` and `stopped`.
    """
    async for event in parts.hub.follow(episode, last_event_id):
        yield ServerSentEvent(raw_data=event.payload, event=event.kind, id=str(event.number))
    if not parts.hub.closing:  # a server that shuts down ends streams, too; the episode goes on
        yield ServerSentEvent(raw_data="{}", event="closed")


# --- seats --------------------------------------------------------------------------------------------------------
class SeatState(Body):
    """The information that a seat has now."""

    agent: str
    name: str
    turn: int = Field(description="Number of the coming turn; an action names it.")
    acting: bool = Field(description="Whether it is the turn of the person in the seat.")
    available: list[str] = Field(description="The types of action that are possible.")
    briefing: str
    history: str
    table: str
    moves: str
    refusal: str
    recipients: dict[str, str] = Field(description="Names that a private action may be addressed to, with agent ids.")
    ended: bool


def _seat(state: live.LiveEpisode, agent: str) -> SeatState:
    if agent not in state.table.task.agents:
        raise MissingError(f"episode {state.id}: it has no seat {agent}")
    observation = state.table.observe(agent)
    return SeatState(
        agent=agent,
        name=observation.briefing.name,
        turn=len(state.table.turns),
        acting=agent in state.awaited,
        available=[kind.value for kind in observation.available],
        briefing=observation.briefing.head,
        history=observation.history,
        table=observation.table_text,
        moves=observation.moves_text,
        refusal=observation.refusal,
        recipients=dict(observation.briefing.recipients),
        ended=state.ended,
    )


@router.get("/episodes/{episode}/seats/{agent}")
async def seat(parts: ServicesDep, _: Reader, episode: str, agent: str) -> SeatState:
    """Returns the observation of a seat in a live episode, for a program or page that plays it."""
    async with parts.database.read() as connection:
        return _seat(await live.LiveEpisode.load(connection, episode), agent)


class SeatAction(Body):
    """The action of a seat."""

    turn: int = Field(ge=0, le=2**31 - 1, description="The `turn` of the view that the action answers.")
    key: str = Field(
        min_length=1, max_length=80, description="Any random text; a second action with the same key has no effect."
    )
    action: Action


@router.post("/episodes/{episode}/seats/{agent}/actions", status_code=202)
async def act(parts: ServicesDep, principal: Runner, episode: str, agent: str, body: SeatAction) -> SeatState:
    """Carries out the action of a person's seat; 409 if the turn is over; a repeated key has no second effect."""
    async with parts.database.write() as connection:
        state = await live.LiveEpisode.load(connection, episode, lock=True)
        if (await episodes.participants(connection, episode)).get(agent, principal.id) != principal.id:
            raise ForbiddenError(f"{agent}: this seat belongs to a participant; other callers cannot act in it")
        await live.act(connection, state, agent, lambda _: body.action, turn=body.turn, key=body.key)
    await parts.hub.notify(episode)
    return _seat(state, agent)


class Values(Body):
    """The values of a column, each with its number of episodes."""

    values: dict[str, int]


@router.get("/episode_values/{column}")
async def column_values(parts: ServicesDep, _: Reader, column: str) -> Values:
    """Lists the values that episodes can be filtered by, for menus: `tag`, `policy`, `status` and so on."""
    async with parts.database.read() as connection:
        return Values(values=await episode_lists.values(connection, column))


@router.get("/episodes/{get_by}/{value}", response_model=Page[Episode])
async def episodes_by(parts: ServicesDep, _: Reader, get_by: str, value: str) -> Response:
    """Lists the whole records of ended episodes by `id` or `tag`, the newest first, at most 500 (S4, figure D.1)."""
    return await _by(parts, get_by, value)
