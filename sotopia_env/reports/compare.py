r"""Comparison of policies over recorded episodes: means with intervals, paired differences, results by partner.

Every score belongs to the policy in the scored seat. **Every scenario weighs the same**, whatever the number
of its seats, partners and repeats; otherwise a family of tasks with five seats would outweigh one with two. A mean is
the mean of the scenarios' own means; with :math:`\bar y_g` the mean of scenario ``g`` of ``G``,

.. math:: \bar y = \frac{1}{G} \sum_g \bar y_g, \qquad SE^2 = \frac{1}{G (G - 1)} \sum_g (\bar y_g - \bar y)^2

and Student's t on ``G - 1`` degrees of freedom from scipy gives the interval and the test. This is at the same time the
cluster-robust standard error (Liang and Zeger 1986; Cameron and Miller 2015, section II) of the mean in which each
value has the weight ``1 / (G n_g)``: episodes of one scenario resemble each other and are one observation. statsmodels'
WLS on a constant with these weights gives the same with ``cov_type="cluster"``. Families thus weigh as much as they
have scenarios; the table by family shows each alone. With one scenario there is no interval: ``None``, shown as
``n/a``. Intervals are not cut at the ends of a metric's range. Unscored seats are counted and left out, never zeros.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sotopia_env.errors import InvalidValueError, UnknownNameError, name_hint
from sotopia_env.reports.seat_results import (
    EFFICIENCY,
    METRICS,
    OVERALL,
    SHARE,
    SUCCESS,
    WORDS,
    SeatResult,
    rows_by_one,
)
from sotopia_env.storage.directory import read_run
from sotopia_env.storage.manifest import configured_evaluator
from sotopia_env.world.episode import Episode
from sotopia_env.world.reward import DIMENSIONS

_SCORE_METRICS = (*(d.value for d in DIMENSIONS), OVERALL)
_HEADLINES = (OVERALL, "goal", SHARE, SUCCESS)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its interval and test.

    Attributes:
        n: number of values; ``clusters`` is the number of scenarios they come from, each of which weighs the same.
        low: lower end of the 95 % interval, ``None`` with fewer than two scenarios; ``high`` likewise.
        p: two-sided p-value against 0, ``None`` where there is no interval or no variation at all.
    """

    n: int
    clusters: int
    mean: float
    low: float | None
    high: float | None
    p: float | None


@dataclass(frozen=True, slots=True)
class Cell:
    """A metric of a policy; ``group`` is ``"all"`` or a family; ``unscored`` counts the seats left out."""

    group: str
    policy: str
    metric: str
    unscored: int
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean of ``first`` minus ``second`` over matched seats.

    Attributes:
        paired_by: what matched seats have in common: the match that covers most seats, among equals the closest.
        matched: how many seats of both policies it covers, of ``seats`` that have a value.
        q: Benjamini-Hochberg adjusted p-value over all differences of the comparison.
    """

    first: str
    second: str
    metric: str
    paired_by: str
    matched: int
    seats: int
    estimate: Estimate
    q: float | None


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """A metric of ``policy`` beside ``partner``."""

    policy: str
    partner: str
    metric: str
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class Imbalance:
    """A policy that was not in all seats, or did not act first, equally often.

    Attributes:
        seats: number of seats of the tasks.
        by_seat: number of episodes with the policy in each seat.
        first: how often it acted first, of ``in_order`` seats in round-robin order; balanced is one in ``seats``.
    """

    policy: str
    seats: int
    by_seat: tuple[int, ...]
    first: int
    in_order: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of :func:`compare`.

    Attributes:
        evaluator: whose scores these are; ``None`` when no episode has been evaluated.
        outcomes_by: the evaluators that read the verified outcomes.
        policies: labels, in alphabetical order.
        metrics: the metrics for which there are values, in the order of :data:`METRICS`.
        main: the metric of the matrix and of the charts.
        episodes: number of episodes read.
        unscored: number of episodes with at least one seat without scores, and the reasons with their counts.
        imbalances: policies whose means also depend on the seats or the order that they had.
    """

    evaluator: str | None
    outcomes_by: tuple[str, ...]
    policies: tuple[str, ...]
    metrics: tuple[str, ...]
    main: str
    episodes: int
    unscored: int
    reasons: tuple[tuple[str, int], ...]
    cells: tuple[Cell, ...]
    families: tuple[Cell, ...]
    differences: tuple[Difference, ...]
    matrix: tuple[MatrixCell, ...]
    imbalances: tuple[Imbalance, ...] = ()

    def cell(self, policy: str, metric: str) -> Cell | None:
        """The cell of a policy and metric over all tasks, ``None`` where there are no values."""
        return next((cell for cell in self.cells if (cell.policy, cell.metric) == (policy, metric)), None)


