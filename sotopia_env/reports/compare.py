"""Comparison of policies over recorded episodes: means with intervals, paired differences, results by partner.

Every score belongs to the policy in the scored seat. Every scenario weighs the same; families thus weigh as much as
they have scenarios, and the table by family shows each alone. What a mean and its interval are is said in
:mod:`sotopia_env.reports.intervals`. Unscored seats are counted and left out, never zeros.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sotopia_env.errors import UnknownNameError
from sotopia_env.reports.contrasts import ByLevel, by_level
from sotopia_env.reports.intervals import Bounds, Estimate, adjusted, difference_estimate, estimate
from sotopia_env.reports.ranking import Rank, ranking
from sotopia_env.reports.seat_results import (
    EFFICIENCY,
    HEADLINES,
    SHARE,
    SUCCESS,
    WORDS,
    SeatResult,
    clusters_of,
    metric_bounds,
    rows_by_one,
)
from sotopia_env.reports.turn_counts import TurnCounts, total
from sotopia_env.storage.directory import read_run
from sotopia_env.storage.manifest import configured_evaluator
from sotopia_env.world.episode import Episode

_NOT_SCORED = (SUCCESS, SHARE, EFFICIENCY, WORDS)
"""Metrics of episodes, which a seat has also where no evaluator scored it."""


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
        paired_by: what matched seats have in common. Where any seats share their partner, only such seats are paired;
            of several such matches the one that covers most seats is taken, among equals the closest.
        matched: how many seats of both policies it covers, of ``seats`` that have a value; the rest is left out.
        same_partner: whether matched seats had the same partner. If not, the difference is also one of partners.
        q: Benjamini-Hochberg adjusted p-value over all differences of the comparison.
    """

    first: str
    second: str
    metric: str
    paired_by: str
    matched: int
    seats: int
    same_partner: bool
    estimate: Estimate
    q: float | None


@dataclass(frozen=True, slots=True)
class CommonSeats:
    """The seats over which means are comparable: those that a group of policies had alike (task, seat and partner).

    A policy that also played with a partner, or a task, that others did not have would otherwise be credited with an
    easy partner. The group is the one whose common seats hold most results; ``()`` when no two policies share a seat.

    Attributes:
        policies: the group; its means are over the common seats alone.
        partners: the partners in these seats.
        kept: number of the group's seats among them, of ``seats`` that the group had.
        others: the policies outside, with their partners; each mean of theirs is over all seats of its own.
    """

    policies: tuple[str, ...]
    partners: tuple[str, ...]
    kept: int
    seats: int
    others: tuple[tuple[str, tuple[str, ...]], ...]


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
        metrics: those of :data:`~sotopia_env.reports.seat_results.METRICS` and the custom dimensions for which there
            are values, in this order.
        main: the metric of the matrix and of the charts.
        episodes: number of episodes read.
        unscored: number of episodes with at least one seat without scores, and the reasons with their counts.
        common: the seats over which the means are.
        imbalances: policies whose means also depend on the seats or the order that they had.
        ranking: the policies with comparable means, in the order of the main metric.
        constant: metrics that have one value in all seats, with it.
        turns: counts of each policy's turns, over all its seats.
        by: the main metric by the levels of a factor, where one was asked for.
        ranges: lowest and highest value of each metric, ``None`` for an open end.
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
    common: CommonSeats
    imbalances: tuple[Imbalance, ...] = ()
    ranking: tuple[Rank, ...] = ()
    constant: tuple[tuple[str, float], ...] = ()
    turns: tuple[tuple[str, TurnCounts], ...] = ()
    by: ByLevel | None = None
    ranges: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)

    @property
    def headlines(self) -> tuple[str, ...]:
        """The main metric, and those of :data:`~sotopia_env.reports.seat_results.HEADLINES` that have values."""
        return tuple(name for name in dict.fromkeys((self.main, *HEADLINES)) if name in self.metrics)

    def cell(self, policy: str, metric: str) -> Cell | None:
        """The cell of a policy and metric over all tasks, ``None`` where there are no values."""
        return next((cell for cell in self.cells if (cell.policy, cell.metric) == (policy, metric)), None)


def compare(
    episodes: Iterable[Episode], *, evaluator: str | None = None, metric: str | None = None, by: str | None = None
) -> Comparison:
    """Compares the policies of recorded episodes.

    Args:
        episodes: from one or several runs; two records of one episode count once.
        evaluator: whose scores to use; by default the one evaluator that all episodes share.
        metric: the metric of ranking and matrix; by default overall, or goal, surplus share, … if that has no values.
        by: one of :data:`~sotopia_env.reports.seat_results.FACTORS`, whose levels are compared too.

    Raises:
        InvalidValueError: no episodes, or no evaluator that all episodes share.
        UnknownNameError: no episode has an evaluation by ``evaluator``, or there is no such ``metric`` or factor.
    """
    return _comparison(*rows_by_one(episodes, evaluator), metric, by)


