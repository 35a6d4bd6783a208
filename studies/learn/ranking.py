"""The gate of the reward model: whether it ranks the better of two moves in a state higher.

The states are those of held-out tasks in which the cloned model may accept an offer. In each, the offer is accepted and
the plan is offered again, and the value of each is measured by playing on with the same policies. A correlation over
states would not show this: a model that only knows which situations are good correlates well, but prefers no move.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from sotopia_training.data.samples import RowMaker
from sotopia_training.reward.scorer import RewardScorer
from sotopia_training.stage.settings import PromptSettings

from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.evaluators import VerifiedOutcome
from sotopia_env.naming.recorded import policy_of
from sotopia_env.policies import Decision, Policy
from sotopia_env.world.episode import Episode, Usage
from sotopia_env.world.play.continuations import Continuations
from sotopia_env.world.play.table import Table
from sotopia_env.world.reward import Dimension
from studies.learn.episodes import seat_of
from studies.learn.speakers import assent, incoming, offer

RANKING = "ranking.json"
"""The file of a seed's pairs."""
SAMPLES = 4
"""Continuations of each move."""
GATE = 0.6
"""The minimum balanced accuracy; that of chance, or of always preferring the same move, is 0.5."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A state in which an offer may be accepted, with the results of accepting it and of offering the plan again.

    Attributes:
        state: the episode before the move.
        seat: the seat that moves.
        decisions: the acceptance, then the plan.
        values: GOAL in every continuation of each decision.
        tokens: the number of tokens that the policy sampled in the continuations.
    """

    state: Episode
    seat: str
    decisions: tuple[Decision, Decision]
    values: tuple[Sequence[float], Sequence[float]]
    tokens: int

    @property
    def gain(self) -> float:
        """The mean GOAL after accepting minus the mean GOAL after the plan."""
        return fmean(self.values[0]) - fmean(self.values[1])


async def measured_choices(
    episodes: Iterable[Episode], name: str, policy: Policy, samples: int, words: bool = True
) -> tuple[Choice, ...]:
    """Returns the measured choices of a policy in its episodes.

    Args:
        episodes: recorded episodes, with partners that can be made again from their names.
        name: the name of the policy in the records.
        policy: the policy that plays the continuations in its seat.
        samples: the number of continuations of each move.
        words: whether anything is said besides the moves.
    """
    states = [
        (episode.before(item.turn.index), item.turn.actor)
        for episode in episodes
        for item in episode.turns
        if item.turn.actor == seat_of(episode, name)
    ]
    choices = await asyncio.gather(*(_choice(state, seat, policy, samples, words) for state, seat in states))
    return tuple(choice for choice in choices if choice is not None)


async def _choice(state: Episode, seat: str, policy: Policy, samples: int, words: bool) -> Choice | None:
    table, turn = Table.resume(state), len(state.turns)
    observation = table.observe(seat)
    standing = incoming(observation)
    if standing is None or standing < 0:
        return None
    seed = state.seed + turn
    decisions = (assent(seed, words), offer(observation, seed, words))
    afters = [table.fork(turn, decision.action).episode() for decision in decisions]
    ends = [await _played_on(after, seat, policy, samples) for after in afters]
    first, second = [[_goal(end, seat) for end in played] for played in ends]
    tokens = sum(sampled_tokens(end, seat, turn) for played in ends for end in played)
    # Taken from the record, where the acceptance has its offer's number, as in the texts that policies write.
    first_move, second_move = [Decision(after.turns[-1].turn.action) for after in afters]
    return Choice(state, seat, (first_move, second_move), (first, second), tokens)


def reward_rows(choices: Iterable[Choice], prompt: PromptSettings, validation: Collection[str]) -> Iterator[str]:
    """Yields the lines of a reward model's rows, two for each choice: the value of a move relative to their mean.

    A row's value depends on the move alone; the value of the situation, which varies far more, cancels out. A
    difference of ten points of GOAL becomes a difference of 1.

    Args:
        choices: the measured choices.
        prompt: the prompt settings of the reward model.
        validation: ids of the held-out tasks.
    """
    maker = RowMaker(prompt)
    for choice in choices:
        for decision, sign in zip(choice.decisions, (1, -1), strict=True):
            turn = len(choice.state.turns)
            after = Table.resume(choice.state).fork(turn, decision.action).episode()
            # Gain is at most 10 in size: ± gain / 20 around 0.5 stays within [0, 1].
            for row in maker.rows(after, choice.seat, {turn: 0.5 + sign * choice.gain / 20}):
                part = "validation" if row.task in validation else "train"
                yield json.dumps({**row.columns(), "format": prompt.format, "split": part}) + "\n"


