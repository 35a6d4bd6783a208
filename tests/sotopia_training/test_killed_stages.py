"""Training stages that are killed five times at random moments, and end as one that was not."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import runpy
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from sotopia_training.data.samples import RowMaker
from sotopia_training.stage.directory import StageDirectory

from sotopia_env.foundation.settings import Settings
from sotopia_env.foundation.yaml_text import to_yaml
from sotopia_env.storage.directory import read_run
from tests.sotopia_training.conftest import BRIEF
from tests.sotopia_training.grpo.grpo_settings import multi_turn_settings, reward_model_of, single_turn_settings

ROOT = Path(__file__).parents[2]
MOMENTS = ("soon after the start", "after a step", "after a step", "in a checkpoint", "in a checkpoint")
LONG = 1200
"""Seconds after which a process hangs."""


FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["sotopia_training.grpo.stage", "trl.trainer.sft_trainer", "trl.trainer.grpo_trainer"])


def run_script(path: Path, config: Path, log: Path) -> None:
    """Runs a script of ``scripts/`` in this process, which has its imports from the server that it was forked from."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(file, stream)
    sys.argv = [str(path), "--config", str(config)]
    runpy.run_path(str(path), run_name="__main__")


@dataclass
class Script:
    """The script of a stage, the file of its settings, and its output directory."""

    name: str
    config: Path
    output: Path

    def start(self) -> BaseProcess:
        self.log.write_text("")
        process = FORKED.Process(target=run_script, args=(ROOT / "scripts" / self.name, self.config, self.log))
        process.start()
        return process

    def finish(self, process: BaseProcess) -> None:
        """Waits for the end, which must be a success."""
        process.join(LONG)
        assert process.exitcode == 0, self.log.read_text()

    @property
    def log(self) -> Path:
        return self.config.with_suffix(".log")

    @property
    def step(self) -> int | None:
        """The last step that the running process reported."""
        steps = re.findall(r": step (\d+) of \d+: ", self.log.read_text())
        return int(steps[-1]) if steps else None

    @property
    def saved(self) -> int:
        """The step of the newest complete checkpoint."""
        path = StageDirectory(self.output, "", Settings()).last_checkpoint()
        return 0 if path is None else int(path.name.removeprefix("checkpoint-"))

    def writes_a_checkpoint(self) -> bool:
        folders = (self.output / "checkpoints").glob("checkpoint-*")
        return any(not (path / "trainer_state.json").exists() for path in folders)


@dataclass(frozen=True)
class Pace:
    """The seconds of an unbroken run until its first report, and from one step to the next."""

    start: float
    step: float


def unbroken(script: Script) -> Pace:
    """Runs a stage to its end."""
    begin = time.monotonic()
    process = script.start()
    wait_for(process, lambda: script.step is not None)
    first, number = time.monotonic(), script.step
    script.finish(process)
    assert number is not None
    return Pace(first - begin, (time.monotonic() - first) / max(1, (script.step or 0) - number))


def wait_for(process: BaseProcess, event: Callable[[], bool], every: float = 0.02) -> None:
    deadline = time.monotonic() + LONG
    while not event():
        assert process.is_alive(), "the process has ended before the moment at which it should be killed"
        assert time.monotonic() < deadline
        time.sleep(every)


def kill(script: Script, moment: str, pace: Pace, last: int, rng: random.Random) -> str:
    """Starts the stage and kills it at a moment of this kind, at step ``last`` or before; returns the moment."""
    saved, process = script.saved, script.start()
    try:
        delay, target = 0.0, rng.randint(saved + 1, max(saved + 1, last))
        if moment == "soon after the start":
            delay = rng.uniform(0, 1.2 * pace.start)
        else:
            wait_for(process, lambda: (script.step or 0) >= target)
        if moment == "after a step":
            delay = rng.uniform(0, 2 * pace.step)
        elif moment == "in a checkpoint":
            wait_for(process, script.writes_a_checkpoint, every=0.001)
        time.sleep(delay)
    finally:
        process.kill()
        process.join(LONG)
    log = script.log.read_text()
    assert process.exitcode == -signal.SIGKILL, log
    assert script.step is None or ("continuing from" in log) == (saved > 0), log
    found = f"{moment}, {delay:.2f} s: from {saved}, at step {script.step}, checkpoint {script.saved}"
    return f"{found}, and one of which a part is written" if script.writes_a_checkpoint() else found


def killed(script: Script, pace: Pace, steps: int, seed: int) -> None:
    """Runs a stage to its end, after it was killed at every moment of :data:`MOMENTS`, in random order."""
    rng = random.Random(seed)
    order = rng.sample(MOMENTS, len(MOMENTS))
    for number, moment in enumerate(order):
        share = (steps - script.saved) // (len(order) - number + 1)  # leaves steps for the kills to come
        print(f"seed {seed}:", kill(script, moment, pace, script.saved + share, rng), flush=True)
    script.finish(script.start())


# --- stages -------------------------------------------------------------------------------------------------------

OFTEN = {"save_steps": 2, "logging_steps": 3, "learning_rate": 1e-3, "warmup_steps": 0.2}
"""Reports are rarer than checkpoints, so that some steps of a report are taken before a kill and some after it."""


