"""Studies: opening and closing them, links, participants, progress, agreement, exports."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Query, Request
from fastapi.responses import PlainTextResponse, Response

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.json_text import parse_json
from sotopia_env.people.answers import completed_sheet
from sotopia_env.people.studies.design import make_tasks
from sotopia_env.people.studies.settings import AnnotateStudy, PlayStudy, study_of
from sotopia_env.people.tables.results import StudyTables, TableName
from sotopia_studio.api.bodies import attached
from sotopia_studio.auth import Reader, Runner
from sotopia_studio.context import Services, ServicesDep, public_address
from sotopia_studio.store import studies
from sotopia_studio.studies import agreement as agreements
from sotopia_studio.studies import export, opening, play

router = APIRouter(tags=["studies"])
Settings = Annotated[dict[str, Any], Body(description="The settings of a study; `kind` selects the class.")]


async def prepare(parts: Services, name: str) -> None:
    """Makes the tasks of a study before a transaction needs them, in which others would wait."""
    async with parts.database.read() as connection:
        study = studies.settings_of(await studies.by_name(connection, name))
    if isinstance(study, PlayStudy):
        await asyncio.to_thread(make_tasks, study)


async def settle(parts: Services, name: str) -> None:
    """Records how conversations ended after whose end nobody has come back: no request of theirs has done it."""
    await prepare(parts, name)
    async with parts.database.read() as connection:
        row = await studies.by_name(connection, name)
        ended = await play.unsettled(connection, row.id) if row.kind == "play" else []
    if ended:  # a writing transaction makes others wait
        async with parts.database.write() as connection:
            study = studies.settings_of(row)
            assert isinstance(study, PlayStudy)
            await play.settle(connection, study, row.id)


def annotate_only(row: Any) -> AnnotateStudy:
    """Returns the settings of a study in which people score episodes; raises an error for other studies."""
    study = studies.settings_of(row)
    if not isinstance(study, AnnotateStudy):
        raise InvalidValueError(field="study", expected="one of kind annotate", got=study.kind)
    return study


@router.post("/studies", status_code=201)
async def open_study(parts: ServicesDep, principal: Runner, response: Response, settings: Settings) -> dict[str, str]:
    """Opens a study; its settings are those of a YAML file."""
    study = study_of(settings)
    identity = await opening.open_study(parts.database, parts.settings, study, principal.id)
    response.headers["Location"] = f"/api/v1/studies/{study.name}"
    return {"id": identity, "name": study.name}


@router.get("/studies")
async def list_studies(parts: ServicesDep, _: Reader) -> list[dict[str, Any]]:
    """Lists the studies, the latest first."""
    async with parts.database.read() as connection:
        rows = await studies.listed(connection)
        return [
            {"id": row.id, "name": row.name, "kind": row.kind, "status": row.status, "created": row.created}
            for row in rows
        ]


@router.get("/studies/{name}")
async def get_study(parts: ServicesDep, _: Reader, name: str) -> dict[str, Any]:
    """Returns a study: its settings, and the number of assignments in each state."""
    await settle(parts, name)
    async with parts.database.read() as connection:
        row = await studies.by_name(connection, name)
        study = studies.settings_of(row)
        progress = await studies.progress(connection, row.id)
    return {"id": row.id, "status": row.status, "settings": study.model_dump(mode="json"), "progress": progress}


@router.post("/studies/{name}/{change}", status_code=204)
async def change_study(parts: ServicesDep, _: Runner, name: str, change: Literal["close", "reopen"]) -> None:
    """Closes a study, which then admits no new participants, or opens it again."""
    async with parts.database.write() as connection:
        row = await studies.by_name(connection, name)
        await studies.change(connection, row.id, status="closed" if change == "close" else "open")


@router.post("/studies/{name}/links/new", status_code=201)
async def add_links(
    request: Request, parts: ServicesDep, _: Runner, name: str, count: Annotated[int, Query(ge=1, le=1000)] = 1
) -> list[str]:
    """Creates personal links, each of which can be claimed once; they are not shown again."""
    async with parts.database.write() as connection:
        row = await studies.by_name(connection, name)
        secrets = await opening.add_links(connection, row.id, count)
    return [f"{public_address(request)}/p/{secret}" for secret in secrets]


@router.get("/studies/{name}/participants")
async def list_participants(parts: ServicesDep, _: Reader, name: str) -> list[dict[str, Any]]:
    """Lists the participants of a study and their progress."""
    async with parts.database.read() as connection:
        row = await studies.by_name(connection, name)
        people = await studies.participants(connection, row.id)
    columns = ("id", "external", "state", "created", "seen", "finished")
    return [{column: getattr(person, column) for column in columns} for person in people]


@router.get("/studies/{name}/export.{kind}", response_class=PlainTextResponse)
async def export_study(parts: ServicesDep, reader: Reader, name: str, kind: Literal["csv", "jsonl"]) -> Response:
    """Returns every answer and outcome in long form: one row for each value; see the codebook."""
    if kind == "csv":
        return await export_table(parts, reader, name, "long")
    return attached((await _tables(parts, name)).json_lines(), f"{name}.jsonl", "application/jsonl")


@router.get("/studies/{name}/tables/{table}.csv", response_class=PlainTextResponse)
async def export_table(parts: ServicesDep, _: Reader, name: str, table: TableName) -> Response:
    """Returns a table of results: a row for each value (`long`), person and item (`wide`), or turn; or its codebook."""
    return attached((await _tables(parts, name)).csv(table), f"{name}-{table}.csv", "text/csv")


@router.get("/studies/{name}/codebook")
async def codebook(parts: ServicesDep, _: Reader, name: str) -> list[dict[str, str]]:
    """Returns the meaning, type, unit and source of every column of every table of results."""
    return (await _tables(parts, name)).codebook()


async def _tables(parts: Services, name: str) -> StudyTables:
    await settle(parts, name)
    async with parts.database.read() as connection:
        return await export.tables_of(connection, await studies.by_name(connection, name))


@router.get("/studies/{name}/sheet.{kind}", response_class=PlainTextResponse)
async def sheet(parts: ServicesDep, _: Reader, name: str, kind: Literal["csv", "key.json"]) -> Response:
    """Returns the annotations as a completed sheet, or its key: `sotopia judge-agreement` reads both."""
    async with parts.database.read() as connection:
        row = await studies.by_name(connection, name)
        answers, _episodes = await agreements.annotation_set(connection, annotate_only(row), row)
    text = completed_sheet(answers) if kind == "csv" else answers.key.model_dump_json(indent=2) + "\n"
    return attached(text, f"{name}.{kind}", "text/plain")


@router.get("/studies/{name}/agreement")
async def agreement(parts: ServicesDep, _: Reader, name: str) -> dict[str, Any]:
    """Returns the agreement of annotators with each other and with judges, as `sotopia judge-agreement` does."""
    async with parts.database.read() as connection:
        row = await studies.by_name(connection, name)
        report = await agreements.agreement(connection, annotate_only(row), row)
    content: dict[str, Any] = parse_json(report.json(), "agreement")
    return content


@router.post("/studies/{name}/annotations/screen")
async def screen(parts: ServicesDep, _: Runner, name: str) -> dict[str, int]:
    """Rejects annotations by the quality rules and opens new assignments for them; returns the number by rule."""
    async with parts.database.write() as connection:
        row = await studies.by_name(connection, name)
        return await agreements.screen_and_relaunch(connection, annotate_only(row), row)
