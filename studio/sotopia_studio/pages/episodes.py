"""The pages of episodes: one with its transcript, live or recorded, and the list."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, Header, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.sse import format_sse_event
from pydantic import ValidationError
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.validation import invalid
from sotopia_env.foundation.versions import code_version
from sotopia_env.people.seat.conversation import EpisodePage, TurnCard, show
from sotopia_env.world.play.table import Table
from sotopia_studio import live
from sotopia_studio.api.bodies import attached
from sotopia_studio.api.episodes import existing_episode, resume_episode, stop_episode
from sotopia_studio.api.simulate import NewEvaluation, SeatLink, evaluate_episode, new_links
from sotopia_studio.auth import Principal, Reader, Runner
from sotopia_studio.context import Services, ServicesDep
from sotopia_studio.pages.editing import evaluation_menus
from sotopia_studio.pages.rendering import STATIC, EventStream, fragment, render
from sotopia_studio.store import comments, episode_lists, episodes, event_records, events, jobs
from sotopia_studio.store import tags as tag_store
from sotopia_studio.store.episode_lists import EpisodeFilter, EpisodeRow

router = APIRouter()
CLOSE = "close"
"""The event after which a page stops listening."""
PING = 15.0
"""Seconds of silence after which a stream sends something, before a proxy thinks that it is dead."""


def _filter(query: dict[str, str]) -> tuple[EpisodeFilter, dict[str, str]]:
    """Reads a filter from the fields of a form; empty fields admit all episodes."""
    fields = {name: value for name, value in query.items() if value and name in EpisodeFilter.model_fields}
    try:
        return EpisodeFilter.model_validate_strings(fields), fields
    except ValidationError as error:
        raise invalid(error, EpisodeFilter.model_fields, fields) from None


@router.get("/episodes")
async def listing(request: Request, parts: ServicesDep, _: Reader, after: str = "") -> HTMLResponse:
    """The list of episodes, filtered by a form."""
    conditions, fields = _filter(dict(request.query_params))

    async def listed() -> tuple[list[EpisodeRow], int]:
        async with parts.database.read() as connection:
            rows = await episode_lists.page(connection, conditions, after=after, limit=episode_lists.PAGE + 1)
            return rows, await episode_lists.count(connection, conditions)

    (rows, total), menus = await asyncio.gather(listed(), parts.menus.get())
    more = len(rows) > episode_lists.PAGE
    rows = rows[: episode_lists.PAGE]
    return render(request, "episodes.html", rows=rows, total=total, menus=menus, fields=fields, after=after, more=more)


async def view_of(
    connection: AsyncConnection, episode: str, seat: str | None = None
) -> tuple[Any, EpisodePage, Mapping[str, str]]:
    """Returns the row of an episode, live or recorded, its view, and the names of its policies by agent id.

    Args:
        connection: a transaction.
        episode: the episode's id.
        seat: the agent whose knowledge is shown; ``None`` for everything.

    Raises:
        MissingError: the episode does not exist.
        UnknownNameError: the task has no such seat.
    """
    row = await episode_lists.one(connection, episode)
    if row.status == "done":
        record = await episodes.record_of(connection, episode)
        table, number = Table.resume(record), 0
        policies: Mapping[str, str] = {policy.agent: policy.name for policy in record.policies}
    else:
        now = await live.LiveEpisode.load(connection, episode)
        table, number, policies = now.table, now.number, now.spec.policies
    return row, show(episode, table, seat=seat, status=row.status, event=number, policies=policies), policies


@router.get("/episodes/{episode}")
async def page(
    request: Request, parts: ServicesDep, principal: Reader, episode: str, seat: str = "", job: str = ""
) -> HTMLResponse:
    """One episode: its transcript, state of the protocol and evaluations, updated live."""
    return await _page(request, parts, principal, episode, seat, job=job)


async def _page(
    request: Request,
    parts: Services,
    principal: Principal,
    episode: str,
    seat: str = "",
    links: Sequence[SeatLink] = (),
    job: str = "",
    problem: str = "",
) -> HTMLResponse:
    conditions, fields = _filter({name: value for name, value in request.query_params.items() if name != "seat"})
    async with parts.database.read() as connection:
        row, view, policies = await view_of(connection, episode, seat or None)
        newer, older = await episode_lists.neighbours(connection, conditions, episode)
        remarks = await comments.of(connection, episode)
        people = await episodes.participants(connection, episode)
        guests = await episodes.guests(connection, episode)
        menus = await evaluation_menus(parts, connection)
        state = await jobs.state_of(connection, job) if job else None
    # A seat that was given to nobody is every researcher's.
    mine = [agent for agent, name in policies.items() if name == episodes.PERSON]
    mine = [agent for agent in mine if people.get(agent, principal.id) == principal.id]
    return render(
        request,
        "episode.html",
        422 if problem else 200,
        c=view,
        row=row,
        newer=newer,
        older=older,
        fields=fields,
        comments=remarks,
        mine=mine,
        guests=guests,
        links={link.agent: link.address for link in links},
        job=state,
        problem=problem,
        **menus,
    )


@router.get("/episodes/{episode}/evaluations")
async def evaluations(request: Request, parts: ServicesDep, _: Reader, episode: str, job: str) -> HTMLResponse:
    """The part of the page that waits for an evaluation."""
    async with parts.database.read() as connection:
        view = (await view_of(connection, episode))[1]
        state = await jobs.state_of(connection, job)
    return render(request, "_evaluations.html", c=view, job=state)


@router.post("/episodes/{episode}/evaluations")
async def evaluate(
    request: Request,
    parts: ServicesDep,
    runner: Runner,
    episode: str,
    evaluation: Annotated[NewEvaluation, Form()],
) -> Response:
    """Requests an evaluation or an interview of an ended episode."""
    try:
        begun = await evaluate_episode(parts, runner, Response(), episode, evaluation)
    except InvalidValueError as error:
        return await _page(request, parts, runner, episode, problem=str(error))
    return RedirectResponse(f"/episodes/{episode}?job={begun.job}#evaluations-heading", 303)


@router.get("/episodes/{episode}/stream", response_class=EventStream)
async def stream(
    parts: ServicesDep,
    _: Reader,
    episode: Annotated[str, Depends(existing_episode)],
    after: int = 0,
    seat: str = "",
    last_event_id: Annotated[int, Header()] = 0,
) -> EventStream:
    """The episode as fragments of its page: new turns, the state of the protocol and whose turn it is."""
    return EventStream(fragments(parts, episode, max(after, last_event_id), seat or None))


async def fragments(parts: Services, episode: str, after: int, seat: str | None) -> AsyncIterator[bytes]:
    """Yields an event for what has happened at once in an episode after ``after``, then :data:`CLOSE`.

    Args:
        parts: the parts of the server.
        episode: the episode's id.
        after: number of the last event that the page includes.
        seat: the agent whose knowledge is shown; ``None`` for everything.
    """
    async with aclosing(parts.hub.batches(episode, after, PING)) as stream:
        async for batch in stream:
            # A part of a round is shown to nobody before it is over, and a wish to leave before it is carried out.
            news = [event for event in batch if event.kind not in ("answer", live.LEAVING)]
            key = (episode, seat, *(event.number for event in news[:1] + news[-1:]))
            yield await parts.hub.once(key, partial(_news, parts, episode, news, seat)) if news else b""
    # A server that shuts down ends streams, too; those pages are to connect again.
    if not parts.hub.closing:
        yield format_sse_event(data_str="-", event=CLOSE)


async def _news(parts: Services, episode: str, news: Sequence[events.Event], seat: str | None) -> bytes:
    """Returns what new events add to the page, their turns and the current state, as one event of the stream."""
    async with parts.database.read() as connection:
        now = await live.LiveEpisode.load(connection, episode)
        # Evaluations are in the record and not in the table of the live episode.
        over = now.status == "done" and news[-1].kind in ("ended", "evaluated")
        table = Table.resume(await episodes.record_of(connection, episode)) if over else now.table
    last, policies = news[-1].number, now.spec.policies
    latest = show(episode, table, seat=seat, status=now.status, event=last, policies=policies)
    new = [event_records.turn_index(event) for event in news if event.kind == "turn"]
    turns = _new_turns(now.table, seat, new[0], new[-1] + 1, latest) if new else ()
    return format_sse_event(data_str=fragment("_news.html", c=latest, turns=turns), id=str(last))


def _new_turns(table: Table, seat: str | None, before: int, count: int, latest: EpisodePage) -> tuple[TurnCard, ...]:
    """The turns from ``before`` to ``count``; for a seat, the turns that it witnessed with them."""
    if seat is None:
        return latest.turns[before:count]
    # A seat may witness only some turns, and learn of others later; the difference of two observations is its news.
    then = [len(Table.resume(table.episode().before(n)).observe(seat).turns) for n in (before, count)]
    return latest.turns[then[0] : then[1]]


@router.post("/episodes/{episode}/star")
async def star(
    request: Request, parts: ServicesDep, _: Runner, episode: str, starred: Annotated[bool, Form()] = False
) -> Response:
    """Stars an episode, or takes its star away."""
    async with parts.database.write() as connection:
        await episode_lists.star(connection, episode, starred)
    return _back(request, episode)


@router.post("/episodes/{episode}/tags")
async def change_tags(
    request: Request,
    parts: ServicesDep,
    _: Runner,
    episode: str,
    add: Annotated[str, Form(max_length=200)] = "",
    remove: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Adds a tag to an episode, or removes one."""
    async with parts.database.write() as connection:
        await episode_lists.one(connection, episode)
        if add.strip():
            await tag_store.add(connection, "episode", episode, [add])
        if remove:
            await tag_store.remove(connection, "episode", episode, [remove])
    return _back(request, episode)


