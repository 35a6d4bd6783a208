"""A training script that is killed for real, ended by a batch system, and begun again each time."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from sotopia_training.stage.directory import StageDirectory

from sotopia_env.storage.directory import read_run
from tests.sotopia_training.conftest import BRIEF

ROOT = Path(__file__).parents[3]
STEPS, EVERY = 100, 5


@pytest.fixture
def stage(tiny_model, expert_run, tmp_path):
    """A stage of behaviour cloning whose steps take a few milliseconds, beside the file that asks for it."""
    key = next(read_run(expert_run)).key
    (tmp_path / "selection.jsonl").write_text(json.dumps({"episode": key, "seat": "agent_0", "why": "top"}) + "\n")
    settings = {
        "model": {"base": str(tiny_model), "lora": None},
        "prompt": BRIEF.model_dump(mode="json"),
        "data": [{"run": str(expert_run), "selection": str(tmp_path / "selection.jsonl")}],
        "validation": 0,
        "output": str(tmp_path / "bc"),
        "trainer": {"max_steps": STEPS, "save_steps": EVERY, "per_device_train_batch_size": 1, "logging_steps": 1},
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(settings))
    return StageDirectory(tmp_path / "bc", "behavior_cloning", None)


def ended(stage, number=None):
    """Runs the script, ends it with a signal once it has written a new checkpoint, and returns its code and words."""
    log_file = stage.path.with_suffix(".log")
    before = stage.last_checkpoint()
    command = [sys.executable, str(ROOT / "scripts" / "train_bc.py"), "--config", str(stage.path.parent / "c.yaml")]
    alone = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    with log_file.open("w") as log, subprocess.Popen(command, cwd=ROOT, env=alone, stdout=log, stderr=log) as process:
        try:
            while number is not None and process.poll() is None and stage.last_checkpoint() == before:
                time.sleep(0.005)
            if number is not None:
                process.send_signal(number)
            code = process.wait(timeout=240)
        finally:
            process.kill()
    return code, log_file.read_text()


def resumed_at(log):
    """The step that a run continued from, and the first that it took."""
    (checkpoint,) = re.findall(r"continuing from \S+/checkpoint-(\d+)\n", log)
    return int(checkpoint), int(re.search(rf"step (\d+) of {STEPS}:", log)[1])


@pytest.mark.slow("starts training three times")
@pytest.mark.timeout(1200)
def test_a_script_continues_after_a_kill_or_sigterm(stage):
    code, log = ended(stage, signal.SIGKILL)
    assert code == -signal.SIGKILL, log
    assert "continuing from" not in log
    left = int(stage.last_checkpoint().name.removeprefix("checkpoint-"))
    assert EVERY <= left < STEPS
    assert not stage.model.exists()

    code, log = ended(stage, signal.SIGTERM)
    assert code == 143, log
    assert log.count("sotopia: stopped") == 1
    assert "Traceback" not in log
    assert resumed_at(log) == (left, left + 1)
    later = int(stage.last_checkpoint().name.removeprefix("checkpoint-"))
    assert left < later < STEPS
    assert stage.figures is None

    code, log = ended(stage)
    assert code == 0, log
    assert resumed_at(log) == (later, later + 1)
    assert [entry["step"] for entry in stage.figures["log"]] == list(range(1, STEPS + 1))
    assert (stage.model / "model.safetensors").is_file()
