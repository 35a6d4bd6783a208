"""Combination of a turn's rewards on several dimensions into one number (SOTOPIA-RL, §4.1, equation 2).

Each dimension is mapped to [0, 1] by the least and the greatest reward of the *training* turns, and the combined reward
is r* = 1/N · Σ γ_i · r̂_i over the N dimensions. The fitted design is saved as JSON with its data.

* Turns of validation scenarios are mapped with the training turns' bounds and are *not* clipped: a reward beyond the
  bounds gets a value outside [0, 1], so that errors there have their full size.
* A dimension on which all training turns have the same reward carries no information: every turn gets 0.5 on it, also
  in validation, and a warning is logged. If all dimensions are constant, an error is raised.
* A turn without a reward on one of the dimensions is left out and counted, never treated as 0.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.files import write_text_atomically
from sotopia_env.foundation.records import Record
from sotopia_training.attribution.methods import Rewards, TurnKey, dimension_name

logger = logging.getLogger(__name__)
COMBINED = "combined"
_CONSTANT = 0.5


class Bounds(Record):
    """The least and the greatest reward of the training turns on a dimension, and its weight γ."""

    low: float = Field(allow_inf_nan=False)
    high: float = Field(allow_inf_nan=False)
    weight: float = Field(default=1.0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low must not be above high, got {self.low} and {self.high}")
        return self

    def mapped(self, reward: float) -> float:
        """Returns r̂: 0 at ``low``, 1 at ``high``; 0.5 if they are equal."""
        return (reward - self.low) / (self.high - self.low) if self.high > self.low else _CONSTANT


class RewardDesign(Record):
    """A fitted combination.

    Attributes:
        dimensions: the bounds and weight of each dimension.
        turns: the number of training turns of the fit.
    """

    dimensions: dict[str, Bounds] = Field(min_length=1)
    turns: int = Field(ge=1)

    def mapped(self, rewards: Mapping[str, float]) -> dict[str, float]:
        """Returns r̂ by dimension.

        Raises:
            InvalidValueError: a dimension is missing.
        """
        for name in self.dimensions:
            if name not in rewards:
                raise InvalidValueError(field="rewards", expected=f"one on {name}", got=sorted(rewards))
        return {name: bounds.mapped(rewards[name]) for name, bounds in self.dimensions.items()}

    def combined(self, rewards: Mapping[str, float]) -> float:
        """Returns r*: the mean over the dimensions of γ · r̂. Raises as :meth:`mapped` does."""
        parts = self.mapped(rewards)
        return sum(self.dimensions[name].weight * value for name, value in parts.items()) / len(parts)

    def values(self, rewards: Rewards) -> dict[TurnKey, float]:
        """Returns r* of every turn with all dimensions; logs the number of turns without one."""
        values = {
            key: self.combined(row) for key, row in rewards.by_turn.items() if self.dimensions.keys() <= row.keys()
        }
        missing = len(rewards.by_turn) - len(values)
        if missing:
            logger.warning("%d of %d turns left out: no reward on a dimension", missing, len(rewards.by_turn))
        return values

    def save(self, path: str | Path) -> None:
        """Writes the design as JSON, atomically."""
        write_text_atomically(Path(path), self.model_dump_json(indent=2) + "\n")


def fit_design(rewards: Rewards, training: Collection[str], weights: Mapping[str, float] | None = None) -> RewardDesign:
    """Fits a design on the turns of the training scenarios only.

    Args:
        rewards: the rewards of all turns.
        training: the training scenarios (``split_scenarios(...).train``).
        weights: γ of each dimension, by name or abbreviation; other dimensions are not combined. By default 1 for all
            dimensions of the rewards.

    Raises:
        UnknownNameError: no turn has a reward on a dimension.
        InvalidValueError: no training turn has all dimensions, all are constant, or all weights are 0.
    """
    by_name = dict.fromkeys(rewards.dimensions, 1.0) if weights is None else weights
    gammas = {dimension_name(name): float(weight) for name, weight in by_name.items()}
    for name in gammas:
        if name not in rewards.dimensions:
            raise UnknownNameError(field="weights", got=name, valid=rewards.dimensions)
    if not any(gammas.values()):
        raise InvalidValueError(field="weights", expected="one other than 0", got=gammas)
    # Bounds from validation turns would leak information about them into the targets.
    rows = [
        row
        for (episode, _, _), row in rewards.by_turn.items()
        if rewards.scenarios[episode] in training and gammas.keys() <= row.keys()
    ]
    if not rows:
        raise InvalidValueError(
            f"no turn of the training scenarios has a reward on all of {', '.join(gammas)}", field="rewards"
        )
    bounds = {
        name: Bounds(low=min(row[name] for row in rows), high=max(row[name] for row in rows), weight=weight)
        for name, weight in gammas.items()
    }
    _check_constant(bounds)
    return RewardDesign(dimensions=bounds, turns=len(rows))


def _check_constant(bounds: Mapping[str, Bounds]) -> None:
    constant = [name for name, interval in bounds.items() if interval.low == interval.high]
    if len(constant) == len(bounds):
        raise InvalidValueError(
            f"all training turns have the same reward ({', '.join(constant)}), so nothing can be learnt",
            field="rewards",
        )
    for name in constant:
        logger.warning("%s: all training turns have the reward %g; it counts as 0.5", name, bounds[name].low)
