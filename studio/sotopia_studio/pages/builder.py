"""The builder: a study in a form, kept as a draft while it is written; its file is its export and import."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, File, Form, Request, UploadFile
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.people.settings_form import Edited
from sotopia_env.people.studies import builder, files
from sotopia_env.people.studies.builder import DRAFT, OTHER
from sotopia_env.people.studies.design import Design
from sotopia_env.people.studies.design import design as design_of
from sotopia_env.people.studies.settings import KINDS, AnyStudy
from sotopia_studio.api.bodies import attached
from sotopia_studio.auth import Reader, Runner
from sotopia_studio.context import Services, ServicesDep
from sotopia_studio.pages.editing import policy_lines
from sotopia_studio.pages.rendering import fragment, render
from sotopia_studio.problems import ConflictError, MissingError
from sotopia_studio.store import drafts, library, runs, studies
from sotopia_studio.store.episodes import PERSON
from sotopia_studio.store.kinds import SCENARIOS, TASKS, Kind
from sotopia_studio.studies import changing, opening, trials
from sotopia_studio.studies.changing import Change
from sotopia_studio.work import names

router = APIRouter()
FORM = "study:"
"""Prefix of the names of drafts."""
_FIXED = "This cannot change any more: people are in the study, or have its address. Copy the study to change it."
_OFFERED = 24
"""Single tasks that the page shows besides those that are picked."""


async def sent_texts(request: Request) -> dict[str, str]:
    """A dependency: the fields of a form; several values of one name are lines of one text."""
    form = await request.form(max_fields=20_000)  # a question has ten
    fields = {name: "\n".join(map(str, form.getlist(name))) for name in form}
    others = {name.removesuffix(OTHER): text.strip() for name, text in fields.items() if name.endswith(OTHER)}
    # What is typed beside a menu replaces the choice in it.
    return {n: t for n, t in fields.items() if not n.endswith(OTHER)} | {n: t for n, t in others.items() if t}


Texts = Annotated[dict[str, str], Depends(sent_texts)]


@dataclass(frozen=True, slots=True)
class Review:
    """A draft as far as it can be read.

    Attributes:
        form: the draft, its study if all settings are valid, and the problems by field.
        design: what the study asks of how many people; ``None`` if it cannot be said yet.
        change: what it changes in a study; ``None`` for the draft of a new one.
        todo: the problems by field, also while the form does not mark them.
    """

    form: Edited[Any]
    design: Design | None
    change: Change | None
    todo: Mapping[str, str]


async def reviewed(parts: Services, sent: Mapping[str, str]) -> Review:
    """Reads a draft and checks the names in it, without building what they name."""
    form, change, design = builder.read_draft(sent), None, None
    problems = dict(form.problems)
    if form.record is not None:
        try:
            form = replace(form, record=await opening.frozen(parts.database, form.record))
        except InvalidValueError as error:
            problems["library"] = str(error)
            return Review(Edited(sent, None, problems), None, None, problems)
    if identity := sent.get(f"{DRAFT}study", ""):
        async with parts.database.read() as connection:
            change = await changing.change_of(connection, identity, sent.get(f"{DRAFT}base", ""), form.record)
        problems |= dict.fromkeys(change.fixed, _FIXED)
    if form.record is not None:
        try:
            await opening.planned(parts.database, parts.settings, form.record)
            design = await asyncio.to_thread(design_of, form.record)
        except InvalidValueError as error:
            problems[error.field if error.field in sent else ""] = str(error)
    return Review(Edited(sent, form.record, problems), design, change, problems)


# --- drafts -------------------------------------------------------------------------------------------------------


async def _load(parts: Services, owner: str, identity: str) -> dict[str, str]:
    async with parts.database.read() as connection:
        sent = await drafts.load(connection, owner, FORM + identity)
    if sent.get("kind") not in KINDS:
        raise MissingError("this draft is not there any more: it was opened as a study, or deleted")
    return sent


async def _save(parts: Services, owner: str, identity: str, sent: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Saves a draft; what another tab has changed meanwhile is not replaced: this one goes on as a copy.

    Returns:
        The id under which the draft is saved, and its fields.
    """
    tab, version = f"{DRAFT}tab", f"{DRAFT}version"
    async with parts.database.write() as connection:
        stored = await drafts.load(connection, owner, FORM + identity)
        is_stale = bool(stored) and stored.get(tab) != sent.get(tab) and stored.get(version) != sent.get(version)
        if is_stale:
            identity, sent = secrets.token_hex(6), {**sent, f"{DRAFT}copy": identity}
        sent = {**sent, version: secrets.token_hex(6)}
        await drafts.save(connection, owner, FORM + identity, sent)
    return identity, sent


async def _begin(parts: Services, owner: str, sent: dict[str, str]) -> Response:
    identity, _ = await _save(parts, owner, secrets.token_hex(6), sent)
    return RedirectResponse(f"/studies/drafts/{identity}", 303)


@router.get("/studies/new")
async def new(request: Request, parts: ServicesDep, runner: Runner) -> Response:
    """The ways to a new study: a kind, a draft, a file."""
    return await _new(request, parts, runner.id, "", "")


