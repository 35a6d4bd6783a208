"""Statistics of a comparison, checked against hand-made numbers, statsmodels and simulation."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import random
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.files import escape_formulas
from sotopia_env.outcomes.result import OutcomeResult
from sotopia_env.reports.compare import Comparison, compare, compare_judges, compare_runs
from sotopia_env.reports.comparison_tables import comparison_report
from sotopia_env.reports.differences import CLOSEST
from sotopia_env.reports.intervals import METHOD, show_number
from sotopia_env.reports.seat_results import METRICS, seat_results
from sotopia_env.runs import evaluate_run, plan_episodes, run_episodes
from sotopia_env.runs.plan import EpisodePlan, all_matchups
from sotopia_env.storage.evaluator_names import recorded_evaluator
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.episode import Episode, Evaluation, Score, write_episodes
from sotopia_env.world.reward import DIMENSIONS, RANGES, CustomDimension
from tests.errors import raises
from tests.sotopia_env.outcome_tasks import sale
from tests.sotopia_env.runs.rollout_doubles import NO_VERDICT, FixedEvaluator, Speaker, make_task

A, B, C = Speaker("a"), Speaker("b"), Speaker("c")


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Objects of earlier tests are collected here by chance, with warnings of their own.
        warnings.simplefilter("ignore", ResourceWarning)
        yield


def scored(plan: EpisodePlan, goals: tuple[float, ...], outcome: OutcomeResult | None = None) -> Episode:
    """The played plan with these GOAL scores by seat and the middle of the range elsewhere."""
    (episode,) = asyncio.run(run_episodes([plan])).episodes
    scores = [
        Score(agent=agent, dimension=d, value=goal if d == "goal" else sum(RANGES[d]) / 2)
        for agent, goal in zip(episode.task.agents, goals, strict=True)
        for d in DIMENSIONS
    ]
    return episode.with_evaluation(Evaluation(evaluator="fixed", scores=tuple(scores), outcome=outcome))


def mean(comparison: Comparison, policy: str, metric: str = "goal") -> float:
    cell = comparison.cell(policy, metric)
    assert cell is not None
    return cell.estimate.mean


def test_a_group_of_many_seats_does_not_drown_a_pair() -> None:
    pair, group = make_task("s0"), make_task("s1", seats=5)
    episodes = [scored(EpisodePlan(pair, (A,) * 2), (0.0, 0.0)), scored(EpisodePlan(group, (A,) * 5), (10.0,) * 5)]
    result = compare(episodes)
    assert mean(result, "a") == 5.0  # seats alike would make it 50 / 7
    assert "each scenario weighs the same" in comparison_report(result).text()
    assert METHOD in comparison_report(result).text()


def test_a_report_on_one_policy_has_no_note_on_seats_in_common() -> None:
    text = comparison_report(compare([scored(EpisodePlan(make_task("s0"), (A, A)), (4.0, 5.0))])).text()
    assert "1 policy\n" in text
    assert "means of" not in text
    assert "left out" not in text


def test_s4_a_score_belongs_to_the_policy_in_the_scored_seat() -> None:
    """The predecessor's result tables both showed agent 2's scores, whichever policy had that seat."""
    plans = plan_episodes([make_task(f"s{i}") for i in range(3)], [(A, B)])
    # Policy a always gets 8, b always 2, wherever they sit.
    episodes = [scored(plan, (8.0, 2.0) if plan.policies[0] is A else (2.0, 8.0)) for plan in plans]
    result = compare(episodes)
    assert (mean(result, "a"), mean(result, "b")) == (8.0, 2.0)
    cell = result.cell("a", "goal")
    assert cell is not None
    assert cell.estimate.n == 6


def test_s5_policies_of_one_name_with_other_parameters_are_not_pooled() -> None:
    fast, slow = replace(A, parameters={"beta": 2}), replace(A, parameters={"beta": 0.5})
    plans = plan_episodes([make_task("s0"), make_task("s1")], [(fast, B), (slow, B)], both_seats=False)
    episodes = [scored(plan, (9.0 if plan.policies[0] is fast else 3.0, 5.0)) for plan in plans]
    result = compare(episodes)
    assert result.policies == ("a:beta=0.5", "a:beta=2", "b")
    assert [mean(result, policy) for policy in result.policies] == [3.0, 9.0, 5.0]


def test_s5_a_policy_counts_only_where_it_sits_and_first_means_first() -> None:
    plans = plan_episodes([make_task("s0")], [(A, B), (B, C)], both_seats=False, orders="both")
    rows = seat_results([scored(plan, (1.0, 2.0)) for plan in plans])
    table = sorted((r.policy, r.partner, r.seat, r.first) for r in rows)
    assert table == [
        ("a", "b", 0, False),
        ("a", "b", 0, True),
        ("b", "a", 1, False),
        ("b", "a", 1, True),
        ("b", "c", 0, False),
        ("b", "c", 0, True),
        ("c", "b", 1, False),
        ("c", "b", 1, True),
    ]


def test_s3_comparing_only_reads(tmp_path: Path) -> None:
    """There, the benchmark deleted the episodes whose reward was a float: all of them."""
    plans = plan_episodes([make_task("s0"), make_task("s1")], [(A, B)])
    asyncio.run(run_episodes(plans, evaluator=FixedEvaluator(), run_dir=tmp_path / "run"))
    before = {file.name: file.read_bytes() for file in (tmp_path / "run").iterdir()}
    result = compare_runs([tmp_path / "run"])
    comparison_report(result).write(tmp_path / "report")
    assert result.episodes == 4
    assert {file.name: file.read_bytes() for file in (tmp_path / "run").iterdir()} == before


def test_s13_a_comparison_is_the_same_every_time_and_in_any_order_of_episodes() -> None:
    plans = plan_episodes([make_task(f"s{i}") for i in range(4)], all_matchups([A, B, C]))
    generator = random.Random(3)
    episodes = [scored(plan, (generator.randrange(11), generator.randrange(11))) for plan in plans]
    first = comparison_report(compare(episodes)).json()
    np.random.seed(1)  # noqa: NPY002
    assert comparison_report(compare(episodes)).json() == first
    generator.shuffle(episodes)
    assert (
        comparison_report(compare(episodes)).text()
        == comparison_report(compare(sorted(episodes, key=lambda e: e.key))).text()
    )


def test_unscored_is_counted_and_left_out_never_zero() -> None:
    plans = plan_episodes([make_task(f"s{i}") for i in range(4)], [(A, B)], both_seats=False)
    episodes = [scored(plan, (8.0, 4.0)) for plan in plans[:3]]
    episodes += asyncio.run(run_episodes(plans[3:], evaluator=FixedEvaluator(fails=NO_VERDICT))).episodes
    result = compare(episodes)
    cell = result.cell("a", "goal")
    assert cell is not None
    assert (cell.estimate.mean, cell.estimate.n, cell.unscored) == (8.0, 3, 1)
    assert (result.unscored, result.reasons) == (1, (("EvaluationError: the judge wrote no JSON", 1),))
    assert "1 × EvaluationError: the judge wrote no JSON" in comparison_report(result).text()
    words = result.cell("a", "words_per_turn")
    assert words is not None
    assert (words.estimate.n, words.unscored) == (4, 0)


def test_episodes_without_any_evaluation_compare_by_words() -> None:
    result = compare(
        asyncio.run(run_episodes(plan_episodes([make_task()], [(A, replace(B, text="one two three four"))]))).episodes
    )
    assert (result.metrics, result.main, result.unscored) == (("words_per_turn",), "words_per_turn", 2)
    assert (mean(result, "a", "words_per_turn"), mean(result, "b", "words_per_turn")) == (3.0, 5.0)


def test_words_per_turn_counts_speech_over_all_own_turns() -> None:
    (episode,) = asyncio.run(run_episodes([EpisodePlan(make_task(), (A, B))])).episodes
    item = episode.turns[0]
    silent = item.model_copy(update={"turn": replace(item.turn, action=Action(ActionType.ACTION, "waves both hands"))})
    rows = seat_results([episode.model_copy(update={"turns": (silent, *episode.turns[1:])})])
    assert rows[0].values["words_per_turn"] == 1.5  # nothing spoken, then "hello there <seed>"


def test_paired_difference_by_hand() -> None:
    # Against partner c, seat 0 and seat 1: a - b is 1 in s0, 2 in s1, 6 in s2, the same in both seats.
    gaps = {"s0": 1.0, "s1": 2.0, "s2": 6.0}
    plans = plan_episodes([make_task(s) for s in gaps], [(A, C), (B, C)])
    episodes = []
    for plan in plans:
        seat = 1 if plan.policies[0] is C else 0
        goal = 3.0 + (gaps[plan.task.scenario.id] if plan.policies[seat] is A else 0.0)
        episodes.append(scored(plan, (goal, 5.0) if seat == 0 else (5.0, goal)))
    (result,) = (d for d in compare(episodes).differences if (d.first, d.second, d.metric) == ("a", "b", "goal"))
    assert result.paired_by == CLOSEST
    assert (result.estimate.n, result.estimate.clusters, result.estimate.mean) == (6, 3, 3.0)
    from scipy import stats

    test = stats.ttest_1samp(list(gaps.values()), 0)
    assert result.estimate.p == pytest.approx(test.pvalue)
    assert (result.estimate.low, result.estimate.high) == pytest.approx(tuple(test.confidence_interval()))
    assert result.q is not None
    assert result.q >= result.estimate.p


def test_pairing_takes_the_closest_match_there_is_and_says_which() -> None:
    head_to_head = plan_episodes([make_task("s0"), make_task("s1")], [(A, B)])
    result = compare([scored(plan, (7.0, 3.0)) for plan in head_to_head])
    assert {d.paired_by for d in result.differences} == {"task, rules, seat"}
    one_seat = plan_episodes([make_task("s0"), make_task("s1")], [(A, B)], both_seats=False)
    result = compare([scored(plan, (7.0, 3.0)) for plan in one_seat])
    assert {d.paired_by for d in result.differences} == {"task, rules"}
    apart = [EpisodePlan(make_task("s0"), (A, A)), EpisodePlan(make_task("s1"), (B, B))]
    assert compare([scored(plan, (7.0, 3.0)) for plan in apart]).differences == ()


def test_matrix_holds_policy_by_partner_and_mixed_tables_of_three() -> None:
    plans = plan_episodes([make_task("s0", seats=3)], [(A, B, C)], both_seats=False)
    result = compare([scored(plans[0], (1.0, 2.0, 3.0))], metrics=["goal"])
    assert {(m.policy, m.partner): m.estimate.mean for m in result.matrix} == {
        ("a", "b+c"): 1.0,
        ("b", "a+c"): 2.0,
        ("c", "a+b"): 3.0,
    }


def outcome(agreed: bool, shares: tuple[float, float], efficiency: float) -> OutcomeResult:
    return OutcomeResult(agreed=agreed, reason="r", payoffs=shares, shares=shares, efficiency=efficiency)


@pytest.mark.parametrize(("family", "group"), [({"family": "bargaining"}, "bargaining"), ({}, "agreement")])
def test_success_and_shares_come_from_the_verified_outcome_by_seat_and_family(
    family: dict[str, str], group: str
) -> None:
    episodes = []
    for number, is_deal in enumerate((True, True, False)):
        task = make_task(f"s{number}")
        fields = {"outcome": sale().scenario.outcome, "shared_data": family}
        task = task.model_copy(update={"scenario": task.scenario.model_copy(update=fields)})
        verified = outcome(is_deal, (0.75, 0.25) if is_deal else (0.0, 0.0), float(is_deal))
        episodes.append(scored(EpisodePlan(task, (A, B)), (5.0, 5.0), verified))
    later = [e.with_evaluation(Evaluation(evaluator="later", unscored="no key")) for e in episodes]
    for result in (compare(episodes), compare(later, evaluator="later")):  # one without outcome hides none
        assert result.outcomes_by == ("fixed",)
        assert mean(result, "a", "success") == pytest.approx(2 / 3)
        assert (mean(result, "a", "surplus_share"), mean(result, "b", "surplus_share")) == (0.5, pytest.approx(1 / 6))
        assert {(c.group, c.policy) for c in result.families} == {(group, "a"), (group, "b")}
        assert "verified family" in comparison_report(result).text()
    assert compare(later, evaluator="later").unscored == 3
    assert mean(compare(later, evaluator="fixed"), "a") == 5.0


def test_an_interval_below_0_belongs_to_a_metric_that_the_report_names() -> None:
    """An agreement may be worth less than none: such a metric has no lowest value, and its interval may go below 0."""
    plans = plan_episodes([make_task(f"s{number}") for number in range(3)], [(A, B)], both_seats=False)
    results = [outcome(True, (worth, worth), worth) for worth in (1.0, 0.9, -0.5)]
    result = compare([scored(plan, (5.0, 5.0), verified) for plan, verified in zip(plans, results, strict=True)])
    cell = result.cell("a", "efficiency")
    assert cell is not None
    assert cell.estimate.low is not None
    assert cell.estimate.low < 0
    assert result.ranges["efficiency"] == (None, 1)
    # Every other interval is within its range, and every metric that may leave 0 downwards is named below the tables.
    named = comparison_report(result).text().split(METHOD)[1].splitlines()[1]
    for item in result.cells:
        low, high = result.ranges[item.metric]
        assert low is None or item.estimate.low is None or item.estimate.low >= low
        assert high is None or item.estimate.high is None or item.estimate.high <= high
        assert (item.metric in named) is (low is None)


def test_overall_is_the_mean_of_seven_and_absent_with_fewer() -> None:
    (episode,) = asyncio.run(run_episodes([EpisodePlan(make_task(), (A, B))])).episodes
    partial = Evaluation(evaluator="v", scores=(Score(agent="agent_0", dimension=DIMENSIONS[-1], value=7.0),))
    result = compare([episode.with_evaluation(partial)])
    assert "overall" not in result.metrics
    assert result.main == "goal"
    assert result.reasons == (("v: no score for agent_1", 1),)
    full = compare([scored(EpisodePlan(make_task(), (A, B)), (10.0, 0.0))])
    assert mean(full, "a", "overall") == pytest.approx((5 + 0 + 5 - 5 - 5 + 0 + 10) / 7)


def with_politeness(plan: EpisodePlan, scores: tuple[float, float], high: int = 5) -> Episode:
    """A played plan scored on a dimension of the user's own and on no other."""
    (episode,) = asyncio.run(run_episodes([plan])).episodes
    own = CustomDimension(name="politeness", low=1, high=high, instruction="How polite?")
    values = zip(episode.task.agents, scores, strict=True)
    verdict = tuple(Score(agent=agent, dimension="politeness", value=value) for agent, value in values)
    return episode.with_evaluation(Evaluation(evaluator="own", dimensions=(own,), scores=verdict))


