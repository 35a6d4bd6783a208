"""Agreement of several judges on the same episodes, with intervals over scenarios."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.people.between_annotators import Statistic
from sotopia_env.people.correlations import NO_SEAT, correlations, mean_with_interval
from sotopia_env.reports.agreement import evaluator_names
from sotopia_env.world.episode import Episode, Evaluation
from sotopia_env.world.reward import RANGES, Dimension


@dataclass(frozen=True, slots=True)
class JudgeAgreement:
    """The agreement of two judges on one dimension, over the seats that both scored.

    Attributes:
        first: the name of one evaluation.
        second: the name of the other evaluation.
        dimension: one of the seven dimensions, or the name of a custom one.
        n: the number of seats that both scored.
        missing: the number of seats that were not scored by both.
        pearson: the correlation of the scores, in [-1, 1]; undefined for fewer than three seats or a constant judge.
        spearman: the rank correlation of the scores, in [-1, 1]; undefined as ``pearson``.
        mean_difference: the mean of the absolute differences, in the unit of the dimension.
    """

    first: str
    second: str
    dimension: Dimension | str
    n: int
    missing: int
    pearson: Statistic
    spearman: Statistic
    mean_difference: Statistic


@dataclass(frozen=True, slots=True)
class _Pair:
    scores: tuple[float, float]
    scenario: str
    width: float
    """The width of the dimension's range, which is the largest difference."""


def judge_agreement(episodes: Iterable[Episode], names: Sequence[str] | None = None) -> tuple[JudgeAgreement, ...]:
    """Returns the agreement of every pair of evaluators on every dimension.

    Args:
        episodes: evaluated episodes.
        names: the evaluations to compare, by name; ``None`` compares all.

    Raises:
        InvalidValueError: there are fewer than two evaluations to compare.
        UnknownNameError: no episode has an evaluation of that name.
    """
    rated = list(episodes)
    choice = evaluator_names(rated, names, "evaluation")
    if len(choice) < 2:
        raise InvalidValueError(field="evaluations", expected="at least two to compare", got=list(choice))
    return tuple(row for first, second in itertools.combinations(choice, 2) for row in _rows(rated, first, second))


def _rows(episodes: Sequence[Episode], first: str, second: str) -> list[JudgeAgreement]:
    pairs: dict[Dimension | str, list[_Pair]] = defaultdict(list)
    seats = 0
    for episode in episodes:
        one, other = episode.evaluation(first), episode.evaluation(second)
        for agent in episode.task.agents:
            seats += 1
            if one is not None and other is not None:
                for dimension, pair in _common_scores(one, other, agent, episode.task.scenario.vignette):
                    pairs[dimension].append(pair)
    return [_row(first, second, dimension, own, seats - len(own)) for dimension, own in pairs.items()]


def _common_scores(
    one: Evaluation, other: Evaluation, agent: str, scenario: str
) -> Iterator[tuple[Dimension | str, _Pair]]:
    ranges: dict[str, tuple[float, float]] = {d.value: ends for d, ends in RANGES.items()}
    ranges |= {d.name: (d.low, d.high) for d in (*one.dimensions, *other.dimensions)}
    left, right = one.by_agent.get(agent, {}), other.by_agent.get(agent, {})
    for dimension in left:
        if dimension in right:
            low, high = ranges[str(dimension)]
            yield dimension, _Pair((left[dimension].value, right[dimension].value), scenario, high - low)


def _row(first: str, second: str, dimension: Dimension | str, pairs: Sequence[_Pair], missing: int) -> JudgeAgreement:
    xs, ys = ([pair.scores[side] for pair in pairs] for side in range(2))
    scenarios, widest = [pair.scenario for pair in pairs], max(pair.width for pair in pairs)
    r, rho = correlations(xs, ys, scenarios, (f"the scores of {first}", f"the scores of {second}"))
    gaps = [abs(x - y) for x, y in zip(xs, ys, strict=True)]
    difference = mean_with_interval(gaps, scenarios, (0.0, widest), NO_SEAT)
    return JudgeAgreement(first, second, dimension, len(pairs), missing, r, rho, difference)