async def ranked_pairs(choices: Iterable[Choice], scorer: RewardScorer) -> list[dict[str, Any]]:
    """Returns, for each choice, the gain of accepting over the plan and the difference of their scores."""
    return [await _ranked(choice, scorer) for choice in choices]


async def _ranked(choice: Choice, scorer: RewardScorer) -> dict[str, Any]:
    observation = Table.resume(choice.state).observe(choice.seat)
    scores = await scorer.score(observation, choice.decisions)
    return {
        "own_turns_left": observation.own_turns_left(),
        "gain": choice.gain,
        "error": sum(stdev(values) ** 2 / len(values) for values in choice.values) ** 0.5,
        "score": scores[0] - scores[1],
    }


async def _played_on(state: Episode, seat: str, policy: Policy, samples: int) -> list[Episode]:
    """Continuations of a state, evaluated."""
    # Partners are scripted, so the pool never opens a model.
    models = ModelPool()
    continuations = Continuations(
        lambda info: policy if info.agent == seat else policy_of(info, models), VerifiedOutcome()
    )
    # A policy draws from the episode's seed, so a continuation with the same seed would repeat itself.
    reseeded = [state.model_copy(update={"seed": state.seed + draw}) for draw in range(1, samples + 1)]
    return await asyncio.gather(*map(continuations.play, reseeded))


def _goal(episode: Episode, seat: str) -> float:
    evaluation = episode.evaluation()
    assert evaluation is not None
    return float(evaluation.by_agent[seat][Dimension.GOAL].value)


def sampled_tokens(episode: Episode, seat: str, begin: int = 0) -> int:
    """Returns the number of tokens that a seat's model sampled in an episode, from turn ``begin`` on."""
    own = (item.generation for item in episode.turns[begin:] if item.turn.actor == seat)
    tokens = sum((generation.usage for generation in own if generation is not None), Usage()).completion_tokens
    # Models in this process always count their tokens.
    assert tokens is not None
    return tokens


@dataclass(frozen=True, slots=True)
class Ranking:
    """The number of correctly ranked pairs; equal scores count half.

    Attributes:
        accept: the correctly ranked pairs among those in which accepting is better, and the total of the latter.
        plan: the same for the pairs in which the plan is better.
    """

    accept: tuple[float, int]
    plan: tuple[float, int]

    @property
    def balanced(self) -> float | None:
        """The mean of both shares, which a constant preference cannot raise; ``None`` if a kind of pair is missing."""
        shares = [right / count for right, count in (self.accept, self.plan) if count]
        return fmean(shares) if len(shares) == 2 else None

    @property
    def passed(self) -> bool:
        """Whether the reward model ranks well enough to be trained on."""
        return self.balanced is not None and self.balanced >= GATE

    def text(self) -> str:
        """The balanced accuracy with its parts."""
        balanced = "?" if self.balanced is None else f"{self.balanced:.2f}"
        accept, plan = (f"{right:g} of {count}" for right, count in (self.accept, self.plan))
        return f"{balanced} (accept: {accept}, plan: {plan})"


def rankings(pairs: Sequence[Mapping[str, Any]]) -> dict[str, Ranking]:
    """Returns the ranking of the pairs, in total and by the number of own turns left.

    Only pairs count whose moves differ by more than two standard errors.
    """
    decided = [pair for pair in pairs if abs(pair["gain"]) > 2 * pair["error"]]
    groups = {"all": decided}
    for left in sorted({pair["own_turns_left"] for pair in decided}):
        groups[f"own turns left: {left}"] = [pair for pair in decided if pair["own_turns_left"] == left]
    return {name: Ranking(_right(group, 1), _right(group, -1)) for name, group in groups.items() if group}


def _right(pairs: Sequence[Mapping[str, Any]], sign: int) -> tuple[float, int]:
    """The number of correctly ranked pairs among those whose gain has this sign, and the total of the latter."""
    scores = [sign * pair["score"] for pair in pairs if sign * pair["gain"] > 0]
    return sum((score >= 0) / 2 + (score > 0) / 2 for score in scores), len(scores)
