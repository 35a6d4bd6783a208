"""The explicit form of an act: a whole argument that says ``offer: price=95``, ``accept`` or the like."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sotopia_env.tasks.agreement import Accept, Act, Offer, Reject, Unclear, Withdraw
from sotopia_env.tasks.family import Terms


@dataclass(frozen=True, slots=True)
class ExplicitAct:
    """An act in the explicit form: ``verb`` is ``offer``, ``accept``, ``reject`` or ``withdraw``; values as given."""

    verb: str
    terms: Mapping[str, Any] | None


_EXPLICIT = re.compile(r"\s*(offer|accept|reject|withdraw)\s*(?::\s*(.+?))?\s*[.!]?\s*", re.IGNORECASE | re.DOTALL)
_PAIR = re.compile(r"\s*([A-Za-z_][\w .-]*?)\s*=\s*([^;=]+?)\s*")


def read_explicit(text: str) -> ExplicitAct | None:
    """Reads the explicit form of an act, as the whole of an argument; ``None`` for any other text.

    The forms are ``offer: price=95``, ``offer: salary=$110k; start_date=July 1``, ``accept``, ``accept: price=95``,
    ``reject``, ``withdraw``, and as JSON ``{"offer": {"price": 95}}`` or ``{"accept": true}``.
    """
    if text[:1] == "{" or text[-1:] == "}":
        return _read_explicit_json(text)
    match = _EXPLICIT.fullmatch(text)
    if match is None:
        return None
    verb, rest = match.group(1).lower(), match.group(2)
    if rest is None:
        return None if verb == "offer" else ExplicitAct(verb, None)
    pairs = [_PAIR.fullmatch(part) for part in re.split(r";|,(?!\d{3})", rest)]
    if not all(pairs):
        return None
    terms = {pair.group(1): pair.group(2) for pair in pairs if pair is not None}
    return ExplicitAct(verb, terms) if len(terms) == len(pairs) else None


def _read_explicit_json(text: str) -> ExplicitAct | None:
    try:
        item = json.loads(text)
    except (ValueError, RecursionError):  # not JSON, an integer of thousands of digits, nested too deeply
        return None
    if not isinstance(item, dict) or len(item) != 1:
        return None
    ((verb, terms),) = item.items()
    if verb not in ("offer", "accept", "reject", "withdraw"):
        return None
    if isinstance(terms, dict):
        return ExplicitAct(verb, terms)
    return ExplicitAct(verb, None) if terms in (True, None) and verb != "offer" else None


def explicit_acts(text: str, convert: Callable[[Mapping[str, Any]], Terms | None]) -> tuple[Act, ...] | None:
    """Returns the act that ``text`` is in the explicit form, or ``None`` when it is not in that form.

    Args:
        text: the whole argument.
        convert: turns the named values into the family's terms; ``None`` where they are none.
    """
    explicit = read_explicit(text)
    if explicit is None:
        return None
    terms = None if explicit.terms is None else convert(explicit.terms)
    if explicit.terms is not None and terms is None:
        return (Unclear("an explicit act whose values are no terms of this task"),)
    match explicit.verb:
        case "offer":
            return (Unclear("an explicit offer without terms"),) if terms is None else (Offer(terms),)
        case "accept":
            return (Accept(terms),)
        case "reject":
            return (Reject(terms),)
        case _:
            return (Withdraw(),)


__all__ = ["ExplicitAct", "explicit_acts", "read_explicit"]
