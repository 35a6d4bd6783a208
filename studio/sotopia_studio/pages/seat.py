"""The page of a seat that a person takes, a researcher's own or a participant's."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Form, Header, Request
from fastapi.responses import RedirectResponse, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.requests import HTTPConnection

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.people.seat.form import Proposal, read_action
from sotopia_env.people.seat.page import SeatPage, seat_page
from sotopia_env.people.seat.worth import form_worth, offer_worths, worth_scale
from sotopia_studio import assistance, auth, live
from sotopia_studio.auth import Principal
from sotopia_studio.context import Services, ServicesDep, services
from sotopia_studio.live import LiveEpisode
from sotopia_studio.pages.editing import Fields, seconds_since
from sotopia_studio.pages.rendering import render
from sotopia_studio.pages.seats.beliefs import belief_questions, record_beliefs
from sotopia_studio.pages.seats.ending import ending_of
from sotopia_studio.pages.seats.waiting import absences, wait_of
from sotopia_studio.problems import ConflictError, MissingError, UnauthorizedError
from sotopia_studio.store import drafts, episodes, events, jobs
from sotopia_studio.store.event_records import Departure, concerns
from sotopia_studio.studies import trials
from sotopia_studio.work.standing import Standing, beat, is_shared, standing_of

router = APIRouter()
_PROBE = ":beliefs"
"""What the name of a draft of beliefs has besides that of a turn's draft."""
_PAUSE = 2.0
"""Seconds without an event after which a stream looks whether anybody works on the episode."""


def page_of(live: LiveEpisode, agent: str) -> SeatPage:
    """Returns the current content of a seat's page."""
    return seat_page(
        live.table,
        agent,
        acting=agent in live.awaited,
        ended=live.ended,
        deadline=live.deadline,
        leaving=agent in live.leaving,
        in_study=bool(live.spec.study),
    )


async def sitter(connection: HTTPConnection, episode: str, agent: str) -> Principal:
    """A dependency that admits only the person of the seat: its participant, or a researcher in a free seat."""
    principal = await auth.principal_of(connection)
    if principal is None:
        raise UnauthorizedError("your link opens this page; open it again, or ask for a new one")
    async with services(connection).database.read() as database:
        await events.row_of(database, episode)
        seats = await episodes.participants(database, episode)
        owner = seats.get(agent, "")
        person, trial = await trials.participation(database, principal)
    if person.id == owner:
        principal, connection.state.trial = person, trial
    if owner != principal.id and not (owner == "" and "run" in principal.scopes):
        # The same response for another person's seat and for one that does not exist, so ids cannot be probed.
        raise MissingError("you have no such seat")
    connection.state.principal = principal
    return principal


Sitter = Annotated[Principal, Depends(sitter)]


async def _load(connection: AsyncConnection, episode: str, agent: str, *, lock: bool = False) -> LiveEpisode:
    state = await LiveEpisode.load(connection, episode, lock=lock)
    if agent not in state.spec.people:
        raise MissingError("you have no such seat")
    return state


async def present(parts: ServicesDep, _: Sitter, episode: str, agent: str) -> LiveEpisode:
    """A dependency: the episode as it is now."""
    async with parts.database.read() as connection:
        return await _load(connection, episode, agent)


Present = Annotated[LiveEpisode, Depends(present)]


