"""The report on interviews, against the same numbers by numpy, scipy and statsmodels from the raw answers."""

from __future__ import annotations

import csv
import io
import itertools
import json
import random
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.formula.api import ols
from statsmodels.stats.inter_rater import cohens_kappa as reference_kappa
from statsmodels.stats.multitest import multipletests

from benchmarks.sensitivity import rejections
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.interviews.output import interviews_report
from sotopia_env.interviews.report import abnormal_templates, interview_report
from sotopia_env.interviews.rows import GOAL_MEASURES
from sotopia_env.interviews.sensitivity import between_templates, deviations, variation_tests
from sotopia_env.outcomes.result import OutcomeResult
from sotopia_env.reports.agreement import cohens_kappa
from sotopia_env.reports.intervals import estimate
from sotopia_env.world.answers import INFORMATION_MEASURES, InterviewAnswer, View
from sotopia_env.world.episode import Episode, Evaluation, PolicyInfo
from sotopia_env.world.outcome import goal_truth
from tests.errors import raises
from tests.sotopia_env.interviewed import GOALS, fair

JUDGES = ("judge/a", "judge/b", "judge/c")
TEMPLATES = ("fair", "feast", "fete", "ball")
SEATINGS = (("x", "x", "x"), ("y", "y", "y"), ("x", "y", "y"), ("y", "x", "x"), ("x", "x", "y"))
OWN = [(seat, goal) for seat, goals in enumerate(GOALS) for goal in range(len(goals))]


def outcome(option: str | None) -> OutcomeResult:
    payoffs = {"hall": (4, 2, 0), "garden": (1, -3, 5), None: (0, 0, 0)}[option]
    terms = {} if option is None else {"option": option}
    return OutcomeResult(agreed=bool(option), reason="", terms=terms, payoffs=payoffs, shares=payoffs, efficiency=1)


def answers(rng: random.Random, seating: Iterable[str], lean: float) -> list[InterviewAnswer]:
    """A yes with a chance that depends on judge and template; one in eight is missing."""

    def value(chance: float) -> dict[str, object]:
        return {"reason": "no answer"} if rng.random() < 0.125 else {"value": rng.random() < chance}

    result = []
    for seat, by in enumerate(seating):
        for owner, goal in OWN:
            view = View.SELF if owner == seat else View.OTHER
            base = {"respondent": f"agent_{seat}", "by": by, "about": f"agent_{owner}", "index": goal, "view": view}
            result.append(InterviewAnswer(**base, **value(lean)))
        if seat:
            fields = value(0.3 + 0.4 * (by == "x"))
            fields |= {"choice": "so"} if "value" in fields else {}
            result.append(InterviewAnswer(respondent=f"agent_{seat}", by=by, about="agent_0", index=0, **fields))
    for (owner, goal), (number, by) in itertools.product(OWN, enumerate(JUDGES)):
        base = {"respondent": f"judge_{number}", "by": by, "about": f"agent_{owner}", "index": goal}
        result.append(InterviewAnswer(**base, view=View.EXTERNAL, **value(lean + 0.1 * number)))
    return result


def recorded(template: str, instance: int, seating: tuple[str, ...], answers: Iterable[InterviewAnswer]) -> Episode:
    task = fair(f"{template}/{instance}", template=template)
    infos = tuple(PolicyInfo(agent=agent, name=name) for agent, name in zip(task.agents, seating, strict=True))
    agreed = ("hall", "garden", None)[instance % 3]
    verdict = Evaluation(evaluator="interview", answers=tuple(answers), unscored="-", outcome=outcome(agreed))
    key = f"{template}.{instance}.{'+'.join(seating)}"
    return Episode(task=task, key=key, policies=infos, evaluations=(verdict,))


@pytest.fixture(scope="module")
def episodes() -> list[Episode]:
    rng = random.Random(5)
    return [
        recorded(template, instance, seating, answers(rng, seating, 0.15 + 0.2 * number))
        for number, template in enumerate(TEMPLATES)
        for instance in range(5)
        for seating in SEATINGS
    ]


@pytest.fixture(scope="module")
def report(episodes):
    return interview_report(episodes)


def votes(episode: Episode, seat: int, goal: int, view: View) -> list[float]:
    answers = episode.evaluations[0].answers
    own = [a for a in answers if (a.about, a.index, a.view) == (f"agent_{seat}", goal, view)]
    return [float(a.value) for a in own if a.value is not None]


