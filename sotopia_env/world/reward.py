"""The seven social dimensions, reward vectors, and the scalarisations that turn a vector into one number.

Source: SOTOPIA (arXiv 2310.11667) §3. The vector's order is that of the reference implementation and of
:data:`DIMENSIONS`; it never changes within a schema version.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError, Verbatim

RewardVector = npt.NDArray[np.float32]
"""Shape (7,), float32, native ranges, in the order of :data:`DIMENSIONS`."""


class Dimension(StrEnum):
    """An axis on which an agent is scored; see :data:`RANGES` for its scores."""

    BELIEVABILITY = "believability"
    RELATIONSHIP = "relationship"
    KNOWLEDGE = "knowledge"
    SECRET = "secret"
    SOCIAL_RULES = "social_rules"
    FINANCIAL_AND_MATERIAL_BENEFITS = "financial_and_material_benefits"
    GOAL = "goal"


DIMENSIONS: tuple[Dimension, ...] = tuple(Dimension)

RANGES: dict[Dimension, tuple[int, int]] = {
    Dimension.BELIEVABILITY: (0, 10),
    Dimension.RELATIONSHIP: (-5, 5),
    Dimension.KNOWLEDGE: (0, 10),
    # SECRET and SOCIAL_RULES only punish: 0 is their best score.
    Dimension.SECRET: (-10, 0),
    Dimension.SOCIAL_RULES: (-10, 0),
    Dimension.FINANCIAL_AND_MATERIAL_BENEFITS: (-5, 5),
    Dimension.GOAL: (0, 10),
}
"""Inclusive native range of each dimension (SOTOPIA §3)."""

ABBREVIATIONS: dict[Dimension, str] = {
    Dimension.BELIEVABILITY: "BEL",
    Dimension.RELATIONSHIP: "REL",
    Dimension.KNOWLEDGE: "KNO",
    Dimension.SECRET: "SEC",
    Dimension.SOCIAL_RULES: "SOC",
    Dimension.FINANCIAL_AND_MATERIAL_BENEFITS: "FIN",
    Dimension.GOAL: "GOAL",
}


# Reports show these beside the dimensions: a custom dimension of the same name would be mistaken for one of them.
_OTHER_METRICS = ("overall", "success", "surplus_share", "efficiency", "words_per_turn")


class CustomDimension(BaseModel):
    """An axis beyond the seven (SOTOPIA-S4 §3.3): scored beside them, never part of the reward vector.

    Attributes:
        name: lower-case identifier, different from the seven's names and abbreviations and from the metrics of reports.
        low: lowest score, inclusive.
        high: highest score, inclusive; above ``low``.
        instruction: the question to the judge; one paragraph.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")
    low: int
    high: int
    instruction: str = Field(min_length=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.low >= self.high:
            raise InvalidValueError(field="low", expected=f"less than high ({self.high})", got=self.low)
        abbreviations = (short.casefold() for short in ABBREVIATIONS.values())
        if self.name in {*(d.value for d in DIMENSIONS), *abbreviations, *_OTHER_METRICS}:
            raise InvalidValueError("a built-in dimension or metric has this name", field="name", got=self.name)
        return self


LOW: RewardVector = np.array([RANGES[d][0] for d in DIMENSIONS], dtype=np.float32)
HIGH: RewardVector = np.array([RANGES[d][1] for d in DIMENSIONS], dtype=np.float32)


def dimension(name: str) -> Dimension:
    """Returns the dimension called ``name`` (full name or abbreviation, any case).

    Raises:
        UnknownNameError: ``name`` is not a dimension; the message offers the nearest name.
    """
    if not isinstance(name, str):
        raise UnknownNameError(field="dimension", expected="a name", got=name)
    for candidate in DIMENSIONS:
        if name.casefold() in (candidate.value, ABBREVIATIONS[candidate].casefold()):
            return candidate
    raise UnknownNameError(field="dimension", got=name, valid=[d.value for d in DIMENSIONS])


def zero_vector() -> RewardVector:
    """Returns a fresh vector of seven zeros."""
    return np.zeros(len(DIMENSIONS), dtype=np.float32)


def reward_vector(scores: Mapping[Dimension, float]) -> RewardVector:
    """Returns the scores as a vector.

    Raises:
        InvalidValueError: a dimension is missing, or a score is outside its range or not finite.
    """
    missing = [d.value for d in DIMENSIONS if d not in scores]
    if missing:
        raise InvalidValueError(field="scores", expected="all seven dimensions", hint=f"add {', '.join(missing)}")
    for name in DIMENSIONS:
        check_score(name, scores[name])
    return np.array([scores[d] for d in DIMENSIONS], dtype=np.float32)


def check_score(
    name: Dimension | str, value: float, declared: Mapping[str, CustomDimension] = MappingProxyType({})
) -> None:
    """Raises :class:`InvalidValueError` unless ``value`` lies in the range of the dimension.

    Args:
        name: one of the seven, or the name of one of those in ``declared``.
        value: the score.
        declared: custom dimensions by name.
    """
    custom = declared.get(name)
    if custom is None and not isinstance(name, Dimension):
        raise InvalidValueError(field="scores", got=name, valid=[*(d.value for d in DIMENSIONS), *declared])
    low, high = RANGES[Dimension(name)] if custom is None else (custom.low, custom.high)
    if not (math.isfinite(value) and low <= value <= high):
        field = name.value if isinstance(name, Dimension) else f"scores.{name}"
        raise InvalidValueError(field=field, expected=f"a score from {low} to {high}", got=value)


def overall(vector: RewardVector) -> float:
    """Returns the plain mean of the seven native scores: from -30/7 to 40/7 (SOTOPIA §3, no rescaling)."""
    # In float64: a float32 mean would be right to seven digits only.
    return float(np.mean(vector, dtype=np.float64))


def normalised(vector: RewardVector) -> npt.NDArray[np.float64]:
    """Returns the seven scores, each mapped linearly from its native range to [0, 1]."""
    return (vector.astype(np.float64) - LOW) / (HIGH - LOW)


_KINDS = ("overall", "mean", "share")
"""Scalarisations by name, other than single dimensions; the first two are synonyms."""


@dataclass(frozen=True)
class Scalarisation:
    """One number from a reward vector.

    Exactly one of four kinds: the mean of all seven (``overall``, the default), one dimension's native score, a
    weighted sum of scores mapped to [0, 1], or the share of the outcome, which is not in the vector.

    Attributes:
        single: the dimension whose native score is the reward.
        weights: weight per dimension over scores mapped to [0, 1]; dimensions left out weigh 0.
        share: whether the reward is :attr:`~sotopia_env.outcomes.result.OutcomeResult.shares`: 1 for the seat's best
            attainable outcome, 0 for no outcome, below 0 for one that is worse than none; it is unbounded.
    """

    single: Dimension | None = None
    weights: Mapping[Dimension, float] | None = None
    share: bool = False
    _array: npt.NDArray[np.float64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        weights = self.weights or {}
        numbers = all(isinstance(w, int | float) and math.isfinite(w) for w in weights.values())
        if self.weights is not None and not (weights and numbers):
            raise InvalidValueError(
                field="weights", expected="at least one finite number by dimension", got=dict(weights)
            )
        # Shape (7,), in the order of the reward vector.
        array = np.array([float(weights.get(d, 0.0)) for d in DIMENSIONS])
        if (self.single is not None) + (self.weights is not None) + self.share > 1:
            raise InvalidValueError(
                field="scalarisation", expected="a single dimension, weights or the share", got=Verbatim("several")
            )
        # The way to set a derived field of a frozen dataclass.
        object.__setattr__(self, "_array", array)

    @classmethod
    def of(cls, value: Scalarisation | str | Mapping[str, float]) -> Scalarisation:
        """Reads ``"overall"`` or ``"mean"``, ``"share"``, a dimension's name, or dimension names with weights."""
        if isinstance(value, Scalarisation):
            return value
        if isinstance(value, str) and value in _KINDS:
            return cls(share=value == "share")
        if isinstance(value, str):
            try:
                return cls(single=dimension(value))
            except UnknownNameError:
                names = [*_KINDS, *(d.value for d in DIMENSIONS)]
                raise UnknownNameError(field="scalarisation", got=value, valid=names) from None
        if isinstance(value, Mapping):
            return cls(weights={dimension(name): weight for name, weight in value.items()})
        raise InvalidValueError(field="scalarisation", expected="a name or weights by dimension", got=value)

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        """The dimensions that the reward depends on; the others need no score."""
        if self.share:
            return ()
        if self.single is not None:
            return (self.single,)
        # A dimension with weight 0 needs no score.
        return DIMENSIONS if self.weights is None else tuple(d for d in DIMENSIONS if self.weights.get(d))

    def __str__(self) -> str:
        """As :meth:`of` reads it: a name, or the weights as JSON."""
        if self.weights is not None:
            return json.dumps({d.value: weight for d, weight in self.weights.items()})
        return self.single.value if self.single is not None else "share" if self.share else "overall"

    def __call__(self, vector: RewardVector) -> float:
        """Returns the reward for a vector of native scores.

        Raises:
            InvalidValueError: the reward is the share, which does not follow from scores.
        """
        if self.share:
            raise InvalidValueError("'share' is a number of the outcome, not of seven scores", field="scalarisation")
        if self.single is not None:
            return float(vector[DIMENSIONS.index(self.single)])
        if self.weights is not None:
            # Weights apply to scores in [0, 1], because the native ranges differ in width and sign.
            return float(normalised(vector) @ self._array)
        return overall(vector)
