"""Agreement of judges with human annotators (SOTOPIA, arXiv 2310.11667, §5 and appendix G.3).

All statistics are over *seats*: one agent of one episode. The human score of a seat on a dimension is the mean over its
annotators. A seat that the judge did not score is counted and excluded; it never has the score 0. A statistic that
cannot be computed has a reason instead of a number. Intervals and p-values of correlations are over scenarios, because
seats of one scenario resemble each other: p-values that treat seats as independent, as in the paper, reject .15 to .23
of true hypotheses at .05.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.people.answers import Annotation, AnnotationSet
from sotopia_env.people.between_annotators import (
    BINS,
    DEFAULT_BINS,
    AnnotatorAgreement,
    HumanScores,
    Scales,
    Seat,
    Statistic,
    annotator_agreement,
    bin_of,
)
from sotopia_env.people.between_judges import JudgeAgreement, judge_agreement
from sotopia_env.people.correlations import NO_SEAT, correlations, mean_with_interval, too_few
from sotopia_env.people.judge_labels import judge_labels, recorded_judges
from sotopia_env.people.quality import LENIENT, QualityRules, Screening, screen
from sotopia_env.people.sheet import fingerprint
from sotopia_env.reports.agreement import evaluator_names
from sotopia_env.reports.seat_results import unscored_reason
from sotopia_env.world.episode import Episode, Evaluation

_STEP = 0.5  # width of the bins of a histogram, in points


@dataclass(frozen=True, slots=True)
class JudgeOnDimension:
    """Agreement of a judge with human annotators on one dimension.

    Attributes:
        judge: name of the judge.
        dimension: name of the dimension.
        n: number of seats that the judge and at least one annotator scored.
        unscored: number of seats that an annotator scored and the judge did not.
        pearson: Pearson correlation with the human scores.
        spearman: Spearman correlation with the human scores.
        all_pearson: Pearson correlation with the human scores before the quality rules.
        all_spearman: Spearman correlation with the human scores before the quality rules.
        mean_difference: mean of the judge's score minus the human score, in points; positive for a lenient judge.
        sd_difference: sample standard deviation of these differences.
        sd_human: sample standard deviation of the human scores over these seats.
        within_sd: share of the judge's scores within ``sd_human`` of the human score (§5.2, figure 2).
        n_range: number of the ``n`` seats with two or more annotators, whose lowest and highest scores form the
            perceived range (G.3).
        inside: share of these seats with the judge's score inside the range, ends included.
        above: share of these seats with the judge's score above the range.
        below: share of these seats with the judge's score below the range.
    """

    judge: str
    dimension: str
    n: int
    unscored: int
    pearson: Statistic
    spearman: Statistic
    all_pearson: Statistic
    all_spearman: Statistic
    mean_difference: Statistic
    sd_difference: Statistic
    sd_human: Statistic
    within_sd: Statistic
    n_range: int
    inside: Statistic
    above: Statistic
    below: Statistic


@dataclass(frozen=True, slots=True)
class JudgeOverall:
    """Agreement of a judge with human annotators over all dimensions.

    Attributes:
        judge: name of the judge.
        unscored: number of annotated seats without a score by the judge.
        reasons: reasons for these, with counts, most frequent first.
        n: number of the judge's scores on dimensions whose human scores have a standard deviation.
        within_sd: share of these scores within the standard deviation of their dimension.
        n_range: number of the judge's scores, over all dimensions, that have a perceived range.
        inside: share of these scores inside the range.
        above: share of these scores above the range.
        below: share of these scores below the range.
    """

    judge: str
    unscored: int
    reasons: tuple[tuple[str, int], ...]
    n: int
    within_sd: Statistic
    n_range: int
    inside: Statistic
    above: Statistic
    below: Statistic


@dataclass(frozen=True, slots=True)
class PerceivedRange:
    """A group of seats with similar perceived ranges, both ends of which are in the same bins (G.3).

    Attributes:
        judge: name of the judge.
        dimension: name of the dimension.
        n: number of seats.
        low: mean lower end of the ranges.
        high: mean upper end of the ranges.
        judge_mean: mean of the judge's scores.
    """

    judge: str
    dimension: str
    n: int
    low: float
    high: float
    judge_mean: float


@dataclass(frozen=True, slots=True)
class DifferenceBin:
    """The number of differences judge - human in ``[low, high)``; bins are centred on multiples of half a point."""

    judge: str
    dimension: str
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class HumanAgreement:
    """The result of :func:`human_agreement`; rows are ordered by judge, then dimension.

    Attributes:
        annotations: the annotations of all sheets.
        screening: the annotations that the quality rules accepted and removed.
        bins: the number of bins to show first.
        dimensions: names of the dimensions.
        judges: names of the judges.
        labels: labels of the judges by name (:func:`~sotopia_env.people.judge_labels.judge_labels`).
        by_dimension: agreement of each judge on each dimension.
        overall: agreement of each judge over all dimensions.
        annotators: agreement of the annotators with each other, by dimension.
        all_annotators: the same before the quality rules, which remove disagreement and so raise agreement; only a
            second annotation of a seat by one annotator is left out.
        ranges: the judges' mean scores for groups of similar perceived ranges.
        differences: histograms of the differences judge - human.
        between_judges: agreement of the judges with each other on the annotated episodes; empty for a single judge.
    """

    annotations: AnnotationSet
    screening: Screening
    bins: int
    dimensions: tuple[str, ...]
    judges: tuple[str, ...]
    labels: Mapping[str, str]
    by_dimension: tuple[JudgeOnDimension, ...]
    overall: tuple[JudgeOverall, ...]
    annotators: tuple[AnnotatorAgreement, ...]
    all_annotators: tuple[AnnotatorAgreement, ...]
    ranges: tuple[PerceivedRange, ...]
    differences: tuple[DifferenceBin, ...]
    between_judges: tuple[JudgeAgreement, ...]


def human_agreement(
    episodes: Iterable[Episode],
    annotations: AnnotationSet,
    *,
    rules: QualityRules | None = None,
    judges: Sequence[str] | None = None,
    bins: int = DEFAULT_BINS,
) -> HumanAgreement:
    """Compares evaluations with annotations.

    Args:
        episodes: the episodes of the annotated run; episodes that were not annotated are ignored.
        annotations: the annotations of the returned sheets.
        rules: the quality rules of :func:`~sotopia_env.people.quality.screen`; ``None`` uses the default rules.
        judges: names of evaluators, or the six digits of their hashes; ``None`` uses all evaluators of the annotated
            episodes, in order.
        bins: the number of bins to show first.

    Raises:
        InvalidValueError: annotated episodes are missing, or their transcript differs from the one that was annotated;
            a custom dimension has another range than on the sheet; or ``bins`` is not in :data:`BINS`.
        UnknownNameError: no annotated episode has an evaluation by one of ``judges``.
    """
    if bins not in BINS:
        raise InvalidValueError(field="bins", expected=f"{BINS[0]} to {BINS[-1]}", got=bins)
    screening = screen(annotations, rules)
    by_key = _annotated_episodes(episodes, annotations)
    chosen = None if judges is None else recorded_judges(by_key.values(), judges)
    names = evaluator_names(by_key.values(), chosen, "judge")
    scales, people = annotations.key.scales, _human_scores(screening.accepted)
    everybody = _human_scores(screen(annotations, LENIENT).accepted)
    scenarios = {key: episode.task.scenario.vignette for key, episode in by_key.items()}
    by_dimension, overall, ranges, differences = [], [], [], []
    for judge in names:
        scores, missing = _judge_scores(by_key, judge, people, scales)
        by_judge = {d: _pairs(d, scores, people, scenarios) for d in scales}
        all_scores, _ = _judge_scores(by_key, judge, everybody, scales)
        all_pairs = {d: _pairs(d, all_scores, everybody, scenarios)[0] for d in scales}
        rows = [_on_dimension(judge, d, *by_judge[d], all_pairs[d], scale) for d, scale in scales.items()]
        by_dimension += rows
        overall.append(_overall(judge, rows, missing))
        for d, (pairs, _) in by_judge.items():
            ranges += _ranges(judge, d, pairs, scales[d])
            differences += _histogram(judge, d, pairs)
    return HumanAgreement(
        annotations=annotations,
        screening=screening,
        bins=bins,
        dimensions=tuple(scales),
        judges=names,
        labels=judge_labels(by_key.values(), names),
        by_dimension=tuple(by_dimension),
        overall=tuple(overall),
        annotators=annotator_agreement(people, scales, scenarios),
        all_annotators=annotator_agreement(everybody, scales, scenarios),
        ranges=tuple(ranges),
        differences=tuple(differences),
        between_judges=judge_agreement(by_key.values(), names) if len(names) > 1 else (),
    )


def _annotated_episodes(episodes: Iterable[Episode], annotations: AnnotationSet) -> dict[str, Episode]:
    transcripts = {request.episode: request.transcript for request in annotations.key.requests}
    by_key = {episode.key: episode for episode in episodes if episode.key in transcripts}
    absent = [key for key in transcripts if key not in by_key]
    if absent:
        raise InvalidValueError(
            field="annotations",
            expected="the run that was annotated",
            hint=f"{len(absent)} of {len(transcripts)} annotated episodes are missing, the first is {absent[0]!r}",
        )
    # Keys are not enough: a run that was played again has the same keys and other conversations.
    for key, episode in by_key.items():
        if fingerprint(episode) != transcripts[key]:
            raise InvalidValueError("its transcript differs from the annotated one", field="episode", got=key)
    return by_key


def _human_scores(annotations: Iterable[Annotation]) -> HumanScores:
    people: dict[Seat, dict[str, list[float]]] = {}
    for annotation in annotations:
        own = people.setdefault(annotation.seat, {})
        for name, value in annotation.scores.items():
            own.setdefault(name, []).append(value)
    return people


_JudgeScores = Mapping[Seat, Mapping[str, float]]


def _judge_scores(
    episodes: Mapping[str, Episode], judge: str, people: HumanScores, scales: Scales
) -> tuple[_JudgeScores, Counter[str]]:
    """Returns the judge's scores of the annotated seats, and the reasons for seats without a score."""
    by_seat: dict[Seat, Mapping[str, float]] = {}
    missing: Counter[str] = Counter()
    for key, agent in people:
        evaluation = episodes[key].evaluation(judge)
        scores = {} if evaluation is None or evaluation.unscored is not None else evaluation.by_agent.get(agent, {})
        by_seat[key, agent] = {str(name): score.value for name, score in scores.items()}
        if evaluation is None or not scores:
            missing[unscored_reason(evaluation, judge, agent)] += 1
        else:
            _check_ranges(evaluation, scales)
    return by_seat, missing


