"""The ledger of a run: calls, tokens and dollars per role, on disk, with limits checked before a request is sent.

The file is ``ledger.jsonl`` (an :class:`~sotopia_env.foundation.files.AppendOnlyFile`), written by one process at a
time. A note of every request is written before it is sent, and an entry with the same id when the call ends. If the
process is killed, a note may have no entry; it is then read as an *interrupted* call, whose last request may have been
billed.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Literal, Self

from pydantic import Field

from sotopia_env.chat_model.protocol import Role
from sotopia_env.chat_model.spending.budget import Budget
from sotopia_env.foundation.errors import InvalidValueError, Where
from sotopia_env.foundation.files import AppendOnlyFile
from sotopia_env.foundation.records import Record, read_record

logger = logging.getLogger(__name__)

LEDGER = "ledger.jsonl"
ROLES: tuple[Role, ...] = ("agent", "judge")
Outcome = Literal["answered", "too_long", "failed", "interrupted"]
"""The result of a call; see :class:`LedgerEntry`."""
_NOTE_START = b'{"sent":'
_DOUBTFUL_FIELDS = {"most_tokens", "most_cost"}


class LedgerEntry(Record):
    """One call.

    Attributes:
        role: the account of the call.
        spec: the model as the user named it.
        model: the name that the answering model reports; empty without an answer.
        outcome: ``answered``; ``too_long``: the conversation does not fit the model, which ends the call but does not
            count as a failure; ``failed``: the call failed for good, or the run was stopped during it; ``interrupted``:
            the process died during the call, and the result of its last request is unknown.
        prompt_tokens: the sum over all billed answers, usable or not; ``None`` if the server did not count one of them.
        completion_tokens: the same sum for the tokens of the answers.
        cost: the sum in US dollars; ``None`` if a price or a number of tokens is unknown.
        attempts: the number of requests sent; 0 for an answer from the cache.
        fallback: whether a declared fallback model answered.
        cached: whether the response cache answered.
        label: the caller's name for the question.
        call: the id of the call; empty if nothing was sent. Request n has the id ``CALL.n``, and is sent with the UUID
            that :func:`~sotopia_env.chat_model.transports.connections.request_id` derives from it.
        most_tokens: the maximum number of tokens in requests with an unknown number: those whose answer the server did
            not count, those without a complete answer, and, under a limit, the last request of an interrupted call.
            If the sum is ``None``, it includes the tokens that were counted.
        most_cost: the maximum cost of these requests in US dollars.
    """

    role: Role
    spec: str
    model: str = ""
    outcome: Outcome = "answered"
    prompt_tokens: int | None = Field(default=0, ge=0)
    completion_tokens: int | None = Field(default=0, ge=0)
    cost: float | None = Field(default=0.0, ge=0)
    attempts: int = Field(default=1, ge=0)
    fallback: bool = False
    cached: bool = False
    label: str = ""
    call: str = ""
    most_tokens: int = Field(default=0, ge=0)
    most_cost: float = Field(default=0.0, ge=0)


class RequestNote(Record):
    """A request that is about to be sent, and the usage of its call so far.

    Attributes:
        sent: the id of the call.
        role: the account of the call.
        spec: the model as the user named it.
        attempts: the number of requests of the call, including this one.
        prompt_tokens: the sum over the answers to earlier requests of the call.
        completion_tokens: the same sum for the tokens of the answers.
        cost: the same sum in US dollars.
        most_tokens: the maximum number of tokens in this request, under a limit, and in earlier requests without a
            complete answer.
        most_cost: the maximum cost of these requests in US dollars.
    """

    sent: str
    role: Role
    spec: str
    attempts: int = Field(default=1, ge=1)
    prompt_tokens: int | None = Field(default=0, ge=0)
    completion_tokens: int | None = Field(default=0, ge=0)
    cost: float | None = Field(default=0.0, ge=0)
    most_tokens: int = Field(default=0, ge=0)
    most_cost: float = Field(default=0.0, ge=0)

    def interrupted(self) -> LedgerEntry:
        """Returns the entry of the call for a ledger that holds only this note of it."""
        return LedgerEntry(outcome="interrupted", call=self.sent, **self.model_dump(exclude={"sent"}))


@dataclass(slots=True)
class Totals:
    """Sums over calls.

    Attributes:
        answered: calls with an answer, including those from the cache.
        failed: calls without an answer, except those with a conversation that was too long.
        too_long: calls whose conversation did not fit the model.
        interrupted: calls during which the process died.
        cached: answers from the cache.
        fallbacks: answers of a fallback model.
        attempts: requests; the last request of an interrupted call may not have been sent.
        failed_attempts: requests without a usable answer, except the last ones of interrupted calls.
        prompt_tokens: billed prompt tokens, as far as the servers counted them.
        completion_tokens: billed answer tokens, as far as the servers counted them.
        uncounted: billed calls with an unknown number of tokens, including interrupted ones.
        cost: the known part of the cost, in US dollars.
        unpriced: billed calls with an unknown cost, including interrupted ones.
        doubtful_tokens: the sum of ``most_tokens``; see :class:`LedgerEntry`.
        doubtful_cost: the sum of ``most_cost``, in US dollars.
        boundless_tokens: calls with an unknown number of tokens and without a maximum.
        boundless_cost: calls with an unknown cost and without a maximum.
    """

    answered: int = 0
    failed: int = 0
    cached: int = 0
    fallbacks: int = 0
    attempts: int = 0
    failed_attempts: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    unpriced: int = 0
    interrupted: int = 0
    doubtful_tokens: int = 0
    doubtful_cost: float = 0.0
    uncounted: int = 0
    too_long: int = 0
    boundless_tokens: int = 0
    boundless_cost: int = 0

    @property
    def tokens(self) -> int:
        """The sum of prompt and answer tokens, as far as the servers counted them."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def tokens_text(self) -> str:
        """The number of tokens as text, with its unknown part."""
        counted = f"{self.prompt_tokens} prompt and {self.completion_tokens} answer tokens"
        if not self.has_unknown_tokens:
            return counted
        most = "" if self.boundless_tokens else f", at most {self.doubtful_tokens}"
        unknown = f"{self.uncounted} calls of unknown length" if self.uncounted else "unknown"
        return f"{counted} + {unknown}{most}" if self.tokens else f"unknown tokens{most}"

    @property
    def cost_text(self) -> str:
        """The cost as text, with its unknown part."""
        if not self.has_unknown_cost:
            return f"${self.cost:.4f}"
        most = "" if self.boundless_cost else f", at most ${self.doubtful_cost:.4f}"
        unknown = f"{self.unpriced} calls of unknown cost" if self.unpriced else "unknown"
        return f"${self.cost:.4f} + {unknown}{most}" if self.cost else f"unknown{most}"

    @property
    def has_unknown_tokens(self) -> bool:
        """Whether the number of tokens in some requests is unknown."""
        return self.uncounted > 0 or self.doubtful_tokens > 0

    @property
    def has_unknown_cost(self) -> bool:
        """Whether the cost of some requests is unknown."""
        return self.unpriced > 0 or self.doubtful_cost > 0

    def add(self, entry: LedgerEntry) -> None:
        """Adds one call."""
        is_answered, is_interrupted = entry.outcome == "answered", entry.outcome == "interrupted"
        self.answered += is_answered
        self.failed += entry.outcome == "failed"
        self.too_long += entry.outcome == "too_long"
        self.interrupted += is_interrupted
        self.cached += entry.cached
        self.fallbacks += entry.fallback
        self.attempts += entry.attempts
        self.failed_attempts += entry.attempts - (is_interrupted or (is_answered and not entry.cached))
        self.doubtful_tokens += entry.most_tokens
        self.doubtful_cost += entry.most_cost
        self.prompt_tokens += entry.prompt_tokens or 0
        self.completion_tokens += entry.completion_tokens or 0
        # Without a limit, the note of an interrupted call does not contain the maximum usage of its last request.
        is_uncounted = entry.prompt_tokens is None or entry.completion_tokens is None or is_interrupted
        is_unpriced = entry.cost is None or is_interrupted
        self.uncounted += is_uncounted
        self.unpriced += is_unpriced
        self.boundless_tokens += is_uncounted and not entry.most_tokens
        self.boundless_cost += is_unpriced and not entry.most_cost
        self.cost += entry.cost or 0.0

    def __add__(self, other: Totals) -> Totals:
        return Totals(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(self)))


