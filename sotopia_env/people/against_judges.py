"""How far judges agree with people (SOTOPIA, arXiv 2310.11667, §5 and appendix G.3).

Everything is over *seats*: one agent of one episode. The human score of a seat on a dimension is the mean over its
annotators. A seat that the judge did not score is counted and left out, never taken for 0. What cannot be computed has
a reason in place of a number. The p-values take seats as independent, as the paper does; seats of one episode are not
quite.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sotopia_env.errors import InvalidValueError, UnknownNameError, name_hint
from sotopia_env.people.answers import Annotation, AnnotationSet
from sotopia_env.people.between_annotators import (
    BINS,
    DEFAULT_BINS,
    AnnotatorAgreement,
    HumanScores,
    Scales,
    Seat,
    Statistic,
    annotator_table,
    bin_of,
    mean_of,
)
from sotopia_env.people.quality import QualityRules, Screening, screen
from sotopia_env.people.sheet import fingerprint
from sotopia_env.reports.judge_agreement import Agreement, agreement_table
from sotopia_env.world.episode import Episode, Evaluation

_STEP = 0.5
_NONE = "no seat was scored by both"


@dataclass(frozen=True, slots=True)
class JudgeOnDimension:
    """A judge against people on one dimension.

    Attributes:
        n: seats that the judge and at least one annotator scored.
        unscored: seats that an annotator scored and the judge did not.
        pearson: correlation with the human scores; ``spearman`` the same of their ranks.
        mean_difference: mean of judge less human score, in points; positive for a lenient judge.
        sd_difference: its sample standard deviation.
        sd_human: sample standard deviation of the human scores over these seats.
        within_sd: share of the judge's scores at most ``sd_human`` from the human score (§5.2, figure 2).
        ranged: those of the ``n`` seats that two or more annotators scored, which gives a perceived range from the
            lowest to the highest of their scores (G.3).
        inside: share of these where the judge's score lies in it, ends included; ``above`` and ``below`` likewise.
    """

    judge: str
    dimension: str
    n: int
    unscored: int
    pearson: Statistic
    spearman: Statistic
    mean_difference: Statistic
    sd_difference: Statistic
    sd_human: Statistic
    within_sd: Statistic
    ranged: int
    inside: Statistic
    above: Statistic
    below: Statistic


@dataclass(frozen=True, slots=True)
class JudgeOverall:
    """A judge over all dimensions.

    Attributes:
        unscored: annotated seats without any score by it; ``reasons`` says why, with counts, most frequent first.
        n: its scores on all dimensions that have a standard deviation to compare with.
        within_sd: share of these within a standard deviation, each dimension's own.
        ranged: its scores, all dimensions together, that have a perceived range; ``inside``, ``above`` and ``below``
            are shares of these.
    """

    judge: str
    unscored: int
    reasons: tuple[tuple[str, int], ...]
    n: int
    within_sd: Statistic
    ranged: int
    inside: Statistic
    above: Statistic
    below: Statistic


@dataclass(frozen=True, slots=True)
class PerceivedRange:
    """Seats whose perceived ranges are similar: both ends fall into the same bins (G.3).

    Attributes:
        low: mean lower end; ``high`` the mean upper end; ``judge_mean`` the judge's mean score for these ``n`` seats.
    """

    judge: str
    dimension: str
    n: int
    low: float
    high: float
    judge_mean: float


@dataclass(frozen=True, slots=True)
class DifferenceBin:
    """How many differences judge - human lie in ``[low, high)``; bins are half a point wide, around multiples of it."""

    judge: str
    dimension: str
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class HumanAgreement:
    """Everything :func:`human_agreement` found out; rows stand by judge, then by dimension.

    Attributes:
        bins: the number of bins to show first.
        between_judges: the judges against each other, over the annotated episodes; empty for fewer than two.
    """

    annotations: AnnotationSet
    screening: Screening
    bins: int
    dimensions: tuple[str, ...]
    judges: tuple[str, ...]
    by_dimension: tuple[JudgeOnDimension, ...]
    overall: tuple[JudgeOverall, ...]
    annotators: tuple[AnnotatorAgreement, ...]
    ranges: tuple[PerceivedRange, ...]
    differences: tuple[DifferenceBin, ...]
    between_judges: tuple[Agreement, ...]


def human_agreement(
    episodes: Iterable[Episode],
    found: AnnotationSet,
    *,
    rules: QualityRules | None = None,
    judges: Sequence[str] | None = None,
    bins: int = DEFAULT_BINS,
) -> HumanAgreement:
    """Compares evaluations with annotations.

    Args:
        episodes: those of the run that was annotated; others among them are passed over.
        found: what the annotators sent back.
        rules: which annotations to use (:func:`~sotopia_env.people.quality.screen`); ``None`` takes the defaults.
        judges: evaluations by name; ``None`` takes all that the annotated episodes have, in order.
        bins: the number of bins to show first.

    Raises:
        InvalidValueError: annotated episodes are not among the episodes, or went another way than the annotators
            read; a custom dimension has another range than they were told; ``bins`` is not in :data:`BINS`.
        UnknownNameError: no annotated episode has an evaluation called so.
    """
    if bins not in BINS:
        raise InvalidValueError(f"bins: expected {BINS[0]} to {BINS[-1]}, got {bins!r}")
    screening = screen(found, rules)
    read = _annotated(episodes, found)
    names = _judges(read.values(), judges)
    scales, people = found.key.scales, _human_scores(screening.kept)
    by_dimension, overall, ranges, differences = [], [], [], []
    for judge in names:
        scores, missing = _judge_scores(read, judge, people, scales)
        by_judge = {d: _compared(d, scores, people) for d in scales}
        rows = [_on_dimension(judge, d, *by_judge[d]) for d in scales]
        by_dimension += rows
        overall.append(_overall(judge, rows, missing))
        for d, (pairs, _) in by_judge.items():
            ranges += _ranges(judge, d, pairs, scales[d])
            differences += _histogram(judge, d, pairs)
    return HumanAgreement(
        annotations=found,
        screening=screening,
        bins=bins,
        dimensions=tuple(scales),
        judges=names,
        by_dimension=tuple(by_dimension),
        overall=tuple(overall),
        annotators=annotator_table(people, scales),
        ranges=tuple(ranges),
        differences=tuple(differences),
        between_judges=agreement_table(read.values(), names) if len(names) > 1 else (),
    )


def _annotated(episodes: Iterable[Episode], found: AnnotationSet) -> dict[str, Episode]:
    shown = {request.episode: request.transcript for request in found.key.requests}
    read = {episode.key: episode for episode in episodes if episode.key in shown}
    absent = [key for key in shown if key not in read]
    if absent:
        raise InvalidValueError(
            f"annotations: expected the run that was annotated, but {len(absent)} of {len(shown)} annotated episodes "
            f"are not in it, the first being {absent[0]!r}"
        )
    for key, episode in read.items():
        if fingerprint(episode) != shown[key]:
            raise InvalidValueError(f"episode {key!r}: has another transcript than the one the annotators read")
    return read


def _judges(episodes: Iterable[Episode], wanted: Sequence[str] | None) -> tuple[str, ...]:
    known = list(dict.fromkeys(e.evaluator for episode in episodes for e in episode.evaluations))
    for name in wanted or ():
        if name not in known:
            raise UnknownNameError(f"judge: {name_hint(name, known)}")
    return tuple(dict.fromkeys(known if wanted is None else wanted))


def _human_scores(kept: Iterable[Annotation]) -> HumanScores:
    people: dict[Seat, dict[str, list[float]]] = {}
    for annotation in kept:
        own = people.setdefault(annotation.seat, {})
        for name, value in annotation.scores.items():
            own.setdefault(name, []).append(value)
    return people


_Judged = Mapping[Seat, Mapping[str, float]]


def _judge_scores(
    read: Mapping[str, Episode], judge: str, people: HumanScores, scales: Scales
) -> tuple[_Judged, Counter[str]]:
    """Returns the judge's scores of the annotated seats, and why it has none for the seats without any."""
    judged: dict[Seat, Mapping[str, float]] = {}
    missing: Counter[str] = Counter()
    for key, agent in people:
        evaluation = read[key].evaluation(judge)
        scores = {} if evaluation is None or evaluation.unscored is not None else evaluation.by_agent.get(agent, {})
        judged[key, agent] = {str(name): score.value for name, score in scores.items()}
        if evaluation is None or not scores:
            missing[_why_unscored(evaluation, judge, agent)] += 1
        else:
            _check_ranges(evaluation, scales)
    return judged, missing