def _check_ranges(evaluation: Evaluation, scales: Scales) -> None:
    for item in evaluation.dimensions:
        low, high = scales.get(item.name, (item.low, item.high))
        if (item.low, item.high) != (low, high):
            raise InvalidValueError(
                f"the sheet has the range {low} to {high}, {evaluation.evaluator} has {item.low} to {item.high}",
                field="dimension",
                got=item.name,
            )


@dataclass(frozen=True, slots=True)
class _ScoredSeat:
    """A judge's and the annotators' scores of one seat on one dimension."""

    judge: float
    people: Sequence[float]
    scenario: str

    @property
    def human(self) -> float:
        # Rounded, so that equal means of different scores are ties in Spearman's ranks.
        return round(math.fsum(self.people) / len(self.people), 9)

    @property
    def difference(self) -> float:
        return self.judge - self.human


def _pairs(
    dimension: str, scores_by_judge: _JudgeScores, people: HumanScores, scenarios: Mapping[str, str]
) -> tuple[list[_ScoredSeat], int]:
    """Returns the seats that the judge and annotators scored, and the number of seats that only annotators scored."""
    pairs, unscored = [], 0
    for seat, scores in people.items():
        if dimension in scores and dimension in scores_by_judge[seat]:
            pairs.append(_ScoredSeat(scores_by_judge[seat][dimension], scores[dimension], scenarios[seat[0]]))
        elif dimension in scores:
            unscored += 1
    return pairs, unscored


