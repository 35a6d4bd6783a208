"""Attributors that ask no model: what a turn's move changed in what the seat could get, and what it did.

All of them are pure functions of the recorded episode; ``prospect`` and ``acts`` read moves and the table alone, never
words. ``v`` is the share of the attainable gain that terms give the seat (0 is no agreement, 1 its best, see
:func:`sotopia_env.world.outcome.references`), everywhere below cut to [0, 1] but for what was agreed, which is cut to
[-1, 1]. In a ballot an *offer* is a vote, and the partners' standing offer is the option that most of them vote for.

**prospect**: the change of what the seat can still obtain. At each of the seat's turns two numbers bound that: what it
has in hand (``v`` of the best offer that stands open to it; 0 without one), and the best it can still achieve (``v`` of
its own latest offer, which the partners need only accept; before it has made one, 1). Half-way between them is the fair
guess, and half of it is lost to the risk that nothing comes of it::

    prospect = 0.5 * (in hand + best achievable) / 2     while nothing is agreed
    prospect = v of what is agreed                       from then on
    prospect = the outcome's share, at most 0            after the end, if nothing was agreed

    gain of turn t = prospect at the seat's next turn (or after the end) - prospect at turn t

So a turn is answerable for the partners' answer to it as well (appendix G: "consider the responses"). An opening that
draws an offer gains; a concession gains as far as it is returned and loses otherwise; assent gains what the risk took
away, but little or nothing when it gives away most of what could still be got; leaving without an agreement loses
everything. The gains of all turns, silent ones included, sum to the final worth less the prospect at the first turn.

**acts**: what a turn's move did towards what came out, with ``s`` the size of the seat's share of the outcome, at most
1 (0 without an agreement)::

    A = 0.5 * closes + 0.5 * s * (1 - u)       for a turn whose move offers, accepts, votes or claims
    A = 0                                      for every other one

``closes`` is 1 for the move that closed the agreement, and for the seat's latest offer of what was agreed if a partner
closed it. ``u`` in [0, 1] is how far an offer was a premature concession: with *conceded* = how much less it is worth
to the seat than its offer before (than its best, for the first one), *returned* = how much better the partners'
standing offer has become since then, and *room* = what lay between the seat's offer before and the partners' standing
offer now, ``u = (conceded - returned) / room``, cut to [0, 1]. All other moves have ``u = 0``.

**silence**: what the score would have been without the exchange: an evaluator without a model on the transcript in
which the turn and the others' answers, up to the seat's next turn, are silence. It attributes any dimension that the
evaluator scores; gain = score - score without. Moves that were not open without the exchange are silence too.

``prospect`` and ``silence`` give every turn ``A = max(0, gain) / largest gain`` (0 for all when none is above 0). Where
the score is a loss (``blame``) they take the opposite of the gain, and ``acts`` takes ``u`` in place of ``1 - u``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from sotopia_env.errors import UnknownNameError
from sotopia_env.naming import make_evaluator
from sotopia_env.outcomes import MoveKind, OutcomeResult, TableView
from sotopia_env.world import (
    NO_ACTION,
    Dimension,
    Episode,
    Evaluation,
    Evaluator,
    Turn,
    initial_state,
    outcome_of,
    references,
    replay,
    transition,
)
from training.attribution.credits import Attributor, Importance, Missing, SeatScore, attributable_turns, relative

RISK = 0.5
"""Share of an open prospect that is counted: the rest stands for the risk that nothing is agreed."""
_EPSILON = 1e-9
VERIFIED = (Dimension.GOAL, Dimension.FINANCIAL_AND_MATERIAL_BENEFITS)
"""The dimensions that an outcome verifies."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """The change of what the seat can still obtain; see the module."""

    name: str = "prospect"

    def applies(self, episode: Episode, score: SeatScore) -> bool:
        """Whether the task has an outcome that can be verified, and the dimension is scored by it."""
        return _verified(episode, score)

    def attribute(self, episode: Episode, seat: str, score: SeatScore, blame: bool = False) -> Importance | Missing:
        """Returns A for every attributable turn."""
        gains = prospect_gains(episode, seat)
        return Importance(relative({turn: gains[turn] for turn in attributable_turns(episode, seat)}, blame))


@dataclass(frozen=True, slots=True)
class Acts:
    """What each turn's move did towards what came out; see the module."""

    name: str = "acts"

    def applies(self, episode: Episode, score: SeatScore) -> bool:
        """Whether the task has an outcome that can be verified, and the dimension is scored by it."""
        return _verified(episode, score)

    def attribute(self, episode: Episode, seat: str, score: SeatScore, blame: bool = False) -> Importance | Missing:
        """Returns A for every attributable turn."""
        course = _Course(episode, seat)
        share, closing = abs(course.agreed_share), course.closing_turn()
        importance = dict.fromkeys(attributable_turns(episode, seat), 0.0)
        for turn, premature in course.acts().items():
            if turn in importance:
                weight = premature if blame else 1.0 - premature
                importance[turn] = 0.5 * (turn == closing) + 0.5 * share * weight
        return Importance(importance)


