"""A fixed-seed smoke of the proof: a tiny model made from nothing learns to talk, to deal, and to deal better."""

import json

import pytest

from sotopia_env.taskset import TaskSet
from training.fitting import FitSettings
from training.proof.base_model import BaseSettings, make_base
from training.proof.held_out import overlaps, split_bargaining
from training.proof.recipe import GroupSettings, Recipe
from training.proof.seed_run import SeedRun

COMMON = {"scheduler": "linear", "adam_beta2": 0.99, "save_steps": 10_000, "logging_steps": 50}
RECIPE = Recipe(
    base=BaseSettings(output="", fit=FitSettings(learning_rate=5e-3, max_steps=500, batch_size=8, **COMMON)),
    expert_tasks=90,
    cloning=FitSettings(learning_rate=1e-3, max_steps=25, batch_size=16, **COMMON),
    multi_turn=GroupSettings(
        fit=FitSettings(learning_rate=5e-4, max_steps=8, batch_size=48, warmup_ratio=0, **COMMON), prompts=60, every=8
    ),
)


@pytest.mark.timeout(900)
def test_a_tiny_model_learns_from_experts_and_then_from_whole_episodes(tmp_path):
    split = split_bargaining(500, 120, 60, 1, "easy", 1)
    assert set(overlaps(split).values()) == {0}
    TaskSet(list(split.dev)).save(tmp_path / "dev_tasks.jsonl")
    base = make_base(RECIPE.base.model_copy(update={"output": str(tmp_path / "base")}), split.base)
    run = SeedRun(RECIPE, base, split, 7, tmp_path / "seed_7")
    run.run({"expert", "cloning", "grpo multi-turn"})
    before, after = json.loads((tmp_path / "seed_7" / "multi_turn" / "dev.json").read_text())
    assert before["valid"] > 0.9
    assert after["valid"] > 0.9
    assert after["reward"] > before["reward"]
