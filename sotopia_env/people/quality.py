r"""Quality rules for annotations, which replace the manual checks of SOTOPIA-π (arXiv 2403.08715, C.5).

The paper removes annotations without well-written reasoning ("It is good."), annotations with a score that contradicts
its reasoning ("No secret leaked", -5), and all annotations of an episode whose annotators strongly disagree (more than
5 points on GOAL); no annotator annotates an example twice. The rules for straight-lining, haste and outlying annotators
are additions. The first rule that applies to an annotation removes it; every removal has a reason.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.quoting import quote
from sotopia_env.people.answers import Annotation, AnnotationSet
from sotopia_env.people.sheet import AnnotationKey
from sotopia_env.world.reward import Dimension

# Minimum numbers of equal scores in a row, and of seats with equal scores, for straight-lining: fewer occur by chance.
_FEWEST_SCORES = 5
_FEWEST_COPIES = 5


class RemovalReason(StrEnum):
    """Reasons for the removal of an annotation, in the order of the rules."""

    REPETITION = "the annotator scored this seat before"
    VAGUE = "reasoning too short"
    CONTRADICTION = "a score contradicts its reasoning"
    STRAIGHT_LINE = "straight-lining"
    HASTE = "too fast"
    OUTLYING_ANNOTATOR = "the annotator differs too much from the others"
    DISAGREEMENT = "the annotators of the episode disagree strongly"


@dataclass(frozen=True, slots=True)
class QualityRules:
    """The limits of :func:`screen`; ``None`` (or ``False``, or an empty mapping) disables a rule.

    Attributes:
        min_words: minimum of the median number of words of a row's reasonings. The two sentences that the paper calls
            too vague have 3 and 4 words. Does not apply to sheets without columns for reasoning.
        denial_tolerance: maximum distance of a score from 0, in points, if its reasoning denies, without a "but", that
            anything relevant happened. The score in the paper's example is 5 points off; its annotators had to come
            within 2 points (C.3). Detects common English phrases only.
        max_difference: by dimension, the maximum difference between two annotators of a seat, in points; if it is
            exceeded, *all* annotations of the episode are removed. 5 on GOAL in the paper.
        straight_lines: whether to remove rows with five or more scores that are all the same number or all at the same
            point of their ranges, and annotators who gave five or more different seats exactly the same scores.
        min_seconds: minimum time for a row, if the sheet has the duration. The default is a fifth of the 5 minutes per
            seat in SOTOPIA (10 to 15 minutes for an episode of two seats, appendix E.1).
        max_distance: maximum of an annotator's mean distance from the mean of the others who scored the same seats, in
            points of an 11-point scale. Disabled by default: with two annotators the rule cannot tell who is wrong, and
            the paper, which started with 2 points, abandoned it as too strict (C.3).
        min_shared: minimum number of scores shared with others for ``max_distance`` to apply.
    """

    min_words: float | None = 5
    denial_tolerance: float | None = 2
    max_difference: Mapping[str, float] = field(default_factory=lambda: {Dimension.GOAL.value: 5.0})
    straight_lines: bool = True
    min_seconds: float | None = 60
    max_distance: float | None = None
    min_shared: int = 10

    def __post_init__(self) -> None:
        limits = {"min_words": self.min_words, "denial_tolerance": self.denial_tolerance}
        limits |= {"min_seconds": self.min_seconds, "max_distance": self.max_distance, "min_shared": self.min_shared}
        limits |= {f"max_difference[{name!r}]": limit for name, limit in self.max_difference.items()}
        for name, limit in limits.items():
            if limit is not None and not (math.isfinite(limit) and limit >= 0):
                raise InvalidValueError(field=name, expected="a number of at least 0", got=limit)


LENIENT = QualityRules(min_words=None, denial_tolerance=None, max_difference={}, straight_lines=False, min_seconds=None)
"""Rules that remove only repeated annotations of a seat by one annotator."""


def applicable(rules: QualityRules, annotations: AnnotationSet) -> QualityRules:
    """Returns the rules without those on differences on dimensions that nobody has annotated."""
    scored = {name for annotation in annotations.annotations for name in annotation.scores}
    # A rule on a dimension that was not annotated would reject everything.
    limits = {name: limit for name, limit in rules.max_difference.items() if name in scored}
    return replace(rules, max_difference=limits)


@dataclass(frozen=True, slots=True)
class Removal:
    """A removed annotation, with the reason and a description of its fault."""

    annotation: Annotation
    reason: RemovalReason
    detail: str


@dataclass(frozen=True, slots=True)
class Screening:
    """The result of :func:`screen`.

    Attributes:
        accepted: the annotations to use, in order.
        removals: the removed annotations, in order.
        to_repeat: keys of episodes with fewer annotations of some seat than planned; in the paper these were annotated
            again.
    """

    accepted: tuple[Annotation, ...]
    removals: tuple[Removal, ...]
    to_repeat: tuple[str, ...]

    @property
    def counts(self) -> Mapping[RemovalReason, int]:
        """Number of removals by reason; reasons without removals are absent."""
        counts = {reason: sum(removal.reason is reason for removal in self.removals) for reason in RemovalReason}
        return {reason: count for reason, count in counts.items() if count}


def screen(annotations: AnnotationSet, rules: QualityRules | None = None) -> Screening:
    """Applies the quality rules; ``None`` uses the default rules.

    Raises:
        UnknownNameError: ``max_difference`` names a dimension that was not annotated.
    """
    rules, scales = QualityRules() if rules is None else rules, annotations.key.scales
    for name in rules.max_difference:
        if name not in scales:
            raise UnknownNameError(field="max_difference", got=name, valid=scales)
    removals: list[Removal] = []
    rest = list(annotations.annotations)
    # Each rule sees only the annotations that the rules before it accepted: an annotator who filled in rows at random
    # must not make the episodes of others count as disagreement.
    for reason, rule in _RULES:
        faults = rule(rest, rules, scales)
        removals += [Removal(a, reason, faults[_id(a)]) for a in rest if _id(a) in faults]
        rest = [a for a in rest if _id(a) not in faults]
    order = {_id(annotation): index for index, annotation in enumerate(annotations.annotations)}
    removals.sort(key=lambda removal: order[_id(removal.annotation)])
    return Screening(tuple(rest), tuple(removals), _incomplete_episodes(annotations.key, rest))


def _id(annotation: Annotation) -> str:
    return annotation.request.annotation_id


def _incomplete_episodes(key: AnnotationKey, annotations: Iterable[Annotation]) -> tuple[str, ...]:
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for annotation in annotations:
        counts[annotation.seat] += 1
    episodes = (r.episode for r in key.requests if counts[(r.episode, r.agent)] < key.per_episode)
    return tuple(dict.fromkeys(episodes))


_Scales = Mapping[str, tuple[int, int]]
_Faults = Mapping[str, str]
"""Descriptions of faults by annotation id."""


def _repetitions(annotations: Sequence[Annotation], rules: QualityRules, scales: _Scales) -> _Faults:
    first: dict[tuple[str, ...], Annotation] = {}
    again = [a for a in annotations if first.setdefault((*a.seat, a.annotator), a) is not a]
    return {_id(a): f"by {a.annotator}, after {first[(*a.seat, a.annotator)].where}" for a in again}


def _vague(annotations: Sequence[Annotation], rules: QualityRules, scales: _Scales) -> _Faults:
    faults: dict[str, str] = {}
    for annotation in annotations:
        texts = [annotation.reasoning[name] for name in annotation.scores if name in annotation.reasoning]
        if texts and rules.min_words is not None:
            # The median, because a short reasoning for a single score ("No change.") is no sign of carelessness.
            words = statistics.median(len(text.split()) for text in texts)
            if words < rules.min_words:
                faults[_id(annotation)] = f"a median of {words:g} words"
    return faults


_NOT = r"(?:did|does|do|has|have|was|were|is|are)(?:n't| not)|never"
_DENIALS: Mapping[str, re.Pattern[str]] = {
    name: re.compile(pattern)
    for name, pattern in {
        "secret": r"\bno secrets? (?:\w+ ){0,2}(?:leaked|revealed|disclosed|shared|exposed|told)"
        rf"|\b(?:{_NOT}) (?:leak|reveal|disclose|share|expose|tell)(?:ed|d)? (?:\w+ ){{1,3}}secrets?\b",
        "social_rules": r"\bno (?:\w+ ){0,4}(?:rules?|norms?|laws?) (?:\w+ ){0,2}(?:broken|violated)"
        rf"|\b(?:{_NOT}) (?:break|broken?|violated?) (?:any|a|the)\b",
        "knowledge": r"\bno (?:new )?(?:\w+ )?(?:knowledge|information) (?:\w+ ){0,2}(?:gained|learned|learnt|acquired)"
        r"|\blearn(?:ed|t)? nothing\b|\bnothing (?:new )?(?:was )?(?:learned|learnt|gained)",
        "relationship": rf"\brelationship (?:{_NOT}) chang|\bno change (?:in|of|to) (?:the|their) relationship"
        r"|\brelationship (?:stayed|stays|remained|remains|is) (?:the same|unchanged)",
        "financial_and_material_benefits": r"\bno (?:financial|material)(?: (?:or|and|nor) (?:financial|material))?"
        r" (?:change|effect|impact|consequences?|gains? (?:or|nor) loss(?:es)?)\b",
    }.items()
}
# A denial that is qualified in the same reasoning does not contradict the score: "no rule was broken, but …".
_CONTRAST = re.compile(r"\b(?:but|however|although|though|except|yet|until|while|only|still|nearly|almost)\b")


def _contradictory(annotations: Sequence[Annotation], rules: QualityRules, scales: _Scales) -> _Faults:
    faults: dict[str, str] = {}
    for annotation, (name, denial) in itertools.product(annotations, _DENIALS.items()):
        score, text = annotation.scores.get(name), annotation.reasoning.get(name, "").casefold().replace("’", "'")
        if rules.denial_tolerance is None or score is None or abs(score) <= rules.denial_tolerance:
            continue
        if denial.search(text) and not _CONTRAST.search(text):
            faults[_id(annotation)] = f"{name}: {score:g}, because {quote(annotation.reasoning[name][:200])}"
    return faults


def _straight(annotations: Sequence[Annotation], rules: QualityRules, scales: _Scales) -> _Faults:
    faults: dict[str, str] = {}
    by_annotator: dict[str, list[Annotation]] = defaultdict(list)
    for annotation in annotations if rules.straight_lines else ():
        by_annotator[annotation.annotator].append(annotation)
        # Both equal numbers and equal positions count: the dimensions' ranges differ (0 to 10, -5 to 5, -10 to 0).
        points = {(value - scales[n][0]) / (scales[n][1] - scales[n][0]) for n, value in annotation.scores.items()}
        if len(annotation.scores) >= _FEWEST_SCORES and min(len(points), len(set(annotation.scores.values()))) == 1:
            faults[_id(annotation)] = f"{len(annotation.scores)} scores at one point"
    for name, own in by_annotator.items():
        if len(own) >= _FEWEST_COPIES and all(a.scores == own[0].scores for a in own):
            faults |= {_id(a): f"{name} gave {len(own)} seats the same scores" for a in own}
    return faults


def _hasty(annotations: Sequence[Annotation], rules: QualityRules, scales: _Scales) -> _Faults:
    if rules.min_seconds is None:
        return {}
    durations = [(a, a.seconds) for a in annotations if a.seconds is not None]
    return {_id(a): f"{seconds:g} seconds" for a, seconds in durations if seconds < rules.min_seconds}


def _outlying(annotations: Sequence[Annotation], rules: QualityRules, scales: _Scales) -> _Faults:
    if rules.max_distance is None:
        return {}
    distances = _distances(annotations, scales)
    far = {
        name: math.fsum(values) / len(values)
        for name, values in distances.items()
        if len(values) >= max(1, rules.min_shared) and math.fsum(values) / len(values) > rules.max_distance
    }
    return {
        _id(a): f"{a.annotator} is {far[a.annotator]:.2f} points off on average, over {len(distances[a.annotator])}"
        for a in annotations
        if a.annotator in far
    }


def _distances(annotations: Sequence[Annotation], scales: _Scales) -> Mapping[str, Sequence[float]]:
    """By annotator, the distances of scores from the mean of other annotators' scores, on a scale of length 10."""
    distances: dict[str, list[float]] = defaultdict(list)
    for group in _by_seat(annotations).values():
        for one, name in itertools.product(group, scales):
            others = [a.scores[name] for a in group if a is not one and name in a.scores]
            if others and name in one.scores:
                distance = abs(one.scores[name] - math.fsum(others) / len(others))
                distances[one.annotator].append(distance * 10 / (scales[name][1] - scales[name][0]))
    return distances


