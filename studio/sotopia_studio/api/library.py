"""The library: characters (agents), scenarios, relationships, tasks and lists of evaluation dimensions.

Items are immutable and have no PUT: delete an item and add another one. Other items may refer to it by its id.
"""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Query, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.foundation.errors import UnknownNameError
from sotopia_env.foundation.json_text import canonical_json
from sotopia_env.world import Character, Scenario, Task
from sotopia_env.world.scenario import RelationshipKind
from sotopia_env.world.taskset import admissible_seatings
from sotopia_studio.api.bodies import (
    After,
    Body,
    Created,
    Limit,
    Page,
    Stored,
    StrictRoute,
    Tags,
    json_answer,
    page_text,
)
from sotopia_studio.auth import Reader, Runner
from sotopia_studio.context import ServicesDep
from sotopia_studio.problems import MissingError
from sotopia_studio.store import library
from sotopia_studio.store.kinds import (
    CHARACTERS,
    DIMENSION_LISTS,
    RELATIONSHIPS,
    SCENARIOS,
    TASKS,
    DimensionList,
    Kind,
    KnownPair,
    RecordT,
)
from sotopia_studio.store.library import LibraryItem

router = APIRouter(tags=["library"], route_class=StrictRoute)
_MOST_CASTINGS = 1_000


def item_text(item: LibraryItem[Any]) -> str:
    """Returns an item as JSON, its record byte for byte."""
    head = {"id": item.id, "hash": item.hash, "name": item.name, "tags": list(item.tags), "created": item.created}
    # Text and not an object, so that the record is sent exactly as it was stored.
    return f'{canonical_json(head)[:-1]},"record":{item.record}}}'


async def _page(
    connection: AsyncConnection,
    kind: Kind[Any],
    filters: dict[str, Any],
    tags: list[str],
    text: str,
    after: str,
    limit: int,
) -> Response:
    filters = {name: value for name, value in filters.items() if value is not None}
    rows = await library.items(connection, kind, filters, tags=tags, text=text, after=after, limit=limit + 1)
    total = await library.count(connection, kind, filters, tags=tags, text=text)
    return json_answer(page_text([(item.id, item_text(item)) for item in rows], total, limit))


async def matching(connection: AsyncConnection, kind: Kind[RecordT], by: str, value: str) -> list[LibraryItem[RecordT]]:
    """Returns the items with a value of ``id``, ``tag`` or an indexed column, at most 500, the newest first.

    Raises:
        MissingError: no item has the value.
        UnknownNameError: lists of this kind cannot be filtered by ``by``.
    """
    if by == "id":
        return [await library.get(connection, kind, value)]
    if by == "tag":
        matches = await library.items(connection, kind, tags=[value], limit=500)
    elif by not in kind.filters:
        raise UnknownNameError(field="get_by", got=by, valid=["id", "tag", *kind.filters])
    else:
        matches = await library.items(connection, kind, {by: kind.value(by, value)}, limit=500)
    if not matches:
        raise MissingError(f"{kind.name}: no item has the {by} {value!r}")
    return matches


async def _by(connection: AsyncConnection, kind: Kind[Any], get_by: str, value: str) -> Response:
    matches = await matching(connection, kind, get_by, value)
    return json_answer(page_text([(item.id, item_text(item)) for item in matches], len(matches), len(matches)))


def _created(response: Response, path: str, added: tuple[str, bool]) -> Created:
    identity, is_new = added
    response.status_code = 201 if is_new else 200
    response.headers["Location"] = f"/api/v1/{path}/{identity}"
    return Created(id=identity)


# --- characters ---------------------------------------------------------------------------------------------------
@router.get("/agents", response_model=Page[Stored[Character]])
async def list_agents(
    parts: ServicesDep,
    _: Reader,
    gender: str | None = None,
    occupation: str | None = None,
    age: int | None = Query(default=None, ge=0, le=1000),
    name: str | None = None,
    tag: Tags = [],  # noqa: B006
    q: str = "",
    after: After = "",
    limit: Limit = 50,
) -> Response:
    """Lists characters; an empty library gives an empty list."""
    filters = {"gender": gender, "occupation": occupation, "age": age, "name": name}
    async with parts.database.read() as connection:
        return await _page(connection, CHARACTERS, filters, tag, q, after, limit)


