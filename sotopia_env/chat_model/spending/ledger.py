"""Who spent what: calls, tokens and dollars per role, on disk, with limits that hold before anything is sent.

On disk it is ``ledger.jsonl`` (:mod:`sotopia_env.append_only`), which one process at a time writes. Every request is
noted before it is sent, and the call is booked under the same id when it ends. So a process that is killed leaves
notes of the calls that were under way; whoever reads the ledger finds them as *interrupted*: their last request may
have been answered and paid for, or have got nowhere.
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
from types import TracebackType
from typing import Literal, Self

from pydantic import Field, ValidationError

from sotopia_env.chat_model.protocol import Role
from sotopia_env.chat_model.spending.budget import Budget
from sotopia_env.errors import DamagedRecordError, InvalidValueError
from sotopia_env.files import AppendOnlyFile
from sotopia_env.records import Record, explain

logger = logging.getLogger(__name__)

LEDGER = "ledger.jsonl"
ROLES: tuple[Role, ...] = ("agent", "judge")
_NOTE = b'{"sent":'
_UNDOUBTED = {"most_tokens", "most_cost"}


class LedgerEntry(Record):
    """One call.

    Attributes:
        role: on whose account.
        asked: the model as the user named it.
        model: the model as it answered; empty where none did.
        outcome: ``answered``; ``failed``: for good, or because the run was stopped while it was under way; or
            ``interrupted``: the process died while it was under way, and nobody knows what came of its last request.
        prompt_tokens: of every answer that was paid for, those that could not be used included.
        completion_tokens: likewise.
        cost: likewise, in US dollars; ``None`` when no price is known.
        attempts: requests that were sent; 0 for an answer from the cache.
        fallback: a declared fallback model answered.
        cached: the response cache answered.
        label: what the caller calls the question.
        call: id of the call; request n went out with the id ``CALL.n``. Empty where nothing was sent, or long ago.
        most_tokens: tokens that requests of which nobody knows whether they were billed may have used, where there was
            a limit: those that brought no whole answer, and the last one of an interrupted call.
        most_cost: US dollars, likewise.
    """

    role: Role
    asked: str
    model: str = ""
    outcome: Literal["answered", "failed", "interrupted"] = "answered"
    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)
    cost: float | None = Field(default=0.0, ge=0)
    attempts: int = Field(default=1, ge=0)
    fallback: bool = False
    cached: bool = False
    label: str = ""
    call: str = ""
    most_tokens: int = Field(default=0, ge=0)
    most_cost: float = Field(default=0.0, ge=0)


class Sent(Record):
    """A request that is about to be sent, and what the call has used until then.

    Attributes:
        sent: id of the call.
        role: on whose account.
        asked: the model as the user named it.
        attempts: requests of the call, this one included.
        prompt_tokens: of its earlier requests, as far as they were answered.
        completion_tokens: likewise.
        cost: likewise.
        most_tokens: what this request may use, where there is a limit, and doubtful ones before it.
        most_cost: likewise, in US dollars.
    """

    sent: str
    role: Role
    asked: str
    attempts: int = Field(default=1, ge=1)
    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)
    cost: float | None = Field(default=0.0, ge=0)
    most_tokens: int = Field(default=0, ge=0)
    most_cost: float = Field(default=0.0, ge=0)

    def interrupted(self) -> LedgerEntry:
        """Returns what the call is when nothing more is known of it."""
        return LedgerEntry(outcome="interrupted", call=self.sent, **self.model_dump(exclude={"sent"}))


@dataclass(slots=True)
class Totals:
    """Sums over calls.

    Attributes:
        answered: calls that brought an answer, those from the cache included.
        failed: calls that did not.
        interrupted: calls that were under way when the process died.
        cached: answers from the cache.
        fallbacks: answers of a fallback model.
        attempts: requests that were sent; of the last one of each interrupted call that is not certain.
        failed_attempts: of these, how many brought no usable answer; the last of interrupted calls are not among them.
        prompt_tokens: paid for.
        completion_tokens: paid for.
        cost: known part, in US dollars.
        unpriced: calls that were paid for at a price nobody knows.
        doubtful_tokens: what requests without a whole answer may have used beyond that, where there was a limit.
        doubtful_cost: likewise, in US dollars.
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

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def cost_text(self) -> str:
        """The cost in words; what is unknown is called unknown."""
        if not self.unpriced:
            return f"${self.cost:.4f}"
        return f"${self.cost:.4f} + {self.unpriced} calls of unknown price" if self.cost else "unknown"

    def add(self, entry: LedgerEntry) -> None:
        """Adds one call."""
        answered = entry.outcome == "answered"
        self.answered += answered
        interrupted = entry.outcome == "interrupted"
        self.failed += entry.outcome == "failed"
        self.interrupted += interrupted
        self.cached += entry.cached
        self.fallbacks += entry.fallback
        self.attempts += entry.attempts
        self.failed_attempts += entry.attempts - (interrupted or (answered and not entry.cached))
        self.doubtful_tokens += entry.most_tokens
        self.doubtful_cost += entry.most_cost
        self.prompt_tokens += entry.prompt_tokens
        self.completion_tokens += entry.completion_tokens
        if entry.cost is None:
            self.unpriced += 1
        else:
            self.cost += entry.cost

    def __add__(self, other: Totals) -> Totals:
        return Totals(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(self)))


