"""The report on interviews: goals by view, private information, sensitivity, goal types, roles, and accuracy.

Source: AgentSense §3.4, §4.2, §5 and D.4 to D.7. The completion of a seat is the mean over its goals. Every template
has the same weight in every mean, and intervals are over templates (:mod:`sotopia_env.reports.intervals`).
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sotopia_env.foundation.errors import UnknownNameError
from sotopia_env.interviews.rows import (
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
from sotopia_env.interviews.sensitivity import Variation, between_templates, deviations, variation_tests
from sotopia_env.reports.agreement import cohens_kappa
from sotopia_env.reports.intervals import Bounds, Estimate, estimate
from sotopia_env.storage.directory import read_run
from sotopia_env.storage.manifest import configured_evaluator
from sotopia_env.world.answers import INFORMATION, INFORMATION_MEASURES
from sotopia_env.world.episode import Episode

TEMPLATES = "templates"
"""The kind of the clusters of the report's intervals."""
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
"""The seats whose completion a matrix of senders and receivers shows."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A measure of a policy over its seats, from 0 to 1, with its sensitivity to profiles.

    Attributes:
        policy: the label of the policy.
        measure: a measure of goals or of private information.
        estimate: the mean of the measure.
        psi: the mean over templates of the standard deviation over their instances; ``None`` if no template has two.
        between: the share of the variance of all instances that lies between templates, on which the χ² test depends
            (:func:`~sotopia_env.interviews.sensitivity.between_templates`).
        results: the mean number of results (seats and repeats) in an instance. The fewer, the more PSI is chance:
            PSIs are comparable only between equal numbers.
    """

    policy: str
    measure: str
    estimate: Estimate
    psi: Estimate | None
    between: float | None
    results: float


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
    """The main measure in episodes with one policy in all senders' seats and one in all receivers' seats.

    Attributes:
        part: the seats whose completion is measured, one of :data:`PARTS`.
        sender: the policy in the senders' seats.
        receiver: the policy in the receivers' seats.
        estimate: the mean of the measure.
    """

    part: str
    sender: str
    receiver: str
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class Plane:
    """A policy as an attacker and a defender of private information, over all questions that were asked.

    Attributes:
        policy: the label of the policy.
        attack: the share of others' information that it infers; ``None`` if it was never asked.
        defence: 1 minus the share of its own information that others infer; ``None`` if they were never asked.
    """

    policy: str
    attack: Estimate | None
    defence: Estimate | None


@dataclass(frozen=True, slots=True)
class RespondentAccuracy:
    """The agreement of a respondent's answers on goals with the exact tests of the outcome.

    Attributes:
        respondent: a judge, the judges' majority, ``self``, ``other``, or a policy as one of the last two.
        accuracy: the share of right answers.
        kappa: Cohen's kappa; ``None`` if answers and tests are constant and equal.
    """

    respondent: str
    accuracy: Estimate
    kappa: float | None


@dataclass(frozen=True, slots=True)
class Response:
    """The numbers of questions of a view (or on private ``information``) that were asked, and that were answered."""

    view: str
    policy: str
    asked: int
    answered: int


@dataclass(frozen=True, slots=True)
class InterviewReport:
    """The result of :func:`interview_report`.

    Attributes:
        evaluator: the name of the interview.
        measure: the main measure, of the tests, the roles and the charts.
        episodes: the number of episodes.
        templates: the number of templates.
        policies: the labels of the policies.
        completion: all measures of all policies.
        groups: the goal measures by group of goals.
        tests: the tests of sensitivity to profiles.
        abnormal: templates that vary more than all instances do, according to the unadjusted test, for more than half
            of the policies (AgentSense §5.3, D.7).
        abnormal_within: the same, according to the test against the variance within the other templates.
        roles: the main measure by senders and receivers.
        mixed: the number of episodes with several policies among senders or among receivers, which ``roles`` leaves
            out.
        planes: the policies as attackers and defenders.
        accuracies: the accuracy of respondents, for goals with an exact test.
        responses: the numbers of questions asked and answered.
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
    accuracies: tuple[RespondentAccuracy, ...]
    responses: tuple[Response, ...]

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures with values, those of goals first."""
        present = {cell.measure for cell in self.completion}
        return tuple(name for name in (*GOAL_MEASURES, *INFORMATION_MEASURES) if name in present)


