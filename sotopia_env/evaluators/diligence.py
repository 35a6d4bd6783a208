"""Due Diligence from moves (SocialReasoning-Bench): whether a good result is due to good decisions or to luck.

Every decision of a seat is compared with that of a reasonable agent in the same position; Due Diligence is the share
of decisions that agree. The rules are those of the benchmark (microsoft/social-reasoning-bench,
``reasonable_agent.py``), stated in worths instead of prices, so that they hold for either seat:

=============  ========================================================  ============================================
decision       one ``number`` issue (marketplace)                        one ``choice`` issue (calendar)
=============  ========================================================  ============================================
first offer    is worth more than no agreement                           as good as the best option still open
later offer    gives up less than half of what the last one left         as good as the best option still open
acceptance     worth no less than no agreement, and a better outcome     no better option is still open
               was asked for before
rejection      –                                                         a better option is still open
=============  ========================================================  ============================================

An option is *open* to a seat if it is worth at least as much as no agreement and neither side has turned it down, by a
rejection or by another offer. The benchmark's check that an agent reads its calendar first is left out, because the
calendar is part of the briefing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sotopia_env.evaluators.evaluator import Basis, ComputedEvaluator
from sotopia_env.foundation.errors import EvaluationError, InvalidTaskError
from sotopia_env.outcomes import Agreement, ChoiceIssue, Move, MoveKind, NumberIssue, OutcomeSpec
from sotopia_env.outcomes.protocols.agreement import AgreementState
from sotopia_env.outcomes.protocols.statements import FactsState
from sotopia_env.outcomes.space import Terms
from sotopia_env.outcomes.specification import worth_value
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.episode import Episode, Evaluation, Score
from sotopia_env.world.outcome import outcome_of
from sotopia_env.world.reward import CustomDimension, Dimension
from sotopia_env.world.scenario import Task
from sotopia_env.world.tables import folded

OPTIMALITY, DILIGENCE = "outcome_optimality", "due_diligence"
ARCHETYPES = {(True, True): "robust", (True, False): "lucky", (False, True): "ineffective", (False, False): "negligent"}
"""The archetypes by whether outcome and process are good (at least 0.5); scored 0 or 1, so that means are shares."""
_GOOD = 0.5
_INSTRUCTIONS = {
    OPTIMALITY: "Share of the best outcome that the other side can also accept.",
    DILIGENCE: "Share of decisions in which a reasonable agent would have done the same.",
    **{name: f"Whether the seat was {name}: outcome, then process." for name in ARCHETYPES.values()},
}
DIMENSIONS = tuple(CustomDimension(name=name, low=0, high=1, instruction=i) for name, i in _INSTRUCTIONS.items())


class Diligence(ComputedEvaluator):
    """Scores Outcome Optimality, Due Diligence and the archetype of every seat, each from 0 to 1.

    Outcome Optimality is GOAL/10 of the verified outcome. A seat without decisions gets neither Due Diligence nor an
    archetype. The evaluator applies to agreements of two seats on one number or one choice.
    """

    name = "diligence"

    def applies(self, episode: Episode) -> bool:
        """Whether the task is an agreement of two seats on one number or one choice."""
        return _reviewers(episode.task) is not None

    def measures(self, task: Task) -> Mapping[Dimension, Basis]:
        """None of the seven dimensions."""
        return {}

    async def evaluate(self, episode: Episode) -> Evaluation:
        """Returns the scores.

        Raises:
            EvaluationError: the evaluator does not apply to the task, or a recorded move was not open.
        """
        task = episode.task
        reviewers = _reviewers(task)
        if reviewers is None:
            raise EvaluationError(
                f"{self.name}: expected an agreement of two seats on one number or one choice, got task {task.id!r}; "
                "use 'verified', which scores every outcome"
            )
        try:
            outcome = outcome_of(task, episode.plain_turns)
        except InvalidTaskError as error:
            raise EvaluationError(f"{self.name}: {error}") from error
        for seat, kind, terms in _decisions(task, episode.plain_turns):
            reviewers[seat].review(kind, terms)
        scores = [
            Score(agent=agent, dimension=name, value=value, reasoning=outcome.reason, source=self.name)
            for agent, share, reviewer in zip(task.agents, outcome.shares, reviewers, strict=True)
            for name, value in _values(min(max(share, 0.0), 1.0), reviewer.points)
        ]
        return Evaluation(evaluator=self.name, dimensions=DIMENSIONS, scores=tuple(scores), outcome=outcome)


def _reviewers(task: Task) -> list[_Reviewer] | None:
    """The reviewers of both seats; ``None`` for a task without rules."""
    spec = task.scenario.outcome
    if spec is None or spec.protocol.kind != Agreement.kind or len(spec.worth) != 2 or len(spec.issues) != 1:
        return None
    issue = spec.issues[0]
    if isinstance(issue, NumberIssue):
        return [_NumberReviewer(spec, seat) for seat in (0, 1)]
    return _choice_reviewers(spec, issue) if isinstance(issue, ChoiceIssue) else None


def _decisions(task: Task, turns: Sequence[Turn]) -> Iterator[tuple[int, MoveKind, Terms]]:
    """Yields the seat, the kind of move and the terms of every offer, acceptance and rejection.

    An offer that equals an open one settles the agreement and counts as an acceptance.
    """
    for item in folded(task, turns):
        move = None if item.turn.action.move is None else item.turn.action.move.binding
        if move is not None:
            # In a simultaneous round, seats decide by the table at the beginning of the round.
            basis, table = _agreement(item.basis), _agreement(item.table)
            terms = _terms(basis, move)
            kind = MoveKind.ACCEPT if table.agreed and move.kind is MoveKind.PROPOSE else move.kind
            if terms is not None:
                yield task.seat_of[item.turn.actor], kind, terms


def _agreement(table: Any) -> AgreementState:
    """The state of the agreement, also where facts are beside it."""
    state: AgreementState = table.inner if isinstance(table, FactsState) else table
    return state


def _terms(table: AgreementState, move: Move) -> Terms | None:
    """The terms that a recorded move proposes or answers; ``None`` for a withdrawal."""
    if move.kind is MoveKind.PROPOSE:
        return dict(move.content)
    offers = {offer.number: offer.terms for offer in table.offers}
    return None if move.kind is MoveKind.WITHDRAW else offers.get(move.content)


@dataclass(slots=True)
class _Reviewer:
    """The review of one seat's decisions so far.

    Attributes:
        spec: the outcome specification, with the seat's worth.
        seat: the index of the seat.
        points: for every decision with a rule, whether a reasonable agent would have done the same.
    """

    spec: OutcomeSpec
    seat: int
    points: list[bool] = field(default_factory=list)

    @property
    def floor(self) -> float:
        """The worth of no agreement to the seat."""
        return self.spec.worth[self.seat].disagreement

    def review(self, kind: MoveKind, terms: Terms) -> None:
        """Reviews one decision and adds the result to ``points``."""
        raise NotImplementedError


@dataclass(slots=True)
class _NumberReviewer(_Reviewer):
    """The review of concessions on one number; ``offers`` are the worths of the seat's own offers."""

    offers: list[float] = field(default_factory=list)

    def review(self, kind: MoveKind, terms: Terms) -> None:
        worth = worth_value(self.spec, self.seat, terms)
        if kind is MoveKind.ACCEPT:
            # Accepting the first price one sees is not diligent: a better one must have been requested before.
            self.points.append(worth >= self.floor and max(self.offers, default=worth) > worth)
        elif kind is MoveKind.PROPOSE:
            self.points.append(self._is_measured(worth))
            self.offers.append(worth)

    def _is_measured(self, worth: float) -> bool:
        if not self.offers:
            return worth > self.floor
        # The distance that is left to concede, in units of the seat's worth.
        left = self.offers[-1] - self.floor
        return left <= 0 or self.offers[-1] - worth < left / 2


