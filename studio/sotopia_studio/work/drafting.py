"""Drafts of simulations: written by a language model from one sentence and validated by the package."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.concurrency.stopping import Stop
from sotopia_env.foundation.errors import InvalidValueError, SotopiaError
from sotopia_env.foundation.records import Record, read_record
from sotopia_env.naming.models import with_directories
from sotopia_env.writing.drafting import Drafter
from sotopia_env.writing.simulation import simulation_question
from sotopia_studio.settings import ServiceSettings
from sotopia_studio.store import jobs, tables
from sotopia_studio.store.engine import Database, cancel
from sotopia_studio.store.jobs import Job
from sotopia_studio.work import names

DRAFT = "draft"
"""The job that drafts simulations."""
_LONGEST, _MOST = 4_000, 8
_LOOK = 0.5
"""Seconds between two notes of the progress of a job, and between two looks for a request to stop it."""


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


class DraftResult(Record):
    """What a job has drafted so far.

    Attributes:
        drafts: contents of task files.
        refused: why other drafts were not accepted.
        step: what it is doing, in words; empty at its end.
        stopped: whether it was stopped before its end.
    """

    drafts: tuple[dict[str, Any], ...] = ()
    refused: tuple[str, ...] = ()
    step: str = ""
    stopped: bool = False


@dataclass
class _Draft:
    """The drafts of a job, which its progress reads while they are written."""

    spec: DraftSpec
    result: DraftResult = field(default_factory=DraftResult)

    def note(self, refused: int, reason: str) -> None:
        """Notes a request of a draft, and why the answer before it was refused."""
        number = len(self.result.drafts) + len(self.result.refused) + 1
        step = f"{self.spec.model} is writing draft {number} of {self.spec.n}"
        again = f", once more since an answer was refused ({reason[:300]})" if refused else ""
        self.result = self.result.model_copy(update={"step": step + again})

    async def write(self, settings: ServiceSettings, stop: Stop) -> None:
        """Writes the drafts.

        Raises:
            SotopiaError: the model gives no answer.
        """
        models = ModelPool(settings.models)
        self.result = DraftResult(step=f"{self.spec.model} is being prepared")
        try:
            with names.meaning(settings):
                model = await names.built(lambda: with_directories(models)(self.spec.model))
            drafter = Drafter(model, stop=stop, watch=self.note)
            for _ in range(self.spec.n):
                written = await drafter.ask(simulation_question(self.spec.text))
                if written is None:
                    raise SotopiaError(f"{self.spec.model} gave no answer")
                drafts, refused = self.result.drafts, self.result.refused
                if written.result is None:
                    refused = (*refused, written.refusal)
                else:
                    drafts = (*drafts, dict(written.result))
                self.result = DraftResult(drafts=drafts, refused=refused, step=self.result.step)
        finally:
            await models.close()


async def draft(settings: ServiceSettings, database: Database, job: Job, stop: Stop) -> str:
    """Writes the drafts; returns a :class:`DraftResult` as JSON, which is also there while it works."""
    work = _Draft(read_record(DraftSpec, job.payload, f"job {job.id}"))
    writing, noted = asyncio.create_task(work.write(settings, stop)), ""
    try:
        while not writing.done():
            async with database.write() as connection:
                if await jobs.is_asked_to_stop(connection, job):
                    stop.ask("a stop was requested")
                if (text := work.result.model_dump_json()) != noted:
                    noted = text
                    await jobs.note(connection, job, text)
            if stop.reason:
                break
            await asyncio.wait([writing], timeout=_LOOK)
        if not stop.reason:
            writing.result()
    finally:
        await cancel(writing)
    return work.result.model_copy(update={"step": "", "stopped": bool(stop.reason)}).model_dump_json()
