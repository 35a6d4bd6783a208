"""The researcher's pages on studies: opening one, and one study with its links, people, progress and agreement."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response

from sotopia_env.foundation.errors import InvalidValueError, SotopiaError
from sotopia_env.foundation.yaml_text import parse_yaml
from sotopia_studio.api import studies as api
from sotopia_studio.auth import Reader, Runner
from sotopia_studio.context import ServicesDep, public_address
from sotopia_studio.pages.rendering import render
from sotopia_studio.problems import ConflictError
from sotopia_studio.store import studies
from sotopia_studio.studies import agreement as agreements
from sotopia_studio.studies import opening, play
from sotopia_studio.studies.settings import AnnotateStudy, PlayStudy, study_of

router = APIRouter()
EXAMPLES = {
    "play": """kind: play
name: first-study
title: Two conversations
instructions: |
  You will talk with another person or a program. Read who you are and what you want.

  Say what you would say. Use the buttons to make or accept an offer.
tasks: starter
n: 2
partner: boulware      # a policy, a model such as local/my-model, or: person
seats: both
per_person: 1
turn_seconds: 300
interview:             # after each conversation
  - {name: trust, text: "How far did you trust {partner}?", kind: scale, low: 1, high: 7}
questionnaire:         # once, at the end
  - {name: natural, text: "How natural was your partner?", kind: scale, low: 1, high: 7}
""",
    "annotate": """kind: annotate
name: first-annotation
title: Read and score conversations
runs: [RUN-ID]
overlap: 2
per_person: 5
min_words: 5
""",
    "validate": """kind: validate
name: first-validation
title: Are these situations believable?
tasks: everyday
n: 20
overlap: 3
per_person: 10
""",
}
"""An example of a study of each kind."""


@router.get("/studies")
async def list_studies(request: Request, parts: ServicesDep, _: Reader) -> Response:
    """All studies."""
    async with parts.database.read() as connection:
        rows = await studies.listed(connection)
        progress = {row.id: await studies.progress(connection, row.id) for row in rows}
    return render(request, "studies.html", studies=rows, progress=progress)


@router.get("/studies/new")
async def new(request: Request, _: Runner, kind: str = "play") -> Response:
    """The form of a new study."""
    text = EXAMPLES.get(kind, EXAMPLES["play"])
    return render(request, "study_new.html", text=text, kinds=tuple(EXAMPLES), kind=kind, problem="")


@router.post("/studies/new")
async def open_study(
    request: Request, parts: ServicesDep, principal: Runner, text: Annotated[str, Form(max_length=200_000)]
) -> Response:
    """Opens a study, or shows a message about invalid settings."""
    try:
        values = parse_yaml(text, "study")
        if not isinstance(values, dict):
            raise InvalidValueError(expected="settings, such as `kind: play`", got=type(values))
        study = study_of(values)
        await opening.open_study(parts.database, parts.settings, study, principal.id)
    except (InvalidValueError, ConflictError) as error:
        return render(request, "study_new.html", 422, text=text, kinds=tuple(EXAMPLES), kind="", problem=str(error))
    return RedirectResponse(f"/studies/{study.name}", 303)


@router.get("/studies/{name}")
async def one(request: Request, parts: ServicesDep, _: Reader, name: str) -> Response:
    """A study: address, links, people, progress, agreement."""
    return await _page(request, parts, name, [])


async def _page(request: Request, parts: ServicesDep, name: str, links: list[str]) -> Response:
    async with parts.database.write() as connection:
        row = await studies.by_name(connection, name)
        study = api.settings_of(row)
        if isinstance(study, PlayStudy):
            await play.settle(connection, study, row.id)
        people = await studies.participants(connection, row.id)
        progress = await studies.progress(connection, row.id)
        agreement = ""
        if isinstance(study, AnnotateStudy):
            try:
                agreement = (await agreements.agreement(connection, study, row)).text()
            except SotopiaError as error:  # no annotations yet, or too few to compare
                agreement = str(error)
    address = f"{public_address(request)}/join/{row.name}"
    values = {"row": row, "study": study, "people": people, "progress": progress, "agreement": agreement}
    return render(request, "study.html", address=address, links=links, **values)


@router.post("/studies/{name}/links")
async def add_links(
    request: Request, parts: ServicesDep, runner: Runner, name: str, count: Annotated[int, Form(ge=1, le=1000)]
) -> Response:
    """Makes personal links and shows them once."""
    return await _page(request, parts, name, await api.add_links(request, parts, runner, name, count))


@router.post("/studies/{name}/status")
async def change(
    parts: ServicesDep, runner: Runner, name: str, change: Annotated[Literal["close", "reopen"], Form()]
) -> Response:
    """Closes a study or opens it again."""
    await api.change_study(parts, runner, name, change)
    return RedirectResponse(f"/studies/{name}", 303)


@router.post("/studies/{name}/screen")
async def screen(parts: ServicesDep, runner: Runner, name: str) -> Response:
    """Rejects annotations by the quality rules and opens new assignments for them."""
    await api.screen(parts, runner, name)
    return RedirectResponse(f"/studies/{name}", 303)