def _on_dimension(
    judge: str,
    dimension: str,
    pairs: Sequence[_ScoredSeat],
    unscored: int,
    all_pairs: Sequence[_ScoredSeat],
    scale: tuple[int, int],
) -> JudgeOnDimension:
    humans, differences = [pair.human for pair in pairs], [pair.difference for pair in pairs]
    width, scenarios = scale[1] - scale[0], [pair.scenario for pair in pairs]
    r, rho = _correlations(pairs)
    all_r, all_rho = _correlations(all_pairs)
    sd_human, with_range = _deviation(humans), [pair for pair in pairs if len(pair.people) > 1]
    return JudgeOnDimension(
        judge=judge,
        dimension=dimension,
        n=len(pairs),
        unscored=unscored,
        pearson=r,
        spearman=rho,
        all_pearson=all_r,
        all_spearman=all_rho,
        mean_difference=mean_with_interval(differences, scenarios, (-width, width), NO_SEAT),
        sd_difference=_deviation(differences),
        sd_human=sd_human,
        within_sd=_within(differences, sd_human, scenarios),
        n_range=len(with_range),
        inside=_range_share([min(p.people) <= p.judge <= max(p.people) for p in with_range], pairs),
        above=_range_share([p.judge > max(p.people) for p in with_range], pairs),
        below=_range_share([p.judge < min(p.people) for p in with_range], pairs),
    )