@router.get("/agents/{get_by}/{value}", response_model=Page[Stored[Character]])
async def agents_by(parts: ServicesDep, _: Reader, get_by: str, value: str) -> Response:
    """Lists the characters that match a value of: id, tag, name, gender, occupation or age."""
    async with parts.database.read() as connection:
        return await _by(connection, CHARACTERS, get_by, value)


@router.post("/agents", status_code=201, response_model=Created)
async def add_agent(
    parts: ServicesDep,
    _: Runner,
    response: Response,
    character: Character,
    tag: Tags = [],  # noqa: B006
) -> Created:
    """Adds a character; one with equal content is not added again (200)."""
    async with parts.database.write() as connection:
        return _created(response, "agents", await library.put(connection, CHARACTERS, character, tags=tag))


# --- scenarios ----------------------------------------------------------------------------------------------------
@router.get("/scenarios", response_model=Page[Stored[Scenario]])
async def list_scenarios(
    parts: ServicesDep,
    _: Reader,
    name: str | None = None,
    seats: int | None = Query(default=None, ge=0, le=1000),
    protocol: str | None = None,
    source: str | None = None,
    tag: Tags = [],  # noqa: B006
    q: str = "",
    after: After = "",
    limit: Limit = 50,
) -> Response:
    """Lists scenarios; an empty library gives an empty list."""
    filters = {"name": name, "seats": seats, "protocol": protocol, "source": source}
    async with parts.database.read() as connection:
        return await _page(connection, SCENARIOS, filters, tag, q, after, limit)


class Castings(Body):
    """A possible casting of a scenario: ids of characters in seat order."""

    castings: list[list[str]]
    total: int


@router.get("/scenarios/{scenario}/castings")
async def castings(parts: ServicesDep, _: Reader, scenario: str) -> Castings:
    """Lists the castings of a scenario that its constraints admit, of the newest characters in the library."""
    async with parts.database.read() as connection:
        record = (await library.get(connection, SCENARIOS, scenario)).read()
        most = {2: 200, 3: 40}.get(len(record.seats), 12)  # the number of castings grows with its power
        people = await library.items(connection, CHARACTERS, limit=most)
        cast = await library.cast_of(connection, [item.id for item in people])
    seatings = admissible_seatings(record, cast) if len(record.seats) <= 4 else []
    chosen = [[people[seat].id for seat in seating] for seating in seatings[:_MOST_CASTINGS]]
    return Castings(castings=chosen, total=len(seatings))


@router.get("/scenarios/{get_by}/{value}", response_model=Page[Stored[Scenario]])
async def scenarios_by(parts: ServicesDep, _: Reader, get_by: str, value: str) -> Response:
    """Lists the scenarios that match a value of: id, tag, name, seats, protocol or source."""
    async with parts.database.read() as connection:
        return await _by(connection, SCENARIOS, get_by, value)


@router.post("/scenarios", status_code=201, response_model=Created)
async def add_scenario(
    parts: ServicesDep,
    _: Runner,
    response: Response,
    scenario: Scenario,
    tag: Tags = [],  # noqa: B006
) -> Created:
    """Adds a scenario; one with equal content is not added again (200)."""
    tags = [*tag, *scenario.tags]
    async with parts.database.write() as connection:
        return _created(response, "scenarios", await library.put(connection, SCENARIOS, scenario, tags=tags))


# --- relationships ------------------------------------------------------------------------------------------------
@router.get("/relationship", response_model=Page[Stored[KnownPair]])
async def list_relationships(
    parts: ServicesDep,
    _: Reader,
    first: str | None = None,
    second: str | None = None,
    kind: RelationshipKind | None = None,
    after: After = "",
    limit: Limit = 50,
) -> Response:
    """Lists relationships."""
    filters = {"first": first, "second": second, "kind": kind and kind.value}
    async with parts.database.read() as connection:
        return await _page(connection, RELATIONSHIPS, filters, [], "", after, limit)


@router.get("/relationship/{agent_1_id}/{agent_2_id}", response_model=Stored[KnownPair])
async def relationship(parts: ServicesDep, _: Reader, agent_1_id: str, agent_2_id: str) -> Response:
    """Returns the relationship of two characters, in either order; 404 for strangers."""
    async with parts.database.read() as connection:
        people = [await library.get(connection, CHARACTERS, key) for key in (agent_1_id, agent_2_id)]
        match = await library.relationship_of(connection, people[0].id, people[1].id)
        if match is None:
            raise MissingError(f"{people[0].name} and {people[1].name}: no relationship is known; they are strangers")
        return json_answer(item_text(match))