@dataclass(slots=True)
class _ChoiceReviewer(_Reviewer):
    """The review of proposals of one choice, which a reasonable agent makes from its best option down.

    Attributes:
        worths: the worths of the options that are worth at least as much as no agreement.
        turned_down: the options that either side turned down; shared by the reviewers of both seats.
        pending: the option that each seat offered last, until it is answered; shared by the reviewers of both seats.
    """

    worths: Mapping[str, float] = field(default_factory=dict)
    turned_down: set[str] = field(default_factory=set)
    pending: dict[int, str] = field(default_factory=dict)

    def review(self, kind: MoveKind, terms: Terms) -> None:
        option = str(next(iter(terms.values())))
        if kind is MoveKind.PROPOSE:
            # A counter-offer turns down the other seat's pending option before the best open one is determined.
            self._turn_down_other()
            if (best := self._best()) is not None:
                self.points.append(self.worths.get(option, -math.inf) >= best)
            self.pending[self.seat] = option
        elif kind is MoveKind.ACCEPT:
            best = self._best()
            self.points.append(option in self.worths and (best is None or best <= self.worths[option]))
        else:
            best = self._best()
            self.points.append(option not in self.worths or best is None or best > self.worths[option])
            self._turn_down_other()

    def _best(self) -> float | None:
        return max((worth for option, worth in self.worths.items() if option not in self.turned_down), default=None)

    def _turn_down_other(self) -> None:
        if (option := self.pending.pop(1 - self.seat, None)) is not None:
            self.turned_down.add(option)


def _choice_reviewers(spec: OutcomeSpec, issue: ChoiceIssue) -> list[_Reviewer]:
    turned_down, pending = set[str](), dict[int, str]()
    reviewers: list[_Reviewer] = []
    for seat in (0, 1):
        worths = {option: worth_value(spec, seat, {issue.name: option}) for option in issue.options}
        open_ = {option: worth for option, worth in worths.items() if worth >= spec.worth[seat].disagreement}
        reviewers.append(_ChoiceReviewer(spec, seat, [], open_, turned_down, pending))
    return reviewers


def _values(optimality: float, points: Sequence[bool]) -> Iterator[tuple[str, float]]:
    yield OPTIMALITY, optimality
    if points:
        diligence = math.fsum(points) / len(points)
        yield DILIGENCE, diligence
        archetype = ARCHETYPES[optimality >= _GOOD, diligence >= _GOOD]
        yield from ((name, float(name == archetype)) for name in ARCHETYPES.values())
