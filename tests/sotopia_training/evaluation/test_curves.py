"""The figures of a run over its steps: from a complete stage, from one that runs, and of a directory without any."""

import json
import shutil

import pytest
from sotopia_training.commands import main
from sotopia_training.evaluation.curves import read_curves, show
from sotopia_training.grpo import stage as grpo
from sotopia_training.grpo.settings import DevSettings

from tests.sotopia_training.grpo.grpo_settings import SITUATIONS, multi_turn_settings


@pytest.fixture(scope="module")
def stage(cloned, tmp_path_factory):
    """A stage of GRPO whose dev episodes are due at the steps that are reported."""
    folder = tmp_path_factory.mktemp("shown") / "grpo"
    dev = DevSettings(situations=SITUATIONS.model_copy(update={"count": 1, "task_seed": 9}), every=1)
    grpo.run(multi_turn_settings(start_from=str(cloned), output=str(folder), dev=dev))
    return folder


def test_every_step_is_reported_beside_dev_episodes(stage):
    curves = {curve.name: curve for curve in read_curves(stage)}
    assert [step for step, _ in curves["loss"].points] == [1, 2]
    assert [step for step, _ in curves["reward"].points] == [1, 2]
    assert [step for step, _ in curves["dev/share"].points] == [0, 1, 2]
    assert {"groups/within", "groups/between", "groups/refused_only", "episodes/losing", "entropy"} <= curves.keys()


def test_a_running_stage_is_shown_as_its_last_checkpoint_left_it(stage, tmp_path):
    running = tmp_path / "running"
    shutil.copytree(stage, running)
    (running / "done.json").unlink()
    names = {curve.name: curve.points for curve in read_curves(running)}
    assert names["loss"] == {curve.name: curve.points for curve in read_curves(stage)}["loss"]


def test_the_picture_and_the_table_are_written(stage, capsys):
    assert main(["show", str(stage)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("dev/GOAL ") and line[-1] in "▁▂▃▄▅▆▇█" for line in lines)
    assert (stage / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "groups/within" in (stage / "curves.svg").read_text()
    assert show(stage) == show(stage)


def test_a_directory_without_figures_is_named_in_one_sentence(tmp_path, capsys):
    for path in (tmp_path, tmp_path / "none"):
        assert main(["show", str(path)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert str(path) in line
    (tmp_path / "done.json").write_text(json.dumps({"episodes": 3}))  # of a stage that trains nothing
    assert main(["show", str(tmp_path)]) == 2
    assert main(["show"]) == 2
