"""Stages as commands: found by name, from a checkout, from an installed package, and through ``sotopia``."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from sotopia_training.commands import STAGES, main
from sotopia_training.stage.configurations import configurations_folder
from typer.testing import CliRunner

from sotopia_env.cli.app import app

ROOT = Path(__file__).parents[2]


@pytest.fixture
def installed(tmp_path):
    """The packages and their metadata as a wheel lays them out, in a folder that has nothing else in it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    site = tmp_path / "site"
    for package in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        if (ROOT / package).is_dir():
            shutil.copytree(ROOT / package, site / Path(package).name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            site.mkdir(exist_ok=True)
            shutil.copy(ROOT / package, site / package)
    for source, target in project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"].items():
        shutil.copytree(ROOT / source, site / target)
    info = site / "sotopia_env-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sotopia-env\nVersion: 0.1.0\n")
    groups = project["project"]["entry-points"]
    (info / "entry_points.txt").write_text(
        "".join(f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in names.items()) for group, names in groups.items())
    )
    return site


def run(site, *command):
    """Runs Python in an empty folder, where only ``site`` has the packages."""
    folder = site.parent / "empty"
    folder.mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run([sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True)


def test_an_installed_package_runs_a_stage_by_name_in_an_empty_folder(installed):
    checked = run(installed, "-m", "sotopia_training", "evaluate", "--config", "evaluate_verified", "--check")
    assert (checked.returncode, checked.stderr) == (0, "")
    through = run(installed, "-m", "sotopia_env.cli.app", "train", "bc", "--config", "bc_tiny", "--set", "trainor=1")
    assert (through.returncode, "trainer" in through.stderr) == (2, True)
    listing = run(installed, "-m", "sotopia_env.cli.app", "train", "--list").stdout
    assert str(installed / "sotopia_training" / "configs") in listing
    assert "sotopia train bc --config bc_qwen_7b\n" in listing


def test_a_stage_of_the_command_leaves_what_the_script_would(tmp_path, monkeypatch):
    """The generator of tasks, which needs no model."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("given: bargaining:n=2\noutput: tasks\n")
    assert main(["tasks", "--config", "mine.yaml"]) == 0
    script = [sys.executable, str(ROOT / "scripts" / "generate_tasks.py")]
    changes = ["--config", "mine.yaml", "--set", "output=again"]
    subprocess.run([*script, *changes], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, capture_output=True)
    assert (tmp_path / "tasks" / "tasks.jsonl").read_bytes() == (tmp_path / "again" / "tasks.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["gpro"], "grpo"),
        (["bc", "--config", "bc_quen_7b"], "bc_qwen_7b"),
        (["bc", "--config", "none.yaml"], "none.yaml"),
        ([], "evaluate"),
        (["credit-accuracy", "--config", "credit_accuracy"], "python -m studies.attribution_accuracy"),
    ],
)
def test_missing_files_and_names_exit_with_code_2(arguments, named, capsys):
    assert main(arguments) == 2
    assert named in "".join(capsys.readouterr())


@pytest.mark.parametrize("arguments", [["--help"], ["bc", "--help"], ["--list"], ["grpo", "--list"]])
def test_sotopia_passes_every_option_to_the_stages(arguments, installed, monkeypatch):
    monkeypatch.syspath_prepend(installed)
    result = CliRunner().invoke(app, ["train", *arguments])
    assert result.exit_code == 0, result.output
    assert "sotopia train" in result.output


def test_every_stage_has_a_configuration_that_is_listed(capsys):
    for name in STAGES:
        main([name, "--list"])
        assert f"sotopia train {name} --config " in capsys.readouterr().out, name
    assert configurations_folder() == ROOT / "configs"
