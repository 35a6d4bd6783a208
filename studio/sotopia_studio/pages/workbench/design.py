"""The page on which a language model drafts a simulation from a sentence."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import ValidationError

from sotopia_env.foundation.errors import SotopiaError
from sotopia_env.foundation.records import Record, read_record
from sotopia_env.foundation.validation import invalid
from sotopia_env.foundation.yaml_text import parse_yaml, to_yaml
from sotopia_env.world import Rules, Task
from sotopia_env.world.reward import CustomDimension
from sotopia_studio.api.simulate import stop_job
from sotopia_studio.auth import Reader, Runner
from sotopia_studio.context import Services, ServicesDep
from sotopia_studio.pages.rendering import render
from sotopia_studio.pages.workbench.casting import rules_text
from sotopia_studio.store import jobs, library
from sotopia_studio.work.drafting import DraftResult, DraftSpec, ask_to_draft

router = APIRouter()
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
    state, result = None, DraftResult()
    if job:
        async with parts.database.read() as connection:
            state = await jobs.state_of(connection, job)
        result = read_record(DraftResult, state.result, f"job {job}") if state.result else result
    texts = [to_yaml(draft) for draft in result.drafts]
    values = {"job": job, "state": state, "result": result, "drafts": texts, "problem": "", "text": "", "draft": ""}
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


@router.post("/design/stop")
async def stop(parts: ServicesDep, runner: Runner, job: Annotated[str, Form(max_length=80)]) -> Response:
    """Stops the drafting; drafts that are there are kept."""
    await stop_job(parts, runner, job)
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
        rules = rules_text(content.rules)
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
