"""Attributors that ask no model: what an utterance changed in what the seat could get, what it did, what it told.

All of them are pure functions of the recorded episode. ``v`` is what terms are worth to the seat
(:meth:`~sotopia_env.tasks.family.SeatProblem.value`, 0 at its walk-away point), everywhere below cut to [0, 1] but for
what was agreed, which is cut to [-1, 1]. In a family about facts ``v`` is an expectation of the share; there what was
agreed is worth the share itself.

**prospect**: the change of what the seat can still obtain. At each of the seat's turns two numbers bound that: what it
has in hand (``v`` of the partners' standing offer, which it need only accept; 0 without one), and the best it can
still achieve (``v`` of its own latest offer, which the partners need only accept; before it has made one, ``v`` of the
best terms it can think of). Half-way between them is the fair guess, and half of it is lost to the risk that nothing
comes of it::

    prospect = 0.5 * (in hand + best achievable) / 2     while nothing is agreed
    prospect = v of what is agreed                       from then on
    prospect = the outcome's share, at most 0            after the end, if nothing was agreed

    gain of turn t = prospect at the seat's next turn (or after the end) - prospect at turn t

So a turn is answerable for the partners' answer to it as well (appendix G: "consider the responses"). An opening that
draws an offer gains; a concession gains as far as it is returned and loses otherwise; assent gains what the risk took
away, but little or nothing when it gives away most of what could still be got; leaving without an agreement loses
everything. The gains of all turns, silent ones included, sum to the final worth less the prospect at the first turn.

**acts**: what an utterance did towards what came out, with ``s`` the size of the seat's share of the outcome, at most
1 (0 without an agreement)::

    A = 0.5 * closes + 0.5 * s * (1 - u)       for an utterance that offers, assents, votes, claims or informs
    A = 0                                      for every other one

``closes`` is 1 for the assent that closed the agreement, and for the seat's latest offer of what was agreed if a
partner closed it. ``u`` in [0, 1] is how far an offer was a premature concession: with *conceded* = how much less it is
worth to the seat than its offer before (than the best terms, for the first one), *returned* = how much better the
partners' standing offer has become since then, and *room* = what lay between the seat's offer before and the partners'
standing offer now, ``u = (conceded - returned) / room``, cut to [0, 1]. Assent has ``u = 0``. In a family about facts
an utterance *informs* when a partner is surer after it (its best terms have become worth more to it).

**silence**: what the score would have been without the exchange: an evaluator without a model on the transcript in
which the utterance and the others' answers, up to the seat's next turn, are silence. It attributes any dimension that
the evaluator scores; gain = score - score without.

``prospect`` and ``silence`` give every turn ``A = max(0, gain) / largest gain`` (0 for all when none is above 0). Where
the score is a loss (``blame``) they take the opposite of the gain, and ``acts`` takes ``u`` in place of ``1 - u``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from sotopia_env import tasks
from sotopia_env.errors import UnknownNameError, name_hint
from sotopia_env.naming import make_evaluator as make
from sotopia_env.policies.negotiators import about_facts
from sotopia_env.tasks.family import Family, SeatProblem
from sotopia_env.world.action import NO_ACTION
from sotopia_env.world.dynamics import Turn, TurnOrder, initial_state
from sotopia_env.world.episode import Episode, Evaluation, Evaluator, OutcomeResult, Transcript
from sotopia_env.world.observation import SeatView
from sotopia_env.world.reward import Dimension
from training.attribution.credits import Attributor, Importance, Missing, SeatScore, attributable_turns

RISK = 0.5
"""Share of an open prospect that is counted: the rest stands for the risk that nothing is agreed."""
_EPSILON = 1e-9
_VERIFIED = (Dimension.GOAL, Dimension.FINANCIAL_AND_MATERIAL_BENEFITS)


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
        return Importance(_relative({turn: gains[turn] for turn in attributable_turns(episode, seat)}, blame))


@dataclass(frozen=True, slots=True)
class Acts:
    """What each utterance did towards what came out; see the module."""

    name: str = "acts"

    def applies(self, episode: Episode, score: SeatScore) -> bool:
        """Whether the task has an outcome that can be verified, and the dimension is scored by it."""
        return _verified(episode, score)

    def attribute(self, episode: Episode, seat: str, score: SeatScore, blame: bool = False) -> Importance | Missing:
        """Returns A for every attributable turn."""
        reading = _Reading(episode, seat)
        turns = attributable_turns(episode, seat)
        share = abs(reading.agreed_share)
        closing = reading.closing_turn()
        found = dict.fromkeys(turns, 0.0)
        for turn, premature in reading.acts().items():
            if turn in found:
                weight = premature if blame else 1.0 - premature
                found[turn] = 0.5 * (turn == closing) + 0.5 * share * weight
        return Importance(found)


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
        return Importance(_relative(gains, blame))

    def _score(self, episode: Episode, turn: int | None, seat: str, name: str) -> float | None:
        """The score without the exchange that ``turn`` begins; the whole episode's for ``None``."""
        if episode is not self._episode:
            self._episode, self._evaluations = episode, {}
        if turn not in self._evaluations:
            transcript = Transcript.of_episode(episode)
            if turn is not None:
                transcript = replace(transcript, turns=_without(transcript.turns, turn))
            self._evaluations[turn] = self._evaluator.evaluate(transcript)
        found = self._evaluations[turn].by_agent.get(seat, {}).get(Dimension(name))
        return None if found is None else found.value


