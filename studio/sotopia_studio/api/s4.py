"""SOTOPIA-S4's own interface below ``/api/s4``: its paths, flat bodies and bare lists (figure D.1).

A client that was written for S4 needs this address and a token. Its bodies are converted to the records of this package
and back by the importers of SOTOPIA's files; everything else is that of ``/api/v1``. The differences, which are
intended, are in ``docs/studio-api.md``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import ConfigDict, Field
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env import naming
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.importers.foreign import converted
from sotopia_env.importers.formats import profiles
from sotopia_env.importers.formats.episodes import LOGS
from sotopia_env.importers.formats.profiles import AGENTS, ENVIRONMENTS, AgentProfile, EnvironmentProfile
from sotopia_env.importers.library import Library
from sotopia_env.importers.source import RawRecord
from sotopia_env.naming.grammar import split_options
from sotopia_env.world import Rules
from sotopia_env.world.episode import read_episode
from sotopia_env.world.reward import CustomDimension
from sotopia_studio.api import episodes as episode_routes
from sotopia_studio.api import service, simulate
from sotopia_studio.api.bodies import After, Body, StrictRoute
from sotopia_studio.api.library import matching
from sotopia_studio.auth import Reader, Runner
from sotopia_studio.context import Services, ServicesDep
from sotopia_studio.problems import MissingError
from sotopia_studio.store import episode_lists, episodes, events, library
from sotopia_studio.store.episode_lists import EpisodeFilter
from sotopia_studio.store.kinds import (
    CHARACTERS,
    DIMENSION_LISTS,
    RELATIONSHIPS,
    SCENARIOS,
    DimensionList,
    Kind,
    KnownPair,
)
from sotopia_studio.store.library import LibraryItem

ROOT = "/api/s4"
router = APIRouter(tags=["SOTOPIA-S4"], route_class=StrictRoute)
_MOST = 500
_HandlerT = TypeVar("_HandlerT", bound=Callable[..., Any])
_Limit = Annotated[int, Query(description="Maximum number of items to return.", ge=1, le=_MOST)]
_RELATIONSHIP_NAMES = ("stranger", "know_by_name", "acquaintance", "friend", "romantic_relationship", "family_member")
_LABELS = ("mbti", "model_id")
"""Fields of a character that our records lack; they are kept as tags ``NAME=VALUE``."""
_NOT_JUDGES = (naming.NO_EVALUATOR, *naming.EVALUATOR_NAMES, "facts", "judge", "interview", "spoken-outcome")


def _both(method: str, path: str, **options: Any) -> Callable[[_HandlerT], _HandlerT]:
    """Registers a route with and without a slash at its end: clients use either, and do not all follow redirects."""

    def register(handler: _HandlerT) -> _HandlerT:
        router.add_api_route(path, handler, methods=[method], **options)
        router.add_api_route(f"{path}/", handler, methods=[method], include_in_schema=False, **options)
        return handler

    return register


# --- bodies -------------------------------------------------------------------------------------------------------
class Agent(AgentProfile):
    """A character. `pk` is in answers only: the studio chooses ids."""

    model_config = ConfigDict(extra="forbid", defer_build=False)


class Environment(EnvironmentProfile):
    """A scenario. Without `relationship`, characters of any relationship may play it."""

    model_config = ConfigDict(extra="forbid", defer_build=False)


class Pair(Body):
    """The relationship of two characters: 0 strangers, 1 by name, 2 acquaintances, 3 friends, 4 a couple, 5 family."""

    agent_1_id: str
    agent_2_id: str
    relationship: profiles.RelationshipNumber
    background_story: str | None = None
    tag: str = Field(default="", max_length=80)


class EvaluationDimension(Body):
    """An evaluation dimension."""

    name: str
    description: str
    range_low: int
    range_high: int


class EvaluationDimensions(Body):
    """A list of evaluation dimensions."""

    name: str
    dimensions: list[EvaluationDimension] = Field(min_length=1)


class SimulationRequest(Body):
    """A simulation: `models` has the judge, then one model or policy for each character."""

    env_id: str
    agent_ids: list[str] = Field(min_length=2, max_length=64)
    models: list[str] = Field(min_length=3, max_length=65)
    max_turns: int = Field(default=20, ge=1)
    tag: str = Field(default="", max_length=80)


def _raw(body: Agent | Environment, key: str) -> RawRecord:
    if body.pk:
        raise InvalidValueError(field="pk", expected="nothing: the studio chooses ids", got=body.pk)
    return RawRecord(Path("body"), 1, 0, body.model_dump(exclude_unset=True), key)


def _character(body: Agent) -> tuple[Any, list[str]]:
    """The record of a character, and its tags.

    Raises:
        InvalidValueError: a trait, value or style has another form than SOTOPIA's, and would be lost.
    """
    record = AGENTS.products(_raw(body, ""), Library())[0].value
    forms = {
        "big_five": "all five, as in 'Openness to Experience - High; Conscientiousness - Low; …'",
        "moral_values": "of care, fairness, loyalty, authority, purity",
        "schwartz_personal_values": "of Schwartz's ten, such as 'Self-direction'",
        "decision_making_style": "Directive, Analytical, Conceptual or Behavioral",
    }
    written = _written(AGENTS.write, record)
    for field, expected in forms.items():
        # The importers of files leave out what has another form; a request must not lose it without a word.
        if not written[field] and getattr(body, field):
            raise InvalidValueError(field=field, expected=expected, got=getattr(body, field))
    return record, [*_tag(body.tag), *(f"{name}={value}" for name in _LABELS if (value := getattr(body, name)))]


def _scenario(body: Environment) -> tuple[Any, list[str]]:
    """The record of a scenario, whose name is the codename, and its tags."""
    for field in ("agent_constraint", "game_metadata"):
        if getattr(body, field):
            raise InvalidValueError("not supported", field=field, hint="constrain ages and occupations instead")
    record = ENVIRONMENTS.products(_raw(body, body.codename), Library())[0].value
    if "relationship" not in body.model_fields_set:
        free = record.constraints.model_copy(update={"relationships": ()})
        record = record.model_copy(update={"constraints": free})
    return record, [*_tag(body.tag), *record.tags]


def _tag(text: str) -> list[str]:
    return [text] if text else []


def _written(write: Callable[[Any], Any] | None, record: Any) -> dict[str, Any]:
    assert write is not None
    fields: dict[str, Any] = write(record)
    return fields


def _as_agent(item: LibraryItem[Any]) -> dict[str, Any]:
    labels = dict(tag.split("=", 1) for tag in item.tags if tag.startswith(tuple(f"{name}=" for name in _LABELS)))
    tags = [tag for tag in item.tags if tag.partition("=")[0] not in labels]
    return _written(AGENTS.write, item.read()) | {"pk": item.id, "tag": next(iter(tags), "")} | labels


def _as_environment(item: LibraryItem[Any]) -> dict[str, Any]:
    record = item.read()
    own = [tag for tag in item.tags if tag not in record.tags]
    changes = {"pk": item.id, "codename": record.id, "tag": next(iter(own), "")}
    return _written(ENVIRONMENTS.write, record) | changes


def _as_dimensions(item: LibraryItem[DimensionList]) -> list[dict[str, Any]]:
    return [
        {"name": axis.name, "description": axis.instruction, "range_low": axis.low, "range_high": axis.high}
        for axis in item.read().dimensions
    ]


# --- lists --------------------------------------------------------------------------------------------------------
def _listed(request: Request, ids: Sequence[str], rows: Iterable[Any], limit: int) -> JSONResponse:
    """A bare list; the header ``Link`` leads to the rest of a longer one, of which one id more is in ``ids``."""
    more = f'<{request.url.include_query_params(after=ids[limit - 1])}>; rel="next"' if len(ids) > limit else ""
    return JSONResponse(
        [row for row, _ in zip(rows, ids[:limit], strict=False)], headers={"Link": more} if more else {}
    )


async def _items(
    request: Request, parts: Services, kind: Kind[Any], convert: Callable[[Any], Any], after: str, limit: int
) -> JSONResponse:
    async with parts.database.read() as connection:
        rows = await library.items(connection, kind, after=after, limit=limit + 1)
    return _listed(request, [item.id for item in rows], (convert(item) for item in rows), limit)


async def _chosen(parts: Services, kind: Kind[Any], convert: Callable[[Any], Any], by: str, value: str) -> JSONResponse:
    async with parts.database.read() as connection:
        return JSONResponse([convert(item) for item in await matching(connection, kind, by, value)])


@_both("GET", "/agents", response_model=list[Agent])
async def list_agents(
    request: Request, parts: ServicesDep, _: Reader, after: After = "", limit: _Limit = _MOST
) -> Response:
    """Lists the characters, the newest first."""
    return await _items(request, parts, CHARACTERS, _as_agent, after, limit)


@_both("GET", "/agents/{get_by}/{value}", response_model=list[Agent])
async def agents_by(
    parts: ServicesDep, _: Reader, get_by: Literal["id", "gender", "occupation", "tag"], value: str
) -> Response:
    """Lists the characters with a value; 404 if there are none."""
    return await _chosen(parts, CHARACTERS, _as_agent, get_by, value)


@_both("POST", "/agents", response_model=str)
async def add_agent(parts: ServicesDep, _: Runner, body: Agent) -> str:
    """Adds a character and returns its id."""
    record, tags = _character(body)
    async with parts.database.write() as connection:
        return (await library.put(connection, CHARACTERS, record, tags=tags))[0]


@_both("GET", "/scenarios", response_model=list[Environment])
async def list_scenarios(
    request: Request, parts: ServicesDep, _: Reader, after: After = "", limit: _Limit = _MOST
) -> Response:
    """Lists the scenarios, the newest first."""
    return await _items(request, parts, SCENARIOS, _as_environment, after, limit)


@_both("GET", "/scenarios/{get_by}/{value}", response_model=list[Environment])
async def scenarios_by(parts: ServicesDep, _: Reader, get_by: Literal["id", "codename", "tag"], value: str) -> Response:
    """Lists the scenarios with a value; 404 if there are none."""
    return await _chosen(parts, SCENARIOS, _as_environment, "name" if get_by == "codename" else get_by, value)


@_both("POST", "/scenarios", response_model=str)
async def add_scenario(parts: ServicesDep, _: Runner, body: Environment) -> str:
    """Adds a scenario and returns its id."""
    record, tags = _scenario(body)
    async with parts.database.write() as connection:
        return (await library.put(connection, SCENARIOS, record, tags=tags))[0]


@_both("GET", "/relationship/{agent_1_id}/{agent_2_id}", response_model=str)
async def relationship(parts: ServicesDep, _: Reader, agent_1_id: str, agent_2_id: str) -> str:
    """Returns the relationship of two characters, in either order, such as "3: friend"; 404 if none was added."""
    async with parts.database.read() as connection:
        first, second = [await library.get(connection, CHARACTERS, key) for key in (agent_1_id, agent_2_id)]
        pair = await library.relationship_of(connection, first.id, second.id)
    if pair is None:
        raise MissingError(f"{first.name} and {second.name}: no relationship was added")
    number = profiles.RELATIONSHIPS.index(pair.read().kind)
    return f"{number}: {_RELATIONSHIP_NAMES[number]}"


@_both("POST", "/relationship", response_model=str)
async def add_relationship(parts: ServicesDep, _: Runner, body: Pair) -> str:
    """Adds the relationship of two characters and returns its id; a pair has one (409)."""
    kind, story = profiles.RELATIONSHIPS[body.relationship], body.background_story or ""
    pair = converted(lambda: KnownPair(first=body.agent_1_id, second=body.agent_2_id, kind=kind, backstory=story))
    async with parts.database.write() as connection:
        return (await library.put_relationship(connection, pair, tags=_tag(body.tag)))[0]


@_both("GET", "/evaluation_dimensions", response_model=dict[str, list[EvaluationDimension]])
async def list_dimensions(parts: ServicesDep, _: Reader) -> Response:
    """Returns the lists of evaluation dimensions by name."""
    async with parts.database.read() as connection:
        rows = await library.items(connection, DIMENSION_LISTS, limit=_MOST)
    return JSONResponse({item.name: _as_dimensions(item) for item in rows})


@_both("POST", "/evaluation_dimensions", response_model=str)
async def add_dimensions(parts: ServicesDep, _: Runner, body: EvaluationDimensions) -> str:
    """Adds a list of evaluation dimensions and returns its id; names are unique (409)."""
    own = converted(lambda: DimensionList(name=body.name, dimensions=tuple(map(_dimension, body.dimensions))))
    async with parts.database.write() as connection:
        return (await library.put_dimensions(connection, own))[0]


def _dimension(axis: EvaluationDimension) -> CustomDimension:
    return CustomDimension(name=axis.name, low=axis.range_low, high=axis.range_high, instruction=axis.description)


@_both("GET", "/models", response_model=list[str])
async def models(parts: ServicesDep, _: Reader) -> list[str]:
    """Lists the configured language models, which can play and judge."""
    return list(parts.settings.model_names)


_both("GET", "/health")(service.health)


# --- simulations and episodes -------------------------------------------------------------------------------------
@_both("POST", "/simulate", status_code=202, response_class=PlainTextResponse)
async def begin(parts: ServicesDep, principal: Runner, body: SimulationRequest) -> PlainTextResponse:
    """Starts a simulation and returns the id of its episode, as plain text."""
    judge, *policies = body.models
    if len(policies) != len(body.agent_ids):
        expected = f"{len(body.agent_ids) + 1}: the judge, then one for each character"
        raise InvalidValueError(field="models", expected=expected, got=len(body.models))
    is_evaluator = "(" in judge or split_options(judge)[0].partition(":")[0].partition("+")[0] in _NOT_JUDGES
    ours = simulate.Simulation(
        scenario=body.env_id,
        agents=body.agent_ids,
        policies=policies,
        rules=converted(lambda: Rules(max_turns=body.max_turns)),
        evaluator=judge if is_evaluator else f"judge:{judge}",
        tag=body.tag,
    )
    return PlainTextResponse((await simulate.begin_all(parts, principal, ours))[0], status_code=202)


@_both("GET", "/simulate/status/{episode_pk}", response_model=str)
@_both("GET", "/simulation_status/{episode_pk}", response_model=str)
async def status(parts: ServicesDep, _: Reader, episode_pk: str) -> Literal["Started", "Error", "Completed"]:
    """Returns the status of a simulation; 404 for an unknown id."""
    async with parts.database.read() as connection:
        state = (await events.row_of(connection, episode_pk)).status
    return "Completed" if state == "done" else "Error" if state in ("failed", "stopped") else "Started"


async def _logs(parts: Services, connection: AsyncConnection, rows: Sequence[episode_lists.EpisodeRow]) -> list[Any]:
    """The records of ended episodes in SOTOPIA's format, with the library's ids of scenario and characters."""
    lines = await episodes.lines_of(connection, [row.id for row in rows])
    records = await asyncio.to_thread(lambda: [read_episode(line, "episode") for line in lines])
    scenes = await library.ids_of(connection, SCENARIOS, [record.task.scenario for record in records])
    people = await library.ids_of(connection, CHARACTERS, [one for record in records for one in record.task.characters])
    cast = iter(people)
    logs = []
    for row, record, scene in zip(rows, records, scenes, strict=True):
        log = await asyncio.to_thread(_written, LOGS.write, record)
        ids = [next(cast) or own for own in log["agents"]]
        tag = next(iter(row.tags), "")
        logs.append(log | {"pk": row.id, "environment": scene or log["environment"], "agents": ids, "tag": tag})
    return logs


@_both("GET", "/episodes", response_model=list[dict[str, Any]])
async def list_episodes(
    request: Request, parts: ServicesDep, _: Reader, after: After = "", limit: _Limit = 50
) -> Response:
    """Lists the ended episodes as SOTOPIA's `EpisodeLog`, the newest first."""
    async with parts.database.read() as connection:
        rows = await episode_lists.page(connection, EpisodeFilter(status="done"), after=after, limit=limit + 1)
        logs = await _logs(parts, connection, rows[:limit])
    return _listed(request, [row.id for row in rows], logs, limit)