def goal_value(episode: Episode, seat: int, goal: int, measure: str) -> float:
    """Completion of one goal from the raw answers; NaN for nothing."""
    if measure == "exact":
        truth = goal_truth(episode.task, episode.evaluations[0].outcome)
        return float(truth[seat, goal]) if (seat, goal) in truth else np.nan
    view = {"self": View.SELF, "other": View.OTHER}.get(measure, View.EXTERNAL)
    values = votes(episode, seat, goal, view)
    if not values:
        return np.nan
    return float(np.mean(values) > 0.5) if measure == "judge majority" else float(np.mean(values))


def seat_value(episode: Episode, seat: int, measure: str) -> float:
    if measure.startswith("information"):
        own = [a for a in episode.evaluations[0].answers if a.view is None and a.respondent == f"agent_{seat}"]
        values = {
            "information": [float(a.value is True) for a in own],
            "information_answered": [float(a.value) for a in own if a.value is not None],
            "information_coverage": [float(a.value is not None) for a in own],
        }[measure]
    else:
        values = [goal_value(episode, seat, goal, measure) for owner, goal in OWN if owner == seat]
    return float(np.nanmean(values)) if np.isfinite(values).any() else np.nan


def seats_of(episodes: Iterable[Episode], policy: str, measure: str) -> list[tuple[str, str, float]]:
    """Template, task and value of every seat of a policy that has one."""
    table = [
        (episode.task.scenario.interview.template, episode.task.id, seat_value(episode, seat, measure))
        for episode in episodes
        for seat, info in enumerate(episode.policies)
        if info.name == policy
    ]
    return [row for row in table if np.isfinite(row[2])]


def instance_means(rows) -> dict[str, list[float]]:
    tasks = sorted({(template, task) for template, task, _ in rows})
    means = {key: float(np.mean([v for *own, v in rows if tuple(own) == key])) for key in tasks}
    return {t: [mean for (template, _), mean in means.items() if template == t] for t, _ in tasks}


@pytest.mark.parametrize("policy", ["x", "y"])
@pytest.mark.parametrize("measure", [*GOAL_MEASURES, *INFORMATION_MEASURES])
def test_completion_and_the_sensitivity_index(episodes, report, policy, measure):
    rows = seats_of(episodes, policy, measure)
    (cell,) = [c for c in report.completion if (c.policy, c.measure) == (policy, measure)]
    by_template = [np.mean([v for t, _, v in rows if t == template]) for template in TEMPLATES]
    assert cell.estimate.mean == pytest.approx(np.mean(by_template))
    assert (cell.estimate.n, cell.estimate.clusters) == (len(rows), 4)
    spreads = [np.std(means, ddof=1) for means in instance_means(rows).values()]
    assert cell.psi.mean == pytest.approx(np.mean(spreads))
    assert cell.psi.clusters == 4
    # Beside the PSI stands what it depends on besides people.
    assert cell.results == len(rows) / sum(map(len, instance_means(rows).values()))
    assert "results an instance" in interviews_report(report).text()


@pytest.mark.parametrize("policy", ["x", "y"])
def test_chi_square_tests_with_corrections(episodes, report, policy):
    means = instance_means(seats_of(episodes, policy, "judge majority"))
    population = np.var(np.concatenate([*means.values()]))
    tests = [item.test for item in report.tests if item.policy == policy]
    assert {test.template for test in tests} == set(means)
    p_values = []
    for test in tests:
        values = means[test.template]
        chi2 = 4 * np.var(values, ddof=1) / population
        p = 2 * min(stats.chi2(4).sf(chi2), stats.chi2(4).cdf(chi2))
        assert (test.n, test.chi2, test.p) == (5, pytest.approx(chi2), pytest.approx(min(p, 1)))
        assert (test.mean, test.variance) == (pytest.approx(np.mean(values)), pytest.approx(np.var(values, ddof=1)))
        assert test.more == (np.var(values, ddof=1) > population)
        p_values.append(test.p)
    for method, name in (("bonferroni", "bonferroni"), ("fdr_bh", "q")):
        assert [getattr(t, name) for t in tests] == pytest.approx(list(multipletests(p_values, method=method)[1]))


