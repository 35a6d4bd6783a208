"""Cloning learns, and every later stage runs: the study's own, made small, with one fixed seed."""

import json
from dataclasses import replace
from statistics import fmean

import pytest
from sotopia_training.fitting.arguments import FitSettings
from sotopia_training.models.policy import load

from sotopia_env.world.taskset import TaskSet
from studies.learn.base_model import make_base
from studies.learn.claims import ARMS, STAGES
from studies.learn.learn import split_of
from studies.learn.recipe import BASE_FIT, Recipe
from studies.learn.results import results
from studies.learn.seed_run import SeedRun

pytestmark = [pytest.mark.slow("trains for minutes"), pytest.mark.timeout(1800)]

RECIPE = Recipe(
    families=("bargaining",),  # so few steps teach a base to copy prices, but not yet divisions
    base_tasks=400,
    train=200,
    dev=10,
    test=90,
    base=Recipe().base.model_copy(update={"fit": FitSettings(trainer=BASE_FIT.adjusted(max_steps=500)), "drills": 400}),
    expert_tasks=200,
    forced_tasks=200,
    expert_patience=(2,),
    changes={"cloning": {"trainer.max_steps": 60}},
    temperature=0.3,  # after so few steps prices come out wrong at 0.7
)


@pytest.fixture(scope="module")
def cloned(tmp_path_factory):
    """The seed's run, as far as its cloned model."""
    folder = tmp_path_factory.mktemp("learn")
    split = split_of(RECIPE)
    TaskSet(list(split.dev)).save(folder / "dev_tasks.jsonl")
    base = make_base(RECIPE.base.model_copy(update={"output": str(folder / "base")}), split.base)
    run = SeedRun(RECIPE, base, split, 7, folder / "seed")
    run.run({"expert", "expert filtered", "cloning"})
    return run


@pytest.fixture(scope="module")
def goals(cloned):
    """GOAL of every held-out test episode by stage, in the same order."""
    found = {}
    for name in ("untrained", "bc"):
        policy = load(
            cloned.policies[name], name=name, temperature=RECIPE.temperature, max_batch=128, constrained="off"
        )
        found[name] = [row["goal"] for row in results(policy, cloned.split.test, RECIPE, seed=0)]
    return found


def test_cloning_plays_better_on_scenarios_people_prices_it_never_met(goals):
    """The expert scores about 5, the base model about 1.6; this small, cloning reaches about 2.7."""
    assert len(goals["bc"]) == len(goals["untrained"]) == 180
    gain = fmean(one - other for one, other in zip(goals["bc"], goals["untrained"], strict=True))
    assert gain > 0.3, {name: round(fmean(values), 2) for name, values in goals.items()}


def test_every_later_stage_runs_and_is_measured(cloned):
    """A step or two of each; what they are worth is the study's to say."""
    short = {"trainer.max_steps": 2}
    groups = {**short, "trainer.learning_rate": 5e-4, "trainer.per_device_train_batch_size": 16, "dev.every": 2}
    recipe = cloned.recipe.model_copy(
        update={
            "arms": tuple(ARMS),
            "past_selves": True,
            "turn_samples": 1,
            "own_tasks": 24,
            "forced_tasks": 24,
            "prompts": 6,
            "changes": {
                "reinforcing": short,
                "reward_model": {**short, "trainer.learning_rate": 2e-3},
                "single_turn": groups,
                "multi_turn": groups,
            },
        }
    )
    # The clone's tasks and those moves are forced on are the same ones, which a larger run's are in part.
    split = replace(cloned.split, train=cloned.split.train[:24], dev=cloned.split.dev[:4], test=cloned.split.test[:18])
    TaskSet(list(split.dev)).save(cloned.folder.parent / "dev_tasks.jsonl")
    run = SeedRun(recipe, cloned.base, split, cloned.seed, cloned.folder)
    later = [name for name, _ in run.stages()][3:]
    run.run(later)
    found = json.loads((run.folder / "results.json").read_text())
    assert found.keys() == {*STAGES, *ARMS} - {"untrained"}
    for name, rows in found.items():
        assert len(rows) == 2 * 18, name
        assert {row["seat"] for row in rows} == {"agent_0", "agent_1"}
    for rows in found.values():
        rows[0]["goal"] = 99.0  # what is there is not played again
    (run.folder / "results.json").write_text(json.dumps({name: found[name] for name in found.keys() - {"direct"}}))
    run.run({"evaluation"})
    again = json.loads((run.folder / "results.json").read_text())
    assert {name: rows[0]["goal"] == 99.0 for name, rows in again.items()} == {n: n != "direct" for n in found}
    past = json.loads((run.folder / "past_results.json").read_text())
    assert past.keys() == found.keys()
    assert all(len(rows) == 2 * 6 and {row["partner"] for row in rows} == {"past"} for rows in past.values())
    sampled = json.loads((run.folder / "budgets.json").read_text())
    assert sampled.keys() == found.keys() - {"bc"}
    assert all(sampled[name] > 16 * 2 * 5 for name in sampled.keys() - {"best_of_8"})  # two steps, 16 answers each
    assert sampled["turn_credit"] > sampled["multi_turn"]  # equal episodes, and those it measures with
    assert (
        sampled["single_turn"] > sampled["sr"] > 0
    )  # it learns from the same episodes, and samples answers of its own
    for name in ("single_turn", "multi_turn", "measured", "direct", "goal_alone", "turn_credit"):
        looks = json.loads((run.folder / name / "dev.json").read_text())
        assert [look["step"] for look in looks] == [0, 2]
        assert ("reward_model" in looks[0]) == (name not in ("multi_turn", "goal_alone", "turn_credit"))
