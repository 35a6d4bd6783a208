"""Records as they are read from foreign files, each with its location."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sotopia_env.foundation.errors import DamagedRecordError, Where


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record of a foreign file.

    Attributes:
        file: path of the file.
        number: number of the record in the file, from 1.
        line: line on which the record begins, from 1; 0 if unknown.
        value: JSON, or the text of a line in a file that is not JSON.
        key: the record's key in a file that is one object of records by key; otherwise empty.
        notes: peculiarities of the record in the file, each with the field, a colon and how it is read.
    """

    file: Path
    number: int
    line: int
    value: Any
    key: str = ""
    notes: tuple[str, ...] = ()

    @property
    def where(self) -> Where:
        """File and line, with the record's number if several records share a line, and its key if it has one."""
        # A record's number exceeds its line only if some line holds several records.
        number = f"record {self.number}" if self.number > self.line else ""
        key = f"key {self.key!r}" if self.key else ""
        return Where(self.file, self.line or None, ", ".join(filter(None, (number, key))))


@dataclass(frozen=True, slots=True)
class Remark:
    """A note on a converted record: its location and a sentence."""

    where: str
    reason: str

    @property
    def sentence(self) -> str:
        """Location and reason."""
        return f"{self.where}: {self.reason}"


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A record that was not read, with the error."""

    error: DamagedRecordError

    @property
    def where(self) -> str:
        """The location of the record."""
        return str(self.error.where)

    @property
    def reason(self) -> str:
        """The error message without the location."""
        error = DamagedRecordError.of(self.error)  # a copy, whose location may be cleared
        error.where = Where()
        return str(error)

    @property
    def sentence(self) -> str:
        """The error message, which includes the location."""
        return str(self.error)


def by_key(item: RawRecord) -> list[RawRecord]:
    """Returns the records or lists of an item that is one object of them by key; otherwise the item alone."""
    value = item.value
    kinds = set(map(type, value.values())) if isinstance(value, dict) else set()
    if kinds not in ({dict}, {list}):
        return [item]
    # The lines of the records inside a document are unknown; their keys locate them.
    return [RawRecord(item.file, n, item.line, entry, key) for n, (key, entry) in enumerate(value.items(), start=1)]