@pytest.mark.parametrize("policy", ["x", "y"])
def test_ratios_within_templates_with_corrections(episodes, report, policy):
    means = instance_means(seats_of(episodes, policy, "judge majority"))
    tests = [item.test for item in report.tests if item.policy == policy]
    p_values = []
    for test in tests:
        others = [values for template, values in means.items() if template != test.template]
        ratio = np.var(means[test.template], ddof=1) / np.mean([np.var(values, ddof=1) for values in others])
        f = stats.f(4, 4 * len(others))
        assert (test.ratio, test.ratio_p) == (pytest.approx(ratio), pytest.approx(2 * min(f.sf(ratio), f.cdf(ratio))))
        p_values.append(test.ratio_p)
    assert [test.ratio_q for test in tests] == pytest.approx(list(multipletests(p_values, method="fdr_bh")[1]))


@pytest.mark.parametrize("policy", ["x", "y"])
def test_the_share_of_the_variance_between_templates(episodes, report, policy):
    means = instance_means(seats_of(episodes, policy, "judge majority"))
    frame = pd.DataFrame([(t, value) for t, values in means.items() for value in values], columns=["t", "value"])
    (cell,) = [c for c in report.completion if (c.policy, c.measure) == (policy, "judge majority")]
    assert cell.between == pytest.approx(max(0, ols("value ~ t", frame).fit().rsquared_adj))


def test_the_spread_between_templates_hides_a_template_from_chi_square_and_not_from_the_ratio():
    together, apart = (rejections(between, sets=120) for between in (0.0, 0.25))
    assert min(together[:2]) > 0.75
    assert max(together[2:]) < 0.1
    assert (apart[0] < 0.2, apart[2] > 0.3) == (True, True)  # chi2 misses it, and rejects ordinary ones
    assert apart[1] == pytest.approx(together[1])  # means do not touch the ratio
    assert apart[3] == pytest.approx(together[3])


def test_the_ratio_needs_other_templates_that_vary():
    (wild, calm) = variation_tests({"wild": [0.0, 1.0], "calm": [0.5, 0.5]})
    assert (wild.ratio, wild.ratio_p, wild.ratio_q, wild.is_rejected_within) == (None, None, None, False)
    assert (calm.ratio, calm.ratio_p) == (0, 0)
    assert between_templates({"a": [1.0, 1.0], "b": [1.0]}) is None
    assert between_templates({"a": [1.0], "b": [0.0]}) is None
    assert between_templates({"a": [1.0, 1.0], "b": [0.0, 0.0]}) == 1


def test_the_level_of_the_test_is_what_it_says_for_normal_values():
    rng = np.random.default_rng(3)
    tests = variation_tests({str(n): rng.normal(size=5).tolist() for n in range(3000)})
    assert np.mean([test.p < 0.05 for test in tests]) == pytest.approx(0.05, abs=0.015)
    assert np.mean([test.more for test in tests if test.p < 0.05]) == pytest.approx(0.5, abs=0.15)


@pytest.mark.parametrize(
    ("instances", "number"),
    [({}, 0), ({"a": [1.0]}, 0), ({"a": [1.0, 1.0], "b": [1.0]}, 0), ({"a": [1.0, 0.0], "b": [1.0]}, 1)],
)
def test_templates_without_two_instances_or_variation_are_not_tested(instances, number):
    assert len(variation_tests(instances)) == number
    assert set(deviations(instances)) == {name for name, values in instances.items() if len(values) > 1}


def test_abnormal_templates_vary_more_and_are_rejected_for_most_policies():
    wild = {"wild": [0, 1, 0, 1, 1], **{f"calm{n}": [0.5, 0.5, 0.5, 0.5, 0.6] for n in range(12)}}
    (strong,) = [test for test in variation_tests(wild) if test.template == "wild"]
    (weak,) = [test for test in variation_tests(wild) if test.template == "calm0"]
    assert (strong.more, strong.p < 0.05) == (True, True)
    assert (weak.more, weak.p < 0.05) == (False, True)

    assert [test.is_rejected for test in (strong, weak, replace(strong, p=0.2))] == [True, False, False]
    assert [test.is_rejected_within for test in (strong, weak, replace(strong, ratio_p=0.2))] == [True, False, False]
    assert abnormal_templates([("wild", True), ("wild", True), ("wild", False)]) == ("wild",)
    assert abnormal_templates([("wild", True), ("wild", False)]) == ()


