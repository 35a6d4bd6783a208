"""The worth of outcomes to the person in a seat: numbers with a unit, their parts, and where they lie on a scale.

Everything comes from the seat's own :class:`~sotopia_env.world.Observation`. Under rules without ``worths`` nothing is
there of agreements. Pages draw the scales as pictures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.outcomes import ItemsIssue, Move, MoveKind, NumberIssue, OutcomeSpace
from sotopia_env.outcomes.issues import Issue
from sotopia_env.outcomes.space import OPTION, Terms
from sotopia_env.outcomes.valuation import Valuation
from sotopia_env.outcomes.worth import AdditiveWorth, BallotWorth, TableWorth
from sotopia_env.people.seat.form import OFFER, read_form_move, read_term
from sotopia_env.world import Observation
from sotopia_env.world.perception.briefing import Briefing

MOST_POINTS = 12
"""The number of outcomes above which a table of worths is not drawn: nobody compares more at a glance."""


@dataclass(frozen=True, slots=True)
class WorthPart:
    """The part of an outcome's worth that comes from one issue; ``worth`` is empty as long as the issue is open."""

    issue: str
    terms: str
    worth: str


@dataclass(frozen=True, slots=True)
class SeatWorth:
    """The worth of an outcome to a seat.

    Attributes:
        total: with its unit; empty as long as an issue is open.
        parts: what each issue adds, if there are several and their worths add up.
        position: from 0 (the seat's worst outcome) to 1 (its best); ``None`` without a total.
        problem: what is missing or wrong, for the person; empty with a total.
    """

    total: str = ""
    parts: tuple[WorthPart, ...] = ()
    position: float | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class WorthScale:
    """All that a seat can get, from its worst outcome to its best one.

    Attributes:
        low: the worth of the worst outcome, or of no agreement if that is less.
        high: the worth of the best outcome, or of no agreement if that is more.
        without: the worth without an agreement or decision.
        position: of ``without``, from 0 to 1.
        settled: ``agreed`` or ``decided``.
        unsettled: ``an agreement`` or ``a decision``.
    """

    low: str
    high: str
    without: str
    position: float
    settled: str
    unsettled: str


@dataclass(frozen=True, slots=True)
class ScalePoint:
    """A value of an issue and what it adds to the worth; ``position`` is from 0 (the worst value) to 1 (the best)."""

    text: str
    worth: str
    position: float


@dataclass(frozen=True, slots=True)
class IssueScale:
    """The values of an issue and which of them are better for the seat.

    Attributes:
        name: the issue; empty for whole outcomes.
        better: for a number, the end that is better for the seat, if one is; empty for options.
        points: the two ends of a number, or the options.
        limit: the number that is worth as much as no agreement, and its position between the two ends; ``None``
            where several issues count or no number of the issue is worth that.
    """

    name: str
    better: Literal["", "higher", "lower"]
    points: tuple[ScalePoint, ...]
    limit: tuple[str, float] | None = None


def worths_hidden(briefing: Briefing) -> bool:
    """Whether the rules leave out what values and offers of an agreement are worth, as they do for models."""
    return briefing.protocol == "agreement" and not briefing.reads_worths


def worth_text(briefing: Briefing, value: float) -> str:
    """Returns a worth to the seat with its unit: that of the only issue if the worth counts in it, else points."""
    issue = briefing.space.issues[0] if briefing.space is not None and len(briefing.space.issues) == 1 else None
    if isinstance(briefing.worth, AdditiveWorth) and isinstance(issue, NumberIssue):
        gain = briefing.worth.issues[issue.name]["per_unit"]
        # A worth with more decimals than the grid, such as by a constant, would be rounded.
        if issue.unit and abs(gain) == 1 and round(value, issue.decimals) == value:
            return issue.amount_text(value)
    return f"{value:g} point{'s' * (abs(value) != 1)}"


def worth_scale(briefing: Briefing) -> WorthScale | None:
    """Returns what the seat can get; ``None`` where that depends on facts or answers that it may not know."""
    if (limits := _limits(briefing)) is None or briefing.worth is None:
        return None
    low, high = limits
    without = briefing.worth.disagreement
    is_ballot = briefing.protocol == "ballot"
    texts = [worth_text(briefing, value) for value in (low, high, without)]
    settled, unsettled = ("decided", "a decision") if is_ballot else ("agreed", "an agreement")
    return WorthScale(texts[0], texts[1], texts[2], _position(without, low, high), settled, unsettled)


