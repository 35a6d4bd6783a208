"""The pages that set up and show a simulation, and that draft one from a sentence."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import TypeAdapter, ValidationError
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env import naming
from sotopia_env.foundation.errors import InvalidValueError, SotopiaError
from sotopia_env.foundation.json_text import decode_json, parse_json
from sotopia_env.foundation.records import Record
from sotopia_env.foundation.validation import invalid
from sotopia_env.foundation.yaml_text import parse_yaml, to_yaml
from sotopia_env.world import Rules, Task, TurnOrder
from sotopia_env.world.reward import CustomDimension
from sotopia_studio.api import simulate as api
from sotopia_studio.api.simulate import Forecast, Simulation
from sotopia_studio.auth import Reader, Runner
from sotopia_studio.context import Services, ServicesDep
from sotopia_studio.pages import conversation
from sotopia_studio.pages.conversation import COLOURS
from sotopia_studio.pages.editing import Fields
from sotopia_studio.pages.rendering import render
from sotopia_studio.store import episode_lists, jobs, library
from sotopia_studio.store.episodes import PERSON
from sotopia_studio.store.kinds import CHARACTERS, DIMENSION_LISTS, SCENARIOS, TASKS
from sotopia_studio.work.drafting import DraftSpec, ask_to_draft

router = APIRouter()
_RULES = TypeAdapter(Rules)
_WORDS = {"me": PERSON, api.LINK: api.LINK}
_MENU = 500
"""The maximum number of items of the library in a menu."""


@router.get("/simulate")
async def form(
    request: Request,
    parts: ServicesDep,
    _: Reader,
    episode: Annotated[str, Query(max_length=80)] = "",
) -> HTMLResponse:
    """The form of a simulation; with ``episode``, that episode is shown beside it."""
    fields = dict(request.query_params)
    defaults = await _task_defaults(parts, fields["task"]) if fields.get("task") else {}
    return await _page(request, parts, {**defaults, **fields}, episode=episode)


async def _task_defaults(parts: Services, task: str) -> dict[str, str]:
    """The fields of the form that a task of the library determines: its rules and its dimensions."""
    async with parts.database.read() as connection:
        columns = (await library.get(connection, TASKS, task)).columns
    rules = _rules(columns["rules"])
    fields = {"rules": columns["rules"], "turn_order": rules.turn_order.value, "max_turns": str(rules.max_turns or "")}
    # Own dimensions need a judge, so one is proposed.
    if columns["dimensions"] and parts.settings.model_names:
        fields["evaluator"] = f"judge:{parts.settings.model_names[0]}"
    return {**fields, "dimensions": columns["dimensions"]}


def _rules(text: str) -> Rules:
    """The rules of play in a JSON text; the default ones for an empty text."""
    try:
        return _RULES.validate_python(parse_json(text or "{}", "rules", InvalidValueError))
    except ValidationError as error:
        raise invalid(error) from None


async def _page(
    request: Request,
    parts: Services,
    fields: Mapping[str, str],
    *,
    episode: str = "",
    forecast: Forecast | None = None,
    error: SotopiaError | None = None,
) -> HTMLResponse:
    async with parts.database.read() as connection:
        menus = {
            "task": await library.items(connection, TASKS, limit=_MENU),
            "scenario": await library.items(connection, SCENARIOS, limit=_MENU),
            "characters": await library.items(connection, CHARACTERS, limit=_MENU),
            "dimensions": await library.items(connection, DIMENSION_LISTS, limit=_MENU),
        }
        seats = await _seats(connection, fields)
        view = None
        if episode:
            row = await episode_lists.one(connection, episode)
            table, policies, event = await conversation.load(connection, episode, row.status)
            view = conversation.show(episode, table, status=row.status, event=event, policies=policies)
    field = error.field if isinstance(error, InvalidValueError) else ""
    return render(
        request,
        "simulate.html",
        422 if error else 200,
        fields=fields,
        rules=parse_json(fields.get("rules") or "{}", "rules", InvalidValueError),
        menus=menus,
        seats=seats,
        c=view,
        forecast=forecast,
        problem="" if error is None else str(error),
        wrong=field or "",
        policies=[(name, about) for name, about, _ in naming.described_policies() if name != PERSON],
        models=parts.settings.model_names,
        evaluators=naming.EVALUATOR_NAMES,
        evaluator=parts.settings.evaluator,
        orders=[order.value for order in TurnOrder],
    )


async def _seats(connection: AsyncConnection, fields: Mapping[str, str]) -> list[dict[str, Any]]:
    """The seats of the selected task or scenario, with characters if it is a task."""
    if fields.get("task"):
        task = (await library.get(connection, TASKS, fields["task"])).read()
        pairs = zip(task.characters, task.scenario.seats, strict=True)
        return [
            {"name": character.name, "goals": seat.goals, "colour": number % COLOURS}
            for number, (character, seat) in enumerate(pairs)
        ]
    if fields.get("scenario"):
        scenario = (await library.get(connection, SCENARIOS, fields["scenario"])).read()
        return [
            {"name": "", "goals": seat.goals, "colour": number % COLOURS} for number, seat in enumerate(scenario.seats)
        ]
    return []


def _simulation(fields: Mapping[str, str]) -> Simulation:
    """Reads the form."""
    seats = int(fields.get("seats", "0")) if fields.get("seats", "0").isdecimal() else 0
    seat_fields = [(fields.get(f"agent_{seat}", ""), fields.get(f"policy_{seat}", "").strip()) for seat in range(seats)]
    values: dict[str, Any] = {
        "task": fields.get("task") or None,
        "scenario": None if fields.get("task") else fields.get("scenario") or None,
        "agents": [] if fields.get("task") else [agent for agent, _ in seat_fields if agent],
        # `me` in the form is the researcher who fills it in.
        "policies": [_WORDS.get(policy.casefold(), policy) for _, policy in seat_fields],
        "evaluator": fields.get("evaluator", "").strip() or None,
        "dimensions": fields.get("dimensions") or None,
        "tag": fields.get("tag", "").strip(),
        "on_timeout": fields.get("on_timeout") or "leave",
    }
    for name in ("repeats", "seed"):
        if fields.get(name, "").strip():
            values[name] = _whole(name, fields[name])
    if fields.get("minutes", "").strip():
        values["turn_seconds"] = 60.0 * _whole("minutes", fields["minutes"])
    limit = fields.get("max_turns", "").strip()
    order = fields.get("turn_order") or TurnOrder.ROUND_ROBIN.value
    values["rules"] = dataclasses.replace(
        _rules(fields.get("rules", "")),
        turn_order=TurnOrder(order),
        max_turns=_whole("max_turns", limit) if limit else None,
    )
    try:
        return Simulation(**values)
    except ValidationError as error:
        raise invalid(error) from None


def _whole(field: str, text: str) -> int:
    if not text.strip().isdecimal() or len(text) > 12:
        raise InvalidValueError(field=field, expected="a whole number", got=text[:40])
    return int(text)


@router.post("/simulate")
async def begin(request: Request, parts: ServicesDep, principal: Runner, fields: Fields) -> Response:
    """Starts a simulation, or shows a forecast of its cost."""
    try:
        simulation = _simulation(fields)
        if "forecast" in fields:
            forecast = await api.simulate(parts, principal, request, Response(), simulation, dry_run=True)
            assert isinstance(forecast, Forecast)
            return await _page(request, parts, fields, forecast=forecast)
        begun = await api.begin_all(parts, principal, simulation)
    except SotopiaError as error:
        return await _page(request, parts, fields, error=error)
    if api.LINK in simulation.policies:
        # 307 repeats the POST there: that page shows the links, and its reload begins no other episode.
        several = f"/simulate/links?{urlencode([('episode', episode) for episode in begun])}"
        return RedirectResponse(several if len(begun) > 1 else f"/episodes/{begun[0]}/links", 307)
    if len(begun) > 1:
        return RedirectResponse("/episodes?status=open", 303)
    if PERSON in simulation.policies:
        return RedirectResponse(f"/seat/{begun[0]}/agent_{simulation.policies.index(PERSON)}", 303)
    chosen = f"task={simulation.task}" if simulation.task else f"scenario={simulation.scenario}"
    return RedirectResponse(f"/simulate?{chosen}&episode={begun[0]}", 303)


@router.post("/simulate/links")
async def links(
    request: Request, parts: ServicesDep, _: Runner, episode: Annotated[list[str], Query(max_length=100)]
) -> HTMLResponse:
    """Shows new links to the seats of several episodes; a reload makes new ones again, and nothing else."""
    async with parts.database.write() as connection:
        rows = {identity: await episode_lists.one(connection, identity) for identity in episode}
        seats = [link for identity in rows for link in await api.links_of(request, connection, identity)]
    return render(request, "links.html", rows=rows, links=seats)


# --- from a sentence ---------------------------------------------------------------------------------------------
_LONGEST = 200_000


@router.get("/design")
async def design(
    request: Request, parts: ServicesDep, _: Reader, job: Annotated[str, Query(max_length=80)] = ""
) -> HTMLResponse:
    """The form with the sentence, and the drafts of a job as soon as they exist."""
    return render(request, "design.html", **await _draft_values(parts, job))


@router.get("/design/drafts")
async def drafts(request: Request, parts: ServicesDep, _: Reader, job: str) -> HTMLResponse:
    """The part of the page that waits for drafts."""
    return render(request, "_drafts.html", **await _draft_values(parts, job))


async def _draft_values(parts: Services, job: str, **changes: Any) -> dict[str, Any]:
    state, texts, refused = None, [], []
    if job:
        async with parts.database.read() as connection:
            state = await jobs.state_of(connection, job)
        if state.result:
            result = decode_json(state.result)
            texts, refused = [to_yaml(draft) for draft in result["drafts"]], result["refused"]
    values = {"job": job, "state": state, "drafts": texts, "refused": refused, "problem": "", "text": "", "draft": ""}
    return {**values, "models": parts.settings.model_names, **changes}


@router.post("/design")
async def ask_for_drafts(
    request: Request,
    parts: ServicesDep,
    _: Runner,
    text: Annotated[str, Form(max_length=10_000)] = "",
    model: Annotated[str, Form(max_length=500)] = "",
) -> Response:
    """Requests drafts."""
    try:
        job = await ask_to_draft(parts.database, parts.settings, DraftSpec(text=text, model=model.strip()))
    except SotopiaError as error:
        return render(request, "design.html", 422, **await _draft_values(parts, "", problem=str(error), text=text))
    return RedirectResponse(f"/design?job={job}", 303)


@router.post("/design/save")
async def save(
    request: Request,
    parts: ServicesDep,
    _: Runner,
    draft: Annotated[str, Form(max_length=_LONGEST)],
    then: Annotated[str, Form(max_length=20)] = "save",
) -> Response:
    """Adds an edited draft to the library, and opens the form that plays it on request."""
    try:
        content = _drafted(parse_yaml(draft, "draft"))
        rules = _RULES.dump_json(content.rules, exclude_defaults=True).decode()
        async with parts.database.write() as connection:
            identity, _is_new = await library.put_task(
                connection, content.tasks[0], tags=["drafted"], rules=rules, dimensions=content.dimensions
            )
    except SotopiaError as error:
        return render(request, "design.html", 422, **await _draft_values(parts, "", problem=str(error), draft=draft))
    return RedirectResponse(f"/simulate?task={identity}" if then == "run" else f"/tasks/{identity}", 303)


class _Draft(Record):
    """The content of a task file with one task."""

    tasks: tuple[Task]
    rules: Rules = Rules()
    dimensions: tuple[CustomDimension, ...] = ()


def _drafted(content: Any) -> _Draft:
    """The task of a task file, with its rules and dimensions."""
    try:
        return _Draft.model_validate(content)
    except ValidationError as error:
        raise invalid(error) from None
