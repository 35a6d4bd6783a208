r"""Ratings from continuous payoffs, with intervals over tasks.

The payoff of a policy beside an opponent is the effect of this pair plus the effects of the task, the seat and the
order: :math:`y = \mu_{policy, opponent} + \gamma_{task} + \delta_{seat} + \epsilon_{first} + u`. A policy's mean is the
mean of its pair effects, so that every opponent has the same weight, however many seats beside it have a payoff. A
pair that never met is filled in by least squares over the pairs that did, as the sum of an effect of the policy and one
of the opponent. The **strength** of a policy is its mean minus the mean of the rated policies. The estimand is the mean
over *this* pool of opponents and these kinds of task; it says nothing about other opponents.

Payoffs of one task resemble each other, and policies differ in which tasks suit them. The variance is therefore the
cluster-robust sandwich over tasks (Liang and Zeger 1986), times G / (G - 1), and intervals use Student's t with G - 1
degrees of freedom. G is the effective number of tasks of the contrast (Carter, Schnepel and Steigerwald 2017, for equal
variances): all of them if every policy played all, and few for a policy that played few. In simulation
(``tests/sotopia_env/arena/test_rating.py``) such intervals cover the true strength as often as they promise, unlike
those of least squares. Every task has the same weight, whatever the number of its seats. The interval of a **mean**
contains what tasks differ by for all policies, too, and is wider where a policy lacks an opponent.

Policies are **ranked** only as far as the differences of all ranked policies hold together, as in a comparison
(:func:`~sotopia_env.reports.differences.told_apart`), so that the probability of any wrong rank is at most 5 %. Seats
without a payoff are rarely a random sample, so two rules protect the ranks: a policy with a payoff in less than 95 % of
its seats has none, and two policies are told apart only if they also are when their failures count as the worst payoff
(:mod:`sotopia_env.arena.missing`).
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sotopia_env.arena.rows import CardRow
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.reports.differences import Rank, ranking, told_apart
from sotopia_env.reports.intervals import Estimate, critical_value, estimate, two_sided_p

TASKS = "tasks"
LEAST_SCORED = 0.95
"""The share of a policy's seats that must have a payoff for it to have a rank."""
_LEVEL, _POWER = 0.05, 0.8
_DIGITS = 9  # payoffs are shares
_FEWEST = 1.5  # effective tasks; with one, there is no variation to measure
Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rating:
    """Strengths and what follows from them; policies and opponents are identities.

    Attributes:
        policies: the rated policies, the strongest first.
        means: the mean payoff of each policy, with equal weights for opponents, tasks, seats and orders.
        strengths: the strength of each policy: its mean minus that of all rated policies.
        gaps: the difference of every two policies, the first minus the second.
        ranks: the ranks and ties that the differences leave open which hold together; without the policies that have
            too few payoffs, and without a policy that no other can be ranked with.
        groups: the number of the group of each ranked policy, from 1. A group ends before the first policy that is
            worse than the first policy of the group.
        tasks: the number of tasks.
    """

    policies: tuple[str, ...]
    means: Mapping[str, Estimate]
    strengths: Mapping[str, Estimate]
    gaps: Mapping[tuple[str, str], Estimate]
    ranks: Mapping[str, Rank]
    groups: Mapping[str, int]
    tasks: int

    def gap(self, first: str, second: str) -> Estimate:
        """Returns the difference of two rated policies, the first minus the second."""
        if (first, second) in self.gaps:
            return self.gaps[first, second]
        item = self.gaps[second, first]
        low, high = (None if end is None else -end for end in (item.high, item.low))
        return replace(item, mean=-item.mean, low=low, high=high)


def rate(rows: Sequence[CardRow], shares: Mapping[str, float] | None = None, second: Rating | None = None) -> Rating:
    """Returns the rating of the policies in scored rows.

    Args:
        rows: the results of seats.
        shares: the share of each policy's seats that have a payoff; a policy below 95 % gets no rank. By default the
            share of its rows.
        second: the rating in which failures count as the worst payoff, from the same ``shares``. Two policies are told
            apart only if they are in both ratings.

    Raises:
        InvalidValueError: there are fewer than two tasks, or two policies have no opponents in common, even through
            others.
    """
    scored = [row for row in rows if row.payoff is not None]
    policies, count = sorted({row.policy for row in scored}), len({row.task for row in scored})
    if count < 2:
        raise InvalidValueError("intervals are over tasks", field="tasks", expected="at least 2", got=count)
    n, total = Counter(row.policy for row in scored), Counter(row.policy for row in rows)
    shares = {p: n[p] / total[p] for p in policies} if shares is None else shares
    fit, contrasts = _fitted(scored, policies)
    strengths = {p: fit.estimate(contrasts[p] - sum(contrasts.values()) / len(policies), n[p]) for p in policies}
    order = sorted(policies, key=lambda p: (-round(strengths[p].mean, _DIGITS), p))
    ranked = [p for p in order if shares.get(p, 1.0) >= LEAST_SCORED]
    if len(ranked) == 1 < len(order):
        ranked = []  # a rank is a place among others

    pairs = list(itertools.combinations(order, 2))
    gaps = {(a, b): fit.estimate(contrasts[a] - contrasts[b], n[a] + n[b]) for a, b in pairs}
    own = {pair: gap for pair, gap in gaps.items() if set(pair) <= set(ranked)}
    if second is not None:
        own = {pair: _hull(gap, second.gap(*pair)) for pair, gap in own.items()}
    ranks = {rank.policy: rank for rank in ranking({p: strengths[p] for p in ranked}, told_apart(own))}
    return Rating(
        policies=tuple(order),
        means={p: fit.estimate(contrasts[p], n[p], beside=fit.circumstances) for p in policies},
        strengths=strengths,
        gaps=gaps,
        ranks=ranks,
        groups=_groups(ranked, ranks),
        tasks=count,
    )