class Silence:
    """What the score would have been without the exchange; see the module.

    It remembers the evaluations of the episode it was asked about last, so that the dimensions of a seat share them.
    """

    def __init__(self, name: str, evaluator: Evaluator) -> None:
        """Creates the attributor ``name``, which scores transcripts with ``evaluator``."""
        self.name = name
        self._evaluator = evaluator
        self._episode: Episode | None = None
        self._evaluations: dict[int | None, Evaluation] = {}

    def applies(self, episode: Episode, score: SeatScore) -> bool:
        """Whether the dimension is one of the seven; a custom one has no other judge than a language model."""
        return score.dimension in tuple(Dimension)

    def attribute(self, episode: Episode, seat: str, score: SeatScore, blame: bool = False) -> Importance | Missing:
        """Returns A for every attributable turn."""
        whole = self._score(episode, None, seat, score.dimension)
        if whole is None:
            return Missing(f"{self._evaluator.name} does not score {score.dimension}")
        gains = {}
        for turn in attributable_turns(episode, seat):
            without = self._score(episode, turn, seat, score.dimension)
            gains[turn] = 0.0 if without is None else whole - without
        return Importance(relative(gains, blame), gains=gains)

    def _score(self, episode: Episode, turn: int | None, seat: str, name: str) -> float | None:
        """The score without the exchange that ``turn`` begins; the whole episode's for ``None``."""
        if episode is not self._episode:
            self._episode, self._evaluations = episode, {}
        if turn not in self._evaluations:
            scored = episode if turn is None else episode.with_turns(_without(episode, turn))
            self._evaluations[turn] = self._evaluator.evaluate(scored)
        score = self._evaluations[turn].by_agent.get(seat, {}).get(Dimension(name))
        return None if score is None else score.value


def _without(episode: Episode, first: int) -> tuple[Turn, ...]:
    """The turns as they would stand with the one at ``first``, and all until its actor's next one, silent.

    The rest is played again without limits, so that a move which leant on what is silent now does not count.
    """
    turns = episode.plain_turns
    actor = turns[first].actor
    end = next((turn.index for turn in turns[first + 1 :] if turn.actor == actor), len(turns))
    rules = replace(
        episode.rules, max_turns=len(turns) + 1, max_rounds=None, max_silent_turns=0, end_when_settled=False
    )
    state = initial_state(episode.task, rules, episode.seed)
    for turn in turns:
        if state.stop is not None:
            break
        state = transition(state, NO_ACTION if first <= turn.index < end else turn.attempted or turn.action)
    return state.turns


def make_attributor(name: str) -> Attributor:
    """Returns the attributor called ``name``: ``prospect``, ``acts``, ``silence`` or ``silence:EVALUATOR``.

    ``silence`` alone evaluates by ``verified+rules``.

    Raises:
        UnknownNameError: there is none, or no such evaluator.
    """
    kind, _, which = name.partition(":")
    if name == "prospect":
        return Prospect()
    if name == "acts":
        return Acts()
    if kind == "silence" and not which.startswith("judge"):
        return Silence(name, make_evaluator(which or "verified+rules"))
    raise UnknownNameError(
        field="attributor", got=name, valid=OFFLINE, hint="a language model is named llm:PROVIDER/MODEL"
    )


OFFLINE = ("prospect", "acts", "silence")
"""The attributors that ask no model."""


def _verified(episode: Episode, score: SeatScore) -> bool:
    return score.dimension in VERIFIED and episode.task.protocol is not None


def prospect_gains(episode: Episode, seat: str) -> dict[int, float]:
    """Returns the gain of every turn of the seat, silent ones included, by index; see the module."""
    return _Course(episode, seat).gains()


@dataclass(frozen=True, slots=True)
class _Moment:
    """What a seat could still get before one of its turns, or after the last."""

    turn: int
    in_hand: float
    own: float | None
    agreed: float | None

    @property
    def prospect(self) -> float:
        if self.agreed is not None:
            return self.agreed
        return RISK * (self.in_hand + (1.0 if self.own is None else self.own)) / 2


_OFFERS = (MoveKind.PROPOSE, MoveKind.VOTE)


