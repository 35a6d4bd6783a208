"""The pages of the library: characters with their relationships, scenarios, tasks, dimensions.

Items are never changed: *copy and change* opens the form of a new one with the fields of an old one.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response

from sotopia_env.foundation.errors import InvalidValueError, SotopiaError
from sotopia_env.foundation.json_text import parse_json
from sotopia_env.foundation.yaml_text import parse_yaml
from sotopia_env.people.settings_form import Edited, edited
from sotopia_env.reports.views.outcome_space import outcome_view
from sotopia_env.world import Character, Scenario, Task
from sotopia_env.world.scenario import RelationshipKind
from sotopia_studio.auth import Reader, Runner
from sotopia_studio.context import Services, ServicesDep
from sotopia_studio.pages.editing import Fields, lines, words
from sotopia_studio.pages.rendering import render
from sotopia_studio.problems import ConflictError
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
)

router = APIRouter()
PAGES: Mapping[str, Kind[Any]] = {
    "characters": CHARACTERS,
    "scenarios": SCENARIOS,
    "tasks": TASKS,
    "dimensions": DIMENSION_LISTS,
}
CHARACTER_FIELDS = (
    ("first_name", "First name", ""),
    ("last_name", "Last name", ""),
    ("age", "Age", "years"),
    ("gender", "Gender", ""),
    ("pronouns", "Pronouns", "such as she/her"),
    ("occupation", "Occupation", ""),
    ("public_info", "What everybody may know", ""),
    ("personality", "Personality and values", ""),
    ("secret", "Secret", "only this character knows it"),
)
"""Field, label and hint of a character's form."""
_LONG = ("public_info", "personality", "secret")


async def _items(request: Request, parts: Services, page: str, q: str, tag: str, after: str) -> Response:
    """The items of a kind as cards."""
    kind = PAGES[page]
    chosen = {name: value for name, value in request.query_params.items() if value and name in kind.filters}
    async with parts.database.read() as connection:
        filters = {name: kind.value(name, value) for name, value in chosen.items()}
        tags = [tag] if tag else []
        rows = await library.items(connection, kind, filters, tags=tags, text=q, after=after, limit=library.PAGE + 1)
        total = await library.count(connection, kind, filters, tags=tags, text=q)
        menus = {name: await library.values(connection, kind, name) for name in kind.filters if name != "name"}
    fields = {"q": q, "tag": tag, **chosen}
    return render(
        request,
        f"{page}.html",
        page=page,
        items=rows[: library.PAGE],
        more=len(rows) > library.PAGE,
        total=total,
        menus=menus,
        fields={name: value for name, value in fields.items() if value},
    )


def _register(page: str) -> None:
    """Registers the pages that list a kind of item and archive an item."""

    @router.get(f"/{page}")
    async def listed(
        request: Request, parts: ServicesDep, _: Reader, q: str = "", tag: str = "", after: str = ""
    ) -> Response:
        return await _items(request, parts, page, q, tag, after)

    @router.post(f"/{page}/{{key}}/delete")
    async def delete(parts: ServicesDep, _: Runner, key: str) -> Response:
        async with parts.database.write() as connection:
            await library.archive(connection, PAGES[page], key)
        return RedirectResponse(f"/{page}", 303)


for _page in PAGES:
    _register(_page)


@router.post("/library/import")
async def import_shipped(parts: ServicesDep, _: Runner) -> Response:
    """Adds the characters, relationships and scenarios that ship with the package."""
    async with parts.database.write() as connection:
        await library.put_shipped(connection, "starter")
        await library.put_shipped(connection, "everyday")
    return RedirectResponse("/scenarios", 303)


# --- characters ---------------------------------------------------------------------------------------------------


@router.get("/characters/new")
async def new_character(request: Request, parts: ServicesDep, _: Runner, copy: str = "") -> Response:
    """The form of a new character, empty or with the fields of another one."""
    fields: dict[str, str] = {}
    if copy:
        async with parts.database.read() as connection:
            record = (await library.get(connection, CHARACTERS, copy)).read()
        fields = {name: str(getattr(record, name) or "") for name, _label, _hint in CHARACTER_FIELDS}
    return _character_form(request, Edited(fields, None, {}))


def _character_form(request: Request, form: Edited[Character], status: int = 200) -> Response:
    return render(request, "character_new.html", status, form=form, labels=CHARACTER_FIELDS, long=_LONG)


