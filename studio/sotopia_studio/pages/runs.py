"""The pages of runs: many episodes, played by a worker and recorded in a run directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from sotopia_env import naming, tasks
from sotopia_env.foundation.errors import InvalidValueError, SotopiaError
from sotopia_env.foundation.settings import settings_of
from sotopia_env.runs import RunSpec
from sotopia_env.storage.directory import read_failures
from sotopia_studio.api import runs as api
from sotopia_studio.api.runs import NewRun
from sotopia_studio.api.simulate import Forecast, NewEvaluation, evaluate_run
from sotopia_studio.auth import Principal, Reader, Runner
from sotopia_studio.context import Services, ServicesDep
from sotopia_studio.pages.editing import Fields, evaluation_menus, policy_lines
from sotopia_studio.pages.rendering import render
from sotopia_studio.problems import ConflictError
from sotopia_studio.store import episode_lists, jobs, runs
from sotopia_studio.store.episode_lists import EpisodeFilter
from sotopia_studio.store.episodes import PERSON

router = APIRouter()
_NUMBERS = ("n", "repeats", "seed", "max_turns")
_FAILURES = 50
"""The maximum number of failures that the page of a run lists."""


@router.get("/runs")
async def listing(request: Request, parts: ServicesDep, _: Reader, after: str = "") -> HTMLResponse:
    """The list of runs, and the form that starts one."""
    return await _list(request, parts, {}, after=after)


async def _list(
    request: Request,
    parts: Services,
    fields: dict[str, str],
    *,
    after: str = "",
    error: SotopiaError | None = None,
    forecast: Forecast | None = None,
) -> HTMLResponse:
    async with parts.database.read() as connection:
        rows = await runs.page(connection, after=after)
    return render(
        request,
        "runs.html",
        422 if error else 200,
        rows=rows,
        fields=fields,
        more=len(rows) == runs.PAGE,
        problem="" if error is None else str(error),
        wrong=getattr(error, "field", "") or "",
        forecast=forecast,
        policies=[line for line in policy_lines() if line.name != PERSON],
        models=parts.settings.model_names,
        evaluators=naming.EVALUATOR_NAMES,
        sources=[*naming.SHIPPED, "all", *tasks.FAMILIES],
    )


def _spec(fields: dict[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {
        "policies": [line.strip() for line in fields.get("policies", "").splitlines() if line.strip()],
        "tasks": fields.get("tasks", "").strip() or "all",
        "evaluator": fields.get("evaluator", "").strip() or "verified",
    }
    for name in _NUMBERS:
        text = fields.get(name, "").strip()
        if text:
            # Other text is passed on, so that the message about it comes from the validation of the settings.
            values[name] = int(text) if text.isdecimal() and len(text) < 12 else text
    if fields.get("max_cost", "").strip():
        cost = fields["max_cost"].strip()
        values["models"] = {"max_cost": float(cost) if cost.replace(".", "", 1).isdecimal() else cost}
    return values


@router.post("/runs")
async def begin(request: Request, parts: ServicesDep, principal: Runner, fields: Fields) -> Response:
    """Starts a run, or shows a forecast of its cost."""
    try:
        if "forecast" in fields:
            return await _list(request, parts, fields, forecast=await _forecast(parts, principal, fields))
        spec = settings_of(_spec(fields), RunSpec, "")
        name = fields.get("name", "").strip()[:80]
        run, _ = await api.begin_run(parts, spec, name=name, owner=principal.id, tasks=[], tags=[])
    except SotopiaError as error:
        return await _list(request, parts, fields, error=error)
    return RedirectResponse(f"/runs/{run}", 303)


async def _forecast(parts: Services, principal: Principal, fields: dict[str, str]) -> Forecast:
    answer = await api.add_run(parts, principal, Response(), NewRun(spec=_spec(fields)), dry_run=True)
    assert isinstance(answer, Forecast)
    return answer


async def _values(parts: Services, run: str, job: str = "") -> dict[str, Any]:
    async with parts.database.read() as connection:
        row = await runs.one(connection, run)
        mine = EpisodeFilter(run=run)
        newest = await episode_lists.page(connection, mine, limit=10)
        total = await episode_lists.count(connection, mine)
        menus = await evaluation_menus(parts, connection)
        state = await jobs.state_of(connection, job) if job else None
    failures = read_failures(row.directory) if row.directory and Path(row.directory).is_dir() else ()
    values = {"run": row, "newest": newest, "total": total, "failures": failures[-_FAILURES:], "job": state}
    return {**values, **menus, "problem": ""}


@router.get("/runs/{run}")
async def page(request: Request, parts: ServicesDep, _: Reader, run: str, job: str = "") -> HTMLResponse:
    """One run: its progress, cost and failures."""
    return render(request, "run.html", **await _values(parts, run, job))


@router.get("/runs/{run}/progress")
async def progress(request: Request, parts: ServicesDep, _: Reader, run: str, job: str = "") -> HTMLResponse:
    """The part of the page that changes during the run."""
    return render(request, "_run.html", **await _values(parts, run, job))


@router.post("/runs/{run}/evaluations")
async def evaluate(
    request: Request,
    parts: ServicesDep,
    runner: Runner,
    run: str,
    evaluation: Annotated[NewEvaluation, Form()],
) -> Response:
    """Requests an evaluation or interviews of all episodes of a run."""
    try:
        begun = await evaluate_run(parts, runner, Response(), run, evaluation)
    except (InvalidValueError, ConflictError) as error:
        return render(request, "run.html", 422, **{**await _values(parts, run), "problem": str(error)})
    return RedirectResponse(f"/runs/{run}?job={begun.job}", 303)


@router.post("/runs/{run}/stop")
async def stop(parts: ServicesDep, runner: Runner, run: str) -> Response:
    """Requests the stop of a run."""
    await api.stop_run(parts, runner, run)
    return RedirectResponse(f"/runs/{run}", 303)


@router.post("/runs/{run}/resume")
async def resume(parts: ServicesDep, runner: Runner, run: str) -> Response:
    """Resumes a run; recorded episodes are not played again."""
    await api.resume_run(parts, runner, run)
    return RedirectResponse(f"/runs/{run}", 303)