def test_a_custom_dimension_is_a_metric_like_any_other(tmp_path: Path) -> None:
    plans = plan_episodes([make_task(f"s{i}") for i in range(4)], [(A, B)], both_seats=False)
    episodes = [with_politeness(plan, (5.0, 2.0 if i else 1.0)) for i, plan in enumerate(plans)]
    result = compare(episodes, metrics=["politeness"])
    assert (result.main, result.metrics, result.unscored) == ("politeness", ("words_per_turn", "politeness"), 0)
    assert (mean(result, "a", "politeness"), mean(result, "b", "politeness")) == (5.0, 1.75)
    cell = result.cell("b", "politeness")
    assert cell is not None
    assert cell.estimate.low is not None
    assert cell.estimate.low >= 1
    text = comparison_report(result).text()
    assert "politeness: partner \\ policy" in text
    assert re.search(r"a +b +politeness", text)
    assert {m.metric for m in result.matrix} == {"politeness"}
    assert {"means.png", "differences.png"} <= {path.name for path in comparison_report(result).write(tmp_path)}
    with raises(UnknownNameError, field="metric", nearest="politeness"):
        compare(episodes, metrics=["politness"])
    other = with_politeness(EpisodePlan(make_task("s9"), (A, B)), (7.0, 7.0), high=7)
    with raises(InvalidValueError, field="dimension", got="politeness"):
        compare([*episodes, other])


