"""Where two JSON values differ, in few words."""

from __future__ import annotations

import itertools
from typing import Any

from sotopia_env.scenario import canonical_json

_MOST_SHOWN = 100
_NOTHING = object()


def first_difference(where: str, ours: Any, theirs: Any) -> tuple[str, str, str]:
    """Returns the place and both values, of the smallest part that differs where the whole is too long to show."""
    texts = ["nothing" if value is _NOTHING else canonical_json(value) for value in (ours, theirs)]
    if max(map(len, texts)) <= _MOST_SHOWN:
        return where, texts[0], texts[1]
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = [key for key in sorted({*ours, *theirs}) if ours.get(key, _NOTHING) != theirs.get(key, _NOTHING)]
        return first_difference(f"{where}.{keys[0]}", ours.get(keys[0], _NOTHING), theirs.get(keys[0], _NOTHING))
    if isinstance(ours, list) and isinstance(theirs, list):
        pairs = enumerate(itertools.zip_longest(ours, theirs, fillvalue=_NOTHING))
        place, (left, right) = next((place, pair) for place, pair in pairs if pair[0] != pair[1])
        return first_difference(f"{where}.{place}", left, right)
    equal = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False)))
    start = max(0, equal - _MOST_SHOWN // 2)
    return where, _cut(texts[0], start), _cut(texts[1], start)


def _cut(text: str, start: int) -> str:
    end = start + _MOST_SHOWN
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")


__all__ = ["first_difference"]
