"""Differences to a baseline beside each partner, several judges beside each other, and comparisons kept in files."""

import asyncio
import json
import math
from collections import Counter

import pytest
from scipy import stats
from typer.testing import CliRunner

from sotopia_env import tasks
from sotopia_env.cli.app import app
from sotopia_env.evaluators import ComputedEvaluator
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.naming import make_evaluator, make_policy
from sotopia_env.reports import comparison_report
from sotopia_env.reports.compare import CompareSpec, compare, compare_judges
from sotopia_env.reports.differences import CLOSEST
from sotopia_env.runs import evaluate_run, plan_episodes, run_episodes
from sotopia_env.storage import read_run
from sotopia_env.testing import FixedEvaluator
from sotopia_env.world.episode import Evaluation
from sotopia_env.world.reward import Dimension
from tests.errors import raises
from tests.sotopia_env.reports.test_compare import scored
from tests.sotopia_env.runs.rollout_doubles import Speaker, make_task

A, B, C, P, Q = map(Speaker, "abcpq")
GOALS = {("a", "p"): 6.0, ("a", "q"): 5.0, ("b", "p"): 4.0, ("b", "q"): 5.5, ("c", "p"): 3.0, ("c", "q"): 2.0}
JUDGES = ("verified", "turns")


class Turns(ComputedEvaluator):
    """GOAL is the number of the seat's turns, and the other dimensions are in the middle of their ranges."""

    name = "turns"

    async def evaluate(self, episode):
        counts = Counter(item.turn.actor for item in episode.turns)
        goals = [{Dimension.GOAL: min(10.0, counts[agent])} for agent in episode.task.agents]
        scores = (await FixedEvaluator(by_seat=goals).evaluate(episode)).scores
        return Evaluation(evaluator=self.name, scores=scores)


def met():
    """Three policies beside two partners in six scenarios, whose goals vary a little by scenario."""
    plans = plan_episodes([make_task(f"s{i}") for i in range(6)], [(x, y) for x in (A, B, C) for y in (P, Q)],
                          orders="both")  # fmt: skip
    episodes = []
    for plan in plans:
        names = [policy.name for policy in plan.policies]
        seat = next(i for i, name in enumerate(names) if name in "abc")
        goal = GOALS[names[seat], names[1 - seat]] + 0.1 * int(plan.task.scenario.id[1]) * (names[seat] == "a")
        episodes.append(scored(plan, (goal, 5.0) if seat == 0 else (5.0, goal)))
    return episodes


def test_every_policy_is_compared_with_the_baseline_beside_each_partner():
    result = compare(met(), metrics=["goal"], baseline="b")
    differences = {(d.first, d.partner): d for d in result.differences}
    assert set(differences) == {(x, y) for x in "ac" for y in "pq"}
    assert {(d.second, d.metric, d.paired_by, d.same_partner) for d in differences.values()} == {
        ("b", "goal", CLOSEST, True)
    }
    gaps = [6.0 + 0.1 * i - 4.0 for i in range(6)]
    test = stats.ttest_1samp(gaps, 0)
    difference = differences["a", "p"]
    assert difference.estimate.mean == pytest.approx(math.fsum(gaps) / 6)
    assert difference.estimate.p == pytest.approx(test.pvalue)
    assert (difference.estimate.low, difference.estimate.high) == pytest.approx(tuple(test.confidence_interval()))
    assert (difference.matched, difference.seats) == (48, 48)
    assert [rank.policy for rank in result.ranking][:2] == ["a", "b"]  # of all partners together


def test_p_values_are_adjusted_over_all_partners_and_judges_in_each_metric(tmp_path):
    spec = spec_of(tmp_path)
    results = spec.compare()
    assert [result.evaluator for result in results] == list(JUDGES)
    differences = [d for result in results for d in result.differences if d.estimate.p is not None]
    assert len({(d.evaluator, d.partner, d.metric) for d in differences}) > 4
    for metric in ("goal", "overall"):
        own = [d for d in differences if d.metric == metric]
        assert [d.q for d in own] == pytest.approx(stats.false_discovery_control([d.estimate.p for d in own]))
    (alone,) = compare_judges(spec.runs, JUDGES[:1], spec.metrics, baseline="linear")
    assert [d.estimate for d in alone.differences] == [d.estimate for d in results[0].differences]
    sheets = {sheet.name: sheet.records() for sheet in comparison_report(*results).sheets}
    assert {row["evaluator"] for row in sheets["matrix"]} == set(JUDGES)


