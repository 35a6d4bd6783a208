"""Two processes of one stage, which must really be two."""

import json
import math
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from sotopia_training.fitting import behavior_cloning
from sotopia_training.fitting.behavior_cloning import BehaviorCloningSettings

from sotopia_env.foundation.settings import settings_of
from tests.sotopia_training.conftest import BRIEF
from tests.sotopia_training.test_killed_stages import rewarding, single_turn

ROOT = Path(__file__).parents[3]


NODE = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc_per_node", "1"]
ACCELERATE = [sys.executable, "-m", "accelerate.commands.launch"]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def two_nodes():
    """Two launchers of one process each, as on a cluster; here both nodes are this machine."""
    meeting = ["--master_addr", "127.0.0.1", "--master_port", free_port()]
    return [[*NODE, "--node_rank", rank, *meeting] for rank in "01"]


def two_of_accelerate():
    config = str(ROOT / "configs" / "accelerate" / "cpu.yaml")
    return [[*ACCELERATE, "--config_file", config, "--main_process_port", "0"]]


def launched(launchers, script, settings, folder):
    """Runs a stage below each launcher, and returns their exit codes and what they said."""
    (folder / "c.yaml").write_text(yaml.safe_dump(settings))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    command = [str(ROOT / "scripts" / script), "--config", str(folder / "c.yaml")]
    files = [folder / f"said-{number}.txt" for number in range(len(launchers))]
    running = []
    for launcher, file in zip(launchers, files, strict=True):
        with file.open("w") as log:
            running.append(
                subprocess.Popen([*launcher, *command], cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
            )
    try:
        codes = [process.wait(timeout=1000) for process in running]
    finally:
        for process in running:
            process.terminate()
    return codes, "".join(file.read_text() for file in files)


def two_processes(launchers, script, settings, folder):
    """Runs a stage in two processes over gloo, and returns its figures and what it said."""
    codes, log = launched(launchers, script, settings, folder)
    assert not any(codes), log[-3000:]
    output = Path(settings["output"])
    figures = json.loads((output / "done.json").read_text())
    assert figures["world_size"] == 2
    assert figures["steps"] == 2
    states = {path.name for path in (output / "checkpoints" / "checkpoint-2").glob("rng_state*")}
    assert states == {"rng_state_0.pth", "rng_state_1.pth"}
    return figures, log


def losses(figures):
    return [entry["loss"] for entry in figures["log"] if "loss" in entry]


def is_complete(output):
    """Whether a stage has its model and its figures, and nothing unfinished beside them."""
    whole = all((output / name).is_file() for name in ("done.json", "model/model.safetensors", "model/config.json"))
    return whole and not list(output.glob("*unfinished*"))


def cloning(tiny_model, expert_run, output):
    return {
        "model": {"base": str(tiny_model), "lora": None},
        "prompt": BRIEF.model_dump(mode="json"),
        "data": [{"run": str(expert_run)}],
        "validation": 0,
        "output": str(output),
        "trainer": {
            "learning_rate": 1e-3,
            "max_steps": 2,
            "save_steps": 2,
            "per_device_train_batch_size": 2,
            "logging_steps": 1,
        },
    }


@pytest.mark.slow("trains in processes of two launchers")
@pytest.mark.timeout(1200)
def test_two_nodes_clone_together_on_rows_that_one_process_prepares(tiny_model, expert_run, tmp_path):
    """The first process of each node would write into the folder that both see."""
    settings = cloning(tiny_model, expert_run, tmp_path / "bc")
    figures, log = two_processes(two_nodes(), "train_bc.py", settings, tmp_path)
    assert figures["log"][-1]["epoch"] == 2 / 60  # 240 rows in batches of two on two processes: half the steps of one
    assert log.count("rows: {") == 1  # one process prepares, and one speaks
    assert is_complete(tmp_path / "bc")
    alone = cloning(tiny_model, expert_run, tmp_path / "alone")
    alone["trainer"]["per_device_train_batch_size"] = 4  # the rows of a step, in two processes or one
    one = behavior_cloning.run(settings_of(alone, BehaviorCloningSettings, "test"))
    assert losses(figures) == pytest.approx(losses(one), rel=1e-4)


@pytest.mark.slow("trains in two processes")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("script", "make"),
    [
        pytest.param("train_rm.py", rewarding, id="rm"),
        pytest.param("train_grpo.py", single_turn, id="grpo single-turn"),
    ],
)
def test_two_processes_of_accelerate_train_together_over_gloo(script, make, request, tmp_path):
    settings = make(request.getfixturevalue, tmp_path)
    settings["trainer"] |= {"max_steps": 2, "save_steps": 2, "logging_steps": 1}
    figures, _ = two_processes(two_of_accelerate(), script, {**settings, "output": str(tmp_path / "out")}, tmp_path)
    assert len(losses(figures)) == 2
    assert all(math.isfinite(loss) for loss in losses(figures))
    assert is_complete(tmp_path / "out")


