"""Drafts of simulations: written by a language model from one sentence and validated by the package."""

from __future__ import annotations

from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.concurrency.stopping import Stop
from sotopia_env.foundation.errors import InvalidValueError, SotopiaError
from sotopia_env.foundation.json_text import canonical_json
from sotopia_env.foundation.records import Record, read_record
from sotopia_env.naming.models import with_directories
from sotopia_env.writing.drafting import Drafter
from sotopia_env.writing.simulation import simulation_question
from sotopia_studio.settings import ServiceSettings
from sotopia_studio.store import jobs, tables
from sotopia_studio.store.engine import Database
from sotopia_studio.store.jobs import Job
from sotopia_studio.work import names

DRAFT = "draft"
"""The job that drafts simulations."""
_LONGEST, _MOST = 4_000, 8


class DraftSpec(Record):
    """A request for drafts.

    Attributes:
        text: the situation in a sentence.
        model: the language model that writes the drafts; by default the service's.
        n: number of drafts.
    """

    text: str
    model: str = ""
    n: int = 1


async def ask_to_draft(database: Database, settings: ServiceSettings, spec: DraftSpec) -> str:
    """Requests drafts and returns the id of the job.

    Raises:
        InvalidValueError: the text is empty or too long, the number is out of range, or no model is configured.
    """
    if not spec.text.strip() or len(spec.text) > _LONGEST:
        raise InvalidValueError(field="text", expected=f"1 to {_LONGEST} characters", got=len(spec.text))
    if not 1 <= spec.n <= _MOST:
        raise InvalidValueError(field="n", expected=f"1 to {_MOST}", got=spec.n)
    model = spec.model or settings.design_model or next(iter(settings.model_names), "")
    if not model:
        hint = "name one, or set design_model"
        raise InvalidValueError("no language model is configured", field="model", hint=hint)
    names.check(settings, [model])
    # Resolves the name only, so that an unknown model is refused now and not in a job that fails later.
    await names.checked(settings, lambda: with_directories(ModelPool(settings.models))(model))
    target = tables.new_id()
    async with database.write() as connection:
        await jobs.request(connection, DRAFT, target, spec.model_copy(update={"model": model}).model_dump_json())
    return f"{DRAFT}:{target}"


async def draft(settings: ServiceSettings, job: Job, stop: Stop) -> str:
    """Writes the drafts; returns JSON with ``drafts`` (contents of task files) and ``refused`` (reasons)."""
    spec = read_record(DraftSpec, job.payload, f"job {job.id}")
    models = ModelPool(settings.models)
    drafts, refused = [], []
    try:
        with names.meaning(settings):
            model = await names.built(lambda: with_directories(models)(spec.model))
        drafter = Drafter(model, stop=stop)
        for _ in range(spec.n):
            written = await drafter.ask(simulation_question(spec.text))
            if written is None:
                raise SotopiaError(f"{spec.model} gave no answer")
            if written.result is None:
                refused.append(written.refusal)
            else:
                drafts.append(written.result)
    finally:
        await models.close()
    return canonical_json({"drafts": drafts, "refused": refused})
