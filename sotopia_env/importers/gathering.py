"""Records that are several values of a file: consecutive ones, or ones with a common key anywhere in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers.foreign import Format
from sotopia_env.importers.source import RawRecord, RefusedRecord

MOST_VALUES = 2_000_000
"""Maximum number of values in memory, from a file whose records have a key."""

Entries = Iterator[RawRecord | RefusedRecord]


def whole_records(entries: Entries, format: Format[Any]) -> Entries:
    """Yields the items of a file, with a list of values for each record of a format that has several."""
    if format.gathers is not None:
        return _gathered(entries, format, format.gathers)
    return _joined(entries, format) if format.joins is not None else entries


def _gathered(entries: Entries, format: Format[Any], gathers: Callable[[Any], tuple[str, Any]]) -> Entries:
    """The items, each with all values of the file that belong to one record, at the end of the file."""
    records: dict[str, RawRecord] = {}
    for number, entry in enumerate(entries):
        if isinstance(entry, RefusedRecord):
            yield entry
            continue
        if not format.detects(entry.value):
            yield replace(entry, value=[entry.value])  # refused later, by its shape
            continue
        if number >= MOST_VALUES:
            expected = f"a file of at most {MOST_VALUES} values, since their order is free"
            raise DamagedRecordError(expected=expected, hint="split the file by record", where=entry.where)
        key, value = gathers(entry.value)
        records.setdefault(key, replace(entry, value=[])).value.append(value)
    yield from records.values()


def _joined(entries: Iterator[RawRecord | RefusedRecord], format: Format[Any]) -> Iterator[RawRecord | RefusedRecord]:
    """Yields items whose value is a list of consecutive values that belong to one record."""
    # An item is held back until the next one shows whether it continues the record.
    waiting: RawRecord | None = None
    for entry in entries:
        if isinstance(entry, RawRecord) and waiting is not None and format.continues(waiting.value, entry.value):
            waiting.value.append(entry.value)
            continue
        if waiting is not None:
            yield waiting
        waiting = replace(entry, value=[entry.value]) if isinstance(entry, RawRecord) else None
        # A refusal is yielded after the item before it, so that both keep the order of the file.
        if isinstance(entry, RefusedRecord):
            yield entry
    if waiting is not None:
        yield waiting
