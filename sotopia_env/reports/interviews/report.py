"""The report on interviews: completion by view, information, sensitivity, kinds of goals, roles, and the truth.

Source: AgentSense §3.4, §4.2, §5 and D.4 to D.7. A seat's completion is the mean over its goals; every template weighs
the same in every mean, and intervals are over templates (:mod:`sotopia_env.reports.intervals`).
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sotopia_env.errors import UnknownNameError
from sotopia_env.reports.agreement import cohens_kappa
from sotopia_env.reports.intervals import Bounds, Estimate, estimate
from sotopia_env.reports.interviews.rows import (
    GOAL_MEASURES,
    MAJORITY,
    GoalRow,
    InterviewRows,
    Policy,
    QuestionRow,
    SeatKey,
    Vote,
    interview_rows,
)
from sotopia_env.reports.interviews.sensitivity import Variation, between_templates, deviations, variation_tests
from sotopia_env.storage.directory import read_run
from sotopia_env.storage.manifest import configured_evaluator
from sotopia_env.world.answers import INFORMATION, INFORMATION_MEASURES
from sotopia_env.world.episode import Episode

TEMPLATES = "templates"
"""What the intervals of the report are over."""
_SHARE: Bounds = (0, 1)
_DEVIATION: Bounds = (0, float("inf"))
_GROUPINGS: Mapping[str, Callable[[GoalRow], str]] = {
    "need": lambda row: row.need,
    "goal type": lambda row: row.goal_type,
    "domain": lambda row: row.key.domain,
    "role": lambda row: row.key.roles[row.key.seat] if row.key.roles else "",
    "seats": lambda row: str(len(row.key.policies)),
}
PARTS = ("all", "senders", "receivers")
"""Whose completion a sender × receiver matrix shows."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A measure of a policy over its seats, from 0 to 1, with its sensitivity to profiles.

    Attributes:
        measure: one of the goal measures, or of those of information.
        psi: the mean over templates of the standard deviation over their profiles; ``None`` without a template that
            has two.
        between: the share of the variance of all instances that lies between templates, on which the χ² test depends
            (:func:`~sotopia_env.reports.interviews.sensitivity.between_templates`).
    """

    policy: str
    measure: str
    estimate: Estimate
    psi: Estimate | None
    between: float | None


@dataclass(frozen=True, slots=True)
class GroupCell:
    """A measure of a policy over the goals of one group, such as those of one type."""

    grouping: str
    group: str
    policy: str
    measure: str
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class TemplateTest:
    """The tests of one template for one policy."""

    policy: str
    measure: str
    test: Variation


@dataclass(frozen=True, slots=True)
class RoleCell:
    """The main measure where one policy sat in all senders' seats and one in all receivers' seats.

    Attributes:
        part: whose completion it is, one of :data:`PARTS`.
    """

    part: str
    sender: str
    receiver: str
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class Plane:
    """A policy as an attacker (how often it infers others' private information) and as a defender (1 - how often
    the others infer its own), of all questions that were asked; ``None`` where it was never one.
    """

    policy: str
    attack: Estimate | None
    defence: Estimate | None


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A respondent's yes and no on goals with an exact test, against the truth.

    Attributes:
        respondent: a judge, their majority, ``self``, ``other``, or a policy as one of these.
        kappa: Cohen's, ``None`` where both always say the same one thing.
    """

    respondent: str
    accuracy: Estimate
    kappa: float | None


@dataclass(frozen=True, slots=True)
class Response:
    """How many questions of a view (or on private ``information``) were asked, and how many were answered."""

    view: str
    policy: str
    asked: int
    answered: int


@dataclass(frozen=True, slots=True)
class InterviewReport:
    """The result of :func:`interview_report`.

    Attributes:
        measure: the main one, of the tests, the roles and the charts.
        mixed: episodes with several policies among senders or among receivers, which are in no cell of ``roles``.
        abnormal: templates that vary more than all instances do, and that the raw test rejects, for more than half of
            the policies (AgentSense §5.3, D.7).
        abnormal_within: likewise, by the test against the variance within the other templates.
    """

    evaluator: str
    measure: str
    episodes: int
    templates: int
    policies: tuple[str, ...]
    completion: tuple[Completion, ...]
    groups: tuple[GroupCell, ...]
    tests: tuple[TemplateTest, ...]
    abnormal: tuple[str, ...]
    abnormal_within: tuple[str, ...]
    roles: tuple[RoleCell, ...]
    mixed: int
    planes: tuple[Plane, ...]
    accuracies: tuple[Accuracy, ...]
    responses: tuple[Response, ...]

    @property
    def measures(self) -> tuple[str, ...]:
        """Those with values, goals first."""
        present = {cell.measure for cell in self.completion}
        return tuple(name for name in (*GOAL_MEASURES, *INFORMATION_MEASURES) if name in present)


