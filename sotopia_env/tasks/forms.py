"""Record forms: records that are validated once with markers instead of names, and filled with names many times.

The records made from a form share all parts without a marker, and are not validated again: a name that is one
capitalised word is valid wherever the marker is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

_RecordT = TypeVar("_RecordT", bound=BaseModel)
_SLOT = re.compile(r"\{(\d+)\}")
MARKER = re.compile(r"Nameof(\d+)seat")
"""A placeholder for a name: one capitalised word, which authors' texts may not contain."""
_Filler = Callable[[Sequence[str]], Any]


def with_markers(value: Any) -> Any:
    """Returns JSON with each ``{0}``, ``{1}`` and so on replaced by a marker, also in keys."""
    if isinstance(value, str):
        return _SLOT.sub(r"Nameof\1seat", value)
    if isinstance(value, dict):
        return {with_markers(key): with_markers(part) for key, part in value.items()}
    return [with_markers(part) for part in value] if isinstance(value, list | tuple) else value


class RecordForm(Generic[_RecordT]):
    """A factory of records from a valid record with markers."""

    def __init__(self, record: _RecordT) -> None:
        """Compiles the record, which is the pattern of all records made."""
        self._record, self._filler = record, _filler(record)

    def filled(self, names: Sequence[str]) -> _RecordT:
        """Returns the record with the markers replaced by ``names``, one per seat."""
        record: _RecordT = self._record if self._filler is None else self._filler(names)
        return record


def _filler(value: Any) -> _Filler | None:
    """Returns a function that fills names into ``value``; ``None`` if it has no markers."""
    # ``None`` lets callers keep the part itself, so that all records share it and filling costs only what changes.
    if type(value) is str:
        return _text_filler(value)
    if isinstance(value, tuple):
        return _tuple_filler(value)
    if isinstance(value, dict):
        return _dict_filler(value)
    return _record_filler(value) if isinstance(value, BaseModel) else None


def _text_filler(text: str) -> _Filler | None:
    parts = MARKER.split(text)  # texts at even indices, seat numbers at odd ones
    if len(parts) == 1:
        return None
    pattern, seats = "{}".join(part.replace("{", "{{").replace("}", "}}") for part in parts[::2]), parts[1::2]
    indexes = [int(seat) for seat in seats]
    return lambda names: pattern.format(*[names[index] for index in indexes])


def _tuple_filler(values: tuple[Any, ...]) -> _Filler | None:
    fillers = [_filler(value) for value in values]
    if not any(fillers):
        return None
    pairs = list(zip(values, fillers, strict=True))
    return lambda names: tuple([value if fill is None else fill(names) for value, fill in pairs])


def _dict_filler(values: dict[Any, Any]) -> _Filler | None:
    keys, parts = _tuple_filler(tuple(values)), _tuple_filler(tuple(values.values()))
    if keys is None and parts is None:
        return None
    names_of, values_of = keys or (lambda _: values), parts or (lambda _: values.values())
    return lambda names: dict(zip(names_of(names), values_of(names), strict=True))


def _record_filler(record: BaseModel) -> _Filler | None:
    fields = {name: getattr(record, name) for name in type(record).model_fields}
    fillers = {name: fill for name, value in fields.items() if (fill := _filler(value)) is not None}
    if not fillers:
        return None
    # ``model_construct`` skips validation; ``fields_set`` is passed so that ``exclude_unset`` treats copies alike.
    construct, fields_set = type(record).model_construct, record.model_fields_set
    return lambda names: construct(fields_set, **fields | {name: fill(names) for name, fill in fillers.items()})
