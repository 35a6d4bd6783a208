"""Batch runs: starting, watching, stopping, continuing and importing them."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import ConfigDict, Field
from pydantic.config import JsonDict
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.foundation.records import JsonObject
from sotopia_env.foundation.settings import settings_of
from sotopia_env.runs import RunSpec
from sotopia_env.runs.forecast import RunForecast, StandInModels, forecast
from sotopia_studio.api.bodies import After, Body, Limit, Page, StrictRoute, json_answer, page_text
from sotopia_studio.api.simulate import Forecast, as_forecast
from sotopia_studio.auth import Reader, Runner
from sotopia_studio.context import Services, ServicesDep
from sotopia_studio.store import library, runs, tables
from sotopia_studio.store import tags as tag_store
from sotopia_studio.store.kinds import TASKS
from sotopia_studio.store.runs import RunRow
from sotopia_studio.work import names

router = APIRouter(tags=["runs"], route_class=StrictRoute)
_LOOK = 0.5
_EXAMPLES: JsonDict = {
    "examples": [{"name": "pilot", "spec": {"policies": ["boulware", "conceder"], "tasks": "bargaining", "n": 5}}]
}


class NewRun(Body):
    """A run: its settings are those of `sotopia rollout --config` (`RunSpec`)."""

    model_config = ConfigDict(json_schema_extra=_EXAMPLES)

    spec: JsonObject
    name: str = Field(default="", max_length=80)
    tag: list[Annotated[str, Field(min_length=1, max_length=80)]] = Field(default=[], max_length=20)
    tasks: list[str] = Field(default=[], max_length=10_000, description="Ids of tasks, instead of `spec.tasks`.")


class RunBegun(Body):
    """The run that was started."""

    run: str
    planned: int


async def begin_run(
    parts: Services, spec: RunSpec, *, name: str = "", owner: str = "", tasks: list[str], tags: list[str]
) -> tuple[str, int]:
    """Adds a run, requests the job that plays it, and returns its id and its number of episodes.

    Args:
        parts: the parts of the server.
        spec: the settings of the run.
        name: the name that pages show.
        owner: id of the user who starts it.
        tasks: ids of tasks of the library, instead of those of the spec.
        tags: the tags of the run.

    Raises:
        MissingError: a task is not in the library.
        InvalidValueError: a name is not known, or there is nothing to play.
    """
    identity = tables.new_id()
    directory = (parts.settings.data / "runs" / identity).resolve()
    async with parts.database.read() as connection:
        path = (parts.settings.data / "tasks" / f"{identity}.jsonl").resolve()
        spec = await _with_tasks(connection, names.run_spec(parts.settings, spec), tasks, path)
    # Before the transaction: nobody else could write while thousands of tasks are generated.
    planned = await names.checked(parts.settings, lambda: len(spec.resolve(ModelPool(spec.models)).plans()))
    async with parts.database.write() as connection:
        await runs.add(
            connection,
            spec.model_dump_json(),
            identity=identity,
            name=name or identity,
            directory=str(directory),
            planned=planned,
            owner=owner,
        )
        await tag_store.add(connection, "run", identity, tags)
        await runs.ask_to_play(connection, identity)
    return identity, planned


async def _with_tasks(connection: AsyncConnection, spec: RunSpec, tasks: list[str], path: Path) -> RunSpec:
    """Returns a run on tasks of the library, which are written to ``path``; without such tasks, the same run."""
    if not tasks:
        return spec
    lines = [(await library.get(connection, TASKS, key)).record + "\n" for key in tasks]
    await asyncio.to_thread(names.write_data, path, "".join(lines))
    return spec.model_copy(update={"tasks": str(path), "n": None})


@router.post("/runs", status_code=202, responses={200: {"model": Forecast, "description": "With `dry_run`."}})
async def add_run(
    parts: ServicesDep,
    principal: Runner,
    response: Response,
    body: NewRun,
    dry_run: Annotated[bool, Query(description="Return a forecast of the cost without starting the run.")] = False,
) -> RunBegun | Forecast:
    """Starts a run: a worker plays it and records it in a run directory of its own."""
    spec = settings_of(dict(body.spec), RunSpec, "")
    if dry_run:
        own = names.run_spec(parts.settings, spec)
        with tempfile.TemporaryDirectory(prefix="sotopia-forecast-") as folder:
            async with parts.database.read() as connection:
                own = await _with_tasks(connection, own, body.tasks, Path(folder, "tasks.jsonl"))
            response.status_code = 200
            return as_forecast(await names.checked(parts.settings, lambda: _forecast(parts, own)))
    run, planned = await begin_run(parts, spec, name=body.name, owner=principal.id, tasks=body.tasks, tags=body.tag)
    response.headers["Location"] = f"/api/v1/runs/{run}"
    return RunBegun(run=run, planned=planned)


def _forecast(parts: Services, spec: RunSpec) -> RunForecast:
    models = StandInModels(spec.models)
    return forecast(spec.resolve(models), models, parts.settings.data / "nothing")


@router.get("/runs", response_model=Page[RunRow])
async def list_runs(
    parts: ServicesDep,
    _: Reader,
    status: str = "",
    owner: str = "",
    tag: str = "",
    after: After = "",
    limit: Limit = 50,
) -> Response:
    """Lists runs."""
    async with parts.database.read() as connection:
        rows = await runs.page(connection, status=status, owner=owner, tag=tag, after=after, limit=limit + 1)
        total = await runs.count(connection, status=status, owner=owner, tag=tag)
    return json_answer(page_text([(row.id, row.model_dump_json()) for row in rows], total, limit))


@router.get("/runs/{run}")
async def run(parts: ServicesDep, _: Reader, run: str) -> RunRow:
    """Returns the progress and the cost of a run."""
    async with parts.database.read() as connection:
        return await runs.one(connection, run)


@router.get("/runs/{run}/spec")
async def run_settings(parts: ServicesDep, _: Reader, run: str) -> Response:
    """Returns the settings of a run, as JSON."""
    async with parts.database.read() as connection:
        return json_answer(await runs.spec_of(connection, run))


@router.post("/runs/{run}/stop", status_code=202)
async def stop_run(parts: ServicesDep, _: Runner, run: str) -> RunRow:
    """Stops a run; its episodes are kept, and it can be resumed. 409 if it has ended."""
    async with parts.database.write() as connection:
        await runs.ask_to_stop(connection, run)
        return await runs.one(connection, run)


@router.post("/runs/{run}/resume", status_code=202)
async def resume_run(parts: ServicesDep, _: Runner, run: str) -> RunRow:
    """Resumes a run; recorded episodes are not played again."""
    async with parts.database.write() as connection:
        await runs.ask_to_play(connection, run)
        return await runs.one(connection, run)


async def _exists(parts: ServicesDep, run: str) -> str:
    async with parts.database.read() as connection:
        return (await runs.one(connection, run)).id


@router.get("/runs/{run}/events", response_class=EventSourceResponse)
async def follow_run(
    parts: ServicesDep, _: Reader, run: Annotated[str, Depends(_exists)]
) -> AsyncIterator[ServerSentEvent]:
    """Streams a run's row whenever it changes, as `progress`, until it has ended; the stream ends with `closed`."""
    before: RunRow | None = None
    while not parts.hub.closing:
        async with parts.database.read() as connection:
            row = await runs.one(connection, run)
        if row != before:
            yield ServerSentEvent(raw_data=row.model_dump_json(), event="progress")
        if row.status in runs.ENDED:
            yield ServerSentEvent(raw_data="{}", event="closed")
            break
        before = row
        await asyncio.sleep(_LOOK)