def pairs_of(episodes, respondent):
    result = []
    for episode in episodes:
        truth = goal_truth(episode.task, episode.evaluations[0].outcome)
        for answer in episode.evaluations[0].answers:
            key = (int(answer.about[-1]), answer.index)
            same = respondent in (f"{answer.respondent} ({answer.by})", answer.view, f"{answer.view}: {answer.by}")
            if same and answer.view and answer.value is not None and key in truth:
                result.append((answer.value, truth[key]))
    return result


@pytest.mark.parametrize(
    "respondent", ["judge_0 (judge/a)", "judge_2 (judge/c)", "self", "other", "self: x", "other: y"]
)
def test_answers_against_the_exact_truth(episodes, report, respondent):
    pairs = np.array(pairs_of(episodes, respondent))
    (row,) = [row for row in report.accuracies if row.respondent == respondent]
    table = [[np.sum((pairs[:, 0] == a) & (pairs[:, 1] == b)) for b in (False, True)] for a in (False, True)]
    assert row.kappa == pytest.approx(reference_kappa(np.array(table)).kappa)
    assert row.accuracy.n == len(pairs)


def test_the_accuracy_of_the_majority(episodes, report):
    (row,) = [row for row in report.accuracies if row.respondent == "judge majority"]
    values, clusters = [], []
    for episode in episodes:
        for (seat, goal), truth in goal_truth(episode.task, episode.evaluations[0].outcome).items():
            value = goal_value(episode, seat, goal, "judge majority")
            if np.isfinite(value):
                values.append(float(bool(value) == truth))
                clusters.append(episode.task.scenario.interview.template)
    assert row.accuracy == estimate(values, clusters, (0, 1), "templates")


@pytest.mark.parametrize(
    ("pairs", "kappa"),
    [
        ([], None),
        ([(True, True)] * 3, None),
        ([(True, True), (False, False)], 1.0),
        ([(True, False), (False, True)], -1.0),
        ([(True, True), (True, False)], 0.0),
        ([(True, True)] * 20 + [(True, False)] * 5 + [(False, True)] * 10 + [(False, False)] * 15, 0.4),
    ],
)
def test_kappa_by_hand(pairs, kappa):
    assert cohens_kappa(pairs) == (None if kappa is None else pytest.approx(kappa))


GROUPS = {
    ("goal type", "cooperation"): [(0, 1)],
    ("need", "growth"): [(0, 0), (0, 1)],
    ("need", "existence"): [(1, 0)],
    ("role", "receiver"): [(1, 0), (2, 0)],
    ("domain", "small society"): OWN,
    ("seats", "3"): OWN,
}


@pytest.mark.parametrize(("grouping", "group"), GROUPS)
@pytest.mark.parametrize("measure", ["judge average", "self"])
def test_completion_by_kinds_of_goals(episodes, report, grouping, group, measure):
    values, clusters = [], []
    for episode in episodes:
        for seat, goal in GROUPS[grouping, group]:
            value = goal_value(episode, seat, goal, measure)
            if episode.policies[seat].name == "x" and np.isfinite(value):
                values.append(value)
                clusters.append(episode.task.scenario.interview.template)
    (cell,) = [
        c for c in report.groups if (c.grouping, c.group, c.policy, c.measure) == (grouping, group, "x", measure)
    ]
    expected = estimate(values, clusters, (0, 1))
    assert (cell.estimate.n, cell.estimate.mean) == (expected.n, pytest.approx(expected.mean))
    assert (cell.estimate.low, cell.estimate.high) == (pytest.approx(expected.low), pytest.approx(expected.high))


@pytest.mark.parametrize(("part", "seats"), [("all", (0, 1, 2)), ("senders", (0,)), ("receivers", (1, 2))])
@pytest.mark.parametrize("sender", ["x", "y"])
@pytest.mark.parametrize("receiver", ["x", "y"])
def test_senders_and_receivers(episodes, report, part, seats, sender, receiver):
    pure = [e for e in episodes if [i.name for i in e.policies] == [sender, receiver, receiver]]
    values = {t: [] for t in TEMPLATES}
    for episode, seat in itertools.product(pure, seats):
        value = seat_value(episode, seat, "judge majority")
        if np.isfinite(value):
            values[episode.task.scenario.interview.template].append(value)
    (cell,) = [c for c in report.roles if (c.part, c.sender, c.receiver) == (part, sender, receiver)]
    assert cell.estimate.mean == pytest.approx(np.mean([np.mean(v) for v in values.values()]))
    assert report.mixed == len(episodes) // 5