def issue_scales(briefing: Briefing) -> list[IssueScale]:
    """Returns a scale for every issue whose values have a worth of their own to the seat, in their order."""
    space, worth = briefing.space, briefing.worth
    if space is None or worths_hidden(briefing):
        return []
    if (table := _Sum.of(briefing)) is not None:
        return [_additive_scale(briefing, table, issue) for issue in space.issues]
    if isinstance(worth, BallotWorth):
        return [_option_scale(briefing, "", [(option, gain) for option, gain in worth.options.items()])]
    if isinstance(worth, TableWorth) and space.size <= MOST_POINTS:
        gains = [(space.describe(terms), worth.value(space, terms)) for terms in space.outcomes()]
        return [_option_scale(briefing, "", gains)]
    return []


def offer_worths(observation: Observation) -> dict[int, SeatWorth]:
    """Returns the worth of every open offer to the seat, by its number; empty where the seat may not know it."""
    offers = [] if observation.table is None else [standing.offer for standing in observation.table.offers]
    if _limits(observation.briefing) is None:
        return {}
    return {offer.number: terms_worth(observation.briefing, offer.terms) for offer in offers}


def terms_worth(briefing: Briefing, terms: Mapping[str, Any]) -> SeatWorth:
    """Returns the worth of complete terms in normal form; with an empty total where the seat may not know it."""
    limits, worth = _limits(briefing), briefing.worth
    if limits is None or worth is None or briefing.space is None:
        return SeatWorth()
    value = worth.value(briefing.space, terms, briefing.agent)
    return SeatWorth(worth_text(briefing, value), _parts(briefing, terms), _position(value, *limits))


def form_worth(observation: Observation, fields: Mapping[str, str]) -> SeatWorth:
    """Returns the worth of the move in a person's form; without a total where that is not settled by the move.

    Args:
        observation: the observation of the seat.
        fields: the fields of the form, as for :func:`~sotopia_env.people.seat.form.read_action`.
    """
    briefing = observation.briefing
    try:
        move = read_form_move(observation, fields)
        terms = None if move is None else _move_terms(observation, move)
    except InvalidValueError as error:
        is_offer = fields.get("move") == OFFER and _limits(briefing) is not None
        return SeatWorth(parts=_parts(briefing, _open_terms(briefing, fields)) if is_offer else (), problem=str(error))
    return SeatWorth() if terms is None else terms_worth(briefing, terms)


def _move_terms(observation: Observation, move: Move) -> Mapping[str, Any] | None:
    """The terms that a move proposes, accepts or votes for."""
    space = observation.briefing.space
    if move.kind is MoveKind.PROPOSE and space is not None:
        return space.normalise(move.content)
    if move.kind is MoveKind.ACCEPT and observation.table is not None:
        return next(item.offer.terms for item in observation.table.offers if item.offer.number == move.content)
    return {OPTION: move.content} if move.kind is MoveKind.VOTE and move.content is not None else None


def _open_terms(briefing: Briefing, fields: Mapping[str, str]) -> Terms:
    """The issues of an incomplete offer that have a valid value."""
    terms: Terms = {}
    space = briefing.space
    for index, issue in enumerate(() if space is None else space.issues):
        assert space is not None
        try:
            terms[issue.name] = issue.read(read_term(space, index, fields), space.names)
        except InvalidValueError:
            continue  # the row of this issue stays open
    return terms


