"""A tiny model made from nothing and a run of scripted experts, made once for all tests and all their processes."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from sotopia_training.data.samples import RowMaker
from sotopia_training.data.sources import SourceSettings
from sotopia_training.fitting import behavior_cloning
from sotopia_training.models.loading import load_causal_lm, lora_config, write_prompt_settings
from sotopia_training.models.tiny_base import make_tiny_model, make_tiny_tokenizer
from sotopia_training.models.tokenizers import load_tokenizer
from sotopia_training.stage.settings import LoraSettings, ModelSettings, PromptSettings

from sotopia_env import tasks
from sotopia_env.naming import make_evaluator as make_evaluator
from sotopia_env.naming import make_policy as make_policy
from sotopia_env.runs.plan import plan_episodes
from sotopia_env.runs.rollout import run_episodes
from sotopia_env.storage.directory import read_run
from sotopia_env.world.dynamics import Rules

BRIEF = PromptSettings(format="brief", max_length=512, max_answer=48)
SHORT = BRIEF.model_copy(update={"max_answer": 40})


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """Two threads on a busy machine wait for each other more than they compute; and one gives the same sums always."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="module", autouse=True)
def _libraries_are_no_garbage():
    """Stages collect garbage before they load a model, which takes a second where a million objects are looked at."""
    import trl  # noqa: F401

    gc.collect()
    gc.freeze()


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The folder that ``make`` fills, filled by the first process of the tests that needs it."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "made-once" / name
    folder.parent.mkdir(exist_ok=True)
    done = folder.with_name(f"{name}.done")
    with FileLock(folder.with_name(f"{name}.lock")):
        if not done.exists():
            make(folder)
            done.touch()
    return folder


def play_run(folder: Path, scenarios: int, *, evaluator: str | None = "verified", seed: int = 1) -> Path:
    """Plays two experts against each other on bargaining tasks, once in each seat: twice as many episodes."""
    plans = plan_episodes(
        tasks.generate("bargaining", scenarios, seed=seed),
        # With these floors they hardly ever agree within eight turns: every episode has all its rows.
        [(make_policy("linear:floor=0.67"), make_policy("conceder:floor=0.21"))],
        # With worths, a model of this size that was trained for a minute wrote half as many valid turns.
        rules=Rules(max_turns=8, worths=False),
    )
    judge = make_evaluator(evaluator) if evaluator else None
    asyncio.run(run_episodes(plans, evaluator=judge, run_dir=folder, progress=False))
    return folder


@pytest.fixture(scope="session")
def expert_run(tmp_path_factory) -> Path:
    """30 episodes of 15 scenarios, evaluated."""
    return made_once(tmp_path_factory, "expert", lambda folder: play_run(folder, 15))


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory, expert_run) -> Path:
    """The directory of a randomly initialised decoder, 2 layers of 128, and its tokenizer."""
    maker = RowMaker(BRIEF)

    def make(folder: Path) -> None:
        texts = [
            text
            for episode in read_run(expert_run)
            for seat in episode.task.agents
            for row in maker.rows(episode, seat)
            for text in (*(message["content"] for message in row.prompt), row.completion)
        ]
        make_tiny_model(folder, make_tiny_tokenizer(texts), context=2048)

    return made_once(tmp_path_factory, "tiny", make)


@pytest.fixture(scope="session")
def tokenizer(tiny_model):
    """The tiny model's tokenizer, as every stage loads it."""
    return load_tokenizer(tiny_model)


@pytest.fixture(scope="session")
def cloned(tmp_path_factory, tiny_model, expert_run):
    """What behaviour cloning leaves: a model with its prompt settings, trained a little."""

    def make(folder: Path) -> None:
        behavior_cloning.run(
            behavior_cloning.BehaviorCloningSettings(
                model=ModelSettings(base=str(tiny_model), lora=None),
                prompt=SHORT,
                data=(SourceSettings(run=str(expert_run)),),
                validation=0,
                output=str(folder),
                trainer={"learning_rate": 3e-3, "max_steps": 120, "per_device_train_batch_size": 8, "save_steps": 120},
            )
        )

    return made_once(tmp_path_factory, "bc", make)


@pytest.fixture(scope="session")
def converted_models(tmp_path_factory):
    """The cache of SmolLM2 as a directory of safetensors, which is converted here if it is installed."""
    from sotopia_training.models.gguf_files import smol_directory
    from sotopia_training.models.loading import find_model

    def make(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SOTOPIA_CACHE", str(folder))
            find_model(smol_directory())

    return made_once(tmp_path_factory, "converted", make)


class StoppedError(Exception):
    """In place of a kill."""


def killed_after(monkeypatch, steps):
    """Makes training end abruptly after ``steps`` steps."""
    from sotopia_training.fitting import loop as fitting
    from transformers import TrainerCallback

    class Killer(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == steps:
                raise StoppedError

    callbacks = fitting._callbacks
    monkeypatch.setattr(fitting, "_callbacks", lambda fit: [*callbacks(fit), Killer()])


@pytest.fixture(scope="session")
def adapted(tmp_path_factory, tiny_model):
    """An adapter whose B is not zero, so that it and its base differ."""
    import torch
    from peft import get_peft_model

    torch.manual_seed(0)
    model = get_peft_model(load_causal_lm(ModelSettings(base=str(tiny_model))), lora_config(LoraSettings(dropout=0)))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(std=0.5)
    out = tmp_path_factory.mktemp("stages") / "adapter"
    model.save_pretrained(str(out / "model"))
    write_prompt_settings(out / "model", SHORT)
    return out
