"""What the pages on training tell a newcomer to type exists, and its settings are read by the script that gets them."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest
from sotopia_training.commands import STAGES, main
from sotopia_training.stage.configurations import find_configuration

from sotopia_env.foundation.settings import read_settings
from tests.sotopia_training.test_configs import ROOT, stage_of

PAGES = sorted((Path(__file__).parents[2] / "docs").glob("training*.md"))
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
BLOCKS = "\n".join(re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)).replace("\\\n", " ")
CONFIGURED = [line.strip() for line in BLOCKS.splitlines() if "--config " in line and "inspect_rows" not in line]
STUDIES = [line for line in CONFIGURED if line.startswith("python -m studies.")]
COMMANDS = [line for line in CONFIGURED if line not in STUDIES]


def test_every_file_that_is_named_exists():
    named = set(re.findall(r"\b((?:configs|scripts|training|docs|benchmarks)/[\w/]+\.(?:yaml|py|md))\b", TEXT))
    assert len(named) > 25
    assert not [name for name in sorted(named) if not (ROOT / name).is_file()]
    table = TEXT[TEXT.index("## The stages") :]
    rows = re.findall(r"^\| ((?:`[\w-]+`(?:, )?)+) \|", table, re.MULTILINE)
    assert {*re.findall(r"`([\w-]+)`", " ".join(rows))} >= STAGES.keys()


def test_every_configuration_is_named():
    left = {path.stem for path in (ROOT / "configs").glob("*.yaml")} - set(re.findall(r"\b[a-z]\w+\b", TEXT))
    assert left <= {"learn"}  # of `make learn`


@pytest.mark.parametrize("command", STUDIES)
def test_a_study_and_its_configuration_exist(command):
    words = shlex.split(command, comments=True)
    assert importlib.util.find_spec(words[2]) is not None
    assert (ROOT / words[words.index("--config") + 1]).is_file()


@pytest.mark.parametrize("command", COMMANDS)
def test_the_launch_command_can_be_set(command):
    words = shlex.split(command.removeprefix("srun bash -c '").removesuffix("'"), comments=True)
    if "train" in words:
        own = words[words.index("train") :]
        stage = own[1]
    else:
        script = next(word for word in words if word.startswith("scripts/"))
        own, stage = words[words.index(script) :], stage_of(script)
    config = own[own.index("--config") + 1]
    overrides = [own[n + 1] for n, word in enumerate(own) if word == "--set"]
    assert read_settings(find_configuration(config), STAGES[stage]().settings, overrides).output


FORECASTS = re.findall(r"^\| `(\w+_7b\w*)` \| ([\d,]+) \| (\d+) \| ([\d,]+) \|$", TEXT, re.MULTILINE)


@pytest.mark.parametrize(("name", "rows", "devices", "steps"), FORECASTS)
def test_documented_forecasts_equal_the_dry_runs(name, rows, devices, steps, capsys):
    command = [name.split("_")[0], "--config", name, "--dry-run", "--no-probe"]
    assert main([*command, "--rows", rows.replace(",", ""), "--devices", devices]) == 0
    assert f"{devices} device(s): {rows} rows, {steps} optimiser steps" in capsys.readouterr().out
