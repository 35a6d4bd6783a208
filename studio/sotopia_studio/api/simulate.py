"""Simulations: live episodes, evaluations, interviews, drafts, and the state of their jobs."""

from __future__ import annotations

import asyncio
from itertools import cycle
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import ConfigDict, Field, StringConstraints
from pydantic.config import JsonDict
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.naming import POLICY_NAMES
from sotopia_env.people.seat.assistance import Assistance
from sotopia_env.runs.forecast import CallCounter, RunForecast, StandInModels
from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.world import Rules, Task
from sotopia_env.world.reward import CustomDimension
from sotopia_env.world.taskset import seat_characters
from sotopia_studio import live
from sotopia_studio.api.bodies import Body, StrictRoute
from sotopia_studio.auth import Principal, Reader, Runner
from sotopia_studio.context import Services, ServicesDep, public_address
from sotopia_studio.problems import LimitError
from sotopia_studio.settings import ServiceSettings
from sotopia_studio.store import episode_lists, episodes, events, jobs, library, studies
from sotopia_studio.store.episode_lists import EpisodeFilter
from sotopia_studio.store.episodes import PERSON
from sotopia_studio.store.event_records import LiveSpec
from sotopia_studio.store.jobs import JobState
from sotopia_studio.store.kinds import DIMENSION_LISTS, SCENARIOS, TASKS
from sotopia_studio.studies import opening
from sotopia_studio.work import names
from sotopia_studio.work.drafting import DraftSpec, ask_to_draft
from sotopia_studio.work.evaluating import EvaluationSpec, ask_to_evaluate

LINK = "link"
"""The value in place of a policy for the seat of a person who gets a personal link to it."""
router = APIRouter(tags=["simulations"], route_class=StrictRoute)
_EXAMPLES: JsonDict = {
    "examples": [
        {
            "scenario": "1a2b3c4d",
            "agents": ["5e6f7a8b", "9c0d1e2f"],
            "policies": ["human", "boulware"],
            "rules": {"max_turns": 10},
            "evaluator": "verified",
            "tag": "pilot",
        }
    ]
}


class Simulation(Body):
    """A simulation of a task, of a task in the library, or of a scenario with a character for each seat."""

    model_config = ConfigDict(json_schema_extra=_EXAMPLES)

    task: str | Task | None = Field(default=None, description="A task, or its id.")
    scenario: str | None = Field(default=None, description="Id of a scenario, instead of a task.")
    agents: list[str] = Field(default=[], max_length=64, description="Ids of characters, one for each seat.")
    policies: list[str] = Field(
        min_length=1,
        max_length=64,
        description="One for each seat, or one for all; `human` waits for a person, `link` for one who gets a link.",
    )
    rules: Rules | None = None
    evaluator: str | None = Field(
        default=None, description="The evaluator; by default that of the service, `none` for no evaluation."
    )
    dimensions: str | None = Field(default=None, description="Id of a list of your own dimensions, for a judge.")
    manner: dict[str, float | int | str] = Field(default={}, description="Settings of models, such as temperature.")
    repeats: int = Field(default=1, ge=1, le=100)
    seed: int = Field(default=0, ge=0, le=2**48 - 1)
    turn_seconds: float | None = Field(
        default=None, gt=0, le=1e7, description="The time limit of a person's turn, in seconds."
    )
    on_timeout: Literal["none", "leave"] = "leave"
    tag: str = Field(default="", max_length=80)
    assistants: dict[str, Assistance] = Field(
        default={},
        description="Agent id of a person's seat to the policy that helps them, seen by nobody else.",
    )


class SeatLink(Body):
    """A personal link to a seat; it is shown once, and one browser can claim it."""

    episode: str
    agent: str
    character: str = Field(description="Name of the character in the seat.")
    address: str


class Begun(Body):
    """The episodes that were started."""

    episodes: list[str]
    links: list[SeatLink] = Field(default=[], description="One link for each seat whose policy is `link`.")


