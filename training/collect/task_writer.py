"""Scenarios written by a language model, one for each inspiration (SOTOPIA-π, arXiv 2403.08715, B.1).

An inspiration is a short phrase from some source, such as a collection of everyday norms. It is used once: every
request is recorded in ``scenarios.jsonl``, also a failed one, and later rounds skip its inspiration. Sources are used
evenly: the next inspiration is always one of the source with the fewest scenarios so far. An answer is read as one JSON
object and checked; a refused answer is requested again with the reason, and finally counted as failed. Nothing is
repaired.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sotopia_env.chat_model import ChatModel, ChatRequest
from sotopia_env.errors import (
    ContextLengthError,
    DamagedRecordError,
    InvalidValueError,
    ModelCallError,
    ModelRefusedError,
)
from sotopia_env.evaluators import Refusal, all_at_once, read_object
from sotopia_env.files import AppendOnlyFile, read_lines
from sotopia_env.json_text import decode_json
from sotopia_env.prompts import fill
from sotopia_env.records import Line, Record, explain, read_record
from sotopia_env.world import ChatMessage, Constraints, RelationshipKind, Scenario, Seat, disarm, quote
from training.prompts import load
from training.stage.settings import Settings

logger = logging.getLogger(__name__)
SCENARIOS = "scenarios.jsonl"
_ECHO = 4000
_NOBODY = re.compile(r"\b(agent|person|participant|character|player|speaker)[ _-]?([0-9]|[AB])\b", re.IGNORECASE)


class WriterSettings(Settings):
    """The writing model and its inspirations.

    Attributes:
        model: as ``PROVIDER/MODEL``.
        inspirations: files: ``.txt`` with one per line (the file's name is the source), or ``.jsonl`` of objects with
            ``source`` and ``text``.
        used: files of inspirations that are not used again, e.g. a ``scenarios.jsonl`` of an earlier round.
        temperature: of sampling.
        max_tokens: limit on an answer.
        reasks: number of further requests after a refused answer.
        concurrency: requests in progress at once.
    """

    model: str
    inspirations: tuple[str, ...] = Field(min_length=1)
    used: tuple[str, ...] = ()
    temperature: float = Field(default=1.0, ge=0, le=2)
    max_tokens: int | None = Field(default=1024, ge=1)
    reasks: int = Field(default=2, ge=0)
    concurrency: int = Field(default=16, ge=1)


@dataclass(frozen=True, slots=True, order=True)
class Inspiration:
    """A phrase and its source."""

    source: str
    text: str

    @property
    def key(self) -> str:
        """The phrase without differences in letter case and spacing."""
        return _plain(self.text)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


class Written(Record):
    """One request and its result; a line of ``scenarios.jsonl``.

    Attributes:
        source: of the inspiration; ``text`` is the phrase.
        scenario: the written scenario; ``None`` if no answer was acceptable.
        refusal: why the last answer was refused, if it was.
        reasks: number of further requests.
        model: name of the model in the server's answer.
    """

    source: str
    text: str
    scenario: Scenario | None = None
    refusal: str = ""
    reasks: int = 0
    model: str = ""


def read_inspirations(paths: Iterable[str | Path]) -> list[Inspiration]:
    """Returns the inspirations in files, each phrase once, in the files' order.

    Raises:
        InvalidValueError: a file cannot be read, or is neither ``.txt`` nor ``.jsonl``.
        DamagedRecordError: a line holds no inspiration.
    """
    inspirations: dict[str, Inspiration] = {}
    for path in map(Path, paths):
        if not path.is_file() or path.suffix not in (".txt", ".jsonl"):
            raise InvalidValueError(f"inspirations: expected a .txt or .jsonl file, got {path}")
        for origin, line in read_lines(path):
            item = Inspiration(path.stem, line.strip()) if path.suffix == ".txt" else _inspiration(origin, line)
            inspirations.setdefault(item.key, item)
    return list(inspirations.values())


def _inspiration(origin: str, line: str) -> Inspiration:
    try:
        item = decode_json(line)
        return Inspiration(str(item["source"]), str(item["text"]))
    except (ValueError, KeyError, TypeError):
        raise DamagedRecordError(f"{origin}: expected an object with source and text") from None


def unused(pool: Iterable[Inspiration], previous: Iterable[Inspiration]) -> list[Inspiration]:
    """Returns the inspirations of ``pool`` whose phrases are not in ``used``."""
    keys = {item.key for item in previous}
    return [item for item in pool if item.key not in keys]


# --- answers -----------------------------------------------------------------------------------------------------
class _Side(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    goal: Annotated[Line, Field(min_length=10, max_length=400)]
    private_info: Annotated[Line, Field(max_length=400)] = ""
    hint: Annotated[Line, Field(max_length=400)] = ""


class Draft(BaseModel):
    """A situation in the format that the model writes."""

    model_config = ConfigDict(extra="forbid")

    context: Annotated[Line, Field(min_length=40, max_length=1000)]
    seats: Annotated[tuple[_Side, ...], Field(min_length=2, max_length=2)]
    relationships: tuple[RelationshipKind, ...] = ()


_DRAFT_NAMES = (*Draft.model_fields, *_Side.model_fields, *(kind.value for kind in RelationshipKind))


def read_draft(text: str, previous: Mapping[str, str]) -> Draft | Refusal:
    """Returns the situation in an answer, or why it is refused.

    Args:
        text: of the answer.
        previous: contexts that must not be written again, in lower case with single spaces, with their origin.
    """
    item = read_object(text)
    if isinstance(item, Refusal):
        return item
    try:
        draft = Draft.model_validate(item)
    except ValidationError as error:
        return Refusal(explain(error, _DRAFT_NAMES))
    problem = _problem(draft, previous)
    return Refusal(problem) if problem else draft


def _problem(draft: Draft, previous: Mapping[str, str]) -> str:
    first, second = draft.seats
    if _plain(first.goal) == _plain(second.goal):
        return "seats: the two goals must be different"
    for text in (draft.context, *(part for side in draft.seats for part in (side.goal, side.private_info, side.hint))):
        if match := _NOBODY.search(text):
            return f"nobody has a name or a number: write who is meant by what they do, instead of {match.group()!r}"
    if _plain(draft.context) in previous:
        return f"context: this situation exists already ({previous[_plain(draft.context)]}); invent another one"
    return ""


def to_scenario(draft: Draft, inspiration: Inspiration) -> Scenario:
    """Returns the situation as a scenario; its id is fixed by the inspiration."""
    digest = hashlib.sha256(f"{inspiration.source}:{inspiration.key}".encode()).hexdigest()[:10]
    seats = [
        Seat(goals=(side.goal,), private_info=side.private_info, hints=(side.hint,) if side.hint.strip() else ())
        for side in draft.seats
    ]
    return Scenario(
        id=f"written-{digest}",
        context=draft.context,
        seats=tuple(seats),
        constraints=Constraints(relationships=tuple(dict.fromkeys(draft.relationships))),
        source=" ".join(inspiration.source.split()),
        tags=("written",),
    )


# --- questions -----------------------------------------------------------------------------------------------------
def question(inspiration: Inspiration) -> ChatMessage:
    """Returns the message that asks for a situation."""
    examples = "\n".join(
        json.dumps(Draft.model_validate(item).model_dump(mode="json"), ensure_ascii=False)
        for item in decode_json(load("task_situation_examples"))
    )
    kinds = ", ".join(kind.value for kind in RelationshipKind)
    text = fill(
        load("task_situation"),
        relationships=kinds,
        examples=examples,
        theme=quote(" ".join(inspiration.text.split())),
    )
    return {"role": "user", "content": text}


def _complaint(text: str, reason: str) -> list[ChatMessage]:
    echo = disarm(text if len(text) <= _ECHO else f"{text[:_ECHO]}…").strip() or "(no text)"
    request = fill(load("task_situation_reask"), reason=quote(reason[:500]))
    return [{"role": "assistant", "content": echo}, {"role": "user", "content": request}]


@dataclass
class TaskWriter:
    """Requests scenarios from a model.

    Attributes:
        model: the writing model.
        settings: of the requests.
        contexts: that must not be written again, with their origin; grows.
    """

    model: ChatModel
    settings: WriterSettings
    contexts: dict[str, str] = field(default_factory=dict)

    def exclude(self, scenarios: Iterable[Scenario]) -> None:
        """Excludes the contexts of these scenarios."""
        self.contexts.update({_plain(scenario.context): scenario.id for scenario in scenarios})

    async def write(self, n: int, folder: Path, seed: int) -> list[Written]:
        """Requests until there are ``n`` scenarios or all inspirations are used, and returns all requests.

        Requests of an earlier call in ``folder`` count, so the same call continues a killed one. A request without any
        answer does not use up its inspiration; the same call repeats it.

        Args:
            n: number of scenarios.
            folder: directory of ``scenarios.jsonl``, which gets a line for each answered request.
            seed: fixes the order of the inspirations.

        Raises:
            InvalidValueError: the inspirations cannot be read, or all are used.
            ModelRefusedError: the model refuses every request.
            BudgetExceededError: the ledger's limit is reached; answered requests stay on disk.
        """
        folder.mkdir(parents=True, exist_ok=True)
        with AppendOnlyFile(folder / SCENARIOS, exclusive=True) as file:
            records = read_written(folder / SCENARIOS)
            self.exclude(item.scenario for item in records if item.scenario is not None)
            waiting = self._waiting(records, seed)
            if not waiting and not records:
                raise InvalidValueError("inspirations: all have been used; give more, or other ones")
            while (missing := n - _scenarios(records)) > 0:
                batch = _evenly(waiting, Counter(item.source for item in records if item.scenario), missing)
                if not batch:
                    break
                records += await self._batch(batch, file)
        return sorted(records, key=lambda item: (item.source, item.text))

    def _waiting(self, records: Sequence[Written], seed: int) -> dict[str, list[Inspiration]]:
        """Unused inspirations by source, shuffled, the next one last."""
        fresh = unused(read_inspirations(self.settings.inspirations), read_inspirations(self.settings.used))
        by_source: dict[str, list[Inspiration]] = {}
        for item in sorted(fresh):
            by_source.setdefault(item.source, []).append(item)
        for source, items in by_source.items():
            # All are shuffled before the used ones are removed: a continued call has the order of an uninterrupted one.
            random.Random(f"{seed}:{source}").shuffle(items)
            by_source[source] = unused(items, [Inspiration(item.source, item.text) for item in records])
        return {source: items for source, items in by_source.items() if items}

    async def _batch(self, batch: Sequence[Inspiration], file: AppendOnlyFile) -> list[Written]:
        room = asyncio.Semaphore(self.settings.concurrency)

        async def one(inspiration: Inspiration) -> Written | None:
            async with room:
                written = await self._ask(inspiration)
            if written is not None:
                file.append(f"{written.model_dump_json()}\n".encode())
            return written

        return [item for item in await all_at_once([one(inspiration) for inspiration in batch]) if item is not None]

    async def _ask(self, inspiration: Inspiration) -> Written | None:
        """The result of one inspiration; ``None`` if the model could not be reached."""
        messages = [question(inspiration)]
        written = Written(source=inspiration.source, text=inspiration.text)
        for reasks in range(self.settings.reasks + 1):
            try:
                reply = await self.model.complete(self._request(messages, inspiration))
            except ModelRefusedError:
                raise  # every other request would be refused too
            except (ModelCallError, ContextLengthError) as error:
                logger.warning("inspiration %r got no answer: %s", inspiration.text, error)
                return None
            cut = reply.finish_reason == "length"
            draft = Refusal("the answer was cut off; be brief") if cut else read_draft(reply.text, self.contexts)
            written = written.model_copy(update={"reasks": reasks, "model": reply.model})
            if not isinstance(draft, Refusal):
                scenario = to_scenario(draft, inspiration)
                self.exclude([scenario])
                return written.model_copy(update={"scenario": scenario, "refusal": ""})
            written = written.model_copy(update={"refusal": draft.reason})
            messages = [messages[0], *_complaint(reply.text, draft.reason)]
        return written

    def _request(self, messages: Sequence[ChatMessage], inspiration: Inspiration) -> ChatRequest:
        schema: dict[str, Any] = Draft.model_json_schema()
        return ChatRequest(
            messages=tuple(messages),
            temperature=self.settings.temperature,
            max_tokens=self.settings.max_tokens,
            schema=schema,
            label=f"situation: {inspiration.text[:60]}",
        )


def _scenarios(records: Iterable[Written]) -> int:
    return sum(item.scenario is not None for item in records)


def _evenly(waiting: dict[str, list[Inspiration]], counts: Counter[str], n: int) -> list[Inspiration]:
    """Takes ``n`` inspirations out of ``waiting``, each from the source that has the fewest scenarios so far."""
    batch: list[Inspiration] = []
    expected = Counter(counts)
    while len(batch) < n and (sources := [source for source, items in waiting.items() if items]):
        source = min(sources, key=lambda name: (expected[name], name))
        batch.append(waiting[source].pop())
        expected[source] += 1
    return batch


def read_written(path: Path) -> list[Written]:
    """Returns the lines of a ``scenarios.jsonl``, none for a file that is not there.

    Raises:
        DamagedRecordError: a line cannot be read; says which.
    """
    records = []
    for origin, line in read_lines(path) if path.exists() else ():
        records.append(read_record(Written, line, origin))
    return records