def _why_unscored(evaluation: Evaluation | None, judge: str, agent: str) -> str:
    if evaluation is None:
        return f"not evaluated by {judge}"
    return evaluation.unscored or f"no score for {agent}"


def _check_ranges(evaluation: Evaluation, scales: Scales) -> None:
    for item in evaluation.dimensions:
        low, high = scales.get(item.name, (item.low, item.high))
        if (item.low, item.high) != (low, high):
            raise InvalidValueError(
                f"dimension {item.name!r}: annotators were told {low} to {high}, "
                f"{evaluation.evaluator} scored {item.low} to {item.high}"
            )


@dataclass(frozen=True, slots=True)
class _Pair:
    """A judge's score beside those of the annotators."""

    judge: float
    people: Sequence[float]

    @property
    def human(self) -> float:
        # Rounded, so that equal means of different scores tie in ranks.
        return round(math.fsum(self.people) / len(self.people), 9)

    @property
    def difference(self) -> float:
        return self.judge - self.human


def _compared(dimension: str, judged: _Judged, people: HumanScores) -> tuple[list[_Pair], int]:
    """Returns the seats that both sides scored, and how many the judge alone left out."""
    pairs, unscored = [], 0
    for seat, scores in people.items():
        if dimension in scores and dimension in judged[seat]:
            pairs.append(_Pair(judged[seat][dimension], scores[dimension]))
        elif dimension in scores:
            unscored += 1
    return pairs, unscored


