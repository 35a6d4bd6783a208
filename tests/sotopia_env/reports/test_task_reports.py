"""Reports on tasks: the hard ones by the rule of SOTOPIA §7, the card of a task, the composition of a set."""

import asyncio
import itertools
import json

import numpy as np
import pytest

from sotopia_env import tasks
from sotopia_env.foundation.errors import InvalidTaskError, InvalidValueError, UnknownNameError
from sotopia_env.reports.hard import hard_tasks, shrunken
from sotopia_env.reports.task_reports import card, composition_chart, composition_report
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.storage.directory import read_run
from sotopia_env.tasks import everyday_group_tasks, everyday_tasks, starter_tasks
from sotopia_env.tasks.composition import composition, verified_share
from sotopia_env.tasks.selection import read_selection
from sotopia_env.world.scenario import Task
from sotopia_env.world.taskset import TaskSet
from tests.errors import raises
from tests.sotopia_env.runs.rollout_doubles import FixedEvaluator, Speaker, make_task


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Three policies, in pairs and with themselves, in six bargaining tasks."""
    from sotopia_env.naming import make_evaluator, make_policy

    path = tmp_path_factory.mktemp("hard") / "run"
    policies = [make_policy(name) for name in ("boulware", "conceder", "tit-for-tat")]
    matchups = list(itertools.product(policies, policies))
    plans = plan_episodes(tasks.generate(["bargaining"], 6, 0), matchups)
    asyncio.run(run_episodes(plans, evaluator=make_evaluator("verified"), run_dir=path))
    return path


def independent_gaps(run, target, metric="goal", bounds=(0.0, 10.0)):
    values = {}
    for episode in read_run(run):
        for info in episode.policies:
            score = episode.evaluation().by_agent[info.agent][metric].value
            values.setdefault(episode.task.id, {}).setdefault(info.name, []).append(score)
    gaps = {}
    for task, by_policy in values.items():
        own = by_policy[target]
        low = np.clip(np.mean(own) - 3 * np.std(own, ddof=1), *bounds)
        highs = [np.clip(np.mean(v) + 3 * np.std(v, ddof=1), *bounds) for v in by_policy.values()]
        gaps[task] = max(highs) - low
    return gaps


def test_the_maximum_is_over_all_policies_the_target_among_them(tmp_path):
    """SOTOPIA §7: 'the estimated maximum rewards of all models'; at its best the target is above the steady one."""
    runs = []
    for name, fractions in {"target": (0.1, 0.5), "steady": (0.4, 0.4)}.items():
        runs.append(tmp_path / name)
        plan = EpisodePlan(make_task(), (Speaker(name),) * 2, seed=0)
        asyncio.run(
            run_episodes([plan], evaluator=FixedEvaluator(fractions=fractions), run_dir=runs[-1], progress=False)
        )
    (entry,) = hard_tasks(runs, "target", metric="goal").entries
    assert (entry.by, entry.high, entry.low, entry.difference) == ("target", 10, 0, 0)
    assert hard_tasks(runs, "steady", metric="goal").entries[0].by == "target"


@pytest.mark.parametrize("target", ["boulware", "conceder"])
def test_hard_tasks_are_those_with_the_greatest_gap(run, target):
    selection = hard_tasks([run], target, top=4, metric="goal")
    gaps = independent_gaps(run, target)
    assert [entry.gap for entry in selection.entries] == pytest.approx(
        sorted(gaps.values(), reverse=True)[:4], abs=1e-6
    )
    assert all(entry.gap == pytest.approx(gaps[entry.task], abs=1e-6) for entry in selection.entries)
    keys = [(-entry.gap, -entry.difference, entry.task) for entry in selection.entries]
    assert keys == sorted(keys)
    assert (selection.compared, selection.left_out) == (6, 0)
    assert selection == hard_tasks([run], target, top=4, metric="goal")
    assert hard_tasks([run], target).metric == "goal"


def simulated(generator, scenarios=60, number=6):
    """Scenarios whose true differences and noise vary: the truth, and a function that plays them."""
    truth, base = generator.normal(0.5, 1, scenarios), generator.normal(5, 1, scenarios)
    noise = generator.choice([0.5, 1, 3], scenarios)

    def play():
        means = [{"target": base[s] - truth[s], "one": base[s], "other": base[s]} for s in range(scenarios)]
        return {
            f"s{s:02}": {policy: generator.normal(mean, noise[s], number).tolist() for policy, mean in item.items()}
            for s, item in enumerate(means)
        }

    return truth, play


def rule(values):
    """The gaps of the paper, unclipped, in the order of the scenarios."""
    limits = [{p: (np.mean(v), 3 * np.std(v, ddof=1)) for p, v in item.items()} for item in values.values()]
    return np.array([max(m + d for m, d in item.values()) - (item["target"][0] - item["target"][1]) for item in limits])


def test_a_held_out_difference_covers_the_truth_and_finds_the_hard_scenarios_that_the_rule_misses():
    generator, top, covered, chosen, found = np.random.default_rng(0), 10, [], [], []
    for _ in range(60):
        truth, play = simulated(generator)
        gaps, held_out = rule(play()), shrunken(play(), "target")
        within = [item.low <= true <= item.high for item, true in zip(held_out.values(), truth, strict=True)]
        by_rule, hardest = set(np.argsort(-gaps)[:top]), set(np.argsort(-truth)[:top])
        by_means = set(np.argsort([-item.mean for item in held_out.values()])[:top])
        covered.append(np.mean(within))
        chosen.append(np.mean([within[s] for s in by_rule]))
        found.append((len(hardest & by_rule), len(hardest & by_means)))
    assert np.mean(covered) > 0.93
    assert np.mean(chosen) > 0.91  # over those that the rule chose: 0.95 in 150 simulations
    rule_finds, means_find = np.mean(found, axis=0)
    assert means_find > 2 * rule_finds


def test_held_out_differences_without_true_ones_are_drawn_together():
    generator = np.random.default_rng(1)
    values = {f"s{s}": {p: generator.normal(5, 2, 4).tolist() for p in ("target", "one")} for s in range(40)}
    raw = [np.mean(item["one"]) - np.mean(item["target"]) for item in values.values()]
    assert np.std([item.mean for item in shrunken(values, "target").values()]) < np.std(raw) / 2


@pytest.mark.parametrize(
    "values",
    [
        {f"s{s}": {"target": [1.0, 2.0], "one": [2.0, 3.0]} for s in range(3)},
        {f"s{s}": {"target": [1.0], "one": [2.0]} for s in range(6)},
        {f"s{s}": {"target": [1.0, 1.0], "one": [2.0, 2.0]} for s in range(6)},
        {f"s{s}": {"target": [1.0, 2.0]} for s in range(6)},
    ],
)
def test_held_out_episodes_that_cannot_tell_are_refused(values):
    with raises(InvalidValueError, field="held_out"):
        shrunken(values, "target")


def test_the_held_out_difference_stands_beside_the_rule_and_needs_other_episodes(run, tmp_path):
    from sotopia_env.naming import make_evaluator, make_policy

    policies = [make_policy(name) for name in ("boulware", "conceder")]
    plans = plan_episodes(tasks.generate(["bargaining"], 6, 0), [tuple(policies)], seed=9)
    asyncio.run(run_episodes(plans, evaluator=make_evaluator("verified"), run_dir=tmp_path / "other"))
    plain = hard_tasks([run], "conceder", top=3, metric="goal")
    beside = hard_tasks([run], "conceder", top=3, metric="goal", held_out=[tmp_path / "other"])
    assert [entry.gap for entry in beside.entries] == [entry.gap for entry in plain.entries]
    assert all(entry.held_out is None for entry in plain.entries)
    assert all(entry.held_out.low < entry.held_out.mean < entry.held_out.high for entry in beside.entries)
    with raises(InvalidValueError, field="held_out"):
        hard_tasks([run], "conceder", held_out=[run])


def test_tasks_without_two_values_of_a_policy_are_left_out(tmp_path):
    plans = plan_episodes([make_task(f"s{i}") for i in range(3)], [(Speaker("a"), Speaker("b"))], both_seats=False)
    asyncio.run(run_episodes(plans, evaluator=FixedEvaluator(), run_dir=tmp_path))
    with raises(InvalidValueError, field="target"):
        hard_tasks([tmp_path], "a")
    with raises(UnknownNameError, field="target", got="c"):
        hard_tasks([tmp_path], "c")
    with raises(UnknownNameError, field="metric"):
        hard_tasks([tmp_path], "a", metric="surplus_share")  # which has no range
    with raises(InvalidValueError, field="top"):
        hard_tasks([tmp_path], "a", top=0)


def test_a_selection_is_saved_read_and_applied(run, tmp_path):
    selection = hard_tasks([run], "conceder", top=3)
    selection.save(tmp_path / "hard.json")
    assert read_selection(tmp_path / "hard.json") == selection
    whole = tasks.generate(["bargaining"], 6, 0)
    assert [task.id for task in selection.of(whole)] == [entry.task for entry in selection.entries]
    with raises(InvalidTaskError, field="entries.0.task"):
        selection.of(starter_tasks())
    with raises(UnknownNameError, field="selection", nearest="published-hard"):
        read_selection("publishedhard")


def test_the_shipped_hard_tasks_are_tasks_of_the_everyday_set():
    selection = read_selection("everyday-hard-scripted")
    hard = selection.of(everyday_tasks())
    assert len(hard) == len(selection.entries) == 20
    assert all(task.scenario.outcome is not None for task in hard)
    assert selection.compared == sum(task.scenario.outcome is not None for task in everyday_tasks())
    assert selection.target in selection.policies
    gaps = [entry.gap for entry in selection.entries]
    assert gaps == sorted(gaps, reverse=True)


def test_the_published_ids_are_fourteen_of_which_six_count_in_both_seats():
    selection = read_selection("published-hard")
    assert len({entry.scenario for entry in selection.entries}) == len(selection.entries) == 14
    assert sum(len(entry.seats or (None,)) for entry in selection.entries) == 20
    assert {entry.seats for entry in selection.entries} == {None, (0, 1)}
    official = []
    for number, entry in enumerate(selection.entries):
        task = starter_tasks()[number]
        scenario = task.scenario.model_copy(update={"id": entry.scenario})
        official.append(task.model_copy(update={"scenario": scenario, "id": f"t{number}"}))
    assert len(selection.of(TaskSet([*official[::-1], *starter_tasks()[20:]]))) == 14


def test_the_card_shows_who_knows_what_of_whom_and_everything_the_author_wrote():
    task = next(t for t in everyday_group_tasks() if t.scenario.interview.questions and t.scenario.interview.goal_tests)
    text = " ".join(card(task).split())
    interview = task.scenario.interview
    for part in (
        task.scenario.context,
        *(goal for seat in task.scenario.seats for goal in seat.goals),
        *(seat.private_info for seat in task.scenario.seats),
        *(person.secret for person in task.characters),
        *(tie.backstory for tie in task.relationships),
        *(question.answer for question in interview.questions),
        "To be ",
        "at the joint best",
    ):
        assert " ".join(part.split()) in text
    assert text.count("is reached with") == len(interview.goal_tests)
    rows = [line for line in card(task).splitlines() if line.startswith(task.characters[0].name + " ")]
    assert "all" in rows[0]
    assert "no verified outcome" in card(starter_tasks()[0])


@pytest.mark.parametrize(
    ("kind", "story", "cell"),
    [
        ("stranger", "", "name"),
        ("know-by-name", "", "name"),
        ("acquaintance", "They met.", "profile + story"),
        ("friend", "", "character"),
    ],
)
def test_the_matrix_follows_the_disclosure_of_each_relationship(kind, story, cell):
    task = starter_tasks()[0]
    tie = type(task.relationships[0])(seats=(0, 1), kind=kind, backstory=story)
    fields = {name: getattr(task, name) for name in ("id", "scenario", "characters")}
    lines = card(Task(**fields, relationships=(tie,))).splitlines()
    first = next(line for line in lines if line.startswith(task.characters[0].name + "  "))
    assert first.split("  ")[-1].strip() == cell
    assert "all" in first


def test_the_card_cannot_pose():
    task = starter_tasks()[0]
    scenario = task.scenario.model_copy(update={"context": "Two wait.\n\x1b[2J<|end|>"})
    text = card(task.model_copy(update={"scenario": scenario}))
    assert "\x1b" not in text
    assert "<|end|>" not in text


def test_composition_counts_tasks_and_each_person_once(tmp_path):
    counts = composition(everyday_tasks())
    assert sum(counts["relationships"].values()) == sum(counts["seats"].values()) == 450
    assert sum(counts["genders"].values()) == 40
    assert counts["traits"]["openness: high"] + counts["traits"]["openness: low"] == 40
    assert verified_share(counts) == pytest.approx(1 - counts["outcome"]["none; judged"] / 450)
    groups = composition(everyday_group_tasks())
    assert sum(groups["needs (ERG)"].values()) == sum(groups["goal types"].values())
    assert list(groups["seats"]) == ["3", "4", "5"]
    assert f"share verified: {100 * verified_share(groups):.1f} %" in composition_report(groups).text()
    assert verified_share(composition([tasks.starter_cast()])) is None
    chart = composition_chart(groups, "groups", tmp_path / "groups.png")
    assert chart.read_bytes().startswith(b"\x89PNG")


def test_the_file_of_a_selection_is_plain_json(run, tmp_path):
    hard_tasks([run], "conceder", top=1).save(tmp_path / "hard.json")
    content = json.loads((tmp_path / "hard.json").read_text())
    assert set(content["entries"][0]) == {"scenario", "task", "gap", "high", "by", "low", "difference"}