def estimate(values: Sequence[float], clusters: Sequence[str]) -> Estimate:
    """Returns mean, 95 % interval and p-value against 0; clusters weigh the same (see the module's formula).

    Raises:
        InvalidValueError: no values, or not one cluster label for each.
    """
    from scipy import stats

    if not values or len(values) != len(clusters):
        raise InvalidValueError(f"expected one cluster per value, got {len(values)} values, {len(clusters)} clusters")
    by_cluster: dict[str, list[float]] = defaultdict(list)
    for value, cluster in zip(values, clusters, strict=True):
        by_cluster[cluster].append(value)
    means = [math.fsum(group) / len(group) for group in by_cluster.values()]
    n, count, mean = len(values), len(means), math.fsum(means) / len(means)
    if count < 2:
        return Estimate(n, count, mean, None, None, None)
    error = math.sqrt(math.fsum((m - mean) ** 2 for m in means) / (count * (count - 1)))
    if error <= 1e-12 * max(1.0, abs(mean)):  # no variation beyond rounding
        return Estimate(n, count, mean, mean, mean, None)
    half = float(stats.t.ppf(0.975, count - 1)) * error
    p = 2 * float(stats.t.sf(abs(mean) / error, count - 1))
    return Estimate(n, count, mean, mean - half, mean + half, p)


def compare(episodes: Iterable[Episode], *, evaluator: str | None = None, metric: str | None = None) -> Comparison:
    """Compares the policies of recorded episodes.

    Args:
        episodes: from one or several runs; an episode that occurs twice is an error.
        evaluator: whose scores to use; by default the one evaluator that all episodes share.
        metric: the metric of the matrix; by default overall, or goal, surplus share, … if that has no values.

    Raises:
        InvalidValueError: no episodes, two records of one episode, or no evaluator that all episodes share.
        UnknownNameError: no episode has an evaluation by ``evaluator``, or there is no such ``metric``.
    """
    return _comparison(*rows_by_one(episodes, evaluator), metric)


def _comparison(evaluator: str | None, rows: Sequence[SeatResult], metric: str | None) -> Comparison:
    present = {name for row in rows for name in row.values}
    metrics = tuple(name for name in METRICS if name in present)
    main = metric or next(name for name in (*_HEADLINES, *METRICS) if name in present or name == WORDS)
    if main not in METRICS:
        raise UnknownNameError(f"metric: {name_hint(main, METRICS)}")
    reasons: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row.unscored is not None:
            reasons[row.unscored].add(row.key)
    policies = tuple(sorted({row.policy for row in rows}))
    families = sorted({row.family for row in rows if row.family is not None})
    outcome_metrics = [name for name in (SUCCESS, SHARE, EFFICIENCY, "goal") if name in present]
    return Comparison(
        evaluator=evaluator,
        outcomes_by=tuple(sorted({row.outcome_by for row in rows if row.outcome_by is not None})),
        policies=policies,
        metrics=metrics,
        main=main,
        episodes=len({row.key for row in rows}),
        unscored=len({key for keys in reasons.values() for key in keys}),
        reasons=tuple(sorted((reason, len(keys)) for reason, keys in reasons.items())),
        cells=_cells("all", rows, policies, metrics),
        families=tuple(
            cell for f in families for cell in _cells(f, [r for r in rows if r.family == f], policies, outcome_metrics)
        ),
        differences=_differences(rows, policies, metrics),
        matrix=_matrix(rows, policies, main),
        imbalances=tuple(_imbalances(rows, policies)),
    )


def compare_runs(runs: Iterable[str | Path], *, evaluator: str | None = None, metric: str | None = None) -> Comparison:
    """As :func:`compare`, for run directories or ``.jsonl`` files; they are only read.

    Where all episodes share several evaluators, the one the runs were started with is used.
    """
    paths = [Path(run) for run in runs]
    episodes = itertools.chain.from_iterable(read_run(path) for path in paths)

    def run_evaluators() -> list[str]:
        return [item.name for item in map(configured_evaluator, paths) if item is not None]

    return _comparison(*rows_by_one(episodes, evaluator, run_evaluators), metric)


