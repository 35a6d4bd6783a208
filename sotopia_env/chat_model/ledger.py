"""Who spent what: calls, tokens and dollars per role, on disk, with limits that hold before anything is sent.

On disk it is ``ledger.jsonl``, one line per call, appended with one ``write``: a line survives the death of the
process at any moment, ``kill -9`` included. A line that was cut short is removed when the ledger is opened again. One
process at a time writes a ledger (``flock``).
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from pydantic import Field, ValidationError

from sotopia_env.chat_model.protocol import Role
from sotopia_env.errors import BudgetExceededError, DamagedRecordError, InvalidValueError, SotopiaError
from sotopia_env.scenario import Record
from sotopia_env.taskset import explain

logger = logging.getLogger(__name__)

LEDGER = "ledger.jsonl"
ROLES: tuple[Role, ...] = ("agent", "judge")


class LedgerEntry(Record):
    """One call.

    Attributes:
        role: on whose account.
        asked: the model as the user named it.
        model: the model as it answered; empty where none did.
        outcome: ``answered``, or ``failed``: for good, or because the run was stopped while it was under way.
        prompt_tokens: of every answer that was paid for, those that could not be used included.
        completion_tokens: likewise.
        cost: likewise, in US dollars; ``None`` when no price is known.
        attempts: requests that were sent; 0 for an answer from the cache.
        fallback: a declared fallback model answered.
        cached: the response cache answered.
        label: what the caller calls the question.
    """

    role: Role
    asked: str
    model: str = ""
    outcome: Literal["answered", "failed"] = "answered"
    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)
    cost: float | None = Field(default=0.0, ge=0)
    attempts: int = Field(default=1, ge=0)
    fallback: bool = False
    cached: bool = False
    label: str = ""


@dataclass(slots=True)
class Totals:
    """Sums over calls.

    Attributes:
        answered: calls that brought an answer, those from the cache included.
        failed: calls that did not.
        cached: answers from the cache.
        fallbacks: answers of a fallback model.
        attempts: requests that were sent.
        failed_attempts: of these, how many brought no usable answer.
        prompt_tokens: paid for.
        completion_tokens: paid for.
        cost: known part, in US dollars.
        unpriced: calls that were paid for at a price nobody knows.
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
        self.failed += not answered
        self.cached += entry.cached
        self.fallbacks += entry.fallback
        self.attempts += entry.attempts
        self.failed_attempts += entry.attempts - (answered and not entry.cached)
        self.prompt_tokens += entry.prompt_tokens
        self.completion_tokens += entry.completion_tokens
        if entry.cost is None:
            self.unpriced += 1
        else:
            self.cost += entry.cost

    def __add__(self, other: Totals) -> Totals:
        return Totals(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(self)))


@dataclass(slots=True)
class Tally:
    """What one call has used so far, attempt by attempt."""

    attempts: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = 0.0

    def bill(self, prompt_tokens: int, completion_tokens: int, cost: float | None) -> None:
        """Adds an answer that is paid for, whether it can be used or not."""
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens
        self.cost = None if cost is None or self.cost is None else self.cost + cost


@dataclass
class Ledger:
    """Sums calls per role, writes them down, and refuses new ones once a limit is reached.

    Calls that are already in flight when a limit is reached are finished and counted, so the sum can pass the limit by
    as many calls as run at once.

    Attributes:
        directory: where ``ledger.jsonl`` lies; its sums are taken up. ``None`` keeps nothing.
        max_cost: US dollars, over both roles and every earlier part of the run.
        max_tokens: tokens, likewise.
        repaired: bytes of a last line that had been cut short and were removed.

    Raises:
        InvalidValueError: a limit is not a positive number, or another process writes this ledger.
        DamagedRecordError: a line cannot be read.
    """

    directory: Path | None = None
    max_cost: float | None = None
    max_tokens: int | None = None
    repaired: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        for name in ("max_cost", "max_tokens"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise InvalidValueError(f"{name}: expected a number above zero, got {value!r}")
        self._totals: dict[Role, Totals] = {role: Totals() for role in ROLES}
        self._answered: Counter[tuple[Role, str, str]] = Counter()
        self._file: int | None = None
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
        self._path = path
        self._file = _open(path)
        try:
            self.repaired = _cut_torn_line(self._file)
            if self.repaired:
                logger.warning("%s: removed a last line that had been cut short (%d bytes)", path, self.repaired)
            for entry in read_ledger(path):
                self._add(entry)
        except BaseException:
            self.close()
            raise

    def _add(self, entry: LedgerEntry) -> None:
        self._totals[entry.role].add(entry)
        if entry.model:
            self._answered[entry.role, entry.asked, entry.model] += 1

    def check(self) -> None:
        """Raises :class:`BudgetExceededError` if a limit is reached."""
        if self.max_cost is None and self.max_tokens is None:
            return
        cost = sum(totals.cost for totals in self._totals.values())
        if self.max_cost is not None and cost >= self.max_cost:
            raise BudgetExceededError(
                f"cost: ${cost:.4f} of max_cost ${self.max_cost:g} is spent; nothing more is sent"
            )
        tokens = sum(totals.tokens for totals in self._totals.values())
        if self.max_tokens is not None and tokens >= self.max_tokens:
            raise BudgetExceededError(
                f"tokens: {tokens} of max_tokens {self.max_tokens} are used; nothing more is sent"
            )

    def record(self, entry: LedgerEntry) -> None:
        """Adds one call; it is safe from the death of the process when this returns."""
        self._add(entry)
        if self._file is None:
            return
        data = entry.model_dump_json().encode("utf-8") + b"\n"
        try:
            written = os.write(self._file, data)
        except OSError as error:
            raise SotopiaError(f"{self._path}: cannot be written ({error.strerror})") from error
        if written < len(data):
            raise SotopiaError(f"{self._path}: cannot be written (only {written} of {len(data)} bytes fitted)")

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
            os.close(self._file)
        self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_ledger(path: str | Path) -> Iterator[LedgerEntry]:
    """Yields the calls in a ledger file, or in the one of a run directory; a line that is cut short is left out.

    Raises:
        InvalidValueError: there is no such file.
        DamagedRecordError: names the file and line that cannot be read.
    """
    file = Path(path) / LEDGER if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise InvalidValueError(f"{file}: expected a ledger, found none")
    with file.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield LedgerEntry.model_validate_json(line)
            except ValidationError as error:
                raise DamagedRecordError(f"{file}, line {number}: damaged record ({explain(error)})") from None


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    except OSError as error:
        raise InvalidValueError(f"{path}: expected a file that can be written ({error.strerror})") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise InvalidValueError(f"{path}: another process is writing this ledger; wait for it to end") from None
    return descriptor


def _cut_torn_line(file: int) -> int:
    """Cuts off what follows the last line end and returns how many bytes that were."""
    size = end = os.fstat(file).st_size
    while end > 0:
        start = max(0, end - 65_536)
        found = os.pread(file, end - start, start).rfind(b"\n")
        end = start + found + 1 if found >= 0 else start
        if found >= 0:
            break
    if end < size:
        os.ftruncate(file, end)
    return size - end
