"""Counterfactual credit in GRPO: the value of each turn of the policy in training, measured by playing on.

As in VinePPO for reasoning steps (Kazemnejad et al., arXiv 2410.01679), the current policy plays on to the end
``samples`` times from the state before each of its turns, and

    gain of turn i = mean score from before turn i + 1 - mean score from before turn i

where the episode's own score is the mean after its last turn. Continuations from a state that several episodes of a
group share, such as their first, are played once for all of them. Partners make the same random draws as in the
episode. The penalty of an impossible answer is added to its gain.

Cost: an episode with n own turns needs about ``samples`` · n (n + 1) / 2 further answers, which are sampled but not
trained on: with 4 samples and 5 turns, 60 in addition to its 5. ``episodes/branch_tokens`` is logged.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from sotopia_env.foundation.errors import InvalidValueError, Verbatim
from sotopia_env.world import Dimension
from sotopia_training.attribution.by_outcome import VERIFIED
from sotopia_training.attribution.settings import COUNTERFACTUAL
from sotopia_training.grpo.situations import Situation
from sotopia_training.grpo.token_episodes import Sample, TokenEpisode, TokenPlayer


def check_verified(situations: Sequence[Situation], dimension: str) -> None:
    """Checks that scores are computed from outcomes, not judged.

    Raises:
        InvalidValueError: a task has no outcome, or the outcome does not score the dimension.
    """
    bare = next((item.task.id for item in situations if item.task.protocol is None), None)
    if bare is not None or dimension not in VERIFIED:
        got = dimension if bare is None else f"task {bare!r}, which has no outcome"
        raise InvalidValueError(
            field="reward.credit",
            expected=f"GOAL or FIN as scalarisation and verified tasks for {COUNTERFACTUAL!r}",
            got=Verbatim(got),
        )


@dataclass(frozen=True, slots=True)
class Branches:
    """Plays on from the states of episodes.

    Attributes:
        player: plays the continuations.
        dimension: the full name of the dimension that is measured.
        samples: the number of continuations of each state, at least 1.
        invalid: the penalty that is added to the gain of an impossible answer.
    """

    player: TokenPlayer
    dimension: str
    samples: int
    invalid: float

    def gains(
        self, episodes: Sequence[TokenEpisode], sample: Sample, row_count: Callable[[int], int] = int
    ) -> tuple[list[dict[int, float]], int]:
        """Returns the gain of every focal turn of each episode, by the turn's index, and the number of sampled tokens.

        An episode has no gains if it has no score, or if no continuation of one of its states has a score.

        Args:
            episodes: complete episodes.
            sample: the sampler of the policy in training.
            row_count: as in :meth:`TokenPlayer.play`.
        """
        branches: dict[tuple[int, ...], list[TokenEpisode]] = {}
        for episode in episodes:
            for number in range(0 if episode.failure else len(episode.focal)):
                if (key := _state(episode, number)) not in branches:
                    branches[key] = [self.player.branch(episode, number) for _ in range(self.samples)]
        # All continuations of all episodes are sampled together, in large batches.
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
        """Returns the mean score of the episodes with a score; ``None`` if none has one."""
        seats = [(item.situation.seat, item.evaluation) for item in episodes if item.evaluation is not None]
        scores = [evaluation.by_agent[seat][Dimension(self.dimension)].value for seat, evaluation in seats]
        return fmean(scores) if scores else None


def _state(episode: TokenEpisode, number: int) -> tuple[int, ...]:
    """Returns a key of the state before a focal turn, equal for episodes that have not diverged yet."""
    # Episodes of a group share the situation object, and before they diverge all tokens.
    return (id(episode.situation), *episode.prompt, *episode.completion[: episode.focal[number].start])