@pytest.mark.parametrize("policy", ["x", "y"])
def test_attack_and_defence(episodes, report, policy):
    attacks, defences = {t: [] for t in TEMPLATES}, {t: [] for t in TEMPLATES}
    for episode in episodes:
        template, names = episode.task.scenario.interview.template, [info.name for info in episode.policies]
        own = {seat: seat_value(episode, seat, "information") for seat in (1, 2)}
        attacks[template] += [v for seat, v in own.items() if names[seat] == policy and np.isfinite(v)]
        values = [v for v in own.values() if np.isfinite(v)]
        defences[template] += [1 - np.mean(values)] if names[0] == policy and values else []
    (plane,) = [plane for plane in report.planes if plane.policy == policy]
    assert plane.attack.mean == pytest.approx(np.mean([np.mean(v) for v in attacks.values()]))
    assert plane.defence.mean == pytest.approx(np.mean([np.mean(v) for v in defences.values()]))


def test_what_was_asked_and_answered(episodes, report):
    answers = [answer for episode in episodes for answer in episode.evaluations[0].answers]
    counts = {(item.view, item.policy): (item.asked, item.answered) for item in report.responses}
    for view, by in (("self", "x"), ("other", "y"), (None, "x")):
        own = [a for a in answers if (a.view, a.by) == (view, by)]
        assert counts[view or "information", by] == (len(own), sum(a.value is not None for a in own))
    assert sum(count for count, _ in counts.values()) == len(answers)
    assert ("judge_1 (judge/b)", "") in counts


def test_an_unanswered_question_is_not_right_and_a_policy_that_was_not_asked_has_no_accuracy():
    """A policy that answers only what it is sure of was above one that answered all and knew more."""
    sure, keen, absent = "sure", "keen", "absent"

    def on_hall(seat, by, right, asked=True):
        fields = {"reason": "none", "asked": asked} if right is None else {"value": right, "choice": "so"}
        return InterviewAnswer(respondent=f"agent_{seat}", by=by, about="agent_0", index=0, **fields)

    rights = {sure: [True, None, None, None], keen: [True, True, False, None], absent: [None] * 4}
    episodes = [
        recorded("fair", n, (by, by, "x"), [on_hall(1, by, values[n], by != absent)])
        for by, values in rights.items()
        for n in range(4)
    ]
    result = interview_report(episodes, measure="information")
    cells = {(cell.policy, cell.measure): cell.estimate.mean for cell in result.completion}
    assert {name: cells[sure, name] for name in INFORMATION_MEASURES} == pytest.approx(
        {"information": 0.25, "information_answered": 1, "information_coverage": 0.25}
    )
    assert {name: cells[keen, name] for name in INFORMATION_MEASURES} == pytest.approx(
        {"information": 0.5, "information_answered": 2 / 3, "information_coverage": 0.75}
    )
    assert not {(absent, name) for name in INFORMATION_MEASURES} & set(cells)
    assert [(r.policy, r.asked, r.answered) for r in result.responses] == [(absent, 0, 0), (keen, 4, 3), (sure, 4, 1)]
    planes = {plane.policy: plane for plane in result.planes}
    assert (planes[sure].defence.mean, planes[keen].defence.mean) == (0.75, 0.5)
    assert absent not in planes
    row = next(
        line for line in interviews_report(result).text().splitlines() if line.startswith("sure") and "coverage" in line
    )
    assert "25.0" in row


def test_the_order_of_episodes_does_not_matter(episodes, report):
    again = interview_report(reversed(episodes))
    assert [c.estimate.mean for c in again.completion] == pytest.approx([c.estimate.mean for c in report.completion])


