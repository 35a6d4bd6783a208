"""What must not change a comparison (other policies, partners, repeats, copies, order), and what it refuses."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import coverage
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.reports.compare import compare, compare_runs
from sotopia_env.reports.comparison_tables import comparison_report
from sotopia_env.reports.differences import ComparedSeats, differences, metric_ranking
from sotopia_env.reports.intervals import CROSSED
from sotopia_env.reports.seats.units import seat_mean
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.storage.directory import FAILURES, read_run
from sotopia_env.storage.manifest import FailureRecord
from sotopia_env.world.dynamics import Rules
from sotopia_env.world.episode import Episode
from sotopia_env.world.scenario import Task
from tests.errors import raises
from tests.sotopia_env.reports.test_compare import scored
from tests.sotopia_env.reports.test_metamorphic import lose, played
from tests.sotopia_env.runs.rollout_doubles import FixedEvaluator, Speaker, make_task


def seats_of(policies: int, missing: float, scenarios: int = 50, seed: int = 0) -> ComparedSeats:
    """The seats of policies with the same strength that each lack some at random."""
    generator, names = np.random.default_rng(seed), [f"p{i}" for i in range(policies)]
    rows = [
        coverage.seat_result(name, scenario, 0, float(generator.normal(5)), bool(generator.random() < missing))
        for name in names
        for scenario in range(scenarios)
    ]
    return ComparedSeats.of(rows, names, "goal", (0, 10))


def test_policies_that_each_lack_a_few_seats_are_all_ranked_and_change_no_difference_of_the_others() -> None:
    seats = seats_of(8, 0.02, scenarios=200)
    assert len(seats.description.policies) == 8
    assert seats.description.matched < seats.description.seats  # means are over the seats of all
    few = ComparedSeats.of([row for name in ("p0", "p1") for row in seats.rows[name]], ("p0", "p1"), "goal", (0, 10))
    assert seats.difference("p0", "p1") == few.difference("p0", "p1")


def test_ranks_hold_for_missing_results_of_people_too_and_for_the_smallest_p_values() -> None:
    generator, rows = np.random.default_rng(6), []
    leniency = generator.normal(0, 2, 8)
    for scenario in range(12):
        rows.append(coverage.seat_result("b", scenario, 0, 3.0, False))
        for person, effect in enumerate(leniency):
            row = coverage.seat_result("human", scenario, person, float(np.clip(5 + effect, 0, 10)), False)
            rows.append(replace(row, people=(str(person),), participant=str(person), partner=rows[0].partner))
    whole = ComparedSeats.of(rows, ("human", "b"), "goal", (0, 10)).difference("human", "b")
    missing = replace(rows[-1], key="lost", people=(), participant="", values={}, unscored="failed", failed=True)
    lacking = ComparedSeats.of([*rows, missing], ("human", "b"), "goal", (0, 10)).difference("human", "b")
    assert whole is not None
    assert lacking is not None
    assert lacking.against is not None
    # One more person with the worst result changes the error little: it is still that of few people.
    assert lacking.against.over == CROSSED
    assert lacking.for_ranks.p == lacking.against.p
    assert 0 < whole.estimate.p <= lacking.against.p  # type: ignore[operator]
    certain = replace(lacking, estimate=replace(lacking.estimate, p=0.0))
    assert certain.for_ranks == lacking.against


@pytest.mark.parametrize("seed", range(4))
def test_ranks_and_rows_agree_with_differences_also_where_seats_are_missing(seed: int) -> None:
    seats = seats_of(6, 0.04, seed=seed)
    means = {name: seat_mean(seats.compared(name), "goal", (0, 10)) for name in seats.description.policies}
    order = [rank.policy for rank in metric_ranking(means, differences([seats], list(means)), "goal")]
    for above, below in itertools.pairwise(order):
        gap = seats.difference(above, below)
        assert gap is not None
        assert gap.estimate.mean > 0
    assert sorted(order) == sorted(means)


A, B = Speaker("a"), Speaker("b")


def ranked(turns: dict[str, int | None], seats: int = 6) -> list[Episode]:
    partner, result = Speaker("p"), []
    for policy in (A, B):
        for i in range(seats):
            rules = Rules(max_turns=turns[policy.name])
            plan = EpisodePlan(make_task(f"s{i}"), (policy, partner), rules=rules)
            result.append(scored(plan, (5.0 + 0.1 * i + (policy is A), 5.0)))
    return result


def test_runs_with_other_rules_are_refused_and_an_equal_limit_is_the_same_rule() -> None:
    with raises(InvalidValueError, field="runs"):
        compare(ranked({"a": 4, "b": 2}))
    assert compare(ranked({"a": 4, "b": None})).common.policies == ("a", "b")  # the scenario's own limit is 4


def elsewhere(episode: Episode) -> Episode:
    scenario = episode.task.scenario.model_copy(update={"context": "Elsewhere."})
    task = episode.task.model_copy(update={"scenario": scenario})
    # Read again, because a copy of a task keeps the hash of the original.
    return episode.model_copy(update={"task": Task.model_validate_json(task.model_dump_json())})


def test_tasks_of_one_id_and_other_content_are_refused() -> None:
    plans = ranked({"a": None, "b": None})
    changed = [elsewhere(episode) if episode.policies[0].name == "b" else episode for episode in plans]
    with raises(InvalidValueError, field="runs"):
        compare(changed)


def test_a_failed_episode_is_missing_and_a_difference_beside_it_has_bounds(tmp_path) -> None:  # type: ignore[no-untyped-def]
    plans = plan_episodes(
        [make_task(f"s{i}") for i in range(8)], [(A, Speaker("p")), (B, Speaker("p"))], both_seats=False
    )
    asyncio.run(run_episodes(plans, evaluator=FixedEvaluator(), run_dir=tmp_path))
    lines = (tmp_path / "episodes.jsonl").read_text().splitlines(keepends=True)
    lost = next(e for e in read_run(tmp_path) if e.policies[0].name == "b")
    kept = [line for line, e in zip(lines, read_run(tmp_path), strict=True) if e.key != lost.key]
    (tmp_path / "episodes.jsonl").write_text("".join(kept))
    failure = FailureRecord(key=lost.key, task=lost.task.id, policies=("b", "p"), kind="Timeout", message="late")
    (tmp_path / FAILURES).write_text(failure.model_dump_json() + "\n")
    result = compare_runs([tmp_path])
    assert result.reasons == (("failed (Timeout)", 1),)
    cell = result.cell("b", "goal")
    assert cell is not None
    assert (cell.unscored, cell.estimate.n) == (1, 7)
    (gap,) = (d for d in result.differences if (d.first, d.second, d.metric) == ("a", "b", "goal"))
    assert (gap.missing, gap.worst is not None and gap.best is not None) == (1, True)
    assert gap.worst < gap.estimate.mean < gap.best  # type: ignore[operator]
    assert "if worst" in comparison_report(result).text()


def test_failures_in_some_repeats_of_every_seat_are_missing_results(tmp_path) -> None:  # type: ignore[no-untyped-def]
    partner, policies = Speaker("p"), (A, B, Speaker("c"))
    plans = plan_episodes(
        [make_task(f"s{i}") for i in range(6)], [(p, partner) for p in policies], repeats=2, both_seats=False
    )
    asyncio.run(run_episodes(plans, evaluator=FixedEvaluator(), run_dir=tmp_path))
    first = {e.task.id: e.key for e in read_run(tmp_path) if e.policies[0].name == "b"}
    assert lose(tmp_path, lambda e: e.key in first.values()) == 6
    result = compare_runs([tmp_path])
    assert result.common.policies == ("a", "c")  # b lacks half of its results, though every seat has a score
    (gap,) = (d for d in result.differences if (d.first, d.second, d.metric) == ("a", "b", "goal"))
    assert gap.missing == 6
    assert gap.worst < gap.estimate.mean < gap.best  # type: ignore[operator]


def test_failures_of_a_task_that_nobody_finished_are_counted(tmp_path) -> None:  # type: ignore[no-untyped-def]
    plans = plan_episodes(
        [make_task(f"s{i}") for i in range(8)], [(A, Speaker("p")), (B, Speaker("p"))], both_seats=False
    )
    asyncio.run(run_episodes(plans, evaluator=FixedEvaluator(), run_dir=tmp_path))
    assert lose(tmp_path, lambda e: e.task.id == plans[0].task.id) == 2
    result = compare_runs([tmp_path])
    assert (result.episodes, result.unscored) == (16, 2)
    (gap,) = (d for d in result.differences if (d.first, d.second, d.metric) == ("a", "b", "goal"))
    assert gap.missing == 2


def test_a_run_in_which_every_episode_failed_is_refused_with_its_failures(tmp_path) -> None:  # type: ignore[no-untyped-def]
    plans = plan_episodes([make_task("s0")], [(A, B)])
    asyncio.run(run_episodes(plans, evaluator=FixedEvaluator(), run_dir=tmp_path))
    count = lose(tmp_path, lambda _: True)
    with raises(InvalidValueError, field="episodes", got="Timeout: late") as caught:
        compare_runs([tmp_path])
    assert str(count) in caught.value.problem


def test_policies_that_never_met_the_same_partner_are_not_told_apart() -> None:
    met = [
        scored(EpisodePlan(make_task(f"s{i}"), (policy, Speaker(f"{policy.name}-partner"))), (score + 0.1 * i, 5.0))
        for policy, score in ((A, 5.0), (B, 7.0))
        for i in range(8)
    ]
    ranks = {rank.policy: rank for rank in compare(met).ranking}
    assert "b" in ranks["a"].ties


def test_the_first_line_names_the_unit_and_no_interval_is_a_point() -> None:
    result = compare(played("boulware", "conceder", "linear"))
    assert "6 scenarios" in comparison_report(result).text().splitlines()[0]
    assert not [c for c in result.cells if c.estimate.low is not None and c.estimate.low == c.estimate.high]
    one = [e.model_copy(update={"key": f"{e.key}.{i}"}) for i in range(3) for e in ranked({"a": None, "b": None}, 1)]
    assert {cell.estimate.clusters for cell in compare(one).cells} == {1}  # copies of one casting are one casting


def test_intervals_tests_and_ranks_are_right_as_often_as_they_say() -> None:
    """A small part of ``make coverage``."""
    assert coverage.rate_coverage(0.95, 8, sets=200) >= 0.93
    assert min(map(coverage.lowest_rate_coverage, (8, 12, 20, 30))) >= 0.94
    assert coverage.crossed_coverage(6, 8, sets=200) >= 0.92
    assert coverage.people_with_people_coverage(40, 20, 4, sets=60) >= 0.9
    assert coverage.people_with_people_coverage(20, 8, 4, sets=40, seats=5) >= 0.9
    assert coverage.people_with_people_coverage(20, 10, 3, sets=40, busy=0.7) >= 0.9
    assert coverage.arena_coverage(1, sets=150) >= 0.9
    assert min(coverage.agreement_coverage(8, sets=25).values()) >= 0.8
    assert coverage.lognormal_coverage(20, sets=100)[1] >= 0.92
    assert coverage.permuted_tags(40, 4, sets=200) <= 0.08
    assert coverage.wrong_ranks(5, 12, sets=60) <= 0.1
    assert coverage.wrong_ranks_beside_failures(0.2, 4, sets=20) <= 0.2