def _comparison(
    evaluator: str | None, rows: Sequence[SeatResult], metric: str | None, by: str | None = None
) -> Comparison:
    bounds = metric_bounds(rows)
    present = {name for row in rows for name in row.values}
    metrics = tuple(name for name in bounds if name in present)
    main = metric or next(name for name in (*HEADLINES, *bounds) if name in present or name == WORDS)
    if main not in bounds:
        raise UnknownNameError(field="metric", got=main, valid=bounds)
    reasons: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row.unscored is not None:
            reasons[row.unscored].add(row.key)
    policies = tuple(sorted({row.policy for row in rows}))
    families = sorted({row.family for row in rows if row.family is not None})
    common, kept = _common_seats(rows, policies)
    limits = {name: bounds[name] for name in metrics}
    outcome_limits = {name: bounds[name] for name in (SUCCESS, SHARE, EFFICIENCY, "goal") if name in present}
    cells, differences = _cells("all", kept, policies, limits), _differences(rows, policies, limits)
    return Comparison(
        evaluator=evaluator,
        outcomes_by=tuple(sorted({row.outcome_by for row in rows if row.outcome_by is not None})),
        policies=policies,
        metrics=metrics,
        main=main,
        episodes=len({row.key for row in rows}),
        unscored=len({key for keys in reasons.values() for key in keys}),
        reasons=tuple(sorted((reason, len(keys)) for reason, keys in reasons.items())),
        cells=cells,
        families=tuple(
            cell for f in families for cell in _cells(f, [r for r in kept if r.family == f], policies, outcome_limits)
        ),
        differences=differences,
        matrix=_matrix(rows, policies, main, bounds[main]),
        common=common,
        imbalances=tuple(_imbalances(kept, policies)),
        ranking=_ranking(cells, differences, common.policies or policies, main),
        constant=_constants(rows, metrics),
        turns=tuple((policy, total(row.counts for row in rows if row.policy == policy)) for policy in policies),
        by=None if by is None else _by_level(kept, by, main, bounds[main]),
        ranges={name: (_finite(low), _finite(high)) for name, (low, high) in bounds.items() if name in present},
    )


def _finite(end: float) -> float | None:
    return end if math.isfinite(end) else None


def _ranking(
    cells: Iterable[Cell], differences: Iterable[Difference], policies: Iterable[str], metric: str
) -> tuple[Rank, ...]:
    estimates = {c.policy: c.estimate for c in cells if c.metric == metric and c.policy in policies}
    return ranking(estimates, {(d.first, d.second): d.estimate for d in differences if d.metric == metric})


def _constants(rows: Sequence[SeatResult], metrics: Iterable[str]) -> tuple[tuple[str, float], ...]:
    values = {metric: {row.values[metric] for row in rows if metric in row.values} for metric in metrics}
    return tuple((metric, next(iter(found))) for metric, found in values.items() if len(found) == 1)


def _by_level(rows: Sequence[SeatResult], factor: str, metric: str, bounds: Bounds) -> ByLevel:
    result = by_level(rows, factor, metric, bounds)
    q_values = adjusted([None if c.estimate is None else c.estimate.p for c in result.contrasts])
    return replace(result, contrasts=tuple(replace(c, q=q) for c, q in zip(result.contrasts, q_values, strict=True)))


def compare_runs(
    runs: Iterable[str | Path], *, evaluator: str | None = None, metric: str | None = None, by: str | None = None
) -> Comparison:
    """As :func:`compare`, for run directories or ``.jsonl`` files; they are only read.

    Where all episodes share several evaluators, the one the runs were started with is used.
    """
    return _comparison(*run_rows(runs, evaluator), metric, by)


def run_rows(runs: Iterable[str | Path], evaluator: str | None) -> tuple[str | None, list[SeatResult]]:
    """Returns evaluator and rows of run directories or ``.jsonl`` files; see :func:`compare_runs`."""
    paths = [Path(run) for run in runs]
    episodes = itertools.chain.from_iterable(read_run(path) for path in paths)

    def run_evaluators() -> list[str]:
        return [item.name for item in map(configured_evaluator, paths) if item is not None]

    return rows_by_one(episodes, evaluator, run_evaluators)


def _cells(
    group: str, rows: Sequence[SeatResult], policies: Iterable[str], limits: Mapping[str, Bounds]
) -> tuple[Cell, ...]:
    cells = []
    for metric, policy in itertools.product(limits, policies):
        own = [row for row in rows if row.policy == policy]
        rows_with_metric = [row for row in own if metric in row.values]
        if rows_with_metric:
            missing = 0 if metric in _NOT_SCORED else sum(row.unscored is not None for row in own)
            cells.append(Cell(group, policy, metric, missing, _estimate(rows_with_metric, metric, limits[metric])))
    return tuple(cells)


def _estimate(rows: Sequence[SeatResult], metric: str, bounds: Bounds) -> Estimate:
    (clusters,), over = clusters_of(rows)
    return estimate([row.values[metric] for row in rows], clusters, bounds, over)


