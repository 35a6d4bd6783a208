"""The pages of participants and annotators, without navigation and without other people's data."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

from fastapi import APIRouter, Depends, Form, Query, Request
from fastapi.responses import RedirectResponse, Response
from starlette.requests import HTTPConnection

from sotopia_env.foundation.json_text import parse_json
from sotopia_env.people.studies.design import make_tasks
from sotopia_env.people.studies.forms import Answers, read_form
from sotopia_env.people.studies.settings import PlayStudy
from sotopia_studio import auth
from sotopia_studio.auth import Principal, Runner
from sotopia_studio.context import Services, ServicesDep, public_address, services
from sotopia_studio.pages.editing import Fields, seconds_since
from sotopia_studio.pages.rendering import render
from sotopia_studio.problems import ConflictError, ForbiddenError, UnauthorizedError
from sotopia_studio.store import drafts, episodes, studies
from sotopia_studio.studies import flow, opening, trials
from sotopia_studio.studies.flow import Step

router = APIRouter()
_BACK = RedirectResponse("/study", 303)


async def person_of(connection: HTTPConnection) -> Principal:
    """A dependency that admits only participants, and a researcher as the participant of a trial."""
    principal = await auth.principal_of(connection)
    if principal is None:
        raise UnauthorizedError("your link opens this page; open it again, or ask for a new one")
    async with services(connection).database.read() as database:
        principal, connection.state.trial = await trials.participation(database, principal)
    if principal.role not in ("participant", "annotator"):
        raise ForbiddenError("this page is a participant's; open the study's link in another browser")
    return principal


Person = Annotated[Principal, Depends(person_of)]


@router.get("/p/{secret}")
async def invitation(request: Request, parts: ServicesDep, secret: str) -> Response:
    """The page behind a personal link; opening it does not claim the link, so no scanner uses it up."""
    async with parts.database.read() as connection:
        await opening.check_link(connection, secret)
    return render(request, "study_invitation.html", secret=secret)


@router.post("/p/{secret}")
async def claim(request: Request, parts: ServicesDep, secret: str) -> Response:
    """Claims a personal link for this browser."""
    async with parts.database.write() as connection:
        session = await opening.claim(connection, secret)
    return auth.session_response(request, session, "/study")


@router.get("/join/{name}")
async def welcome(
    request: Request,
    parts: ServicesDep,
    name: str,
    person: Annotated[str, Query(alias="PROLIFIC_PID", max_length=200)] = "",
    panel_study: Annotated[str, Query(alias="STUDY_ID", max_length=200)] = "",
    panel_session: Annotated[str, Query(alias="SESSION_ID", max_length=200)] = "",
) -> Response:
    """The page behind a study's own address; a panel adds its ids for the person, the study and the session."""
    async with parts.database.read() as connection:
        study = await studies.by_name(connection, name)
    settings = parse_json(study.settings, f"study {study.name}")
    if not settings["open"]:
        raise ForbiddenError("this study is open to people with a personal link only")
    panel = {"person": person, "panel_study": panel_study, "panel_session": panel_session}
    return render(request, "study_welcome.html", study=settings, panel=panel)


