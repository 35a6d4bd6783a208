"""Agreement of annotators with each other (SOTOPIA, arXiv 2310.11667, appendix E.1; SOTOPIA-π, C.9).

A statistic that cannot be computed has a reason instead of a number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sotopia_env.foundation.errors import InvalidValueError, Verbatim

Seat = tuple[str, str]
"""Episode key and agent id."""
HumanScores = Mapping[Seat, Mapping[str, Sequence[float]]]
"""The annotators' scores by seat and dimension."""
Scales = Mapping[str, tuple[int, int]]
"""Inclusive ranges by dimension."""
BINS = tuple(range(2, 12))
"""Numbers of bins for which kappa is computed; with 11 bins, each point of an 11-point scale has its own bin."""
DEFAULT_BINS = 5
MEAN = "mean"
"""Name of the row with the unweighted mean over the dimensions, like "Overall" in SOTOPIA's table E.1."""


@dataclass(frozen=True, slots=True)
class Statistic:
    """A number, or the reason why it is undefined.

    Attributes:
        value: the number; ``None`` if it is undefined.
        reason: why it is undefined.
        p: two-sided p-value against 0, for correlations.
    """

    value: float | None
    reason: str | None = None
    p: float | None = None


@dataclass(frozen=True, slots=True)
class BinAgreement:
    """Agreement of annotators on a scale that is divided into bins (:func:`bin_of`).

    Attributes:
        bins: number of bins.
        agreement: share of agreeing pairs of annotators (:func:`pairwise_agreement`).
        kappa: Randolph's kappa (:func:`randolph_kappa`).
    """

    bins: int
    agreement: Statistic
    kappa: Statistic


@dataclass(frozen=True, slots=True)
class AnnotatorAgreement:
    """Agreement of annotators with each other on one dimension.

    Attributes:
        dimension: name of the dimension, or :data:`MEAN`.
        seats: number of seats with two or more scores.
        pairs: number of pairs of scores of one seat.
        same: share of pairs with equal scores; every seat has the same weight.
        by_bins: agreement and kappa for each number of bins, in the order of :data:`BINS`.
    """

    dimension: str
    seats: int
    pairs: int
    same: Statistic
    by_bins: tuple[BinAgreement, ...]

    def at(self, bins: int) -> BinAgreement:
        """Returns the agreement for a number of bins."""
        return self.by_bins[BINS.index(bins)]


def mean_of(values: Sequence[float], reason: str) -> Statistic:
    """Returns the mean, or ``reason`` if there are no values."""
    return Statistic(math.fsum(values) / len(values)) if values else Statistic(None, reason)


def bin_of(score: float, scale: tuple[int, int], bins: int) -> int:
    r"""Returns the bin of a score, from 0.

    The ``m = high - low + 1`` points of the scale are cells of equal width, divided into ``bins`` equal parts:
    :math:`\lfloor (s - low) \cdot bins / m \rfloor`. With ``bins = m``, each point has its own bin. The papers do not
    define the limits of their bins.

    Args:
        score: the score, within the scale.
        scale: lowest and highest point of the scale.
        bins: number of bins, at most the number of points.

    Raises:
        InvalidValueError: there are fewer points than bins, or the score is outside the scale.
    """
    low, high = scale
    points = high - low + 1
    if not (1 <= bins <= points and low <= score <= high):
        raise InvalidValueError(
            expected=f"a score in {low} to {high} and at most {points} bins", got=Verbatim(f"{score}, {bins}")
        )
    return math.floor((score - low) * bins / points)


def pairwise_agreement(ratings: Iterable[Sequence[float]]) -> float:
    r"""Returns the mean over items of the share of rater pairs that gave the same category.

    .. math:: P_o = \frac{1}{N} \sum_i \frac{\sum_j n_{ij} (n_{ij} - 1)}{n_i (n_i - 1)}

    with :math:`n_{ij}` raters of item ``i`` choosing category ``j``, and :math:`n_i` raters of item ``i``.

    Args:
        ratings: the categories that the raters chose, for each item; the number of raters may differ between items.

    Raises:
        InvalidValueError: there are no items, or an item has fewer than two raters.
    """
    items = [Counter(item) for item in ratings]
    if not items or any(item.total() < 2 for item in items):
        raise InvalidValueError(field="ratings", expected="at least one item, and at least two raters for each")
    shares = [sum(c * (c - 1) for c in item.values()) / (item.total() * (item.total() - 1)) for item in items]
    return math.fsum(shares) / len(shares)


def randolph_kappa(ratings: Iterable[Sequence[float]], categories: int) -> float:
    r"""Returns Randolph's free-marginal multirater kappa (Randolph 2005), from :math:`-1/(k-1)` to 1.

    .. math:: \kappa = \frac{P_o - 1/k}{1 - 1/k}

    with :math:`P_o` from :func:`pairwise_agreement` and ``k`` the number of categories a rater could choose from.

    Args:
        ratings: as for :func:`pairwise_agreement`.
        categories: the number of categories, including those that no rater chose.

    Raises:
        InvalidValueError: ``categories`` is less than 2, or ``ratings`` is invalid for :func:`pairwise_agreement`.
    """
    if categories < 2:
        raise InvalidValueError(field="categories", expected="at least 2", got=categories)
    return (pairwise_agreement(ratings) - 1 / categories) / (1 - 1 / categories)


def annotator_agreement(people: HumanScores, scales: Scales) -> tuple[AnnotatorAgreement, ...]:
    """Returns the agreement on each dimension, followed by the mean over the dimensions (:data:`MEAN`)."""
    rows = [_annotators(name, people, scale) for name, scale in scales.items()]
    by_bins = [
        BinAgreement(bins, _over([row.at(bins).agreement for row in rows]), _over([row.at(bins).kappa for row in rows]))
        for bins in BINS
    ]
    same = _over([row.same for row in rows])
    totals = sum(row.seats for row in rows), sum(row.pairs for row in rows)
    return (*rows, AnnotatorAgreement(MEAN, *totals, same, tuple(by_bins)))


def _over(statistics_: Iterable[Statistic]) -> Statistic:
    return mean_of([s.value for s in statistics_ if s.value is not None], "no dimension has one")


def _annotators(dimension: str, people: HumanScores, scale: tuple[int, int]) -> AnnotatorAgreement:
    items = [scores[dimension] for scores in people.values() if len(scores.get(dimension, ())) > 1]
    pairs = sum(math.comb(len(item), 2) for item in items)
    undefined = Statistic(None, "no seat was scored by two annotators")
    same = Statistic(pairwise_agreement(items)) if items else undefined
    return AnnotatorAgreement(dimension, len(items), pairs, same, tuple(_in_bins(items, scale, bins) for bins in BINS))


def _in_bins(items: Sequence[Sequence[float]], scale: tuple[int, int], bins: int) -> BinAgreement:
    # A custom dimension may have a short scale, on which kappa is undefined for the larger numbers of bins.
    points = scale[1] - scale[0] + 1
    reason = f"the scale has {points} points" if bins > points else "no seat was scored by two annotators"
    if bins > points or not items:
        return BinAgreement(bins, Statistic(None, reason), Statistic(None, reason))
    ratings = [[bin_of(score, scale, bins) for score in item] for item in items]
    return BinAgreement(bins, Statistic(pairwise_agreement(ratings)), Statistic(randolph_kappa(ratings, bins)))
