"""Agreement of annotators with each other (SOTOPIA, arXiv 2310.11667, appendix E.1; SOTOPIA-π, C.9).

A statistic that cannot be computed has a reason instead of a number. Intervals of kappa and alpha are over scenarios
(:mod:`sotopia_env.people.jackknife`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sotopia_env.foundation.errors import InvalidValueError, Verbatim
from sotopia_env.people.jackknife import jackknife
from sotopia_env.people.krippendorff import coincidences, ordinal_alpha

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
        p: two-sided p-value against 0 over scenarios, for correlations.
        low: lower end of the 95 % interval over scenarios; ``None`` without an interval.
        high: upper end of the interval; ``None`` without an interval.
        no_interval: why a statistic with a value has no interval.
    """

    value: float | None
    reason: str | None = None
    p: float | None = None
    low: float | None = None
    high: float | None = None
    no_interval: str | None = None


def with_interval(value: float, without: Sequence[float | None], *, test: bool = False) -> Statistic:
    """Returns a statistic with its interval, and for ``test`` its p-value, from the values without each scenario."""
    interval = jackknife(value, without)
    p = interval.p if test else None
    return Statistic(value, None, p, interval.low, interval.high, interval.reason or None)


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
        alpha: Krippendorff's alpha for ordinal scores (:mod:`sotopia_env.people.krippendorff`).
        by_bins: agreement and kappa for each number of bins, in the order of :data:`BINS`.
    """

    dimension: str
    seats: int
    pairs: int
    same: Statistic
    alpha: Statistic
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
    shares = _agreeing_shares(ratings)
    return math.fsum(shares) / len(shares)


def _agreeing_shares(ratings: Iterable[Sequence[float]]) -> list[float]:
    """Returns the share of rater pairs that gave the same category, for each item."""
    items = [Counter(item) for item in ratings]
    if not items or any(item.total() < 2 for item in items):
        raise InvalidValueError(field="ratings", expected="at least one item, and at least two raters for each")
    return [sum(c * (c - 1) for c in item.values()) / (item.total() * (item.total() - 1)) for item in items]


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
    return _beyond_chance(pairwise_agreement(ratings), categories)


def _beyond_chance(agreement: float, categories: int) -> float:
    return (agreement - 1 / categories) / (1 - 1 / categories)


def annotator_agreement(
    people: HumanScores, scales: Scales, scenarios: Mapping[str, str]
) -> tuple[AnnotatorAgreement, ...]:
    """Returns the agreement on each dimension, followed by the mean over the dimensions (:data:`MEAN`).

    Args:
        people: the annotators' scores.
        scales: the ranges of the dimensions.
        scenarios: the scenario, or the vignette, of each episode.
    """
    rows = [_annotators(name, people, scale, scenarios) for name, scale in scales.items()]
    by_bins = [
        BinAgreement(bins, _over([row.at(bins).agreement for row in rows]), _over([row.at(bins).kappa for row in rows]))
        for bins in BINS
    ]
    same = _over([row.same for row in rows])
    totals = sum(row.seats for row in rows), sum(row.pairs for row in rows)
    return (*rows, AnnotatorAgreement(MEAN, *totals, same, _over([row.alpha for row in rows]), tuple(by_bins)))


def _over(statistics_: Iterable[Statistic]) -> Statistic:
    return mean_of([s.value for s in statistics_ if s.value is not None], "no dimension has one")


_NO_PAIRS = Statistic(None, "no seat was scored by two annotators; hand every episode to two or more")


def _annotators(
    dimension: str, people: HumanScores, scale: tuple[int, int], scenarios: Mapping[str, str]
) -> AnnotatorAgreement:
    several = {seat: scores[dimension] for seat, scores in people.items() if len(scores.get(dimension, ())) > 1}
    items, clusters = list(several.values()), [scenarios[episode] for episode, _ in several]
    pairs = sum(math.comb(len(item), 2) for item in items)
    same = Statistic(pairwise_agreement(items)) if items else _NO_PAIRS
    by_bins = tuple(_in_bins(items, clusters, scale, bins) for bins in BINS)
    return AnnotatorAgreement(dimension, len(items), pairs, same, _alpha(items, clusters, scale), by_bins)


def _alpha(items: Sequence[Sequence[float]], clusters: Sequence[str], scale: tuple[int, int]) -> Statistic:
    if not items:
        return _NO_PAIRS
    by_cluster: dict[str, list[Sequence[float]]] = {}
    for item, cluster in zip(items, clusters, strict=True):
        by_cluster.setdefault(cluster, []).append(item)
    values = range(scale[0], scale[1] + 1)
    parts = [coincidences(own, values) for own in by_cluster.values()]
    whole = sum(parts[1:], start=parts[0])
    value = ordinal_alpha(whole)
    if value is None:
        return Statistic(None, "the human scores are all the same")
    return with_interval(value, [ordinal_alpha(whole - part) for part in parts])


def _in_bins(
    items: Sequence[Sequence[float]], clusters: Sequence[str], scale: tuple[int, int], bins: int
) -> BinAgreement:
    # A custom dimension may have a short scale, on which kappa is undefined for the larger numbers of bins.
    points = scale[1] - scale[0] + 1
    if bins > points or not items:
        missing = Statistic(None, f"the scale has {points} points") if bins > points else _NO_PAIRS
        return BinAgreement(bins, missing, missing)
    shares = _agreeing_shares([bin_of(score, scale, bins) for score in item] for item in items)
    agreement = math.fsum(shares) / len(shares)
    sums: dict[str, tuple[float, int]] = {}
    for share, cluster in zip(shares, clusters, strict=True):
        total, count = sums.get(cluster, (0.0, 0))
        sums[cluster] = total + share, count + 1
    rest = [(math.fsum(shares) - total, len(shares) - count) for total, count in sums.values()]
    without = [_beyond_chance(total / count, bins) if count else None for total, count in rest]
    return BinAgreement(bins, Statistic(agreement), with_interval(_beyond_chance(agreement, bins), without))