def test_each_evaluator_is_compared_in_the_metrics_that_it_has(tmp_path: Path) -> None:
    plans = plan_episodes([make_task(f"s{i}") for i in range(4)], [(A, B)], both_seats=False)
    episodes = [with_politeness(plan, (5.0, 2.0 if i else 1.0)) for i, plan in enumerate(plans)]
    score = Score(agent="agent_0", dimension="goal", value=3)
    episodes = [e.with_evaluation(Evaluation(evaluator="other", scores=(score,))) for e in episodes]
    write_episodes(path := tmp_path / "run.jsonl", episodes)
    one, other = compare_judges([path], ["own", "other"], ["politeness", "goal"])
    assert (one.headlines[0], other.headlines) == ("politeness", ("goal",))
    with raises(UnknownNameError, field="metric", got="politeness"):
        compare_judges([path], ["other"], ["politeness"])
    # A metric that exists and that nobody scored is refused with what would make it possible.
    with raises(InvalidValueError, field="primary", got="secret"):
        compare_judges([path], ["other"], primary="secret")
    with raises(InvalidValueError, field="metric", got="secret"):
        compare_judges([path], ["other"], ["secret"], by="tag")


def test_no_custom_dimension_has_the_name_of_a_metric() -> None:
    for name in METRICS:
        with raises(ValueError, field="name"):
            CustomDimension(name=name, low=0, high=1, instruction="How much?")