def _hull(first: Estimate, second: Estimate) -> Estimate:
    """The first estimate with an interval that contains both: it excludes 0 only if both lie on one side of it."""
    if None in (first.low, first.high, second.low, second.high):
        return replace(first, low=None, high=None, p=None)
    ends = [end for item in (first, second) for end in (item.low, item.high) if end is not None]
    p = max(first.p or 0.0, second.p or 0.0) if first.mean * second.mean > 0 else 1.0
    return replace(first, low=min(ends), high=max(ends), p=p)


def _fitted(rows: Sequence[CardRow], policies: Sequence[str]) -> tuple[_Fit, dict[str, Matrix]]:
    """The fit of pairs, tasks, seats and orders, and the contrast of its coefficients that is each policy's mean."""
    pairs = sorted({(row.policy, row.opponent) for row in rows})
    tasks = sorted({row.task for row in rows})
    # Rows × coefficients: pairs, then what a task, a seat and acting first add.
    played = _one_hot([(row.policy, row.opponent) for row in rows], pairs)
    task, seat = _one_hot([row.task for row in rows], tasks), _one_hot([row.seat for row in rows])
    around = np.hstack([task, seat, np.array([[float(row.first)] for row in rows])])
    # Repeats and seats of a task share one weight within a pair, so that neither a task nor an opponent with many rows
    # outweighs another.
    together = Counter((row.policy, row.opponent, row.task) for row in rows)
    weights = np.array([1 / together[row.policy, row.opponent, row.task] for row in rows])
    y = np.array([row.payoff for row in rows], dtype=float)
    # The circumstances, the same for all policies: each task once, with the mean of the seats and orders it has.
    cells = np.unique(around, axis=0)
    of_task = cells[:, : len(tasks)]
    circumstances = (of_task / of_task.sum(axis=0)).T @ cells  # tasks × columns
    fit = _fit(np.hstack([played, around]), y, task.argmax(axis=1), weights, circumstances)
    average = np.tile(circumstances.mean(axis=0), (len(policies), 1))
    contrasts = np.hstack([_over_opponents(pairs, policies), average])
    centred = contrasts - contrasts.mean(axis=0)
    if not np.allclose(centred @ fit.estimable, centred, atol=1e-6):
        raise _apart("two policies have no task in common, even through others")
    return fit, dict(zip(policies, contrasts, strict=True))


def _over_opponents(pairs: Sequence[tuple[str, str]], policies: Sequence[str]) -> Matrix:
    """The weights of pairs in each policy's mean over all opponents; policies × pairs.

    Where all pairs met, they are 1 / opponents for a policy's own pairs. Else a missing pair is the sum of an effect of
    the policy and one of the opponent, fitted to the pairs that met with the same weight for each.
    """
    parts = np.hstack([_one_hot([p for p, _ in pairs], policies), _one_hot([o for _, o in pairs])])
    inverse = np.linalg.pinv(parts, rcond=1e-10)
    own = np.eye(len(policies), parts.shape[1])
    centred = own - own.mean(axis=0)
    if not np.allclose(centred @ inverse @ parts, centred, atol=1e-6):
        raise _apart("two policies have no opponent in common, even through others")
    opponents = inverse[len(policies) :].mean(axis=0)
    return np.asarray(own @ inverse + opponents)


def _apart(reason: str) -> InvalidValueError:
    return InvalidValueError(reason, field="results", hint="play all of them against the pool of the suite")


def _groups(order: Sequence[str], ranks: Mapping[str, Rank]) -> dict[str, int]:
    groups: dict[str, int] = {}
    first = ""
    for policy in order:
        if not first or policy not in ranks[first].ties:
            first, number = policy, len(set(groups.values())) + 1
        groups[policy] = number
    return groups


