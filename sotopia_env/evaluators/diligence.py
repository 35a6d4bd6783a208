"""Due Diligence from moves, beside the outcome: was a good result worked for, or lucky (SocialReasoning-Bench)?

Every decision of a seat is compared with what a reasonable agent would have done there; its Due Diligence is the share
that agree. The rules are those of the benchmark (microsoft/social-reasoning-bench, ``reasonable_agent.py``), said in
worths instead of prices, so that they hold for either seat:

=============  ========================================================  ============================================
decision       one ``number`` issue (marketplace)                        one ``choice`` issue (calendar)
=============  ========================================================  ============================================
first offer    is worth more than no agreement                           as good as the best option still open
later offer    gives up less than half of what the last one left         as good as the best option still open
acceptance     worth no less than no agreement, and a better outcome     no better option is still open
               was asked for before
rejection      –                                                         a better option is still open
=============  ========================================================  ============================================

An option is *open* to a seat while it is worth no less to it than no agreement and neither side turned it down: by a
rejection, or by another offer. That an agent looked into its calendar first is not measured: it stands in its briefing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sotopia_env.errors import EvaluationError, InvalidTaskError
from sotopia_env.evaluators.evaluator import Basis, ComputedEvaluator
from sotopia_env.outcomes import (
    Agreement,
    AgreementState,
    ChoiceIssue,
    Move,
    MoveKind,
    NumberIssue,
    OutcomeSpec,
    Terms,
    worth_value,
)
from sotopia_env.world.action import ActionType
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.episode import Episode, Evaluation, Score
from sotopia_env.world.outcome import outcome_of
from sotopia_env.world.reward import CustomDimension, Dimension
from sotopia_env.world.scenario import Task

OPTIMALITY, DILIGENCE = "outcome_optimality", "due_diligence"
ARCHETYPES = {(True, True): "robust", (True, False): "lucky", (False, True): "ineffective", (False, False): "negligent"}
"""By whether outcome and process are good, each from .5 on; scored 0 or 1, so that their means are shares."""
_GOOD = 0.5
_INSTRUCTIONS = {
    OPTIMALITY: "Share of the best outcome that the other side can also accept.",
    DILIGENCE: "Share of decisions in which a reasonable agent would have done the same.",
    **{name: f"Whether the seat was {name}: outcome, then process." for name in ARCHETYPES.values()},
}
DIMENSIONS = tuple(CustomDimension(name=name, low=0, high=1, instruction=i) for name, i in _INSTRUCTIONS.items())


class Diligence(ComputedEvaluator):
    """Scores Outcome Optimality, Due Diligence and the archetype of every seat, each from 0 to 1.

    Outcome Optimality is GOAL/10 of the verified outcome. A seat that decided nothing has no Due Diligence and no
    archetype. It applies to agreements of two seats on one number or one choice.
    """

    name = "diligence"

    def applies(self, episode: Episode) -> bool:
        """Whether the task is an agreement of two seats on one number or one choice."""
        return _reviewers(episode.task) is not None

    def measures(self, task: Task) -> Mapping[Dimension, Basis]:
        """None of the seven dimensions."""
        return {}

    def evaluate(self, episode: Episode) -> Evaluation:
        """Returns the scores.

        Raises:
            EvaluationError: the task is of another kind, or a recorded move was not open in it.
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
    """One for each seat; ``None`` where there is no rule for the task."""
    spec = task.scenario.outcome
    if spec is None or not isinstance(task.protocol, Agreement) or len(spec.worth) != 2 or len(spec.issues) != 1:
        return None
    issue = spec.issues[0]
    if isinstance(issue, NumberIssue):
        return [_NumberReviewer(spec, seat) for seat in (0, 1)]
    return _choice_reviewers(spec, issue) if isinstance(issue, ChoiceIssue) else None


def _decisions(task: Task, turns: Sequence[Turn]) -> Iterator[tuple[int, MoveKind, Terms]]:
    """Yields seat, kind of move and terms of every offer, acceptance and rejection; an equal offer accepts."""
    protocol = task.protocol
    assert isinstance(protocol, Agreement)
    table = basis = protocol.initial()
    round_ = -1
    for turn in turns:
        if turn.round != round_:
            round_, basis = turn.round, table
        move = turn.action.move
        if move is None:
            table = protocol.leave(table, turn.actor) if turn.action.action_type is ActionType.LEAVE else table
            continue
        seen = basis if turn.veiled else table
        terms = _terms(seen, move)
        table, _ = protocol.apply(table, turn.actor, move, None, seen)
        kind = MoveKind.ACCEPT if table.agreed and move.kind is MoveKind.PROPOSE else move.kind
        if terms is not None:
            yield task.seat_of[turn.actor], kind, terms


def _terms(table: AgreementState, move: Move) -> Terms | None:
    """What a recorded move is about; of a withdrawal nothing."""
    if move.kind is MoveKind.PROPOSE:
        return dict(move.content)
    offers = {offer.number: offer.terms for offer in table.offers}
    return None if move.kind is MoveKind.WITHDRAW else offers.get(move.content)


@dataclass(slots=True)
class _Reviewer:
    """What a seat has decided so far.

    Attributes:
        spec: the outcome, with the seat's worth.
        seat: its number.
        points: of every decision with a rule, whether a reasonable agent would have done the same.
    """

    spec: OutcomeSpec
    seat: int
    points: list[bool] = field(default_factory=list)

    @property
    def floor(self) -> float:
        """What the seat has without an agreement."""
        return self.spec.worth[self.seat].disagreement

    def review(self, kind: MoveKind, terms: Terms) -> None:
        """Takes note of a decision."""
        raise NotImplementedError


@dataclass(slots=True)
class _NumberReviewer(_Reviewer):
    """Concessions on one number; ``offers`` are the worths of the own ones to the seat."""

    offers: list[float] = field(default_factory=list)

    def review(self, kind: MoveKind, terms: Terms) -> None:
        worth = worth_value(self.spec, self.seat, terms)
        if kind is MoveKind.ACCEPT:
            self.points.append(worth >= self.floor and max(self.offers, default=worth) > worth)
        elif kind is MoveKind.PROPOSE:
            self.points.append(self._is_measured(worth))
            self.offers.append(worth)

    def _is_measured(self, worth: float) -> bool:
        if not self.offers:
            return worth > self.floor
        left = self.offers[-1] - self.floor
        return left <= 0 or self.offers[-1] - worth < left / 2


@dataclass(slots=True)
class _ChoiceReviewer(_Reviewer):
    """Proposals of one choice, from the best option down.

    Attributes:
        worths: of the options that are worth no less than no agreement.
        turned_down: the options that either side did not take; the two seats' reviewers share it.
        pending: the option last offered by each seat, until it is answered; shared likewise.
    """

    worths: Mapping[str, float] = field(default_factory=dict)
    turned_down: set[str] = field(default_factory=set)
    pending: dict[int, str] = field(default_factory=dict)

    def review(self, kind: MoveKind, terms: Terms) -> None:
        option = str(next(iter(terms.values())))
        if kind is MoveKind.PROPOSE:
            self._turn_down_other()
            if (best := self._best()) is not None:
                self.points.append(self.worths.get(option, -math.inf) >= best)
            self.pending[self.seat] = option
        elif kind is MoveKind.ACCEPT:
            self.points.append(option in self.worths and (self._best() or -math.inf) <= self.worths[option])
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
