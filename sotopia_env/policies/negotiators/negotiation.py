"""The common frame of scripted negotiators: how they act under each protocol, given a target.

In each turn a negotiator computes its *target*: the utility that it asks for, on a scale from 0 (no agreement) to 1
(its best outcome). In an **agreement** it chooses its next offer, accepts the best open offer if that is worth at least
as much (AC_next: Baarslag, Hindriks and Jonker, "Acceptance conditions in automated negotiation", 2013), and proposes
otherwise. In a **ballot**, its offers are votes. For **claims**, it shares its facts first. Of **choices** it makes the
one that pays most against the others' last ones. It leaves once the outcome is settled. It uses only its own
observation; in a task without a protocol it makes small talk.

Every move comes with fitting words (:mod:`sotopia_env.tasks.phrases`). Negotiators ignore their partners' words, except
the facts of a claims task (:mod:`sotopia_env.policies.negotiators.claiming`).
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from sotopia_env.outcomes import BallotRules, Move, MoveKind
from sotopia_env.outcomes.space import OPTION
from sotopia_env.outcomes.table import TableView
from sotopia_env.outcomes.worth import ClaimsWorth
from sotopia_env.policies.choosers.chooser import choose, in_game
from sotopia_env.policies.interviews import RuledAnswers
from sotopia_env.policies.negotiators.bidding import EPSILON, Bids
from sotopia_env.policies.negotiators.claiming import SURE, expectation, fact, odds
from sotopia_env.policies.small_talk import SILENCE, ask, commit, leave, say, small_talk
from sotopia_env.tasks import phrases
from sotopia_env.world.observation import Observation
from sotopia_env.world.play.policy import Decision

DEFAULT_HORIZON = 10
"""The number of a seat's turns in an episode of two seats and 20 turns."""
DEFAULT_FLOOR = 0.02
"""The least utility of an acceptable agreement: positive but small, since the best outcome is often out of reach."""
_PATIENCE = "I would like to hear everybody before I vote."


def elapsed(observation: Observation, horizon: int) -> float:
    """Returns the share of the time that has passed: 0 in the seat's first turn, 1 in the last turn of ``horizon`` and
    later.

    The horizon counts the turns of each of two seats. If more seats share the turns of an episode, each seat has
    fewer; see also :func:`turns_within`.
    """
    # The index of the last own turn. If there is only one, it is the last, and the seat concedes all at once.
    last = turns_within(observation, horizon) // (1 + len(observation.briefing.partners)) - 1
    return 1.0 if last < 1 else min(1.0, observation.own_turns / last)


def turns_within(observation: Observation, horizon: int) -> int:
    """Returns the number of turns of all seats within a horizon, which counts the turns of each of two seats.

    Horizons are meant for episodes of 20 turns. A shorter turn limit shortens them: a policy that plans with turns
    beyond the limit concedes too late.
    """
    turns, limit = 2 * horizon, observation.turn_limit
    return min(turns, limit) if limit < 2 * DEFAULT_HORIZON else turns


