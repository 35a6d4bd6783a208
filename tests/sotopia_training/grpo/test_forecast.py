"""Forecasts are what training then does, and a probe is a step that was really taken."""

import itertools
import subprocess
import sys
from types import SimpleNamespace

import pytest
from sotopia_training.fitting import behavior_cloning
from sotopia_training.fitting import probe as measuring
from sotopia_training.fitting.forecast import group_forecast
from sotopia_training.grpo import forecast as grpo_forecast
from sotopia_training.grpo import stage as grpo
from sotopia_training.grpo.forecast import forecast
from sotopia_training.grpo.settings import RewardSettings, trainer_arguments
from sotopia_training.models.loading import find_model
from sotopia_training.reward import model as reward_model
from sotopia_training.stage.settings import ModelSettings

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.settings import settings_of
from tests.errors import raises
from tests.sotopia_training.conftest import SHORT as BRIEF
from tests.sotopia_training.grpo.grpo_settings import multi_turn_settings, reward_model_of, single_turn_settings

EPOCH = {"max_steps": -1, "num_train_epochs": 1, "per_device_train_batch_size": 4}


def cloning(cloned, run, out, **trainer):
    values = {
        "model": {"base": str(find_model(cloned)), "lora": None},
        "prompt": BRIEF.model_dump(),
        "data": [{"run": str(run)}],
        "output": str(out),
        "trainer": trainer,
    }
    return settings_of(values, behavior_cloning.BehaviorCloningSettings, "test")


@pytest.mark.slow("trains with three stages")
def test_training_takes_the_forecast_steps(cloned, expert_run, tmp_path):
    """Steps of a supervised stage, and of GRPO in both modes, over whole epochs."""
    trainer = {**EPOCH, "num_train_epochs": 2, "per_device_train_batch_size": 7, "gradient_accumulation_steps": 3}
    clone = cloning(cloned, expert_run, tmp_path / "bc", **trainer)
    one = behavior_cloning.forecast(clone, None, 1)
    figures = behavior_cloning.run(clone)
    assert (one.steps, one.rows, one.sampled) == (figures["steps"], figures["data"]["train"]["rows"], 0)
    ended = behavior_cloning.forecast(clone.model_copy(update={"keep": 1}), None, 1)  # its schedule does not end
    assert (ended.steps * 2, ended.trained * 2) == (one.steps, one.trained)
    longest = behavior_cloning.forecast(clone, one.rows, 1)
    assert (longest.steps, longest.trained) == (one.steps, 2 * one.rows * BRIEF.max_length)
    assert longest.trained > one.trained
    batches = {"gradient_accumulation_steps": 4, "steps_per_generation": 2}
    settings = multi_turn_settings(start_from=str(cloned), output=str(tmp_path / "grpo"), trainer={**EPOCH, **batches})
    one, many = (forecast(settings, None, devices) for devices in (1, 2))
    assert one.steps == grpo.run(settings)["steps"]
    assert (one.rows, one.steps, many.steps) == (8, 2, 1)
    assert one.sampled == many.sampled == 8 * 4 * 2 * BRIEF.max_answer  # two own turns of four
    scorer = reward_model_of(cloned, tmp_path / "rm")
    single = single_turn_settings(cloned, scorer, expert_run, output=str(tmp_path / "single"), trainer=EPOCH)
    assert forecast(single, None, 1).rows > 100


def test_tokens_are_counted_over_all_answers():
    arguments = trainer_arguments(multi_turn_settings(trainer={"max_steps": 10}))
    work = group_forecast(arguments, 100, row_tokens=500, answer_tokens=100, devices=2)
    assert (work.sampled, work.trained) == (10 * 16 * 100, 10 * 16 * 500)


def test_playing_on_from_every_state_is_counted(cloned):
    """Two own turns: from the first state two further turns are played, from the second one, each four times."""
    plain, measured = (
        forecast(multi_turn_settings(start_from=str(cloned), reward=RewardSettings(turns=turns)), None, 1)
        for turns in ("episode", "counterfactual")
    )
    assert measured.sampled == plain.sampled / 2 * (2 + 4 * (2 + 1))
    assert measured.trained == plain.trained


def test_tokens_are_unknown_before_the_earlier_stage_has_run(tmp_path):
    missing = forecast(multi_turn_settings(start_from=str(tmp_path / "none")), None, 1)
    assert (missing.rows, missing.trained, missing.sampled) == (8, None, None)
    with raises(InvalidValueError, file="none"):
        grpo_forecast.probe(multi_turn_settings(start_from=str(tmp_path / "none")))


@pytest.mark.parametrize("stage", ["cloning", "conversations", "reward model", "single-turn", "multi-turn"])
def test_a_probe_is_a_real_step_at_full_length(stage, cloned, expert_run, tmp_path, monkeypatch):
    ticks = itertools.count()
    monkeypatch.setattr(measuring, "time", SimpleNamespace(perf_counter=ticks.__next__))  # one second a step
    trainer = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "num_iterations": 1}
    if stage == "reward model":
        values = {"rows": ["x"], "prompt": BRIEF, "model": ModelSettings(base=str(find_model(cloned)))}
        settings = reward_model.RewardModelSettings(**values, output="y")
        probe = reward_model.probe
    elif stage == "single-turn":
        settings = single_turn_settings(cloned, reward_model_of(cloned, tmp_path / "rm"), expert_run, trainer=trainer)
        probe = grpo_forecast.probe
    elif stage == "multi-turn":
        settings = multi_turn_settings(start_from=str(cloned), trainer=trainer | {"steps_per_generation": 4})
        probe = grpo_forecast.probe
    else:
        settings = cloning(cloned, expert_run, tmp_path / "out", per_device_train_batch_size=4)
        settings = settings.model_copy(update={"rows": "turns" if stage == "cloning" else stage})
        probe = behavior_cloning.probe
    step = probe(settings)
    assert step.length == BRIEF.max_length
    assert step.seconds == 1
    assert next(ticks) >= 2  # the first step warms up
    assert 50e6 < step.memory < 50e9  # Python with torch alone has more than 50 MB
    assert not (tmp_path / "out").exists()


@pytest.mark.slow("starts two commands that load torch")
def test_a_dry_run_on_a_cpu_measures_on_request(cloned, expert_run, tmp_path):
    config = tmp_path / "bc.yaml"
    config.write_text(cloning(cloned, expert_run, tmp_path / "out", max_steps=7).model_dump_json())
    command = [sys.executable, "-m", "sotopia_training", "bc", "--config", str(config), "--dry-run", "--rows", "70"]
    process = subprocess.run([*command, "--probe"], capture_output=True, text=True, check=True)
    counted, measured = process.stdout.splitlines()
    assert "70 rows, 7 optimiser steps" in counted
    assert "CPU" in measured
    assert "512 tokens" in measured
    refused = subprocess.run([*command, "--devices", "0"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