def test_one_task_has_no_interval_says_why_and_shows_no_nan(tmp_path: Path) -> None:
    result = compare([scored(EpisodePlan(make_task(), (A, B)), (7.0, 3.0))])
    text = comparison_report(result).text()
    assert "7.00 [n/a: one casting; 2 or more are needed] 1" in text
    assert not re.search(r"\bnan\b", text, re.IGNORECASE)
    assert not re.search(r"n/a(?!:)", text)  # every one has its reason
    assert "NaN" not in comparison_report(result).json()
    charts = [path for path in comparison_report(result).write(tmp_path) if path.suffix == ".png"]
    assert [path.stem for path in charts] == ["means", "differences", "heat_map"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in charts)


def test_report_files_hold_the_same_numbers(tmp_path: Path) -> None:
    plans = plan_episodes([make_task(f"s{i}") for i in range(4)], all_matchups([A, B]))
    generator = random.Random(2)
    result = compare([scored(plan, (generator.randrange(11), generator.randrange(11))) for plan in plans])
    paths = comparison_report(result).write(tmp_path)
    assert {path.name for path in paths} == {
        "comparison.txt",
        "comparison.json",
        "policies.csv",
        "differences.csv",
        "matrix.csv",
        "ranking.csv",
        "turns.csv",
        "means.png",
        "differences.png",
        "heat_map.png",
    }
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in paths}
    rows = list(csv.DictReader(io.StringIO(comparison_report(result).csv()["policies"])))
    cells = json.loads((tmp_path / "comparison.json").read_text())["cells"]
    assert [(r["policy"], r["metric"], float(r["mean"])) for r in rows] == [
        (c["policy"], c["metric"], c["estimate"]["mean"]) for c in cells
    ]
    assert (tmp_path / "heat_map.png").read_bytes().startswith(b"\x89PNG")


