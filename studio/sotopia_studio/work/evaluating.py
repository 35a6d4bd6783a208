"""Evaluations and interviews of ended episodes, with any evaluator, also on a researcher's own dimensions."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.concurrency.stopping import Stop
from sotopia_env.foundation.errors import EvaluationError, InvalidValueError
from sotopia_env.foundation.records import Record, read_record
from sotopia_env.foundation.waiting import wait
from sotopia_env.runs import evaluate_run
from sotopia_env.runs.play import evaluate_episode
from sotopia_env.storage.directory import check_run
from sotopia_env.storage.manifest import read_manifest
from sotopia_studio.problems import ConflictError
from sotopia_studio.settings import ServiceSettings
from sotopia_studio.store import episodes, events, jobs, runs, tables
from sotopia_studio.store.engine import Database
from sotopia_studio.store.jobs import Job
from sotopia_studio.work import names
from sotopia_studio.work.batch import index

EVALUATE = "evaluate"
"""The job that adds an evaluation to an episode or to all episodes of a run."""


class EvaluationSpec(Record):
    """A request for an evaluation of an episode or a run.

    Attributes:
        episode: id of the episode; empty for a run.
        run: id of the run; empty for an episode.
        evaluator: name of the evaluator.
    """

    episode: str = ""
    run: str = ""
    evaluator: str


async def ask_to_evaluate(database: Database, settings: ServiceSettings, spec: EvaluationSpec) -> str:
    """Requests an evaluation and returns the id of its job.

    Raises:
        MissingError: the episode or run does not exist, or the episode has not ended.
        InvalidValueError: the evaluator is unknown, or the run's directory is not there.
        ConflictError: the run was read from a file and has no directory.
    """
    checked = await names.checked(
        settings, lambda: names.evaluator(settings, ModelPool(settings.models), spec.evaluator)
    )
    if checked is None:
        raise InvalidValueError(field="evaluator", expected="an evaluator other than none", got=spec.evaluator)
    target = tables.new_id()
    async with database.write() as connection:
        if spec.episode:
            await episodes.line_of(connection, spec.episode)
        else:
            row = await runs.one(connection, spec.run)
            if not row.directory:
                raise ConflictError(f"run {spec.run} has no directory: evaluate its episodes one at a time")
            check_run(Path(row.directory))  # an imported one may have been moved since
        await jobs.request(connection, EVALUATE, target, spec.model_dump_json())
    return f"{EVALUATE}:{target}"


async def evaluate(settings: ServiceSettings, database: Database, job: Job, stop: Stop) -> None:
    """Carries out an evaluation."""
    spec = read_record(EvaluationSpec, job.payload, f"job {job.id}")
    models = ModelPool(settings.models)
    try:
        if spec.episode:
            await _evaluate_episode(settings, database, models, spec)
        else:
            await _evaluate_run(settings, database, models, spec, stop)
    finally:
        await models.close()


async def _evaluate_episode(
    settings: ServiceSettings, database: Database, models: ModelPool, spec: EvaluationSpec
) -> None:
    async with database.read() as connection:
        row = await events.row_of(connection, spec.episode)
        episode = await episodes.record_of(connection, spec.episode)
    evaluator = await names.built(lambda: names.evaluator(settings, models, spec.evaluator, episode.policies))
    assert evaluator is not None
    evaluated = await evaluate_episode(episode, evaluator)
    verdict = evaluated.evaluations[-1]
    async with database.write() as connection:
        # Another evaluation may have been recorded meanwhile: this one is added to the present record.
        row = await events.row_of(connection, spec.episode, lock=True)
        present = await episodes.record_of(connection, spec.episode)
        for evaluation in evaluated.evaluations:
            if evaluation not in present.evaluations:
                present = present.with_evaluation(evaluation)
        await episodes.replace_record(connection, spec.episode, present)
        await events.append(connection, spec.episode, row.events, [("evaluated", verdict.model_dump_json())])
    if verdict.unscored is not None:
        raise EvaluationError(verdict.unscored)


async def _evaluate_run(
    settings: ServiceSettings, database: Database, models: ModelPool, spec: EvaluationSpec, stop: Stop
) -> None:
    async with database.read() as connection:
        row = await runs.one(connection, spec.run)
    directory = Path(row.directory)
    seated = read_manifest(directory).config.policies
    evaluator = await names.built(lambda: names.evaluator(settings, models, spec.evaluator, seated))
    assert evaluator is not None
    # In a thread, because rules compute without a pause and would block the live episodes of this worker.
    await asyncio.to_thread(
        lambda: wait(evaluate_run(directory, evaluator, progress=False, stop=stop, ledger=models.ledger))
    )
    await index(database, spec.run, directory)
