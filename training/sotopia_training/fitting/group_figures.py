"""Figures about the groups of a step: whether their rewards differ, and whether in more than refused turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

SAME = 1e-6
"""Rewards that differ by less are equal: float32 rounds them."""


@dataclass(frozen=True, slots=True)
class RewardedRow:
    """The two parts of a row's reward.

    Attributes:
        reward: the reward; ``None`` if the episode has none.
        penalty: the part of it that impossible answers cost, at most 0.
    """

    reward: float | None
    penalty: float = 0.0


def group_figures(rows: Sequence[RewardedRow], size: int) -> dict[str, float]:
    """Returns figures of the groups of a batch; empty if no row has a reward.

    ``groups/without_spread`` is the share of groups in which all rewards are equal, which teach nothing;
    ``groups/refused_only`` the share in which rewards differ, but not once the penalties of impossible answers are left
    out; ``groups/within`` the mean standard deviation within a group, and ``groups/between`` that of the groups' means:
    if it is much larger, situations differ more than the policy's answers, and more groups a step help.

    Args:
        rows: the rows of all processes.
        size: the number of consecutive rows per group.
    """
    blocks = (rows[first : first + size] for first in range(0, len(rows), size))
    rewards = [[(row.reward, row.penalty) for row in block if row.reward is not None] for block in blocks]
    groups = [group for group in rewards if group]
    if not groups:
        return {}
    spreads = [_range([reward for reward, _ in group]) for group in groups]
    scores = [_range([reward - penalty for reward, penalty in group]) for group in groups]
    means = [fmean(reward for reward, _ in group) for group in groups]
    return {
        "groups/without_spread": fmean(spread < SAME for spread in spreads),
        "groups/refused_only": fmean(a >= SAME > b for a, b in zip(spreads, scores, strict=True)),
        "groups/within": fmean(pstdev(reward for reward, _ in group) for group in groups),
        "groups/between": pstdev(means),
    }


def effective_sample_size(advantages: Sequence[float]) -> float:
    """Returns the share of the rows that carry the gradient: Kish's (Σ|A|)² / (n ΣA²), from 1/n to 1; 0 without any."""
    total, squares = sum(map(abs, advantages)), sum(value * value for value in advantages)
    return total * total / (len(advantages) * squares) if squares else 0.0


def _range(values: Sequence[float]) -> float:
    return max(values) - min(values)