def interview_report(
    episodes: Iterable[Episode], *, evaluator: str | None = None, measure: str | None = None
) -> InterviewReport:
    """Reports on the interviews of recorded episodes.

    Args:
        episodes: evaluated by one interview.
        evaluator: its name; by default the one that all episodes share.
        measure: the main one; by default the first of
            :data:`~sotopia_env.reports.interviews.rows.GOAL_MEASURES` that has values.

    Raises:
        InvalidValueError: no episodes, two records of one, or no interview that all share.
        UnknownNameError: no episode has an interview by ``evaluator``, or there is no such ``measure``.
    """
    return _report(interview_rows(episodes, evaluator), measure)


def report_runs(
    runs: Iterable[str | Path], *, evaluator: str | None = None, measure: str | None = None
) -> InterviewReport:
    """As :func:`interview_report`, for run directories or ``.jsonl`` files; they are only read."""
    paths = [Path(run) for run in runs]
    episodes = itertools.chain.from_iterable(read_run(path) for path in paths)
    defaults = (item.name for item in map(configured_evaluator, paths) if item is not None)
    return _report(interview_rows(episodes, evaluator, defaults), measure)


@dataclass(frozen=True, slots=True)
class _Value:
    """A measure of one seat of one episode."""

    key: SeatKey
    value: float


def _report(rows: InterviewRows, measure: str | None) -> InterviewReport:
    policies = tuple(sorted(rows.labels.values()))
    values = {name: _seat_values(rows.goals, name) for name in GOAL_MEASURES}
    values |= {name: _seat_values(rows.questions, name) for name in INFORMATION_MEASURES}
    main = measure or next((name for name in values if values[name]), MAJORITY)
    if main not in values:
        raise UnknownNameError(field="measure", got=main, valid=values)
    label = _labeller(rows.labels)
    own = {(name, p): [v for v in items if label(v.key) == p] for name, items in values.items() for p in policies}
    tests = tuple(TemplateTest(p, main, test) for p in policies for test in variation_tests(_instances(own[main, p])))
    roles, mixed = _roles(values[main], rows.labels)
    return InterviewReport(
        evaluator=rows.evaluator,
        measure=main,
        episodes=rows.episodes,
        templates=len({row.key.template for row in rows.goals}),
        policies=policies,
        completion=tuple(_completion(p, name, own[name, p]) for name in values for p in policies if own[name, p]),
        groups=tuple(_groups(rows.goals, policies, label)),
        tests=tests,
        abnormal=abnormal_templates((item.test.template, item.test.is_rejected) for item in tests),
        abnormal_within=abnormal_templates((item.test.template, item.test.is_rejected_within) for item in tests),
        roles=roles,
        mixed=mixed,
        planes=_planes(rows, policies),
        accuracies=tuple(_accuracies(rows.goals, rows.labels)),
        responses=_responses(rows),
    )


def _labeller(labels: Mapping[Policy, str]) -> Callable[[SeatKey], str]:
    return lambda key: labels[key.policies[key.seat]]


def _seat_values(rows: Iterable[GoalRow | QuestionRow], measure: str) -> list[_Value]:
    """The mean over each seat's goals or questions with a value."""
    by_seat: dict[SeatKey, list[float]] = {}
    for row in rows:
        if measure in row.values:
            by_seat.setdefault(row.key, []).append(row.values[measure])
    return [_Value(key, statistics.fmean(values)) for key, values in by_seat.items()]


def _defences(questions: Iterable[QuestionRow]) -> list[_Value]:
    """1 - the share of questions about each seat that were answered rightly."""
    about = [replace(row, key=replace(row.key, seat=row.about)) for row in questions]
    return [_Value(item.key, 1 - item.value) for item in _seat_values(about, INFORMATION)]


def _estimate(values: Sequence[_Value], bounds: Bounds = _SHARE) -> Estimate:
    return estimate([item.value for item in values], [item.key.template for item in values], bounds, TEMPLATES)


def _instances(values: Iterable[_Value]) -> dict[str, list[float]]:
    """Template to the mean of each of its instances."""
    tables: dict[str, dict[str, list[float]]] = {}
    for item in values:
        tables.setdefault(item.key.template, {}).setdefault(item.key.task, []).append(item.value)
    return {template: [statistics.fmean(seats) for seats in table.values()] for template, table in tables.items()}


