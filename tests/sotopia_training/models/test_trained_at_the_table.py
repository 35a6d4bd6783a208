"""A trained adapter at the table, by its directory, as a user puts it there: rollout, compare, an evaluation."""

import json
from pathlib import Path

import pytest
from sotopia_training.data.sources import SourceSettings
from sotopia_training.evaluation import evaluation
from sotopia_training.fitting import behavior_cloning
from sotopia_training.stage.settings import LoraSettings, ModelSettings
from typer.testing import CliRunner

from sotopia_env.cli.app import app
from sotopia_env.storage.directory import read_run
from tests.sotopia_training.conftest import SHORT


@pytest.fixture(scope="module")
def adapter(tmp_path_factory, tiny_model, expert_run) -> Path:
    """What behaviour cloning with LoRA leaves: an adapter of the tiny model."""
    output = tmp_path_factory.mktemp("trained") / "cloned-adapter"
    behavior_cloning.run(
        behavior_cloning.BehaviorCloningSettings(
            model=ModelSettings(base=str(tiny_model), lora=LoraSettings(rank=4, alpha=8, dropout=0.0)),
            prompt=SHORT,
            data=(SourceSettings(run=str(expert_run)),),
            validation=0,
            rows="conversations",
            output=str(output),
            trainer={"learning_rate": 3e-3, "max_steps": 4, "per_device_train_batch_size": 4, "save_steps": 4},
        )
    )
    assert (output / "model" / "adapter_config.json").is_file()
    return output


def sotopia(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def rollout(policy, out):
    sotopia(
        *("rollout", "--policy", policy, "--policy", "tit-for-tat", "--set", "self_play=false", "--out", out),
        *("--tasks", "bargaining", "-n", 2, "--max-turns", 4),
    )
    return out


@pytest.fixture(scope="module")
def run_directories(adapter, tmp_path_factory):
    """Two runs of the same tasks and partner: the adapter's and a scripted policy's."""
    folder = tmp_path_factory.mktemp("runs")
    return rollout(adapter, folder / "trained"), rollout("linear", folder / "scripted")


def test_rollout_takes_the_adapters_directory_for_a_policy(run_directories):
    episodes = list(read_run(run_directories[0]))
    assert len(episodes) == 4
    for episode in episodes:
        assert sorted(info.name for info in episode.policies) == ["cloned-adapter", "tit-for-tat"]
        seat = next(info.agent for info in episode.policies if info.name == "cloned-adapter")
        own = [item for item in episode.turns if item.turn.actor == seat]
        assert own
        assert {item.generation.model for item in own} == {"cloned-adapter"}
        assert all(item.generation.usage.completion_tokens > 0 for item in own)
        assert episode.evaluation("verified") is not None


def test_compare_reads_its_run_and_a_scripted_policys(run_directories, tmp_path):
    comparison = json.loads(sotopia("compare", *run_directories, "--metric", "goal", "--out", tmp_path, "--json"))
    cells = {(cell["policy"], cell["metric"]): cell["estimate"]["n"] for cell in comparison["cells"]}
    assert cells["cloned-adapter", "goal"] == cells["linear", "goal"] == 4
    pairs = {
        frozenset((one["first"], one["second"])): one for one in comparison["differences"] if one["metric"] == "goal"
    }
    assert pairs[frozenset(("cloned-adapter", "linear"))]["matched"] == 8  # four seats of each
    assert "cloned-adapter" in sotopia("compare", *run_directories)


def test_an_evaluation_takes_the_adapters_directory_for_a_policy(adapter, tmp_path):
    evaluation.run(
        evaluation.EvaluationSettings(
            output=str(tmp_path / "e"),
            policies=(str(adapter), "linear"),
            partners=("tit-for-tat",),
            baseline="linear",
            tasks="bargaining",
            n=2,
            max_turns=4,
            metrics=("goal",),
        )
    )
    figures = json.loads((tmp_path / "e" / "done.json").read_text())
    (gain,) = figures["differences"]
    row = tuple(gain[name] for name in ("first", "partner", "metric", "n"))
    assert row == ("cloned-adapter", "tit-for-tat", "goal", 4)  # both orders of a seat are averaged
    report = (tmp_path / "e" / "report.md").read_text()
    assert "cloned-adapter" in report
    assert "## Paired differences to linear" in report
