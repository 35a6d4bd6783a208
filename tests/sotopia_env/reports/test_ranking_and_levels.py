"""Ranks, levels of a factor, counts of turns and charts of a comparison, on numbers that are checked by hand."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import Sequence
from pathlib import Path

import pytest
from scipy import stats

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.reports.compare import Comparison, compare
from sotopia_env.reports.comparison_charts import metric_label
from sotopia_env.reports.comparison_tables import comparison_report
from sotopia_env.reports.contrasts import Contrast
from sotopia_env.reports.intervals import CASTINGS, contrast_estimate
from sotopia_env.reports.turn_counts import TurnCounts, count_turns, total
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.runs.plan import EpisodePlan, all_matchups
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.episode import Episode, Generation, RecordedTurn, Usage
from sotopia_env.world.scenario import Task
from tests.errors import raises
from tests.sotopia_env.reports.test_compare import scored
from tests.sotopia_env.runs.rollout_doubles import Speaker, make_task

A, B, C = Speaker("a"), Speaker("b"), Speaker("c")


def test_ranks_are_ranges_where_intervals_of_paired_differences_include_0() -> None:
    # c is 5 worse than both in every scenario; a and b differ by 1 here and by -1 there.
    strength = {"a": (6.0, 4.0, 6.0, 4.0), "b": (5.0, 5.0, 5.0, 5.0), "c": (0.0, 0.1, 0.0, 0.1)}
    plans = plan_episodes([make_task(f"s{i}") for i in range(4)], all_matchups([A, B, C]))
    episodes = [
        scored(plan, tuple(strength[policy.name][int(plan.task.scenario.id[1])] for policy in plan.policies))
        for plan in plans
    ]
    result = compare(episodes, metrics=["goal"])
    assert [(rank.policy, rank.places, rank.ties) for rank in result.ranking] == [
        ("a", "1-2", ("b",)),
        ("b", "1-2", ("a",)),
        ("c", "3", ()),
    ]
    text = comparison_report(result).text()
    assert text.index("not told apart from") < text.index("mean [95 % interval] n")
    rows = list(csv.DictReader(io.StringIO(comparison_report(result).csv()["ranking"])))
    assert [(row["rank"], row["policy"], float(row["mean"])) for row in rows][2] == ("3", "c", pytest.approx(0.05))


def test_constant_metrics_are_folded_into_a_line_and_stay_in_the_sheet() -> None:
    plans = plan_episodes([make_task(f"s{i}") for i in range(3)], [(A, B)])
    result = compare([scored(plan, (7.0, 3.0) if plan.policies[0] is A else (4.0, 6.0)) for plan in plans])
    assert ("believability", 5.0) in result.constant
    text = comparison_report(result).text()
    assert not [line for line in text.splitlines() if line.startswith("believability")]
    assert "believability 5.00" in text
    assert "believability" in comparison_report(result).csv()["policies"]


def conditioned(vignette: str, casting: int, **conditions: str) -> Task:
    task = make_task("-".join((vignette, *conditions.values())), casting)
    tags = (f"vignette={vignette}", *(f"{name}={value}" for name, value in conditions.items()), "kitchen")
    return task.model_copy(update={"scenario": task.scenario.model_copy(update={"tags": tags})})


CELLS = {("warm", "low"): 8.0, ("warm", "high"): 6.0, ("cold", "low"): 5.0, ("cold", "high"): 2.0}
"""GOAL by tone and stakes: main effects 3.5 and 2.5, interaction -1."""


def experiment(vignettes: Sequence[str] = ("oven",), castings: int = 5) -> list[Episode]:
    """A 2 × 2 design in which a casting adds a constant, and every cell of it a little that differs."""
    episodes = []
    for number, vignette in enumerate(vignettes):
        for casting in range(castings):
            for index, ((tone, stakes), goal) in enumerate(CELLS.items()):
                task = conditioned(vignette, casting, tone=tone, stakes=stakes)
                value = goal + 0.3 * casting + 0.01 * ((casting + number) * (index + 1) % 3)
                episodes.append(scored(EpisodePlan(task, (A, B)), (value, 5.0)))
    return episodes


def contrast(result: Comparison, name: str, policy: str = "a") -> Contrast:
    assert result.by is not None
    return next(item for item in result.by.contrasts if (item.name, item.policy) == (name, policy))


def test_a_two_by_two_has_main_effects_and_their_interaction_paired_by_casting() -> None:
    result = compare(experiment(), metrics=["goal"], by="condition")
    effects = {"tone: cold - warm": -3.5, "stakes: high - low": -2.5, "stakes × tone": -1.0}
    for name, value in effects.items():
        item = contrast(result, name)
        assert item.estimate is not None
        assert item.estimate.low is not None
        assert (item.paired_by, item.estimate.over) == ("casting", CASTINGS)
        assert item.estimate.mean == pytest.approx(value, abs=0.05)
        # Castings differ by up to 1.2; within them the cells do not.
        assert item.estimate.mean - item.estimate.low < 0.05
        assert item.q is not None
    simple = contrast(result, "tone: cold - warm, stakes=high").estimate
    assert simple is not None
    assert simple.mean == pytest.approx(-4.0, abs=0.05)
    assert "stakes × tone" in comparison_report(result).text()
    assert "\n†: " in comparison_report(result).text()


def test_several_vignettes_are_what_intervals_are_over() -> None:
    result = compare(experiment(("oven", "fridge", "sink", "kettle"), castings=2), metrics=["goal"], by="condition")
    item = contrast(result, "tone: cold - warm")
    assert item.estimate is not None
    assert (item.paired_by, item.estimate.over, item.estimate.clusters) == ("vignette", "vignettes", 4)


def test_one_scenario_has_intervals_over_its_castings() -> None:
    goals = (2.0, 4.0, 9.0)
    episodes = [scored(EpisodePlan(make_task("s0", cast), (A, B)), (goal, 5.0)) for cast, goal in enumerate(goals)]
    result = compare(episodes, metrics=["goal"])
    cell = result.cell("a", "goal")
    assert cell is not None
    assert (cell.estimate.over, cell.estimate.clusters) == (CASTINGS, 3)
    assert cell.estimate.low is not None
    (difference,) = (d for d in result.differences if d.metric == "goal")
    interval = stats.ttest_1samp([goal - 5.0 for goal in goals], 0).confidence_interval()
    assert (difference.estimate.low, difference.estimate.high) == pytest.approx(tuple(interval))


def test_levels_that_share_nothing_are_compared_as_independent_groups_by_welch() -> None:
    values = {"x": (1.0, 3.0, 4.0, 2.5, 1.5), "y": (6.0, 7.0, 9.0, 8.5)}
    episodes = []
    for tag, goals in values.items():
        for number, goal in enumerate(goals):
            task = make_task(f"{tag}{number}", 10 * number + (tag == "y"))
            task = task.model_copy(update={"scenario": task.scenario.model_copy(update={"tags": (tag,)})})
            episodes.append(scored(EpisodePlan(task, (A, B)), (goal, 5.0)))
    item = contrast(compare(episodes, metrics=["goal"], by="tag"), "x - all others")
    assert (item.paired_by, item.estimate is not None) == ("nothing", True)
    test = stats.ttest_ind(values["x"], values["y"], equal_var=False)
    assert item.estimate is not None
    assert item.estimate.p == pytest.approx(test.pvalue)
    assert (item.estimate.low, item.estimate.high) == pytest.approx(tuple(test.confidence_interval()))


@pytest.mark.parametrize(("other", "reason"), [((B, A), "no seat has had both"), ((A, C), "same partners and rules")])
def test_levels_that_cannot_be_compared_say_whether_the_seat_or_the_partner_is_the_reason(
    other: tuple[Speaker, Speaker], reason: str
) -> None:
    episodes = []
    for tag, policies in {"x": (A, B), "y": other}.items():
        for number in range(4):
            task = make_task(f"{tag}{number}", 10 * number + (tag == "y"))
            task = task.model_copy(update={"scenario": task.scenario.model_copy(update={"tags": (tag,)})})
            episodes.append(scored(EpisodePlan(task, policies), (5.0, 5.0)))
    item = contrast(compare(episodes, metrics=["goal"], by="tag"), "x - all others")
    assert item.estimate is None
    assert reason in item.missing


@pytest.mark.parametrize("factor", ["tag", "scenario", "character", "relationship"])
def test_every_factor_has_means_for_each_policy(factor: str) -> None:
    result = compare(experiment(castings=2), metrics=["goal"], by=factor)
    assert result.by is not None
    assert {mean.policy for mean in result.by.means} == {"a", "b"}
    assert all(item.estimate is not None or item.missing for item in result.by.contrasts)
    assert {f"by_{factor}", f"by_{factor}_differences"} <= set(comparison_report(result).csv())


def test_units_without_all_levels_are_left_out_of_a_difference_and_counted() -> None:
    lost = {("warm", 0), ("cold", 1)}
    episodes = [
        e
        for e in experiment(castings=6)
        if (e.task.scenario.conditions["tone"], int(e.task.id[-1])) not in lost or "low" in e.task.scenario.id
    ]
    result = compare(episodes, metrics=["goal"], by="condition")
    main, simple = contrast(result, "tone: cold - warm"), contrast(result, "tone: cold - warm, stakes=low")
    assert main.estimate is not None
    assert (main.estimate.clusters, main.left_out, simple.left_out) == (4, 2, 0)
    assert "units left out" in comparison_report(result).text()


def test_scenarios_are_not_tested_against_one_another_and_the_report_says_so() -> None:
    result = compare(experiment(("oven", "fridge")), metrics=["goal"], by="scenario")
    assert result.by is not None
    assert (result.by.contrasts, len(result.by.means)) == ((), 16)
    assert result.by.note in comparison_report(result).text()


def test_episodes_that_nothing_scored_have_no_levels_unless_a_metric_is_named() -> None:
    episodes = asyncio.run(run_episodes([EpisodePlan(conditioned("oven", i), (A, B)) for i in range(4)])).episodes
    with raises(InvalidValueError, field="by"):
        compare(episodes, by="tag")
    named = compare(episodes, metrics=["words_per_turn"], by="tag")
    assert named.by is not None
    assert named.by.metric == "words_per_turn"


def test_an_unknown_factor_and_episodes_without_conditions_are_named() -> None:
    episodes = [scored(EpisodePlan(make_task(), (A, B)), (7.0, 3.0))]
    with raises(UnknownNameError, field="by", nearest="scenario"):
        compare(episodes, by="scenaro")
    with raises(UnknownNameError, field="by") as refused:
        compare(episodes, by="role")
    assert isinstance(refused.value, UnknownNameError)
    assert "scenario" in refused.value.hint
    assert "participant" not in refused.value.hint
    with raises(UnknownNameError, field="by"):
        compare(episodes, by="condition")


def test_a_contrast_of_one_cluster_has_no_interval() -> None:
    estimate = contrast_estimate([(1.0, [1.0, 2.0], ["s", "s"]), (-1.0, [0.0, 1.0], ["t", "u"])])
    assert (estimate.mean, estimate.low, estimate.p) == (1.0, None, None)


def turn(index: int, generation: Generation | None, violation: str | None = None) -> RecordedTurn:
    action = Action(ActionType.SPEAK, "hello")
    return RecordedTurn(turn=Turn(index, index, "agent_0", action, violation), generation=generation)


def test_turns_are_counted_and_what_is_unknown_is_not_0() -> None:
    usage = Usage(prompt_tokens=100, completion_tokens=10, cost=0.5)
    turns = [
        turn(0, Generation(text="x", parse_failure="no JSON", reasks=2, usage=usage, latency=1.0)),
        turn(1, Generation(text="y", usage=usage, latency=3.0), violation="not your turn"),
    ]
    counts = count_turns(turns)
    assert counts == TurnCounts(2, 1, 2, 1, 2, 220, 1.0, 4.0)
    assert counts.seconds_per_turn == 2.0
    unpriced = count_turns(
        [turn(0, Generation(text="z", usage=Usage(prompt_tokens=1, completion_tokens=1, cost=None)))]
    )
    assert (unpriced.tokens, unpriced.cost, unpriced.seconds) == (2, None, None)
    assert total([counts, unpriced]).cost is None
    scripted = count_turns([turn(0, None, violation="no")])
    assert (scripted.illegal, scripted.invalid, scripted.tokens) == (1, None, None)
    assert total([counts, scripted]).tokens == 220
    assert total([counts, scripted]).illegal == 2


def test_the_report_shows_failures_tokens_and_cost_of_each_policy() -> None:
    plans = plan_episodes([make_task(f"s{i}") for i in range(2)], [(A, B)], both_seats=False)
    usage = Usage(prompt_tokens=50, completion_tokens=None, cost=0.25)

    def with_usage(episode: Episode) -> Episode:
        turns = tuple(
            item.model_copy(update={"generation": Generation(text="?", parse_failure="p", usage=usage, latency=0.5)})
            if item.turn.actor == "agent_0"
            else item.model_copy(update={"generation": None})
            for item in episode.turns
        )
        return episode.model_copy(update={"turns": turns})

    result = compare([with_usage(scored(plan, (7.0, 3.0))) for plan in plans])
    rows = {row["policy"]: row for row in csv.DictReader(io.StringIO(comparison_report(result).csv()["turns"]))}
    assert (rows["a"]["invalid"], rows["a"]["cost"], rows["a"]["tokens"]) == (rows["a"]["turns"], "1.0", "")
    assert rows["b"]["invalid"] == ""
    assert "n/a: not reported" in comparison_report(result).text()


def test_charts_come_as_vectors_with_words_and_ranges_and_equal_charts_are_equal_files(tmp_path: Path) -> None:
    result = compare(experiment(castings=4), metrics=["goal"], by="condition")
    assert metric_label(result, "goal").split() == ["goal", "(scale", "0", "to", "10)"]
    paths = comparison_report(result).write(tmp_path / "one", ("svg", "pdf"))
    again = comparison_report(result).write(tmp_path / "two", ("svg", "pdf"))
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]
    stems = ["means", "differences", "heat_map", "by_condition", "by_condition_differences"]
    for path in paths:
        if path.suffix == ".svg":  # in points; no chart is wider than a page
            width = float(path.read_text(encoding="utf-8").partition('width="')[2].partition("pt")[0])
            assert width <= 7.0 * 72
    assert [path.stem for path in paths if path.suffix == ".pdf"] == stems
    assert next(path for path in paths if path.suffix == ".pdf").read_bytes().startswith(b"%PDF")
    with raises(UnknownNameError, field="format"):
        comparison_report(result).write(tmp_path / "three", ("gif",))
    assert not (tmp_path / "three").exists()