class Forecast(Body):
    """A forecast of the requests to models and their cost; no episode was started."""

    lines: list[str]
    episodes: int
    cost_low: float | None = Field(description="Minimum cost in US dollars; null if unknown.")
    cost_high: float | None = Field(description="Maximum cost in US dollars; null if unknown or unbounded.")


def as_forecast(forecast: RunForecast) -> Forecast:
    """Returns a forecast as an answer."""
    low = [row.cost for row in forecast.models]
    high = [row.most_cost for row in forecast.models]
    return Forecast(
        lines=forecast.lines(),
        episodes=forecast.todo,
        cost_low=None if None in low else sum(filter(None, low)),
        cost_high=None if None in high else sum(filter(None, high)),
    )


async def task_of(connection: AsyncConnection, simulation: Simulation) -> Task:
    """Returns the task of a simulation.

    Raises:
        MissingError: a scenario, character or task is not in the library.
        InvalidValueError: not exactly one of task and scenario is given, or the characters do not fit the seats.
    """
    if (simulation.task is None) == (simulation.scenario is None):
        raise InvalidValueError(field="task", expected="a task, or a scenario with agents")
    if isinstance(simulation.task, Task):
        return simulation.task
    if simulation.task is not None:
        return (await library.get(connection, TASKS, simulation.task)).read()
    assert simulation.scenario is not None
    scenario = (await library.get(connection, SCENARIOS, simulation.scenario)).read()
    if len(simulation.agents) != len(scenario.seats):
        expected = f"{len(scenario.seats)}, one for each seat of the scenario"
        raise InvalidValueError(field="agents", expected=expected, got=len(simulation.agents))
    if len(set(simulation.agents)) < len(simulation.agents):
        raise InvalidValueError("a character cannot have two seats", field="agents")
    cast = await library.cast_of(connection, simulation.agents)
    return seat_characters(scenario, cast, range(len(simulation.agents)), scenario.id)


async def _dimensions(connection: AsyncConnection, key: str | None) -> tuple[CustomDimension, ...]:
    return () if not key else (await library.get(connection, DIMENSION_LISTS, key)).read().dimensions


async def specs_of(parts: Services, simulation: Simulation) -> list[LiveSpec]:
    """Returns the episodes of a simulation, after checking all names and lengths.

    Raises:
        MissingError: an item is not in the library.
        InvalidValueError: the lists do not match the seats, or a name is not known.
    """
    async with parts.database.read() as connection:
        task = await task_of(connection, simulation)
        dimensions = await _dimensions(connection, simulation.dimensions)
    # Before any transaction that writes: others would wait for as long as names take to resolve.
    return await names.checked(parts.settings, lambda: _specs(parts.settings, simulation, task, dimensions))


def _specs(
    settings: ServiceSettings, simulation: Simulation, task: Task, dimensions: tuple[CustomDimension, ...]
) -> list[LiveSpec]:
    seats = len(task.agents)
    chosen = simulation.policies * seats if len(simulation.policies) == 1 else simulation.policies
    if len(chosen) != seats:
        raise InvalidValueError(field="policies", expected=f"1 or {seats}, one for each seat", got=len(chosen))
    evaluator = settings.evaluator if simulation.evaluator is None else simulation.evaluator
    evaluator = names.with_dimensions(settings, evaluator, dimensions)
    models = ModelPool(settings.models)
    chosen = [PERSON if name == LINK else name for name in chosen]
    seated = names.policies(settings, models, chosen, simulation.manner)
    people = [agent for agent, name in zip(task.agents, chosen, strict=True) if name == PERSON]
    for agent, assistance in simulation.assistants.items():
        if agent not in people:
            raise UnknownNameError("not a person's seat", field="assistants", got=agent, valid=people)
        names.policies(settings, models, [assistance.policy], simulation.manner)
    names.evaluator(settings, models, evaluator, seated)
    rules = simulation.rules or Rules()
    has_person = PERSON in chosen
    return [
        LiveSpec(
            task=task,
            rules=rules,
            # Repeats differ by their seeds, and each can be reproduced alone.
            seed=simulation.seed + repeat,
            policies=dict(zip(task.agents, chosen, strict=True)),
            evaluator=evaluator,
            manner=dict(simulation.manner),
            turn_seconds=simulation.turn_seconds or (settings.turn_seconds if has_person else None),
            on_timeout=simulation.on_timeout,
            tag=simulation.tag,
            assistants=dict(simulation.assistants),
        )
        for repeat in range(simulation.repeats)
    ]


