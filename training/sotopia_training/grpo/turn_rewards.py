"""Rewards of single turns in GRPO: attributed from the episode's score, measured with continuations, or by beliefs.

:class:`AttributedTurns` gives every turn r_t = G · A of an attributor (:mod:`sotopia_training.attribution.methods`).

:class:`MeasuredTurns` gives it its counterfactual turn reward (:mod:`sotopia_env.evaluators.turn_rewards`): as in
VinePPO for reasoning steps (Kazemnejad et al., arXiv 2410.01679), the policy in training plays on to the end
``samples`` times from the state before each of its turns, and the turn's reward is the mean score from before its next
turn minus that from before this one. The episode's own score is the value after its last turn. Continuations from a
state that several episodes of a group share, such as their first, are played once for all of them. Partners make the
same random draws as in the episode.

:class:`BelievedTurns` gives it the change of what the other seats believe, from the probes in the episode's evaluation.

Cost of measuring: an episode with n own turns needs about ``samples`` · n (n + 1) / 2 further answers, which are
sampled but not trained on: with 4 samples and 5 turns, 60 in addition to its 5. ``episodes/continuation_tokens`` is
logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sotopia_env.evaluators.turn_rewards import belief_rewards, measured_rewards, until_next
from sotopia_env.foundation.errors import InvalidValueError, Verbatim
from sotopia_env.world import Dimension
from sotopia_env.world.episode import Episode
from sotopia_env.world.reward import RANGES
from sotopia_training.attribution.by_outcome import VERIFIED, make_attributor
from sotopia_training.attribution.methods import Attributor, SeatScore, Unattributed, seat_score
from sotopia_training.attribution.settings import COUNTERFACTUAL
from sotopia_training.grpo.settings import BELIEF, RewardSettings, rewarded_dimension
from sotopia_training.grpo.situations import Situation
from sotopia_training.grpo.token_episodes import Sample, TokenPlayer
from sotopia_training.grpo.token_seat import TokenSeat

logger = logging.getLogger(__name__)
FIELD = "reward.turns"


class TurnRewarder(Protocol):
    """Gives the focal turns of episodes their rewards."""

    def rewards(
        self, episodes: Sequence[TokenSeat], sample: Sample, row_count: Callable[[int], int] = int
    ) -> tuple[list[dict[int, float]], int | None]:
        """Returns the rewards of the focal turns of each episode, by the turn's index, and the number of tokens
        sampled for them, ``None`` if none are sampled.

        An episode has no rewards if its score, or a value that they need, is missing: it then has no effect on
        training, unlike rewards of 0.

        Args:
            episodes: complete episodes.
            sample: the sampler of the policy in training.
            row_count: as in :meth:`TokenPlayer.play`.
        """
        ...


def make_turn_rewarder(
    reward: RewardSettings, player: TokenPlayer, situations: Sequence[Situation]
) -> TurnRewarder | None:
    """Returns the rewarder of the turns; ``None`` if every turn has the episode's reward.

    Raises:
        InvalidValueError: the rewards do not cover the dimension, or a task.
    """
    if reward.turns == "episode":
        return None
    if reward.turns == BELIEF:
        return BelievedTurns(reward.invalid)
    dimension = rewarded_dimension(reward)
    if reward.turns == COUNTERFACTUAL:
        check_verified(situations, dimension)
        return MeasuredTurns(player, reward.samples, reward.invalid)
    attributor = make_attributor(reward.turns)
    check_attributable(attributor, situations, dimension)
    return AttributedTurns(attributor, dimension, reward.invalid)


def by_tokens(episode: TokenSeat, rewards: Mapping[int, float]) -> list[tuple[int, int, float]]:
    """Returns start and end of each focal turn's tokens, with its reward; turns without one are left out."""
    return [(turn.start, turn.end, rewards[turn.turn]) for turn in episode.focal if turn.turn in rewards]


# --- attributed ---------------------------------------------------------------------------------------------------


def check_attributable(attributor: Attributor, situations: Sequence[Situation], dimension: str) -> None:
    """Checks, before the first episode, that an attributor can rate the turns of every task.

    Raises:
        InvalidValueError: the attributor does not cover the dimension, or a task.
    """
    score = SeatScore(dimension, 0.0, *RANGES[Dimension(dimension)])
    for item in situations:
        unplayed = Episode(key=item.task.id, task=item.task, rules=item.rules)
        if not attributor.applies(unplayed, score):
            raise InvalidValueError(
                field=FIELD,
                expected=f"an attributor that can rate turns for {dimension} in every task",
                got=Verbatim(f"{attributor.name!r}, which cannot in task {item.task.id!r}"),
            )


@dataclass(frozen=True, slots=True)
class AttributedTurns:
    """Divides the episode's reward among its turns.

    Attributes:
        attributor: rates the importance of the turns.
        dimension: the full name of the dimension for which they are rated.
        invalid: the reward of an impossible answer.
    """

    attributor: Attributor
    dimension: str
    invalid: float

    def rewards(
        self, episodes: Sequence[TokenSeat], sample: Sample, row_count: Callable[[int], int] = int
    ) -> tuple[list[dict[int, float]], int | None]:
        """Implements :meth:`TurnRewarder.rewards`; samples nothing."""
        return [{} if episode.failure else self.of(episode) for episode in episodes], None

    def of(self, episode: TokenSeat) -> dict[int, float]:
        """Returns r_t = G · A of every focal turn by index.

        A score below 0 is a loss and is attributed to the turns that caused it. The result is empty if the score or its
        attribution is missing.
        """
        record, seat = episode.record, episode.agent
        score = seat_score(record, seat, self.dimension)
        if isinstance(score, Unattributed):
            return _without_rewards(episode, score)
        base = episode.reward  # G: the score itself, or the share
        if base is None:
            return _without_rewards(episode, Unattributed("the episode has no reward"))
        importance = self.attributor.attribute(record, seat, score, base < 0)
        if isinstance(importance, Unattributed):
            return _without_rewards(episode, importance)
        parts = {turn: base * weight for turn, weight in importance.by_turn.items()}  # r_t = G · A_t
        return {turn.turn: self.invalid if turn.failure else parts.get(turn.turn, 0.0) for turn in episode.focal}


