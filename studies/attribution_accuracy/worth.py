"""The measured worth of turns, and the rewards that need no attributor: counterfactual ones and the order of turns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

from sotopia_training.attribution.counterfactual import StateValues
from sotopia_training.attribution.methods import Unattributed, attributable_turns

from sotopia_env.world.episode import Episode
from studies.attribution_accuracy.accuracy import Observations, RewardedAction
from studies.attribution_accuracy.probes import Probe, Truth, truth_of

DRAWS = (1, 2, 4, 8)
"""The numbers of draws of counterfactual rewards that are judged."""
TurnKey = tuple[str, str, int]
"""Key of the episode, agent id, index of the turn in the episode."""


@dataclass(frozen=True, slots=True)
class Worth:
    """A turn with its measured worth.

    Attributes:
        probe: the turn, forced or recorded.
        situation: the state, or the episode and the seat, in which it is compared with others.
        truth: its worth.
    """

    probe: Probe
    situation: str
    truth: Truth

    def rewarded(self, reward: float) -> RewardedAction:
        """Returns the turn with a reward."""
        return RewardedAction(self.probe.family, self.probe.episode.task.id, self.situation, self.truth, reward)


def turns_of(episodes: Iterable[Episode]) -> dict[TurnKey, Probe]:
    """Returns the recorded turns in which a seat did something."""
    turns = (
        Probe(turn=turn, episode=episode, forced=False)
        for episode in episodes
        for seat in episode.task.agents
        for turn in attributable_turns(episode, seat)
    )
    return {turn.key: turn for turn in turns}


def measured_worths(
    turns: Mapping[TurnKey, Probe], values: StateValues, dimension: str
) -> dict[TurnKey, Worth | Unattributed]:
    """Returns the worth of each turn to the seat that took it, or the reason why it was not measured.

    Args:
        turns: the turns.
        values: measures the states before and after each; those that it holds are not measured again.
        dimension: the dimension of the scores.
    """
    values.measure((state for probe in turns.values() for state in (probe.before, probe.after)), 2 * len(turns))
    truths = {key: truth_of(probe, values, dimension) for key, probe in turns.items()}
    return {
        key: truth if isinstance(truth, Unattributed) else Worth(turns[key], turns[key].situation, truth)
        for key, truth in truths.items()
    }


def ranks_by_draws(worths: Mapping[TurnKey, Worth], drawn: Mapping[TurnKey, Worth]) -> Observations:
    """Returns the counterfactual reward of each of :data:`DRAWS`, for turns with a measured worth.

    Args:
        worths: the turns with their true worth.
        drawn: the same turns, measured with other draws.
    """
    return {
        ("counterfactual", f"{count} draw{'s' if count > 1 else ''}"): [
            worth.rewarded(fmean(drawn[key].truth.changes[:count])) for key, worth in worths.items() if key in drawn
        ]
        for count in DRAWS
    }


def ranks_by_order(worths: Mapping[TurnKey, Worth]) -> list[RewardedAction]:
    """Returns the index of each turn as its reward: later is better."""
    return [worth.rewarded(worth.probe.turn) for worth in worths.values()]