async def _new(request: Request, parts: Services, owner: str, text: str, problem: str) -> Response:
    async with parts.database.read() as connection:
        stored = await drafts.listed(connection, owner, FORM)
    rows = [(form.removeprefix(FORM), at, sent) for form, at, sent in stored]
    return render(request, "study_new.html", 422 if problem else 200, text=text, problem=problem, drafts=rows)


@router.post("/studies/new")
async def begin(
    request: Request,
    parts: ServicesDep,
    runner: Runner,
    kind: Annotated[str, Form()] = "",
    text: Annotated[str, Form(max_length=200_000)] = "",
    file: Annotated[UploadFile | None, File()] = None,
    then: Annotated[str, Form()] = "build",
) -> Response:
    """Begins a draft of a kind or from a file, or opens the study in a file at once."""
    if kind in KINDS and not text:
        return await _begin(parts, runner.id, builder.new_draft(kind))
    if file is not None and (content := await file.read()):
        text = content.decode("utf-8", "replace")
    try:
        study = files.read_text(text)
        if then != "open":
            return await _begin(parts, runner.id, builder.draft_of(study))
        await opening.open_study(parts.database, parts.settings, study, runner.id)
    except (InvalidValueError, ConflictError) as error:
        return await _new(request, parts, runner.id, text, str(error))
    return RedirectResponse(f"/studies/{study.name}", 303)


@router.get("/studies/drafts/{identity}")
async def draft(request: Request, parts: ServicesDep, runner: Runner, identity: str) -> Response:
    """The builder on a draft."""
    sent = await _load(parts, runner.id, identity)
    review = await reviewed(parts, sent)
    # A new tab is another writer. A field that nobody has filled in yet is left to do and not marked as a mistake.
    sent = {**sent, f"{DRAFT}tab": secrets.token_hex(6)}
    return await _page(request, parts, identity, sent, replace(review, form=Edited(sent, None, {})))


async def _page(
    request: Request,
    parts: Services,
    identity: str,
    sent: Mapping[str, str],
    review: Review,
    *,
    focus: str = "",
    status: int = 200,
) -> Response:
    kind = sent["kind"]
    offered: tuple[Any, int] = ([], 0)
    sources: tuple[Any, ...] = ()
    if kind != "annotate":
        try:
            search = sent.get(f"{DRAFT}search", "")
            offered = await names.checked(parts.settings, lambda: _offered(parts, sent, search))
        except InvalidValueError:  # the field itself says what is wrong with the source of tasks
            pass
        sources = await asyncio.to_thread(builder.example_tasks)
    async with parts.database.read() as connection:
        rows = await runs.page(connection, limit=50) if kind == "annotate" else []
        own = await _own_situations(connection, sent) if kind != "annotate" else []
    return render(
        request,
        "study_builder.html",
        status,
        identity=identity,
        sent=sent,
        cards=builder.cards(kind, sent),
        problems=review.form.problems,
        design=review.design,
        change=review.change,
        todo=review.todo,
        labels=builder.labels(sent),
        offered=offered,
        sources=sources,
        runs=rows,
        own=own,
        focus=focus,
        partners=_partners(parts),
        saved=False,
    )


async def _own_situations(connection: AsyncConnection, sent: Mapping[str, str]) -> list[tuple[str, Any]]:
    """The tasks and scenarios of the library that match the search, each with the entry that names it in a study."""
    kinds: tuple[Kind[Any], ...] = (TASKS, SCENARIOS)
    text = sent.get(f"{DRAFT}search", "")
    items = [item for kind in kinds for item in await library.items(connection, kind, text=text, limit=_OFFERED)]
    offered = {f"{item.id}@{item.hash[: opening.PINNED]}": item for item in items}
    # What was picked stays on the page, whatever the search and whatever became of it.
    picked = {entry: offered.pop(entry, None) for entry in sent.get("library", "").splitlines() if entry.strip()}
    return [(entry, None if item is None else item.read()) for entry, item in {**picked, **offered}.items()]


def _offered(parts: Services, sent: Mapping[str, str], search: str) -> tuple[Any, int]:
    names.check_tasks(parts.settings, sent.get("tasks", ""))
    return builder.offered_tasks(sent, search, _OFFERED)


def _partners(parts: Services) -> list[tuple[str, str, str]]:
    """Group, name and line of everybody who can play the other seats."""
    people = [("People", name, about) for name, about in builder.PARTNERS]
    models = [("Language models", name, "") for name in parts.settings.model_names]
    return [*people, *models, *(("Programs", line.name, line.about) for line in policy_lines() if line.name != PERSON)]


@router.post("/studies/drafts/{identity}/keep")
async def keep(parts: ServicesDep, runner: Runner, identity: str, sent: Texts) -> Response:
    """Saves a draft while it is written, and returns what is left to do."""
    await _load(parts, runner.id, identity)
    stored, sent = await _save(parts, runner.id, identity, sent)
    if stored != identity:  # the page goes on with the copy
        return Response(status_code=200, headers={"HX-Redirect": f"/studies/drafts/{stored}"})
    review = await reviewed(parts, sent)
    values = {"design": review.design, "change": review.change, "todo": review.todo, "labels": builder.labels(sent)}
    return HTMLResponse(fragment("_study_summary.html", saved=True, sent=sent, **values))


