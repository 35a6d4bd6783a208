"""The reward of a seat or the reason why it has none: the one record that adapters translate for their hosts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from sotopia_env.envs.episode_reward import Payment
from sotopia_env.foundation.errors import EvaluationError
from sotopia_env.world.reward import DIMENSIONS


@dataclass(frozen=True, slots=True)
class SeatReward:
    """The reward of a seat for the episode as it is now.

    Attributes:
        value: the reward; ``None`` without one, which is never 0 for a host: TRL gets ``None``, Inspect NaN, and a host
            that has no word for it the exception.
        unscored: why there is no reward: the episode goes on, or a partner or the evaluator failed; ``None`` with one.
        scores: the scores in native ranges by dimension, without those that nothing measured; empty without a reward.
    """

    value: float | None = None
    unscored: str | None = None
    scores: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, payment: Payment) -> Self:
        """Returns the record of a payment."""
        scores = zip(DIMENSIONS, payment.vector.tolist(), payment.measured.tolist(), strict=True)
        measured = {dimension.value: score for dimension, score, is_measured in scores if is_measured}
        return cls(float(payment.reward), scores=measured)

    def paid(self) -> float:
        """Returns the reward, for hosts that take a number and nothing else.

        Raises:
            EvaluationError: there is no reward.
        """
        if self.value is None:
            raise EvaluationError(f"no reward: {self.unscored}")
        return self.value