@router.post("/characters/new")
async def add_character(request: Request, parts: ServicesDep, _: Runner, sent: Fields) -> Response:
    """Adds a character, or shows a message beside each invalid field."""
    fields = {name: value.strip() for name, value in sent.items()}
    values: dict[str, Any] = {name: fields.get(name, "") for name, _label, _hint in CHARACTER_FIELDS}
    # Text that is not a number is passed on, so that the message about it comes from the record.
    values["age"] = int(fields["age"]) if fields.get("age", "").isdecimal() else fields.get("age") or None
    form = edited(Character, values, fields)
    if form.record is None:
        return _character_form(request, form, 422)
    async with parts.database.write() as connection:
        identity, _new = await library.put(connection, CHARACTERS, form.record, tags=words(fields.get("tags", "")))
    return RedirectResponse(f"/characters/{identity}", 303)


@router.get("/characters/{key}")
async def character(request: Request, parts: ServicesDep, _: Reader, key: str) -> Response:
    """A character with everything about it, and its relationships."""
    async with parts.database.read() as connection:
        item = await library.get(connection, CHARACTERS, key)
        others = {other.id: other.name for other in await library.items(connection, CHARACTERS, limit=500)}
        ties = []
        for side in ("first", "second"):
            ties += [tie.read() for tie in await library.items(connection, RELATIONSHIPS, {side: item.id}, limit=500)]
    bonds = [(tie.second if tie.first == item.id else tie.first, tie.kind.value, tie.backstory) for tie in ties]
    return render(
        request,
        "character.html",
        item=item,
        record=item.read(),
        labels=CHARACTER_FIELDS,
        bonds=[(other, others.get(other, other), kind, story) for other, kind, story in bonds],
        others={other: name for other, name in others.items() if other != item.id},
        kinds=[kind.value for kind in RelationshipKind],
    )


@router.post("/characters/{key}/relationships")
async def relate(
    parts: ServicesDep,
    _: Runner,
    key: str,
    other: Annotated[str, Form()],
    kind: Annotated[RelationshipKind, Form()],
    backstory: Annotated[str, Form(max_length=2_000)] = "",
) -> Response:
    """Adds the relationship of two characters."""
    pair = KnownPair(first=key, second=other, kind=kind, backstory=" ".join(backstory.split()))
    async with parts.database.write() as connection:
        await library.put_relationship(connection, pair)
    return RedirectResponse(f"/characters/{key}", 303)


# --- scenarios ----------------------------------------------------------------------------------------------------


@router.get("/scenarios/new")
async def new_scenario(request: Request, parts: ServicesDep, _: Runner, copy: str = "", seats: int = 2) -> Response:
    """The form of a new scenario, empty or with the fields of another one."""
    fields = {"seats": str(min(max(seats, 2), 10))}
    if copy:
        async with parts.database.read() as connection:
            fields = _scenario_fields((await library.get(connection, SCENARIOS, copy)).read())
    return _scenario_form(request, Edited(fields, None, {}))


def _scenario_fields(record: Scenario) -> dict[str, str]:
    fields = {"id": record.id, "context": record.context, "seats": str(len(record.seats))}
    fields |= {"tags": ", ".join(record.tags), "max_turns": str(record.max_turns or "")}
    # Browsers send a box only if it is ticked, so an absent field means no.
    fields |= {"private_messages": "1"} if record.private_messages else {}
    for index, seat in enumerate(record.seats):
        fields |= {f"seats.{index}.goals": "\n".join(seat.goals), f"seats.{index}.hints": "\n".join(seat.hints)}
        fields[f"seats.{index}.private_info"] = seat.private_info
    if record.outcome is not None:
        fields["outcome"] = record.outcome.model_dump_json(indent=2)
    return fields


def _scenario_form(request: Request, form: Edited[Scenario], status: int = 200) -> Response:
    count = int(form.fields.get("seats", "2"))
    view = None if form.record is None else outcome_view(form.record)
    return render(request, "scenario_new.html", status, form=form, count=count, view=view)


@router.post("/scenarios/new")
async def add_scenario(request: Request, parts: ServicesDep, _: Runner, fields: Fields) -> Response:
    """Adds a scenario, shows its outcome space (``preview``), or shows a message beside each invalid field."""
    form = _read_scenario(fields)
    if form.record is None or "preview" in fields:
        return _scenario_form(request, form, 200 if "preview" in fields else 422)
    async with parts.database.write() as connection:
        identity, _new = await library.put(connection, SCENARIOS, form.record, tags=form.record.tags)
    return RedirectResponse(f"/scenarios/{identity}", 303)