async def _show(
    request: Request,
    parts: Services,
    person: Principal,
    state: LiveEpisode,
    agent: str,
    *,
    template: str = "seat.html",
    fields: dict[str, str] | None = None,
    problem: str = "",
    status: int = 200,
) -> Response:
    advice = state.help.advice.get(agent)
    proposal = None
    if advice is not None and agent in state.awaited and not advice.advice.problem:
        proposal = Proposal.of(state.table.observe(agent), advice.advice.action)
    async with parts.database.read() as connection:
        standing = await standing_of(connection, state.id, live.ADVANCE)
        if fields is None:
            form = _form(state.id, agent, len(state.table.turns))
            fields = await drafts.load(connection, person.id, form)
            fields |= await drafts.load(connection, person.id, form + _PROBE)
        ending = await ending_of(connection, state, agent, person)
    seat = page_of(state, agent)
    return render(
        request,
        template,
        status,
        seat=seat,
        choice=form_worth(seat.observation, fields),
        address=f"/seat/{state.id}/{agent}",
        number=state.number,
        fields=fields,
        problem=problem,
        # A new idempotency key for each form: a double click sends it twice and has one effect.
        key=secrets.token_urlsafe(12),
        beliefs=belief_questions(state, agent),
        ending=ending,
        wait=wait_of(state, agent, standing),
        absences=absences(state, agent, standing),
        now=time.time(),
        person=person,
        on_timeout=state.spec.on_timeout,
        limit=state.table.observe(agent).turn_limit,
        assistance=None if state.ended else state.spec.assistants.get(agent),
        proposal=proposal,
        proposed_worth=None if proposal is None else form_worth(seat.observation, proposal.texts),
        problem_of_advice="" if advice is None else advice.advice.problem,
        taken_over=agent in state.help.taken_over,
    )


def _form(episode: str, agent: str, turn: int) -> str:
    """The name of a turn's draft: one for every turn, so that no draft appears in the next turn."""
    return f"seat:{episode}:{agent}:{turn}"


@router.get("/seat/{episode}/{agent}")
async def page(request: Request, parts: ServicesDep, person: Sitter, state: Present, agent: str) -> Response:
    """The seat as it is now."""
    return await _show(request, parts, person, state, agent)


@router.get("/seat/{episode}/{agent}/view")
async def view(request: Request, parts: ServicesDep, person: Sitter, state: Present, agent: str) -> Response:
    """The part of the page that changes."""
    return await _show(request, parts, person, state, agent, template="_seat.html")


@router.get("/seat/{episode}/{agent}/changes", response_class=EventSourceResponse)
async def changes(
    parts: ServicesDep, person: Sitter, episode: str, agent: str, last_event_id: Annotated[int, Header()] = 0
) -> AsyncIterator[ServerSentEvent]:
    """Streams a signal for each change, without content: the page then requests the view of its seat."""
    async with parts.database.read() as connection:
        shared = await is_shared(connection, episode)
    # Not the present state: it may have changed since the page was rendered.
    before = Standing("", 0.0, False, frozenset())
    async with aclosing(parts.hub.batches(episode, last_event_id, _PAUSE)) as stream:
        async for batch in stream:
            if not batch:
                now = await _stand(parts, person, episode, shared)
                if (now.delay, now.slow, now.absent) != (before.delay, before.slow, before.absent):
                    yield ServerSentEvent(raw_data="delay")  # silence is no event of the episode
                before = now
            # Nobody may know who has answered in a round that is not complete, who wishes to leave, and who is advised.
            elif any(event.kind not in ("answer", live.LEAVING) and concerns(event, agent) for event in batch):
                yield ServerSentEvent(raw_data="changed", id=str(batch[-1].number))


async def _stand(parts: Services, person: Principal, episode: str, shared: bool) -> Standing:
    """How the others stand, after recording that this person's page is open, if there is anybody to whom it matters."""
    if shared and person.role == "participant":
        async with parts.database.write() as connection:
            await beat(connection, person.id)
    async with parts.database.read() as connection:
        return await standing_of(connection, episode, live.ADVANCE)


def _target(request: Request) -> tuple[str, str]:
    """The template, and the end of the address, of what is shown after a form was sent."""
    # A page with JavaScript swaps the part that changes; without it, the browser loads the page again.
    return ("_seat.html", "/view") if "hx-request" in request.headers else ("seat.html", "")


