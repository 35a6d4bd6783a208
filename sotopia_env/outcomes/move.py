"""Moves: what an agent commits itself to or asserts along with its words, and the reader of their JSON.

A binding move is an object with one key: ``{"propose": {"price": 84}}``, ``{"accept": 2}``, ``{"reject": 2}``,
``{"withdraw": 1}``, ``{"vote": "museum"}``, ``{"vote": null}``, ``{"claim": "Ana Lee"}``, ``{"choose": "silent"}``.
*Statements* bind nobody:
``{"state": {"role of Ana": "detective"}}``, ``{"show": "role of Ana"}``, ``{"ask": "role of Ben"}``, in tasks with
facts (:mod:`sotopia_env.outcomes.facts`). One move may hold a statement of each kind beside a binding part:
``{"vote": "Ben", "state": {"role of Ana": "detective"}}``. Nothing else is read, and nothing is guessed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sotopia_env.foundation.errors import InvalidActionError, json_excerpt
from sotopia_env.foundation.json_text import canonical_json, decode_json
from sotopia_env.outcomes.amounts import json_number, read_amount

# A runaway or hostile move is refused by its size, before it is processed. Lengths are in characters.
LONGEST_CLAIM = 200
_LONGEST_SENTENCE = 480
_LONGEST_JSON = 20_000
_LONGEST_TEXT = 1_000
_LARGEST_OFFER = 10**9
_MOST_TERMS = 1_000
_MOST_VARIABLES = 64
_PROPOSE = "move.propose"


class InvalidMoveError(InvalidActionError):
    """A move that cannot be read or is not open; the table is left as it was. The message is short."""

    def __init__(self, problem: str = "", *, got: object = ..., **parts: Any) -> None:
        """As :class:`FieldError`, but values other than texts and numbers are quoted as JSON."""
        super().__init__(problem, got=got, **parts)
        # The policy wrote JSON, so it reads ``null`` and ``true`` in the message, not Python's words for them.
        if got is None or (isinstance(got, (bool, Mapping, Sequence)) and not isinstance(got, str)):
            self.got = json_excerpt(got)

    def __str__(self) -> str:
        # Names of issues and options come from a scenario's author: many long ones must not flood an observation.
        sentence = super().__str__()
        return sentence if len(sentence) <= _LONGEST_SENTENCE else sentence[: _LONGEST_SENTENCE - 1] + "…"


class MoveKind(StrEnum):
    """The seven kinds of commitment, and the three kinds of statement."""

    PROPOSE = "propose"
    ACCEPT = "accept"
    REJECT = "reject"
    WITHDRAW = "withdraw"
    VOTE = "vote"
    CLAIM = "claim"
    CHOOSE = "choose"
    STATE = "state"
    SHOW = "show"
    ASK = "ask"


KINDS: Mapping[str, MoveKind] = {kind.value: kind for kind in MoveKind}
STATEMENTS: tuple[MoveKind, ...] = (MoveKind.STATE, MoveKind.SHOW, MoveKind.ASK)
"""The kinds that bind nobody, in the order in which a move lists them."""


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """One binding commitment, or statements, or both; its JSON is ``{kind: content}`` with a key for each part.

    Two moves are equal when their JSON is, so ``{"accept": true}`` and ``{"accept": 1}`` are different.

    Attributes:
        kind: the kind of the binding part, if there is one; otherwise of the first statement.
        content: the terms for ``propose``; an offer's number or ``True`` for ``accept``, ``reject`` and ``withdraw``;
            an option or ``None`` for ``vote``; a text for ``claim``; an option for ``choose``; values by variable for
            ``state``; the name of a variable, or a list of names, for ``show`` and ``ask``. It is not copied; treat it
            as immutable.
        beside: the further parts, which are statements.
    """

    kind: MoveKind
    content: Any
    beside: tuple[tuple[MoveKind, Any], ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.kind, MoveKind):
            kind = KINDS.get(self.kind) if isinstance(self.kind, str) else None
            if kind is None:
                raise InvalidMoveError(field="move", got=self.kind, valid=KINDS)
            object.__setattr__(self, "kind", kind)

    def to_json(self) -> dict[str, Any]:
        """Returns the move as JSON, such as ``{"accept": 2}``."""
        return {self.kind.value: self.content, **{kind.value: content for kind, content in self.beside}}

    @classmethod
    def of_parts(cls, parts: Sequence[tuple[MoveKind, Any]]) -> Move | None:
        """Returns the move with these parts, a binding one first; ``None`` if there are none."""
        return cls(*parts[0], tuple(parts[1:])) if parts else None

    @property
    def binding(self) -> Move | None:
        """The move without statements; ``None`` if it has no other part."""
        return None if self.kind in STATEMENTS else Move(self.kind, self.content) if self.beside else self

    @property
    def statements(self) -> tuple[tuple[MoveKind, Any], ...]:
        """The parts that bind nobody."""
        return ((self.kind, self.content), *self.beside) if self.kind in STATEMENTS else self.beside

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Move):
            return NotImplemented
        # Python's ``1 == True`` would make two different moves equal; their JSON differs.
        return canonical_json(self.to_json()) == canonical_json(other.to_json())

    def __hash__(self) -> int:
        return hash(canonical_json(self.to_json()))


def _writable(text: str) -> bool:
    # Half a surrogate pair cannot be written to a file or sent to a model.
    return text.isprintable() or not any("\ud800" <= character <= "\udfff" for character in text)


def read_move(value: object) -> Move:
    """Reads a mapping with one binding key of :class:`MoveKind`, or statements, or both; or JSON text of one.

    Raises:
        InvalidMoveError: ``value`` is anything else; the message states the expected form and the value.
    """
    if isinstance(value, Move):
        # Read again, because a Move built in Python may hold content that JSON cannot.
        value = value.to_json()
    if isinstance(value, str):
        value = _parsed(value)
    if not isinstance(value, Mapping):
        raise InvalidMoveError(field="move", expected=f"an object with one of {', '.join(KINDS)}", got=value)
    for key in value:
        if not isinstance(key, str) or key not in KINDS:
            raise InvalidMoveError(field="move", got=key, valid=KINDS)
    # A key of a statement without content is as good as absent: strict schemas make models write every key.
    kinds = [kind for kind in MoveKind if kind in value and not (kind in STATEMENTS and value[kind] is None)]
    if len([kind for kind in kinds if kind not in STATEMENTS]) > 1 or not kinds:
        binding = ", ".join(kind for kind in MoveKind if kind not in STATEMENTS)
        raise InvalidMoveError(
            field="move", expected=f"exactly one of {binding}, or statements ({', '.join(STATEMENTS)})", got=value
        )
    parts = [(kind, _READERS[kind](value[kind])) for kind in kinds]
    return Move(*parts[0], tuple(parts[1:]))


def _parsed(text: str) -> object:
    if len(text) > _LONGEST_JSON:
        raise InvalidMoveError(field="move", expected=f"at most {_LONGEST_JSON} characters of JSON", got=len(text))
    try:
        return decode_json(text)
    except json.JSONDecodeError:
        raise InvalidMoveError(field="move", expected='JSON such as {"accept": 2}', got=text) from None
    except ValueError as error:
        raise InvalidMoveError(str(error), field="move") from None


def _terms(content: object) -> dict[str, Any]:
    if not isinstance(content, Mapping) or not content or len(content) > _MOST_TERMS:
        raise InvalidMoveError(field=_PROPOSE, expected='terms as an object, such as {"price": 84}', got=content)
    return {_text(key, _PROPOSE, "a name"): _term(value) for key, value in content.items()}


def _term(value: object) -> Any:
    if isinstance(value, Mapping):
        if len(value) > _MOST_TERMS:
            raise InvalidMoveError(
                field=_PROPOSE, expected=f"at most {_MOST_TERMS} seats in a division", got=len(value)
            )
        return {_text(key, _PROPOSE, "a seat"): _scalar(piece) for key, piece in value.items()}
    return _scalar(value)


def _scalar(value: object) -> Any:
    if isinstance(value, str):
        return _text(value, _PROPOSE, "a value")
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or (isinstance(value, int) and value.bit_length() > 200):
        raise InvalidMoveError(field=_PROPOSE, expected="a number, an option or a division as a value", got=value)
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidMoveError(field=_PROPOSE, expected="a finite number", got=value)
    return value


def _text(value: object, field: str, noun: str = "a text", longest: int = _LONGEST_TEXT) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= longest or not _writable(value):
        raise InvalidMoveError(field=field, expected=f"{noun} of 1 to {longest} characters", got=value)
    return value


def offer_number(kind: MoveKind, content: object) -> int | bool:
    """Returns the offer that ``accept``, ``reject`` or ``withdraw`` names, or ``True`` for the only one."""
    if isinstance(content, float) and content.is_integer() and abs(content) <= _LARGEST_OFFER:
        # JSON has one kind of number: 2.0 is 2.
        content = int(content)
    if content is True or (type(content) is int and 1 <= content <= _LARGEST_OFFER):
        return content
    expected = f'the number of an offer, as in {{"{kind}": 2}}, or true for the only one'
    raise InvalidMoveError(field=f"move.{kind}", expected=expected, got=content)


def vote_text(content: object) -> str | None:
    """Returns the option that ``vote`` names, or ``None``, which takes a vote back."""
    return None if content is None else _text(content, "move.vote")


def claim_text(content: object) -> str:
    """Returns the text that ``claim`` claims."""
    return _text(content, "move.claim", longest=LONGEST_CLAIM)


def choice_text(content: object) -> str:
    """Returns the option that ``choose`` names; an amount may be a number."""
    number = read_amount(content) if isinstance(content, int | float) and not isinstance(content, bool) else None
    return _text(content if number is None else str(json_number(number)), "move.choose")


def state_values(content: object) -> dict[str, str]:
    """Returns the values that ``state`` asserts, by variable."""
    if not isinstance(content, Mapping) or not content or len(content) > _MOST_VARIABLES:
        expected = 'values by variable, as in {"state": {"role of Ana": "detective"}}'
        raise InvalidMoveError(field="move.state", expected=expected, got=content)
    return {_text(key, "move.state", "a variable"): _text(value, "move.state") for key, value in content.items()}


def _variables_reader(kind: MoveKind) -> Callable[[object], Any]:
    """The reader of one variable's name, or a list of names; a list of one is that one."""

    def read(content: object) -> str | list[str]:
        names = [content] if isinstance(content, str) else content
        if not isinstance(names, list | tuple) or not 1 <= len(names) <= _MOST_VARIABLES:
            expected = f'the name of a variable, as in {{"{kind}": "role of Ana"}}, or a list of names'
            raise InvalidMoveError(field=f"move.{kind}", expected=expected, got=content)
        different = list(dict.fromkeys(_text(name, f"move.{kind}", "a variable") for name in names))
        return different if len(different) > 1 else different[0]

    return read


def statement_content(kind: MoveKind, content: object) -> dict[str, str] | str | list[str]:
    """Returns the content of a statement in the form in which it is written; names are read by the protocol.

    Raises:
        InvalidMoveError: ``content`` has another form.
    """
    result: dict[str, str] | str | list[str] = _READERS[kind](content)
    return result


def _number_reader(kind: MoveKind) -> Callable[[object], Any]:
    return lambda content: offer_number(kind, content)


_READERS: Mapping[MoveKind, Callable[[object], Any]] = {
    MoveKind.PROPOSE: _terms,
    MoveKind.ACCEPT: _number_reader(MoveKind.ACCEPT),
    MoveKind.REJECT: _number_reader(MoveKind.REJECT),
    MoveKind.WITHDRAW: _number_reader(MoveKind.WITHDRAW),
    MoveKind.VOTE: vote_text,
    MoveKind.CLAIM: claim_text,
    MoveKind.CHOOSE: choice_text,
    MoveKind.STATE: state_values,
    MoveKind.SHOW: _variables_reader(MoveKind.SHOW),
    MoveKind.ASK: _variables_reader(MoveKind.ASK),
}
