"""What a procedural task family is, and what it knows about the tasks it makes.

A family makes any number of tasks from ``(index, seed, level)``, reads their outcome from a transcript, and knows the
exact reference points, so that an outcome has an exact normalised score. It also tells, from one seat's observation
alone, what that seat could offer and what it would be worth to it: that is all the scripted policies use.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sotopia_env.errors import InvalidTaskError, InvalidValueError, UnknownNameError, name_hint
from sotopia_env.tasks.people import draw_relationship
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.episode import OutcomeResult
from sotopia_env.world.observation import Observation
from sotopia_env.world.scenario import Character, Relationship, RelationshipKind, Scenario, Task

LEVELS = ("easy", "medium", "hard")
"""Difficulty levels that every family offers."""

Terms = Mapping[str, Any]
"""What could be agreed, as the family writes it, e.g. ``{"price": 95}``."""


@dataclass(frozen=True, slots=True)
class ReferencePoints:
    """Exact facts about a task, all in the family's payoff units and in seat order.

    Attributes:
        best: the most each seat can get in an outcome the others would not be worse off with than without agreement.
        disagreement: what each seat gets without agreement.
        frontier: the Pareto-optimal payoff vectors (for continuous ones a fine grid or the end points, see the family).
        fair: payoffs of the Nash bargaining solution.
        best_joint: the largest reachable sum of payoffs.
    """

    best: tuple[float, ...]
    disagreement: tuple[float, ...]
    frontier: tuple[tuple[float, ...], ...]
    fair: tuple[float, ...]
    best_joint: float

    def shares(self, payoffs: Sequence[float]) -> tuple[float, ...]:
        """Returns (payoff - disagreement) / (best - disagreement) per seat; 0 where nothing can be gained."""
        return tuple(
            (payoff - low) / (high - low) if high > low else 0.0
            for payoff, low, high in zip(payoffs, self.disagreement, self.best, strict=True)
        )

    def efficiency(self, payoffs: Sequence[float]) -> float:
        """Returns the joint surplus over the best joint surplus."""
        room = self.best_joint - sum(self.disagreement)
        return (sum(payoffs) - sum(self.disagreement)) / room if room > 0 else 0.0

    def result(self, agreement: bool, reason: str, terms: Terms, payoffs: Sequence[float]) -> OutcomeResult:
        """Returns the outcome record for these payoffs."""
        return OutcomeResult(
            agreement=agreement,
            reason=reason,
            terms=dict(terms),
            payoffs=tuple(payoffs),
            shares=self.shares(payoffs),
            efficiency=self.efficiency(payoffs),
        )


class SeatProblem(Protocol):
    """What one seat can work out from its own observation; made by :meth:`Family.problem`."""

    def candidates(self) -> Sequence[tuple[Terms, float]]:
        """Terms this seat could propose with their worth to it (see :meth:`value`), best first."""
        ...

    def value(self, terms: Terms) -> float:
        """Worth of ``terms`` to this seat: 0 at its walk-away point, 1 at its best, below 0 when worse than no deal."""
        ...

    def incoming(self) -> Terms | None:
        """The partners' latest offer that still stands and that this seat could accept by saying so."""
        ...

    def outgoing(self) -> Sequence[Terms]:
        """This seat's own offers so far, oldest first."""
        ...

    def settled(self) -> bool:
        """Whether, as far as this seat can tell, the matter is decided."""
        ...

    def phrase_offer(self, terms: Terms, seed: int) -> str:
        """Words that propose ``terms``; the family's own reader understands them."""
        ...

    def phrase_accept(self, terms: Terms, seed: int) -> str:
        """Words that accept the partners' standing offer ``terms``."""
        ...


class Family(Protocol):
    """A seeded generator of tasks with machine-checkable outcomes."""

    @property
    def name(self) -> str:
        """The family's name; also in ``scenario.outcome.family`` and ``scenario.shared_data["family"]``."""
        ...

    def generate(self, index: int, seed: int, level: str) -> Task:
        """Returns the task number ``index`` of the sequence fixed by ``seed``; equal arguments, equal task."""
        ...

    def read(self, task: Task, turns: Sequence[Turn]) -> OutcomeResult:
        """Returns the outcome that the transcript shows. Ambiguous means no agreement, with the reason kept."""
        ...

    def reference(self, task: Task) -> ReferencePoints:
        """Returns the task's exact reference points."""
        ...

    def problem(self, observation: Observation) -> SeatProblem:
        """Returns the acting seat's problem, from nothing but its observation."""
        ...


__all__ = ["LEVELS", "Family", "ReferencePoints", "SeatProblem", "Terms"]


def check_request(family: str, index: int, seed: int, level: str) -> random.Random:
    """Returns the generator of random numbers for one task of ``family``.

    Raises:
        UnknownNameError: ``level`` is none of :data:`sotopia_env.tasks.family.LEVELS`.
        InvalidValueError: ``index`` or ``seed`` is no whole number of at least 0.
    """
    if level not in LEVELS:
        raise UnknownNameError(f"level: {name_hint(str(level), LEVELS)}")
    for field, value in (("index", index), ("seed", seed)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InvalidValueError(f"{field}: expected a whole number of at least 0, got {value!r}")
    return random.Random(f"{family} {level} {seed} {index}")


def seat_people(rng: random.Random, scenario: Scenario, characters: tuple[Character, ...]) -> Task:
    """Returns ``scenario`` with ``characters`` in its seats and a drawn relationship for every pair.

    A romantic relationship is drawn at most once. The task takes the scenario's id.
    """
    kinds = list(RelationshipKind)
    relationships: list[Relationship] = []
    for pair in itertools.combinations(range(len(characters)), 2):
        relationship = draw_relationship(rng, characters, pair, kinds)
        if relationship.kind is RelationshipKind.ROMANTIC:
            kinds.remove(RelationshipKind.ROMANTIC)
        relationships.append(relationship)
    return Task(id=scenario.id, scenario=scenario, characters=characters, relationships=tuple(relationships))


def outcome_parameters(task: Task, family: str) -> Mapping[str, Any]:
    """Returns the parameters of the outcome specification of ``task``.

    Raises:
        InvalidTaskError: the task has no outcome specification, or that of another family.
    """
    outcome = task.scenario.outcome
    if outcome is None or outcome.family != family:
        got = "none" if outcome is None else repr(outcome.family)
        raise InvalidTaskError(f"task {task.id!r}, outcome.family: expected {family!r}, got {got}")
    return outcome.parameters
