"""Attributors that need no model: they derive the importance of turns from moves, or from a score without the turn.

All of them are pure functions of the recorded episode; all but ``silence`` read only moves and the table, never
words. ``v`` is the share of the attainable gain that terms give the seat (0 for none, 1 for its best; see
:func:`sotopia_env.world.outcome.references`). It is clipped to [0, 1], and for an agreement to [-1, 1]. In a ballot an
*offer* is a vote, and the partners' current offer is the option that most of them vote for.

**prospect**: the change of the payoff that the seat can expect. At each of the seat's turns this lies between two
bounds: ``in hand``, ``v`` of the best offer open to the seat (0 without one), and ``best achievable``, ``v`` of the
seat's own latest offer, which the partners need only accept (1 before the seat has made an offer). The estimate is
their mean, times 0.5 for the risk that no agreement is reached::

    prospect = 0.5 * (in hand + best achievable) / 2     before an agreement
    prospect = v of the agreement                        from then on
    prospect = the outcome's share, at most 0            after the end, without an agreement

    change of turn t = prospect at the seat's next turn (or after the end) - prospect at turn t

A turn's change thus includes the partners' responses (appendix G: "consider the responses"). An opening that draws
an offer gains. A concession gains if it is returned and loses otherwise. Assent gains the part that was discounted for
risk, but little or nothing if the accepted terms are far below the best achievable. Leaving without an agreement loses
the whole prospect. The changes of all turns, silent ones included, sum to the final worth minus the prospect at the
first turn.

**acts**: the contribution of a turn's move to the outcome, where ``s`` is the absolute share of the outcome that the
seat receives, at most 1 (0 without an agreement)::

    A = 0.5 * closes + 0.5 * s * (1 - u)       for a turn whose move offers, accepts, votes or claims
    A = 0                                      for every other turn

``closes`` is 1 for the move that closed the agreement; if a partner closed it, for the seat's latest offer before that.
``u`` in [0, 1] measures how far an offer was a premature concession. Let *conceded* be the loss in ``v`` against the
seat's previous offer (against its best outcome, for the first offer), *returned* the gain in ``v`` of the partners'
offer since then, and *room* the distance between the seat's previous offer and the partners' current one. Then
``u = (conceded - returned) / room``, clipped to [0, 1]. All other moves have ``u = 0``.

**standing**: the turn reward of this kind (:func:`sotopia_env.evaluators.turn_rewards.standing_rewards`), exact and in
units of the score; the rewards of all turns sum to the score.

**silence**: the change of the score when an exchange is removed. The turn and the others' turns up to the seat's next
one are replaced by silence, as are later moves that are not open without them, and an evaluator without a model scores
the result; turn reward = score - score without. It attributes any dimension that the evaluator scores.

``prospect``, ``standing`` and ``silence`` set A to the turn reward (or change) divided by the largest
(:func:`sotopia_training.attribution.methods.relative`). If the score is a loss (``blame``), they use the negated ones,
and ``acts`` uses ``u`` in place of ``1 - u``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from sotopia_env.evaluators.turn_rewards import changes, standing_rewards, until_next
from sotopia_env.foundation.errors import UnknownNameError
from sotopia_env.foundation.waiting import wait
from sotopia_env.naming import make_evaluator
from sotopia_env.outcomes import MoveKind
from sotopia_env.outcomes.result import OutcomeResult
from sotopia_env.outcomes.table import TableView
from sotopia_env.world import Dimension, Evaluator, Scalarisation
from sotopia_env.world.action import NO_ACTION
from sotopia_env.world.dynamics import Turn, initial_state, transition
from sotopia_env.world.episode import Episode, Evaluation, replay
from sotopia_env.world.outcome import outcome_of, references
from sotopia_training.attribution.methods import (
    Attributor,
    Importance,
    SeatScore,
    Unattributed,
    attributable_turns,
    relative,
)

RISK = 0.5
"""Factor on a prospect before an agreement; the rest is discounted for the risk that no agreement is reached."""
# Values are quotients of floats: smaller differences are rounding errors.
_EPSILON = 1e-9
VERIFIED = (Dimension.GOAL, Dimension.FINANCIAL_AND_MATERIAL_BENEFITS)
"""The dimensions that an outcome verifies."""


@dataclass(frozen=True, slots=True)
class OutcomeAttributor:
    """Rates turns of verified tasks by their moves, for the dimensions that outcomes verify; see the module.

    Attributes:
        name: the attributor's name in records and settings.
        rate: returns the importance of the attributable turns for a score.
    """

    name: str
    rate: Callable[[Episode, str, SeatScore, bool], Importance]

    def applies(self, episode: Episode, score: SeatScore) -> bool:
        """Whether the task has a verifiable outcome and the outcome scores the dimension."""
        return score.dimension in VERIFIED and episode.task.protocol is not None

    def attribute(
        self, episode: Episode, seat: str, score: SeatScore, blame: bool = False
    ) -> Importance | Unattributed:
        """Returns A for every attributable turn."""
        return self.rate(episode, seat, score, blame)


def _prospect(episode: Episode, seat: str, score: SeatScore, blame: bool) -> Importance:
    by_turn = prospect_changes(episode, seat)
    # Without turn rewards: changes of the prospect are shares of the attainable gain, not units of the score.
    return Importance(relative({turn: by_turn[turn] for turn in attributable_turns(episode, seat)}, blame))


def _acts(episode: Episode, seat: str, score: SeatScore, blame: bool) -> Importance:
    course = _Course(episode, seat)
    share, closing = abs(course.agreed_share), course.closing_turn()
    importance = dict.fromkeys(attributable_turns(episode, seat), 0.0)
    for turn, premature in course.acts().items():
        if turn in importance:
            # For a loss, the turn that conceded prematurely carries the blame; for a gain, the turn that did not.
            weight = premature if blame else 1.0 - premature
            # Both halves are at most 0.5, so A stays in [0, 1].
            importance[turn] = 0.5 * (turn == closing) + 0.5 * share * weight
    return Importance(importance)


def _standing(episode: Episode, seat: str, score: SeatScore, blame: bool) -> Importance:
    by_turn = standing_rewards(episode, seat, Scalarisation.of(score.dimension)).by_turn
    return Importance.of_rewards({turn: by_turn[turn] for turn in attributable_turns(episode, seat)}, blame)


_BY_OUTCOME = {"prospect": _prospect, "acts": _acts, "standing": _standing}


class SilenceAttributor:
    """Rates turns by the change of the score when their exchange is removed; see the module.

    The evaluations of the latest episode are cached, so that the dimensions of a seat share them.
    """

    def __init__(self, name: str, evaluator: Evaluator) -> None:
        """Creates the attributor ``name``, which scores transcripts with ``evaluator``."""
        self.name = name
        self._evaluator = evaluator
        self._episode: Episode | None = None
        self._evaluations: dict[int | None, Evaluation] = {}

    def applies(self, episode: Episode, score: SeatScore) -> bool:
        """Whether the dimension is one of the seven; only language models score custom dimensions."""
        return score.dimension in tuple(Dimension)

    def attribute(
        self, episode: Episode, seat: str, score: SeatScore, blame: bool = False
    ) -> Importance | Unattributed:
        """Returns A for every attributable turn."""
        whole = self._score(episode, None, seat, score.dimension)
        if whole is None:
            return Unattributed(f"{self._evaluator.name} does not score {score.dimension}")
        rewards = {}
        for turn in attributable_turns(episode, seat):
            without = self._score(episode, turn, seat, score.dimension)
            rewards[turn] = 0.0 if without is None else whole - without
        return Importance.of_rewards(rewards, blame)

    def _score(self, episode: Episode, turn: int | None, seat: str, name: str) -> float | None:
        """Returns the score without the exchange that starts with ``turn``; the full score for ``None``."""
        # Compared by identity, because comparing the content of whole episodes is slow.
        if episode is not self._episode:
            self._episode, self._evaluations = episode, {}
        if turn not in self._evaluations:
            scored = episode if turn is None else episode.with_turns(_without(episode, turn))
            self._evaluations[turn] = wait(self._evaluator.evaluate(scored))
        score = self._evaluations[turn].by_agent.get(seat, {}).get(Dimension(name))
        return None if score is None else score.value


def _without(episode: Episode, first: int) -> tuple[Turn, ...]:
    """Returns the turns, with silence in place of turn ``first`` and of all turns before its actor's next one.

    The rest is replayed without limits on turns, so that moves which depended on the silenced ones become refused
    moves.
    """
    turns = episode.plain_turns
    actor = turns[first].actor
    end = next((turn.index for turn in turns[first + 1 :] if turn.actor == actor), len(turns))
    # The added silence must not end the replay before the recorded last turn.
    rules = replace(
        episode.rules, max_turns=len(turns) + 1, max_rounds=None, max_silent_turns=0, end_when_settled=False
    )
    state = initial_state(episode.task, rules, episode.seed)
    for turn in turns:
        if state.stop is not None:
            break
        # A move that was refused when played may be open now, so the attempt is replayed.
        state = transition(state, NO_ACTION if first <= turn.index < end else turn.attempted or turn.action)
    return state.turns


def make_attributor(name: str) -> Attributor:
    """Returns the attributor called ``name``: one of :data:`OFFLINE`, or ``silence:EVALUATOR``.

    ``silence`` without an evaluator compares the verified outcomes.

    Raises:
        UnknownNameError: ``name`` is not an attributor, or its evaluator does not exist.
    """
    kind, _, which = name.partition(":")
    if name in _BY_OUTCOME:
        return OutcomeAttributor(name, _BY_OUTCOME[name])
    # A judge would be asked once per turn, and ``attribute`` must not ask a model.
    if kind == "silence" and not which.startswith("judge"):
        return SilenceAttributor(name, make_evaluator(which or "verified"))
    raise UnknownNameError(
        field="attributor", got=name, valid=OFFLINE, hint="a language model is named llm:PROVIDER/MODEL"
    )


OFFLINE = (*_BY_OUTCOME, "silence")
"""The attributors that need no model."""


def prospect_changes(episode: Episode, seat: str) -> dict[int, float]:
    """Returns the change of the prospect over every turn of the seat, by index, silent ones included."""
    return _Course(episode, seat).prospect_changes()


@dataclass(frozen=True, slots=True)
class _Moment:
    """The bounds on a seat's payoff before one of its turns, or after the last turn.

    Attributes:
        turn: the index of the turn.
        in_hand: ``v`` of the best offer open to the seat.
        own: ``v`` of the seat's own latest offer; ``None`` before it has made one.
        agreed: ``v`` of the agreement; ``None`` before there is one.
    """

    turn: int
    in_hand: float
    own: float | None
    agreed: float | None

    @property
    def prospect(self) -> float:
        if self.agreed is not None:
            return self.agreed
        # A seat without an offer has conceded nothing: its best outcome, 1, is still achievable.
        return RISK * (self.in_hand + (1.0 if self.own is None else self.own)) / 2


_OFFERS = (MoveKind.PROPOSE, MoveKind.VOTE)


class _Course:
    """The moves of one episode, valued from the view of one seat."""

    def __init__(self, episode: Episode, seat: str) -> None:
        self._task, self._seat = episode.task, seat
        self._number = episode.task.seat_of[seat]
        self._turns: tuple[Turn, ...] = tuple(item.turn for item in episode.turns)
        self._outcomes: dict[int, OutcomeResult] = {}
        self._points = references(episode.task)
        state = replay(episode)
        # The seat's own turns are its decision points: one moment before each of them, and one after the last turn.
        own = [turn.index for turn in self._turns if turn.actor == seat]
        self._own = [self._turns[index] for index in own]
        self._moments = [self._moment(state.tables[index], index) for index in own]
        if own:
            self._moments.append(self._moment(state.table, len(self._turns)))

    def outcome(self, end: int | None = None) -> OutcomeResult:
        """Returns the outcome of the first ``end`` turns; of all turns by default."""
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
        """Whether the agreement is final: before its last turn, a ballot only has a leading option."""
        assert self._task.protocol is not None
        return outcome.agreed and (self._task.protocol.kind != "ballot" or end == len(self._turns))

    def _in_hand(self, table: TableView) -> float:
        """Returns ``v`` of the best offer that the partners have made."""
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
        """Returns ``v`` of ``terms``, clipped to [0, 1]."""
        spec, protocol = self._task.scenario.resolved_outcome, self._task.protocol
        assert spec is not None
        assert protocol is not None
        low, high = self._points.disagreement[self._number], self._points.best[self._number]
        gain = spec.worth[self._number].value(protocol.space, terms, self._seat) - low
        # If no outcome is better than none, no offer has a value.
        return min(1.0, max(0.0, gain / (high - low))) if high > low else 0.0

    def _share(self, outcome: OutcomeResult) -> float:
        # A share above 1 is possible if another seat accepted a loss.
        return min(1.0, max(-1.0, outcome.shares[self._number]))

    @property
    def agreed_share(self) -> float:
        """The seat's share of the final agreement; 0 without one."""
        return self._share(self.outcome()) if self.outcome().agreed else 0.0

    def prospect_changes(self) -> dict[int, float]:
        """Returns the change of the prospect over each of the seat's turns, by index."""
        if not self._moments:
            return {}
        *moments, last = self._moments
        prospects = {moment.turn: moment.prospect for moment in moments}
        # Without an agreement nothing was gained, but a cost per turn may have lowered the payoff.
        prospects[last.turn] = last.agreed if last.agreed is not None else min(0.0, self._share(self.outcome()))
        return changes(prospects, until_next((moment.turn for moment in moments), last.turn))

    def acts(self) -> dict[int, float]:
        """Returns ``u`` of each turn of the seat that has a move, by index."""
        premature: dict[int, float] = {}
        before: _Moment | None = None  # the moment of the seat's previous offer
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
        """Returns the seat's turn that closed the agreement, or its latest offer before a partner closed it."""
        final = self.outcome()
        if not final.agreed:
            return None
        # Searched from the end: in a ballot the leading option may change several times.
        end = next(e for e in range(len(self._turns), 0, -1) if not _same(self.outcome(e - 1), final))
        if self._turns[end - 1].actor == self._seat:
            return end - 1
        offers = [t.index for t in self._own if t.action.move is not None and t.action.move.kind in _OFFERS]
        return max((index for index in offers if index < end), default=None)


def _same(one: OutcomeResult, other: OutcomeResult) -> bool:
    return one.agreed == other.agreed and one.terms == other.terms


def _premature(before: _Moment | None, now: _Moment, offer: float) -> float:
    """Returns ``u`` of an offer worth ``offer`` made at ``now``, after one made at ``before``; see the module."""
    # The first offer is compared with the best outcome (1.0) and an empty table (0.0), as if it had been demanded
    # before.
    position = 1.0 if before is None or before.own is None else before.own
    earlier = 0.0 if before is None else before.in_hand
    unreturned = (position - offer) - max(0.0, now.in_hand - earlier)
    if position - offer <= _EPSILON or unreturned <= _EPSILON:
        return 0.0
    # The room may be negative, when the partners offer more than the seat asked for; ``max`` keeps ``u`` at most 1.
    return min(1.0, unreturned / max(position - now.in_hand, unreturned))
