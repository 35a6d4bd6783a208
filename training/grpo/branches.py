"""Counterfactual credit in GRPO: what each turn of the policy in training was worth, by playing on from before it.

As VinePPO does for steps of reasoning (Kazemnejad et al., arXiv 2410.01679): from the state before each of its turns
the policy as it is now plays on to the end ``samples`` times, and

    gain of turn i = mean score from before turn i + 1 - mean score from before turn i

with the episode's own score after its last turn. A state that several episodes of a group share, such as their first,
is played from once for all. Partners draw as in the episode itself. The penalty of an impossible answer is added
to its gain.

Cost: an episode of n own turns has about ``samples`` · n (n + 1) / 2 further answers, which are sampled and not trained
on: with 4 samples and 5 turns, 60 beside its 5. ``episodes/branch_tokens`` is logged.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from sotopia_env.errors import InvalidValueError
from sotopia_env.world import Dimension
from training.attribution.by_outcome import VERIFIED
from training.attribution.settings import COUNTERFACTUAL
from training.grpo.situations import Situation
from training.grpo.token_episodes import Sample, TokenEpisode, TokenPlayer


def check_verified(situations: Sequence[Situation], dimension: str) -> None:
    """Checks that what is measured is an outcome and no opinion.

    Raises:
        InvalidValueError: a task has no outcome, or the dimension is none of the outcome's.
    """
    bare = next((item.task.id for item in situations if item.task.protocol is None), None)
    if bare is not None or dimension not in VERIFIED:
        got = dimension if bare is None else f"task {bare!r}, which has no outcome"
        raise InvalidValueError(
            f"{COUNTERFACTUAL!r} needs GOAL or FIN as scalarisation and verified tasks, not {got}",
            field="reward.credit",
        )


@dataclass(frozen=True, slots=True)
class Branches:
    """Plays on from the states of episodes.

    Attributes:
        player: of the episodes.
        dimension: by its full name.
        samples: continuations of each state, at least 1.
        invalid: penalty, added to the gain of an impossible answer.
    """

    player: TokenPlayer
    dimension: str
    samples: int
    invalid: float

    def gains(
        self, episodes: Sequence[TokenEpisode], sample: Sample, row_count: Callable[[int], int] = int
    ) -> tuple[list[dict[int, float]], int]:
        """Returns the gain of every focal turn of each episode, by the turn's index, and the tokens that were sampled.

        An episode without scores has no gains, nor has one of whose states no continuation has a score.

        Args:
            episodes: complete.
            sample: of the policy in training.
            row_count: see :meth:`TokenPlayer.play`.
        """
        branches: dict[tuple[int, ...], list[TokenEpisode]] = {}
        for episode in episodes:
            for number in range(0 if episode.failure else len(episode.focal)):
                if (key := _state(episode, number)) not in branches:
                    branches[key] = [self.player.branch(episode, number) for _ in range(self.samples)]
        flat = [branch for group in branches.values() for branch in group]
        before = sum(sum(branch.mask) for branch in flat)
        self.player.play_on(flat, sample, row_count)
        values = {key: self._mean(group) for key, group in branches.items()}
        return [self._of(episode, values) for episode in episodes], sum(sum(branch.mask) for branch in flat) - before

    def _of(self, episode: TokenEpisode, values: dict[tuple[int, ...], float | None]) -> dict[int, float]:
        if episode.failure:
            return {}
        means = [values[_state(episode, number)] for number in range(len(episode.focal))]
        measured = [mean for mean in [*means, self._mean([episode])] if mean is not None]
        if len(measured) <= len(means):
            return {}
        gains = [after - before for before, after in itertools.pairwise(measured)]
        turns = zip(episode.focal, gains, strict=True)
        return {turn.turn: gain + (self.invalid if turn.failure else 0.0) for turn, gain in turns}

    def _mean(self, episodes: Sequence[TokenEpisode]) -> float | None:
        """The mean score of those that have one."""
        seats = [(item.situation.seat, item.evaluation) for item in episodes if item.evaluation is not None]
        scores = [evaluation.by_agent[seat][Dimension(self.dimension)].value for seat, evaluation in seats]
        return fmean(scores) if scores else None


def _state(episode: TokenEpisode, number: int) -> tuple[int, ...]:
    """The situation and the tokens before a focal turn: equal for episodes that have not parted yet."""
    return (id(episode.situation), *episode.prompt, *episode.completion[: episode.focal[number].start])