def interview_report(
    episodes: Iterable[Episode], *, evaluator: str | None = None, measure: str | None = None
) -> InterviewReport:
    """Reports on the interviews of recorded episodes.

    Args:
        episodes: episodes that were evaluated by the same interview.
        evaluator: the name of the interview; by default the one that all episodes share.
        measure: the main measure; by default the first of
            :data:`~sotopia_env.interviews.rows.GOAL_MEASURES` that has values.

    Raises:
        InvalidValueError: there are no episodes, or the episodes do not share one interview.
        UnknownNameError: no episode has an interview named ``evaluator``, or ``measure`` is unknown.
    """
    return _report(interview_rows(episodes, evaluator), measure)


def report_runs(
    runs: Iterable[str | Path], *, evaluator: str | None = None, measure: str | None = None
) -> InterviewReport:
    """Like :func:`interview_report`, for run directories or ``.jsonl`` files, which are only read."""
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
    """The mean over each seat's goals, or over the questions to it, that have a value."""
    by_seat: dict[SeatKey, list[float]] = {}
    for row in rows:
        if measure in row.values:
            by_seat.setdefault(row.key, []).append(row.values[measure])
    return [_Value(key, statistics.fmean(values)) for key, values in by_seat.items()]


def _defences(questions: Iterable[QuestionRow]) -> list[_Value]:
    """1 minus the share of right answers to questions about each seat."""
    # Assigned to the seat that the question is about, instead of the seat that answered it.
    about = [replace(row, key=replace(row.key, seat=row.about)) for row in questions]
    return [_Value(item.key, 1 - item.value) for item in _seat_values(about, INFORMATION)]


def _estimate(values: Sequence[_Value], bounds: Bounds = _SHARE) -> Estimate:
    return estimate([item.value for item in values], [item.key.template for item in values], bounds, TEMPLATES)


def _instances(values: Iterable[_Value]) -> dict[str, list[float]]:
    """The mean of every instance (task) of each template, over seats and repeats."""
    by_template: dict[str, dict[str, list[float]]] = {}
    for item in values:
        by_template.setdefault(item.key.template, {}).setdefault(item.key.task, []).append(item.value)
    return {name: [statistics.fmean(seats) for seats in tasks.values()] for name, tasks in by_template.items()}


def _completion(policy: str, measure: str, values: Sequence[_Value]) -> Completion:
    instances = _instances(values)
    spread = deviations(instances)
    # Each template is one cluster with one value, its standard deviation.
    psi = estimate([*spread.values()], [*spread], _DEVIATION, TEMPLATES) if spread else None
    results = len(values) / sum(map(len, instances.values()))
    return Completion(policy, measure, _estimate(values), psi, between_templates(instances), results)


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
    """Returns the templates that more than half of their tests (one for each policy) reject as varying too much."""
    rejections: dict[str, list[bool]] = {}
    for template, is_rejected in rejections_of:
        rejections.setdefault(template, []).append(is_rejected)
    return tuple(template for template, flags in rejections.items() if 2 * sum(flags) > len(flags))


def _roles(values: Iterable[_Value], labels: Mapping[Policy, str]) -> tuple[tuple[RoleCell, ...], int]:
    """Returns the cells, and the number of episodes that are left out because policies are mixed within a role."""
    cells: dict[tuple[str, str, str], list[_Value]] = {}
    mixed = set()
    for item in values:
        seated = zip(item.key.roles, item.key.policies, strict=False)  # roles may be empty
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


def _accuracies(goals: Iterable[GoalRow], labels: Mapping[Policy, str]) -> Iterable[RespondentAccuracy]:
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
        yield RespondentAccuracy(respondent, _estimate(right), cohens_kappa([entry[1:] for entry in entries]))


def _responses(rows: InterviewRows) -> tuple[Response, ...]:
    counts: dict[tuple[str, str], list[int]] = {}
    votes = [vote for row in rows.goals for vote in row.votes]
    votes += [row.vote for row in rows.questions]
    for vote in votes:
        count = counts.setdefault((vote.respondent, rows.labels[vote.policy] if vote.policy else ""), [0, 0])
        count[0] += vote.asked
        count[1] += vote.value is not None
    return tuple(Response(*key, *count) for key, count in sorted(counts.items()))
