"""The moves open to one seat, for models (text, JSON schema), for people (labels) and for random play."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from sotopia_env.foundation.quoting import quote
from sotopia_env.outcomes.amounts import json_number
from sotopia_env.outcomes.issues import NumberIssue
from sotopia_env.outcomes.move import LONGEST_CLAIM, STATEMENTS, Move, MoveKind
from sotopia_env.outcomes.space import OutcomeSpace, Terms, remember

LONGEST_ENUM = 64
"""The maximum number of values of a number that the schema lists; a longer one gets limits and ``multipleOf``."""
MOST_LISTED = 12
"""The maximum number of options of a choice that the text lists one by one."""
MOST_DIVISIONS = 24
"""The maximum number of divisions of items that the schema lists."""


class Offer(NamedTuple):
    """An open proposal. All records that every turn builds are named tuples, at a third of a dataclass's cost.

    Attributes:
        number: from 1, in the order of the episode; never used twice.
        proposer: agent id.
        terms: in normal form.
        audience: the seats it is open to, including the proposer; ``None`` means all.
        accepted: the seats that have accepted, the proposer first.
        rejected: the seats that have rejected it, while it can still be agreed without them.
    """

    number: int
    proposer: str
    terms: Terms
    audience: frozenset[str] | None = None
    accepted: tuple[str, ...] = ()
    rejected: frozenset[str] = frozenset()

    def visible_to(self, agent: str) -> bool:
        """Whether ``agent`` knows of the offer."""
        return self.audience is None or agent in self.audience

    def open_to(self, agent: str) -> bool:
        """Whether ``agent`` may still accept or reject it."""
        return agent not in self.accepted and agent not in self.rejected and self.visible_to(agent)


class Statable(NamedTuple):
    """The statements open to one seat, which bind nobody.

    Attributes:
        state: the options of each variable whose value may be asserted, by name.
        show: the variables whose values may be proved.
        ask: the variables that may be asked about.
    """

    state: Mapping[str, tuple[str, ...]]
    show: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()

    def moves(self) -> list[Move]:
        """Every statement about one variable."""
        moves = [Move(MoveKind.STATE, {name: option}) for name, options in self.state.items() for option in options]
        moves += [Move(MoveKind.SHOW, name) for name in self.show]
        return moves + [Move(MoveKind.ASK, name) for name in self.ask]

    def lines(self) -> list[str]:
        """One line per kind with its JSON, for models; the options are in the briefing."""
        kinds = (
            ('{"state": {"…": "…"}} asserts a value, true or not, of', tuple(self.state)),
            ('{"show": "…"} proves the value, which is certified, of', self.show),
            ('{"ask": "…"} asks for the value of', self.ask),
        )
        return [f"{text} {', '.join(map(quote, names))}" for text, names in kinds if names]

    def forms(self) -> list[dict[str, Any]]:
        """The JSON schemas of statements about one variable."""
        choices = {name: {"type": "string", "enum": list(options)} for name, options in self.state.items()}
        forms = [_object({MoveKind.STATE: _object({name: choice})}) for name, choice in choices.items()]
        kinds = ((MoveKind.SHOW, self.show), (MoveKind.ASK, self.ask))
        return forms + [_object({kind: {"type": "string", "enum": list(names)}}) for kind, names in kinds if names]


NO_STATEMENTS = Statable({})
"""The statements of a seat in a task without facts."""


class Menu(NamedTuple):
    """The moves open to one seat now; false if no move is open.

    Attributes:
        propose: whether an offer may be made.
        accept: numbers of the offers that may be accepted.
        reject: numbers of the offers that may be rejected.
        withdraw: numbers of the seat's own offers, which it may withdraw.
        vote: the options of an open ballot.
        unvote: whether the seat has a vote that it may take back.
        claim: whether the seat may claim an answer.
        candidates: the answers that may be claimed, if they are public; if ``claim`` is true and this is empty, any
            text may be claimed.
        choose: the options that may be chosen in a game.
        space: the outcome space of the offers.
        offers: the offers that the numbers above name.
        statements: the statements that may be made, alone or beside one of the other moves.
    """

    propose: bool = False
    accept: tuple[int, ...] = ()
    reject: tuple[int, ...] = ()
    withdraw: tuple[int, ...] = ()
    vote: tuple[str, ...] = ()
    unvote: bool = False
    claim: bool = False
    candidates: tuple[str, ...] = ()
    choose: tuple[str, ...] = ()
    space: OutcomeSpace | None = None
    offers: tuple[Offer, ...] = ()
    statements: Statable = NO_STATEMENTS

    def __bool__(self) -> bool:
        return self.binds or bool(self.statements.state or self.statements.show or self.statements.ask)

    @property
    def binds(self) -> bool:
        """Whether a binding move is open."""
        # A vote that can be taken back can also be changed, so ``unvote`` is never the only open move.
        numbered = self.accept or self.reject or self.withdraw
        return self.propose or bool(numbered or self.vote or self.choose) or self.claim

    def _numbered(self) -> list[tuple[MoveKind, int]]:
        kinds = ((MoveKind.ACCEPT, self.accept), (MoveKind.REJECT, self.reject), (MoveKind.WITHDRAW, self.withdraw))
        return [(kind, number) for kind, numbers in kinds for number in numbers]

    def moves(self) -> list[Move]:
        """Every open move that needs neither a text nor terms from the seat."""
        return [Move(kind, number) for kind, number in self._numbered()] + self._unnumbered()

    def _unnumbered(self) -> list[Move]:
        moves = [Move(MoveKind.VOTE, option) for option in self.vote]
        moves += [Move(MoveKind.VOTE, None)] if self.unvote else []
        moves += [Move(MoveKind.CLAIM, candidate) for candidate in self.candidates]
        moves += [Move(MoveKind.CHOOSE, option) for option in self.choose]
        return moves + self.statements.moves()

    @property
    def text(self) -> str:
        """One line per open move with its exact JSON, for models; ``No move is open.`` if the menu is empty.

        The terms of offers are on the table, and the form of an offer is in the briefing; neither is repeated here.
        """
        if self.propose and self.space is not None:
            parts = [self._agreement_text(self.space), *self._choice_lines(), *self.statements.lines()]
            return "\n".join(parts)
        listed = self._replace(statements=NO_STATEMENTS, choose=())._unnumbered()
        lines = [f"{_json(move)} {self._label(move)}" for move in listed] + self._choice_lines()
        if self.claim and not self.candidates:
            lines.append('{"claim": "…"} claims an answer, in place of …')
        return "\n".join([*lines, *self.statements.lines()]) or "No move is open."

    def _choice_lines(self) -> list[str]:
        if len(self.choose) > MOST_LISTED:
            return [f'{{"choose": "…"}} chooses one of the options from {self.choose[0]} to {self.choose[-1]}']
        return [f"{_json(move)} {self._label(move)}" for move in Menu(choose=self.choose)._unnumbered()]

    def _agreement_text(self, space: OutcomeSpace) -> str:
        # The text names offers by number, without terms, so it recurs from episode to episode and is worth a cache.
        owners = tuple([(offer.number, offer.proposer) for offer in self.offers])
        key = (self.accept, self.reject, self.withdraw, owners)
        text = space.menus.get(key)
        return remember(space.menus, key, "\n".join(self._agreement_lines(space))) if text is None else text

    def _agreement_lines(self, space: OutcomeSpace) -> list[str]:
        owners = {offer.number: space.names[offer.proposer] for offer in self.offers}
        return [
            '{"propose": {...}} makes an offer',
            *[f'{{"accept": {number}}} accepts {owners[number]}\'s offer #{number}' for number in self.accept],
            *[f'{{"reject": {number}}} rejects {owners[number]}\'s offer #{number}' for number in self.reject],
            *[f'{{"withdraw": {number}}} withdraws own offer #{number}' for number in self.withdraw],
        ]

    def choices(self, terms: bool = True) -> list[tuple[str, Move | None]]:
        """Every open move in words for people; ``None`` for a move that still needs terms or a text.

        Args:
            terms: whether the terms of an offer follow its number; a page that shows the offers needs the number alone.
        """
        choices: list[tuple[str, Move | None]] = [("make an offer", None)] if self.propose else []
        labels = [(self._label(move, terms), move) for move in self.moves()]
        choices += [(_imperative(label), move) for label, move in labels]
        return choices + ([("claim an answer", None)] if self.claim and not self.candidates else [])

    def _label(self, move: Move, terms: bool = True) -> str:
        if move.kind is MoveKind.VOTE:
            return "takes the vote back" if move.content is None else f"votes for {move.content}"
        if move.kind is MoveKind.CLAIM:
            return f"claims {quote(move.content)}"
        if move.kind is MoveKind.CHOOSE:
            return f"chooses {move.content}"
        if move.kind in STATEMENTS:
            return statement_text([(move.kind, move.content)])
        return self._offer_label(move.kind, next(offer for offer in self.offers if offer.number == move.content), terms)

    def _offer_label(self, kind: MoveKind, offer: Offer, terms: bool) -> str:
        assert self.space is not None
        owner = "own" if kind is MoveKind.WITHDRAW else f"{self.space.names[offer.proposer]}'s"
        content = f" ({self.space.describe(offer.terms)})" if terms else ""
        return f"{kind.value}s {owner} offer #{offer.number}{content}"

    def sample(self, rng: random.Random) -> Move | None:
        """Returns a random open move (first its kind, then its content); ``None`` if none is open."""
        if not self:
            return None
        # The kind is drawn first: many candidates or open offers must not crowd out the other kinds.
        moves = self.moves()
        kinds = sorted({move.kind for move in moves} | ({MoveKind.PROPOSE} if self.propose else set()))
        kind = rng.choice(kinds + ([MoveKind.CLAIM] if self.claim and not self.candidates else []))
        if kind is MoveKind.PROPOSE and self.space is not None:
            return Move(kind, self.space.draw(rng))
        if kind is MoveKind.CLAIM and not self.candidates:
            # Random play must not know the candidates when the list is not public.
            return Move(kind, f"answer {rng.randrange(1000)}")
        return rng.choice([move for move in moves if move.kind is kind])

    def json_schema(self) -> dict[str, Any]:
        """Returns a JSON schema of the moves open now; ``{"type": "null"}`` if no move is open.

        The schema obeys strict mode (all keys required, no additional ones), so two checks are left to ``apply``: that
        the pieces of a division add up, and that a value lies on a large grid that does not contain 0.
        """
        forms = [_object({MoveKind.PROPOSE: self._terms_schema()})] if self.propose else []
        for kind, numbers in (
            (MoveKind.ACCEPT, self.accept),
            (MoveKind.REJECT, self.reject),
            (MoveKind.WITHDRAW, self.withdraw),
        ):
            forms += [_object({kind: {"type": "integer", "enum": list(numbers)}})] if numbers else []
        if self.vote:
            forms.append(_object({MoveKind.VOTE: {"type": "string", "enum": list(self.vote)}}))
        if self.unvote:
            forms.append(_object({MoveKind.VOTE: {"type": "null"}}))
        if self.claim:
            free = {"type": "string", "minLength": 1, "maxLength": LONGEST_CLAIM}
            listed = {"type": "string", "enum": list(self.candidates)}
            forms.append(_object({MoveKind.CLAIM: listed if self.candidates else free}))
        if self.choose:
            forms.append(_object({MoveKind.CHOOSE: {"type": "string", "enum": list(self.choose)}}))
        forms += self.statements.forms()
        return {"anyOf": forms} if len(forms) > 1 else forms[0] if forms else {"type": "null"}

    def _terms_schema(self) -> dict[str, Any]:
        assert self.space is not None
        return _object({issue.name: _value_schema(self.space, index) for index, issue in enumerate(self.space.issues)})


NO_MOVES = Menu()
"""The menu of a seat without open moves."""


def statement_text(parts: Iterable[tuple[MoveKind, Any]], truth: Mapping[str, str] = MappingProxyType({})) -> str:
    """Returns statements in words, such as ``states role of Ana = detective``.

    Args:
        parts: statements of a move in normal form.
        truth: the values that are shown, by variable; empty for a statement that was not made yet.
    """
    return "; ".join(_STATEMENT_WORDS[kind](content, truth) for kind, content in parts)


def names_in(content: object) -> tuple[str, ...]:
    """Returns the variables that the content of a statement names."""
    return (content,) if isinstance(content, str) else tuple(content)  # type: ignore[arg-type]  # a list or a mapping


def _values_text(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def _evidence_text(content: Any, truth: Mapping[str, str]) -> str:
    names = names_in(content)
    return f"proves {_values_text({name: truth[name] for name in names}) if truth else ', '.join(names)}"


_STATEMENT_WORDS: Mapping[MoveKind, Callable[[Any, Mapping[str, str]], str]] = {
    MoveKind.STATE: lambda content, _: f"states {_values_text(content)}",
    MoveKind.SHOW: _evidence_text,
    MoveKind.ASK: lambda content, _: f"asks for {', '.join(names_in(content))}",
}


def _json(move: Move) -> str:
    return json.dumps(move.to_json(), ensure_ascii=False)


def _imperative(label: str) -> str:
    verb, rest = label.split(" ", 1)
    return f"{verb.removesuffix('s')} {'your ' + rest.removeprefix('own ') if rest.startswith('own ') else rest}"


def _object(properties: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    named = {str(key): value for key, value in properties.items()}
    return {"type": "object", "properties": named, "required": list(named), "additionalProperties": False}


def _value_schema(space: OutcomeSpace, index: int) -> dict[str, Any]:
    issue = space.issues[index]
    if issue.kind == "choice":
        return {"type": "string", "enum": list(issue.options)}
    if issue.kind == "items":
        # Only a list of all divisions can express that the pieces add up.
        if issue.size(len(space.names)) <= MOST_DIVISIONS:
            return {"anyOf": [_exactly(division) for division in issue.values(space.names)]}
        return _object({agent: {"type": "integer", "minimum": 0, "maximum": issue.count} for agent in space.names})
    return _number_schema(issue)


def _exactly(division: Mapping[str, int]) -> dict[str, Any]:
    return _object({agent: {"type": "integer", "enum": [count]} for agent, count in division.items()})


def _number_schema(issue: NumberIssue) -> dict[str, Any]:
    kind = "number" if issue.decimals else "integer"
    size = issue.size(1)
    if size <= LONGEST_ENUM:
        return {"type": kind, "enum": [issue.value_at(index) for index in range(size)]}
    limits = {"type": kind, "minimum": issue.value_at(0), "maximum": issue.value_at(size - 1)}
    # ``multipleOf`` counts from 0, so it describes only a grid that would contain 0.
    return limits | ({"multipleOf": json_number(issue.step)} if issue.low % issue.step == 0 else {})
