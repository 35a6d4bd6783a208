"""Moves: the binding commitments that an agent may make along with its words, and the reader of their JSON.

A move is an object with one key: ``{"propose": {"price": 84}}``, ``{"accept": 2}``, ``{"reject": 2}``,
``{"withdraw": 1}``, ``{"vote": "museum"}``, ``{"vote": null}``, ``{"claim": "Ana Lee"}``. Nothing else is read, and
nothing is guessed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn

from sotopia_env.errors import InvalidActionError, name_hint
from sotopia_env.quoting import quote
from sotopia_env.records import canonical_json

LONGEST_CLAIM = 200
_LONGEST_MESSAGE = 480
_LONGEST_JSON = 20_000
_LONGEST_TEXT = 1_000
_LARGEST_OFFER = 10**9
_MOST_TERMS = 1_000


class InvalidMoveError(InvalidActionError):
    """A move that cannot be read or is not open; the table is left as it was. The message is one short sentence."""

    def __init__(self, message: str) -> None:
        # Names of issues and options come from a scenario's author: many long ones must not flood an observation.
        super().__init__(message if len(message) <= _LONGEST_MESSAGE else message[: _LONGEST_MESSAGE - 1] + "…")


class MoveKind(StrEnum):
    """The six kinds of commitment."""

    PROPOSE = "propose"
    ACCEPT = "accept"
    REJECT = "reject"
    WITHDRAW = "withdraw"
    VOTE = "vote"
    CLAIM = "claim"


KINDS: Mapping[str, MoveKind] = {kind.value: kind for kind in MoveKind}


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """One binding commitment; its JSON is ``{kind: content}``.

    Two moves are equal when their JSON is, so ``{"accept": true}`` and ``{"accept": 1}`` are two.

    Attributes:
        kind: what is done.
        content: of ``propose`` the terms, of ``accept``, ``reject`` and ``withdraw`` an offer's number or ``True``, of
            ``vote`` an option or ``None``, of ``claim`` a text. It is not copied: nobody may change it.
    """

    kind: MoveKind
    content: Any

    def __post_init__(self) -> None:
        if self.kind.__class__ is not MoveKind:
            kind = KINDS.get(self.kind) if isinstance(self.kind, str) else None
            if kind is None:
                hint = name_hint(self.kind[:40], KINDS) if isinstance(self.kind, str) else f"got {excerpt(self.kind)}"
                raise InvalidMoveError(f"move: {hint}")
            object.__setattr__(self, "kind", kind)

    def to_json(self) -> dict[str, Any]:
        """Returns the move as JSON, such as ``{"accept": 2}``."""
        return {self.kind.value: self.content}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Move):
            return NotImplemented
        return canonical_json(self.to_json()) == canonical_json(other.to_json())

    def __hash__(self) -> int:
        return hash(canonical_json(self.to_json()))


def excerpt(value: object) -> str:
    """Returns a short text for any value, for messages: quoted and cut; never slow, never failing."""
    if isinstance(value, str):
        return quote(value if len(value) <= 40 else value[:39] + "…")
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return str(value) if value.bit_length() <= 100 else "a huge number"
    if isinstance(value, float):
        return repr(float(value))
    if isinstance(value, Mapping):
        keys = ", ".join(excerpt(key) for key in list(value)[:4])
        return f"an object with {keys}{', …' if len(value) > 4 else ''}" if value else "an empty object"
    return f"a {type(value).__name__}"


def _writable(text: str) -> bool:
    # Half a surrogate pair cannot be written to a file or sent to a model.
    return text.isprintable() or not any("\ud800" <= character <= "\udfff" for character in text)


def read_move(value: object) -> Move:
    """Reads a mapping with exactly one key of :class:`MoveKind`, or JSON text of one.

    Raises:
        InvalidMoveError: for everything else, with what was expected and what came.
    """
    if isinstance(value, Move):
        value = value.to_json()
    if isinstance(value, str):
        value = _parsed(value)
    if not isinstance(value, Mapping):
        _refuse(f"expected an object with one of {', '.join(KINDS)}, got {excerpt(value)}")
    if len(value) != 1:
        _refuse(f"expected exactly one of {', '.join(KINDS)}, got {excerpt(value)}")
    ((key, content),) = value.items()
    kind = KINDS.get(key) if isinstance(key, str) else None
    if kind is None:
        _refuse(name_hint(key[:40], KINDS) if isinstance(key, str) and _writable(key[:40]) else f"got {excerpt(key)}")
    return Move(kind, _READERS[kind](content))


def _refuse(reason: str) -> NoReturn:
    raise InvalidMoveError(f"move: {reason}")


def _parsed(text: str) -> object:
    if len(text) > _LONGEST_JSON:
        _refuse(f"expected at most {_LONGEST_JSON} characters of JSON, got {len(text)}")
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except InvalidMoveError:
        raise
    except (ValueError, RecursionError):
        _refuse(f'expected JSON such as {{"accept": 2}}, got the text {excerpt(text)}')


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        _refuse("a key occurs twice in one object")
    return unique


def _no_constant(name: str) -> NoReturn:
    _refuse(f"{name} is no number")


def _terms(content: object) -> dict[str, Any]:
    if not isinstance(content, Mapping) or not content or len(content) > _MOST_TERMS:
        _refuse(f'propose: expected terms as an object, such as {{"price": 84}}, got {excerpt(content)}')
    return {_text(key, "propose: a name"): _term(value) for key, value in content.items()}


def _term(value: object) -> Any:
    if isinstance(value, Mapping):
        if len(value) > _MOST_TERMS:
            _refuse(f"propose: expected at most {_MOST_TERMS} seats in a division, got {len(value)}")
        return {_text(key, "propose: a seat"): _scalar(piece) for key, piece in value.items()}
    return _scalar(value)


def _scalar(value: object) -> Any:
    if isinstance(value, str):
        return _text(value, "propose: a value")
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or (isinstance(value, int) and value.bit_length() > 200):
        _refuse(f"propose: expected a number, an option or a division as a value, got {excerpt(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        _refuse(f"propose: expected a finite number, got {value!r}")
    return value


def _text(value: object, what: str, longest: int = _LONGEST_TEXT) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= longest or not _writable(value):
        _refuse(f"{what}: expected a text of 1 to {longest} characters, got {excerpt(value)}")
    return value


def offer_number(kind: MoveKind, content: object) -> int | bool:
    """Returns the offer that ``accept``, ``reject`` or ``withdraw`` names, or ``True`` for the only one."""
    if isinstance(content, float) and content.is_integer() and abs(content) <= _LARGEST_OFFER:
        content = int(content)  # JSON has one kind of number: 2.0 is 2
    if content is True or (type(content) is int and 1 <= content <= _LARGEST_OFFER):
        return content
    _refuse(f'expected the number of an offer, as in {{"{kind}": 2}}, or true for the only one, got {excerpt(content)}')


def vote_text(content: object) -> str | None:
    """Returns the option that ``vote`` names, or ``None``, which takes a vote back."""
    return None if content is None else _text(content, "vote")


def claim_text(content: object) -> str:
    """Returns the text that ``claim`` claims."""
    return _text(content, "claim", LONGEST_CLAIM)


def _number_reader(kind: MoveKind) -> Callable[[object], Any]:
    return lambda content: offer_number(kind, content)


_READERS: Mapping[MoveKind, Callable[[object], Any]] = {
    MoveKind.PROPOSE: _terms,
    MoveKind.ACCEPT: _number_reader(MoveKind.ACCEPT),
    MoveKind.REJECT: _number_reader(MoveKind.REJECT),
    MoveKind.WITHDRAW: _number_reader(MoveKind.WITHDRAW),
    MoveKind.VOTE: vote_text,
    MoveKind.CLAIM: claim_text,
}