@dataclass(frozen=True, slots=True)
class _Fit:
    """A fit of weighted least squares.

    Attributes:
        beta: the coefficients.
        influence: of each row on each coefficient, times the root of the row's weight; rows × columns.
        scores: of each cluster on each coefficient; clusters × columns.
        estimable: the projection on estimable contrasts.
        clusters: the cluster of each row.
        circumstances: what each cluster adds to the mean of all policies, beyond what clusters add on average, divided
            by the number of clusters.
    """

    beta: Matrix
    influence: Matrix
    scores: Matrix
    estimable: Matrix
    clusters: NDArray[np.intp]
    circumstances: Matrix

    def estimate(self, contrast: Matrix, n: int, beside: Matrix | float = 0.0) -> Estimate:
        """The 95 % interval of a contrast; ``beside`` are deviations of the clusters that it does not contain."""
        # Equal payoffs differ by rounding errors, which without this would be a difference without variance.
        mean = round(float(contrast @ self.beta), _DIGITS)
        weights = np.bincount(self.clusters, (self.influence @ contrast) ** 2)
        # The strength of a single policy is 0 by definition and has no weights.
        effective = round(float(weights.sum() ** 2 / (weights**2).sum()), 6) if weights.any() else len(self.scores)
        if effective < _FEWEST:
            return Estimate(n, 1, mean, None, None, None, TASKS)
        error, freedom = _error(self.scores @ contrast, beside * np.ones(len(self.scores)), effective)
        if error < 10**-_DIGITS:
            # Payoffs have no lowest value, so nothing bounds what other tasks would show.
            return Estimate(n, round(freedom + 1), mean, None, None, None, TASKS)
        half = critical_value(_LEVEL, freedom) * error
        p = two_sided_p(mean / error, freedom)
        return Estimate(n, round(freedom + 1), mean, mean - half, mean + half, p, TASKS)


def _error(scores: Matrix, beside: Matrix, effective: float) -> tuple[float, float]:
    """The standard error of the sum of both over clusters, and its degrees of freedom.

    ``scores`` come from few clusters if they are concentrated in them, and ``beside`` from all.
    """
    count = len(scores)
    few, all_ = effective / (effective - 1), count / (count - 1)
    concentrated, common = float((scores**2).sum()) * few, float((beside**2).sum()) * all_
    square = float(((scores + beside) ** 2).sum()) * all_ + concentrated * (1 - all_ / few)
    # Satterthwaite's, and not more than the clusters allow, because the two are not independent.
    parts = concentrated**2 / (effective - 1) + common**2 / (count - 1)
    freedom = (concentrated + common) ** 2 / parts if parts else count - 1
    return square**0.5, min(freedom, count - 1)


def _fit(x: Matrix, y: Matrix, clusters: NDArray[np.intp], weights: Matrix, around: Matrix) -> _Fit:
    """Weighted least squares. The sandwich is the sum over clusters of the squares of their scores.

    ``around`` are the circumstances of each cluster, as values of the last columns of ``x``.
    """
    x, y = x * np.sqrt(weights)[:, None], y * np.sqrt(weights)
    gram = x.T @ x
    inverse = np.linalg.pinv(gram, rcond=1e-10, hermitian=True)
    beta, influence = inverse @ (x.T @ y), x @ inverse
    scores = np.zeros((clusters.max() + 1, x.shape[1]))
    np.add.at(scores, clusters, influence * (y - x @ beta)[:, None])
    added = around @ beta[-around.shape[1] :]
    return _Fit(beta, influence, scores, inverse @ gram, clusters, (added - added.mean()) / len(added))


def _one_hot(values: Sequence[object], levels: Sequence[object] | None = None) -> Matrix:
    levels = sorted(set(values), key=str) if levels is None else levels
    index = {level: column for column, level in enumerate(levels)}
    matrix = np.zeros((len(values), len(levels)))
    matrix[np.arange(len(values)), [index[value] for value in values]] = 1.0
    return matrix


def superiority(rows: Sequence[CardRow], first: str, second: str) -> Estimate | None:
    """Returns how often ``first`` gets more than ``second`` beside the same opponent, task, seat, order and seed.

    Ties count half. ``None`` if nothing matches. If one always gets more, the interval is that of Clopper and Pearson
    (1934) for as many trials as tasks.
    """
    scored = [row for row in rows if row.payoff is not None]  # an unscored seat is no loss
    sides = [{_match(row): row for row in scored if row.policy == name} for name in (first, second)]
    keys = [key for key in sides[0] if key in sides[1]]
    if not keys:
        return None
    values = [_win(sides[0][key], sides[1][key]) for key in keys]
    return estimate(values, [sides[0][key].task for key in keys], (0, 1), TASKS)