def test_a_seat_with_an_unscored_repeat_has_the_score_of_its_others_and_says_so():
    episodes = met()
    bare = next(i for i, e in enumerate(episodes) if e.policies[0].name == "a" and e.policies[1].name == "p")
    episodes[bare] = episodes[bare].model_copy(update={"evaluations": ()})
    evaluator = {"evaluator": "fixed"}
    differences = {
        (d.first, d.partner): d for d in compare(episodes, metrics=["goal"], baseline="b", **evaluator).differences
    }
    # Its seat has a repeat in the other order, whose score stands for the seat.
    assert differences["a", "p"].paired_by != CLOSEST == differences["a", "q"].paired_by
    assert (differences["a", "p"].matched, differences["a", "p"].seats) == (47, 47)


def test_policies_that_met_only_each_other_have_one_difference_that_says_so():
    plans = plan_episodes([make_task(f"s{i}") for i in range(3)], [(A, B)])
    (difference,) = compare([scored(plan, (7.0, 3.0)) for plan in plans], metrics=["goal"], baseline="b").differences
    assert (difference.partner, difference.same_partner, difference.paired_by) == ("", False, "task, rules, seat")


def test_an_unknown_baseline_is_named():
    with raises(UnknownNameError, field="baseline", got="d"):
        compare(met(), baseline="d")


# --- files and the command ------------------------------------------------------------------------------------------


def spec_of(folder) -> CompareSpec:
    """A run of four scripted policies, with scores by two judges."""
    run = folder / "run"
    names = ("linear", "boulware", "conceder", "splitter")
    policies = {name: make_policy(name) for name in names}
    pairs = [(policies[x], policies[y]) for x in names[:2] for y in names[2:]]
    plans = plan_episodes(tasks.generate("bargaining", 4, seed=3), pairs)
    asyncio.run(run_episodes(plans, evaluator=make_evaluator(JUDGES[0]), run_dir=run, progress=False))
    asyncio.run(evaluate_run(run, Turns()))
    return CompareSpec(runs=(str(run),), evaluators=JUDGES, metrics=("goal", "overall"), baseline="linear",
                       policies=("boulware",), partners=("conceder", "splitter"))  # fmt: skip


def sotopia(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def test_a_comparison_is_a_file_whose_settings_flags_replace(tmp_path):
    spec = spec_of(tmp_path)
    file = tmp_path / "comparison.yaml"
    file.write_text(spec.model_dump_json())
    whole = json.loads(sotopia("compare", "--config", file, "--json").output)
    assert [item["evaluator"] for item in whole] == list(JUDGES)
    assert {(d["first"], d["second"], d["partner"]) for d in whole[0]["differences"]} == {
        ("boulware", "linear", "conceder"),
        ("boulware", "linear", "splitter"),
    }
    assert {tuple(item["policies"]) for item in whole} == {("boulware", "linear")}
    flags = ("--evaluator", "turns", "--metric", "overall", "--set", "partners=[splitter]")
    one = json.loads(sotopia("compare", "--config", file, *flags, "--json").output)
    assert (one["evaluator"], one["headlines"], one["partners"]) == ("turns", ["overall"], ["splitter"])
    output = sotopia("compare", "--config", file, "--out", tmp_path / "report").output
    assert f"wrote {tmp_path / 'report' / 'goal_by_partner.png'}" in output
    assert len(list(read_run(tmp_path / "run"))) == 32  # which it only reads


@pytest.mark.parametrize(
    ("values", "error", "fields"),
    [
        ({"baseline": "liner"}, UnknownNameError, {"field": "baseline", "nearest": "linear"}),
        ({"metrics": ["goals"]}, UnknownNameError, {"field": "metric", "nearest": "goal"}),
        ({"evaluators": ["ruels"]}, UnknownNameError, {"field": "evaluator"}),
        ({"partners": ["splittr"]}, UnknownNameError, {"field": "partners", "nearest": "splitter"}),
        ({"policies": ["boulwar"]}, UnknownNameError, {"field": "policies", "nearest": "boulware"}),
        ({"policies": ["splitter"], "baseline": None}, InvalidValueError, {"field": "partners"}),
    ],
)
def test_what_is_not_in_the_runs_is_named(tmp_path, values, error, fields):
    with raises(error, **fields):
        spec_of(tmp_path).model_copy(update=values).compare()


def test_a_comparison_of_nothing_and_a_misspelt_setting_are_one_sentence(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("runs: [a]\nbaselin: b\n")
    for arguments in (["compare"], ["compare", "--config", file], ["compare", "a", "--set", "by"]):
        output = sotopia(*arguments, code=2).output
        assert output.startswith("sotopia: ")
        assert output.count("\n") == 1
