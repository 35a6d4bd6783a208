"""What docs/training.md tells a newcomer to type exists, and its settings are read by the script they are given to."""

import re
import shlex
from pathlib import Path

import pytest

from tests.training.test_configs import ROOT, settings_class
from training.settings import read_settings

TEXT = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
BLOCKS = "\n".join(re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)).replace("\\\n", " ")
COMMANDS = [line.strip() for line in BLOCKS.splitlines() if "scripts/" in line and "--config " in line]


def test_every_file_that_is_named_exists():
    named = set(re.findall(r"\b((?:configs|scripts|training|docs|benchmarks)/[\w/]+\.(?:yaml|py|md))\b", TEXT))
    assert len(named) > 25
    assert not [name for name in sorted(named) if not (ROOT / name).is_file()]
    for script in re.findall(r"^\| `(\w+\.py)`", TEXT, re.MULTILINE):
        assert (ROOT / "scripts" / script).is_file(), script


def test_every_configuration_is_named():
    left = {path.stem for path in (ROOT / "configs").glob("*.yaml")} - set(re.findall(r"\b[a-z]\w+\b", TEXT))
    assert left <= {"learn"}  # of `make learn`


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_can_be_given(command):
    words = shlex.split(command.removeprefix("srun bash -c '").removesuffix("'"), comments=True)
    script = next(word for word in words if word.startswith("scripts/"))
    own = words[words.index(script) :]
    config = own[own.index("--config") + 1]
    overrides = [own[n + 1] for n, word in enumerate(own) if word == "--set"]
    read_settings(ROOT / config, settings_class(Path(script).name), overrides)