@router.post("/seat/{episode}/{agent}")
async def act(request: Request, parts: ServicesDep, person: Sitter, episode: str, agent: str) -> Response:
    """Carries out the person's action."""
    form = await request.form()
    template, part = _target(request)
    show = partial(_show, request, parts, person, template=template)
    fields = {name: str(value) for name, value in form.items()}
    read = partial(read_action, fields=fields, to=[str(name) for name in form.getlist("to")])
    sent, key = fields.get("turn", ""), fields.get("key", "") or secrets.token_urlsafe(12)
    turn = int(sent) if sent.isdecimal() and len(sent) < 10 else -1
    seconds = seconds_since(fields.get("opened", "")) or 0.0
    try:
        async with parts.database.write() as connection:
            state = await _load(connection, episode, agent, lock=True)
            await live.act(
                connection,
                state,
                agent,
                read,
                turn=turn,
                key=key[:100],
                seconds=seconds,
                is_copied=bool(fields.get("copied")),
            )
            await drafts.clear(connection, person.id, _form(episode, agent, turn))
    # The state that was loaded above is the present one, so the page is rendered from it.
    except InvalidValueError as error:
        return await show(state, agent, fields=fields, problem=str(error), status=422)
    except ConflictError as error:
        return await show(state, agent, problem=str(error), status=409)
    await parts.hub.notify(episode)
    return RedirectResponse(f"/seat/{episode}/{agent}{part}", 303)


@router.post("/seat/{episode}/{agent}/leave")
async def leave(parts: ServicesDep, person: Sitter, episode: str, agent: str) -> Response:
    """Lets the person's character leave: now if it is its turn, else as soon as it is."""
    async with parts.database.write() as connection:
        state = await _load(connection, episode, agent, lock=True)
        if not state.ended and agent not in state.leaving:
            wish = [(live.LEAVING, Departure(agent=agent).model_dump_json())]
            state.number = await events.append(connection, episode, state.number, wish)
            state.leaving |= {agent}
            if agent in state.awaited:  # otherwise nothing has changed for the others, whose time runs on
                await state.append(connection)
                await jobs.request(connection, live.ADVANCE, episode)
    await parts.hub.notify(episode)
    return RedirectResponse(f"/seat/{episode}/{agent}", 303)


@router.post("/seat/{episode}/{agent}/beliefs")
async def believe(
    request: Request, parts: ServicesDep, person: Sitter, fields: Fields, episode: str, agent: str
) -> Response:
    """Records what the person believes about the facts, beside the episode."""
    template, part = _target(request)
    try:
        async with parts.database.write() as connection:
            state = await _load(connection, episode, agent, lock=True)
            await record_beliefs(connection, state, agent, fields)
            await drafts.clear(connection, person.id, _form(episode, agent, len(state.table.turns)) + _PROBE)
    except (InvalidValueError, ConflictError) as error:
        status = 409 if isinstance(error, ConflictError) else 422
        return await _show(request, parts, person, state, agent, template=template, problem=str(error), status=status)
    await parts.hub.notify(episode)
    return RedirectResponse(f"/seat/{episode}/{agent}{part}", 303)


@router.post("/seat/{episode}/{agent}/steer")
async def steer(
    request: Request, parts: ServicesDep, _: Sitter, episode: str, agent: str, by_person: Annotated[bool, Form()]
) -> Response:
    """Takes over from an assistant that acts, or lets it act again."""
    async with parts.database.write() as connection:
        state = await _load(connection, episode, agent, lock=True)
        await assistance.steer(connection, state, agent, is_by_person=by_person)
    await parts.hub.notify(episode)
    return RedirectResponse(f"/seat/{episode}/{agent}{_target(request)[1]}", 303)


@router.post("/seat/{episode}/{agent}/worth")
async def worth(request: Request, fields: Fields, state: Present, agent: str) -> Response:
    """What the chosen move would be worth to the person, or what is missing to say so."""
    observation = state.table.observe(agent)
    choice, scale = form_worth(observation, fields), worth_scale(observation.briefing)
    return render(request, "_worth.html", choice=choice, scale=scale, worths=offer_worths(observation))


@router.post("/seat/{episode}/{agent}/draft")
async def keep_draft(parts: ServicesDep, person: Sitter, fields: Fields, episode: str, agent: str) -> Response:
    """Saves the draft of a turn."""
    sent = fields.pop("turn", "")
    typed = {name: value for name, value in fields.items() if name not in ("key", "opened", "form")}
    probe = _PROBE if fields.get("form") == "beliefs" else ""
    async with parts.database.write() as connection:
        turn = (await events.row_of(connection, episode)).turns
        # A draft of an earlier turn may arrive late and must not appear in the next one.
        if sent == str(turn):
            await drafts.save(connection, person.id, _form(episode, agent, turn) + probe, typed)
    return Response(status_code=204)
