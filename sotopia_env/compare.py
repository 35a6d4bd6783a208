r"""What recorded episodes say about policies: means with intervals, paired differences, who does how well with whom.

Every score belongs to the policy that sat in the scored seat. Episodes of one scenario resemble each other, so
intervals and tests are clustered by scenario: with residuals :math:`e_i` around the mean of ``n`` values in ``G``
scenarios,

.. math:: SE^2 = \frac{G}{G-1} \frac{1}{n^2} \sum_g \Big(\sum_{i \in g} e_i\Big)^2

(Liang and Zeger 1986; Cameron and Miller 2015, section II), with Student's t on ``G - 1`` degrees of freedom from
scipy. It is what statsmodels' OLS on a constant gives with ``cov_type="cluster"``, and with equally many values per
scenario it is the t interval over scenario means. With one scenario there is no interval: ``None``, shown as ``n/a``.
Intervals are not cut at the ends of a metric's range. Every seat weighs the same, so tasks with more seats weigh more.
Unscored seats are counted and left out; they are never zeros.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sotopia_env.action import ActionType
from sotopia_env.episode import Episode, Evaluation, OutcomeResult
from sotopia_env.errors import InvalidValueError, UnknownNameError, name_hint
from sotopia_env.reward import DIMENSIONS
from sotopia_env.run_directory import read_run
from sotopia_env.scenario import canonical_json

OVERALL, SUCCESS, SHARE, EFFICIENCY, WORDS = "overall", "success", "surplus_share", "efficiency", "words_per_turn"
METRICS: tuple[str, ...] = (*(d.value for d in DIMENSIONS), OVERALL, SUCCESS, SHARE, EFFICIENCY, WORDS)
"""What can be compared: the seven dimensions and their mean (native ranges); for verified families the rate of
agreement, the seat's share of the surplus (0 at disagreement, 1 at its best) and the joint efficiency; and how many
words a seat spoke per turn of its own."""
_SCORED = (*(d.value for d in DIMENSIONS), OVERALL)
_HEADLINES = (OVERALL, "goal", SHARE, SUCCESS)


@dataclass(frozen=True, slots=True)
class SeatResult:
    """One seat of one episode, as the policy in it did.

    Attributes:
        seated: name and parameters (as JSON) of the policy in every seat.
        first: whether the seat acted first.
        family: the procedural family, ``None`` for a task without a verified outcome.
        values: metric to value; a metric that does not apply or was not scored is absent.
        unscored: why there are no scores, ``None`` when there are.
        policy: label of the policy in the seat.
        partner: label of the policies in the others, joined by ``+`` when they differ.
    """

    key: str
    task: str
    scenario: str
    seed: int
    seat: int
    seated: tuple[tuple[str, str], ...]
    first: bool
    family: str | None
    values: Mapping[str, float]
    unscored: str | None
    policy: str = ""
    partner: str = ""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean and what is known about it.

    Attributes:
        n: number of values; ``clusters`` is the number of scenarios they come from.
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
        paired_by: what matched seats have in common; the closest match at hand is taken.
        q: Benjamini-Hochberg adjusted p-value over all differences of the comparison.
    """

    first: str
    second: str
    metric: str
    paired_by: str
    estimate: Estimate
    q: float | None


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """A metric of ``policy`` when it sits with ``partner``."""

    policy: str
    partner: str
    metric: str
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything :func:`compare` found out.

    Attributes:
        policies: labels, in alphabetical order.
        metrics: the metrics for which there are values, in the order of :data:`METRICS`.
        main: the metric of the matrix and of the charts unless another is asked for.
        episodes: number of episodes read.
        unscored: number of episodes with at least one seat without scores, and the reasons with their counts.
    """

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

    def cell(self, policy: str, metric: str) -> Cell | None:
        """The cell of a policy and metric over all tasks, ``None`` where there are no values."""
        return next((cell for cell in self.cells if (cell.policy, cell.metric) == (policy, metric)), None)


def estimate(values: Sequence[float], clusters: Sequence[str]) -> Estimate:
    """Returns mean, 95 % interval and p-value against 0, clustered (see the module's formula).

    Raises:
        InvalidValueError: no values, or not one cluster label for each.
    """
    from scipy import stats

    if not values or len(values) != len(clusters):
        raise InvalidValueError(f"expected one cluster per value, got {len(values)} values, {len(clusters)} clusters")
    n, mean = len(values), math.fsum(values) / len(values)
    residuals: dict[str, float] = defaultdict(float)
    for value, cluster in zip(values, clusters, strict=True):
        residuals[cluster] += value - mean
    count = len(residuals)
    if count < 2:
        return Estimate(n, count, mean, None, None, None)
    error = math.sqrt(count / (count - 1) * math.fsum(r * r for r in residuals.values())) / n
    if error <= 1e-12 * max(1.0, abs(mean)):  # no variation beyond rounding
        return Estimate(n, count, mean, mean, mean, None)
    half = float(stats.t.ppf(0.975, count - 1)) * error
    p = 2 * float(stats.t.sf(abs(mean) / error, count - 1))
    return Estimate(n, count, mean, mean - half, mean + half, p)


def compare(episodes: Iterable[Episode], *, evaluator: str | None = None, metric: str | None = None) -> Comparison:
    """Compares the policies of recorded episodes.

    Args:
        episodes: from one or several runs; an episode that occurs twice is an error.
        evaluator: whose scores to use; by default the latest evaluation of each episode, and the latest verified
            outcome.
        metric: the metric of the matrix; by default overall, or goal, surplus share, … if that has no values.

    Raises:
        InvalidValueError: no episodes, or two records of one episode.
        UnknownNameError: no episode has an evaluation by ``evaluator``, or there is no such ``metric``.
    """
    rows = seat_results(episodes, evaluator)
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
    verified = [name for name in (SUCCESS, SHARE, EFFICIENCY, "goal") if name in present]
    return Comparison(
        policies=policies,
        metrics=metrics,
        main=main,
        episodes=len({row.key for row in rows}),
        unscored=len({key for keys in reasons.values() for key in keys}),
        reasons=tuple(sorted((reason, len(keys)) for reason, keys in reasons.items())),
        cells=_cells("all", rows, policies, metrics),
        families=tuple(
            cell for f in families for cell in _cells(f, [r for r in rows if r.family == f], policies, verified)
        ),
        differences=_differences(rows, policies, metrics),
        matrix=_matrix(rows, policies, main),
    )


def compare_runs(runs: Iterable[str | Path], *, evaluator: str | None = None, metric: str | None = None) -> Comparison:
    """As :func:`compare`, for run directories or ``.jsonl`` files; they are only read."""
    episodes = itertools.chain.from_iterable(read_run(run) for run in runs)
    return compare(episodes, evaluator=evaluator, metric=metric)


def seat_results(episodes: Iterable[Episode], evaluator: str | None = None) -> list[SeatResult]:
    """Returns one row per seat and episode; policies of one name with different parameters get different labels.

    Raises:
        InvalidValueError: no episodes, two records of one episode, or a seat without a recorded policy.
        UnknownNameError: no episode has an evaluation by ``evaluator``.
    """
    seen: set[str] = set()
    evaluators: set[str] = set()
    rows: list[SeatResult] = []
    for episode in episodes:
        if episode.key in seen:
            raise InvalidValueError(f"episode {episode.key!r} occurs twice; is a run named twice?")
        seen.add(episode.key)
        evaluators.update(evaluation.evaluator for evaluation in episode.evaluations)
        rows += _seats(episode, evaluator)
    if not rows:
        raise InvalidValueError("nothing to compare: expected at least one episode, got none")
    if evaluator is not None and evaluator not in evaluators:
        raise UnknownNameError(f"evaluator: {name_hint(evaluator, sorted(evaluators))}")
    return _labelled(rows)


def _labelled(rows: Sequence[SeatResult]) -> list[SeatResult]:
    """Replaces identities by labels: the name where it is enough, name and parameters where it is not."""
    variants: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        variants[row.seated[row.seat][0]].add(row.seated[row.seat][1])
    labelled = []
    for row in rows:
        labels = [name if len(variants[name]) == 1 else f"{name} {parameters}" for name, parameters in row.seated]
        partners = {label for seat, label in enumerate(labels) if seat != row.seat}
        labelled.append(replace(row, policy=labels[row.seat], partner="+".join(sorted(partners))))
    return labelled


def _seats(episode: Episode, evaluator: str | None) -> Iterable[SeatResult]:
    evaluation, outcome = episode.evaluation(evaluator), _outcome(episode, evaluator)
    policies = {info.agent: (info.name, canonical_json(info.parameters)) for info in episode.policies}
    if set(policies) != set(episode.task.agents):
        raise InvalidValueError(
            f"episode {episode.key!r}: expected a policy for each of {', '.join(episode.task.agents)}, "
            f"got {', '.join(policies) or 'none'}"
        )
    seated = tuple(policies[agent] for agent in episode.task.agents)
    family = episode.task.scenario.outcome.family if episode.task.scenario.outcome else None
    for seat, agent in enumerate(episode.task.agents):
        scores = _scores(evaluation, agent)
        yield SeatResult(
            key=episode.key,
            task=episode.task.id,
            scenario=episode.task.scenario.id,
            seed=episode.seed,
            seat=seat,
            seated=seated,
            first=bool(episode.turns) and episode.turns[0].turn.actor == agent,
            family=family,
            values={**scores, **_outcome_values(outcome, seat), **_words(episode, agent)},
            unscored=None if scores else _why_unscored(evaluation, evaluator, agent),
        )


def _outcome(episode: Episode, evaluator: str | None) -> OutcomeResult | None:
    found = [e.outcome for e in episode.evaluations if evaluator in (None, e.evaluator) and e.outcome is not None]
    return found[-1] if found else None


def _scores(evaluation: Evaluation | None, agent: str) -> dict[str, float]:
    if evaluation is None or evaluation.unscored is not None:
        return {}
    by_dimension = evaluation.by_agent.get(agent, {})
    scores = {d.value: float(by_dimension[d].value) for d in DIMENSIONS if d in by_dimension}
    if len(scores) == len(DIMENSIONS):
        scores[OVERALL] = math.fsum(scores.values()) / len(DIMENSIONS)
    return scores


def _why_unscored(evaluation: Evaluation | None, evaluator: str | None, agent: str) -> str:
    if evaluation is None:
        return f"not evaluated by {evaluator}" if evaluator else "not evaluated"
    return evaluation.unscored or f"{evaluation.evaluator}: no score for {agent}"


def _outcome_values(outcome: OutcomeResult | None, seat: int) -> dict[str, float]:
    if outcome is None:
        return {}
    return {SUCCESS: float(outcome.agreement), SHARE: outcome.shares[seat], EFFICIENCY: outcome.efficiency}


def _words(episode: Episode, agent: str) -> dict[str, float]:
    actions = [item.turn.action for item in episode.turns if item.turn.actor == agent]
    if not actions:
        return {}
    spoken = sum(len(a.argument.split()) for a in actions if a.action_type is ActionType.SPEAK)
    return {WORDS: spoken / len(actions)}


def _cells(group: str, rows: Sequence[SeatResult], policies: Iterable[str], metrics: Iterable[str]) -> tuple[Cell, ...]:
    cells = []
    for metric, policy in itertools.product(metrics, policies):
        own = [row for row in rows if row.policy == policy]
        having = [row for row in own if metric in row.values]
        if having:
            missing = sum(row.unscored is not None for row in own) if metric in _SCORED else 0
            cells.append(Cell(group, policy, metric, missing, _estimate(having, metric)))
    return tuple(cells)


def _estimate(rows: Sequence[SeatResult], metric: str) -> Estimate:
    return estimate([row.values[metric] for row in rows], [row.scenario for row in rows])


def _matrix(rows: Sequence[SeatResult], policies: Sequence[str], metric: str) -> tuple[MatrixCell, ...]:
    partners = (*policies, *sorted({row.partner for row in rows} - set(policies)))
    cells = []
    for policy, partner in itertools.product(policies, partners):
        met = [r for r in rows if (r.policy, r.partner) == (policy, partner) and metric in r.values]
        if met:
            cells.append(MatrixCell(policy, partner, metric, _estimate(met, metric)))
    return tuple(cells)


_Match = Callable[[SeatResult], tuple[object, ...]]
_MATCHES: tuple[tuple[str, _Match], ...] = (
    ("task, seat, partner, order, seed", lambda r: (r.task, r.seat, r.partner, r.first, r.seed)),
    ("task, seat, partner", lambda r: (r.task, r.seat, r.partner)),
    ("task, seat", lambda r: (r.task, r.seat)),
    ("task", lambda r: (r.task,)),
)


def _differences(rows: Sequence[SeatResult], policies: Sequence[str], metrics: Sequence[str]) -> tuple[Difference, ...]:
    found = []
    by_policy = {policy: [row for row in rows if row.policy == policy] for policy in policies}
    for first, second in itertools.combinations(policies, 2):
        for metric in metrics:
            difference = _difference(by_policy, first, second, metric)
            if difference is not None:
                found.append(difference)
    return _adjusted(found)


def _difference(rows: Mapping[str, Sequence[SeatResult]], first: str, second: str, metric: str) -> Difference | None:
    sides = [[row for row in rows[name] if metric in row.values] for name in (first, second)]
    for paired_by, match in _MATCHES:
        left, right = (_grouped(side, match, metric) for side in sides)
        common = sorted(left.keys() & right.keys(), key=repr)
        if common:
            scenario = {match(row): row.scenario for row in sides[0]}
            values = [left[key] - right[key] for key in common]
            return Difference(
                first, second, metric, paired_by, estimate(values, [scenario[key] for key in common]), None
            )
    return None


def _grouped(rows: Sequence[SeatResult], match: _Match, metric: str) -> dict[tuple[object, ...], float]:
    groups: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for row in rows:
        groups[match(row)].append(row.values[metric])
    return {key: math.fsum(values) / len(values) for key, values in groups.items()}


def _adjusted(differences: Sequence[Difference]) -> tuple[Difference, ...]:
    from scipy import stats

    tested = [d.estimate.p for d in differences if d.estimate.p is not None]
    adjusted = iter(stats.false_discovery_control(tested, method="bh").tolist() if tested else ())
    return tuple(replace(d, q=None if d.estimate.p is None else next(adjusted)) for d in differences)