async def begin_all(parts: Services, principal: Principal, simulation: Simulation) -> list[str]:
    """Starts the episodes of a simulation and returns their ids; also raises the errors of :func:`specs_of`.

    Raises:
        LimitError: the caller has the maximum number of live episodes.
    """
    specs = await specs_of(parts, simulation)
    async with parts.database.write() as connection:
        running = await episode_lists.count(connection, EpisodeFilter(owner=principal.id, status="open"))
        most = parts.settings.live_episodes
        if running + len(specs) > most:
            raise LimitError(
                f"at most {most} live episodes at once; {running} are open: wait, stop some, or start a run"
            )
        begun = []
        for spec in specs:
            invited = [agent for agent, name in zip(spec.task.agents, cycle(simulation.policies)) if name == LINK]
            guests = {agent: await studies.add_participant(connection, None) for agent in invited}
            begun.append(await live.begin(connection, spec, owner=principal.id, participants=guests))
    return begun


async def links_of(request: Request, connection: AsyncConnection, episode: str) -> list[SeatLink]:
    """Returns a new link for each seat of an episode to which a person is invited; earlier links expire."""
    links = []
    for agent, person in (await episodes.guests(connection, episode)).items():
        address = f"{public_address(request)}/p/{await opening.new_link(connection, person.id)}"
        links.append(SeatLink(episode=episode, agent=agent, character=person.character, address=address))
    return links


@router.post("/simulate", status_code=202, responses={200: {"model": Forecast, "description": "With `dry_run`."}})
async def simulate(
    parts: ServicesDep,
    principal: Runner,
    request: Request,
    response: Response,
    simulation: Simulation,
    dry_run: Annotated[bool, Query(description="Return a forecast of the cost without starting an episode.")] = False,
) -> Begun | Forecast:
    """Starts live episodes with any number of seats; a policy, a language model or a person takes each seat."""
    if dry_run:
        specs = await specs_of(parts, simulation)
        response.status_code = 200
        return as_forecast(await names.checked(parts.settings, lambda: _forecast(parts, specs)))
    begun = await begin_all(parts, principal, simulation)
    async with parts.database.write() as connection:
        links = [link for episode in begun for link in await links_of(request, connection, episode)]
    response.headers["Location"] = f"/api/v1/episodes/{begun[0]}"
    return Begun(episodes=begun, links=links)


@router.post("/episodes/{episode}/links")
async def new_links(parts: ServicesDep, _: Runner, request: Request, episode: str) -> list[SeatLink]:
    """Creates new links to the seats whose policy is `link`; earlier links expire, sessions do not."""
    async with parts.database.write() as connection:
        await events.row_of(connection, episode)
        return await links_of(request, connection, episode)


def _forecast(parts: Services, specs: list[LiveSpec]) -> RunForecast:
    """The forecast of live episodes; the turns of people cost nothing."""
    models = StandInModels(parts.settings.models)
    spec = specs[0]
    # An assistant is asked once for each turn of its person, as if it played itself.
    helpers = {agent: item.policy for agent, item in spec.assistants.items()}
    names_of_seats = [
        helpers.get(agent, POLICY_NAMES[0]) if name == PERSON else name for agent, name in spec.policies.items()
    ]
    policies = names.policies(parts.settings, models, names_of_seats, spec.manner)
    evaluator = names.evaluator(parts.settings, models, spec.evaluator, policies)
    plans = [EpisodePlan(one.task, tuple(policies), one.rules, one.seed) for one in specs]
    rows = asyncio.run(CallCounter(models).of_plans(plans, evaluator))
    return RunForecast(len(plans), len(plans), rows, models.options)


