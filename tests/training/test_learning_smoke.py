"""Cloning learns: the proof's own stages, made small, with one fixed seed, in about 100 CPU seconds."""

from statistics import fmean

import pytest

from sotopia_env.taskset import TaskSet
from training.policy import load
from training.proof.base_model import make_base
from training.proof.held_out import split_bargaining
from training.proof.recipe import Recipe, _fit
from training.proof.seed_run import SeedRun, results

RECIPE = Recipe(
    base_tasks=400,
    train=200,
    dev=10,
    test=90,
    base=Recipe().base.model_copy(update={"fit": _fit(5e-3, 450, 8), "strange": 0}),
    strange=0,  # so few steps do not suffice to learn to read past strange words
    expert_tasks=200,
    expert_patience=2,
    cloning=_fit(5e-3, 60, 12),
)


@pytest.fixture(scope="module")
def goals(tmp_path_factory):
    """GOAL of every held-out test episode by stage, in the same order."""
    folder = tmp_path_factory.mktemp("learn")
    split = split_bargaining(RECIPE.base_tasks, RECIPE.train, RECIPE.dev, RECIPE.test, RECIPE.level, RECIPE.task_seed)
    TaskSet(list(split.dev)).save(folder / "dev_tasks.jsonl")
    base = make_base(RECIPE.base.model_copy(update={"output": str(folder / "base")}), split.base)
    run = SeedRun(RECIPE, base, split, 7, folder / "seed")
    run.run({"expert", "cloning"})
    found = {}
    for name in ("untrained", "bc"):
        policy = load(run.policies[name], name=name, temperature=RECIPE.temperature, max_batch=128)
        found[name] = [row["goal"] for row in results(policy, split.test, RECIPE, seed=0)]
    return found


def test_cloning_plays_better_on_scenarios_people_prices_and_words_it_never_met(goals):
    """The expert scores about 4, the base model about 1.2; this small, cloning reaches about 2.1."""
    assert len(goals["bc"]) == len(goals["untrained"]) == 180
    gain = fmean(one - other for one, other in zip(goals["bc"], goals["untrained"], strict=True))
    assert gain > 0.3, {name: round(fmean(values), 2) for name, values in goals.items()}