def test_unanswered_goals_are_left_out_and_never_zero():
    silent = [InterviewAnswer(respondent="agent_0", about="agent_0", index=0, view=View.SELF, reason="no answer")]
    answers = [InterviewAnswer(respondent="agent_0", about="agent_0", index=1, view=View.SELF, value=True)]
    result = interview_report([recorded("fair", 0, ("x", "x", "x"), silent + answers)], measure="self")
    (cell,) = [cell for cell in result.completion if cell.measure == "self"]
    assert (cell.estimate.mean, cell.estimate.n, cell.psi) == (1.0, 1, None)
    assert result.planes == ()
    assert {cell.measure for cell in result.completion} == {"self", "exact"}
    assert "n/a" in interviews_report(result).text()
    empty = interview_report([recorded("fair", 0, ("x", "x", "x"), silent)], measure="self")
    assert {cell.measure for cell in empty.completion} == {"exact"}
    assert empty.tests == ()


def test_policies_of_one_name_have_different_labels(episodes):
    odd = [i.model_copy(update={"parameters": {"t": 1}}) if i.name == "y" else i for i in episodes[1].policies]
    result = interview_report([episodes[0], episodes[1].model_copy(update={"policies": tuple(odd)}), episodes[3]])
    assert result.policies == ("x", "y", "y:t=1")


def test_an_episode_that_runs_share_counts_once(episodes):
    assert interview_report([*episodes, episodes[0]]) == interview_report(episodes)
    bare = episodes[0].model_copy(update={"evaluations": ()})
    assert interview_report([bare, *episodes]).completion == interview_report(episodes).completion


MISUSE = [
    (lambda e: interview_report([]), InvalidValueError, {"field": "episodes"}),
    (lambda e: interview_report(e, measure="self_"), UnknownNameError, {"field": "measure", "nearest": "self"}),
    (lambda e: interview_report(e, evaluator="intervew"), UnknownNameError, {"field": "evaluator"}),
    (
        lambda e: interview_report([e[0].model_copy(update={"evaluations": ()})]),
        InvalidValueError,
        {"field": "answers"},
    ),
    (
        lambda e: interview_report([e[0], e[1].model_copy(update={"evaluations": ()})]),
        InvalidValueError,
        {"field": "evaluator"},
    ),
]


@pytest.mark.parametrize(("call", "error", "fields"), MISUSE)
def test_misuse_is_one_sentence(episodes, call, error, fields):
    with raises(error, **fields):
        call(episodes)


def test_text_csv_json_and_charts(report, tmp_path):
    text = interviews_report(report).text()
    for words in ("judge majority by goal type", "sender \\ receiver", "PSI", "kappa", "defence", "F within"):
        assert words in text
    shares = {c.policy: f"{100 * c.between:.1f}" for c in report.completion if c.measure == "judge majority"}
    assert f"x {shares['x']}, y {shares['y']}" in text  # beside the test that depends on it
    data = json.loads(interviews_report(report).json())
    assert data["measure"] == "judge majority"
    assert len(data["completion"]) == 16
    sheets = {name: list(csv.DictReader(io.StringIO(sheet))) for name, sheet in interviews_report(report).csv().items()}
    (row,) = [r for r in sheets["completion"] if (r["policy"], r["measure"]) == ("x", "information")]
    (cell,) = [c for c in report.completion if (c.policy, c.measure) == ("x", "information")]
    assert float(row["mean"]) == pytest.approx(cell.estimate.mean)
    assert float(row["psi_mean"]) == pytest.approx(cell.psi.mean)
    assert len(sheets["sensitivity"]) == len(report.tests) == 8
    assert len(sheets["roles"]) == 12
    paths = interviews_report(report).write(tmp_path)
    pictures = [path for path in paths if path.suffix == ".png"]
    assert {path.name for path in pictures} == {"completion.png", "goal_types.png", "roles.png", "plane.png"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)


def test_a_report_without_roles_or_questions_has_no_such_charts(tmp_path):
    answers = [InterviewAnswer(respondent="agent_0", about="agent_0", index=1, view=View.SELF, value=True)]
    episode = recorded("fair", 0, ("x", "x", "x"), answers)
    bare = episode.task.scenario.model_copy(update={"interview": None})
    episode = episode.model_copy(update={"task": episode.task.model_copy(update={"scenario": bare})})
    result = interview_report([episode])
    assert result.roles == ()
    assert result.templates == 1
    names = {path.name for path in interviews_report(result).write(tmp_path)}
    assert "completion.png" in names
    assert not {"goal_types.png", "roles.png", "plane.png"} & names