def _parts(briefing: Briefing, terms: Mapping[str, Any]) -> tuple[WorthPart, ...]:
    table = _Sum.of(briefing)
    if table is None or len(table.space.issues) < 2:
        return ()
    rows = []
    for issue in table.space.issues:
        if issue.name in terms:
            text, gain = issue.text(terms[issue.name], table.space.names), table.gain(issue, terms[issue.name])
            rows.append(WorthPart(issue.name, text, worth_text(briefing, gain)))
        else:
            rows.append(WorthPart(issue.name, "", ""))
    # So that the rows add up to the total.
    rows += [WorthPart("any agreement", "", worth_text(briefing, table.base))] if table.base else []
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class _Sum:
    """A worth that adds up over issues, as a seat reads it.

    The scale of a number begins anywhere, such as at a salary of 0. Therefore its worst value counts 0 where there are
    several issues, and :attr:`base` has the rest. A single issue counts as a whole.
    """

    space: OutcomeSpace
    valuation: Valuation
    agent: str

    @classmethod
    def of(cls, briefing: Briefing) -> _Sum | None:
        if briefing.space is None or worths_hidden(briefing) or not isinstance(briefing.worth, AdditiveWorth):
            return None
        return cls(briefing.space, briefing.worth.valuation(briefing.space, briefing.agent), briefing.agent)

    @property
    def base(self) -> float:
        """What every agreement adds."""
        if len(self.space.issues) == 1:
            return 0.0
        return (self.valuation.constant + sum(map(self._offset, self.space.issues))) / self.valuation.scale

    def gain(self, issue: Issue, value: Any) -> float:
        """What a value of an issue adds."""
        offset = -self.valuation.constant if len(self.space.issues) == 1 else self._offset(issue)
        return (self._exact(issue, value) - offset) / self.valuation.scale

    def ends(self, issue: Issue) -> list[Any]:
        """The values of an issue among which are the best and the worst: gains are linear in numbers and pieces."""
        names = self.space.names
        if isinstance(issue, NumberIssue):
            return [issue.value_at(0), issue.value_at(issue.size(0) - 1)]
        if isinstance(issue, ItemsIssue):
            other = next((agent for agent in names if agent != self.agent), self.agent)
            return [{**dict.fromkeys(names, 0), agent: issue.count} for agent in (other, self.agent)]
        return list(issue.values(names))

    def limits(self) -> tuple[float, float]:
        gains = [[self.gain(issue, value) for value in self.ends(issue)] for issue in self.space.issues]
        return self.base + sum(map(min, gains)), self.base + sum(map(max, gains))

    def _offset(self, issue: Issue) -> int:
        return min(self._exact(issue, end) for end in self.ends(issue)) if isinstance(issue, NumberIssue) else 0

    def _exact(self, issue: Issue, value: Any) -> int:
        return self.valuation.part(issue.name).exact(self.space, {issue.name: value})


def _limits(briefing: Briefing) -> tuple[float, float] | None:
    """The least and the most that the seat can get, with or without an outcome, before the cost of turns.

    ``None`` where the seat may not know it, or the rules do not let it read worths.
    """
    if worths_hidden(briefing):
        return None
    worth, table = briefing.worth, _Sum.of(briefing)
    if table is not None:
        values = list(table.limits())
    elif isinstance(worth, TableWorth):
        values = [entry.value for entry in worth.table]
    elif isinstance(worth, BallotWorth):
        values = [*worth.options.values()]
    else:
        return None
    assert worth is not None
    return min(*values, worth.disagreement), max(*values, worth.disagreement)


def _additive_scale(briefing: Briefing, table: _Sum, issue: Issue) -> IssueScale:
    gains = [(value, table.gain(issue, value)) for value in table.ends(issue)]
    if isinstance(issue, NumberIssue):
        texts = [(issue.amount_text(value), gain) for value, gain in gains]
    elif isinstance(issue, ItemsIssue):
        texts = [(f"{value[briefing.agent]} for you", gain) for value, gain in gains]
    else:
        return _option_scale(briefing, issue.name, [(str(value), gain) for value, gain in gains])
    (_, low), (_, high) = gains
    better: Literal["", "higher", "lower"] = "" if low == high else "higher" if high > low else "lower"
    points = _option_scale(briefing, issue.name, texts).points
    return IssueScale(issue.name, better, points, _limit(briefing, table, issue))


def _limit(briefing: Briefing, table: _Sum, issue: Issue) -> tuple[str, float] | None:
    assert briefing.worth is not None
    if not isinstance(issue, NumberIssue) or len(table.space.issues) > 1:
        return None
    first, last = (table.gain(issue, end) for end in table.ends(issue))
    if first == last or not min(first, last) <= briefing.worth.disagreement <= max(first, last):
        return None
    share = (briefing.worth.disagreement - first) / (last - first)
    return issue.amount_text(float(issue.low) + share * float(issue.high - issue.low)), share


def _option_scale(briefing: Briefing, name: str, gains: list[tuple[str, float]]) -> IssueScale:
    low, high = min(gain for _, gain in gains), max(gain for _, gain in gains)
    points = (ScalePoint(text, worth_text(briefing, gain), _position(gain, low, high)) for text, gain in gains)
    return IssueScale(name, "", tuple(points))


def _position(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 0.5