def _match(row: CardRow) -> tuple[object, ...]:
    return (row.opponent, row.task, row.seat, row.first, row.seed)


def _win(first: CardRow, second: CardRow) -> float:
    a, b = first.payoff or 0.0, second.payoff or 0.0
    return 0.5 if abs(a - b) < 1e-9 else float(a > b)


def bradley_terry(rows: Sequence[CardRow], policies: Sequence[str]) -> dict[str, Estimate]:
    """Returns Elo-scaled Bradley-Terry ratings (mean 1000, 400 points for odds of 10) from matched wins and losses.

    Two policies are compared as in :func:`superiority`. A virtual tie of every pair keeps ratings finite, and pulls a
    policy that wins or loses almost always towards the others. Intervals are by the jackknife over tasks; a policy that
    won or lost every match, or did equally well in all tasks, has none.
    """
    index = {policy: number for number, policy in enumerate(policies)}
    tasks = sorted({row.task for row in rows})
    wins = {task: np.zeros((len(policies), len(policies))) for task in tasks}
    matches: dict[tuple[object, ...], list[CardRow]] = {}
    for row in rows:
        if row.payoff is not None and row.policy in index:
            matches.setdefault(_match(row), []).append(row)
    for group in matches.values():
        for a, b in itertools.permutations(group, 2):
            wins[a.task][index[a.policy], index[b.policy]] += _win(a, b)
    total = sum(wins.values(), np.zeros((len(policies), len(policies))))
    ratings = _elo(total)
    left_out = np.array([_elo(total - wins[task]) for task in tasks])
    count = len(tasks)
    errors = np.sqrt((count - 1) / count * ((left_out - left_out.mean(axis=0)) ** 2).sum(axis=0))
    half = critical_value(_LEVEL, count - 1) * errors if count > 1 else errors
    # What never varied is not certain, and the jackknife sees only what varied.
    n, unknown = int(total.sum()), (total.sum(axis=0) == 0) | (total.sum(axis=1) == 0) | (half < 10**-_DIGITS)
    return {
        policy: Estimate(n, count, float(r), None if no else float(r - h), None if no else float(r + h), None, TASKS)
        for policy, r, h, no in zip(policies, ratings, half, unknown, strict=True)
    }


def _elo(wins: Matrix, steps: int = 200) -> Matrix:
    """Hunter's minorisation-maximisation (Annals of Statistics 2004), on the Elo scale."""
    wins = wins + 0.5 * (1 - np.eye(len(wins)))
    games, strength = wins + wins.T, np.ones(len(wins))
    for _ in range(steps):
        strength = wins.sum(axis=1) / (games / (strength[:, None] + strength)).sum(axis=1)
        strength /= np.exp(np.log(strength).mean())
    return np.asarray(1000 + 400 * np.log10(strength))


@dataclass(frozen=True, slots=True)
class RequiredTasks:
    """The number of tasks, and of episodes of one policy, at which a difference separates two ranks with 80 % power."""

    difference: float
    tasks: int
    episodes: int


def needs(
    rating: Rating, episodes_per_task: float, differences: Sequence[float] = (0.2, 0.1, 0.05, 0.02)
) -> list[RequiredTasks]:
    """Returns how many tasks differences need to separate two of the ranked policies.

    It is the least power of the test that decides ranks: that of a difference which is the first to be told apart, of
    all pairs of ranked policies. The standard error is the median of those of the rated differences.

    Args:
        rating: the rating of at least two policies.
        episodes_per_task: the number of episodes that a policy plays per task.
        differences: true differences of two mean payoffs.
    """
    errors = [
        (gap.high - gap.mean) / critical_value(_LEVEL, gap.clusters - 1)
        for gap in rating.gaps.values()
        if gap.high is not None
    ]
    if not errors:
        return []
    spread = float(np.median(errors)) * math.sqrt(rating.tasks)
    level = _simultaneous(len(rating.ranks))
    needs = []
    for difference in differences:
        tasks = 2
        # The t distribution widens with fewer tasks, so that the number appears on both sides.
        while _detectable(spread, tasks, level) > difference and tasks < 10**6:
            tasks = max(tasks + 1, int(tasks * 1.01))
        needs.append(RequiredTasks(difference, tasks, round(tasks * episodes_per_task)))
    return needs


def _simultaneous(count: int) -> float:
    """The level at which the first of all pairs of ``count`` policies is told apart (Holm)."""
    return _LEVEL / max(1, math.comb(count, 2))


def _detectable(spread: float, tasks: int, level: float) -> float:
    freedom = tasks - 1
    # The 80 % quantile of t is the two-sided critical value at 2 × (1 - 0.8).
    return (critical_value(level, freedom) + critical_value(2 * (1 - _POWER), freedom)) * spread / math.sqrt(tasks)
