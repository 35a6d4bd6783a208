"""Two processes of one stage, which must really be two."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.training.conftest import BRIEF
from training.models import write_prompt_settings

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
def test_two_processes_clone_together_over_gloo(tiny_model, expert_run, tmp_path):
    """`accelerate launch --cpu` starts one process in silence; this asks how many there were."""
    settings = {
        "model": {"base": str(tiny_model), "lora": None},
        "prompt": BRIEF.model_dump(mode="json"),
        "data": [{"run": str(expert_run)}],
        "validation": 0,
        "output": str(tmp_path / "bc"),
        "fit": {"learning_rate": 1e-3, "max_steps": 2, "save_steps": 2, "batch_size": 2, "logging_steps": 1},
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(settings))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    ran = subprocess.run(
        [*launch, str(ROOT / "scripts" / "train_bc.py"), "--config", str(tmp_path / "c.yaml")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        timeout=560,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    figures = json.loads((tmp_path / "bc" / "done.json").read_text())
    assert figures["world_size"] == 2
    assert figures["steps"] == 2
    assert figures["log"][-1]["epoch"] == 2 / 60  # 240 rows in batches of two on two processes: half the steps of one
    assert ran.stderr.count("rows: {") == 1  # one process prepares, and one speaks
    states = {path.name for path in (tmp_path / "bc" / "checkpoints" / "checkpoint-2").glob("rng_state*")}
    assert states == {"rng_state_0.pth", "rng_state_1.pth"}
    assert (tmp_path / "bc" / "model" / "model.safetensors").is_file()


@pytest.mark.timeout(600)
def test_two_processes_play_whole_episodes_together_over_gloo(tiny_model, tmp_path):
    """Groups span the processes; ranks whose episodes end early must ask along, or the others would wait for ever."""
    settings = {
        "mode": "multi-turn",
        "start_from": str(tmp_path / "base"),
        "lora": None,
        "max_answer": 16,
        "num_generations": 4,
        "situations": {
            "families": ["bargaining"],
            "level": "easy",
            "count": 4,
            "partners": ["linear:horizon=2", "leaver"],
            "max_turns": 4,
        },
        "reward": {"scalarisation": "goal", "credit": "acts"},
        "output": str(tmp_path / "grpo"),
        "fit": {"learning_rate": 1e-3, "max_steps": 2, "save_steps": 2, "batch_size": 2, "logging_steps": 1},
    }
    shutil.copytree(tiny_model, tmp_path / "base")
    write_prompt_settings(tmp_path / "base", BRIEF)
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(settings))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    ran = subprocess.run(
        [*launch, str(ROOT / "scripts" / "train_grpo.py"), "--config", str(tmp_path / "c.yaml")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        timeout=560,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    figures = json.loads((tmp_path / "grpo" / "done.json").read_text())
    assert figures["world_size"] == 2
    states = {path.name for path in (tmp_path / "grpo" / "checkpoints" / "checkpoint-2").glob("rng_state*")}
    assert states == {"rng_state_0.pth", "rng_state_1.pth"}