@dataclass
class Ledger:
    """Sums calls per role and records them; its budget refuses calls that could exceed a limit.

    Attributes:
        directory: the directory of ``ledger.jsonl``, whose entries are included in the sums; ``None`` for no file.
        max_cost: the limit in US dollars, over both roles and all earlier calls of the run.
        max_tokens: the limit in tokens, over both roles and all earlier calls of the run.
        repaired: the number of bytes removed from an incomplete last line.
        budget: the amounts spent and reserved; requests that may have been billed without an answer count as spent.

    Raises:
        InvalidValueError: a limit is not a positive number, or another process writes this ledger.
        DamagedRecordError: a line cannot be read.
    """

    directory: Path | None = None
    max_cost: float | None = None
    max_tokens: int | None = None
    repaired: int = field(default=0, init=False)
    budget: Budget = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.budget = Budget(self.max_cost, self.max_tokens)
        self._totals: dict[Role, Totals] = {role: Totals() for role in ROLES}
        self._answers: Counter[tuple[Role, str, str]] = Counter()
        self._file: AppendOnlyFile | None = None
        self._session, self._calls = secrets.token_hex(5), 0
        if self.directory is not None:
            self.open(self.directory)

    def open(self, directory: Path) -> None:
        """Opens ``ledger.jsonl`` in ``directory`` for writing, and adds its entries to the sums.

        Raises:
            InvalidValueError: another process writes this ledger.
            DamagedRecordError: a line cannot be read.
        """
        self.directory = Path(directory)
        path = self.directory / LEDGER
        _make_folder(path)
        self._file = AppendOnlyFile(path, exclusive=True)
        self.repaired = self._file.repaired
        if self.repaired:
            logger.warning("%s: removed an incomplete last line (%d bytes)", path, self.repaired)
        try:
            for entry in read_ledger(path):
                self._add(entry)
        except BaseException:
            self.close()
            raise

    def _add(self, entry: LedgerEntry, billed: bool = False) -> None:
        self._totals[entry.role].add(entry)
        if entry.model:
            self._answers[entry.role, entry.spec, entry.model] += 1
        # Entries read from disk have not been spent yet; those of calls in this process have (:meth:`Call.bill`).
        if not billed:
            if entry.prompt_tokens is not None and entry.completion_tokens is not None:
                self.budget.spend(entry.prompt_tokens + entry.completion_tokens, entry.cost)
            self.budget.spend(entry.most_tokens, entry.most_cost)

    def check(self) -> None:
        """Raises :class:`BudgetExceededError` if a limit is reached."""
        self.budget.check()

    def new_id(self) -> str:
        """Returns an id that is unique across all ledgers."""
        self._calls += 1
        return f"{self._session}-{self._calls}"

    def note(self, note: RequestNote) -> None:
        """Writes a note of a request that is about to be sent; after the return, it survives a kill of the process.

        Raises:
            SotopiaError: the file cannot be written.
        """
        if self._file is not None:
            self._file.append(note.model_dump_json(exclude_defaults=True).encode() + b"\n")

    def note_first(self, call: str, role: Role, model: str) -> None:
        """Does the same as :meth:`note` for the first request of a call without a limit."""
        # The common case: formatting the line is much faster than building and dumping a pydantic record.
        if self._file is not None:
            self._file.append(f'{{"sent":"{call}",{_account_json(role, model)}}}\n'.encode())

    def record(self, entry: LedgerEntry, *, billed: bool = False) -> None:
        """Adds one call; after the return, its entry survives a kill of the process.

        Args:
            entry: the call.
            billed: whether the budget already includes the usage of the call.

        Raises:
            SotopiaError: the file cannot be written.
        """
        self._add(entry, billed)
        if self._file is not None:
            exclude = None if entry.most_tokens or entry.most_cost else _DOUBTFUL_FIELDS  # nearly always zero
            self._file.append(entry.model_dump_json(exclude=exclude).encode() + b"\n")

    def totals(self, role: Role | None = None) -> Totals:
        """Returns a copy of the sums of one role, or of both."""
        return sum((self._totals[one] for one in ([role] if role else ROLES)), Totals())

    def answered(self) -> dict[str, dict[str, dict[str, int]]]:
        """Returns the number of calls by role, model as the user named it, and name and version that it reported."""
        counts: dict[str, dict[str, dict[str, int]]] = {}
        for (role, name, model), calls in sorted(self._answers.items()):
            counts.setdefault(role, {}).setdefault(name, {})[model] = calls
        return counts

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
        self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_ledger(path: str | Path) -> Iterator[LedgerEntry]:
    """Yields the calls in a ledger file, or in that of a run directory; an incomplete last line is skipped.

    Calls with a note but no entry come last, as interrupted; they may be in progress while the ledger is being written.

    Raises:
        InvalidValueError: the file does not exist.
        DamagedRecordError: a line cannot be read; the error names the file and the line.
    """
    file = Path(path) / LEDGER if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise InvalidValueError(expected="a ledger", where=file)
    open_calls: dict[str, RequestNote] = {}
    with file.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.endswith(b"\n"):
                break
            record = _read(line, Where(file, number))
            if isinstance(record, RequestNote):
                open_calls[record.sent] = record
                continue
            open_calls.pop(record.call, None)
            yield record
    for note in open_calls.values():
        yield note.interrupted()


def _read(line: bytes, where: Where) -> LedgerEntry | RequestNote:
    if line.startswith(_NOTE_START):
        return read_record(RequestNote, line, where)
    return read_record(LedgerEntry, line, where)


@lru_cache(maxsize=256)
def _account_json(role: Role, model: str) -> str:
    return f'"role":{json.dumps(role)},"spec":{json.dumps(model)}'


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidValueError(f"the file cannot be written ({error.strerror})", where=path) from None