def _on_dimension(judge: str, dimension: str, pairs: Sequence[_Pair], unscored: int) -> JudgeOnDimension:
    ours, humans = [pair.judge for pair in pairs], [pair.human for pair in pairs]
    differences = [pair.difference for pair in pairs]
    pearson, spearman = correlations(ours, humans)
    sd_human, ranged = _deviation(humans), [pair for pair in pairs if len(pair.people) > 1]
    return JudgeOnDimension(
        judge=judge,
        dimension=dimension,
        n=len(pairs),
        unscored=unscored,
        pearson=pearson,
        spearman=spearman,
        mean_difference=mean_of(differences, _NONE),
        sd_difference=_deviation(differences),
        sd_human=sd_human,
        within_sd=_within(differences, sd_human),
        ranged=len(ranged),
        inside=_range_share((min(p.people) <= p.judge <= max(p.people) for p in ranged), len(pairs)),
        above=_range_share((p.judge > max(p.people) for p in ranged), len(pairs)),
        below=_range_share((p.judge < min(p.people) for p in ranged), len(pairs)),
    )


def correlations(judge: Sequence[float], human: Sequence[float]) -> tuple[Statistic, Statistic]:
    """Returns Pearson's r and Spearman's rho with their p-values, or why there are none."""
    reason = None
    if len(judge) < 3:
        reason = _too_few(len(judge), 3)
    elif max(judge) - min(judge) < 1e-9:
        reason = "the judge's scores are all the same"
    elif max(human) - min(human) < 1e-9:
        reason = "the human scores are all the same"
    if reason is not None:
        return Statistic(None, reason), Statistic(None, reason)
    from scipy import stats

    found = (stats.pearsonr(judge, human), stats.spearmanr(judge, human))
    pearson, spearman = (Statistic(float(f.statistic), p=float(f.pvalue)) for f in found)
    return pearson, spearman


def _too_few(n: int, needed: int) -> str:
    return f"{n} seats, at least {needed} are needed" if n else _NONE


def _deviation(values: Sequence[float]) -> Statistic:
    if len(values) < 2:
        return Statistic(None, _too_few(len(values), 2))
    return Statistic(statistics.stdev(values))


def _within(differences: Sequence[float], sd: Statistic) -> Statistic:
    if sd.value is None:
        return Statistic(None, sd.reason)
    if sd.value < 1e-9:
        return Statistic(None, "the human scores are all the same")
    return Statistic(sum(abs(d) <= sd.value + 1e-9 for d in differences) / len(differences))


def _range_share(hits: Iterable[bool], n: int) -> Statistic:
    return mean_of([float(hit) for hit in hits], "no seat was scored by the judge and two annotators" if n else _NONE)


def _overall(judge: str, rows: Sequence[JudgeOnDimension], missing: Counter[str]) -> JudgeOverall:
    banded = [row for row in rows if row.within_sd.value is not None]
    ranged = [row for row in rows if row.ranged]
    return JudgeOverall(
        judge=judge,
        unscored=missing.total(),
        reasons=tuple(missing.most_common()),
        n=sum(row.n for row in banded),
        within_sd=_pooled([(row.within_sd, row.n) for row in banded]),
        ranged=sum(row.ranged for row in ranged),
        inside=_pooled([(row.inside, row.ranged) for row in ranged]),
        above=_pooled([(row.above, row.ranged) for row in ranged]),
        below=_pooled([(row.below, row.ranged) for row in ranged]),
    )


def _pooled(shares: Sequence[tuple[Statistic, int]]) -> Statistic:
    total = sum(n for _, n in shares)
    if not total:
        return Statistic(None, "no dimension has one")
    return Statistic(math.fsum(share.value * n for share, n in shares if share.value is not None) / total)


def _ranges(judge: str, dimension: str, pairs: Sequence[_Pair], scale: tuple[int, int]) -> list[PerceivedRange]:
    bins = min(DEFAULT_BINS, scale[1] - scale[0] + 1)
    groups: dict[tuple[int, int], list[_Pair]] = defaultdict(list)
    for pair in pairs:
        if len(pair.people) > 1:
            low, high = (bin_of(end, scale, bins) for end in (min(pair.people), max(pair.people)))
            groups[low, high].append(pair)
    return [
        PerceivedRange(
            judge=judge,
            dimension=dimension,
            n=len(group),
            low=math.fsum(min(pair.people) for pair in group) / len(group),
            high=math.fsum(max(pair.people) for pair in group) / len(group),
            judge_mean=math.fsum(pair.judge for pair in group) / len(group),
        )
        for _, group in sorted(groups.items())
    ]


def _histogram(judge: str, dimension: str, pairs: Iterable[_Pair]) -> list[DifferenceBin]:
    counts = Counter(math.floor(pair.difference / _STEP + 0.5) for pair in pairs)
    return [
        DifferenceBin(judge, dimension, (step - 0.5) * _STEP, (step + 0.5) * _STEP, n)
        for step, n in sorted(counts.items())
    ]