class _Course:
    """One episode's moves as they mattered to one seat."""

    def __init__(self, episode: Episode, seat: str) -> None:
        self._task, self._seat = episode.task, seat
        self._number = episode.task.seat_of[seat]
        self._turns: tuple[Turn, ...] = tuple(item.turn for item in episode.turns)
        self._outcomes: dict[int, OutcomeResult] = {}
        self._points = references(episode.task)
        state = replay(episode)
        own = [turn.index for turn in self._turns if turn.actor == seat]
        self._own = [self._turns[index] for index in own]
        self._moments = [self._moment(state.tables[index], index) for index in own]
        if own:
            self._moments.append(self._moment(state.table, len(self._turns)))

    def outcome(self, end: int | None = None) -> OutcomeResult:
        """What the first ``end`` turns amount to; all of them by default."""
        end = len(self._turns) if end is None else end
        if end not in self._outcomes:
            self._outcomes[end] = outcome_of(self._task, self._turns[:end])
        return self._outcomes[end]

    def _moment(self, table: Any, end: int) -> _Moment:
        assert self._task.protocol is not None
        outcome = self.outcome(end)
        return _Moment(
            turn=end,
            in_hand=self._in_hand(self._task.protocol.table(table, self._seat)),
            own=self._latest_offer(end),
            agreed=self._share(outcome) if self._closed(outcome, end) else None,
        )

    def _closed(self, outcome: OutcomeResult, end: int) -> bool:
        """Whether something is agreed for good: a ballot that is still open only leans towards an option."""
        assert self._task.protocol is not None
        return outcome.agreed and (self._task.protocol.kind != "ballot" or end == len(self._turns))

    def _in_hand(self, table: TableView) -> float:
        """The best of what the partners offer."""
        if table.votes is not None:
            others = [option for agent, option in table.votes.options.items() if agent != self._seat]
            return self.value({"option": max(others, key=others.count)}) if others else 0.0
        return max((self.value(item.offer.terms) for item in table.offers if item.open), default=0.0)

    def _latest_offer(self, end: int) -> float | None:
        moves = [turn.action.move for turn in self._own if turn.index < end and turn.action.move is not None]
        for move in reversed(moves):
            if move.kind is MoveKind.PROPOSE:
                return self.value(move.content)
            if move.kind is MoveKind.VOTE and move.content is not None:
                return self.value({"option": move.content})
        return None

    def value(self, terms: Mapping[str, Any]) -> float:
        """The share of its attainable gain that ``terms`` give the seat, cut to [0, 1]."""
        spec, protocol = self._task.scenario.outcome, self._task.protocol
        assert spec is not None
        assert protocol is not None
        low, high = self._points.disagreement[self._number], self._points.best[self._number]
        gain = spec.worth[self._number].value(protocol.space, terms, self._seat) - low
        return min(1.0, max(0.0, gain / (high - low))) if high > low else 0.0

    def _share(self, outcome: OutcomeResult) -> float:
        return min(1.0, max(-1.0, outcome.shares[self._number]))

    @property
    def agreed_share(self) -> float:
        """The seat's share of what was agreed in the end; 0 if nothing was."""
        return self._share(self.outcome()) if self.outcome().agreed else 0.0

    def gains(self) -> dict[int, float]:
        """The change of the prospect over each of the seat's turns."""
        if not self._moments:
            return {}
        last = self._moments[-1]
        end = last.agreed if last.agreed is not None else min(0.0, self._share(self.outcome()))
        after = [moment.prospect for moment in self._moments[1:-1]] + [end]
        before = self._moments[:-1]
        return {moment.turn: later - moment.prospect for moment, later in zip(before, after, strict=True)}

    def acts(self) -> dict[int, float]:
        """The seat's turns whose move counted, with how premature a concession each of them was."""
        premature: dict[int, float] = {}
        before: _Moment | None = None  # at the seat's last offer
        for turn, (moment, later) in zip(self._own, pairwise(self._moments), strict=True):
            move = turn.action.move
            if move is None:
                continue
            premature[turn.index] = 0.0
            if move.kind in _OFFERS and later.own is not None and move.content is not None:
                premature[turn.index] = _premature(before, moment, later.own)
                before = replace(moment, own=later.own)
        return premature

    def closing_turn(self) -> int | None:
        """The seat's own turn that closed what was agreed, or its latest offer before a partner closed it."""
        final = self.outcome()
        if not final.agreed:
            return None
        end = next(e for e in range(len(self._turns), 0, -1) if not _same(self.outcome(e - 1), final))
        if self._turns[end - 1].actor == self._seat:
            return end - 1
        offers = [t.index for t in self._own if t.action.move is not None and t.action.move.kind in _OFFERS]
        return max((index for index in offers if index < end), default=None)


def _same(one: OutcomeResult, other: OutcomeResult) -> bool:
    return one.agreed == other.agreed and one.terms == other.terms


def _premature(before: _Moment | None, now: _Moment, offer: float) -> float:
    """``u`` of an offer worth ``offer``, made at ``now``, after the one made at ``before``; see the module."""
    position = 1.0 if before is None or before.own is None else before.own
    earlier = 0.0 if before is None else before.in_hand
    unreturned = (position - offer) - max(0.0, now.in_hand - earlier)
    if position - offer <= _EPSILON or unreturned <= _EPSILON:
        return 0.0
    return min(1.0, unreturned / max(position - now.in_hand, unreturned))