def _common_seats(rows: Sequence[SeatResult], policies: Sequence[str]) -> tuple[CommonSeats, list[SeatResult]]:
    """The common seats, and the rows that the means are over."""
    seats = {policy: {_shared_seat(row) for row in rows if row.policy == policy} for policy in policies}
    sets = list(seats.values())
    # Not every intersection of several policies' seats, of which there are too many: of two, and what they grow to.
    candidates = [first & second for first, second in itertools.combinations(sets, 2)] + [set.intersection(*sets)]
    counts = Counter((row.policy, _shared_seat(row)) for row in rows)

    def group_of(common: set[tuple[object, ...]]) -> tuple[str, ...]:
        return tuple(policy for policy in policies if common and common <= seats[policy])

    def size(common: set[tuple[object, ...]]) -> int:
        return sum(counts[policy, seat] for policy in group_of(common) for seat in common)

    for pair in list(candidates):
        grown = pair
        while size(wider := max((grown & other for other in sets), key=size)) > size(grown):
            grown = wider
        candidates.append(grown)
    common = max(candidates, key=size)
    group = group_of(common)
    own = [row for row in rows if row.policy in group]
    kept = [row for row in rows if row.policy not in group or _shared_seat(row) in common]
    others = [(p, tuple(sorted({row.partner for row in rows if row.policy == p}))) for p in policies if p not in group]
    partners = tuple(sorted({row.partner for row in own if _shared_seat(row) in common}))
    dropped = len(rows) - len(kept)
    return CommonSeats(group, partners, len(own) - dropped, len(own), tuple(others)), kept


def _imbalances(rows: Sequence[SeatResult], policies: Iterable[str]) -> Iterable[Imbalance]:
    for policy, seats in itertools.product(policies, sorted({row.seats for row in rows})):
        own = [row for row in rows if (row.policy, row.seats) == (policy, seats)]
        by_seat = tuple(sum(row.seat == seat for row in own) for seat in range(seats))
        first = sum(row.first for row in own if row.by_order)
        in_order = sum(row.by_order for row in own)
        if len(set(by_seat)) > 1 or first * seats != in_order:
            yield Imbalance(policy, seats, by_seat, first, in_order)


def _matrix(rows: Sequence[SeatResult], policies: Sequence[str], metric: str, bounds: Bounds) -> tuple[MatrixCell, ...]:
    partners = (*policies, *sorted({row.partner for row in rows} - set(policies)))
    cells = []
    for policy, partner in itertools.product(policies, partners):
        pair = [r for r in rows if (r.policy, r.partner) == (policy, partner) and metric in r.values]
        if pair:
            cells.append(MatrixCell(policy, partner, metric, _estimate(pair, metric, bounds)))
    return tuple(cells)


_Match = Callable[[SeatResult], tuple[object, ...]]


def _shared_seat(row: SeatResult) -> tuple[object, ...]:
    """What seats have in common for their results to differ by the policy and by luck alone."""
    return (row.task, row.seat, row.partner)


_SAME_PARTNER: tuple[tuple[str, _Match], ...] = (
    ("task, seat, partner, order, seed", lambda r: (*_shared_seat(r), r.first, r.seed)),
    ("task, seat, partner", _shared_seat),
)
_OTHER_PARTNERS: tuple[tuple[str, _Match], ...] = (
    ("task, seat", lambda r: (r.task, r.seat)),
    ("task", lambda r: (r.task,)),
)


def _differences(
    rows: Sequence[SeatResult], policies: Sequence[str], limits: Mapping[str, Bounds]
) -> tuple[Difference, ...]:
    by_policy = {policy: [row for row in rows if row.policy == policy] for policy in policies}
    pairs = itertools.product(itertools.combinations(policies, 2), limits)
    differences = [_difference(by_policy, *names, metric, limits[metric]) for names, metric in pairs]
    return _with_q([difference for difference in differences if difference is not None])


def _difference(
    rows: Mapping[str, Sequence[SeatResult]], first: str, second: str, metric: str, bounds: Bounds
) -> Difference | None:
    sides = [[row for row in rows[name] if metric in row.values] for name in (first, second)]
    # A partner that only one policy met would be counted as that policy's merit, so seats without the same partner are
    # paired only where there are no others. Order and seed are luck: there, more pairs are worth more than close ones.
    same_partner = _match_count(sides, _shared_seat) > 0
    matches = _SAME_PARTNER if same_partner else _OTHER_PARTNERS
    paired_by, match = max(matches, key=lambda item: _match_count(sides, item[1]))
    left, right = (_group_means(side, match, metric) for side in sides)
    common = sorted(left.keys() & right.keys(), key=repr)
    if not common:
        return None
    of = {match(row): row for row in sides[0]}
    (clusters,), over = clusters_of([of[key] for key in common])
    mean = difference_estimate([left[key] - right[key] for key in common], clusters, bounds, over)
    matched, seats = _match_count(sides, match), sum(map(len, sides))
    return Difference(first, second, metric, paired_by, matched, seats, same_partner, mean, None)


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
    q_values = adjusted([d.estimate.p for d in differences])
    return tuple(replace(d, q=q) for d, q in zip(differences, q_values, strict=True))