def _cells(group: str, rows: Sequence[SeatResult], policies: Iterable[str], metrics: Iterable[str]) -> tuple[Cell, ...]:
    cells = []
    for metric, policy in itertools.product(metrics, policies):
        own = [row for row in rows if row.policy == policy]
        rows_with_metric = [row for row in own if metric in row.values]
        if rows_with_metric:
            missing = sum(row.unscored is not None for row in own) if metric in _SCORE_METRICS else 0
            cells.append(Cell(group, policy, metric, missing, _estimate(rows_with_metric, metric)))
    return tuple(cells)


def _estimate(rows: Sequence[SeatResult], metric: str) -> Estimate:
    return estimate([row.values[metric] for row in rows], [row.scenario for row in rows])


def _imbalances(rows: Sequence[SeatResult], policies: Iterable[str]) -> Iterable[Imbalance]:
    for policy, seats in itertools.product(policies, sorted({row.seats for row in rows})):
        own = [row for row in rows if (row.policy, row.seats) == (policy, seats)]
        by_seat = tuple(sum(row.seat == seat for row in own) for seat in range(seats))
        first = sum(row.first for row in own if row.by_order)
        in_order = sum(row.by_order for row in own)
        if len(set(by_seat)) > 1 or first * seats != in_order:
            yield Imbalance(policy, seats, by_seat, first, in_order)


def _matrix(rows: Sequence[SeatResult], policies: Sequence[str], metric: str) -> tuple[MatrixCell, ...]:
    partners = (*policies, *sorted({row.partner for row in rows} - set(policies)))
    cells = []
    for policy, partner in itertools.product(policies, partners):
        pair = [r for r in rows if (r.policy, r.partner) == (policy, partner) and metric in r.values]
        if pair:
            cells.append(MatrixCell(policy, partner, metric, _estimate(pair, metric)))
    return tuple(cells)


_Match = Callable[[SeatResult], tuple[object, ...]]
_MATCHES: tuple[tuple[str, _Match], ...] = (
    ("task, seat, partner, order, seed", lambda r: (r.task, r.seat, r.partner, r.first, r.seed)),
    ("task, seat, partner", lambda r: (r.task, r.seat, r.partner)),
    ("task, seat", lambda r: (r.task, r.seat)),
    ("task", lambda r: (r.task,)),
)


def _differences(rows: Sequence[SeatResult], policies: Sequence[str], metrics: Sequence[str]) -> tuple[Difference, ...]:
    by_policy = {policy: [row for row in rows if row.policy == policy] for policy in policies}
    pairs = itertools.product(itertools.combinations(policies, 2), metrics)
    differences = [_difference(by_policy, first, second, metric) for (first, second), metric in pairs]
    return _with_q([difference for difference in differences if difference is not None])


def _difference(rows: Mapping[str, Sequence[SeatResult]], first: str, second: str, metric: str) -> Difference | None:
    sides = [[row for row in rows[name] if metric in row.values] for name in (first, second)]
    # A closer match controls for more, but a single pair must not represent a whole run: coverage comes first.
    paired_by, match = max(_MATCHES, key=lambda item: _match_count(sides, item[1]))
    left, right = (_group_means(side, match, metric) for side in sides)
    common = sorted(left.keys() & right.keys(), key=repr)
    if not common:
        return None
    scenario = {match(row): row.scenario for row in sides[0]}
    mean = estimate([left[key] - right[key] for key in common], [scenario[key] for key in common])
    return Difference(first, second, metric, paired_by, _match_count(sides, match), sum(map(len, sides)), mean, None)


def _match_count(sides: Sequence[Sequence[SeatResult]], match: _Match) -> int:
    """How many seats of both policies have a counterpart."""
    first, second = ([match(row) for row in side] for side in sides)
    common = set(first) & set(second)
    return sum(key in common for key in (*first, *second))


def _group_means(rows: Sequence[SeatResult], match: _Match, metric: str) -> dict[tuple[object, ...], float]:
    groups: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for row in rows:
        groups[match(row)].append(row.values[metric])
    return {key: math.fsum(values) / len(values) for key, values in groups.items()}


def _with_q(differences: Sequence[Difference]) -> tuple[Difference, ...]:
    from scipy import stats

    p_values = [d.estimate.p for d in differences if d.estimate.p is not None]
    q_values = iter(stats.false_discovery_control(p_values, method="bh").tolist() if p_values else ())
    return tuple(replace(d, q=None if d.estimate.p is None else next(q_values)) for d in differences)