# --- jobs ---------------------------------------------------------------------------------------------------------
class JobBegun(Body):
    """The requested job; GET /jobs/{id} returns its state."""

    job: str


def job_answer(response: Response, job: str) -> JobBegun:
    """Returns the answer that names a job."""
    response.headers["Location"] = f"/api/v1/jobs/{job}"
    return JobBegun(job=job)


@router.get("/jobs/{job}")
async def job(parts: ServicesDep, _: Reader, job: str) -> JobState:
    """Returns the state of an evaluation, an interview or a draft; `result` is JSON text."""
    async with parts.database.read() as connection:
        return await jobs.state_of(connection, job)


@router.post("/jobs/{job}/stop", status_code=202)
async def stop_job(parts: ServicesDep, _: Runner, job: str) -> JobState:
    """Stops drafts or the evaluation of a run; what they have so far is kept."""
    async with parts.database.write() as connection:
        state = await jobs.state_of(connection, job)
        await jobs.ask_to_stop(connection, state.kind, state.target)
        return state


class NewEvaluation(Body):
    """The evaluator; `judge:MODEL` to score your own dimensions."""

    evaluator: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2000)] = Field(
        examples=["verified", "judge:local/my-model"]
    )
    dimensions: str | None = Field(default=None, description="Id of a list of your own dimensions.")


async def _evaluate(parts: Services, response: Response, evaluation: NewEvaluation, **target: str) -> JobBegun:
    async with parts.database.read() as connection:
        own = await _dimensions(connection, evaluation.dimensions)
    name = names.with_dimensions(parts.settings, evaluation.evaluator, own)
    spec = EvaluationSpec(evaluator=name, **target)
    return job_answer(response, await ask_to_evaluate(parts.database, parts.settings, spec))


@router.post("/episodes/{episode}/evaluations", status_code=202)
async def evaluate_episode(
    parts: ServicesDep, _: Runner, response: Response, episode: str, evaluation: NewEvaluation
) -> JobBegun:
    """Adds an evaluation to an ended episode; existing evaluations are kept."""
    return await _evaluate(parts, response, evaluation, episode=episode)


@router.post("/runs/{run}/evaluations", status_code=202)
async def evaluate_run(
    parts: ServicesDep, _: Runner, response: Response, run: str, evaluation: NewEvaluation
) -> JobBegun:
    """Adds an evaluation to all episodes of a run; existing evaluations are kept."""
    return await _evaluate(parts, response, evaluation, run=run)


class NewInterview(Body):
    """The respondents of an interview: the policies that played the episode, and judges that did not play."""

    judge: str = Field(default="", max_length=500, description="A language model that judges without having played.")
    interviewee: str = Field(default="", max_length=500, description="A policy that answers instead of the seats'.")


@router.post("/episodes/{episode}/interviews", status_code=202)
async def interview(parts: ServicesDep, _: Runner, response: Response, episode: str, body: NewInterview) -> JobBegun:
    """Interviews the seats of an ended episode; the answers are in the evaluation named `interview…` of its record."""
    name = f"interview:{body.judge}" if body.judge else "interview"
    name += f":interviewee={body.interviewee}" if body.interviewee else ""
    return await _evaluate(parts, response, NewEvaluation(evaluator=name), episode=episode)


class NewDraft(Body):
    """A request for drafts: the situation in a sentence."""

    text: str = Field(min_length=1, max_length=4000, examples=["Three flatmates decide who gets the large room."])
    model: str = Field(default="", max_length=500, description="By default the model of the service.")
    n: int = Field(default=1, ge=1, le=8)


@router.post("/design", status_code=202)
async def design(parts: ServicesDep, _: Runner, response: Response, body: NewDraft) -> JobBegun:
    """Drafts simulations from a sentence; the job's result has `drafts` and `refused`, and nothing is stored."""
    spec = DraftSpec(text=body.text, model=body.model, n=body.n)
    return job_answer(response, await ask_to_draft(parts.database, parts.settings, spec))
