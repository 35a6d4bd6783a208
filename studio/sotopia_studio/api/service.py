"""The service itself: the available models and names, its health, and its metrics for Prometheus."""

from __future__ import annotations

import time
from typing import Literal

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest
from sqlalchemy import func, select

from sotopia_env import naming, tasks
from sotopia_env.foundation.versions import code_version
from sotopia_studio.api.bodies import Body, StrictRoute
from sotopia_studio.auth import Reader
from sotopia_studio.context import ServicesDep
from sotopia_studio.store import tables
from sotopia_studio.store.engine import UNREACHABLE

router = APIRouter(tags=["service"], route_class=StrictRoute)


class Choice(Body):
    """A policy that needs no language model."""

    name: str
    about: str


class Choices(Body):
    """The available names; keys and addresses of models are not shown."""

    models: list[str]
    policies: list[Choice]
    evaluators: list[str]
    tasks: list[str]
    plugins: dict[str, list[str]]


@router.get("/models")
async def models(parts: ServicesDep, _: Reader) -> Choices:
    """Lists the configured language models, and the names of policies, evaluators and tasks."""
    return Choices(
        models=list(parts.settings.model_names),
        policies=[Choice(name=line.name, about=line.about) for line in naming.described_policies()],
        evaluators=[*naming.EVALUATOR_NAMES, "facts", "judge:MODEL", "interview:MODEL", "spoken-outcome:MODEL"],
        tasks=[*naming.SHIPPED, "all", *tasks.FAMILIES],
        plugins={
            "policies": list(naming.POLICY_PLUGINS.names),
            "evaluators": list(naming.EVALUATOR_PLUGINS.names),
            "tasks": list(naming.TASK_PLUGINS.names),
        },
    )


class Health(Body):
    """The health of the service."""

    status: Literal["ok", "degraded", "down"]
    version: str
    database: Literal["ok", "down"]
    waiting: int | None


@router.get("/health", responses={503: {"model": Health, "description": "The database does not answer."}})
async def health(parts: ServicesDep, response: Response) -> Health:
    """Returns whether the database responds, and how many jobs have waited over ten seconds; needs no token."""
    row = tables.job.c
    late = select(func.count()).where(row.requests > row.done, row.not_before < time.time() - 10, row.worker == "")
    try:
        async with parts.database.read() as connection:
            waiting = int((await connection.execute(late)).scalar_one())
    except UNREACHABLE:
        response.status_code = 503
        return Health(status="down", version=code_version(), database="down", waiting=None)
    return Health(status="degraded" if waiting else "ok", version=code_version(), database="ok", waiting=waiting)


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(parts: ServicesDep, _: Reader) -> Response:
    """Returns counts of episodes, runs, jobs and watchers, and durations of requests, in Prometheus's text format."""
    # A registry for each request: the values come from the database and not from counters of this process.
    registry = CollectorRegistry()
    registry.register(parts.durations)
    counted = {
        "episodes": (tables.episode.c.status, Gauge("studio_episodes", "Episodes.", ["status"], registry=registry)),
        "runs": (tables.run.c.status, Gauge("studio_runs", "Batch runs.", ["status"], registry=registry)),
    }
    job = tables.job.c
    jobs = Gauge("studio_jobs", "Jobs that are not done yet.", ["kind"], registry=registry)
    spent = Gauge("studio_cost_dollars", "Known cost of batch runs, in US dollars.", registry=registry)
    watchers = Gauge("studio_watchers", "Streams of live episodes from this process.", registry=registry)
    async with parts.database.read() as connection:
        for status, gauge in counted.values():
            for name, number in await connection.execute(select(status, func.count()).group_by(status)):
                gauge.labels(name).set(number)
        due = select(job.kind, func.count()).where(job.requests > job.done).group_by(job.kind)
        for kind, number in await connection.execute(due):
            jobs.labels(kind).set(number)
        spent.set((await connection.execute(select(func.coalesce(func.sum(tables.run.c.cost), 0.0)))).scalar_one())
    watchers.set(parts.hub.watchers)
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