def cloning(file: Callable[[str], Path], folder: Path) -> dict[str, Any]:
    return {
        "model": {"base": str(file("tiny_model")), "lora": {"rank": 4, "alpha": 8, "dropout": 0.1}},
        "prompt": BRIEF.model_dump(mode="json"),
        "data": [{"run": str(file("expert_run"))}],
        "validation": 0.1,
        "held_out_states": 2,
        "keep": "best",
        "trainer": {
            **OFTEN,
            "max_steps": 24,
            "per_device_train_batch_size": 2,
            "gradient_accumulation_steps": 2,
            "per_device_eval_batch_size": 24,
        },
    }


def rewarding(file: Callable[[str], Path], folder: Path) -> dict[str, Any]:
    maker = RowMaker(BRIEF)
    episodes = islice(read_run(file("expert_run")), 9)
    rows = [row for episode in episodes for row in maker.rows(episode, "agent_0")]
    lines = [
        {
            "prompt": row.prompt,
            "completion": row.completion,
            "value": row.turn / 8,
            "scenario": row.scenario,
            "episode": row.episode,
        }
        for row in rows
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {
        "model": {"base": str(file("tiny_model")), "lora": None},
        "prompt": BRIEF.model_dump(mode="json"),
        "rows": [str(folder)],
        "validation": 0.2,
        # Saved after every epoch, whose steps no report divides: the defaults of cloning and of the reward model.
        "trainer": {"learning_rate": 1e-3, "num_train_epochs": 4, "per_device_train_batch_size": 4},
    }


def single_turn(file: Callable[[str], Path], folder: Path) -> dict[str, Any]:
    scored_by = reward_model_of(file("cloned"), folder / "scored-by")
    trainer = {**OFTEN, "max_steps": 20, "beta": 0.1}
    settings = single_turn_settings(file("cloned"), scored_by, file("expert_run"), trainer=trainer)
    return settings.model_dump(mode="json", exclude_unset=True)


def multi_turn(file: Callable[[str], Path], folder: Path) -> dict[str, Any]:
    situations = {"families": ["bargaining"], "level": "easy", "max_turns": 4, "worths": False}
    drawn = [{"policy": "linear:horizon=2", "share": 0.5}, {"policy": "past", "share": 0.5}]
    dev = {**situations, "count": 1, "task_seed": 9, "partners": ["linear:horizon=2"]}
    return multi_turn_settings(
        start_from=str(file("cloned")),
        situations={**situations, "count": 4, "partners": drawn, "past": {"every": 2, "size": 2}},
        reward={"turns": "acts", "scalarisation": "goal"},
        dev={"situations": dev, "every": 3},
        keep="best",
        trainer={**OFTEN, "max_steps": 20},
    ).model_dump(mode="json", exclude_unset=True)


def differences(figures: dict[str, Any], others: dict[str, Any]) -> list[str]:
    """The reports that differ, and the other figures that do."""
    logs = [[sorted(entry.items()) for entry in one["log"]] for one in (figures, others)]
    reports = [str([*({*a} ^ {*b})]) for a, b in zip(*logs, strict=True) if a != b]
    return [*reports, *(name for name in figures if name != "log" and figures[name] != others.get(name))]


def ended(output: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The figures and the weights that a stage has left, without times and TRL's counts of a process's tokens."""

    def timeless(value: Any) -> Any:
        if isinstance(value, list):
            return [timeless(item) for item in value]
        if isinstance(value, dict):
            return {k: timeless(v) for k, v in value.items() if not re.search(r"time|per_second|num_tokens", k)}
        return value

    (weights,) = (output / "model").glob("*.safetensors")
    return timeless(json.loads((output / "done.json").read_text())), load_file(weights)


@pytest.mark.slow("starts a stage seven times")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("script", "make", "steps", "seed"),
    [
        pytest.param("train_bc.py", cloning, 24, 1, id="bc"),
        pytest.param("train_rm.py", rewarding, 32, 2, id="rm"),
        pytest.param("train_grpo.py", single_turn, 20, 3, id="grpo single-turn"),
        pytest.param("train_grpo.py", multi_turn, 20, 4, id="grpo multi-turn"),
    ],
)
def test_a_stage_killed_five_times_ends_with_the_losses_of_one_that_was_not(
    script, make, steps, seed, request, tmp_path, monkeypatch
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    settings = make(request.getfixturevalue, tmp_path)
    scripts = []
    for name in ("whole", "killed"):
        config = tmp_path / f"{name}.yaml"
        config.write_text(to_yaml({**settings, "output": str(tmp_path / name)}))
        scripts.append(Script(script, config, tmp_path / name))
    killed(scripts[1], unbroken(scripts[0]), steps, seed)
    whole, again = (ended(one.output) for one in scripts)
    assert differences(whole[0], again[0]) == []
    assert again[0] == whole[0]
    assert whole[0]["steps"] == steps
    assert again[1].keys() == whole[1].keys()
    assert all(torch.equal(again[1][name], whole[1][name]) for name in whole[1])
