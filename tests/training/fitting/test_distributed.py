"""Two processes of one stage, which must really be two."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from tests.training.conftest import BRIEF

ROOT = Path(__file__).parents[3]


def two_processes(script, settings, folder):
    """Runs a stage in two processes over gloo, and returns its figures and what it said."""
    (folder / "c.yaml").write_text(yaml.safe_dump(settings))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    ran = subprocess.run(
        [*launch, str(ROOT / "scripts" / script), "--config", str(folder / "c.yaml")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        timeout=560,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    output = Path(settings["output"])
    figures = json.loads((output / "done.json").read_text())
    assert figures["world_size"] == 2
    assert figures["steps"] == 2
    states = {path.name for path in (output / "checkpoints" / "checkpoint-2").glob("rng_state*")}
    assert states == {"rng_state_0.pth", "rng_state_1.pth"}
    return figures, ran.stderr


@pytest.mark.timeout(600)
def test_two_processes_clone_together_over_gloo(tiny_model, expert_run, tmp_path):
    """`accelerate launch --cpu` starts one process in silence; this asks how many there were."""
    settings = {
        "model": {"base": str(tiny_model), "lora": None},
        "prompt": BRIEF.model_dump(mode="json"),
        "data": [{"run": str(expert_run)}],
        "validation": 0,
        "output": str(tmp_path / "bc"),
        "trainer": {
            "learning_rate": 1e-3,
            "max_steps": 2,
            "save_steps": 2,
            "per_device_train_batch_size": 2,
            "logging_steps": 1,
        },
    }
    figures, said = two_processes("train_bc.py", settings, tmp_path)
    assert figures["log"][-1]["epoch"] == 2 / 60  # 240 rows in batches of two on two processes: half the steps of one
    assert said.count("rows: {") == 1  # one process prepares, and one speaks
    assert (tmp_path / "bc" / "model" / "model.safetensors").is_file()


@pytest.mark.timeout(600)
def test_two_processes_play_whole_episodes_together_over_gloo(cloned, tmp_path):
    """Groups span the processes; ranks whose episodes end early must ask along, or the others would wait for ever."""
    played = {"families": ["bargaining"], "level": "easy", "partners": ["linear:horizon=2", "leaver"], "max_turns": 4}
    settings = {
        "mode": "multi-turn",
        "start_from": str(cloned),
        "lora": None,
        "situations": {**played, "count": 4},
        "dev": {"situations": {**played, "count": 3, "task_seed": 9, "both_seats": False}, "every": 1},
        "keep": "best",
        "reward": {"scalarisation": "goal", "credit": "acts"},
        "output": str(tmp_path / "grpo"),
        "trainer": {
            "num_generations": 4,
            "learning_rate": 1e-3,
            "max_steps": 2,
            "save_steps": 1,
            "per_device_train_batch_size": 2,
            "logging_steps": 1,
        },
    }
    figures, _ = two_processes("train_grpo.py", settings, tmp_path)
    assert [look["step"] for look in figures["dev"]] == [0, 1, 2]
    # Three dev episodes, two in one process and one in the other: means are of all three in both.
    assert all(round(look["agreement"] * 3, 6).is_integer() for look in figures["dev"])
    assert json.loads((tmp_path / "grpo" / "dev.json").read_text()) == figures["dev"]
    trained, begun = (load_file(place / "model" / "model.safetensors") for place in (tmp_path / "grpo", cloned))
    last = load_file(tmp_path / "grpo" / "checkpoints" / "checkpoint-2" / "model.safetensors")
    assert not all(torch.equal(last[name], begun[name]) for name in begun)  # turns had credits of their own
    middle = load_file(tmp_path / "grpo" / "checkpoints" / "checkpoint-1" / "model.safetensors")
    kept = (begun, middle, last)[max(range(3), key=lambda look: (figures["dev"][look]["reward"], look))]
    assert all(torch.equal(trained[name], kept[name]) for name in kept)