def _without(turns: tuple[Turn, ...], first: int) -> tuple[Turn, ...]:
    """The turns with the one at ``first``, and all until its actor's next one, silent."""
    actor = turns[first].actor
    end = next((turn.index for turn in turns[first + 1 :] if turn.actor == actor), len(turns))
    silent = (replace(turn, action=NO_ACTION) for turn in turns[first:end])
    return (*turns[:first], *silent, *turns[end:])


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
        return Silence(name, make(which or "verified+rules"))
    raise UnknownNameError(f"attributor: {name_hint(name, OFFLINE)} (a language model is named llm:PROVIDER/MODEL)")


OFFLINE = ("prospect", "acts", "silence")
"""The attributors that ask no model."""


def _verified(episode: Episode, score: SeatScore) -> bool:
    return score.dimension in _VERIFIED and tasks.family_of(episode.task) is not None


def _relative(gains: Mapping[int, float], blame: bool) -> dict[int, float]:
    """Gains (losses, where the score is one) over the largest; 0 for all when none is above 0."""
    sided = {turn: -gain if blame else gain for turn, gain in gains.items()}
    largest = max(sided.values(), default=0.0)
    if largest <= _EPSILON:
        return dict.fromkeys(gains, 0.0)
    return {turn: min(1.0, max(0.0, gain) / largest) for turn, gain in sided.items()}


def prospect_gains(episode: Episode, seat: str) -> dict[int, float]:
    """Returns the gain of every turn of the seat, silent ones included, by index; see the module."""
    return _Reading(episode, seat).gains()


@dataclass(frozen=True, slots=True)
class _Moment:
    """The seat's problem before one of its turns, or after the last."""

    turn: int
    in_hand: float
    own: float | None
    best: float
    offers: int
    agreed: float | None

    @property
    def prospect(self) -> float:
        if self.agreed is not None:
            return self.agreed
        return RISK * (self.in_hand + (self.best if self.own is None else self.own)) / 2


class _Eyes:
    """What one seat has seen at any point of a recorded episode, and its problem then."""

    def __init__(self, episode: Episode, family: Family, seat: str) -> None:
        task, rules = episode.task, episode.rules
        start = initial_state(task, rules, episode.seed)
        # A family reads nothing of an observation but its briefing and its turns, so only these must be right.
        self._observation = SeatView(task, rules, seat).observe(start)
        self._family = family
        self._veiled = rules.turn_order is TurnOrder.SIMULTANEOUS
        turns = tuple(item.turn for item in episode.turns)
        self._turns, self._all = turns, not any(turn.action.to for turn in turns)
        self._seat = seat

    def seen(self, turn: int) -> int:
        """How many turns are over when the others have seen this one: in a simultaneous round, all of the round."""
        if not self._veiled:
            return turn + 1
        later = (t.index for t in self._turns[turn:] if t.round > self._turns[turn].round)
        return next(later, len(self._turns))

    def problem(self, end: int) -> SeatProblem:
        """The seat's problem when the first ``end`` turns are over."""
        turns = self._turns[:end]
        if self._veiled and end < len(self._turns):
            turns = tuple(turn for turn in turns if turn.round < self._turns[end].round)
        if not self._all:
            turns = tuple(t for t in turns if not t.action.to or self._seat in (t.actor, *t.action.to))
        return self._family.problem(replace(self._observation, turns=turns))