@router.post("/join/{name}")
async def join(
    request: Request,
    parts: ServicesDep,
    name: str,
    person: Annotated[str, Form(max_length=200)] = "",
    panel_study: Annotated[str, Form(max_length=200)] = "",
    panel_session: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Starts or continues a participation."""
    async with parts.database.write() as connection:
        study = await studies.by_name(connection, name)
        if not parse_json(study.settings, f"study {study.name}")["open"]:
            raise ForbiddenError("this study is open to people with a personal link only")
        panel = {"panel_study": panel_study, "panel_session": panel_session}
        session = await opening.join(connection, study, person, panel)
    return auth.session_response(request, session, "/study")


async def _step(parts: Services, person: Principal) -> Step:
    async with parts.database.read() as connection:
        study = await flow.study_of_person(connection, person.id)
    if isinstance(study, PlayStudy):  # nobody waits for this transaction, as they would for the next one
        await asyncio.to_thread(make_tasks, study)
    async with parts.database.write() as connection:
        return await flow.next_step(connection, person.id)


@router.get("/study")
async def page(request: Request, parts: ServicesDep, person: Person) -> Response:
    """The participant's current step, or the seat of a person who is not in a study."""
    if not person.study:
        async with parts.database.read() as connection:
            episode, agent = await episodes.seat_of(connection, person.id)
        return RedirectResponse(f"/seat/{episode}/{agent}", 303)
    step = await _step(parts, person)
    if step.kind == "seat":
        return RedirectResponse(f"/seat/{step.details['episode']}/{step.details['agent']}", 303)
    form = _form_name(step)
    async with parts.database.read() as connection:
        draft = await drafts.load(connection, person.id, form)
    return _show(request, step, Answers({}, {}, draft))


def _form_name(step: Step) -> str:
    return f"{step.kind}:{step.assignment.id if step.assignment is not None else ''}"


def _show(request: Request, step: Step, answers: Answers, status: int = 200) -> Response:
    return render(
        request,
        f"study_{step.kind}.html",
        status,
        step=step,
        study=step.study,
        answers=answers,
        form=_form_name(step),
        now=time.time(),
        code=step.study.codes.of(step.person.state),
        finished=studies.answers_of(step.person),
    )


@router.post("/study/draft")
async def keep_draft(parts: ServicesDep, person: Person, fields: Fields) -> Response:
    """Saves the draft of a form."""
    form = fields.pop("form", "")
    if form == _form_name(await _step(parts, person)):  # else it would be kept for ever
        async with parts.database.write() as connection:
            await drafts.save(connection, person.id, form, fields)
    return Response(status_code=204)


@router.post("/study/consent")
async def consent(request: Request, parts: ServicesDep, person: Person, fields: Fields) -> Response:
    """Records whether the participant consents."""
    step = await _step(parts, person)
    # Sent twice, or from an old page: the current step is shown instead.
    if step.kind != "consent":
        return _BACK
    agreed = "declined" not in fields
    answers = read_form(step.sections, fields)
    if agreed and answers.problems:
        return _show(request, step, answers, 422)
    async with parts.database.write() as connection:
        await flow.consent(connection, person.id, agreed)
    return _BACK


@router.post("/study/begin")
async def begin(parts: ServicesDep, person: Person) -> Response:
    """Records that the instructions were read."""
    async with parts.database.write() as connection:
        await flow.begin(connection, person.id)
    return _BACK


@router.post("/study/leave")
async def leave(parts: ServicesDep, person: Person) -> Response:
    """Ends a participation early."""
    async with parts.database.write() as connection:
        await flow.leave(connection, person.id)
    return _BACK


@router.post("/study/rating")
@router.post("/study/interview")
async def rate(request: Request, parts: ServicesDep, person: Person, fields: Fields) -> Response:
    """Records the answers about one item, or about a conversation."""
    step = await _step(parts, person)
    if step.kind not in ("rating", "interview") or fields.get("assignment") != step.assignment.id:
        raise ConflictError("this was sent before, or its time was up; reload the page for the next step")
    answers = read_form(step.sections, fields)
    if answers.problems:
        return _show(request, step, answers, 422)
    seconds = seconds_since(fields.get("opened", ""))
    async with parts.database.write() as connection:
        await flow.submit(connection, person.id, step.assignment.id, dict(answers.values), seconds)
        await drafts.clear(connection, person.id, _form_name(step))
    return _BACK


@router.post("/study/questionnaire")
async def questionnaire(request: Request, parts: ServicesDep, person: Person, fields: Fields) -> Response:
    """Records the answers to the questionnaire."""
    step = await _step(parts, person)
    if step.kind != "questionnaire":
        return _BACK
    answers = read_form(step.sections, fields)
    if answers.problems:
        return _show(request, step, answers, 422)
    async with parts.database.write() as connection:
        await flow.answer(connection, person.id, dict(answers.values))
        await drafts.clear(connection, person.id, _form_name(step))
    return _BACK


@router.post("/study/device")
async def other_device(request: Request, parts: ServicesDep, person: Person) -> Response:
    """Shows a link for continuing on another device."""
    async with parts.database.write() as connection:
        link = await opening.new_link(connection, person.id)
    return render(request, "study_device.html", link=f"{public_address(request)}/p/{link}")


# --- trials -------------------------------------------------------------------------------------------------------


@router.post("/study/trial/program")
async def let_a_program_answer(parts: ServicesDep, runner: Runner) -> Response:
    """Lets a program take the seats of other participants in one's own trial."""
    await trials.stand_in(parts.database, parts.settings, runner.id)
    return _BACK


@router.post("/study/trial/second")
async def take_the_second_seat(request: Request, parts: ServicesDep, runner: Runner, _: Person) -> Response:
    """Shows a link for the other seat of one's own trial."""
    async with parts.database.write() as connection:
        link = await trials.second_seat(connection, runner.id)
    return render(request, "study_device.html", link=f"{public_address(request)}/p/{link}")


@router.post("/study/trial/end")
async def end_trial(request: Request, parts: ServicesDep, runner: Runner, _: Person) -> Response:
    """Ends one's own trial and deletes all that came of it."""
    trial: trials.Trial | None = request.state.trial
    async with parts.database.write() as connection:
        await trials.remove(connection, runner.id)
    return RedirectResponse(trial.back if trial else "/studies", 303)