@dataclass(frozen=True, slots=True)
class BelievedTurns:
    """Pays each turn for the change of what the others believe, and nothing else.

    Attributes:
        invalid: the reward of an impossible answer.
    """

    invalid: float

    def rewards(
        self, episodes: Sequence[TokenSeat], sample: Sample, row_count: Callable[[int], int] = int
    ) -> tuple[list[dict[int, float]], int | None]:
        """Implements :meth:`TurnRewarder.rewards`; samples nothing."""
        return [{} if episode.failure else self.of(episode) for episode in episodes], None

    def of(self, episode: TokenSeat) -> dict[int, float]:
        """Returns the reward of every focal turn by index; empty if no other seat's beliefs are known."""
        try:
            rewards = belief_rewards(episode.record, episode.agent).by_turn
        except InvalidValueError as error:
            return _without_rewards(episode, Unattributed(str(error)))
        return {turn.turn: self.invalid if turn.failure else rewards[turn.turn] for turn in episode.focal}


def _without_rewards(episode: TokenSeat, missing: Unattributed) -> dict[int, float]:
    logger.warning(
        "%s: an episode of task %r without rewards of turns: %s", FIELD, episode.table.task.id, missing.reason
    )
    return {}


# --- measured -----------------------------------------------------------------------------------------------------


def check_verified(situations: Sequence[Situation], dimension: str) -> None:
    """Checks that scores are computed from outcomes, not judged.

    Raises:
        InvalidValueError: a task has no outcome, or the outcome does not score the dimension.
    """
    bare = next((item.task.id for item in situations if item.task.protocol is None), None)
    if bare is not None or dimension not in VERIFIED:
        got = dimension if bare is None else f"task {bare!r}, which has no outcome"
        raise InvalidValueError(
            field=FIELD,
            expected=f"the share, GOAL or FIN as scalarisation and verified tasks for {COUNTERFACTUAL!r}",
            got=Verbatim(got),
        )


@dataclass(frozen=True, slots=True)
class MeasuredTurns:
    """Measures turn rewards with continuations from the states of episodes.

    Attributes:
        player: plays the continuations; its scalarisation is the reward that is measured.
        samples: the number of continuations of each state, at least 1.
        invalid: the penalty that is added to the reward of an impossible answer.
    """

    player: TokenPlayer
    samples: int
    invalid: float

    def rewards(
        self, episodes: Sequence[TokenSeat], sample: Sample, row_count: Callable[[int], int] = int
    ) -> tuple[list[dict[int, float]], int]:
        """Implements :meth:`TurnRewarder.rewards`."""
        continuations: dict[tuple[object, ...], list[TokenSeat]] = {}
        for episode in episodes:
            for number in range(0 if episode.failure else len(episode.focal)):
                if (key := _state(episode, number)) not in continuations:
                    continuations[key] = [episode.before(number) for _ in range(self.samples)]
        # All continuations of all episodes are sampled together, in large batches.
        flat = [item for group in continuations.values() for item in group]
        # The copies already contain the tokens sampled before their state, which are not counted again.
        tokens = sum(sum(item.mask) for item in flat)
        self.player.play_on(flat, sample, row_count)
        scores = {key: self._scores(group) for key, group in continuations.items()}
        return [self._of(episode, scores) for episode in episodes], sum(sum(item.mask) for item in flat) - tokens

    def _of(self, episode: TokenSeat, scores: Mapping[tuple[object, ...], list[float]]) -> dict[int, float]:
        if episode.failure or not episode.focal:
            return {}
        turns, end = [turn.turn for turn in episode.focal], len(episode.table.turns)
        samples = {turn: scores[_state(episode, number)] for number, turn in enumerate(turns)}
        # The state after the last turn has no continuation: its value is the score itself.
        samples[end] = self._scores([episode])
        if not all(samples.values()):
            return {}
        measured = measured_rewards(samples, until_next(turns, end)).by_turn
        return {turn.turn: measured[turn.turn] + (self.invalid if turn.failure else 0.0) for turn in episode.focal}

    def _scores(self, episodes: Sequence[TokenSeat]) -> list[float]:
        """Returns the rewards of the episodes that have one."""
        return [item.reward for item in episodes if item.reward is not None]


def _state(episode: TokenSeat, number: int) -> tuple[object, ...]:
    """Returns a key of the state before a focal turn, equal for episodes that have not diverged yet."""
    # Episodes of a group share the key and the partners, and before they diverge all tokens of the policy's seats.
    turn, partners = episode.focal[number], tuple(map(id, episode.partners.values()))
    others = [seat.completion[: _read(seat, turn.turn)] for seat in episode.fellows.values() if seat is not episode]
    return (
        episode.table.key,
        episode.agent,
        partners,
        *episode.prompt,
        *episode.completion[: turn.start],
        *map(tuple, others),
    )


def _read(seat: TokenSeat, turn: int) -> int:
    """Returns the end of the seat's last answer before a turn of another seat."""
    return max([own.end for own in seat.focal if own.turn < turn], default=0)