class _Reading:
    """One episode as its task's family reads it for one seat."""

    def __init__(self, episode: Episode, seat: str) -> None:
        family = tasks.family_of(episode.task)
        assert family is not None  # ``applies`` was asked
        self._episode, self._seat, self._family = episode, seat, family
        self._turns: tuple[Turn, ...] = tuple(item.turn for item in episode.turns)
        self._outcomes: dict[int, OutcomeResult] = {}
        eyes = _Eyes(episode, family, seat)
        own = [turn.index for turn in self._turns if turn.actor == seat]
        ends = [*own, len(self._turns)] if own else []
        self._about_facts = bool(own) and about_facts(type(eyes.problem(0)))
        self._moments = [self._moment(eyes.problem(end), end) for end in ends]

    def outcome(self, end: int | None = None) -> OutcomeResult:
        """What the first ``end`` turns amount to; all of them by default."""
        end = len(self._turns) if end is None else end
        if end not in self._outcomes:
            self._outcomes[end] = self._family.read(self._episode.task, self._turns[:end])
        return self._outcomes[end]

    def _moment(self, problem: SeatProblem, end: int) -> _Moment:
        candidates = problem.candidates()
        best = _cut(candidates[0][1]) if candidates else 0.0
        # Early offers may name some issues only; they bind nobody to a whole yet, and have no worth of their own.
        offers = [t for t in problem.outgoing() if not candidates or t.keys() == candidates[0][0].keys()]
        incoming = problem.incoming()
        agreed = problem.settled() and self.outcome(end).agreement
        return _Moment(
            turn=end,
            in_hand=0.0 if incoming is None else _cut(problem.value(incoming)),
            own=_cut(problem.value(offers[-1])) if offers else None,
            best=best,
            offers=len(problem.outgoing()),
            agreed=self._worth(problem, self.outcome(end)) if agreed else None,
        )

    def _worth(self, problem: SeatProblem, outcome: OutcomeResult) -> float:
        """What is agreed, to the seat."""
        if self._about_facts:
            return self._share(outcome)
        return min(1.0, max(-1.0, problem.value(outcome.terms)))

    def _share(self, outcome: OutcomeResult) -> float:
        return min(1.0, max(-1.0, outcome.shares[self._episode.task.agents.index(self._seat)]))

    @property
    def agreed_share(self) -> float:
        """The seat's share of what was agreed in the end; 0 if nothing was."""
        return self._share(self.outcome()) if self.outcome().agreement else 0.0

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
        """The seat's turns that did something, with how premature a concession each of them was."""
        found = dict.fromkeys(self._informing(), 0.0)
        before: _Moment | None = None  # at the seat's last offer
        for moment, later in pairwise(self._moments):
            if later.offers > moment.offers and later.own is not None:
                found[moment.turn] = _premature(before, moment, later.own)
                before = replace(moment, own=later.own)
            elif later.offers > moment.offers:
                found[moment.turn] = 0.0  # a part of an offer
            if moment.agreed is None and later.agreed is not None and self.outcome(moment.turn + 1).agreement:
                found[moment.turn] = 0.0  # assent
        return found

    def _informing(self) -> list[int]:
        """The seat's turns after which a partner is surer, in a family about facts."""
        if not self._about_facts:
            return []
        others = [agent for agent in self._episode.task.agents if agent != self._seat]
        partners = [_Eyes(self._episode, self._family, agent) for agent in others]
        turns = [moment.turn for moment in self._moments[:-1]]
        return [
            turn
            for turn in turns
            if any(_certainty(eyes, eyes.seen(turn)) > _certainty(eyes, turn) + _EPSILON for eyes in partners)
        ]

    def closing_turn(self) -> int | None:
        """The seat's own turn that closed what was agreed, or its latest offer before a partner closed it."""
        final = self.outcome()
        if not final.agreement:
            return None
        end = next(e for e in range(len(self._turns), 0, -1) if not _same(self.outcome(e - 1), final))
        if self._turns[end - 1].actor == self._seat:
            return end - 1
        offered = [moment.turn for moment, later in pairwise(self._moments) if later.offers > moment.offers]
        return max((turn for turn in offered if turn < end), default=None)


def _same(one: OutcomeResult, other: OutcomeResult) -> bool:
    return one.agreement == other.agreement and one.terms == other.terms


def _certainty(eyes: _Eyes, end: int) -> float:
    """The worth of the best terms that a seat can think of."""
    candidates = eyes.problem(end).candidates()
    return candidates[0][1] if candidates else 0.0


def _premature(before: _Moment | None, now: _Moment, offered: float) -> float:
    """``u`` of an offer worth ``offered``, made at ``now``, after the one made at ``before``; see the module."""
    held = now.best if before is None or before.own is None else before.own
    earlier = 0.0 if before is None else before.in_hand
    unreturned = (held - offered) - max(0.0, now.in_hand - earlier)
    if held - offered <= _EPSILON or unreturned <= _EPSILON:
        return 0.0
    return min(1.0, unreturned / max(held - now.in_hand, unreturned))


def _cut(value: float) -> float:
    return min(1.0, max(0.0, value))
