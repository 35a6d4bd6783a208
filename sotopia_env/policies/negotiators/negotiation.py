"""The frame of every scripted negotiator: one way to act under each protocol, with a target that each one sets.

Each turn a negotiator works out what it asks for (its *target*, on the scale where 0 is no agreement and 1 its best
outcome). In an **agreement** it chooses its next offer, accepts the best open offer if that is worth at least as much
(AC_next: Baarslag, Hindriks and Jonker, "Acceptance conditions in automated negotiation", 2013), and proposes
otherwise. In a **ballot** offers are votes. For **claims** it tells what it knows first. When the matter is settled it
leaves. All it knows is its own observation; in a task without a protocol it makes small talk.

Beside every move it says something fitting (:mod:`sotopia_env.tasks.phrases`). No negotiator listens to words, except
to the facts of a claims task (:mod:`sotopia_env.policies.negotiators.claiming`).
"""

from __future__ import annotations

from collections import Counter

from sotopia_env.outcomes import BallotRules, ClaimsWorth, Move, MoveKind, TableView
from sotopia_env.outcomes.space import OPTION
from sotopia_env.policies.interviews import RuledAnswers
from sotopia_env.policies.negotiators.bidding import EPSILON, Bids
from sotopia_env.policies.negotiators.claiming import SURE, expectation, fact, odds
from sotopia_env.policies.policy import Decision
from sotopia_env.policies.small_talk import SILENCE, ask, commit, leave, own_turns, say, small_talk
from sotopia_env.tasks import phrases
from sotopia_env.world.observation import Observation

DEFAULT_HORIZON = 10
"""Own turns in an episode of two seats and 20 turns."""
DEFAULT_FLOOR = 0.02
"""The least that an agreement must bring: something, but little, since the best outcome is often far out of reach."""
_PATIENCE = "I would like to hear everybody before I vote."


def elapsed(observation: Observation, horizon: int) -> float:
    """Returns the share of the time that has passed: 0 in the first own turn, 1 in the last of ``horizon`` and later.

    The horizon is that of two seats. More seats share the turns of an episode, and so each has fewer of them; see also
    :func:`turns_within`.
    """
    last = turns_within(observation, horizon) // (1 + len(observation.briefing.partners)) - 1
    return 1.0 if last < 1 else min(1.0, own_turns(observation) / last)


def turns_within(observation: Observation, horizon: int) -> int:
    """Returns how many turns of all seats a horizon of two seats' own turns spans.

    Horizons are meant for episodes of 20 turns. A shorter one ends them: who plans with turns that never come concedes
    too late.
    """
    turns, limit = 2 * horizon, observation.turn_limit
    return min(turns, limit) if limit < 2 * DEFAULT_HORIZON else turns


class Negotiator(RuledAnswers):
    """What all negotiators share; each says what it asks for, some choose offers and words in their own way."""

    __slots__ = ()

    def target(self, bids: Bids) -> float:
        """Returns the utility the seat asks for at this moment."""
        raise NotImplementedError

    def claim_target(self, observation: Observation, seed: int) -> float:
        """Returns how promising a claim must be before the seat makes it without being sure."""
        return max(0.0, 1.0 - elapsed(observation, DEFAULT_HORIZON))

    def next_offer(self, bids: Bids) -> int:
        """Returns the row of the offer the seat would make now.

        The outcome at or just above the target; among equally good ones the one nearest to the partners' offers.
        """
        first = bids.ranking.cheapest(self.target(bids))
        utility = bids.ranking.utilities[first]
        rows = bids.ranking.band(utility, utility)
        return bids.ranking.nearest(rows, bids.standing) if len(rows) > 1 else first

    def threshold(self, bids: Bids, offer: int) -> float:
        """Returns the utility from which the seat accepts, when its next offer would be the row ``offer``."""
        return float(bids.ranking.utilities[offer])

    def words(self, observation: Observation, move: Move, seed: int) -> str:
        """Returns what is said along with ``move``."""
        return phrases.phrase(observation, move, seed)

    def tell(self, observation: Observation, seed: int) -> str | None:
        """Returns a fact the partners may not know; ``None`` when nothing useful is left to tell."""
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
        if table.claims is not None:
            return self._solve(observation, seed)
        return self._vote(observation, table, seed) if table.votes is not None else self._bargain(observation, seed)

    def _move(self, observation: Observation, move: Move, seed: int) -> Decision:
        return commit(observation, self.words(observation, move, seed), move)

    def _bargain(self, observation: Observation, seed: int) -> Decision:
        bids = Bids(observation, seed)
        if bids.ranking.hopeless or not observation.moves:
            return SILENCE
        offer = self.next_offer(bids)
        best = bids.best_open()
        if best is not None and best[1] >= max(0.0, self.threshold(bids, offer)) - EPSILON:
            return self._move(observation, Move(MoveKind.ACCEPT, best[0].offer.number), seed)
        return self._move(observation, Move(MoveKind.PROPOSE, bids.ranking.terms(offer)), seed)

    def _vote(self, observation: Observation, table: TableView, seed: int) -> Decision:
        """Votes, among the options worth the target, for the one with most votes of others; the best where none has."""
        bids = Bids(observation, seed)
        if bids.ranking.hopeless or not observation.moves:
            return SILENCE
        assert table.votes is not None
        counts = Counter(vote for agent, vote in table.votes.options.items() if agent != bids.agent)
        count = max(1, bids.ranking.count(max(0.0, self.target(bids))))
        options = [bids.ranking.terms(row)[OPTION] for row in range(count)]
        option = max(options, key=lambda option: counts[option])  # of equal counts the first, which is the better one
        counts[option] += 1
        if self._waits(observation, table, max(counts.values())):
            return say(observation, _PATIENCE)
        return self._move(observation, Move(MoveKind.VOTE, option), seed)

    def _waits(self, observation: Observation, table: TableView, count: int) -> bool:
        """Whether the seat holds back its vote, because it would close the ballot with only ``count`` votes alike.

        That is the vote of the last seat; half of all votes may decide nothing, and where unanimity is the rule all
        but one decide nothing. The last is the last in seat order of
        those without a vote, so that a simultaneous round has one, too. Where votes are secret, waiting tells nothing.
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
        """Claims the likeliest answer once sure of it; tells facts before; then claims what is worth the target."""
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