@pytest.mark.parametrize("source", ["flags", "MULTI_CPU"])
def test_missing_processes_of_accelerate_are_refused(tiny_model, expert_run, tmp_path, source):
    (tmp_path / "multi.yaml").write_text(
        "{compute_environment: LOCAL_MACHINE, distributed_type: MULTI_CPU, num_machines: 1, num_processes: 2, "
        "mixed_precision: 'no', machine_rank: 0, use_cpu: true, debug: false}"
    )
    options = (
        ["--num_processes", "2", "--cpu"] if source == "flags" else ["--config_file", str(tmp_path / "multi.yaml")]
    )
    settings = cloning(tiny_model, expert_run, tmp_path / "bc")
    codes, log = launched([[*ACCELERATE, *options]], "train_bc.py", settings, tmp_path)
    assert codes != [0]
    assert "sotopia: launch: " in log
    assert "torchrun" in log
    assert not (tmp_path / "bc").exists()


@pytest.mark.slow("trains in two processes")
@pytest.mark.timeout(1200)
def test_two_processes_play_whole_episodes_together_over_gloo(cloned, tmp_path):
    """Groups span the processes; ranks whose episodes end early must ask along, or the others would wait for ever."""
    situations = {
        "families": ["bargaining"],
        "level": "easy",
        "partners": ["linear:horizon=2", "leaver"],
        "max_turns": 4,
    }
    settings = {
        "mode": "multi-turn",
        "start_from": str(cloned),
        "lora": None,
        "situations": {**situations, "count": 4},
        "dev": {"situations": {**situations, "count": 3, "task_seed": 9, "both_seats": False}, "every": 1},
        "keep": "best",
        "reward": {"scalarisation": "goal", "turns": "acts"},
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
    figures, _ = two_processes(two_of_accelerate(), "train_grpo.py", settings, tmp_path)
    assert [look["step"] for look in figures["dev"]] == [0, 1, 2]
    # Three dev episodes, two in one process and one in the other: means are of all three in both.
    assert all(round(look["agreement"] * 3, 6).is_integer() for look in figures["dev"])
    assert json.loads((tmp_path / "grpo" / "dev.json").read_text()) == figures["dev"]
    trained, start = (load_file(folder / "model" / "model.safetensors") for folder in (tmp_path / "grpo", cloned))
    last = load_file(tmp_path / "grpo" / "checkpoints" / "checkpoint-2" / "model.safetensors")
    assert not all(torch.equal(last[name], start[name]) for name in start)  # turns had rewards of their own
    middle = load_file(tmp_path / "grpo" / "checkpoints" / "checkpoint-1" / "model.safetensors")
    best = (start, middle, last)[max(range(3), key=lambda look: (figures["dev"][look]["reward"], look))]
    assert all(torch.equal(trained[name], best[name]) for name in best)