@_both("GET", "/episodes/{get_by}/{value}", response_model=list[dict[str, Any]])
async def episodes_by(
    request: Request,
    parts: ServicesDep,
    _: Reader,
    get_by: Literal["id", "tag"],
    value: str,
    after: After = "",
    limit: _Limit = _MOST,
) -> Response:
    """Lists the ended episodes with an id or a tag as SOTOPIA's `EpisodeLog`; 404 if there are none."""
    async with parts.database.read() as connection:
        if get_by == "id":
            rows = [await episode_lists.one(connection, value)]
        else:
            own = EpisodeFilter(tag=value, status="done")
            rows = await episode_lists.page(connection, own, after=after, limit=limit + 1)
        rows = [row for row in rows if row.status == "done"]
        logs = await _logs(parts, connection, rows[:limit])
    if not logs and not after:
        raise MissingError(f"no ended episode has the {get_by} {value!r}")
    return _listed(request, [row.id for row in rows], logs, limit)


# --- deletion -----------------------------------------------------------------------------------------------------
def _deletes(path: str, kind: Kind[Any]) -> None:
    @_both("DELETE", f"/{path}/{{key}}", name=f"s4_delete_{kind.name}", response_model=str)
    async def delete(parts: ServicesDep, _: Runner, key: str) -> str:
        """Deletes an item, unless another one refers to it (409), and returns its id."""
        async with parts.database.write() as connection:
            return await library.archive(connection, kind, key)


for _path, _kind in (
    ("agents", CHARACTERS),
    ("scenarios", SCENARIOS),
    ("relationship", RELATIONSHIPS),
    ("evaluation_dimensions", DIMENSION_LISTS),
):
    _deletes(_path, _kind)


@_both("DELETE", "/episodes/{episode}", response_model=str)
async def delete_episode(parts: ServicesDep, runner: Runner, episode: str) -> str:
    """Deletes an episode, unless it is being played or is a part of a run or a study (409), and returns its id."""
    return (await episode_routes.delete_episode(parts, runner, episode)).id