def _completion(policy: str, measure: str, values: Sequence[_Value]) -> Completion:
    instances = _instances(values)
    spread = deviations(instances)
    psi = estimate([*spread.values()], [*spread], _DEVIATION, TEMPLATES) if spread else None
    return Completion(policy, measure, _estimate(values), psi, between_templates(instances))


def _groups(goals: Sequence[GoalRow], policies: Sequence[str], label: Callable[[SeatKey], str]) -> Iterable[GroupCell]:
    for grouping, group_of in _GROUPINGS.items():
        cells: dict[tuple[str, str, str], list[_Value]] = {}
        for row in goals:
            for measure, value in row.values.items():
                cells.setdefault((group_of(row), label(row.key), measure), []).append(_Value(row.key, value))
        for group in sorted({group for group, _, _ in cells if group}):
            for policy, measure in itertools.product(policies, GOAL_MEASURES):
                if values := cells.get((group, policy, measure)):
                    yield GroupCell(grouping, group, policy, measure, _estimate(values))


def abnormal_templates(rejections_of: Iterable[tuple[str, bool]]) -> tuple[str, ...]:
    """Returns the templates that more than half of their tests, one for each policy, reject as varying too much."""
    rejections: dict[str, list[bool]] = {}
    for template, is_rejected in rejections_of:
        rejections.setdefault(template, []).append(is_rejected)
    return tuple(template for template, flags in rejections.items() if 2 * sum(flags) > len(flags))


def _roles(values: Iterable[_Value], labels: Mapping[Policy, str]) -> tuple[tuple[RoleCell, ...], int]:
    """The cells, and how many episodes are in none because policies are mixed within a role."""
    cells: dict[tuple[str, str, str], list[_Value]] = {}
    mixed = set()
    for item in values:
        seated = zip(item.key.roles, item.key.policies, strict=False)
        by_role: dict[str, set[str]] = {}
        for role, policy in seated:
            by_role.setdefault(role, set()).add(labels[policy])
        senders, receivers = by_role.get("sender", set()), by_role.get("receiver", set())
        if len(senders) == len(receivers) == 1:
            (sender,), (receiver,) = senders, receivers
            for part in ("all", f"{item.key.roles[item.key.seat]}s"):
                cells.setdefault((part, sender, receiver), []).append(item)
        elif len(senders) > 1 or len(receivers) > 1:
            mixed.add(item.key.episode)
    keys = sorted(cells, key=lambda key: (PARTS.index(key[0]), *key[1:]))
    return tuple(RoleCell(*key, _estimate(cells[key])) for key in keys), len(mixed)


def _planes(rows: InterviewRows, policies: Sequence[str]) -> tuple[Plane, ...]:
    label = _labeller(rows.labels)

    def side(policy: str, values: Iterable[_Value]) -> Estimate | None:
        own = [item for item in values if label(item.key) == policy]
        return _estimate(own) if own else None

    attacks, defences = _seat_values(rows.questions, INFORMATION), _defences(rows.questions)
    planes = [Plane(policy, side(policy, attacks), side(policy, defences)) for policy in policies]
    return tuple(plane for plane in planes if plane.attack or plane.defence)


def _accuracies(goals: Iterable[GoalRow], labels: Mapping[Policy, str]) -> Iterable[Accuracy]:
    pairs: dict[str, list[tuple[SeatKey, bool, bool]]] = {}
    for row in goals:
        if row.truth is None:
            continue
        majority = [Vote(MAJORITY, None, bool(row.values[MAJORITY]))] if MAJORITY in row.values else []
        for vote in (*row.votes, *majority):
            names = [vote.respondent, *([f"{vote.respondent}: {labels[vote.policy]}"] if vote.policy else [])]
            for name in names if vote.value is not None else ():
                pairs.setdefault(name, []).append((row.key, bool(vote.value), row.truth))
    for respondent in sorted(pairs):
        entries = pairs[respondent]
        right = [_Value(key, float(vote == truth)) for key, vote, truth in entries]
        yield Accuracy(respondent, _estimate(right), cohens_kappa([entry[1:] for entry in entries]))


def _responses(rows: InterviewRows) -> tuple[Response, ...]:
    counts: dict[tuple[str, str], list[int]] = {}
    votes = [vote for row in rows.goals for vote in row.votes]
    votes += [row.vote for row in rows.questions]
    for vote in votes:
        count = counts.setdefault((vote.respondent, rows.labels[vote.policy] if vote.policy else ""), [0, 0])
        count[0] += vote.asked
        count[1] += vote.value is not None
    return tuple(Response(*key, *count) for key, count in sorted(counts.items()))
