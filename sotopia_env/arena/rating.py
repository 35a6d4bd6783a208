r"""Ratings from continuous payoffs, with intervals over tasks.

A payoff is the sum of the effects of the policy, its opponent, the task, the seat and the order, and a rest:
:math:`y = \alpha_{policy} + \beta_{opponent} + \gamma_{task} + \delta_{seat} + \epsilon_{first} + u`. The
**strength** of a policy is its effect minus the mean effect of the rated policies. The estimand is the mean over *this*
pool of opponents and these kinds of task; it says nothing about other opponents.

Payoffs of one task resemble each other, and policies differ in which tasks suit them. The variance is therefore the
cluster-robust sandwich over tasks (Liang and Zeger 1986), times G / (G - 1), and intervals use Student's t with G - 1
degrees of freedom. G is the effective number of tasks of the contrast (Carter, Schnepel and Steigerwald 2017, for equal
variances): all of them if every policy played all, and few for a policy that played few. In simulation
(``tests/sotopia_env/arena/test_rating.py``) such intervals cover the true strength as often as they promise, unlike
those of least squares. Every task has the same weight, whatever the number of its seats.

Policies are **ranked** only as far as the differences allow: the intervals of all differences hold together
(Bonferroni), so that the probability of any wrong rank is at most 5 %.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sotopia_env.arena.rows import CardRow
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.reports.differences import Rank, ranking
from sotopia_env.reports.intervals import Estimate, critical_value, estimate, two_sided_p

TASKS = "tasks"
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
        ranks: the ranks and ties that the simultaneous intervals of the differences leave open.
        groups: the number of the group of each policy, from 1. A group ends before the first policy that is worse than
            the first policy of the group.
        tasks: the number of tasks.
    """

    policies: tuple[str, ...]
    means: Mapping[str, Estimate]
    strengths: Mapping[str, Estimate]
    gaps: Mapping[tuple[str, str], Estimate]
    ranks: Mapping[str, Rank]
    groups: Mapping[str, int]
    tasks: int


def rate(rows: Sequence[CardRow]) -> Rating:
    """Returns the rating of the policies in scored rows.

    Raises:
        InvalidValueError: there are fewer than two tasks, or two policies have no opponents in common, even through
            others.
    """
    scored = [row for row in rows if row.payoff is not None]
    policies, count = sorted({row.policy for row in scored}), len({row.task for row in scored})
    if count < 2:
        raise InvalidValueError("intervals are over tasks", field="tasks", expected="at least 2", got=count)
    y = np.array([row.payoff for row in scored], dtype=float)
    columns = [
        _one_hot([row.policy for row in scored], policies),
        *(
            _one_hot(list(values))
            for values in zip(*[(row.opponent, row.task, row.seat) for row in scored], strict=True)
        ),
        np.array([[float(row.first)] for row in scored]),
    ]
    clusters = np.unique([row.task for row in scored], return_inverse=True)[1]
    # Seats and orders of a task, once each: the last columns are the task's, the seat's and the order's.
    cells = np.unique(np.hstack(columns[2:]), axis=0)
    shares = 1 / (cells[:, :count] @ cells[:, :count].sum(axis=0))
    opponents = np.unique(columns[1], axis=0).mean(axis=0)
    level = np.concatenate([np.zeros(len(policies)), opponents, shares @ cells / count])
    in_task = cells[:, :count].sum(axis=0)[clusters]
    fit = _fit(np.hstack(columns), y, clusters, 1 / in_task)
    effects = np.hstack([np.eye(len(policies)), np.zeros((len(policies), len(level) - len(policies)))])
    means = (effects + level) @ fit.beta
    centred = effects - effects.mean(axis=0)
    if not np.allclose(centred @ fit.estimable, centred, atol=1e-6):
        raise InvalidValueError(
            "two policies have no opponent in common, even through others",
            field="results",
            hint="play all of them against the pool of the suite",
        )
    n = {policy: sum(row.policy == policy for row in scored) for policy in policies}
    strengths = {p: fit.estimate(c, n[p], _LEVEL) for p, c in zip(policies, centred, strict=True)}
    order = sorted(policies, key=lambda p: (-round(strengths[p].mean, _DIGITS), p))
    pairs = list(itertools.combinations(order, 2))
    at = {policy: effects[index] for index, policy in enumerate(policies)}
    gaps = {(a, b): fit.estimate(at[a] - at[b], n[a] + n[b], _LEVEL) for a, b in pairs}
    strict = {(a, b): fit.estimate(at[a] - at[b], n[a] + n[b], _LEVEL / len(pairs)) for a, b in pairs}
    ranks = {rank.policy: rank for rank in ranking(strengths, strict)}
    return Rating(
        policies=tuple(order),
        means={p: _mean(scored, p, mean) for p, mean in zip(policies, means.tolist(), strict=True)},
        strengths=strengths,
        gaps=gaps,
        ranks=ranks,
        groups=_groups(order, ranks),
        tasks=count,
    )


