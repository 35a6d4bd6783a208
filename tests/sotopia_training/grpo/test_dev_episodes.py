"""Whole episodes played while training: at their own temperature, remembered, and never the evaluation's."""

import json
from pathlib import Path
from types import SimpleNamespace

from sotopia_training.grpo import dev_episodes, multi_turn, sampling
from sotopia_training.grpo import stage as grpo
from sotopia_training.grpo.dev_episodes import DevEpisodes
from sotopia_training.grpo.settings import DevSettings
from sotopia_training.grpo.token_episodes import TokenPlayer

from sotopia_env import tasks
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.world.taskset import TaskSet
from tests.errors import raises
from tests.sotopia_training.conftest import SHORT as BRIEF
from tests.sotopia_training.grpo.grpo_settings import SITUATIONS, multi_turn_settings


def test_dev_episodes_are_sampled_at_their_own_temperature_by_trl_as_well(cloned, tokenizer, tmp_path, monkeypatch):
    """As with vLLM, or with weights that no process holds whole; and the spare rows of other processes are sampled."""
    for module in (sampling, dev_episodes):
        monkeypatch.setattr(module, "samples_through_trl", lambda trainer: True)
    monkeypatch.setattr(multi_turn, "largest_count", lambda count, trainer: count + 1 if count else 0)
    monkeypatch.setattr(dev_episodes, "largest_count", lambda count, trainer: count + 1 if count else 0)
    valid = {}
    for temperature in (0.01, 5.0):
        dev = DevSettings(situations=SITUATIONS, every=9, temperature=temperature)
        out = tmp_path / str(temperature)
        figures = grpo.run(
            multi_turn_settings(start_from=str(cloned), output=str(out), dev=dev, trainer={"max_steps": 1})
        )
        valid[temperature] = figures["dev"][0]["valid"]
        assert any("episodes/valid" in entry for entry in figures["log"])
    # A move that is not open is not a valid answer either, and this model names many prices outside the range.
    assert valid[5.0] < 0.1 < 0.25 < valid[0.01]


def test_a_repeated_dev_evaluation_keeps_the_best_model_with_its_figures(tmp_path, tokenizer):
    """A resumed run plays its last look again; partners on servers may answer otherwise."""

    class Trainer:
        accelerator = SimpleNamespace(wait_for_everyone=lambda: None)

        def save_model(self, folder):
            Path(folder).mkdir()
            (Path(folder) / "weights").write_text(str(self.step))

        def log(self, figures):
            pass

        def is_world_process_zero(self):
            return True

    def look(step, reward):
        dev = DevEpisodes(settings, player, tmp_path, (24, 1.0))  # as a process that begins
        dev.look_together = lambda trainer, step: {"step": float(step), "reward": reward}
        trainer = Trainer()
        trainer.step = step
        dev._look(trainer, step)
        return (dev.best / "weights").read_text()

    settings, player = DevSettings(situations=SITUATIONS, every=1), TokenPlayer(tokenizer, BRIEF, None)
    assert [look(0, 1.0), look(1, 3.0)] == ["0", "1"]
    assert look(1, 2.0) == "1"  # the model of the first look at step 1, which was worth 3
    assert look(2, 2.5) == "1"
    assert look(3, 3.5) == "3"


def test_dev_episodes_on_scenarios_kept_for_evaluation_are_refused(cloned, tmp_path):
    reserved = tasks.generate("bargaining", SITUATIONS.count, SITUATIONS.task_seed, SITUATIONS.level)
    TaskSet([reserved[-1]]).save(tmp_path / "kept.jsonl")
    more = {"start_from": str(cloned), "output": str(tmp_path / "out"), "dev": DevSettings(situations=SITUATIONS)}
    other = SITUATIONS.model_copy(update={"task_seed": 77})
    with raises(InvalidValueError, field="dev.situations", got=reserved[-1].id):
        grpo.run(multi_turn_settings(situations=other, evaluation_tasks=str(tmp_path / "kept.jsonl"), **more))


def test_dev_episodes_end_training_after_patience(tokenizer, tmp_path):
    """Early stopping counts looks since the best one, over a resumed run as well."""
    settings = DevSettings(situations=SITUATIONS, every=1, patience=2)
    player = TokenPlayer(tokenizer, BRIEF, None)
    dev = DevEpisodes(settings, player, tmp_path, (24, 1.0))
    dev.looks = [{"step": float(step), "reward": value} for step, value in enumerate([1.0, 3.0, 2.0])]
    assert not dev.exhausted
    dev.looks.append({"step": 3.0, "reward": 2.5})
    assert dev.exhausted
    (tmp_path / "dev.json").write_text(json.dumps(dev.looks))
    assert DevEpisodes(settings, player, tmp_path, (24, 1.0)).exhausted