@dataclass
class Ledger:
    """Sums calls per role and writes them down; its budget refuses new ones where they could pass a limit.

    Attributes:
        directory: where ``ledger.jsonl`` lies; its sums are taken up. ``None`` keeps nothing.
        max_cost: US dollars, over both roles and every earlier part of the run.
        max_tokens: tokens, likewise.
        repaired: bytes of a last line that had been cut short and were removed.
        budget: what is spent and reserved; what may have been billed without an answer counts as spent.

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
        self._answered: Counter[tuple[Role, str, str]] = Counter()
        self._file: AppendOnlyFile | None = None
        self._session, self._calls = secrets.token_hex(5), 0
        if self.directory is not None:
            self.open(self.directory)

    def open(self, directory: Path) -> None:
        """Writes ``ledger.jsonl`` in ``directory`` from now on, and takes up the sums of what it holds.

        Raises:
            InvalidValueError: another process writes it.
            DamagedRecordError: a line cannot be read.
        """
        self.directory = Path(directory)
        self._take_up(self.directory / LEDGER)

    def _take_up(self, path: Path) -> None:
        _make_folder(path)
        self._file = AppendOnlyFile(path, exclusive=True)
        self.repaired = self._file.repaired
        if self.repaired:
            logger.warning("%s: removed a last line that had been cut short (%d bytes)", path, self.repaired)
        try:
            for entry in read_ledger(path):
                self._add(entry)
        except BaseException:
            self.close()
            raise

    def _add(self, entry: LedgerEntry, billed: bool = False) -> None:
        self._totals[entry.role].add(entry)
        if entry.model:
            self._answered[entry.role, entry.asked, entry.model] += 1
        if not billed:
            self.budget.spend(entry.prompt_tokens + entry.completion_tokens, entry.cost)
            self.budget.spend(entry.most_tokens, entry.most_cost)

    def check(self) -> None:
        """Raises :class:`BudgetExceededError` if a limit is reached."""
        self.budget.check()

    def new_id(self) -> str:
        """Returns an id that no other call has, in this ledger or another."""
        self._calls += 1
        return f"{self._session}-{self._calls}"

    def note(self, sent: Sent) -> None:
        """Notes that a request is about to be sent; that is safe from the death of the process when this returns.

        Raises:
            SotopiaError: it cannot be written.
        """
        if self._file is not None:
            self._file.append(sent.model_dump_json(exclude_defaults=True).encode() + b"\n")

    def note_first(self, call: str, role: Role, asked: str) -> None:
        """Notes the first request of a call, of which nothing else is to be said: by far the most."""
        if self._file is not None:
            self._file.append(f'{{"sent":"{call}",{_who(role, asked)}}}\n'.encode())

    def record(self, entry: LedgerEntry, *, billed: bool = False) -> None:
        """Adds one call; it is safe from the death of the process when this returns.

        Args:
            entry: the call.
            billed: whether the budget was told already what it used.

        Raises:
            SotopiaError: it cannot be written.
        """
        self._add(entry, billed)
        if self._file is not None:
            unsaid = None if entry.most_tokens or entry.most_cost else _UNDOUBTED  # as it is nearly always
            self._file.append(entry.model_dump_json(exclude=unsaid).encode() + b"\n")

    def totals(self, role: Role | None = None) -> Totals:
        """Returns a copy of the sums of one role, or of both."""
        return sum((self._totals[one] for one in ([role] if role else ROLES)), Totals())

    def answered(self) -> dict[str, dict[str, dict[str, int]]]:
        """Returns, by role and by the model as it was named, the name and version that answered, and how often."""
        found: dict[str, dict[str, dict[str, int]]] = {}
        for (role, asked, model), calls in sorted(self._answered.items()):
            found.setdefault(role, {}).setdefault(asked, {})[model] = calls
        return found

    def close(self) -> None:
        """Lets go of the file."""
        if self._file is not None:
            self._file.close()
        self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_ledger(path: str | Path) -> Iterator[LedgerEntry]:
    """Yields the calls in a ledger file, or in the one of a run directory; a line that is cut short is left out.

    Calls of which only the requests were noted come last: they are interrupted, or still under way if the ledger is
    being written.

    Raises:
        InvalidValueError: there is no such file.
        DamagedRecordError: names the file and line that cannot be read.
    """
    file = Path(path) / LEDGER if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise InvalidValueError(f"{file}: expected a ledger, found none")
    under_way: dict[str, Sent] = {}
    with file.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.endswith(b"\n"):
                break
            found = _read(line, f"{file}, line {number}")
            if isinstance(found, Sent):
                under_way[found.sent] = found
                continue
            under_way.pop(found.call, None)
            yield found
    for sent in under_way.values():
        yield sent.interrupted()


def _read(line: bytes, where: str) -> LedgerEntry | Sent:
    try:
        return (Sent if line.startswith(_NOTE) else LedgerEntry).model_validate_json(line)
    except ValidationError as error:
        raise DamagedRecordError(f"{where}: damaged record ({explain(error)})") from None


@lru_cache(maxsize=256)
def _who(role: Role, asked: str) -> str:
    return f'"role":{json.dumps(role)},"asked":{json.dumps(asked)}'


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidValueError(f"{path}: expected a file that can be written ({error.strerror})") from None