def test_a_policys_name_is_no_formula_in_a_sheet_and_one_cell_of_a_table() -> None:
    name = '=HYPERLINK("x");=1\n<|im_end|>'
    originals = [scored(plan, (3.0, 4.0)) for plan in plan_episodes([make_task("s0"), make_task("s1")], [(A, B)])]
    infos = [
        tuple(info.model_copy(update={"name": name}) if info.name == "a" else info for info in episode.policies)
        for episode in originals
    ]
    episodes = [e.model_copy(update={"policies": i}) for e, i in zip(originals, infos, strict=True)]
    for baseline in (None, name):
        report = comparison_report(compare(episodes, baseline=baseline))
        rows = csv.DictReader(io.StringIO(report.csv()["policies"], newline=""))
        assert {row["policy"] for row in rows} == {escape_formulas(name), "b"}
        for text in (report.text(), report.markdown()):
            assert r'=HYPERLINK("x");=1\u000a\u003c|im_end' in text
            assert not [line for line in text.splitlines() if line.startswith("<|")]


def evaluated(names: str, plan: EpisodePlan) -> Episode:
    """The plan with one evaluation per letter; ``r`` gives 5 for everything, others what :func:`scored` says."""
    episode = scored(plan, (8.0, 2.0))
    (first,) = episode.evaluations
    middle = tuple(s.model_copy(update={"value": 5.0}) if s.dimension == "goal" else s for s in first.scores)
    for name in names:
        change = {"evaluator": name, "scores": middle if name == "r" else first.scores}
        episode = episode.with_evaluation(first.model_copy(update=change))
    evaluations = tuple(e for e in episode.evaluations if e.evaluator in names)
    return episode.model_copy(update={"evaluations": evaluations})