def _correlations(pairs: Sequence[_ScoredSeat]) -> tuple[Statistic, Statistic]:
    scores, humans = [pair.judge for pair in pairs], [pair.human for pair in pairs]
    return correlations(scores, humans, [pair.scenario for pair in pairs])


def _deviation(values: Sequence[float]) -> Statistic:
    if len(values) < 2:
        return Statistic(None, too_few(len(values), 2))
    return Statistic(statistics.stdev(values))


def _within(differences: Sequence[float], sd: Statistic, scenarios: Sequence[str]) -> Statistic:
    if sd.value is None:
        return Statistic(None, sd.reason)
    if sd.value < 1e-9:
        return Statistic(None, "the human scores are all the same")
    # The tolerance counts a difference of exactly one standard deviation despite rounding.
    return _share([abs(d) <= sd.value + 1e-9 for d in differences], scenarios, NO_SEAT)


def _range_share(hits: Sequence[bool], pairs: Sequence[_ScoredSeat]) -> Statistic:
    scenarios = [pair.scenario for pair in pairs if len(pair.people) > 1]
    return _share(hits, scenarios, "no seat was scored by the judge and two annotators" if pairs else NO_SEAT)


def _share(hits: Sequence[bool], scenarios: Sequence[str], reason: str) -> Statistic:
    return mean_with_interval([float(hit) for hit in hits], scenarios, (0, 1), reason)


def _overall(judge: str, rows: Sequence[JudgeOnDimension], missing: Counter[str]) -> JudgeOverall:
    with_sd = [row for row in rows if row.within_sd.value is not None]
    with_range = [row for row in rows if row.n_range]
    return JudgeOverall(
        judge=judge,
        unscored=missing.total(),
        reasons=tuple(missing.most_common()),
        n=sum(row.n for row in with_sd),
        within_sd=_pooled_share([(row.within_sd, row.n) for row in with_sd]),
        n_range=sum(row.n_range for row in with_range),
        inside=_pooled_share([(row.inside, row.n_range) for row in with_range]),
        above=_pooled_share([(row.above, row.n_range) for row in with_range]),
        below=_pooled_share([(row.below, row.n_range) for row in with_range]),
    )


def _pooled_share(shares: Sequence[tuple[Statistic, int]]) -> Statistic:
    # Weighted by the counts: the share over all scores, not the mean over dimensions.
    total = sum(n for _, n in shares)
    if not total:
        return Statistic(None, "no dimension has one")
    return Statistic(math.fsum(share.value * n for share, n in shares if share.value is not None) / total)


def _ranges(judge: str, dimension: str, pairs: Sequence[_ScoredSeat], scale: tuple[int, int]) -> list[PerceivedRange]:
    bins = min(DEFAULT_BINS, scale[1] - scale[0] + 1)  # a short scale has fewer points than the default bins
    groups: dict[tuple[int, int], list[_ScoredSeat]] = defaultdict(list)
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


def _histogram(judge: str, dimension: str, pairs: Iterable[_ScoredSeat]) -> list[DifferenceBin]:
    # ``floor(x + 0.5)`` puts every bin's lower end into it; ``round`` would send ties to even multiples.
    counts = Counter(math.floor(pair.difference / _STEP + 0.5) for pair in pairs)
    return [
        DifferenceBin(judge, dimension, (step - 0.5) * _STEP, (step + 0.5) * _STEP, n)
        for step, n in sorted(counts.items())
    ]