def _mean(rows: Sequence[CardRow], policy: str, mean: float) -> Estimate:
    """The mean with the interval of the plain mean, which differs where a member of the pool did not meet itself."""
    own = [row for row in rows if row.policy == policy]
    plain = estimate([row.payoff or 0.0 for row in own], [row.task for row in own], over=TASKS)
    if plain.low is None or plain.high is None:
        return replace(plain, mean=mean)
    return replace(plain, mean=mean, low=plain.low + mean - plain.mean, high=plain.high + mean - plain.mean)


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
    """

    beta: Matrix
    influence: Matrix
    scores: Matrix
    estimable: Matrix
    clusters: NDArray[np.intp]

    def estimate(self, contrast: Matrix, n: int, level: float) -> Estimate:
        """The interval of a contrast at ``1 - level``."""
        # Rounded, because equal payoffs differ by rounding errors, which would else be a difference without variance.
        mean = round(float(contrast @ self.beta), _DIGITS)
        weights = np.bincount(self.clusters, (self.influence @ contrast) ** 2)
        # The strength of a single policy is 0 by definition and has no weights.
        effective = round(float(weights.sum() ** 2 / (weights**2).sum()), 6) if weights.any() else len(self.scores)
        if effective < _FEWEST:
            return Estimate(n, 1, mean, None, None, None, TASKS)
        error = float(((self.scores @ contrast) ** 2).sum() * effective / (effective - 1)) ** 0.5
        if error < 10**-_DIGITS:
            return Estimate(n, round(effective), mean, mean, mean, None, TASKS)
        half = critical_value(level, effective - 1) * error
        p = two_sided_p(mean / error, effective - 1)
        return Estimate(n, round(effective), mean, mean - half, mean + half, p, TASKS)


def _fit(x: Matrix, y: Matrix, clusters: NDArray[np.intp], weights: Matrix) -> _Fit:
    """Weighted least squares. The sandwich is the sum over clusters of the squares of their scores."""
    x, y = x * np.sqrt(weights)[:, None], y * np.sqrt(weights)
    gram = x.T @ x
    inverse = np.linalg.pinv(gram, rcond=1e-10, hermitian=True)
    beta, influence = inverse @ (x.T @ y), x @ inverse
    scores = np.zeros((clusters.max() + 1, x.shape[1]))
    np.add.at(scores, clusters, influence * (y - x @ beta)[:, None])
    return _Fit(beta, influence, scores, inverse @ gram, clusters)


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
    share = estimate(values, [sides[0][key].task for key in keys], (0, 1), TASKS)
    if share.mean not in (0, 1) or share.low is None:
        return share
    far = (_LEVEL / 2) ** (1 / share.clusters)
    return replace(share, low=far if share.mean else 0.0, high=1.0 if share.mean else 1 - far)


def _match(row: CardRow) -> tuple[object, ...]:
    return (row.opponent, row.task, row.seat, row.first, row.seed)


def _win(first: CardRow, second: CardRow) -> float:
    a, b = first.payoff or 0.0, second.payoff or 0.0
    return 0.5 if abs(a - b) < 1e-9 else float(a > b)


def bradley_terry(rows: Sequence[CardRow], policies: Sequence[str]) -> dict[str, Estimate]:
    """Returns Elo-scaled Bradley-Terry ratings (mean 1000, 400 points for odds of 10) from matched wins and losses.

    Two policies are compared as in :func:`superiority`. A virtual tie of every pair keeps ratings finite, and pulls a
    policy that wins or loses almost always towards the others. Intervals are by the jackknife over tasks; a policy that
    won or lost every match has none.
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
    n, one_sided = int(total.sum()), (total.sum(axis=0) == 0) | (total.sum(axis=1) == 0)
    return {
        policy: Estimate(n, count, float(r), None if one else float(r - h), None if one else float(r + h), None, TASKS)
        for policy, r, h, one in zip(policies, ratings, half, one_sided, strict=True)
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
    """The number of tasks, and of episodes of one policy, at which a true difference is found with a power of 80 %."""

    difference: float
    tasks: int
    episodes: int


def needs(
    rating: Rating, episodes_per_task: float, differences: Sequence[float] = (0.2, 0.1, 0.05, 0.02)
) -> list[RequiredTasks]:
    """Returns how many tasks differences need, from the median standard error of the rated differences.

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
    needs = []
    for difference in differences:
        tasks = 2
        # The t distribution widens with fewer tasks, so that the number appears on both sides.
        while _detectable(spread, tasks) > difference and tasks < 10**6:
            tasks = max(tasks + 1, int(tasks * 1.01))
        needs.append(RequiredTasks(difference, tasks, round(tasks * episodes_per_task)))
    return needs


def _detectable(spread: float, tasks: int) -> float:
    freedom = tasks - 1
    # The 80 % quantile of t is the two-sided critical value at 2 × (1 - 0.8).
    return (critical_value(_LEVEL, freedom) + critical_value(2 * (1 - _POWER), freedom)) * spread / math.sqrt(tasks)
