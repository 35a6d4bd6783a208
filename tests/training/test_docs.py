"""What docs/training.md tells a newcomer to type exists, and its settings are read by the script they are given to."""

import re
import shlex
from pathlib import Path

import pytest

from tests.training.grpo.grpo_asked import MISTRAL_7B, QWEN_7B
from tests.training.test_configs import ROOT, settings_class
from training.grpo.memory import estimate
from training.grpo.settings import GRPOSettings
from training.stage.settings import PromptSettings, read_settings

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
    assert read_settings(ROOT / config, settings_class(Path(script).name), overrides).output


@pytest.mark.parametrize("name", ["grpo_qwen_7b", "grpo_mistral_7b", "grpo_multi_turn_qwen_7b"])
def test_the_table_of_memory_is_what_the_command_estimates(name):
    (line,) = [line for line in TEXT.splitlines() if line.startswith(f"| `{name}` |")]
    settings = read_settings(ROOT / "configs" / f"{name}.yaml", GRPOSettings)
    found = estimate(
        MISTRAL_7B if "mistral" in name else QWEN_7B, settings, PromptSettings(max_length=4096, max_answer=256)
    )
    parts = (found.weights, found.training, found.cache, found.activations, found.logits, found.total)
    assert line.strip("| ").split(" | ")[1:] == [f"{part / 1e9:.1f}" for part in parts]