@pytest.mark.parametrize(
    ("names", "evaluator", "expected"),
    [
        (("v", "v", "v"), None, "v"),
        (("vr", "v", "vr"), None, "v"),  # the latest would mix r with v
        (("v", "r", "v"), None, InvalidValueError),
        (("v", "v", ""), None, InvalidValueError),
        (("vr", "vr", "vr"), None, InvalidValueError),
        (("vr", "vr", "vr"), "r", "r"),
        (("v", "r", "v"), "v", "v"),
        (("", "", ""), None, None),
    ],
)
def test_scores_of_different_evaluators_are_never_mixed(
    names: tuple[str, ...], evaluator: str | None, expected: str | type[Exception] | None
) -> None:
    plans = plan_episodes([make_task(f"s{i}") for i in range(3)], [(A, B)], both_seats=False)
    episodes = [evaluated(own, plan) for own, plan in zip(names, plans, strict=True)]
    if expected is InvalidValueError:
        with raises(InvalidValueError, field="evaluator") as caught:
            compare(episodes, evaluator=evaluator)
        assert "--evaluator" in str(caught.value)
        return
    result = compare(episodes, evaluator=evaluator)
    assert result.evaluator == expected
    assert f"scores by: {expected or 'no evaluator'}" in comparison_report(result).text()
    if expected:
        assert mean(result, "a") == (5.0 if expected == "r" else 8.0)


def test_an_evaluator_has_one_name_from_the_run_to_the_comparison() -> None:
    recorded = ["judge(local/m)#217f3f", "judge(local/k)#295f2b", "verified+judge(local/m)#217f3f"]
    for name, expected in zip(("judge:local/m", "judge:local/k", "verified+judge:local/m"), recorded, strict=True):
        assert recorded_evaluator(name, recorded) == expected
        assert recorded_evaluator(expected, recorded) == expected
    for name in ("judge:local/x", "judge:local/m:bands=true", "verified"):
        with raises(UnknownNameError, field="evaluator"):
            recorded_evaluator(name, recorded)
    with raises(UnknownNameError, field="evaluator", nearest="judge(local/m)#217f3f"):  # which of the two is not said
        recorded_evaluator("judge:local/m", [*recorded, "judge(local/m)#0144f8"])
    options = {
        "judge(local/m:8b)#217f3f": {"model": "local/m:8b", "bands": False, "per": "episode"},
        "judge(local/m:8b)#0144f8": {"model": "local/m:8b", "bands": True, "per": "episode"},
    }
    both = "verified+judge(local/m:8b)#0144f8"
    nested = {**options, both: {"aggregate": "first", "members": dict(list(options.items())[1:])}}
    for name, expected in (("bands=true", "#0144f8"), ("bands=false,per=episode", "#217f3f")):
        assert recorded_evaluator(f"judge:local/m:8b:{name}", nested, nested).endswith(f"(local/m:8b){expected}")
    assert recorded_evaluator("verified+judge:local/m:8b:bands=true", nested, nested) == both
    for name in ("judge:local/m:8b:per=agent", "judge:local/m:8b", "verified+judge:local/m:8b:bands=false"):
        with raises(UnknownNameError, field="evaluator") as caught:
            recorded_evaluator(name, nested, nested)
        assert ("bands=true" in caught.value.hint) is (name == "judge:local/m:8b")
    (plan,) = plan_episodes([make_task("s0")], [(A, B)], both_seats=False)
    (evaluation,) = scored(plan, (8.0, 2.0)).evaluations
    judged = scored(plan, (1.0, 1.0)).with_evaluation(evaluation.model_copy(update={"evaluator": recorded[0]}))
    result = compare([judged], evaluator="judge:local/m", metrics=["goal"])
    assert (result.evaluator, mean(result, "a")) == (recorded[0], 8.0)


def test_judges_of_one_model_are_named_by_their_options_where_these_differ() -> None:
    (plan,) = plan_episodes([make_task("s0")], [(A, B)], both_seats=False)
    (evaluation,) = scored(plan, (8.0, 2.0)).evaluations
    judged = scored(plan, (1.0, 1.0))
    for digits, bands in (("217f3f", True), ("0144f8", False)):
        update = {"evaluator": f"judge(local/m)#{digits}", "parameters": {"model": "local/m", "bands": bands}}
        judged = judged.with_evaluation(evaluation.model_copy(update=update))
    result = compare([judged], evaluator="judge:local/m:bands=true")
    assert (result.evaluator, "bands=true" in result.scored_by) == ("judge(local/m)#217f3f", True)
    assert result.scored_by in comparison_report(result).text()
    with raises(InvalidValueError, field="evaluator") as caught:
        compare([judged])
    assert "bands=false" in str(caught.value)