@router.post("/studies/drafts/{identity}")
async def change(request: Request, parts: ServicesDep, runner: Runner, identity: str, sent: Texts) -> Response:
    """Saves a draft and does what its button says: adds or moves rows, opens the study, shows its file."""
    await _load(parts, runner.id, identity)
    action, focus = sent.pop("do", "check"), ""
    if action.partition(" ")[0] in ("add", "remove", "up", "down"):
        sent, focus = builder.rearranged(sent, action)
    stored, sent = await _save(parts, runner.id, identity, sent)
    if stored != identity:
        return RedirectResponse(f"/studies/drafts/{stored}", 303)
    review = await reviewed(parts, sent)
    if focus or action == "refresh":
        unread = replace(review, form=Edited(sent, None, {}))
        return await _page(request, parts, identity, sent, unread, focus=focus)
    study = review.form.record
    if study is not None and not review.form.problems and action == "open":
        try:
            await _open(parts, runner.id, sent, study)
        except (InvalidValueError, ConflictError) as error:
            is_taken = isinstance(error, ConflictError) and review.change is None
            review = replace(review, form=Edited(sent, None, {"name" if is_taken else "": str(error)}))
        else:
            await _drop(parts, runner.id, identity)
            return RedirectResponse(f"/studies/{study.name}", 303)
    if study is not None and not review.form.problems and action == "try":
        await trials.begin(parts.database, parts.settings, study, runner.id, f"/studies/drafts/{identity}")
        return RedirectResponse("/study", 303)
    if study is not None and action == "file":  # also of a study whose runs are in another studio
        return RedirectResponse(f"/studies/drafts/{identity}/study.yaml", 303)
    return await _page(request, parts, identity, sent, review, status=422 if review.form.problems else 200)


async def _open(parts: Services, owner: str, sent: Mapping[str, str], study: AnyStudy) -> None:
    """Opens the study of a draft, or changes the study that the draft is about."""
    if identity := sent.get(f"{DRAFT}study", ""):
        await changing.carry_out(parts.database, parts.settings, identity, sent.get(f"{DRAFT}base", ""), study)
    else:
        await opening.open_study(parts.database, parts.settings, study, owner)


async def _drop(parts: Services, owner: str, identity: str) -> None:
    async with parts.database.write() as connection:
        await drafts.clear(connection, owner, FORM + identity)


@router.post("/studies/drafts/{identity}/delete")
async def delete(parts: ServicesDep, runner: Runner, identity: str) -> Response:
    """Deletes a draft."""
    await _drop(parts, runner.id, identity)
    return RedirectResponse("/studies/new", 303)


# --- files --------------------------------------------------------------------------------------------------------


def _file(study: AnyStudy) -> Response:
    return attached(files.to_text(study), f"{study.name}.yaml", "application/yaml")


@router.get("/studies/drafts/{identity}/study.yaml")
async def draft_file(parts: ServicesDep, runner: Runner, identity: str) -> Response:
    """The study in a draft as a file."""
    form = builder.read_draft(await _load(parts, runner.id, identity))
    if form.record is None:
        field, problem = next(iter(form.problems.items()))
        raise InvalidValueError(f"the draft is not complete: {problem}", field=field)
    return _file(form.record)


@router.get("/studies/{name}/study.yaml")
async def study_file(parts: ServicesDep, _: Reader, name: str) -> Response:
    """An open study as a file."""
    async with parts.database.read() as connection:
        return _file(studies.settings_of(await studies.by_name(connection, name)))


@router.post("/studies/{name}/try")
async def try_study(parts: ServicesDep, runner: Runner, name: str) -> Response:
    """Begins a trial of a study, in which the researcher is the participant."""
    async with parts.database.read() as connection:
        study = studies.settings_of(await studies.by_name(connection, name))
    await trials.begin(parts.database, parts.settings, study, runner.id, f"/studies/{name}")
    return RedirectResponse("/study", 303)


@router.post("/studies/{name}/edit")
async def edit(parts: ServicesDep, runner: Runner, name: str) -> Response:
    """Begins a draft that changes a study."""
    async with parts.database.read() as connection:
        row = await studies.by_name(connection, name)
    about = {f"{DRAFT}study": row.id, f"{DRAFT}base": changing.version(row.settings)}
    return await _begin(parts, runner.id, builder.draft_of(studies.settings_of(row)) | about)


@router.post("/studies/{name}/copy")
async def copy(parts: ServicesDep, runner: Runner, name: str) -> Response:
    """Begins a draft with the settings of a study."""
    async with parts.database.read() as connection:
        study = studies.settings_of(await studies.by_name(connection, name))
    return await _begin(parts, runner.id, builder.draft_of(study) | {"name": ""})