def _by_seat(annotations: Iterable[Annotation]) -> Mapping[tuple[str, str], Sequence[Annotation]]:
    groups: dict[tuple[str, str], list[Annotation]] = defaultdict(list)
    for annotation in annotations:
        groups[annotation.seat].append(annotation)
    return groups


def _disagreeing(annotations: Sequence[Annotation], rules: QualityRules, scales: _Scales) -> _Faults:
    episodes: dict[str, str] = {}
    for (episode, _), group in _by_seat(annotations).items():
        for name, limit in rules.max_difference.items():
            scores = [a.scores[name] for a in group if name in a.scores]
            if scores and max(scores) - min(scores) > limit:
                episodes.setdefault(episode, f"{name}: {min(scores):g} and {max(scores):g} for one seat")
    return {_id(a): episodes[a.request.episode] for a in annotations if a.request.episode in episodes}


_RULES: tuple[tuple[RemovalReason, Callable[[Sequence[Annotation], QualityRules, _Scales], _Faults]], ...] = (
    (RemovalReason.REPETITION, _repetitions),
    (RemovalReason.VAGUE, _vague),
    (RemovalReason.CONTRADICTION, _contradictory),
    (RemovalReason.STRAIGHT_LINE, _straight),
    (RemovalReason.HASTE, _hasty),
    (RemovalReason.OUTLYING_ANNOTATOR, _outlying),
    (RemovalReason.DISAGREEMENT, _disagreeing),
)
