"""The gate of the reward model: of two moves in one state, does it rank the better one higher?

The states are those of held-out tasks in which the cloned model may accept an offer. In each, the offer is accepted and
the plan is offered again, and what either is worth is measured by playing on with the same policies. A correlation over
states would say nothing of this: a model that knows which situations are good correlates well, and prefers no move.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from sotopia_env.chat_model import ModelPool
from sotopia_env.evaluators import default_evaluator
from sotopia_env.policies import Decision, Policy
from sotopia_env.table import Table
from sotopia_env.world import Episode
from training.attribution.counterfactual import forced, remade, state_before
from training.proof.speakers import assent, incoming, offer
from training.reward.scorer import RewardScorer

RANKING = "ranking.json"
"""The file of a seed's pairs."""
SAMPLES = 4
"""Continuations of each move."""
GATE = 0.6
"""Smallest share of pairs that are ranked right; chance is 0.5."""


async def ranked_pairs(
    episodes: Sequence[Episode], name: str, policy: Policy, scorer: RewardScorer
) -> list[dict[str, Any]]:
    """Returns each state with what accepting is worth beyond the plan, and by how much it is scored higher.

    Args:
        episodes: recorded, of the policy with a partner that can be made again.
        name: of the policy in the records.
        policy: plays on.
        scorer: under test.
    """
    states = [
        (state_before(episode, item.turn.index), item.turn.actor)
        for episode in episodes
        for item in episode.turns
        if item.turn.actor == seat_of(episode, name)
    ]
    pairs = await asyncio.gather(*(_pair(state, seat, policy, scorer) for state, seat in states))
    return [pair for pair in pairs if pair is not None]


async def _pair(state: Episode, seat: str, policy: Policy, scorer: RewardScorer) -> dict[str, Any] | None:
    observation = Table.resume(state).observe(seat)
    standing = incoming(observation)
    if standing is None or standing < 0:
        return None
    decisions: tuple[Decision, Decision] = (assent(0), offer(observation, 0))
    first, second = [await _values(forced(state, decision.action), seat, policy) for decision in decisions]
    scores = await scorer.score(observation, decisions)
    return {
        "own_turns_left": observation.own_turns_left(),
        "gain": fmean(first) - fmean(second),
        "error": ((stdev(first) ** 2 + stdev(second) ** 2) / SAMPLES) ** 0.5,
        "score": scores[0] - scores[1],
    }


async def _values(state: Episode, seat: str, policy: Policy) -> list[float]:
    """GOAL of the seat in each continuation of a state."""
    models = ModelPool()  # of scripted partners, who need none
    seats = {info.agent: policy if info.agent == seat else remade(info, {}, models) for info in state.policies}

    async def play_on(draw: int) -> float:
        table = Table.resume(state.model_copy(update={"seed": state.seed + draw}))
        await table.play(seats)
        return float((await table.evaluate(default_evaluator())).vector(seat)[-1])

    return await asyncio.gather(*(play_on(draw) for draw in range(1, SAMPLES + 1)))


def seat_of(episode: Episode, policy: str) -> str:
    """The agent that a policy played."""
    return next(info.agent for info in episode.policies if info.name == policy)


def ranking_accuracy(pairs: Sequence[Mapping[str, Any]]) -> dict[str, tuple[float, int]]:
    """Returns the share of pairs ranked right and their number, in all and by own turns left.

    Only pairs count whose moves differ by two standard errors or more.
    """
    decided = [pair for pair in pairs if abs(pair["gain"]) > 2 * pair["error"]]
    groups = {"all": decided}
    for left in sorted({pair["own_turns_left"] for pair in decided}):
        groups[f"own turns left: {left}"] = [pair for pair in decided if pair["own_turns_left"] == left]
    return {
        name: (fmean((pair["gain"] > 0) == (pair["score"] > 0) for pair in group), len(group))
        for name, group in groups.items()
        if group
    }
