"""The claims protocol: every seat claims an answer that only evaluators know, in a limited number of tries.

The rules in detail:

- A claim is right when it is the answer after Unicode, case and blank normalisation. If the list of candidates is
  public, any other answer is refused and costs no try. If the list is not public, any other answer is a wrong claim,
  because a refusal would reveal the list.
- Others learn that a claim was made, but neither the claimed answer nor whether it was right, which would reveal the
  answer. A seat may say anything about its claim in words.
- A seat that was right cannot claim again. With ``needs: any``, the first right claim settles the protocol. With
  ``all``, the last missing right claim settles it, or an event that makes such a claim impossible: a seat uses up its
  tries, or leaves without a right claim.
- The right claim of a seat that leaves stays.
- In a simultaneous round, claims are taken in seat order, and one that comes after the settlement is refused.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal

from sotopia_env.foundation.quoting import quote
from sotopia_env.outcomes.amounts import fold
from sotopia_env.outcomes.issues import ChoiceIssue, Seats
from sotopia_env.outcomes.menu import NO_MOVES, Menu
from sotopia_env.outcomes.move import InvalidMoveError, Move, MoveKind, claim_text
from sotopia_env.outcomes.protocols.protocol import Effect, Protocol, Settlement
from sotopia_env.outcomes.specification import ClaimsRules, OutcomeSpec
from sotopia_env.outcomes.table import Claims, TableView
from sotopia_env.outcomes.valuation import Valuation
from sotopia_env.outcomes.worth import ClaimsWorth


@dataclass(frozen=True, slots=True)
class ClaimsState:
    """The claims so far.

    Attributes:
        right: whether each seat has claimed the answer.
        wrong: the wrong claims of each seat, in order.
        absent: the seats that have left.
    """

    right: tuple[bool, ...]
    wrong: tuple[tuple[str, ...], ...]
    absent: frozenset[str] = frozenset()


class ClaimsProtocol(Protocol[ClaimsState]):
    """The claims protocol; the module's docstring states the rules."""

    kind = "claims"
    kinds = frozenset((MoveKind.CLAIM,))

    def __init__(self, spec: OutcomeSpec, names: Seats) -> None:
        super().__init__(spec, names)
        assert isinstance(spec.protocol, ClaimsRules)
        self.rules = spec.protocol
        self._candidates = ChoiceIssue(name="claim", options=self.rules.candidates)
        self._by_fold = {fold(candidate): candidate for candidate in self.rules.candidates}
        # The answer as its candidate is spelt, because claims are read as candidates.
        self._answer = self._by_fold[fold(self.rules.answer)]
        self._costs = [worth.wrong for worth in spec.worth if isinstance(worth, ClaimsWorth)]
        self._seat_of = {agent: seat for seat, agent in enumerate(self.agents)}

    def initial(self) -> ClaimsState:
        """The state before the first claim."""
        return ClaimsState((False,) * len(self.agents), ((),) * len(self.agents))

    def _tries_left(self, state: ClaimsState, seat: int) -> int:
        if state.right[seat] or self.agents[seat] in state.absent:
            return 0
        return self.rules.tries - len(state.wrong[seat])

    def menu(self, state: ClaimsState, seat: str) -> Menu:
        """One claim; the menu lists the candidates if they are public."""
        if self.settled(state) or not self._tries_left(state, self._seat_of[seat]):
            return NO_MOVES
        return Menu(claim=True, candidates=self.rules.candidates if self.rules.shown else (), space=self.space)

    def apply(
        self,
        state: ClaimsState,
        seat: str,
        move: Move,
        visible_to: Collection[str] | None = None,
        basis: ClaimsState | None = None,
    ) -> tuple[ClaimsState, Effect]:
        """See :meth:`Protocol.apply`; a claim counts regardless of who sees the turn."""
        self._check_seat(seat)
        index = self._seat_of[seat]
        self._check_open(state, index)
        if move.kind is not MoveKind.CLAIM:
            self._refuse_kind(move)
        claim = self._read(claim_text(move.content))
        right = claim == self._answer
        verdict = "right" if right else "wrong"
        text = f"claims {quote(claim)} ({verdict})"
        # Others read only "makes a claim": a right claim would give the answer away.
        effect = Effect(Move(MoveKind.CLAIM, claim), text, "makes a claim")
        if right:
            return ClaimsState(_exchanged(state.right, index, True), state.wrong, state.absent), effect
        wrong = _exchanged(state.wrong, index, (*state.wrong[index], claim))
        return ClaimsState(state.right, wrong, state.absent), effect

    def _check_open(self, state: ClaimsState, index: int) -> None:
        if self.agents[index] in state.absent:
            raise InvalidMoveError("a seat that has left cannot make a move")
        if state.right[index]:
            raise InvalidMoveError("you have claimed the answer", field="claim", hint="no further claim is open to you")
        if not self._tries_left(state, index):
            raise InvalidMoveError(f"your {self.rules.tries} tries are used up", field="claim")
        if self.settled(state):
            raise InvalidMoveError("nothing can change any more", field="claim", hint="no move is open")

    def _read(self, text: str) -> str:
        if self.rules.shown:
            return self._candidates.read(text, self.names)
        # Any other text is a claim, a wrong one if it is not listed: refusing it would reveal the list.
        if not text.strip():
            raise InvalidMoveError(field="claim", expected="an answer", got=text)
        return self._by_fold.get(fold(text)) or " ".join(text.split())

    def leave(self, state: ClaimsState, seat: str) -> ClaimsState:
        """Keeps the seat's claims, and removes its remaining tries."""
        self._check_seat(seat)
        return state if seat in state.absent else ClaimsState(state.right, state.wrong, state.absent | {seat})

    def settled(self, state: ClaimsState) -> bool:
        """Whether enough seats were right, or it is certain that they will not be."""
        hopeful = [self._tries_left(state, seat) > 0 for seat in range(len(self.agents))]
        if self.rules.needs == "any":
            return any(state.right) or not any(hopeful)
        # A seat without a right claim and without tries makes ``all`` impossible.
        can_be = [right or hope for right, hope in zip(state.right, hopeful, strict=True)]
        return all(state.right) or not all(can_be)

    def _decided(self, state: ClaimsState) -> bool:
        return any(state.right) if self.rules.needs == "any" else all(state.right)

    def outcome(self, state: ClaimsState) -> Settlement:
        """Whether enough seats were right: all of them or one, depending on the rules."""
        right = [agent for agent, is_right in zip(self.agents, state.right, strict=True) if is_right]
        names = ", ".join(self.names[agent] for agent in right) or "nobody"
        if not self._decided(state):
            return Settlement(False, reason=f"The answer was claimed by {names}; {self.rules.needs} had to.")
        claims = {agent: Move(MoveKind.CLAIM, self._answer) for agent in right}
        terms = {"claims": dict.fromkeys(right, self._answer)}
        return Settlement(True, terms, f"The answer was claimed by {names}.", None, claims)

    def _payoff(self, state: ClaimsState, seat: str, settlement: Settlement, valuation: Valuation, turns: int) -> float:
        index = self._seat_of[seat]
        base = super()._payoff(state, seat, settlement, valuation, turns)
        # In decimals, because a sum of binary fractions such as 0.1 would be rounded.
        cost = Decimal(repr(self._costs[index])) * len(state.wrong[index])
        return float(Decimal(repr(base)) + cost)

    def table(self, state: ClaimsState, seat: str | None) -> TableView:
        """The number of claims of every seat, and the claims of ``seat`` itself."""
        # A seat sees its own claims only: another's right claim would reveal the answer.
        viewed = self.agents if seat is None else (seat,)
        seats = {agent: self._seat_of[agent] for agent in viewed}
        claims = Claims(
            # All seats may know how many claims were made; the rest is for the seats in ``viewed``.
            claimed={agent: len(state.wrong[i]) + state.right[i] for agent, i in self._seat_of.items()},
            tries_left={agent: self._tries_left(state, i) for agent, i in seats.items()},
            wrong={agent: state.wrong[i] for agent, i in seats.items()},
            right=tuple(agent for agent, i in seats.items() if state.right[i]),
        )
        settled = self.settled(state)
        return TableView(
            self.kind, settled, self.space, claims=claims, result=self.outcome(state).reason if settled else ""
        )


def _exchanged(values: tuple, index: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:index], value, *values[index + 1 :])