def _read_scenario(fields: Mapping[str, str]) -> Edited[Scenario]:
    count = fields.get("seats", "2")
    count_of = int(count) if count.isdecimal() and 2 <= int(count[:3]) <= 150 else 2
    turns = fields.get("max_turns", "").strip()
    values: dict[str, Any] = {
        "id": fields.get("id", "").strip(),
        "context": fields.get("context", "").strip(),
        "seats": [
            {
                "goals": lines(fields.get(f"seats.{index}.goals", "")),
                "hints": lines(fields.get(f"seats.{index}.hints", "")),
                "private_info": " ".join(fields.get(f"seats.{index}.private_info", "").split()),
            }
            for index in range(count_of)
        ],
        "tags": words(fields.get("tags", "")),
        "max_turns": int(turns) if turns.isdecimal() and len(turns) < 6 else turns or None,
        "private_messages": "private_messages" in fields,
    }
    outcome = fields.get("outcome", "").strip()
    if outcome:
        try:
            values["outcome"] = parse_json(outcome, "outcome")
        except SotopiaError as error:
            return Edited(fields, None, {"outcome": str(error)})
    return edited(Scenario, values, fields)


@router.get("/scenarios/{key}")
async def scenario(request: Request, parts: ServicesDep, _: Reader, key: str) -> Response:
    """A scenario with its seats and its outcome space."""
    async with parts.database.read() as connection:
        item = await library.get(connection, SCENARIOS, key)
    record = item.read()
    return render(request, "scenario.html", item=item, record=record, view=outcome_view(record))


# --- tasks and dimensions -----------------------------------------------------------------------------------------


@router.get("/tasks/new")
async def new_task(request: Request, parts: ServicesDep, _: Runner, scenario: str = "") -> Response:
    """The form that seats characters in a scenario."""
    return await _task_form(request, parts, scenario, {}, "")


async def _task_form(
    request: Request, parts: Services, key: str, fields: Mapping[str, str], problem: str, status: int = 200
) -> Response:
    async with parts.database.read() as connection:
        scenarios = await library.items(connection, SCENARIOS, limit=500)
        people = await library.items(connection, CHARACTERS, limit=500)
        chosen = (await library.get(connection, SCENARIOS, key)) if key else None
    values = {"scenarios": scenarios, "people": people, "chosen": chosen, "fields": fields, "problem": problem}
    return render(request, "task_new.html", status, **values)


@router.post("/tasks/new")
async def add_task(request: Request, parts: ServicesDep, _: Runner, fields: Fields) -> Response:
    """Seats characters in a scenario, with the relationships that the library has of them."""
    key = fields.get("scenario", "")
    try:
        async with parts.database.write() as connection:
            record = (await library.get(connection, SCENARIOS, key)).read()
            chosen = [fields.get(f"character.{index}", "") for index in range(len(record.seats))]
            cast = await library.cast_of(connection, chosen)
            ties = [cast.between(*pair) for pair in itertools.combinations(range(len(chosen)), 2)]
            name = f"{record.id}:{'+'.join(person.first_name for person in cast.characters)}"[:80]
            values = {"id": name, "scenario": record, "characters": cast.characters, "relationships": ties}
            form = edited(Task, values, fields)
            if form.record is None:
                return await _task_form(request, parts, key, fields, "; ".join(form.problems.values()), 422)
            identity, _new = await library.put_task(connection, form.record)
    except (InvalidValueError, ConflictError) as error:
        return await _task_form(request, parts, key, fields, str(error), 422)
    return RedirectResponse(f"/tasks/{identity}", 303)


@router.get("/tasks/{key}")
async def task(request: Request, parts: ServicesDep, _: Reader, key: str) -> Response:
    """A task: its characters and its situation."""
    async with parts.database.read() as connection:
        item = await library.get(connection, TASKS, key)
    record = item.read()
    return render(request, "task.html", item=item, record=record, view=outcome_view(record.scenario, record.names))


EXAMPLE_DIMENSIONS = """name: courtesy
dimensions:
  - name: courtesy
    low: 0
    high: 10
    instruction: How politely does the agent treat the others? 0 rude, 5 neutral, 10 warm and attentive.
"""


@router.get("/dimensions/new")
async def new_dimensions(request: Request, _: Runner) -> Response:
    """The form of a new list of dimensions."""
    return render(request, "dimensions_new.html", text=EXAMPLE_DIMENSIONS, problem="")


@router.post("/dimensions/new")
async def add_dimensions(
    request: Request, parts: ServicesDep, _: Runner, text: Annotated[str, Form(max_length=100_000)]
) -> Response:
    """Adds a list of dimensions that judges score beside the seven."""
    try:
        values = parse_yaml(text, "dimensions")
        if not isinstance(values, dict):
            raise InvalidValueError(expected="a name and dimensions", got=type(values))
        form = edited(DimensionList, values, {"text": text})
        if form.record is None:
            raise InvalidValueError("; ".join(form.problems.values()))
        async with parts.database.write() as connection:
            await library.put_dimensions(connection, form.record)
    except (InvalidValueError, ConflictError) as error:
        return render(request, "dimensions_new.html", 422, text=text, problem=str(error))
    return RedirectResponse("/dimensions", 303)
