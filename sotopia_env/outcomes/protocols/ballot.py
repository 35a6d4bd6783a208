"""The ballot protocol: one vote per seat, changeable until every seat that is present has one.

The rules in detail:

- The ballot closes with the last missing vote; until then votes can be changed or taken back. Voting for the same
  option again is allowed and changes nothing.
- The vote of a seat that leaves stays as it was cast. When the last seat without a vote leaves, the ballot closes.
- If the episode ends earlier, the votes cast so far are counted. Plurality needs a unique maximum, majority needs more
  than half of *all* seats, and unanimity needs all seats; otherwise nothing is decided.
- A seat may vote from its turn ``opens + 1`` on, and, if ``own`` is false, not for the option that is its own name.
- A lot among tied options depends on names, options and votes alone, so an episode that is played again ends alike.
- In a simultaneous round the first in seat order wins: a change by a later seat is refused when an earlier seat's vote
  has closed the ballot. A secret ballot is opened when it closes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from sotopia_env.foundation.json_text import canonical_json
from sotopia_env.outcomes.issues import ChoiceIssue, Seats
from sotopia_env.outcomes.menu import NO_MOVES, Menu
from sotopia_env.outcomes.move import InvalidMoveError, Move, MoveKind
from sotopia_env.outcomes.protocols.protocol import Choices, Effect, Protocol, Settlement
from sotopia_env.outcomes.space import OPTION
from sotopia_env.outcomes.specification import BallotRules, OutcomeSpec
from sotopia_env.outcomes.table import HIDDEN, TableView, Votes


@dataclass(frozen=True, slots=True)
class BallotState:
    """The votes cast so far.

    Attributes:
        votes: the option of each seat, or ``None``.
        absent: the seats that have left.
        waiting: the number of present seats without a vote; 0 closes the ballot.
        turns: the number of turns that each seat has had; empty in a ballot that is open from the start.
    """

    votes: tuple[str | None, ...]
    absent: frozenset[str]
    waiting: int
    turns: tuple[int, ...] = ()


class Ballot(Protocol[BallotState]):
    """The ballot protocol; the module's docstring states the rules."""

    kind = "ballot"
    kinds = frozenset((MoveKind.VOTE,))

    def __init__(self, spec: OutcomeSpec, names: Seats) -> None:
        super().__init__(spec, names)
        assert isinstance(spec.protocol, BallotRules)
        self.rules = spec.protocol
        self._options = ChoiceIssue(name="vote", options=self.rules.options)
        self._seat_of = {agent: seat for seat, agent in enumerate(self.agents)}
        self._open_to = {
            agent: tuple([option for option in self.rules.options if self.rules.own or option != name])
            for agent, name in self.names.items()
        }

    def initial(self) -> BallotState:
        """The state in which no seat has voted."""
        seats = len(self.agents)
        return BallotState((None,) * seats, frozenset(), seats, (0,) * seats if self.rules.opens else ())

    def _opens_in(self, state: BallotState, seat: str) -> int:
        """The number of turns that a seat must still take before it may vote."""
        return self.rules.opens - state.turns[self._seat_of[seat]] if state.turns else 0

    def advance(self, state: BallotState, seat: str) -> BallotState:
        """Counts the turns of seats that may not vote yet."""
        if self._opens_in(state, seat) <= 0:
            return state
        index = self._seat_of[seat]
        turns = (*state.turns[:index], state.turns[index] + 1, *state.turns[index + 1 :])
        return BallotState(state.votes, state.absent, state.waiting, turns)

    def choices(self, state: BallotState, seat: str) -> Choices:
        """The seat's vote, which falls when the ballot closes."""
        return (state.votes[self._seat_of[seat]],)

    def menu(self, state: BallotState, seat: str) -> Menu:
        """A vote for any option, and the withdrawal of the seat's own vote."""
        if not state.waiting or seat in state.absent or self._opens_in(state, seat) > 0:
            return NO_MOVES
        return Menu(vote=self._open_to[seat], unvote=state.votes[self._seat_of[seat]] is not None, space=self.space)

    def apply(
        self,
        state: BallotState,
        seat: str,
        move: Move,
        visible_to: Collection[str] | None = None,
        basis: BallotState | None = None,
    ) -> tuple[BallotState, Effect]:
        """See :meth:`Protocol.apply`; a vote counts regardless of who sees the turn."""
        self._check_seat(seat)
        if not state.waiting:
            raise InvalidMoveError("the ballot is closed", hint="no move is open any more")
        if seat in state.absent:
            raise InvalidMoveError("a seat that has left cannot make a move")
        if move.kind is not MoveKind.VOTE:
            self._refuse_kind(move)
        # As the seat knew it: within a veiled round its own turns are those before the round.
        if (turns := self._opens_in(state if basis is None else basis, seat)) > 0:
            raise InvalidMoveError(f"the ballot opens to you after {turns} more of your turns")
        if move.content is None:
            return self._take_back(state, seat)
        option = self._options.read(move.content, self.names)
        if option not in self._open_to[seat]:
            raise InvalidMoveError("a seat cannot vote for itself", field="vote", got=option, valid=self._open_to[seat])
        hidden = "votes (secretly)" if self.rules.secret else None
        return self._with_vote(state, seat, option), Effect(Move(MoveKind.VOTE, option), f"votes for {option}", hidden)

    def _take_back(self, state: BallotState, seat: str) -> tuple[BallotState, Effect]:
        if state.votes[self._seat_of[seat]] is None:
            raise InvalidMoveError("null takes a vote back, and you have not voted", field="vote")
        return self._with_vote(state, seat, None), Effect(Move(MoveKind.VOTE, None), "takes the vote back")

    def _with_vote(self, state: BallotState, seat: str, option: str | None) -> BallotState:
        index = self._seat_of[seat]
        # -1 for a first vote, 1 for a vote that is taken back, 0 for a changed one.
        change = (option is None) - (state.votes[index] is None)
        votes = (*state.votes[:index], option, *state.votes[index + 1 :])
        return BallotState(votes, state.absent, state.waiting + change, state.turns)

    def leave(self, state: BallotState, seat: str) -> BallotState:
        """Keeps the seat's vote; a missing vote no longer keeps the ballot open."""
        self._check_seat(seat)
        if seat in state.absent or not state.waiting:
            return state
        # A seat that leaves without a vote no longer keeps the ballot open.
        waiting = state.waiting - (state.votes[self._seat_of[seat]] is None)
        return BallotState(state.votes, state.absent | {seat}, waiting, state.turns)

    def settled(self, state: BallotState) -> bool:
        """Whether every seat that is present has a vote."""
        return not state.waiting

    def outcome(self, state: BallotState) -> Settlement:
        """The option that wins with the current votes."""
        counts = Counter(option for option in state.votes if option is not None).most_common()
        option = self._winner(counts) or self._lot(counts, state.votes)
        tally = ", ".join(f"{name} {count}" for name, count in counts) or "no votes"
        if option is None:
            return Settlement(False, reason=f"Nothing was decided by {self.rules.rule}: {tally}.")
        assents = {
            agent: Move(MoveKind.VOTE, vote)
            for agent, vote in zip(self.agents, state.votes, strict=True)
            if vote == option
        }
        return Settlement(True, {OPTION: option}, f"Decided by {self.rules.rule}: {option} ({tally}).", None, assents)

    def _winner(self, counts: list[tuple[str, int]]) -> str | None:
        # In descending order, so a tie for the first place shows in the first two.
        if not counts or (len(counts) > 1 and counts[0][1] == counts[1][1]):
            return None
        option, count = counts[0]
        seats = len(self.agents)
        # All seats count, those without a vote and those that have left included.
        enough = {"plurality": True, "majority": 2 * count > seats, "unanimity": count == seats}
        return option if enough[self.rules.rule] else None

    def _lot(self, counts: list[tuple[str, int]], votes: tuple[str | None, ...]) -> str | None:
        """The option drawn among those with the most votes; ``None`` where ties decide nothing."""
        if self.rules.ties == "none" or self.rules.rule != "plurality" or not counts:
            return None
        tied = sorted(option for option, count in counts if count == counts[0][1])
        # From what everybody sees when the ballot closes, so that the lot gives away nothing.
        return random.Random(canonical_json([self.names, self.rules.options, votes])).choice(tied)

    def table(self, state: BallotState, seat: str | None) -> TableView:
        """The seats that have voted, with the options that ``seat`` may see."""
        settled, cast = not state.waiting, state.votes
        if self.rules.secret and seat is not None and not settled:
            own = self._seat_of[seat]
            # ``None`` (no vote yet) stays visible; only the option of another seat's vote is hidden.
            cast = tuple([vote and (vote if index == own else HIDDEN) for index, vote in enumerate(cast)])
        result = self.outcome(state).reason if settled else ""
        return TableView(self.kind, settled, self.space, (), Votes(self.agents, cast, state.absent), None, result)