def test_the_evaluator_of_the_run_decides_between_several(tmp_path: Path) -> None:
    plans = plan_episodes([make_task("s0"), make_task("s1")], [(A, B)], both_seats=False)
    asyncio.run(run_episodes(plans, evaluator=FixedEvaluator(), run_dir=tmp_path))
    asyncio.run(evaluate_run(tmp_path, FixedEvaluator(name="other", fractions=(0.5, 0.5))))
    result = compare_runs([tmp_path])
    assert (result.evaluator, mean(result, "a")) == ("fixed", 8.0)
    assert compare_runs([tmp_path], evaluator="other").evaluator == "other"
    with raises(InvalidValueError, field="evaluator"):
        compare_runs([tmp_path / "episodes.jsonl"])  # a mere file was not configured with any


def test_seats_with_another_partner_are_left_out_where_some_share_it_and_the_count_says_so() -> None:
    # a and b meet c in one common scenario; in 20 others they meet only each other, so their partners differ.
    apart = plan_episodes([make_task(f"s{i}") for i in range(20)], [(A, B)])
    alike = plan_episodes([make_task("t")], [(A, C), (B, C)], both_seats=False)
    episodes = [scored(plan, (7.0, 7.0)) for plan in apart]
    episodes += [scored(plan, (10.0 if plan.policies[0] is A else 0.0, 5.0)) for plan in alike]
    (result,) = (d for d in compare(episodes).differences if (d.first, d.second, d.metric) == ("a", "b", "goal"))
    assert (result.same_partner, result.matched, result.seats) == (True, 2, 82)
    assert (result.estimate.mean, result.estimate.low) == (10.0, None)  # one scenario has no interval
    sheets = {sheet.name: sheet.records() for sheet in comparison_report(compare(episodes)).sheets}
    assert {(row["matched"], row["seats"]) for row in sheets["differences"] if row["first"] == "a"} >= {(2, 82)}


def by_partner(plan: EpisodePlan) -> Episode:
    """Scores that depend on the policy, and by far more on its partner: c is easy, and a is 1 better than b."""
    strength, ease = {"a": 4.0, "b": 3.0, "c": 2.0}, {"a": 0.0, "b": 0.0, "c": 5.0}
    first, second = (policy.name for policy in plan.policies)
    return scored(plan, (strength[first] + ease[second], strength[second] + ease[first]))


def test_a_partner_that_only_one_policy_met_changes_no_difference_and_no_mean_of_the_others() -> None:
    tasks = [make_task(f"s{i}") for i in range(4)]
    episodes = [by_partner(plan) for plan in plan_episodes(tasks, all_matchups([A, B]))]
    more = [by_partner(plan) for plan in plan_episodes(tasks, [(B, C)])]
    before, after = compare(episodes), compare([*episodes, *more])
    for metric in ("goal", "overall"):
        old, new = (
            [d for d in r.differences if (d.first, d.second, d.metric) == ("a", "b", metric)] for r in (before, after)
        )
        assert [d.estimate for d in old] == [d.estimate for d in new]
        assert [before.cell(p, metric) for p in "ab"] == [after.cell(p, metric) for p in "ab"]
    assert (mean(after, "a"), mean(after, "b")) == (4.0, 3.0)
    assert (after.common.policies, after.common.partners) == (("a", "b"), ("a", "b"))
    assert (after.common.matched, after.common.seats) == (32, 40)
    assert after.common.others == (("c", ("b",)),)
    assert "c [*]" in comparison_report(after).text()
    assert before.common.others == ()
    assert "[*]" not in comparison_report(before).text()


@pytest.mark.parametrize(("missing", "group"), [(1, ("a", "b", "c")), (2, ("a", "b"))])
def test_a_policy_that_lacks_more_than_one_seat_in_twenty_is_not_ranked_and_named(
    missing: int, group: tuple[str, ...]
) -> None:
    tasks = [make_task(f"s{i}") for i in range(20)]
    plans = plan_episodes(tasks, [(policy, Speaker("p")) for policy in (A, B)], both_seats=False)
    plans += plan_episodes(tasks[missing:], [(C, Speaker("p"))], both_seats=False)
    result = compare([scored(plan, (5.0, 5.0)) for plan in plans], metrics=["goal"])
    assert result.common.policies == group
    assert [rank.policy for rank in result.ranking] == list(group)
    seats = 20 - missing if "c" in group else 20
    assert [cell.estimate.n for cell in result.cells if cell.metric == "goal" and cell.policy in "ab"] == [seats] * 2
    assert ("c", "of 20 not played", missing) in result.common.left_out or "c" in group


