"""The remainder of a foreign record: the difference between it and what our writer makes of our record.

Our record, written back, is the greater part of the foreign one. Only what differs is kept, as the record's ``origin``,
and is put back on export: so a round trip is exact without two copies of everything. A field that was edited since is
written as it is now.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from sotopia_env.errors import DamagedRecordError
from sotopia_env.records import canonical_json

FORMAT = "format"


def origin_of(format: str, raw: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the origin of a record.

    Args:
        format: the foreign format's name.
        raw: the foreign record.
        written: what the format's writer makes of our record without an origin.
    """
    fields = {key: _entry(raw[key], written.get(key, _NOTHING)) for key in raw if _differs(raw, written, key)}
    absent = [key for key in written if key not in raw]
    return {FORMAT: format} | ({"fields": fields} if fields else {}) | ({"absent": absent} if absent else {})


def restored(written: Mapping[str, Any], origin: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the foreign record: what is ``written``, and what the record's ``origin`` says beyond it.

    Raises:
        DamagedRecordError: the origin is not one that :func:`origin_of` made.
    """
    try:
        absent, fields = origin.get("absent", ()), origin.get("fields", {})
        record = {key: value for key, value in written.items() if key not in absent}
        for key, entry in fields.items():
            present = written.get(key, _NOTHING)
            if "of" not in entry or entry["of"] == _digest(present):
                record[key] = _patched(present, entry["is"])
    except (TypeError, ValueError, LookupError, AttributeError):
        raise DamagedRecordError(
            field="origin", expected="what an import wrote", got=dict(origin), hint="import the record again"
        ) from None
    return record


_NOTHING = object()
_WHOLE, _ITEMS, _KEYS = "=", "[", "{"
"""Kinds of difference: another value; some entries of a list of this length; some keys of an object."""


def _differs(raw: Mapping[str, Any], written: Mapping[str, Any], key: str) -> bool:
    return key not in written or not _same(raw[key], written[key])


def _same(one: Any, other: Any) -> bool:
    # True == 1 in Python, and not in JSON; 8 == 8.0 in both.
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _entry(raw: Any, written: Any) -> dict[str, Any]:
    if written is _NOTHING:
        return {"is": [_WHOLE, raw]}
    return {"is": _difference(raw, written), "of": _digest(written)}


def _digest(value: Any) -> str:
    return "" if value is _NOTHING else hashlib.sha256(canonical_json(value).encode()).hexdigest()[:8]


def _difference(raw: Any, written: Any) -> list[Any]:
    if isinstance(raw, list) and isinstance(written, list) and len(raw) == len(written):
        pairs = enumerate(zip(raw, written, strict=True))
        return [_ITEMS, [[index, _difference(a, b)] for index, (a, b) in pairs if not _same(a, b)]]
    if isinstance(raw, dict) and isinstance(written, dict) and raw.keys() >= written.keys():
        return [_KEYS, {key: _difference(raw[key], written.get(key)) for key in raw if _differs(raw, written, key)}]
    return [_WHOLE, raw]


def _patched(written: Any, difference: Any) -> Any:
    kind, content = difference
    if kind == _WHOLE:
        return content
    if kind == _ITEMS:
        items = list(written)
        for index, inner in content:
            items[index] = _patched(items[index], inner)
        return items
    return {**written, **{key: _patched(written.get(key), inner) for key, inner in content.items()}}