class Negotiator(RuledAnswers):
    """Base of all negotiators. Subclasses define the target; some also choose offers and words themselves."""

    __slots__ = ()
    plays: ClassVar[str] = "respond"
    """The strategy in a game of choices (:data:`~sotopia_env.policies.choosers.strategies.STRATEGIES`)."""

    def target(self, bids: Bids) -> float:
        """Returns the utility that the seat asks for in this turn."""
        raise NotImplementedError

    def claim_target(self, observation: Observation, seed: int) -> float:
        """Returns the least :func:`~.claiming.expectation` of an uncertain claim that the seat makes in this turn."""
        return max(0.0, 1.0 - elapsed(observation, DEFAULT_HORIZON))

    def next_offer(self, bids: Bids) -> int:
        """Returns the row of the offer that the seat would make now.

        This is the outcome at or just above the target; of equally good ones, the one nearest to the partners' offers.
        """
        # To this seat the rows of the band are equal, so that a trade-off for the partners costs it nothing.
        first = bids.ranking.cheapest(self.target(bids))
        utility = bids.ranking.utilities[first]
        rows = bids.ranking.band(utility, utility)
        return bids.ranking.nearest(rows, bids.standing) if len(rows) > 1 else first

    def threshold(self, bids: Bids, offer: int) -> float:
        """Returns the least utility of an offer that the seat accepts, if its own next offer is the row ``offer``."""
        return float(bids.ranking.utilities[offer])

    def words(self, observation: Observation, move: Move, seed: int) -> str:
        """Returns the words that accompany ``move``."""
        return phrases.phrase(observation, move, seed)

    def tell(self, observation: Observation, seed: int) -> str | None:
        """Returns a fact that the partners may not know; ``None`` if no useful fact is left."""
        return phrases.share(observation, seed) or fact(observation)

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns the next move; see the module's description."""
        return self.decide(observation, seed)

    def decide(self, observation: Observation, seed: int) -> Decision:
        """Returns the next move; see the module's description."""
        table = observation.table
        if table is None:
            return small_talk(observation, seed)
        if table.settled:
            return leave(observation)
        if in_game(observation):
            return choose(observation, seed, self.plays, promises=False)
        if table.claims is not None:
            return self._solve(observation, seed)
        return self._vote(observation, table, seed) if table.votes is not None else self._bargain(observation, seed)

    def _move(self, observation: Observation, move: Move, seed: int) -> Decision:
        return commit(observation, self.words(observation, move, seed), move)

    def _bargain(self, observation: Observation, seed: int) -> Decision:
        bids = Bids(observation, seed)
        if bids.ranking.hopeless or not (observation.moves and observation.moves.binds):
            return SILENCE
        offer = self.next_offer(bids)
        best = bids.best_open()
        # Never below 0, whatever a tactic's target: an agreement must not be worse than none.
        if best is not None and best[1] >= max(0.0, self.threshold(bids, offer)) - EPSILON:
            return self._move(observation, Move(MoveKind.ACCEPT, best[0].offer.number), seed)
        return self._move(observation, Move(MoveKind.PROPOSE, bids.ranking.terms(offer)), seed)

    def _vote(self, observation: Observation, table: TableView, seed: int) -> Decision:
        """Votes for the option with most votes of others among those that reach the target; ties go to the best."""
        bids = Bids(observation, seed)
        if bids.ranking.hopeless or not (observation.moves and observation.moves.binds):
            return SILENCE
        assert table.votes is not None
        counts = Counter(vote for agent, vote in table.votes.options.items() if agent != bids.agent)
        count = max(1, bids.ranking.count(max(0.0, self.target(bids))))
        ranked = [bids.ranking.terms(row)[OPTION] for row in range(count)]
        # Where a seat cannot vote for itself, its best option may be closed to it.
        options = [option for option in ranked if option in observation.moves.vote] or list(observation.moves.vote)
        # ``max`` returns the first of equal counts, and options are ordered by utility.
        option = max(options, key=lambda option: counts[option])
        counts[option] += 1
        if self._waits(observation, table, max(counts.values())):
            return say(observation, _PATIENCE)
        return self._move(observation, Move(MoveKind.VOTE, option), seed)

    def _waits(self, observation: Observation, table: TableView, count: int) -> bool:
        """Whether the seat holds back a vote that would close the ballot without a decision.

        Only the last seat that has not voted waits: its vote closes the ballot. The ballot is decided if all seats
        agree (unanimity) or if more than half of them do. The last seat is the last in seat order, so that exactly one
        seat waits in a simultaneous round. In a secret ballot it does not wait, because it could not see others change
        their votes.

        Args:
            observation: the seat's observation.
            table: the table as the seat sees it.
            count: the number of equal votes for the leading option, this seat's vote included.
        """
        votes = table.votes
        assert votes is not None
        if observation.agent not in votes.waiting[-1:] or len(votes.options) < len(votes.voted):
            return False
        rules, seats = observation.briefing.rules, len(table.space.names)
        unanimity = isinstance(rules, BallotRules) and rules.rule == "unanimity"
        decides = count == seats if unanimity else 2 * count > seats
        return not decides and elapsed(observation, DEFAULT_HORIZON) < 1

    def _solve(self, observation: Observation, seed: int) -> Decision:
        """Claims the likeliest answer if it is nearly certain; else shares facts; then claims if the target allows."""
        chances = odds(observation) if observation.moves else {}
        name, chance = max(chances.items(), key=lambda entry: entry[1], default=("", 0.0))
        claim = Move(MoveKind.CLAIM, name)
        if chance >= SURE:
            return self._move(observation, claim, seed)
        words = self.tell(observation, seed)
        if words is not None:
            return say(observation, words)
        worth = observation.briefing.worth
        assert isinstance(worth, ClaimsWorth)
        if name and expectation(worth, chance) >= max(EPSILON, self.claim_target(observation, seed)):
            return self._move(observation, claim, seed)
        return ask(observation, seed)