@router.post("/relationship", status_code=201, response_model=Created)
async def add_relationship(parts: ServicesDep, _: Runner, response: Response, pair: KnownPair) -> Created:
    """Adds the relationship of two characters, in either order; a second one of the same pair is refused (409)."""
    async with parts.database.write() as connection:
        return _created(response, "relationship", await library.put_relationship(connection, pair))


# --- tasks --------------------------------------------------------------------------------------------------------
@router.get("/tasks", response_model=Page[Stored[Task]])
async def list_tasks(
    parts: ServicesDep,
    _: Reader,
    name: str | None = None,
    scenario: str | None = None,
    seats: int | None = Query(default=None, ge=0, le=1000),
    tag: Tags = [],  # noqa: B006
    q: str = "",
    after: After = "",
    limit: Limit = 50,
) -> Response:
    """Lists tasks: scenarios with characters in their seats."""
    async with parts.database.read() as connection:
        filters = {"name": name, "scenario": scenario, "seats": seats}
        return await _page(connection, TASKS, filters, tag, q, after, limit)


@router.post("/tasks", status_code=201, response_model=Created)
async def add_task(
    parts: ServicesDep,
    _: Runner,
    response: Response,
    task: Task,
    tag: Tags = [],  # noqa: B006
) -> Created:
    """Adds a task with its scenario and characters."""
    async with parts.database.write() as connection:
        return _created(response, "tasks", await library.put_task(connection, task, tags=tag))


# --- dimensions ---------------------------------------------------------------------------------------------------
@router.get("/evaluation_dimensions", response_model=Page[Stored[DimensionList]])
async def list_dimensions(parts: ServicesDep, _: Reader, after: After = "", limit: Limit = 50) -> Response:
    """Lists researchers' own dimensions, which a judge scores beside the seven."""
    async with parts.database.read() as connection:
        return await _page(connection, DIMENSION_LISTS, {}, [], "", after, limit)


@router.post("/evaluation_dimensions", status_code=201, response_model=Created)
async def add_dimensions(parts: ServicesDep, _: Runner, response: Response, dimensions: DimensionList) -> Created:
    """Adds a list of dimensions under a new name."""
    async with parts.database.write() as connection:
        return _created(response, "evaluation_dimensions", await library.put_dimensions(connection, dimensions))


# --- one item of any kind -----------------------------------------------------------------------------------------
_ITEMS: tuple[tuple[str, Kind[Any], Any, str], ...] = (
    ("agents", CHARACTERS, Stored[Character], "unless a relationship or a task refers to it (409)"),
    ("scenarios", SCENARIOS, Stored[Scenario], "unless a task refers to it (409)"),
    ("relationship", RELATIONSHIPS, Stored[KnownPair], "so that its characters are strangers"),
    ("tasks", TASKS, Stored[Task], "but not its scenario and characters"),
    ("evaluation_dimensions", DIMENSION_LISTS, Stored[DimensionList], "but no evaluation that was made with it"),
)
"""Path, kind, response, and the consequences or conditions of deleting an item."""


def _register(path: str, kind: Kind[Any], model: Any, rest: str) -> None:
    """Registers the routes that return and delete one item of a kind."""
    noun = kind.name.replace("_", " ")

    @router.get(
        f"/{path}/{{key}}",
        name=f"get_{kind.name}",
        response_model=model,
        description=f"Returns a {noun}, by its id or the beginning of its hash.",
    )
    async def one(parts: ServicesDep, _: Reader, key: str) -> Response:
        async with parts.database.read() as connection:
            return json_answer(item_text(await library.get(connection, kind, key)))

    @router.delete(f"/{path}/{{key}}", name=f"delete_{kind.name}", description=f"Deletes a {noun}, {rest}.")
    async def delete(parts: ServicesDep, _: Runner, key: str) -> Created:
        async with parts.database.write() as connection:
            return Created(id=await library.archive(connection, kind, key))


for _item in _ITEMS:
    _register(*_item)


# --- built-in sets ------------------------------------------------------------------------------------------------
class Imported(Body):
    """The number of items that are new in the library."""

    added: int


@router.post("/library/import/{name}")
async def import_shipped(parts: ServicesDep, _: Runner, name: Literal["starter", "everyday"]) -> Imported:
    """Adds the characters, relationships and scenarios of a built-in set; existing items are not added again."""
    async with parts.database.write() as connection:
        return Imported(added=await library.put_shipped(connection, name))
