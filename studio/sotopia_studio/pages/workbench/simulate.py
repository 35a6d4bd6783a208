"""The page that sets up a simulation, and shows it beside the form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env import naming
from sotopia_env.foundation.errors import InvalidValueError, SotopiaError
from sotopia_env.foundation.json_text import parse_json
from sotopia_env.people.seat.conversation import COLOURS
from sotopia_env.world import Scenario, Task, TurnOrder
from sotopia_studio.api import simulate as api
from sotopia_studio.api.simulate import Forecast, Simulation
from sotopia_studio.auth import Reader, Runner
from sotopia_studio.context import Services, ServicesDep
from sotopia_studio.pages.editing import Fields, policy_lines
from sotopia_studio.pages.episodes import view_of
from sotopia_studio.pages.rendering import render
from sotopia_studio.pages.workbench import casting
from sotopia_studio.store import episode_lists, library, tables
from sotopia_studio.store import tags as tag_store
from sotopia_studio.store.episodes import PERSON
from sotopia_studio.store.kinds import CHARACTERS, DIMENSION_LISTS, SCENARIOS, TASKS, Kind

router = APIRouter()
_MENU = 500
"""The maximum number of items of the library in a menu."""
_CARDS = 24
"""The number of scenarios or tasks on a page of cards."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a simulation plays: a task, a scenario without characters, or an episode again.

    Attributes:
        name: its name.
        scenario: its scenario.
        seats: the seats with their goals, and with a name where characters are in them.
    """

    name: str
    scenario: Scenario
    seats: tuple[dict[str, Any], ...]


@router.get("/simulate")
async def form(
    request: Request,
    parts: ServicesDep,
    principal: Reader,
    episode: Annotated[str, Query(max_length=80)] = "",
    empty: bool = False,
) -> HTMLResponse:
    """The form of a simulation; with ``episode``, that episode is shown beside it.

    Fields that the address does not contain are those of the last simulation, unless ``empty``; with ``again``, those
    of that episode.
    """
    fields, defaults = dict(request.query_params), dict[str, str]()
    async with parts.database.read() as connection:
        if fields.get("again"):
            defaults, _ = await casting.again_fields(connection, fields["again"])
        elif (fields.get("task") or fields.get("scenario")) and not empty:
            defaults = await casting.last_cast(connection, principal.id)
        if fields.get("task"):
            defaults |= await casting.task_fields(connection, parts.settings, fields["task"])
    return await _page(request, parts, {**defaults, **fields}, episode=episode)


async def _page(
    request: Request,
    parts: Services,
    fields: Mapping[str, str],
    *,
    episode: str = "",
    forecast: Forecast | None = None,
    error: SotopiaError | None = None,
) -> HTMLResponse:
    view, changes = None, None
    async with parts.database.read() as connection:
        subject = await _subject(connection, fields)
        choices = await _choices(connection, fields) if subject is None else {}
        characters = await library.items(connection, CHARACTERS, limit=_MENU)
        lists = await library.items(connection, DIMENSION_LISTS, limit=_MENU)
        if episode:
            view = (await view_of(connection, episode))[1]
            if fields.get("again") not in (None, "", episode):
                pair = [await casting.spec_of(connection, key) for key in (fields["again"], episode)]
                changes = list(casting.changes(*pair))
    field = error.field if isinstance(error, InvalidValueError) else ""
    return render(
        request,
        "simulate.html",
        422 if error else 200,
        fields=fields,
        subject=subject,
        **{"cards": (), "more": "", "totals": {}, **choices},
        rules=parse_json(fields.get("rules") or "{}", "rules", InvalidValueError),
        characters=characters,
        lists=lists,
        c=view,
        changes=changes,
        forecast=forecast,
        problem="" if error is None else str(error),
        wrong=field or "",
        policies=[line for line in policy_lines() if line.name != PERSON],
        models=parts.settings.model_names,
        evaluators=naming.EVALUATOR_NAMES,
        evaluator=parts.settings.evaluator,
        orders=[order.value for order in TurnOrder],
    )


async def _subject(connection: AsyncConnection, fields: Mapping[str, str]) -> Subject | None:
    """What the form has chosen; ``None`` while nothing is."""
    if fields.get("again"):
        _, task = await casting.again_fields(connection, fields["again"])
        return _of_task(task)
    if fields.get("task"):
        return _of_task((await library.get(connection, TASKS, fields["task"])).read())
    if fields.get("scenario"):
        scenario = (await library.get(connection, SCENARIOS, fields["scenario"])).read()
        return Subject(scenario.id, scenario, _seats(scenario, [""] * len(scenario.seats)))
    return None


def _of_task(task: Task) -> Subject:
    names = [character.name for character in task.characters]
    return Subject(task.id, task.scenario, _seats(task.scenario, names))


def _seats(scenario: Scenario, names: list[str]) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"name": name, "goals": seat.goals, "colour": number % COLOURS}
        for number, (name, seat) in enumerate(zip(names, scenario.seats, strict=True))
    )


async def _choices(connection: AsyncConnection, fields: Mapping[str, str]) -> dict[str, Any]:
    """The cards of a page: scenarios, or tasks, that contain the words of the search."""
    kinds: dict[str, Kind[Any]] = {"scenarios": SCENARIOS, "tasks": TASKS}
    text = fields.get("q", "").strip()
    totals = {name: await library.count(connection, kind, text=text) for name, kind in kinds.items()}
    kind = kinds.get(fields.get("list", ""), SCENARIOS)
    items = await library.items(connection, kind, text=text, after=fields.get("after", ""), limit=_CARDS + 1)
    return {"cards": items[:_CARDS], "more": items[_CARDS - 1].id if len(items) > _CARDS else "", "totals": totals}


@router.post("/simulate")
async def begin(request: Request, parts: ServicesDep, principal: Runner, fields: Fields) -> Response:
    """Starts a simulation, or shows a forecast of its cost."""
    again, task = fields.get("again", ""), None
    try:
        if again:
            async with parts.database.read() as connection:
                _, task = await casting.again_fields(connection, again)
        simulation = casting.simulation_of(fields, task)
        if "forecast" in fields:
            forecast = await api.simulate(parts, principal, request, Response(), simulation, dry_run=True)
            assert isinstance(forecast, Forecast)
            return await _page(request, parts, fields, forecast=forecast)
        if simulation.repeats > 1 and not simulation.tag:
            # Repeats are looked at together, so they need a list of their own.
            simulation = simulation.model_copy(update={"tag": f"repeats-{tables.new_id()[-6:]}"})
        begun = await api.begin_all(parts, principal, simulation)
        async with parts.database.write() as connection:
            await casting.save_cast(connection, principal.id, fields)
            if again:
                await tag_store.add(connection, "episode", again, [simulation.tag] if simulation.tag else [])
    except SotopiaError as error:
        return await _page(request, parts, fields, error=error)
    return _begun(simulation, fields, begun)


def _begun(simulation: Simulation, fields: Mapping[str, str], begun: list[str]) -> Response:
    """The way to the episodes that have begun."""
    if api.LINK in simulation.policies:
        # 307 repeats the POST there: that page shows the links, and its reload begins no other episode.
        several = f"/simulate/links?{urlencode([('episode', episode) for episode in begun])}"
        return RedirectResponse(several if len(begun) > 1 else f"/episodes/{begun[0]}/links", 307)
    if len(begun) > 1:
        return RedirectResponse(f"/episodes?{urlencode({'tag': simulation.tag})}", 303)
    if PERSON in simulation.policies:
        return RedirectResponse(f"/seat/{begun[0]}/agent_{simulation.policies.index(PERSON)}", 303)
    subject = next((name, fields[name]) for name in ("again", "task", "scenario") if fields.get(name))
    return RedirectResponse(f"/simulate?{urlencode([subject, ('episode', begun[0])])}#conversation", 303)


@router.post("/simulate/links")
async def links(
    request: Request, parts: ServicesDep, _: Runner, episode: Annotated[list[str], Query(max_length=100)]
) -> HTMLResponse:
    """Shows new links to the seats of several episodes; a reload makes new ones again, and nothing else."""
    async with parts.database.write() as connection:
        rows = {identity: await episode_lists.one(connection, identity) for identity in episode}
        seats = [link for identity in rows for link in await api.links_of(request, connection, identity)]
    return render(request, "links.html", rows=rows, links=seats)