@router.post("/episodes/{episode}/comments")
async def comment(
    request: Request, parts: ServicesDep, principal: Runner, episode: str, text: Annotated[str, Form(max_length=20_000)]
) -> Response:
    """Adds a comment."""
    async with parts.database.write() as connection:
        await comments.add(connection, episode, principal.id, text)
    return _back(request, episode)


@router.post("/episodes/{episode}/stop")
async def stop(request: Request, parts: ServicesDep, runner: Runner, episode: str) -> Response:
    """Ends a live episode; its turns are kept."""
    await stop_episode(parts, runner, episode)
    return _back(request, episode)


@router.post("/episodes/{episode}/resume")
async def resume(request: Request, parts: ServicesDep, runner: Runner, episode: str) -> Response:
    """Continues an episode that failed or was stopped."""
    await resume_episode(parts, runner, episode)
    return _back(request, episode)


@router.post("/episodes/{episode}/links")
async def links(request: Request, parts: ServicesDep, runner: Runner, episode: str) -> HTMLResponse:
    """Shows new links to the seats of invited people; a reload makes new ones again, and nothing else."""
    return await _page(request, parts, runner, episode, links=await new_links(parts, runner, request, episode))


def _back(request: Request, episode: str) -> Response:
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"/episodes/{episode}{query}", 303)


@router.get("/episodes/{episode}/record.jsonl")
async def record(parts: ServicesDep, _: Reader, episode: str) -> Response:
    """The exact line of the record."""
    async with parts.database.read() as connection:
        line = await episodes.line_of(connection, episode)
    return attached(f"{line}\n", f"{episode}.jsonl", "application/jsonl")


@router.get("/episodes/{episode}/page.html")
async def export(parts: ServicesDep, _: Reader, episode: str) -> Response:
    """The episode as one file that needs no network."""
    async with parts.database.read() as connection:
        row, view, _policies = await view_of(connection, episode)
    return attached(one_file([view], row.task), f"{episode}.html", "text/html")


def one_file(views: list[EpisodePage], title: str) -> str:
    """Returns episodes as one HTML file that contains its style sheet and needs no network."""
    style = (STATIC / "studio.css").read_text(encoding="utf-8")
    return fragment("export.html", views=views, title=title, style=style, version=code_version())
