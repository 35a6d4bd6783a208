"""Comparison of policies over recorded episodes: means with intervals, paired differences, results by partner.

Every score belongs to the policy in the scored seat. Every scenario has the same weight, so a family weighs as much as
its scenarios together; another table shows each family separately. :mod:`sotopia_env.reports.intervals` defines means
and intervals. Unscored seats are counted and left out; they are never zeros.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import Field

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.settings import Settings
from sotopia_env.reports.contrasts import ByLevel, by_level
from sotopia_env.reports.differences import (
    ComparedSeats,
    Difference,
    Rank,
    baseline_differences,
    differences,
    metric_ranking,
    with_q,
)
from sotopia_env.reports.intervals import Estimate
from sotopia_env.reports.seat_results import (
    EFFICIENCY,
    SHARE,
    SUCCESS,
    WORDS,
    SeatResult,
    headlines,
    lacks,
    metric_bounds,
    rows_by_one,
    shared_seat,
)
from sotopia_env.reports.seats.common import CommonSeats, unlike_seats
from sotopia_env.reports.seats.failed import finished_episodes, with_failed_seats
from sotopia_env.reports.seats.refusals import check_levels, check_metrics, check_seats
from sotopia_env.reports.seats.units import seat_mean
from sotopia_env.reports.turn_counts import TurnCounts, total
from sotopia_env.storage.manifest import configured_evaluator
from sotopia_env.world.episode import Episode

_OF_FAMILIES = (SUCCESS, SHARE, EFFICIENCY, "goal")


@dataclass(frozen=True, slots=True)
class Cell:
    """A metric of a policy; ``group`` is ``"all"`` or a family; ``unscored`` counts the seats left out."""

    group: str
    policy: str
    metric: str
    unscored: int
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """A metric of ``policy`` in episodes with ``partner``; ``unscored`` counts the seats without a value."""

    policy: str
    partner: str
    metric: str
    unscored: int
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class Imbalance:
    """A policy that did not play all seats equally often, or did not act first in its share of the episodes.

    Attributes:
        seats: the number of seats of the tasks.
        by_seat: the number of episodes with the policy in each seat.
        first: the number of episodes in which it acted first; balanced is ``in_order / seats``.
        in_order: the number of its seats in episodes with round-robin order.
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
        evaluator: the evaluator of the scores; ``None`` if no episode has been evaluated.
        scored_by: its name, with the options that tell it from other evaluators of the episodes.
        outcomes_by: the evaluators that computed the verified outcomes.
        policies: the policies' labels, in alphabetical order.
        metrics: the metrics of :data:`~sotopia_env.reports.seat_results.METRICS` and the custom dimensions that have
            values, in this order.
        headlines: the requested metrics, or those of :func:`~sotopia_env.reports.seat_results.headlines`.
            The first is the main metric, of the ranking and the levels; matrix and charts show all of them.
        episodes: the number of episodes read.
        unscored: the number of episodes with at least one seat without scores, or that failed.
        reasons: the reasons why seats are unscored, with the number of episodes of each.
        cells: the metrics of every policy over all tasks.
        families: the outcome metrics and ``goal`` of every policy by family.
        differences: the differences between every two policies in every metric; with a baseline, the differences to it
            in the headlines.
        matrix: the headlines of every policy with each partner.
        common: the seats that means, ranks and differences are over, in the main metric.
        unlike: sentences on tasks of one id that are not the same task, or were played under several rules.
        imbalances: policies whose means also depend on the seats or the order of acting that they had.
        ranking: the policies with comparable means, in the order of the main metric; empty if no seat has a score.
        constant: the metrics that have the same value in all seats, with that value.
        turns: counts of each policy's turns, over all its seats.
        by: the main metric by the levels of a factor, if one was requested.
        ranges: the lowest and highest possible value of each metric, ``None`` for an open end.
        partners: the partners in tables and charts: single policies, or mixed sets of partners if there are no others.
        baseline: the policy that the differences are to.
    """

    evaluator: str | None
    outcomes_by: tuple[str, ...]
    policies: tuple[str, ...]
    metrics: tuple[str, ...]
    headlines: tuple[str, ...]
    episodes: int
    unscored: int
    reasons: tuple[tuple[str, int], ...]
    cells: tuple[Cell, ...]
    families: tuple[Cell, ...]
    differences: tuple[Difference, ...]
    matrix: tuple[MatrixCell, ...]
    common: CommonSeats
    unlike: tuple[str, ...] = ()
    imbalances: tuple[Imbalance, ...] = ()
    ranking: tuple[Rank, ...] = ()
    constant: tuple[tuple[str, float], ...] = ()
    turns: tuple[tuple[str, TurnCounts], ...] = ()
    by: ByLevel | None = None
    ranges: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    partners: tuple[str, ...] = ()
    baseline: str | None = None
    scored_by: str = ""

    @property
    def main(self) -> str:
        """The metric of the ranking and the levels."""
        return self.headlines[0]

    def cell(self, policy: str, metric: str) -> Cell | None:
        """The cell of a policy and metric over all tasks; ``None`` if there are no values."""
        return next((cell for cell in self.cells if (cell.policy, cell.metric) == (policy, metric)), None)


class CompareSpec(Settings):
    """The settings of a comparison, which ``sotopia compare --config`` reads.

    Attributes:
        runs: run directories or ``.jsonl`` files of episodes.
        evaluators: the evaluators whose scores are compared, each separately; p-values are adjusted over all of them
            in a metric.
            By default, the one that all episodes share.
        metrics: the headlines of :class:`Comparison`.
        primary: the metric of the ranking, which is shown first; by default the first of the headlines.
        by: one of :data:`~sotopia_env.reports.seat_results.FACTORS`, whose levels are compared too.
        baseline: a policy that all others are compared to, with each partner.
        policies: restricts the comparison to seats of these policies and the baseline; all by default.
        partners: restricts the comparison to seats with these partners; all by default.
    """

    runs: tuple[str, ...] = Field(min_length=1)
    evaluators: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    primary: str | None = None
    by: str | None = None
    baseline: str | None = None
    policies: tuple[str, ...] = ()
    partners: tuple[str, ...] = ()

    def compare(self) -> tuple[Comparison, ...]:
        """Returns the comparison by each evaluator; errors are those of :func:`compare`."""
        return compare_judges(
            self.runs,
            self.evaluators,
            self.metrics,
            primary=self.primary,
            by=self.by,
            baseline=self.baseline,
            select=self._select,
        )

    def _select(self, rows: Sequence[SeatResult]) -> list[SeatResult]:
        """The seats of ``policies`` with ``partners``."""
        seated, met = set().union(*map(_names, rows)), {row.partner for row in rows}
        for field_name, names, valid in (("policies", self.policies, seated), ("partners", self.partners, met)):
            for name in names:
                if name not in valid:
                    raise UnknownNameError(field=field_name, got=name, valid=sorted(valid))
        baseline = set() if self.baseline is None else {_policy(self.baseline, rows)}
        policies = {*self.policies, *baseline} if self.policies else seated
        return [row for row in rows if policies & _names(row) and (not self.partners or row.partner in self.partners)]


def compare(
    episodes: Iterable[Episode],
    *,
    evaluator: str | None = None,
    metrics: Sequence[str] = (),
    by: str | None = None,
    baseline: str | None = None,
) -> Comparison:
    """Compares the policies of recorded episodes.

    Args:
        episodes: episodes from one or several runs; two records of one episode count once.
        evaluator: the evaluator whose scores to use; by default the one that all episodes share.
        metrics: see :attr:`Comparison.headlines`.
        by: one of :data:`~sotopia_env.reports.seat_results.FACTORS`, whose levels are compared too.
        baseline: a policy that all others are compared to.

    Raises:
        InvalidValueError: there are no episodes, or the episodes do not share one evaluator.
        UnknownNameError: no episode has an evaluation by ``evaluator``, or a metric, factor or policy is unknown.
    """
    (result,) = _adjusted([_comparison(*rows_by_one(episodes, evaluator), metrics, by, baseline)])
    return result


def compare_runs(
    runs: Iterable[str | Path],
    *,
    evaluator: str | None = None,
    metrics: Sequence[str] = (),
    by: str | None = None,
    baseline: str | None = None,
) -> Comparison:
    """Like :func:`compare`, for run directories or ``.jsonl`` files, which are only read.

    If all episodes share several evaluators, the one that the runs were configured with is used.
    """
    evaluators = () if evaluator is None else (evaluator,)
    (result,) = compare_judges(list(runs), evaluators, metrics, by=by, baseline=baseline)
    return result


def compare_judges(
    runs: Sequence[str | Path],
    evaluators: Sequence[str],
    metrics: Sequence[str] = (),
    *,
    primary: str | None = None,
    by: str | None = None,
    baseline: str | None = None,
    select: Callable[[Sequence[SeatResult]], list[SeatResult]] | None = None,
) -> tuple[Comparison, ...]:
    """Like :func:`compare_runs`, by each of several evaluators; p-values are adjusted over all differences in a metric.

    Args:
        runs: run directories or ``.jsonl`` files.
        evaluators: the names of the evaluators; if empty, the one that all episodes share.
        metrics: see :attr:`Comparison.headlines`; each evaluator is compared in those that it has.
        primary: see :attr:`CompareSpec.primary`.
        by: a factor whose levels are compared too.
        baseline: a policy that all others are compared to.
        select: returns the seats to compare; by default all.
    """
    selections = []
    for name in dict.fromkeys(evaluators) or (None,):
        evaluator, rows = run_rows(runs, name)
        # Selected before anything is computed, so that labels, common seats and ranks are those of the selection.
        selection = rows if select is None else select(rows)
        if not selection:
            raise InvalidValueError(field="partners", expected="partners that the policies have met")
        selections.append((evaluator, selection, {name for row in selection for name in row.values}))
    anywhere = set().union(*(present for *_, present in selections))
    results = []
    for evaluator, selection, present in selections:
        # A dimension of one evaluator is not asked of the others.
        own = [name for name in metrics if name in present or name not in anywhere]
        main = primary if primary in present or primary not in anywhere else None
        results.append(_comparison(evaluator, selection, own, by, baseline, main))
    return _adjusted(results)


def _adjusted(results: Sequence[Comparison]) -> tuple[Comparison, ...]:
    groups = with_q([result.differences for result in results])
    return tuple(replace(result, differences=group) for result, group in zip(results, groups, strict=True))


def run_rows(runs: Iterable[str | Path], evaluator: str | None) -> tuple[str | None, list[SeatResult]]:
    """Returns the evaluator and the rows of run directories or ``.jsonl`` files; see :func:`compare_runs`."""
    paths = [Path(run) for run in runs]

    def run_evaluators() -> list[str]:
        return [item.name for item in map(configured_evaluator, paths) if item is not None]

    name, rows = rows_by_one(finished_episodes(paths), evaluator, run_evaluators)
    return name, with_failed_seats(rows, paths)


def _names(row: SeatResult) -> set[str]:
    """The label of the policy in the seat and its recorded name, either of which a user may give."""
    return {row.policy, row.policies[row.seat][0]}


def _policy(name: str, rows: Iterable[SeatResult]) -> str:
    """The label of the policy with this label or, if there is none, with this recorded name."""
    policies = {row.policy: _names(row) for row in rows}
    # One name may have several labels, which differ by their parameters; then only a label is unambiguous.
    matches = [label for label, names in policies.items() if name == label] or [
        label for label, names in policies.items() if name in names
    ]
    if len(matches) != 1:
        raise UnknownNameError(field="baseline", got=name, valid=sorted(matches or policies))
    return matches[0]


def _comparison(
    evaluator: str | None,
    rows: Sequence[SeatResult],
    metrics: Sequence[str],
    by: str | None,
    baseline: str | None,
    primary: str | None = None,
) -> Comparison:
    bounds = metric_bounds(rows)
    present = {name for row in rows for name in row.values}
    check_metrics(metrics, primary, bounds, [name for name in bounds if name in present], evaluator)
    names = tuple(dict.fromkeys([*filter(None, [primary]), *(metrics or headlines(rows))]))
    # Words are the last of the standard metrics, so that there is a headline even if no seat has any value.
    names = names or (next(name for name in bounds if name in present or name == WORDS),)
    main = names[0]
    reasons: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row.unscored is not None:
            reasons[row.unscored].add(row.key)
    policies = tuple(sorted({row.policy for row in rows}))
    families = sorted({row.family for row in rows if row.family is not None})
    limits = {name: bounds[name] for name in bounds if name in present}
    # One set of seats for each metric: means, ranks, differences and families are all over it.
    seats = {name: ComparedSeats.of(rows, policies, name, bounds[name]) for name in dict.fromkeys([main, *limits])}
    common, unlike = seats[main].description, unlike_seats(rows)
    check_seats(policies, common, unlike)
    compared = _in_common(rows, seats[main])
    valued = [seats[name] for name in limits]
    cells, gaps = tuple(_cells(valued, policies)), differences(valued, policies)
    # Nobody is ranked by the number of words, unless somebody asks for it.
    ranked = main != WORDS or WORDS in (*metrics, primary)
    check_levels(by, ranked)
    group = common.policies or policies
    estimates = {c.policy: c.estimate for c in cells if ranked and c.metric == main and c.policy in group}
    ranks = metric_ranking(estimates, gaps, main)
    # The ranking above needs the differences of all pairs; what is reported are those to the baseline, if there is one.
    if baseline is not None:
        baseline = _policy(baseline, rows)
        gaps = baseline_differences([seats[name] for name in names if name in limits], policies, baseline)
    return Comparison(
        evaluator=evaluator,
        outcomes_by=tuple(sorted({row.outcome_by for row in rows if row.outcome_by is not None})),
        policies=policies,
        metrics=tuple(limits),
        headlines=names,
        episodes=len({row.key for row in rows}),
        unscored=len({key for keys in reasons.values() for key in keys}),
        reasons=tuple(sorted((reason, len(keys)) for reason, keys in reasons.items())),
        cells=cells,
        families=tuple(
            cell
            for family in families
            for cell in _cells([seats[n] for n in _OF_FAMILIES if n in limits], policies, family)
        ),
        differences=tuple(replace(gap, evaluator=evaluator) for gap in gaps),
        matrix=_matrix([seats[name] for name in names if name in seats], policies),
        common=common,
        unlike=unlike,
        imbalances=tuple(_imbalances(compared, policies)),
        ranking=ranks,
        constant=_constants(rows, limits),
        turns=tuple((policy, total(row.counts for row in rows if row.policy == policy)) for policy in policies),
        by=None if by is None else by_level(compared, by, main, bounds[main]),
        ranges={name: (_finite(low), _finite(high)) for name, (low, high) in limits.items()},
        partners=_partners(rows, policies),
        baseline=baseline,
        scored_by=rows[0].scored_by,
    )


def _partners(rows: Iterable[SeatResult], policies: Sequence[str]) -> tuple[str, ...]:
    seated = {row.partner: {p for seat, p in enumerate(row.policies) if seat != row.seat} for row in rows}
    single = [partner for partner, others in seated.items() if len(others) == 1]
    return tuple(sorted(single or seated, key=lambda name: (name not in policies, name)))


def _finite(end: float) -> float | None:
    return end if math.isfinite(end) else None


def _constants(rows: Sequence[SeatResult], metrics: Iterable[str]) -> tuple[tuple[str, float], ...]:
    values = {metric: {row.values[metric] for row in rows if metric in row.values} for metric in metrics}
    return tuple((metric, next(iter(distinct))) for metric, distinct in values.items() if len(distinct) == 1)


def _in_common(rows: Sequence[SeatResult], seats: ComparedSeats) -> list[SeatResult]:
    """The played rows, with repeats, that means of the main metric are over."""
    group = seats.description.policies
    own = [row for row in rows if row.policy not in group or shared_seat(row) in seats.common]
    return [row for row in own if not row.failed]


def _cells(metrics: Iterable[ComparedSeats], policies: Iterable[str], family: str | None = None) -> Iterator[Cell]:
    for seats, policy in itertools.product(metrics, policies):
        own = [seat for seat in seats.compared(policy) if family in (None, seat.family)]
        if own:
            missing = sum(lacks(row, seats.metric) and family in (None, row.family) for row in seats.rows[policy])
            mean = seat_mean(own, seats.metric, seats.bounds)
            yield Cell(family or "all", policy, seats.metric, missing, mean)


def _imbalances(rows: Sequence[SeatResult], policies: Iterable[str]) -> Iterable[Imbalance]:
    for policy, seats in itertools.product(policies, sorted({row.seats for row in rows})):
        own = [row for row in rows if (row.policy, row.seats) == (policy, seats)]
        by_seat = tuple(sum(row.seat == seat for row in own) for seat in range(seats))
        # In simultaneous and random order, acting first is no advantage that could be balanced.
        first = sum(row.first for row in own if row.by_order)
        in_order = sum(row.by_order for row in own)
        if len(set(by_seat)) > 1 or first * seats != in_order:
            yield Imbalance(policy, seats, by_seat, first, in_order)


def _matrix(metrics: Iterable[ComparedSeats], policies: Sequence[str]) -> tuple[MatrixCell, ...]:
    cells = []
    for seats, policy in itertools.product(metrics, policies):
        met = {seat.partner for seat in seats.compared(policy)}
        for partner in (*(name for name in policies if name in met), *sorted(met - set(policies))):
            own = seats.with_partner(partner)
            missing = sum(lacks(row, seats.metric) for row in own.rows[policy])
            mean = seat_mean(own.compared(policy), seats.metric, seats.bounds)
            cells.append(MatrixCell(policy, partner, seats.metric, missing, mean))
    return tuple(cells)
