"""The protocol: a pure state machine over moves, one per task, shared by every episode of it.

A protocol stores nothing about an episode; the state is a frozen value that each call takes and returns. An illegal
move raises and leaves the state as it was.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from sotopia_env.foundation.errors import UnknownNameError
from sotopia_env.outcomes.facts import Facts
from sotopia_env.outcomes.issues import Seats
from sotopia_env.outcomes.menu import Menu
from sotopia_env.outcomes.move import InvalidMoveError, Move, MoveKind
from sotopia_env.outcomes.space import OutcomeSpace, Terms
from sotopia_env.outcomes.specification import OutcomeSpec, check_seats
from sotopia_env.outcomes.table import TableView
from sotopia_env.outcomes.valuation import Valuation

S = TypeVar("S")

Choices = tuple[str | None, ...]
"""What a seat has chosen, one entry per choice that was due to it; see :meth:`Protocol.choices`."""


class Effect(NamedTuple):
    """The effect of a move that counted.

    Attributes:
        move: the move in normal form; applied again to the same state, it has the same effect.
        phrase: ``text``, with ``{}`` where the terms belong.
        hidden: the text for agents other than the actor; ``None`` if it is the same.
        terms: the terms of an offer that the text names; rendered only when the text is read.
        space: the outcome space, for rendering the terms.
    """

    move: Move
    phrase: str
    hidden: str | None = None
    terms: Terms | None = None
    space: OutcomeSpace | None = None

    @property
    def text(self) -> str:
        """One line for the seats that may see the move, such as ``offers (#2): price $84``."""
        if self.terms is None or self.space is None:
            return self.phrase
        # Not ``format``: names and options in the phrase may contain braces.
        return self.phrase.replace("{}", self.space.describe(self.terms), 1)


class Due(NamedTuple):
    """The seats that a protocol calls on next.

    Attributes:
        round: the number of the round, from 0, so that it tells nobody how many seats acted out of its sight.
        agents: the seats that act in it, in order.
        turns: the number of turns that each of them has before something else is due, this one included.
    """

    round: int
    agents: tuple[str, ...]
    turns: int


@dataclass(frozen=True, slots=True)
class Settlement:
    """The outcome of an episode, before it is valued.

    Attributes:
        decided: whether there is an outcome.
        terms: the terms of an agreement, ``{"option": …}`` for a ballot, or ``{"claims": {agent: claim}}`` with the
            right claims; empty if nothing was decided.
        reason: one sentence that says why it is or is not decided.
        proposer: the id of the agent whose offer was agreed (of several equal offers, the first).
        assents: agent id to the move by which that seat bound itself.
    """

    decided: bool
    terms: Terms = field(default_factory=dict, hash=False)
    reason: str = ""
    proposer: str | None = None
    assents: Mapping[str, Move] = field(default_factory=dict, hash=False)


class Protocol(ABC, Generic[S]):
    """The rules of one task: its open moves, their effects, and the payoffs of outcomes.

    Seats are agent ids. States are frozen, comparable and picklable.

    Attributes:
        kind: ``agreement``, ``ballot`` or ``claims``.
        rule: how a variant differs from its kind, as a sentence for every seat's briefing.
        agents: agent ids in seat order.
        names: agent id to character name.
        space: the outcome space.
    """

    kind: str
    kinds: frozenset[MoveKind]
    rule: str = ""
    facts: Facts | None = None
    """The facts of the task; ``None`` without any."""
    phased: bool = False
    """Whether the protocol calls on seats (:meth:`due`)."""

    def __init__(self, spec: OutcomeSpec, names: Seats) -> None:
        check_seats(spec, len(names))
        self.names = dict(names)
        self.agents = tuple(names)
        self.space = spec.space(names)
        self.valuations: tuple[Valuation, ...] = tuple(
            worth.valuation(self.space, agent) for agent, worth in zip(self.agents, spec.worth, strict=True)
        )

    @abstractmethod
    def initial(self) -> S:
        """The state before the first turn."""

    @abstractmethod
    def menu(self, state: S, seat: str) -> Menu:
        """The moves open to ``seat``; every one of them is accepted by :meth:`apply`."""

    @abstractmethod
    def apply(
        self, state: S, seat: str, move: Move, visible_to: Collection[str] | None = None, basis: S | None = None
    ) -> tuple[S, Effect]:
        """Returns the state after ``move``, and the effect of the move.

        Args:
            state: the current state; in a simultaneous round, after the moves of earlier seats.
            seat: the seat that makes the move.
            move: the move as it was read; it need not be in normal form.
            visible_to: the agents that see the turn; ``None`` means all.
            basis: the state that the seat knew when it decided: in a simultaneous round, the state before the round.
                Offers made or removed since then cannot be answered: within a round, the first in seat order wins.

        Raises:
            InvalidMoveError: the move is not open, with the reason; the state is untouched.
        """

    def advance(self, state: S, seat: str) -> S:
        """Returns the state after a turn of ``seat``, whatever it did in it; for protocols that count turns."""
        return state

    def due(self, state: S) -> Due | None:
        """Returns the seats that act next; ``None`` if the turn order alone decides."""
        return None

    def audience(self, state: S, seat: str) -> frozenset[str] | None:
        """Returns the agents that witness a turn that ``seat`` takes now; ``None`` means all."""
        return None

    def evidence(self, state: S) -> tuple[frozenset[str], ...]:
        """Returns the variables that the protocol has disclosed to each seat, in seat order; empty for nothing."""
        return ()

    def choices(self, state: S, seat: str) -> Choices:
        """The options that ``seat`` has chosen, one per choice that was due to it, the one due now last.

        ``None`` where it has not chosen. As long as a choice can change, it is the last one. A protocol of several
        rounds adds an entry when a round begins, and one that is always ``None`` after the last round; with one choice
        or none, there is always one entry. Promises are compared with these.
        """
        return (None,)

    @abstractmethod
    def leave(self, state: S, seat: str) -> S:
        """Returns the state after ``seat`` left the episode for good; leaving twice has no further effect."""

    @abstractmethod
    def settled(self, state: S) -> bool:
        """Whether the state is final: there is an outcome, or none is possible any more."""

    @abstractmethod
    def outcome(self, state: S) -> Settlement:
        """The outcome of an episode that ends in ``state``."""

    @abstractmethod
    def table(self, state: S, seat: str | None) -> TableView:
        """The part of the table that ``seat`` may see; ``None`` sees everything."""

    def payoffs(self, state: S, turns: int = 0) -> tuple[float, ...]:
        """The payoff of each seat, in seat order.

        Args:
            state: at the end of the episode.
            turns: the number of turns of all seats up to the settlement, or in the whole episode without one; each
                costs ``per_turn``.
        """
        settlement = self.outcome(state)
        return tuple(
            self._payoff(state, seat, settlement, valuation, turns)
            for seat, valuation in zip(self.agents, self.valuations, strict=True)
        )

    def _payoff(self, state: S, seat: str, settlement: Settlement, valuation: Valuation, turns: int) -> float:
        # One division at the end, so that equal utilities are equal floats.
        exact = valuation.exact(self.space, settlement.terms) if settlement.decided else valuation.disagreement
        return (exact - valuation.per_turn * turns) / valuation.scale

    def _check_seat(self, seat: str) -> None:
        if seat not in self.names:
            raise UnknownNameError(field="seat", got=seat, valid=self.agents)

    def _refuse_kind(self, move: Move) -> NoReturn:
        kinds = ", ".join(kind.value for kind in MoveKind if kind in self.kinds)
        raise InvalidMoveError(f"{move.kind.value} is not a move of {self.kind}", expected=f"one of {kinds}")


AnyProtocol = Protocol[Any]
"""A protocol whose kind does not matter to the caller."""