def test_policies_that_met_no_common_partner_are_compared_with_a_warning() -> None:
    tasks = [make_task(f"s{i}") for i in range(3)]
    result = compare([by_partner(plan) for plan in plan_episodes(tasks, [(A, A), (B, B)])])
    assert result.common.policies == ()
    assert [d.same_partner for d in result.differences if d.metric == "goal"] == [False]
    text = comparison_report(result).text()
    assert "no two policies have a task, a seat and a partner in common" in text
    rows = list(csv.DictReader(io.StringIO(comparison_report(result).csv()["differences"])))
    assert {row["same_partner"] for row in rows} == {"False"}


def test_runs_that_share_a_baselines_self_play_count_it_once(tmp_path: Path) -> None:
    tasks = [make_task(f"s{i}") for i in range(3)]
    for name, policy in (("x", A), ("y", C)):
        asyncio.run(
            run_episodes(
                plan_episodes(tasks, all_matchups([policy, B])), evaluator=FixedEvaluator(), run_dir=tmp_path / name
            )
        )
    asyncio.run(evaluate_run(tmp_path / "y", FixedEvaluator(name="other")))
    result = compare_runs([tmp_path / "x", tmp_path / "y"])
    assert (result.evaluator, result.episodes) == (FixedEvaluator().name, 3 * 2 * 3 + 3)
    assert ("b", "b") in {(cell.policy, cell.partner) for cell in result.matrix}
    again = compare_runs([tmp_path / "x", tmp_path / "x"])
    assert again == compare_runs([tmp_path / "x"])


def test_imbalance_of_seats_and_order_is_reported_and_balance_is_not() -> None:
    tasks = [make_task("s0"), make_task("s1", seats=3)]
    fair = compare([scored(p, (5.0,) * len(p.policies)) for p in plan_episodes(tasks, [(A, B)])])
    assert (fair.imbalances, "not balanced" in comparison_report(fair).text()) == ((), False)
    result = compare([scored(p, (5.0, 5.0)) for p in plan_episodes(tasks[:1], [(A, B)], both_seats=False)])
    rows = [(i.policy, i.by_seat, i.first, i.in_order) for i in result.imbalances]
    assert rows == [("a", (1, 0), 1, 1), ("b", (0, 1), 0, 1)]
    assert "a in tasks of 2 seats (seat 0: 1, seat 1: 0; began 1 of 1)" in comparison_report(result).text()


@pytest.mark.parametrize("path_name", ["file", "file/deeper"])
def test_a_report_that_cannot_be_written_is_a_sentence(tmp_path: Path, path_name: str) -> None:
    (tmp_path / "file").write_text("kept")
    result = compare([scored(EpisodePlan(make_task(), (A, B)), (7.0, 3.0))])
    with raises(InvalidValueError, file="comparison.txt"):
        comparison_report(result).write(tmp_path / path_name)
    assert (tmp_path / "file").read_text() == "kept"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_wrong_input_is_named() -> None:
    episode = scored(EpisodePlan(make_task(), (A, B)), (7.0, 3.0))
    with raises(InvalidValueError, field="episodes"):
        compare([])
    with raises(UnknownNameError, field="evaluator", got="fixd", nearest="fixed"):
        compare([episode], evaluator="fixd")
    with raises(UnknownNameError, field="metric", nearest="goal"):
        compare([episode], metrics=["goals"])
    with raises(InvalidValueError, field="policies"):
        compare([episode.model_copy(update={"policies": ()})])
    with raises(InvalidValueError, file="run"):
        compare_runs(["no/such/run"])


@pytest.mark.parametrize(
    ("value", "text"), [(None, "n/a"), (-0.001, "0.00"), (-0.0, "0.00"), (1.005, "1.00"), (-2, "-2.00")]
)
def test_numbers_are_shown_without_a_negative_zero(value: float | None, text: str) -> None:
    assert show_number(value) == text


def test_tables_show_single_partners_and_say_what_they_leave_out() -> None:
    plans = plan_episodes([make_task("s0", seats=3), make_task("s1")], [(A, B)])
    result = compare([scored(plan, (1.0, 2.0, 3.0)[: len(plan.policies)]) for plan in plans])
    assert result.partners == ("a", "b")
    assert {m.partner for m in result.matrix} == {"a", "b", "a+b"}
    assert "(1 mixed sets of partners" in comparison_report(result).text()
